/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_kernels_frame.h - how a kernel goes through its arrays, and past the caches: non-temporal stores, results in two places,
 * ragged ends. Part of exec_kernels.c, which includes it once for each instruction set.
 */
#ifndef UNO_EXEC_KERNELS_FRAME_H
#define UNO_EXEC_KERNELS_FRAME_H

#include "exec/exec_kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- non-temporal stores ------------------------------------------------------------------------------------------ */

/* A whole line past the caches. Not ordered: stream_fence() comes later. */
static inline void stream_line(char *dst, const char *src)
{
#if defined(__AVX512F__)
    _mm512_stream_si512((void *)dst, _mm512_loadu_si512(src));
#elif defined(__AVX__)
    __m256i a = _mm256_loadu_si256((const __m256i *)src), b = _mm256_loadu_si256((const __m256i *)(src + 32));
    _mm256_stream_si256((__m256i *)dst, a);
    _mm256_stream_si256((__m256i *)(dst + 32), b);
#elif defined(__x86_64__)
    __m128i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm_loadu_si128((const __m128i *)src + i);
    for (int i = 0; i < 4; i++)
        _mm_stream_si128((__m128i *)dst + i, v[i]);
#else
    memcpy(dst, src, CACHE_LINE);
#endif
}

static inline size_t bytes_to_line(const void *p) { return (size_t)(-(uintptr_t)p & (CACHE_LINE - 1)); }

/* Copy past the caches; whole lines only, the ragged ends go the ordinary way. */
static void stream_lines(char *dst, const char *src, size_t bytes)
{
    size_t head = MIN(bytes_to_line(dst), bytes);
    memcpy(dst, src, head);
    for (; bytes - head >= CACHE_LINE; head += CACHE_LINE)
        stream_line(dst + head, src + head);
    memcpy(dst + head, src + head, bytes - head);
}

/* Non-temporal stores pass later stores, also release stores: without this a flag could be seen before its data. */
static inline void stream_fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

static void stream_copy(void *dst, const void *src, size_t bytes)
{
    stream_lines(dst, src, bytes);
    stream_fence();
}

/* ---- the frame of all kernels --------------------------------------------------------------------------------------- */

/* Elements [from, from + count) of the operands reduced into out[0 .. count). */
typedef void (*part_fn)(void *out, const void *const *operands, int noperands, size_t from, size_t count,
                        const struct reduce_scale *scale);

static inline bool wants_scale(const struct reduce_scale *s) { return s && (s->scaled_operand >= 0 || s->divide_by > 1); }

static bool is_operand(const void *p, const void *const *operands, int noperands)
{
    for (int k = 0; k < noperands; k++)
        if (operands[k] == p)
            return true;
    return false;
}

/* Piece by piece, so that the second copy and the streamed copies come from the first-level cache. */
static NOINLINE void reduce_pieces(part_fn part, size_t each, char *dst, char *dst2, const void *const *operands, int noperands,
                                   size_t from, size_t count, const struct reduce_scale *scale, unsigned flags)
{
    _Alignas(CACHE_LINE) char piece[4096];
    size_t room = sizeof piece / each;
    bool stream = flags & REDUCE_STREAM_DST, stream2 = dst2 && (flags & REDUCE_STREAM_DST2);
    size_t len = stream ? bytes_to_line(dst + from * each) / each : 0; /* the next piece begins on a line */
    if (len == 0)
        len = room;
    for (size_t at = from; at < from + count; at += len, len = room) {
        len = MIN(len, from + count - at);
        char *out = stream ? piece : dst + at * each;
        part(out, operands, noperands, at, len, scale);
        if (stream)
            stream_lines(dst + at * each, out, len * each);
        if (stream2)
            stream_lines(dst2 + at * each, out, len * each);
        else if (dst2)
            memcpy(dst2 + at * each, out, len * each);
    }
    if (stream || stream2)
        stream_fence();
}

/* One line of the result of two operands. */
typedef void (*line_fn)(void *line, const void *a, const void *b);

/* Line by line, out of the registers: of arrays in memory, pieces take half as long again, because reading and writing then
 * take turns. Written into once a kernel, with its `line` inline. The ragged ends, and what cannot be cut so, go by pieces. */
static inline __attribute__((always_inline)) void reduce_lines(line_fn line, part_fn part, size_t each, char *dst, char *dst2,
                                                               const void *const *operands, size_t count, unsigned flags)
{
    bool stream = flags & REDUCE_STREAM_DST, stream2 = flags & REDUCE_STREAM_DST2;
    size_t bytes = count * each, head = bytes_to_line(stream ? dst : dst2);
    if (head % each || head > bytes || (stream && stream2 && dst2 && bytes_to_line(dst2) != head)) {
        reduce_pieces(part, each, dst, dst2, operands, 2, 0, count, NULL, flags);
        return;
    }
    size_t end = head + (bytes - head) / CACHE_LINE * CACHE_LINE;
    const char *a = operands[0], *b = operands[1];
    reduce_pieces(part, each, dst, dst2, operands, 2, 0, head / each, NULL, 0);
    for (size_t at = head; at < end; at += CACHE_LINE) {
        _Alignas(CACHE_LINE) char v[CACHE_LINE];
        line(v, a + at, b + at);
        if (stream)
            stream_line(dst + at, v);
        else
            memcpy(dst + at, v, CACHE_LINE);
        if (dst2 && stream2)
            stream_line(dst2 + at, v);
        else if (dst2)
            memcpy(dst2 + at, v, CACHE_LINE);
    }
    reduce_pieces(part, each, dst, dst2, operands, 2, end / each, (bytes - end) / each, NULL, 0);
    stream_fence();
}

#endif
