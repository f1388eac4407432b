/* A stand-in for libnvidia-ml.so.1 that says what a scenario file says.
 *
 * NVML_SCENARIO names the file: one "key value" per line, as tests/standin/nvml.py writes it. It is read again whenever it
 * changed. NVML_CALLS, if set, names a file that gets one line per call (the function's name).
 *
 * A field without a line is NOT_SUPPORTED, as on real devices. Faults, for all devices or for one (gpu.1.…):
 *     fault.<function> <error code>      slow_ms.<function> <milliseconds>      hang.<function> 1
 * with "*" for every function. Symbols are left out at build time, so that dlsym does not find them.
 *
 * What the stand-in driver (cuda.c) moved is read from the file beside the scenario, its name plus ".cuda": a process that
 * lies on another device, or on none, than the scenario says is listed there, and its bytes count there.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { MAX_GPUS = 16, MAX_MIGS = 8, MAX_LINES = 8192 };

typedef unsigned int uint;
typedef unsigned long long ull;
typedef struct { int gpu, mig; } handle_t; /* mig is -1 for a whole device */
typedef handle_t *device;

typedef struct { char busIdLegacy[16]; uint domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } pci_t;
typedef struct { ull total, free, used; } memory_v1_t;
typedef struct { uint version; ull total, reserved, free, used; } memory_v2_t;
typedef struct { uint gpu, memory; } utilization_t;
typedef struct { uint version, sensor; int temperature; } temperature_t;
typedef struct { uint version; int margin; } margin_t;
typedef struct { uint pid; ull memory; uint gi, ci; } process_t;
typedef struct { uint pid; ull time; uint sm, memory, encoder, decoder; } sample_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
typedef struct { char *key, *value; } line_t;
static line_t lines[MAX_LINES]; /* by key */
static int count_lines = 0, initialized = 0;
static struct stat read_at[2];
static handle_t handles[MAX_GPUS][MAX_MIGS + 1];

static int changed(const char *path, struct stat *before) {
    struct stat now = {0};
    stat(path, &now); /* a file that is not there counts as empty */
    int same = now.st_ino == before->st_ino && now.st_size == before->st_size && now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
               now.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
    *before = now;
    return !same;
}

static void take_in(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) return;
    char line[1024];
    while (count_lines < MAX_LINES && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *space = strchr(line, ' ');
        if (!space) continue;
        char *copy = strdup(line);
        copy[space - line] = 0;
        lines[count_lines].key = copy;
        lines[count_lines++].value = copy + (space - line) + 1;
    }
    fclose(file);
}

static int by_key(const void *one, const void *other) { return strcmp(((line_t *)one)->key, ((line_t *)other)->key); }

static void reread(void) {
    const char *path = getenv("NVML_SCENARIO");
    if (!path) return;
    char moved[1024];
    snprintf(moved, sizeof moved, "%s.cuda", path);
    int scenario = changed(path, &read_at[0]), moves = changed(moved, &read_at[1]);
    if (!scenario && !moves) return;
    for (int i = 0; i < count_lines; i++) free(lines[i].key);
    count_lines = 0;
    take_in(path);
    take_in(moved);
    qsort(lines, count_lines, sizeof *lines, by_key);
}

/* The value of a key built like printf does, NULL where the scenario has none. Call with the lock held. */
static const char *find(const char *format, ...) {
    char key[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    line_t wanted = {key, NULL}, *found = bsearch(&wanted, lines, count_lines, sizeof *lines, by_key);
    return found ? found->value : NULL;
}

static void prefix(device of, char out[64]) {
    if (of->mig < 0) snprintf(out, 64, "gpu.%d", of->gpu);
    else snprintf(out, 64, "gpu.%d.migs.%d", of->gpu, of->mig);
}

static const char *effect(const char *kind, device of, const char *function) {
    const char *found = NULL;
    if (of) {
        char at[64];
        prefix(of, at);
        if (!(found = find("%s.%s.%s", at, kind, function))) found = find("%s.%s.*", at, kind);
    }
    if (!found && !(found = find("%s.%s", kind, function))) found = find("%s.*", kind);
    return found;
}

/* What every call does first: waits, hangs or fails as the scenario says. */
static int enter(const char *function, device of) {
    pthread_mutex_lock(&lock);
    reread();
    const char *slow = effect("slow_ms", of, function), *hang = effect("hang", of, function), *fault = effect("fault", of, function);
    long milliseconds = slow ? atol(slow) : 0;
    int code = fault ? atoi(fault) : SUCCESS, hangs = hang != NULL, ready = initialized;
    pthread_mutex_unlock(&lock);
    const char *calls = getenv("NVML_CALLS");
    if (calls) {
        FILE *file = fopen(calls, "a");
        if (file) { fprintf(file, "%s\n", function); fclose(file); }
    }
    while (hangs) pause();
    if (milliseconds) usleep(milliseconds * 1000);
    if (strncmp(function, "nvmlInit", 8) && !ready) return UNINITIALIZED;
    return code;
}

static int text(const char *function, device of, const char *key, char *out, uint size) {
    int code = enter(function, of);
    if (code) return code;
    char at[64] = "";
    pthread_mutex_lock(&lock);
    if (of) prefix(of, at);
    const char *value = of ? find("%s.%s", at, key) : find("%s", key);
    if (value) snprintf(out, size, "%s", value);
    pthread_mutex_unlock(&lock);
    return value ? SUCCESS : NOT_SUPPORTED;
}

static int number_of(device of, const char *key, ull *out) {
    char at[64];
    pthread_mutex_lock(&lock);
    prefix(of, at);
    const char *value = find("%s.%s", at, key);
    if (value) *out = strtoull(value, NULL, 0);
    pthread_mutex_unlock(&lock);
    return value ? SUCCESS : NOT_SUPPORTED;
}

static int number(const char *function, device of, const char *key, uint *out) {
    int code = enter(function, of);
    if (code) return code;
    ull value = 0;
    code = number_of(of, key, &value);
    if (!code) *out = (uint)value;
    return code;
}

static int numbered(const char *function, device of, const char *key, int which, uint *out) {
    char full[64];
    snprintf(full, sizeof full, "%s.%d", key, which);
    return number(function, of, full, out);
}

static device at(int gpu, int mig) {
    handles[gpu][mig + 1] = (handle_t){gpu, mig};
    return &handles[gpu][mig + 1];
}

static int size_of(const char *key) {
    pthread_mutex_lock(&lock);
    const char *value = find("%s.#", key);
    int size = value ? atoi(value) : 0;
    pthread_mutex_unlock(&lock);
    return size;
}

/* --- the library and the machine --- */

int nvmlInitWithFlags(uint flags) {
    (void)flags;
    int code = enter("nvmlInit", NULL);
    if (!code) { pthread_mutex_lock(&lock); initialized++; pthread_mutex_unlock(&lock); }
    return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    int code = enter("nvmlShutdown", NULL);
    if (!code) { pthread_mutex_lock(&lock); initialized--; pthread_mutex_unlock(&lock); }
    return code;
}
const char *nvmlErrorString(int code) { (void)code; return "stand-in error"; }
int nvmlSystemGetDriverVersion(char *out, uint size) { return text("nvmlSystemGetDriverVersion", NULL, "driver", out, size); }
int nvmlSystemGetNVMLVersion(char *out, uint size) { return text("nvmlSystemGetNVMLVersion", NULL, "nvml", out, size); }
int nvmlSystemGetCudaDriverVersion(int *out) {
    char value[32];
    int code = text("nvmlSystemGetCudaDriverVersion", NULL, "cuda", value, sizeof value);
    if (!code) *out = atoi(value);
    return code;
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }

int nvmlDeviceGetCount_v2(uint *out) {
    int code = enter("nvmlDeviceGetCount", NULL);
    if (!code) *out = size_of("gpu");
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(uint index, device *out) {
    if ((int)index >= size_of("gpu")) return enter("nvmlDeviceGetHandleByIndex", NULL) ?: INVALID_ARGUMENT;
    *out = at(index, -1);
    return enter("nvmlDeviceGetHandleByIndex", *out);
}
static int by_text(const char *function, const char *key, const char *wanted, device *out) {
    int code = enter(function, NULL), gpus = size_of("gpu");
    char value[128], name[64];
    if (code) return code;
    for (int gpu = 0; gpu < gpus; gpu++) {
        snprintf(name, sizeof name, "gpu.%d.migs", gpu);
        for (int mig = -1; mig < size_of(name); mig++)
            if (!text(function, at(gpu, mig), key, value, sizeof value) && !strcmp(value, wanted)) { *out = at(gpu, mig); return SUCCESS; }
    }
    return NOT_FOUND;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device *out) { return by_text("nvmlDeviceGetHandleByUUID", "uuid", uuid, out); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, device *out) { return by_text("nvmlDeviceGetHandleByPciBusId", "bus_id", id, out); }

/* --- one device: text --- */

int nvmlDeviceGetName(device of, char *out, uint size) { return text("nvmlDeviceGetName", of, "name", out, size); }
int nvmlDeviceGetUUID(device of, char *out, uint size) { return text("nvmlDeviceGetUUID", of, "uuid", out, size); }
int nvmlDeviceGetSerial(device of, char *out, uint size) { return text("nvmlDeviceGetSerial", of, "serial", out, size); }

/* --- one device: plain numbers --- */

#define NUMBER(function, key) \
    int function(device of, uint *out) { return number(#function, of, key, out); }
#define NUMBERED(function, key) \
    int function(device of, int which, uint *out) { return numbered(#function, of, key, which, out); }

NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetFanSpeed, "fan")
NUMBER(nvmlDeviceGetPowerUsage, "power_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetMemoryBusWidth, "bus_width")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetPerformanceState, "performance_state")
NUMBER(nvmlDeviceGetDisplayMode, "display_mode")
NUMBER(nvmlDeviceGetDisplayActive, "display_active")
NUMBER(nvmlDeviceGetGpuInstanceId, "gi")
NUMBER(nvmlDeviceGetComputeInstanceId, "ci")
NUMBERED(nvmlDeviceGetClockInfo, "clock")
NUMBERED(nvmlDeviceGetMaxClockInfo, "max_clock")
NUMBERED(nvmlDeviceGetTemperatureThreshold, "threshold")
NUMBERED(nvmlDeviceGetNvLinkVersion, "nvlink")
NUMBERED(nvmlDeviceGetPcieThroughput, "pcie")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width")

int nvmlDeviceGetIndex(device of, uint *out) {
    int code = enter("nvmlDeviceGetIndex", of);
    if (!code) *out = of->mig < 0 ? of->gpu : of->mig;
    return code;
}
int nvmlDeviceGetTemperature(device of, int sensor, uint *out) { (void)sensor; return number("nvmlDeviceGetTemperature", of, "temperature", out); }
int nvmlDeviceGetTemperatureV(device of, temperature_t *out) {
    uint value = 0;
    int code = number("nvmlDeviceGetTemperature", of, "temperature", &value);
    if (!code) out->temperature = (int)value;
    return code;
}
int nvmlDeviceGetMarginTemperature(device of, margin_t *out) {
    uint value = 0;
    int code = number("nvmlDeviceGetMarginTemperature", of, "margin", &value);
    if (!code) out->margin = (int)value;
    return code;
}
static int reasons(const char *function, device of, ull *out) {
    int code = enter(function, of);
    return code ? code : number_of(of, "throttle", out);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device of, ull *out) { return reasons("nvmlDeviceGetCurrentClocksThrottleReasons", of, out); }
int nvmlDeviceGetCurrentClocksEventReasons(device of, ull *out) { return reasons("nvmlDeviceGetCurrentClocksEventReasons", of, out); }
int nvmlDeviceGetCudaComputeCapability(device of, int *major, int *minor) {
    uint value = 0;
    int code = number("nvmlDeviceGetCudaComputeCapability", of, "capability", &value); /* 80 is 8.0 */
    *major = value / 10;
    *minor = value % 10;
    return code;
}
static int coder(const char *function, device of, const char *key, uint *out, uint *period) {
    *period = 167000;
    return number(function, of, key, out);
}
int nvmlDeviceGetEncoderUtilization(device of, uint *out, uint *period) { return coder("nvmlDeviceGetEncoderUtilization", of, "encoder", out, period); }
int nvmlDeviceGetDecoderUtilization(device of, uint *out, uint *period) { return coder("nvmlDeviceGetDecoderUtilization", of, "decoder", out, period); }

/* --- one device: structs --- */

int nvmlDeviceGetPciInfo_v3(device of, pci_t *out) {
    uint bus = 0;
    int code = number("nvmlDeviceGetPciInfo", of, "bus", &bus);
    if (code) return code;
    memset(out, 0, sizeof *out);
    out->bus = bus;
    snprintf(out->busId, sizeof out->busId, "00000000:%02X:00.0", bus & 0xff);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "0000:%02X:00.0", bus & 0xff);
    return SUCCESS;
}
/* Where the driver has what the scenario lists as process `n` of a device; -1: in host memory. Call with the lock held. */
static int lies_on(int gpu, uint n, uint *pid, ull *bytes) {
    const char *listed = find("gpu.%d.processes.%u.0", gpu, n), *size = find("gpu.%d.processes.%u.1", gpu, n);
    *pid = listed ? (uint)strtoul(listed, NULL, 0) : 0;
    *bytes = size ? strtoull(size, NULL, 0) : ~0ull;
    const char *moved = find("to.%u.%d", *pid, gpu);
    return moved ? atoi(moved) : gpu;
}
static long long brought(int gpu) {
    if (!read_at[1].st_ino) return 0; /* nothing was ever moved */
    int gpus = size_of("gpu");
    long long sum = 0;
    for (int from = 0; from < gpus; from++) {
        char name[64];
        snprintf(name, sizeof name, "gpu.%d.processes", from);
        uint size = size_of(name);
        pthread_mutex_lock(&lock);
        for (uint n = 0; n < size; n++) {
            uint pid;
            ull bytes;
            int to = lies_on(from, n, &pid, &bytes);
            if (to == from || bytes == ~0ull) continue;
            if (to == gpu) sum += bytes;
            if (from == gpu) sum -= bytes;
        }
        pthread_mutex_unlock(&lock);
    }
    return sum;
}
static int memory(const char *function, device of, ull *total, ull *used, ull *reserved) {
    int code = enter(function, of);
    if (!code) code = number_of(of, "memory_total", total);
    if (!code) code = number_of(of, "memory_used", used);
    if (!code && of->mig < 0) *used += brought(of->gpu);
    *reserved = 0;
    number_of(of, "memory_reserved", reserved);
    return code;
}
int nvmlDeviceGetMemoryInfo(device of, memory_v1_t *out) {
    ull reserved;
    int code = memory("nvmlDeviceGetMemoryInfo", of, &out->total, &out->used, &reserved);
    if (code) return code;
    out->used += reserved; /* the first version of this call counts what the driver keeps as used */
    out->free = out->total - out->used;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(device of, memory_v2_t *out) {
    int code = memory("nvmlDeviceGetMemoryInfo", of, &out->total, &out->used, &out->reserved);
    if (!code) out->free = out->total - out->used - out->reserved;
    return code;
}
int nvmlDeviceGetUtilizationRates(device of, utilization_t *out) {
    int code = number("nvmlDeviceGetUtilizationRates", of, "utilization", &out->gpu);
    ull value = 0;
    number_of(of, "memory_utilization", &value);
    out->memory = (uint)value;
    return code;
}

/* What no data-centre card has. */
int nvmlDeviceGetDriverModel(device of, uint *current, uint *pending) { (void)current; (void)pending; return enter("nvmlDeviceGetDriverModel", of) ?: NOT_SUPPORTED; }
int nvmlDeviceGetTotalEccErrors(device of, int type, int counter, ull *out) {
    (void)type; (void)counter; (void)out;
    return enter("nvmlDeviceGetTotalEccErrors", of) ?: NOT_SUPPORTED;
}

/* --- events: every number that "xids" has more than when the device was registered or last asked is one --- */

typedef struct { device device; ull type, data; uint gi, ci; } event_t;
typedef struct { uint id, scope; long long time, latency; uint type; int code; ull value; } field_t;
static int told[MAX_GPUS], watched[MAX_GPUS];

static int xids_of(int gpu) {
    char key[64];
    snprintf(key, sizeof key, "gpu.%d.xids", gpu);
    return size_of(key);
}
int nvmlEventSetCreate(void **out) {
    *out = told;
    memset(watched, 0, sizeof watched);
    return enter("nvmlEventSetCreate", NULL);
}
int nvmlEventSetFree(void *set) { (void)set; return enter("nvmlEventSetFree", NULL); }
int nvmlDeviceRegisterEvents(device of, ull types, void *set) {
    ull size = 0;
    (void)set;
    int code = enter("nvmlDeviceRegisterEvents", of);
    if (!code) code = number_of(of, "xids.#", &size);
    if (code || !(types & 8)) return code ?: NOT_SUPPORTED;
    watched[of->gpu] = 1;
    told[of->gpu] = (int)size;
    return SUCCESS;
}
int nvmlEventSetWait_v2(void *set, event_t *out, uint timeout) {
    (void)set; (void)timeout;
    int code = enter("nvmlEventSetWait", NULL);
    for (int gpu = 0; !code && gpu < MAX_GPUS; gpu++) {
        if (!watched[gpu] || told[gpu] >= xids_of(gpu)) continue;
        char key[64];
        ull xid = 0;
        snprintf(key, sizeof key, "xids.%d", told[gpu]++);
        number_of(at(gpu, -1), key, &xid);
        *out = (event_t){at(gpu, -1), 8, xid, ~0u, ~0u};
        return SUCCESS;
    }
    return code ?: TIMEOUT;
}
int nvmlDeviceGetFieldValues(device of, int count, field_t *out) {
    int code = enter("nvmlDeviceGetFieldValues", of);
    for (int i = 0; !code && i < count; i++) {
        out[i].value = 0;
        const char *key = out[i].id == 230 ? "recovery" : out[i].id == 138 ? "nvlink_tx_kib" : "nvlink_rx_kib";
        int known = out[i].id == 230 || out[i].id == 138 || out[i].id == 139;
        out[i].type = out[i].id == 230 ? 1 : 3;
        out[i].code = known ? number_of(of, key, &out[i].value) : NOT_SUPPORTED;
    }
    return code;
}

/* --- MIG --- */

int nvmlDeviceGetMigMode(device of, uint *current, uint *pending) {
    int code = number("nvmlDeviceGetMigMode", of, "mig_mode", current);
    *pending = *current;
    return code;
}
int nvmlDeviceIsMigDeviceHandle(device of, uint *out) { *out = of->mig >= 0; return enter("nvmlDeviceIsMigDeviceHandle", of); }
int nvmlDeviceGetMaxMigDeviceCount(device of, uint *out) { *out = MAX_MIGS - 1; return enter("nvmlDeviceGetMaxMigDeviceCount", of); }
int nvmlDeviceGetMigDeviceHandleByIndex(device of, uint index, device *out) {
    int code = enter("nvmlDeviceGetMigDeviceHandleByIndex", of);
    char key[64];
    snprintf(key, sizeof key, "gpu.%d.migs", of->gpu);
    if (code) return code;
    if ((int)index >= size_of(key)) return NOT_FOUND;
    *out = at(of->gpu, index);
    return SUCCESS;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device of, device *out) {
    *out = at(of->gpu, -1);
    return enter("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", of);
}

/* --- processes: "<list>.<n>.0" is the pid, "<list>.<n>.1" its bytes (none: not available) --- */

static int processes(const char *function, device of, const char *list, uint *count, process_t *out) {
    int code = enter(function, of);
    if (code) return code;
    process_t found[256];
    uint number = 0, room = *count;
    int moves = read_at[1].st_ino && of->mig < 0 && !strcmp(list, "processes"), gpus = size_of("gpu");
    for (int from = moves ? 0 : of->gpu; from < (moves ? gpus : of->gpu + 1); from++) {
        char name[64], full[96];
        prefix(moves ? at(from, -1) : of, name);
        snprintf(full, sizeof full, "%s.%s", name, list);
        uint size = size_of(full);
        pthread_mutex_lock(&lock);
        for (uint n = 0; n < size && number < 256; n++) {
            process_t one = {0, ~0ull, ~0u, ~0u};
            int to = of->gpu;
            if (moves) to = lies_on(from, n, &one.pid, &one.memory);
            else {
                const char *pid = find("%s.%u.0", full, n), *bytes = find("%s.%u.1", full, n);
                one.pid = pid ? (uint)strtoul(pid, NULL, 0) : 0;
                one.memory = bytes ? strtoull(bytes, NULL, 0) : ~0ull;
            }
            if (to == of->gpu) found[number++] = one;
        }
        pthread_mutex_unlock(&lock);
    }
    *count = number;
    if (!number) return SUCCESS;
    if (!out || room < number) return INSUFFICIENT_SIZE;
    memcpy(out, found, number * sizeof *found);
    return SUCCESS;
}
#define PROCESSES(function, list) \
    int function##_v2(device of, uint *count, process_t *out) { return processes(#function, of, list, count, out); } \
    int function##_v3(device of, uint *count, process_t *out) { return processes(#function, of, list, count, out); }

PROCESSES(nvmlDeviceGetComputeRunningProcesses, "processes")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, "mps_processes")

/* "samples.<n>" is pid, time in microseconds, SM and memory utilisation. None newer than `since`: NOT_FOUND. */
int nvmlDeviceGetProcessUtilization(device of, sample_t *out, uint *count, ull since) {
    int code = enter("nvmlDeviceGetProcessUtilization", of);
    if (code) return code;
    char name[64], key[96];
    ull values[4], supported = 0;
    prefix(of, name);
    snprintf(key, sizeof key, "samples.#");
    if (number_of(of, key, &supported)) return NOT_SUPPORTED;
    uint found = 0;
    for (uint i = 0; i < supported; i++) {
        for (int field = 0; field < 4; field++) {
            values[field] = 0;
            snprintf(key, sizeof key, "samples.%u.%d", i, field);
            number_of(of, key, &values[field]);
        }
        if (values[1] <= since) continue;
        if (out && found < *count) out[found] = (sample_t){(uint)values[0], values[1], (uint)values[2], (uint)values[3], 0, 0};
        found++;
    }
    uint room = *count;
    *count = found;
    if (!found) return NOT_FOUND;
    return out && room >= found ? SUCCESS : INSUFFICIENT_SIZE;
}
