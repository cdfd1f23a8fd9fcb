/* A stub of libnvidia-ml.so.1: just enough of NVML for the real binding, made to fail by variables.
 *
 * STUB_GPUS     how many GPUs (default 2)
 * STUB_INIT     what nvmlInit returns (9 driver not loaded, 18 version mismatch, ...)
 * STUB_LOST     index of a GPU whose queries return 15 (GPU is lost)
 * STUB_ECC      index of a GPU with 3 uncorrectable errors
 * STUB_HANG     seconds that nvmlInit blocks
 * STUB_PIDS     "index:pid" of one compute process
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef long nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

static int number(const char *name, int otherwise)
{
    const char *value = getenv(name);
    return value && *value ? atoi(value) : otherwise;
}

static nvmlReturn_t state_of(nvmlDevice_t device)
{
    return device - 1 == number("STUB_LOST", -1) ? 15 : 0;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    sleep(number("STUB_HANG", 0));
    return number("STUB_INIT", 0);
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlShutdown(void) { return 0; }

const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "RM has detected an NVML/RM version mismatch.";
    default: return "Unknown Error";
    }
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = number("STUB_GPUS", 2);
    return 0;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    *device = index + 1;
    return 0;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    snprintf(uuid, length, "GPU-stub-%ld", device - 1);
    return 0;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    snprintf(name, length, "Stub 9000");
    return state_of(device);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    memory->total = 24ULL << 30;
    memory->used = 1ULL << 30;
    memory->free = memory->total - memory->used;
    return state_of(device);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    *minor = device + 4;
    return state_of(device);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int kind, int counter,
                                         unsigned long long *count)
{
    if (kind != 1 || counter != 0)
        return 2;
    *count = device - 1 == number("STUB_ECC", -1) ? 3 : 0;
    return device == 1 ? state_of(device) : (*count ? 0 : 3); /* 3: not supported by this model */
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *found)
{
    const char *text = getenv("STUB_PIDS");
    long index;
    unsigned int pid, room = *count;
    *count = 0;
    if (!text || sscanf(text, "%ld:%u", &index, &pid) != 2 || index != device - 1)
        return 0;
    *count = 1;
    if (room < 1)
        return 7; /* insufficient size: asked again with room */
    memset(found, 0, sizeof *found);
    found->pid = pid;
    return 0;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *found)
{
    (void)device;
    (void)found;
    *count = 0;
    return 3;
}
