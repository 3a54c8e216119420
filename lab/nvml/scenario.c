/*
 * An NVML stand-in: answers for the cards of a scenario, so that the real nvidia-ml-py can be run on boxes without a GPU.
 *
 * It reads the text written by lab/nvml.py from $GPUFLEET_LAB_NVML or /etc/gpufleet-lab/nvml.conf, one statement a line:
 *   driver VERSION
 *   cuda NUMBER                                        13000 for CUDA 13.0
 *   gpu INDEX MAJOR MINOR MEMORY_MIB BUS_ID UUID LINKS WATTS NAME...
 *   set INDEX KEY NUMBER                               of that card; KEYs are listed in set() below
 *   pair I J ANCESTOR READ WRITE                       numbers of nvmlGpuTopologyLevel_t, nvmlGpuP2PStatus_t
 *   link GPU LINK PEER                                 an active NVLink; PEER -1 is a switch
 *   fault FUNCTION CODE                                all its versions answer CODE; -1 never answers
 * A file named `processes` beside it, read at each call so that a test can change it, has lines `GPU PID MEMORY_MIB`, with
 * a `G` at the end for one that draws.
 */
#include "scenario.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAULTS 16

struct scenario lab;
static struct { char function[64]; int code; } faults[FAULTS];
static unsigned fault_count;

static const char *conf_path(void)
{
    const char *path = getenv("GPUFLEET_LAB_NVML");
    return path && *path ? path : "/etc/gpufleet-lab/nvml.conf";
}

static int set(struct nvmlDevice_st *gpu, const char *key, int value)
{
    struct { const char *key; void *at; } keys[] = {
        {"gen", &gpu->gen}, {"gen_max", &gpu->gen_max}, {"width", &gpu->width}, {"width_max", &gpu->width_max},
        {"limit_w", &gpu->limit_watts}, {"persistence", &gpu->persistence}, {"ecc", &gpu->ecc}, {"mig", &gpu->mig},
        {"display", &gpu->display},
    };
    unsigned i;

    for (i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i].key)) {
            memcpy(keys[i].at, &value, sizeof value);
            return 1;
        }
    return 0;
}

/* What such a card has when the scenario does not say: the PCIe generation of its architecture, all 16 lanes. */
static void set_defaults(struct nvmlDevice_st *gpu)
{
    gpu->gen = gpu->gen_max = gpu->major < 8 ? 3 : gpu->major == 8 ? 4 : 5;
    gpu->width = gpu->width_max = 16;
    gpu->limit_watts = gpu->watts;
    gpu->persistence = 1;
    gpu->ecc = is_geforce(gpu) ? -1 : 1;
    gpu->mig = -1;
}

static int parse_line(const char *line)
{
    struct nvmlDevice_st gpu = {0};
    unsigned i, j, n;
    int a, b, c;
    char function[64];

    if (line[0] == '#' || line[0] == '\n')
        return 1;
    if (sscanf(line, "driver %79s", lab.driver) == 1 || sscanf(line, "cuda %d", &lab.cuda) == 1)
        return 1;
    if (sscanf(line, "gpu %u %d %d %u %31s %63s %u %u %95[^\n]", &gpu.index, &gpu.major, &gpu.minor, &gpu.memory_mib,
               gpu.bus_id, gpu.uuid, &gpu.links, &gpu.watts, gpu.name) == 9) {
        if (gpu.index != lab.gpu_count || lab.gpu_count == GPUS || gpu.links > LINKS)
            return 0;
        for (n = 0; n < LINKS; n++)
            gpu.peer[n] = NO_LINK;
        set_defaults(&gpu);
        lab.gpus[lab.gpu_count++] = gpu;
        return 1;
    }
    if (sscanf(line, "set %u %63s %d", &i, function, &a) == 3)
        return i < lab.gpu_count && set(&lab.gpus[i], function, a);
    if (sscanf(line, "pair %u %u %d %d %d", &i, &j, &a, &b, &c) == 5) {
        if (i >= lab.gpu_count || j >= lab.gpu_count)
            return 0;
        lab.ancestors[i][j] = lab.ancestors[j][i] = a;
        lab.p2p_read[i][j] = lab.p2p_read[j][i] = b;
        lab.p2p_write[i][j] = lab.p2p_write[j][i] = c;
        return 1;
    }
    if (sscanf(line, "link %u %u %d", &i, &n, &a) == 3) {
        if (i >= lab.gpu_count || n >= lab.gpus[i].links || a < SWITCH || a >= (int)lab.gpu_count)
            return 0;
        lab.gpus[i].peer[n] = a;
        return 1;
    }
    if (sscanf(line, "fault %63s %d", function, &a) == 2 && fault_count < FAULTS) {
        strcpy(faults[fault_count].function, function);
        faults[fault_count++].code = a;
        return 1;
    }
    return 0;
}

nvmlReturn_t load(void)
{
    char line[512];
    FILE *conf = fopen(conf_path(), "r");
    nvmlReturn_t answer = NVML_SUCCESS;

    if (!conf)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    lab.gpu_count = fault_count = 0;
    while (fgets(line, sizeof line, conf))
        if (!parse_line(line)) {
            fprintf(stderr, "nvml stand-in: %s: cannot read: %s", conf_path(), line);
            answer = NVML_ERROR_UNKNOWN;
        }
    fclose(conf);
    return answer;
}

nvmlReturn_t fault(const char *function)
{
    unsigned i;

    for (i = 0; i < fault_count; i++) {
        size_t length = strlen(faults[i].function);
        int same = !strncmp(function, faults[i].function, length);
        if (same && (!function[length] || !strncmp(function + length, "_v", 2))) {
            if (faults[i].code == -1)
                for (;;)
                    pause();
            return (nvmlReturn_t)faults[i].code;
        }
    }
    return NVML_SUCCESS;
}

unsigned processes(nvmlDevice_t device, char kind, nvmlProcessInfo_t *into, unsigned room, unsigned long long *total_mib)
{
    char path[4096], line[128], *slash, letter;
    unsigned gpu, pid, count = 0;
    unsigned long long mib;
    FILE *file;

    snprintf(path, sizeof path - sizeof "processes", "%s", conf_path());
    slash = strrchr(path, '/');
    strcpy(slash ? slash + 1 : path, "processes");
    *total_mib = 0;
    if (!(file = fopen(path, "r")))
        return 0;
    while (fgets(line, sizeof line, file)) {
        letter = 'C';
        if (sscanf(line, "%u %u %llu %c", &gpu, &pid, &mib, &letter) < 3 || gpu != device->index)
            continue;
        *total_mib += mib;
        if (letter != kind)
            continue;
        if (count < room) {
            memset(&into[count], 0, sizeof into[count]);
            into[count].pid = pid;
            into[count].usedGpuMemory = mib * MIB;
            into[count].gpuInstanceId = into[count].computeInstanceId = 0xFFFFFFFFu;
        }
        count++;
    }
    fclose(file);
    return count;
}
