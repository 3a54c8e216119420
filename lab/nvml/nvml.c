/* The calls about the system, and what answers of every kind need. */
#include "scenario.h"
#include <stdio.h>
#include <string.h>

nvmlReturn_t put(char *to, unsigned length, const char *text)
{
    if (strlen(text) + 1 > length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

int is_geforce(nvmlDevice_t device)
{
    return strstr(device->name, "GeForce") != NULL;
}

void fill_pci(nvmlPciInfo_t *pci, const char *bus_id)
{
    unsigned function = 0;

    memset(pci, 0, sizeof *pci);
    sscanf(bus_id, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &function);
    snprintf(pci->busId, sizeof pci->busId, "%s", bus_id);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.%X", pci->domain & 0xFFFF, pci->bus & 0xFF,
             pci->device & 0xFF, function & 0xF);
    pci->pciDeviceId = 0x10DE;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    nvmlReturn_t answer = load();

    (void)flags;
    if (answer == NVML_SUCCESS)
        answer = fault("nvmlInit");
    if (answer == NVML_SUCCESS)
        lab.initialized++;
    return answer;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    ENTER();
    lab.initialized--;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS: return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED: return "NVML was not first initialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "A supplied argument is invalid";
    case NVML_ERROR_NOT_SUPPORTED: return "The requested operation is not available on target device";
    case NVML_ERROR_NOT_FOUND: return "A query to find an object was unsuccessful";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "An input argument is not large enough";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "NVIDIA driver is not loaded";
    case NVML_ERROR_GPU_IS_LOST: return "The GPU has fallen off the bus or has otherwise become inaccessible";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "A driver/library version mismatch was detected";
    default: return "An unknown error of the NVML stand-in";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    ENTER();
    return put(version, length, lab.driver);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char text[96];

    ENTER();
    snprintf(text, sizeof text, "%d.%s", lab.cuda / 1000, lab.driver);
    return put(version, length, text);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER();
    *version = lab.cuda;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}
