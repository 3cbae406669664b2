#include "fsdp/clock.h"

#include <errno.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

double
fsdp_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* How many cores a mask of `max_cpus` bits holds; 0 if the kernel asks for a
 * longer mask, -1 on any other failure. */
static int
count_in_mask(int max_cpus)
{
    size_t bytes = CPU_ALLOC_SIZE(max_cpus);
    cpu_set_t *mask = CPU_ALLOC(max_cpus);
    if (mask == NULL)
        return -1;
    int count = -1;
    if (sched_getaffinity(0, bytes, mask) == 0)
        count = CPU_COUNT_S(bytes, mask);
    else if (errno == EINVAL)
        count = 0;
    CPU_FREE(mask);
    return count;
}

int
fsdp_cpu_count(void)
{
    for (int max_cpus = 1024; max_cpus <= 1 << 20; max_cpus *= 2) {
        int count = count_in_mask(max_cpus);
        if (count > 0)
            return count;
        if (count < 0)
            break;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
