/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c - monotonic nanoseconds and deadlines. */
#include "base.h"

#include <time.h>

uint64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t clock_coarse_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t clock_after(double seconds)
{
    if (!(seconds >= 0 && seconds <= 1e9)) /* also what is no number */
        return UINT64_MAX;
    return clock_ns() + (uint64_t)(seconds * 1e9);
}
