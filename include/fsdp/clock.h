/** \file clock.h  Floor 0, base: time. */
#ifndef FSDP_CLOCK_H
#define FSDP_CLOCK_H

/** Seconds of the monotonic clock. */
double fsdp_clock_seconds(void);

/** Cores that this process may use (its affinity mask). */
int fsdp_cpu_count(void);

#endif
