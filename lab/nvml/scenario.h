/* What scenario.c keeps of the scenario, and what every call of nvml.c, devices.c and links.c starts with. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml.h"

#define GPUS 32
#define LINKS NVML_NVLINK_MAX_LINKS
#define MIB (1024ULL * 1024ULL)
#define NO_LINK (-2)
#define SWITCH (-1)

struct nvmlDevice_st {
    unsigned index, memory_mib, links, watts;
    unsigned gen, gen_max, width, width_max, limit_watts;
    int major, minor, persistence, ecc, mig, display; /* ecc, mig: -1 is not supported */
    char bus_id[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE], uuid[64], name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    int peer[LINKS];
};

struct scenario {
    struct nvmlDevice_st gpus[GPUS];
    unsigned gpu_count;
    int ancestors[GPUS][GPUS], p2p_read[GPUS][GPUS], p2p_write[GPUS][GPUS];
    char driver[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
    int cuda, initialized;
};

#pragma GCC visibility push(hidden)
extern struct scenario lab;

/* Reads the text; called at each init. */
nvmlReturn_t load(void);

/* What the scenario makes this function answer instead; a hang never returns. */
nvmlReturn_t fault(const char *function);

/* Reads the file of processes: fills `into` with the card's of a kind, as far as there is room; returns how many there
   are. `total_mib` is of all kinds. */
unsigned processes(nvmlDevice_t device, char kind, nvmlProcessInfo_t *into, unsigned room, unsigned long long *total_mib);

/* Copies a text into the caller's buffer, as NVML does. */
nvmlReturn_t put(char *to, unsigned length, const char *text);

void fill_pci(nvmlPciInfo_t *pci, const char *bus_id);

int is_geforce(nvmlDevice_t device);
#pragma GCC visibility pop

/* Every call but init and the error string starts with one of these. */
#define ENTER() \
    do { \
        nvmlReturn_t fault_code; \
        if (!lab.initialized) \
            return NVML_ERROR_UNINITIALIZED; \
        if ((fault_code = fault(__func__)) != NVML_SUCCESS) \
            return fault_code; \
    } while (0)
#define ENTER_DEVICE(device) \
    do { \
        ENTER(); \
        if ((device) < lab.gpus || (device) >= lab.gpus + lab.gpu_count) \
            return NVML_ERROR_INVALID_ARGUMENT; \
    } while (0)
#define ENTER_LINK(device, link) \
    do { \
        ENTER_DEVICE(device); \
        if ((device)->links == 0) \
            return NVML_ERROR_NOT_SUPPORTED; \
        if ((link) >= (device)->links) \
            return NVML_ERROR_INVALID_ARGUMENT; \
    } while (0)
