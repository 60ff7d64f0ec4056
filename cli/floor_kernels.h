/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor_kernels.h - plain copies and float32 sums with ordinary and with streaming (non-temporal) stores: what the memory
 * system allows, with nothing of the library in between. Used by `unisono perf --limit` and by bench/floors.c.
 */
#ifndef UNO_FLOOR_KERNELS_H
#define UNO_FLOOR_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define FLOOR_HAS_STREAM 1
static inline void floor_pause(void)
{
    _mm_pause();
}
#else
#define FLOOR_HAS_STREAM 0
static inline void floor_pause(void)
{
}
#endif

/* dst[d][i] = src[0][i] + src[1][i] + ... for i < n, in that order. */
static inline void floor_sum_plain(float *const *dst, int dsts, const float *const *src, int srcs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = src[0][i];
        for (int s = 1; s < srcs; s++)
            x += src[s][i];
        for (int d = 0; d < dsts; d++)
            dst[d][i] = x;
    }
}

#if FLOOR_HAS_STREAM
/* 64 bytes a step, so that the loops over sources and destinations cost little. Streaming stores need 32-byte aligned
 * destinations; the callers' slices are. */
__attribute__((target("avx2"))) static inline void floor_sum_avx2(float *const *dst, int dsts, const float *const *src,
                                                                  int srcs, size_t n, bool stream)
{
    size_t whole = n / 16 * 16;
    for (size_t i = 0; i < whole; i += 16) {
        __m256 a = _mm256_loadu_ps(src[0] + i), b = _mm256_loadu_ps(src[0] + i + 8);
        for (int s = 1; s < srcs; s++) {
            a = _mm256_add_ps(a, _mm256_loadu_ps(src[s] + i));
            b = _mm256_add_ps(b, _mm256_loadu_ps(src[s] + i + 8));
        }
        for (int d = 0; d < dsts; d++)
            if (stream) {
                _mm256_stream_ps(dst[d] + i, a);
                _mm256_stream_ps(dst[d] + i + 8, b);
            } else {
                _mm256_storeu_ps(dst[d] + i, a);
                _mm256_storeu_ps(dst[d] + i + 8, b);
            }
    }
    for (size_t i = whole; i < n; i++) {
        float x = src[0][i];
        for (int s = 1; s < srcs; s++)
            x += src[s][i];
        for (int d = 0; d < dsts; d++)
            dst[d][i] = x;
    }
    if (stream)
        _mm_sfence();
}

__attribute__((target("avx2"))) static inline void floor_copy_stream(void *dst, const void *src, size_t bytes)
{
    size_t head = (-(uintptr_t)dst) & 31, whole;
    head = head < bytes ? head : bytes;
    memcpy(dst, src, head);
    whole = (bytes - head) / 128 * 128;
    float *to = (float *)((char *)dst + head);
    const float *from = (const float *)((const char *)src + head);
    for (size_t i = 0; i < whole / 4; i += 32) {
        __m256 a = _mm256_loadu_ps(from + i), b = _mm256_loadu_ps(from + i + 8);
        __m256 c = _mm256_loadu_ps(from + i + 16), d = _mm256_loadu_ps(from + i + 24);
        _mm256_stream_ps(to + i, a);
        _mm256_stream_ps(to + i + 8, b);
        _mm256_stream_ps(to + i + 16, c);
        _mm256_stream_ps(to + i + 24, d);
    }
    memcpy((char *)to + whole, (const char *)from + whole, bytes - head - whole);
    _mm_sfence();
}
#endif

/* Can this processor do the streaming forms? Otherwise stream = true does the same with ordinary stores. */
static inline bool floor_can_stream(void)
{
#if FLOOR_HAS_STREAM
    return __builtin_cpu_supports("avx2");
#else
    return false;
#endif
}

static inline void floor_sum(float *const *dst, int dsts, const float *const *src, int srcs, size_t n, bool stream)
{
#if FLOOR_HAS_STREAM
    if (floor_can_stream()) {
        floor_sum_avx2(dst, dsts, src, srcs, n, stream);
        return;
    }
#endif
    floor_sum_plain(dst, dsts, src, srcs, n);
}

static inline void floor_copy(void *dst, const void *src, size_t bytes, bool stream)
{
#if FLOOR_HAS_STREAM
    if (stream && floor_can_stream()) {
        floor_copy_stream(dst, src, bytes);
        return;
    }
#endif
    memcpy(dst, src, bytes);
}

#endif
