/* A stand-in for libcuda.so.1: the calls of the checkpoint API, on the processes and devices of an NVML scenario.
 *
 * NVML_SCENARIO names the scenario (tests/standin/nvml.py); what this library changes is kept in the file beside it, its
 * name plus ".cuda", which the NVML stand-in reads too: a checkpointed process leaves its list and gives its memory back.
 * CUDA_CALLS, if set, names a file that gets one line per call: the function's name and the pid.
 *
 * The scenario says what goes wrong, for all processes or for one (cuda.<pid>.…):
 *     cuda.fault.<function> <error code>     cuda.slow_ms.<function> <milliseconds>     cuda.hang.<function> 1
 *     cuda.late.<function> <error code>      the call does its work and then fails
 *     cuda.die.<function> before|after       the calling process ends before or after the work
 *     cuda.kill.<function> 1                 the target is killed first
 *     cuda.busy 1                            its GPU work does not pause: locking runs out of time
 * As on real drivers a restore without enough memory fails once with 2 (out of memory), then with 304 for ever.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, OPERATING_SYSTEM = 304,
       ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, NOT_SUPPORTED = 801 };
enum { RUNNING = 0, LOCKED = 1, CHECKPOINTED = 2, FAILED = 3 };
enum { MAX_LINES = 8192, MAX_GPUS = 16 };

typedef unsigned int uint;
typedef unsigned long long ull;
typedef struct { unsigned char bytes[16]; } uuid_t;
typedef struct { uuid_t from, to; } pair_t;
typedef struct { uint timeout_ms, reserved0; ull reserved1[7]; } lock_args;
typedef struct { pair_t *pairs; uint count; } restore_args;

static struct { char *key, *value; } lines[MAX_LINES];
static int count_lines = 0, initialized = 0, guard = -1;

static void forget(void) {
    for (int i = 0; i < count_lines; i++) free(lines[i].key);
    count_lines = 0;
}
static void put(const char *key, const char *value) {
    for (int i = 0; i < count_lines; i++)
        if (!strcmp(lines[i].key, key)) { free(lines[i].key); lines[i] = lines[--count_lines]; break; }
    if (count_lines == MAX_LINES) abort();
    char *copy = malloc(strlen(key) + strlen(value) + 2);
    strcpy(copy, key);
    strcpy(copy + strlen(key) + 1, value);
    lines[count_lines].key = copy;
    lines[count_lines++].value = copy + strlen(key) + 1;
}
static void take_in(const char *path) {
    FILE *file = fopen(path, "r");
    char line[1024];
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *space = strchr(line, ' ');
        if (!space) continue;
        *space = 0;
        put(line, space + 1);
    }
    if (file) fclose(file);
}
static const char *moved_path(char out[1024]) {
    snprintf(out, 1024, "%s.cuda", getenv("NVML_SCENARIO"));
    return out;
}
/* Reads scenario and state; nobody else does until close_state. */
static void open_state(void) {
    char moved[1024], lock[1100];
    snprintf(lock, sizeof lock, "%s.lock", moved_path(moved));
    guard = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    flock(guard, LOCK_EX);
    forget();
    take_in(getenv("NVML_SCENARIO"));
    take_in(moved);
}
static void close_state(int keep) {
    char moved[1024], draft[1100];
    snprintf(draft, sizeof draft, "%s.draft", moved_path(moved));
    FILE *file = keep ? fopen(draft, "w") : NULL;
    for (int i = 0; file && i < count_lines; i++)
        if (!strncmp(lines[i].key, "state.", 6) || !strncmp(lines[i].key, "to.", 3) || !strncmp(lines[i].key, "broken.", 7))
            fprintf(file, "%s %s\n", lines[i].key, lines[i].value);
    if (file) { fclose(file); rename(draft, moved); }
    close(guard);
}
static const char *find(const char *format, ...) {
    char key[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    for (int i = 0; i < count_lines; i++)
        if (!strcmp(lines[i].key, key)) return lines[i].value;
    return NULL;
}
static void set(const char *value, const char *format, ...) {
    char key[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    put(key, value);
}
static const char *effect(int pid, const char *kind, const char *function) {
    const char *found = find("cuda.%d.%s.%s", pid, kind, function);
    return found ? found : find("cuda.%s.%s", kind, function);
}
static const char *trait(int pid, const char *name) {
    const char *found = find("cuda.%d.%s", pid, name);
    return found ? found : find("cuda.%s", name);
}

static int lives(int pid) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (!fgets(line, sizeof line, file)) line[0] = 0;
    fclose(file);
    char *end = strrchr(line, ')');
    return end && end[2] != 'Z' && end[2] != 'X';
}
/* What every call does first: waits, hangs, dies, kills or fails as the scenario says. */
static int enter(const char *function, int pid) {
    const char *calls = getenv("CUDA_CALLS");
    if (calls) {
        FILE *file = fopen(calls, "a");
        if (file) { fprintf(file, "%s %d\n", function, pid); fclose(file); }
    }
    open_state();
    const char *slow = effect(pid, "slow_ms", function), *hang = effect(pid, "hang", function), *die = effect(pid, "die", function);
    const char *fault = effect(pid, "fault", function), *kills = effect(pid, "kill", function);
    long milliseconds = slow ? atol(slow) : 0;
    int code = fault ? atoi(fault) : SUCCESS, hangs = hang != NULL, dies = die && !strcmp(die, "before"), kills_it = kills != NULL;
    close_state(0);
    if (dies) _exit(7);
    while (hangs) pause();
    if (milliseconds) usleep(milliseconds * 1000);
    if (kills_it && pid > 1 && pid != getpid()) {
        kill(pid, SIGKILL);
        while (lives(pid)) usleep(1000);
    }
    return code;
}
static int leave(const char *function, int pid, int code) {
    open_state();
    const char *late = effect(pid, "late", function), *die = effect(pid, "die", function);
    int dies = die && !strcmp(die, "after"), fails = late ? atoi(late) : SUCCESS;
    close_state(0);
    if (dies) _exit(7);
    return code ? code : fails;
}
static int gpus_here(void) { return atoi(find("gpu.#") ?: "0"); }
static int listed(int pid) {
    for (int gpu = 0; gpu < gpus_here(); gpu++)
        for (int n = 0, all = atoi(find("gpu.%d.processes.#", gpu) ?: "0"); n < all; n++)
            if (atoi(find("gpu.%d.processes.%d.0", gpu, n) ?: "0") == pid) return 1;
    return 0;
}
static int state_of(int pid) {
    const char *state = find("state.%d", pid);
    return state ? atoi(state) : RUNNING;
}
static int usable(int pid) {
    if (!initialized) return NOT_INITIALIZED;
    return lives(pid) && (listed(pid) || pid == getpid()) ? SUCCESS : INVALID_VALUE;
}
static int gpu_of(uuid_t uuid) {
    for (int gpu = 0; gpu < gpus_here(); gpu++) {
        const char *text = find("gpu.%d.uuid", gpu);
        unsigned char bytes[16];
        int n = 0;
        for (const char *c = text ? text + 4 : ""; *c && n < 16; c++) {
            uint byte;
            if (*c == '-' || sscanf(c, "%2x", &byte) != 1) continue;
            bytes[n++] = (unsigned char)byte;
            c++;
        }
        if (n == 16 && !memcmp(bytes, uuid.bytes, 16)) return gpu;
    }
    return -1;
}
static int lies_on(int pid, int gpu) {
    const char *moved = find("to.%d.%d", pid, gpu);
    return moved ? atoi(moved) : gpu;
}
static ull bytes_of(int gpu, int n) {
    const char *bytes = find("gpu.%d.processes.%d.1", gpu, n);
    return bytes ? strtoull(bytes, NULL, 0) : 0;
}
static long long free_on(int gpu) {
    long long found = (long long)(strtoull(find("gpu.%d.memory_total", gpu) ?: "0", NULL, 0) -
                                  strtoull(find("gpu.%d.memory_reserved", gpu) ?: "0", NULL, 0));
    found -= (long long)strtoull(find("gpu.%d.memory_used", gpu) ?: "0", NULL, 0);
    for (int from = 0; from < gpus_here(); from++)
        for (int n = 0, all = atoi(find("gpu.%d.processes.#", from) ?: "0"); n < all; n++) {
            int pid = atoi(find("gpu.%d.processes.%d.0", from, n) ?: "0"), to = lies_on(pid, from);
            if (to == from) continue;
            if (from == gpu) found += (long long)bytes_of(from, n);
            if (to == gpu) found -= (long long)bytes_of(from, n);
        }
    return found;
}

int cuInit(uint flags) {
    (void)flags;
    int code = enter("cuInit", 0);
    if (code) return code;
    open_state();
    code = gpus_here() ? SUCCESS : NO_DEVICE;
    close_state(0);
    initialized = initialized || !code;
    return code;
}
int cuDriverGetVersion(int *version) {
    open_state();
    *version = atoi(find("cuda") ?: "13000");
    close_state(0);
    return SUCCESS;
}
int cuCheckpointProcessGetState(int pid, int *state) {
    int code = enter("cuCheckpointProcessGetState", pid);
    if (code) return code;
    open_state();
    code = usable(pid);
    *state = atoi(trait(pid, "state") ?: "-1");
    if (*state < 0) *state = state_of(pid);
    close_state(0);
    return leave("cuCheckpointProcessGetState", pid, code);
}
int cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    int code = enter("cuCheckpointProcessGetRestoreThreadId", pid);
    if (code) return code;
    open_state();
    code = usable(pid);
    *thread = pid;
    close_state(0);
    return code;
}
int cuCheckpointProcessLock(int pid, lock_args *arguments) {
    const char *function = "cuCheckpointProcessLock";
    int code = enter(function, pid);
    if (code) return code;
    open_state();
    int busy = trait(pid, "busy") != NULL;
    close_state(0);
    uint wait_ms = arguments ? arguments->timeout_ms : 0;
    while (busy && !wait_ms) pause(); /* 0 waits for ever */
    if (busy) { usleep(wait_ms * 1000); return leave(function, pid, NOT_READY); }
    open_state();
    code = usable(pid);
    if (!code && state_of(pid) != RUNNING) code = ILLEGAL_STATE;
    if (!code) set("1", "state.%d", pid);
    close_state(!code);
    return leave(function, pid, code);
}
int cuCheckpointProcessCheckpoint(int pid, void *arguments) {
    (void)arguments;
    const char *function = "cuCheckpointProcessCheckpoint";
    int code = enter(function, pid);
    if (code) return code;
    open_state();
    code = usable(pid);
    if (!code && state_of(pid) != LOCKED) code = ILLEGAL_STATE;
    for (int gpu = 0; !code && gpu < gpus_here(); gpu++)
        for (int n = 0, all = atoi(find("gpu.%d.processes.#", gpu) ?: "0"); n < all; n++)
            if (atoi(find("gpu.%d.processes.%d.0", gpu, n) ?: "0") == pid) {
                char was[16];
                snprintf(was, sizeof was, "%d", lies_on(pid, gpu));
                set(was, "to.%d.was.%d", pid, gpu); /* where it came from, for a restore without pairs */
                set("-1", "to.%d.%d", pid, gpu);
            }
    if (!code) set("2", "state.%d", pid);
    close_state(!code);
    return leave(function, pid, code);
}
int cuCheckpointProcessRestore(int pid, restore_args *arguments) {
    const char *function = "cuCheckpointProcessRestore";
    int code = enter(function, pid), target[MAX_GPUS], taken[MAX_GPUS] = {0};
    if (code) return code;
    open_state();
    code = usable(pid);
    if (!code && find("broken.%d", pid)) code = OPERATING_SYSTEM;
    if (!code && state_of(pid) != CHECKPOINTED) code = ILLEGAL_STATE;
    int gpus = gpus_here(), pairs = arguments ? (int)arguments->count : 0;
    for (int gpu = 0; gpu < gpus; gpu++) target[gpu] = pairs ? -1 : gpu;
    for (int i = 0; !code && i < pairs; i++) {
        int from = gpu_of(arguments->pairs[i].from), to = gpu_of(arguments->pairs[i].to);
        if (from < 0 || to < 0 || taken[to]++) code = INVALID_VALUE;
        else target[from] = to;
    }
    for (int gpu = 0; !code && gpu < gpus; gpu++)
        if (target[gpu] < 0) code = INVALID_VALUE; /* every GPU the kernel-mode driver sees must be mapped */
    int broke = 0;
    for (int gpu = 0; !code && gpu < gpus; gpu++)
        for (int n = 0, all = atoi(find("gpu.%d.processes.#", gpu) ?: "0"); !code && n < all; n++) {
            if (atoi(find("gpu.%d.processes.%d.0", gpu, n) ?: "0") != pid) continue;
            int was = atoi(find("to.%d.was.%d", pid, gpu) ?: "0"), to = target[was];
            char text[16];
            snprintf(text, sizeof text, "%d", to);
            if (free_on(to) < (long long)bytes_of(gpu, n)) { code = OUT_OF_MEMORY; broke = 1; set("1", "broken.%d", pid); }
            else set(text, "to.%d.%d", pid, gpu);
        }
    if (!code) set("1", "state.%d", pid);
    close_state(!code || broke);
    return leave(function, pid, code);
}
int cuCheckpointProcessUnlock(int pid, void *arguments) {
    (void)arguments;
    const char *function = "cuCheckpointProcessUnlock";
    int code = enter(function, pid);
    if (code) return code;
    open_state();
    code = usable(pid);
    if (!code && state_of(pid) != LOCKED) code = ILLEGAL_STATE;
    if (!code) set("0", "state.%d", pid);
    close_state(!code);
    return leave(function, pid, code);
}
int cuGetErrorName(int code, const char **name) {
    (void)code;
    *name = "CUDA_ERROR_STAND_IN";
    return SUCCESS;
}
int cuGetProcAddress_v2(const char *symbol, void **found, int version, ull flags, int *status) {
    (void)version; (void)flags;
    *found = dlsym(RTLD_DEFAULT, symbol);
    Dl_info here;
    if (!*found && dladdr((void *)cuInit, &here)) {
        void *self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
        *found = self ? dlsym(self, symbol) : NULL;
    }
    if (status) *status = *found ? 0 : 1;
    return *found ? SUCCESS : NOT_FOUND;
}
int cuGetProcAddress(const char *symbol, void **found, int version, ull flags) { return cuGetProcAddress_v2(symbol, found, version, flags, NULL); }
