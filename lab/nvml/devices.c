/* The calls about one card. */
#include "scenario.h"
#include <string.h>
#include <strings.h>

#define RESERVED_MIB 300ULL

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    ENTER();
    *count = lab.gpu_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    ENTER();
    if (index >= lab.gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &lab.gpus[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    unsigned i;

    ENTER();
    for (i = 0; i < lab.gpu_count; i++)
        if (!strcmp(uuid, lab.gpus[i].uuid)) {
            *device = &lab.gpus[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned i;
    size_t length = strlen(bus_id);

    ENTER();
    /* The driver's accepts 0000:01:00.0 and 00000000:01:00.0 alike. */
    for (i = 0; i < lab.gpu_count; i++) {
        size_t full = strlen(lab.gpus[i].bus_id);
        if (length && length <= full && length + 4 >= full && !strcasecmp(lab.gpus[i].bus_id + (full - length), bus_id)) {
            *device = &lab.gpus[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    ENTER_DEVICE(device);
    *index = device->index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    ENTER_DEVICE(device);
    return put(name, length, device->name);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    ENTER_DEVICE(device);
    return put(uuid, length, device->uuid);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    ENTER_DEVICE(device);
    *major = device->major;
    *minor = device->minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    ENTER_DEVICE(device);
    fill_pci(pci, device->bus_id);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    unsigned long long used_mib;

    ENTER_DEVICE(device);
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    processes(device, 'C', NULL, 0, &used_mib);
    memory->total = device->memory_mib * MIB;
    memory->reserved = RESERVED_MIB * MIB;
    memory->used = used_mib * MIB;
    memory->free = memory->total - memory->reserved - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    unsigned long long used_mib;

    ENTER_DEVICE(device);
    processes(device, 'C', NULL, 0, &used_mib);
    memory->total = device->memory_mib * MIB;
    /* The first version counts what the driver reserves as used. */
    memory->used = (used_mib + RESERVED_MIB) * MIB;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

static nvmlReturn_t list_processes(nvmlDevice_t device, char kind, unsigned int *count, nvmlProcessInfo_t *infos)
{
    unsigned long long total_mib;
    unsigned room = infos ? *count : 0;

    *count = processes(device, kind, infos, room, &total_mib);
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    ENTER_DEVICE(device);
    return list_processes(device, 'C', count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    ENTER_DEVICE(device);
    return list_processes(device, 'G', count, infos);
}

/* Calls that answer one number of the card. */
#define NUMBER(function, value) \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *number) \
    { \
        ENTER_DEVICE(device); \
        *number = (value); \
        return NVML_SUCCESS; \
    }

NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, device->gen)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, device->gen_max)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, device->width)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, device->width_max)
NUMBER(nvmlDeviceGetPowerManagementLimit, device->limit_watts * 1000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, device->watts * 1000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, device->limit_watts * 1000)

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    ENTER_DEVICE(device);
    utilization->gpu = utilization->memory = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius)
{
    ENTER_DEVICE(device);
    if (sensor != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    *celsius = 35 + device->index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least, unsigned int *most)
{
    ENTER_DEVICE(device);
    *least = 100 * 1000;
    *most = device->watts * 1100;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    ENTER_DEVICE(device);
    *mode = device->persistence ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
    ENTER_DEVICE(device);
    if (device->ecc < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = device->ecc ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    ENTER_DEVICE(device);
    if (device->mig < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = device->mig;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *active)
{
    ENTER_DEVICE(device);
    *active = device->display ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    ENTER_DEVICE(device);
    *mode = NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}
