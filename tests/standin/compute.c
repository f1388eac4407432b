/* A stand-in for libcuda.so.1 that also computes: cuda.c's checkpoint calls, and what tests/gpu/cuda.py needs besides.
 *
 * Device memory is host memory. A process that allocates appears in the scenario, with its bytes, and dead ones leave it.
 * Every call waits while its process is locked, as on real drivers. The three kernels of tests/gpu/cuda.py are known by
 * name: "spin" sleeps a microsecond a round, "pattern" and "compare" do as they do there. A process with managed memory
 * cannot be checkpointed. `cuda.corrupt 1` in the scenario flips a bit of what "pattern" wrote.
 */
#include "cuda.c"
#include <stdint.h>

enum { MAX_HELD = 64 };
static struct { void *at; size_t size; } held[MAX_HELD];
static size_t held_bytes = 0;
static int my_gpu = -1;

static void wait_while_stopped(void) {
    for (;;) {
        open_state();
        int state = state_of(getpid());
        close_state(0);
        if (state == RUNNING) return;
        usleep(2000);
    }
}
/* Writes the scenario anew: this process with its bytes, without the dead. Call it between open_state and close_state. */
static void register_me(const char *more) {
    const char *path = getenv("NVML_SCENARIO");
    char draft[1100], line[1024], skip_processes[64], skip_used[64];
    snprintf(draft, sizeof draft, "%s.compute", path);
    snprintf(skip_processes, sizeof skip_processes, "gpu.%d.processes.", my_gpu);
    snprintf(skip_used, sizeof skip_used, "gpu.%d.memory_used ", my_gpu);
    FILE *from = fopen(path, "r"), *to = fopen(draft, "w");
    while (fgets(line, sizeof line, from))
        if (strncmp(line, skip_processes, strlen(skip_processes)) && strncmp(line, skip_used, strlen(skip_used))) fputs(line, to);
    fclose(from);
    ull used = 0;
    int count = 0;
    for (int n = 0, all = atoi(find("gpu.%d.processes.#", my_gpu) ?: "0"); n < all; n++) {
        int pid = atoi(find("gpu.%d.processes.%d.0", my_gpu, n) ?: "0");
        if (pid == getpid() || !lives(pid)) continue;
        fprintf(to, "gpu.%d.processes.%d.# 2\ngpu.%d.processes.%d.0 %d\n", my_gpu, count, my_gpu, count, pid);
        fprintf(to, "gpu.%d.processes.%d.1 %llu\n", my_gpu, count++, bytes_of(my_gpu, n));
        used += bytes_of(my_gpu, n);
    }
    if (held_bytes) {
        fprintf(to, "gpu.%d.processes.%d.# 2\ngpu.%d.processes.%d.0 %d\n", my_gpu, count, my_gpu, count, getpid());
        fprintf(to, "gpu.%d.processes.%d.1 %llu\n", my_gpu, count++, (ull)held_bytes);
        used += held_bytes;
    }
    fprintf(to, "gpu.%d.processes.# %d\ngpu.%d.memory_used %llu\n", my_gpu, count, my_gpu, used);
    if (more) fputs(more, to);
    fclose(to);
    rename(draft, path);
}

int cuDeviceGet(int *device, int ordinal) {
    const char *mask = getenv("CUDA_VISIBLE_DEVICES");
    open_state();
    for (int gpu = 0; gpu < gpus_here(); gpu++)
        if (!mask || !strcmp(find("gpu.%d.uuid", gpu) ?: "", mask)) { my_gpu = gpu; break; }
    close_state(0);
    *device = ordinal;
    return my_gpu < 0 ? NO_DEVICE : SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = (void *)1; return SUCCESS; }
int cuCtxSetCurrent(void *context) { (void)context; return SUCCESS; }
int cuCtxSynchronize(void) { wait_while_stopped(); return SUCCESS; }
int cuModuleLoadData(void **module, const void *image) { *module = (void *)1; return strstr(image, ".entry spin") ? SUCCESS : INVALID_VALUE; }
int cuModuleGetFunction(const void **function, void *module, const char *name) {
    (void)module;
    *function = !strcmp(name, "spin") ? "spin" : !strcmp(name, "pattern") ? "pattern" : !strcmp(name, "compare") ? "compare" : NULL;
    return *function ? SUCCESS : NOT_FOUND;
}
static int take(ull *at, size_t size, const char *more) {
    wait_while_stopped();
    open_state();
    int code = free_on(my_gpu) < (long long)size ? OUT_OF_MEMORY : SUCCESS, slot = 0;
    while (slot < MAX_HELD && held[slot].at) slot++;
    if (slot == MAX_HELD) code = OUT_OF_MEMORY;
    if (!code) {
        held[slot].at = malloc(size);
        held[slot].size = size;
        held_bytes += size;
        *at = (ull)(uintptr_t)held[slot].at;
        register_me(more);
    }
    close_state(0);
    return code;
}
int cuMemAlloc_v2(ull *at, size_t size) { return take(at, size, NULL); }
int cuMemAllocManaged(ull *at, size_t size, uint flags) {
    (void)flags;
    char more[128];
    snprintf(more, sizeof more, "cuda.%d.fault.cuCheckpointProcessCheckpoint %d\n", getpid(), NOT_SUPPORTED);
    return take(at, size, more);
}
int cuMemFree_v2(ull at) {
    wait_while_stopped();
    open_state();
    for (int n = 0; n < MAX_HELD; n++)
        if (held[n].at == (void *)(uintptr_t)at) {
            held_bytes -= held[n].size;
            free(held[n].at);
            held[n].at = NULL;
        }
    register_me(NULL);
    close_state(0);
    return SUCCESS;
}
int cuMemGetInfo_v2(size_t *room, size_t *total) {
    wait_while_stopped();
    open_state();
    long long found = free_on(my_gpu);
    *room = found < 0 ? 0 : (size_t)found;
    *total = strtoull(find("gpu.%d.memory_total", my_gpu) ?: "0", NULL, 0);
    close_state(0);
    return SUCCESS;
}
int cuMemsetD32_v2(ull at, uint value, size_t count) {
    wait_while_stopped();
    for (size_t n = 0; n < count; n++) ((uint32_t *)(uintptr_t)at)[n] = value;
    return SUCCESS;
}
int cuMemcpyDtoH_v2(void *to, ull from, size_t size) {
    wait_while_stopped();
    memcpy(to, (void *)(uintptr_t)from, size);
    return SUCCESS;
}
int cuLaunchKernel(const char *name, uint gx, uint gy, uint gz, uint bx, uint by, uint bz, uint shared, void *stream, void **arguments, void **extra) {
    (void)gx; (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared; (void)stream; (void)extra;
    wait_while_stopped();
    if (!strcmp(name, "spin")) { usleep(*(uint32_t *)arguments[1]); return SUCCESS; }
    uint32_t *words = (uint32_t *)(uintptr_t)*(ull *)arguments[0], seed = *(uint32_t *)arguments[2], bad = 0;
    ull count = *(ull *)arguments[1];
    int writes = !strcmp(name, "pattern");
    for (ull n = 0; n < count; n++) {
        uint32_t value = (uint32_t)n * 0x9E3779B1u ^ seed;
        if (writes) words[n] = value;
        else bad += words[n] != value;
    }
    if (!writes) *(uint32_t *)(uintptr_t)*(ull *)arguments[3] += bad;
    open_state();
    if (writes && count && find("cuda.corrupt")) words[count / 2] ^= 1;
    close_state(0);
    return SUCCESS;
}
