/* Before libfaketime (0.9.10), which takes moments of the monotonic clock for ones of the wall clock where a thread sleeps
 * or waits for another until one: Python's sleep fails, and its threads spin instead of waiting for each other. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    return syscall(SYS_clock_nanosleep, clock, flags, until, left) == -1 ? errno : 0;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*own)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (own == NULL)
        own = dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "pthread_cond_timedwait");
    return own(condition, mutex, until);
}
