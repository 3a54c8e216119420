/* The calls about two cards: NVLink, what they share on the bus, and peer-to-peer. */
#include "scenario.h"

/* By architecture: the NVLink version and the speed of one link in one direction. */
struct generation { int major, minor; unsigned version, mbps; };
static const struct generation GENERATIONS[] = {
    {10, 0, NVML_NVLINK_VERSION_5_0, 50000}, {9, 0, NVML_NVLINK_VERSION_4_0, 26562},
    {8, 6, NVML_NVLINK_VERSION_3_1, 14062},  {8, 0, NVML_NVLINK_VERSION_3_0, 25000},
    {7, 5, NVML_NVLINK_VERSION_2_2, 25781},  {7, 0, NVML_NVLINK_VERSION_2_0, 25781},
    {0, 0, NVML_NVLINK_VERSION_1_0, 20000},
};

static const struct generation *generation(nvmlDevice_t device)
{
    const struct generation *each = GENERATIONS;

    while (device->major < each->major || (device->major == each->major && device->minor < each->minor))
        each++;
    return each;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level)
{
    ENTER_DEVICE(one);
    ENTER_DEVICE(other);
    *level = one == other ? NVML_TOPOLOGY_INTERNAL : (nvmlGpuTopologyLevel_t)lab.ancestors[one->index][other->index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t caps,
                                    nvmlGpuP2PStatus_t *status)
{
    ENTER_DEVICE(one);
    ENTER_DEVICE(other);
    if ((unsigned)caps >= NVML_P2P_CAPS_INDEX_UNKNOWN || one == other)
        return NVML_ERROR_INVALID_ARGUMENT;
    *status = (nvmlGpuP2PStatus_t)(caps == NVML_P2P_CAPS_INDEX_WRITE ? lab.p2p_write : lab.p2p_read)[one->index][other->index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active)
{
    ENTER_LINK(device, link);
    *active = device->peer[link] == NO_LINK ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version)
{
    ENTER_LINK(device, link);
    *version = generation(device)->version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    int i;

    ENTER_DEVICE(device);
    for (i = 0; i < count; i++) {
        int known = values[i].fieldId == NVML_FI_DEV_NVLINK_GET_SPEED && values[i].scopeId < device->links;
        values[i].nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].value.uiVal = known && device->peer[values[i].scopeId] != NO_LINK ? generation(device)->mbps : 0;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, nvmlNvLinkCapability_t capability,
                                           unsigned int *result)
{
    ENTER_LINK(device, link);
    if ((unsigned)capability >= NVML_NVLINK_CAP_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    switch (capability) {
    case NVML_NVLINK_CAP_P2P_SUPPORTED:
    case NVML_NVLINK_CAP_P2P_ATOMICS:
        *result = device->peer[link] != NO_LINK;
        break;
    case NVML_NVLINK_CAP_SLI_BRIDGE:
        *result = is_geforce(device);
        break;
    default:
        *result = 1;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    ENTER_LINK(device, link);
    if (device->peer[link] == NO_LINK)
        return NVML_ERROR_NOT_SUPPORTED;
    fill_pci(pci, device->peer[link] == SWITCH ? "FFFFFFFF:FF:FF.0" : lab.gpus[device->peer[link]].bus_id);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type)
{
    ENTER_LINK(device, link);
    if (device->peer[link] == NO_LINK)
        return NVML_ERROR_NOT_SUPPORTED;
    *type = device->peer[link] == SWITCH ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    return NVML_SUCCESS;
}
