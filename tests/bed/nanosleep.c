/* Before libfaketime: its clock_nanosleep (0.9.10) takes a moment of the monotonic clock for one of the wall clock,
 * and Python sleeps by such moments. */
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    return syscall(SYS_clock_nanosleep, clock, flags, until, left) == -1 ? errno : 0;
}
