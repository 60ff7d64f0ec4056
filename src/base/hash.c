/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c - 128 bits over bytes, the same on every machine: names plans and tables. Not for secrets. */
#include "base.h"

#include <string.h>

id128 hash128(const void *data, size_t bytes, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t lo = hash_mix(seed, 0x756e6f31), hi = hash_mix(seed, 0x686173683132ull);
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        for (size_t i = 0; i < 8 && at + i < bytes; i++)
            word |= (uint64_t)p[at + i] << (8 * i);
        lo = hash_mix(lo, word);
        hi = hash_mix(hi ^ lo, word);
    }
    lo = hash_mix(lo, bytes);
    hi = hash_mix(hi, lo);
    return (id128){lo, hi};
}
