/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_kernels.c - the reductions themselves: plain C loops, written once and compiled once per instruction set (meson sets
 * KERNEL_ISA to plain, avx2 or avx512 and the matching -m options). The compiler vectorises them; intrinsics are used only
 * for float16 conversion and non-temporal stores. All builds give the same bits: operands are combined in the listed order,
 * nothing is contracted to fma (-ffp-contract=off), and a NaN result is always the one canonical NaN, because which operand's
 * payload survives an addition is the compiler's choice.
 */
#include "exec/exec_kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#ifndef KERNEL_ISA
#define KERNEL_ISA plain
#endif
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

/* dst may be the very memory of an operand, index by index: no iteration depends on another. */
#if defined(__clang__)
#define VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#define NOT_UNROLLED
#else
#define VECTOR_LOOP _Pragma("GCC ivdep")
#define NOT_UNROLLED _Pragma("GCC unroll 1") /* gcc vectorises no loop that it has unrolled before */
#endif
#define EACH(i, n) VECTOR_LOOP for (size_t i = 0; i < (n); i++)
#define EACH_OF_LINE(i, T) NOT_UNROLLED EACH(i, CACHE_LINE / sizeof(T))
/* The way into and out of a vector loop takes longer than a few elements. */
#define FEW 4
#define NOT_VECTORISED __asm__ volatile("") /* in a loop: keeps it as it is written */

#define BLOCK_BYTES 4096 /* partial results at a time: they stay in the first-level cache with room for the operands */

/* ---- numbers ------------------------------------------------------------------------------------------------- */

static inline uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static inline float bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline float canonical_f32(float x) { return x != x ? bits_float(0x7fc00000u) : x; }
static inline double canonical_f64(double x) { return x != x ? __builtin_nan("") : x; }

/* float -> a narrow format of `mant` mantissa bits, to nearest even, by integers only but for subnormal results, where adding
 * a power of two lets the adder round. Magnitudes from `limit` (as float bits) up become `beyond`. */
static inline uint32_t narrow_bits(float f, int mant, int bias, uint32_t limit, uint32_t beyond, uint32_t nan)
{
    uint32_t bits = float_bits(f), u = bits & 0x7fffffffu;
    int shift = 23 - mant;
    uint32_t normal = (u + ((1u << (shift - 1)) - 1) + ((u >> shift) & 1) - ((uint32_t)(127 - bias) << 23)) >> shift;
    uint32_t magic = (uint32_t)(127 + 24 - bias - mant) << 23;
    uint32_t subnormal = float_bits(bits_float(u) + bits_float(magic)) - magic;
    uint32_t r = u < (uint32_t)(128 - bias) << 23 ? subnormal : normal;
    r = u >= limit ? beyond : r;
    r |= (bits >> 31) << (mant + (bias == 7 ? 4 : 5));
    return u > 0x7f800000u ? nan : r;
}

static inline float widen_f16(uint16_t h)
{
    uint32_t u = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t normal = (u << 13) + (u >= 0x7c00u ? 224u << 23 : 112u << 23);
    uint32_t subnormal = float_bits((float)(int32_t)u * 0x1p-24f);
    return bits_float((u < 0x400u ? subnormal : normal) | sign);
}
static inline uint16_t narrow_f16(float f) { return (uint16_t)narrow_bits(f, 10, 15, 0x477ff000u, 0x7c00u, 0x7e00u); }

static inline float widen_bf16(uint16_t h) { return bits_float((uint32_t)h << 16); }
static inline uint16_t narrow_bf16(float f)
{
    uint32_t u = float_bits(f);
    uint32_t r = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : r);
}

/* OCP e5m2 is the upper byte of a float16. */
static inline float widen_f8e5m2(uint8_t b) { return widen_f16((uint16_t)(b << 8)); }
static inline uint8_t narrow_f8e5m2(float f) { return (uint8_t)narrow_bits(f, 2, 15, 0x47700000u, 0x7cu, 0x7eu); }

/* OCP e4m3: no infinities, 0x7f is NaN, largest value 448; beyond it (after rounding) is NaN. */
static inline float widen_f8e4m3(uint8_t b)
{
    uint32_t u = b & 0x7fu, sign = (uint32_t)(b & 0x80u) << 24;
    uint32_t normal = u == 0x7fu ? 0x7fc00000u : (u << 20) + (120u << 23);
    uint32_t subnormal = float_bits((float)(int32_t)u * 0x1p-9f);
    return bits_float((u < 8 ? subnormal : normal) | sign);
}
static inline uint8_t narrow_f8e4m3(float f)
{
    uint32_t r = narrow_bits(f, 3, 7, 0x43e80001u, 0x7fu, 0x7fu);
    return (uint8_t)(r == 0xffu ? 0x7fu : r);
}

#define CONVERT(type, T)                                                       \
    static void widen_##type##_n(float *out, const void *in, size_t n)         \
    {                                                                          \
        const T *a = in;                                                       \
        EACH(i, n) out[i] = widen_##type(a[i]);                                \
    }                                                                          \
    static void narrow_##type##_n(void *out, const float *in, size_t n)        \
    {                                                                          \
        T *r = out;                                                            \
        EACH(i, n) r[i] = narrow_##type(in[i]);                                \
    }
CONVERT(bf16, uint16_t)
CONVERT(f8e4m3, uint8_t)
CONVERT(f8e5m2, uint8_t)
#if !defined(__F16C__)
CONVERT(f16, uint16_t)
#else
/* The processor's own conversion; compilers do not find it in the loop above. */
static void widen_f16_n(float *out, const void *in, size_t n)
{
    const uint16_t *a = in;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(a + i))));
    for (; i < n; i++)
        out[i] = widen_f16(a[i]);
}
static inline void store_f16(uint16_t *r, __m256 x)
{
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    x = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    _mm_storeu_si128((__m128i *)r, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
static void narrow_f16_n(void *out, const float *in, size_t n)
{
    uint16_t *r = out;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        store_f16(r + i, _mm256_loadu_ps(in + i));
    for (; i < n; i++)
        r[i] = narrow_f16(in[i]);
}
#endif

/* ---- the frame of all kernels --------------------------------------------------------------------------------------- */

#include "exec/exec_kernels_frame.h"

#define KERNEL_ENTRY(name, T)                                                                                           \
    static NOINLINE void name##_stream(char *dst, char *dst2, const void *const *operands, size_t count, unsigned flags) \
    {                                                                                                                   \
        reduce_lines(name##_line, name##_part, sizeof(T), dst, dst2, operands, count, flags);                           \
    }                                                                                                                   \
    static NOINLINE void name##_far(void *dst, void *dst2, const void *const *operands, int noperands, size_t count,    \
                                    const struct reduce_scale *scale, unsigned flags)                                   \
    {                                                                                                                   \
        if (!dst2)                                                                                                      \
            flags &= REDUCE_STREAM_DST;                                                                                 \
        /* Memory that was just read is in the cache already: streaming it would only throw it out. */                  \
        if ((flags & REDUCE_STREAM_DST) && is_operand(dst, operands, noperands))                                        \
            flags &= REDUCE_STREAM_DST2;                                                                                \
        if (!dst2 && !flags)                                                                                            \
            name##_part(dst, operands, noperands, 0, count, scale);                                                     \
        else if (flags && noperands == 2 && !wants_scale(scale))                                                        \
            name##_stream(dst, dst2, operands, count, flags);                                                           \
        else                                                                                                            \
            reduce_pieces(name##_part, sizeof(T), dst, dst2, operands, noperands, 0, count, scale, flags);              \
    }                                                                                                                   \
    static void name(void *dst, void *dst2, const void *const *operands, int noperands, size_t count,                   \
                     const struct reduce_scale *scale, unsigned flags)                                                  \
    {                                                                                                                   \
        if (count == 0)                                                                                                 \
            return;                                                                                                     \
        if (!dst2 && !flags)                                                                                            \
            name##_part(dst, operands, noperands, 0, count, scale);                                                     \
        else                                                                                                            \
            name##_far(dst, dst2, operands, noperands, count, scale, flags);                                            \
    }

/* ---- types that are their own accumulator ---------------------------------------------------------------------------- */

/* combine(a, b): one step. finish(x): what is stored. SCALES: premulsum and avg are offered, by mul(x, scalar) and
 * divide(x, n). The block keeps partial results of all operands, so that every operand is read once and dst written once. */
#define DIRECT_KERNEL(name, T, combine, finish, SCALES, mul, divide)                                                    \
    static void name##_scaled(T *r, const void *const *operands, int n, size_t from, size_t len,                        \
                              const struct reduce_scale *scale)                                                         \
    {                                                                                                                   \
        T acc[BLOCK_BYTES / sizeof(T)], scalar;                                                                         \
        memcpy(&scalar, scale->scalar, sizeof scalar);                                                                  \
        for (int k = 0; k < n; k++) {                                                                                   \
            const T *b = (const T *)operands[k] + from;                                                                 \
            if (k == 0 && scale->scaled_operand == 0)                                                                   \
                EACH(i, len) acc[i] = mul(b[i], scalar);                                                                \
            else if (k == 0)                                                                                            \
                memcpy(acc, b, len * sizeof(T));                                                                        \
            else if (k == scale->scaled_operand)                                                                        \
                EACH(i, len) acc[i] = combine(acc[i], mul(b[i], scalar));                                               \
            else                                                                                                        \
                EACH(i, len) acc[i] = combine(acc[i], b[i]);                                                            \
        }                                                                                                               \
        if (scale->divide_by > 1)                                                                                       \
            EACH(i, len) acc[i] = divide(acc[i], scale->divide_by);                                                     \
        EACH(i, len) r[i] = finish(acc[i]);                                                                             \
    }                                                                                                                   \
    static void name##_many(T *r, const void *const *operands, int n, size_t from, size_t len)                          \
    {                                                                                                                   \
        T acc[BLOCK_BYTES / sizeof(T)];                                                                                 \
        const T *a = (const T *)operands[0] + from, *b = (const T *)operands[1] + from;                                 \
        const T *last = (const T *)operands[n - 1] + from;                                                              \
        EACH(i, len) acc[i] = combine(a[i], b[i]);                                                                      \
        for (int k = 2; k < n - 1; k++) {                                                                               \
            b = (const T *)operands[k] + from;                                                                          \
            EACH(i, len) acc[i] = combine(acc[i], b[i]);                                                                \
        }                                                                                                               \
        EACH(i, len) r[i] = finish(combine(acc[i], last[i]));                                                           \
    }                                                                                                                   \
    static NOINLINE void name##_pair(T *r, const T *a, const T *b, size_t n)                                            \
    {                                                                                                                   \
        if (n > FEW) {                                                                                                  \
            EACH(i, n) r[i] = finish(combine(a[i], b[i]));                                                              \
            return;                                                                                                     \
        }                                                                                                               \
        for (size_t i = 0; i < n; i++) {                                                                                \
            NOT_VECTORISED;                                                                                             \
            r[i] = finish(combine(a[i], b[i]));                                                                         \
        }                                                                                                               \
    }                                                                                                                   \
    static NOINLINE void name##_blocks(T *r, const void *const *operands, int n, size_t from, size_t count,             \
                                      const struct reduce_scale *scale)                                                 \
    {                                                                                                                   \
        const size_t block = BLOCK_BYTES / sizeof(T);                                                                   \
        for (size_t at = 0; at < count; at += block)                                                                    \
            if (scale)                                                                                                  \
                name##_scaled(r + at, operands, n, from + at, MIN(block, count - at), scale);                           \
            else                                                                                                        \
                name##_many(r + at, operands, n, from + at, MIN(block, count - at));                                    \
    }                                                                                                                   \
    static inline void name##_line(void *line, const void *first, const void *second)                                   \
    {                                                                                                                   \
        T *r = line;                                                                                                    \
        const T *a = first, *b = second;                                                                                \
        EACH_OF_LINE(i, T) r[i] = finish(combine(a[i], b[i]));                                                          \
    }                                                                                                                   \
    static void name##_part(void *out, const void *const *operands, int n, size_t from, size_t count,                   \
                            const struct reduce_scale *scale)                                                           \
    {                                                                                                                   \
        T *r = out;                                                                                                     \
        const T *a = (const T *)operands[0] + from, *b = (const T *)operands[n > 1] + from;                             \
        bool scales = (SCALES) && wants_scale(scale);                                                                   \
        if (n == 2 && !scales) {                                                                                        \
            name##_pair(r, a, b, count);                                                                                \
            return;                                                                                                     \
        }                                                                                                               \
        if (n == 1 && !scales) {                                                                                        \
            EACH(i, count) r[i] = finish(a[i]);                                                                         \
            return;                                                                                                     \
        }                                                                                                               \
        name##_blocks(r, operands, n, from, count, scales ? scale : NULL);                                              \
    }                                                                                                                   \
    KERNEL_ENTRY(name, T)

#define FIRST(x, y) (x)
#define SAME(x) (x)
#define PLAIN_KERNEL(name, T, combine, finish) DIRECT_KERNEL(name, T, combine, finish, false, FIRST, FIRST)

/* Integers wrap: unsigned arithmetic in a type that does not promote to int. min and max keep the earlier operand on a tie. */
#define ADD_INT(a, b) ((__typeof__(a))((uint64_t)(a) + (uint64_t)(b)))
#define MUL_INT(a, b) ((__typeof__(a))((uint64_t)(a) * (uint64_t)(b)))
#define AND_INT(a, b) ((a) & (b))
#define OR_INT(a, b) ((a) | (b))
#define XOR_INT(a, b) ((a) ^ (b))
#define MAX_INT(a, b) ((b) > (a) ? (b) : (a))
#define MIN_INT(a, b) ((b) < (a) ? (b) : (a))
#define DIV_SIGNED(x, n) ((int64_t)(x) / (int64_t)(n))
#define DIV_UNSIGNED(x, n) ((uint64_t)(x) / (uint64_t)(n))

/* sum of signed types differs from unsigned only in how avg divides. */
#define INT_KERNELS(bits)                                                                                               \
    DIRECT_KERNEL(sum_i##bits, int##bits##_t, ADD_INT, SAME, true, MUL_INT, DIV_SIGNED)                                 \
    DIRECT_KERNEL(sum_u##bits, uint##bits##_t, ADD_INT, SAME, true, MUL_INT, DIV_UNSIGNED)                              \
    PLAIN_KERNEL(prod_u##bits, uint##bits##_t, MUL_INT, SAME)                                                           \
    PLAIN_KERNEL(max_i##bits, int##bits##_t, MAX_INT, SAME)                                                             \
    PLAIN_KERNEL(max_u##bits, uint##bits##_t, MAX_INT, SAME)                                                            \
    PLAIN_KERNEL(min_i##bits, int##bits##_t, MIN_INT, SAME)                                                             \
    PLAIN_KERNEL(min_u##bits, uint##bits##_t, MIN_INT, SAME)                                                            \
    PLAIN_KERNEL(band_u##bits, uint##bits##_t, AND_INT, SAME)                                                           \
    PLAIN_KERNEL(bor_u##bits, uint##bits##_t, OR_INT, SAME)                                                             \
    PLAIN_KERNEL(bxor_u##bits, uint##bits##_t, XOR_INT, SAME)
INT_KERNELS(8)
INT_KERNELS(16)
INT_KERNELS(32)
INT_KERNELS(64)

/* bool: one byte, any non-zero value is true, results are 0 or 1. */
#define OR_BOOL(a, b) ((uint8_t)(((a) | (b)) != 0))
#define AND_BOOL(a, b) ((uint8_t)(((a) != 0) & ((b) != 0)))
#define XOR_BOOL(a, b) ((uint8_t)(((a) != 0) ^ ((b) != 0)))
#define TRUTH(x) ((uint8_t)((x) != 0))
PLAIN_KERNEL(or_bool, uint8_t, OR_BOOL, TRUTH)
PLAIN_KERNEL(and_bool, uint8_t, AND_BOOL, TRUTH)
PLAIN_KERNEL(xor_bool, uint8_t, XOR_BOOL, TRUTH)

/* Floats. min and max: NaN wins over everything, otherwise the earlier operand on a tie, also between -0 and +0. */
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define COMPARE_FUNCTIONS(T)                                                                                            \
    static inline T max_##T(T a, T b) { return (int)(b > a) | (int)(b != b) ? b : a; }                                  \
    static inline T min_##T(T a, T b) { return (int)(b < a) | (int)(b != b) ? b : a; }
COMPARE_FUNCTIONS(float)
COMPARE_FUNCTIONS(double)
#define DIV_F32(x, n) ((x) / (float)(n))
#define DIV_F64(x, n) ((x) / (double)(n))
#define FLOAT_KERNELS(type, T, canonical, div)                                                                          \
    DIRECT_KERNEL(sum_##type, T, ADD, canonical, true, MUL, div)                                                        \
    PLAIN_KERNEL(prod_##type, T, MUL, canonical)                                                                        \
    PLAIN_KERNEL(max_##type, T, max_##T, canonical)                                                                     \
    PLAIN_KERNEL(min_##type, T, min_##T, canonical)
FLOAT_KERNELS(f32, float, canonical_f32, DIV_F32)
FLOAT_KERNELS(f64, double, canonical_f64, DIV_F64)

/* Complex numbers: (a + bi)(c + di) = (ac - bd) + (ad + bc)i, without C's recovery of infinities. The subtraction is written
 * as the addition of a flipped sign, because gcc 12 turns the pair of difference and sum into fused vfmaddsub in spite of
 * -ffp-contract=off. */
static inline float flip_f32(float x) { return bits_float(float_bits(x) ^ 0x80000000u); }
static inline double flip_f64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    u ^= 1ull << 63;
    memcpy(&x, &u, sizeof x);
    return x;
}
#define COMPLEX_KERNELS(type, T, canonical, flip)                                                                             \
    struct type { T re, im; };                                                                                          \
    static inline struct type add_##type(struct type a, struct type b)                                                  \
    {                                                                                                                   \
        return (struct type){a.re + b.re, a.im + b.im};                                                                 \
    }                                                                                                                   \
    static inline struct type mul_##type(struct type a, struct type b)                                                  \
    {                                                                                                                   \
        return (struct type){a.re * b.re + flip(a.im * b.im), a.re * b.im + a.im * b.re};                               \
    }                                                                                                                   \
    static inline struct type div_##type(struct type a, uint32_t n)                                                     \
    {                                                                                                                   \
        return (struct type){a.re / (T)n, a.im / (T)n};                                                                 \
    }                                                                                                                   \
    static inline struct type canonical_##type(struct type a)                                                           \
    {                                                                                                                   \
        return (struct type){canonical(a.re), canonical(a.im)};                                                         \
    }                                                                                                                   \
    DIRECT_KERNEL(sum_##type, struct type, add_##type, canonical_##type, true, mul_##type, div_##type)                  \
    PLAIN_KERNEL(prod_##type, struct type, mul_##type, canonical_##type)
COMPLEX_KERNELS(c64, float, canonical_f32, flip_f32)
COMPLEX_KERNELS(c128, double, canonical_f64, flip_f64)

/* ---- types narrower than float: widened, combined as float over all operands, rounded once ----------------------------
 * A scaled operand is rounded before: on other ranks it is one that was scaled and rounded when it was sent. */

/* Two operands, the common case, in one loop without the block. */
#define PAIR_LOOP(type, combine, r, a, b, from, n)                                                                      \
    EACH(i_, (n) - (from)) (r)[(from) + i_] = narrow_##type(combine(widen_##type((a)[(from) + i_]), widen_##type((b)[(from) + i_])))
#define PAIR(type, combine, r, a, b, n)                                                                                 \
    {                                                                                                                   \
        PAIR_LOOP(type, combine, r, a, b, (size_t)0, n);                                                                \
        return;                                                                                                         \
    }
#define NO_PAIR(type, combine, r, a, b, n)
#if defined(__F16C__)
#define PAIR_F16(type, combine, r, a, b, n)                                                                             \
    {                                                                                                                   \
        size_t done = (n) & ~(size_t)7;                                                                                 \
        for (size_t i = 0; i < done; i += 8) {                                                                          \
            __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((a) + i)));                                    \
            __m256 y = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((b) + i)));                                    \
            store_f16((r) + i, combine(x, y));                                                                          \
        }                                                                                                               \
        PAIR_LOOP(type, combine, r, a, b, done, n);                                                                     \
        return;                                                                                                         \
    }
#else
#define PAIR_F16 PAIR
#endif

#define NARROW_BLOCK (BLOCK_BYTES / sizeof(float) / 2)
#define NARROW_KERNEL(name, type, T, combine, SCALES, pair)                                                             \
    static void name##_scale(float *v, float scalar, size_t len)                                                        \
    {                                                                                                                   \
        T rounded[NARROW_BLOCK];                                                                                        \
        EACH(i, len) v[i] *= scalar;                                                                                    \
        narrow_##type##_n(rounded, v, len);                                                                             \
        widen_##type##_n(v, rounded, len);                                                                              \
    }                                                                                                                   \
    static void name##_block(T *r, const void *const *operands, int n, size_t from, size_t len,                         \
                             const struct reduce_scale *scale)                                                          \
    {                                                                                                                   \
        float acc[NARROW_BLOCK], wide[NARROW_BLOCK], scalar = 0;                                                        \
        int scaled = scale ? scale->scaled_operand : -1;                                                                \
        T raw;                                                                                                          \
        if (scale) {                                                                                                    \
            memcpy(&raw, scale->scalar, sizeof raw);                                                                    \
            scalar = widen_##type(raw);                                                                                 \
        }                                                                                                               \
        widen_##type##_n(acc, (const T *)operands[0] + from, len);                                                      \
        if (scaled == 0)                                                                                                \
            name##_scale(acc, scalar, len);                                                                             \
        for (int k = 1; k < n; k++) {                                                                                   \
            widen_##type##_n(wide, (const T *)operands[k] + from, len);                                                 \
            if (scaled == k)                                                                                            \
                name##_scale(wide, scalar, len);                                                                        \
            EACH(i, len) acc[i] = combine(acc[i], wide[i]);                                                             \
        }                                                                                                               \
        if (scale && scale->divide_by > 1)                                                                              \
            EACH(i, len) acc[i] = DIV_F32(acc[i], scale->divide_by);                                                    \
        narrow_##type##_n(r, acc, len);                                                                                 \
    }                                                                                                                   \
    static inline void name##_line(void *line, const void *first, const void *second)                                   \
    {                                                                                                                   \
        T *r = line;                                                                                                    \
        const T *a = first, *b = second;                                                                                \
        (void)a, (void)b;                                                                                               \
        pair(type, combine, r, a, b, CACHE_LINE / sizeof(T))                                                            \
        PAIR_LOOP(type, combine, r, a, b, (size_t)0, CACHE_LINE / sizeof(T));                                           \
    }                                                                                                                   \
    static void name##_part(void *out, const void *const *operands, int n, size_t from, size_t count,                   \
                            const struct reduce_scale *scale)                                                           \
    {                                                                                                                   \
        T *r = out;                                                                                                     \
        bool scales = (SCALES) && wants_scale(scale);                                                                   \
        if (n == 2 && !scales) {                                                                                        \
            const T *a = (const T *)operands[0] + from, *b = (const T *)operands[1] + from;                             \
            (void)a, (void)b;                                                                                           \
            pair(type, combine, r, a, b, count)                                                                         \
        }                                                                                                               \
        for (size_t at = 0; at < count; at += NARROW_BLOCK)                                                             \
            name##_block(r + at, operands, n, from + at, MIN(NARROW_BLOCK, count - at), scales ? scale : NULL);         \
    }                                                                                                                   \
    KERNEL_ENTRY(name, T)

#define NARROW_KERNELS(type, T, pair, pair_compare)                                                                     \
    NARROW_KERNEL(sum_##type, type, T, ADD, true, pair)                                                                 \
    NARROW_KERNEL(prod_##type, type, T, MUL, false, pair)                                                               \
    NARROW_KERNEL(max_##type, type, T, max_float, false, pair_compare)                                                  \
    NARROW_KERNEL(min_##type, type, T, min_float, false, pair_compare)
NARROW_KERNELS(f16, uint16_t, PAIR_F16, NO_PAIR) /* C has no ?: for vectors */
NARROW_KERNELS(bf16, uint16_t, PAIR, PAIR)
NARROW_KERNELS(f8e4m3, uint8_t, PAIR, PAIR)
NARROW_KERNELS(f8e5m2, uint8_t, PAIR, PAIR)

/* ---- the set ----------------------------------------------------------------------------------------------------------- */

static bool usable(void)
{
#if defined(__AVX2__)
    unsigned a, b, c = 0, d; /* clang knows no "f16c" in __builtin_cpu_supports */
    if (!__builtin_cpu_supports("avx2") || !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return false;
#endif
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
#endif
    return true;
}

#define INT_ROW(sign, bits)                                                                                             \
    {[UNO_SUM] = sum_##sign##bits, [UNO_AVG] = sum_##sign##bits, [UNO_PROD] = prod_u##bits, [UNO_MAX] = max_##sign##bits, \
     [UNO_MIN] = min_##sign##bits, [UNO_BAND] = band_u##bits, [UNO_BOR] = bor_u##bits, [UNO_BXOR] = bxor_u##bits}
#define FLOAT_ROW(type)                                                                                                 \
    {[UNO_SUM] = sum_##type, [UNO_AVG] = sum_##type, [UNO_PROD] = prod_##type, [UNO_MAX] = max_##type,                  \
     [UNO_MIN] = min_##type}
#define COMPLEX_ROW(type) {[UNO_SUM] = sum_##type, [UNO_AVG] = sum_##type, [UNO_PROD] = prod_##type}

const struct kernel_set PASTE(kernel_set_, KERNEL_ISA);
const struct kernel_set PASTE(kernel_set_, KERNEL_ISA) = {
    .isa = TEXT(KERNEL_ISA),
    .usable = usable,
    .stream = stream_copy,
    .reduce = {
        [UNO_INT8] = INT_ROW(i, 8), [UNO_UINT8] = INT_ROW(u, 8), [UNO_INT16] = INT_ROW(i, 16), [UNO_UINT16] = INT_ROW(u, 16),
        [UNO_INT32] = INT_ROW(i, 32), [UNO_UINT32] = INT_ROW(u, 32), [UNO_INT64] = INT_ROW(i, 64),
        [UNO_UINT64] = INT_ROW(u, 64),
        [UNO_BOOL] = {[UNO_SUM] = or_bool, [UNO_MAX] = or_bool, [UNO_BOR] = or_bool, [UNO_PROD] = and_bool,
                      [UNO_MIN] = and_bool, [UNO_BAND] = and_bool, [UNO_BXOR] = xor_bool},
        [UNO_FLOAT16] = FLOAT_ROW(f16), [UNO_BFLOAT16] = FLOAT_ROW(bf16), [UNO_FLOAT8E4M3] = FLOAT_ROW(f8e4m3),
        [UNO_FLOAT8E5M2] = FLOAT_ROW(f8e5m2), [UNO_FLOAT32] = FLOAT_ROW(f32), [UNO_FLOAT64] = FLOAT_ROW(f64),
        [UNO_COMPLEX64] = COMPLEX_ROW(c64), [UNO_COMPLEX128] = COMPLEX_ROW(c128),
    },
    .narrow = {
        [UNO_FLOAT16] = {widen_f16_n, narrow_f16_n}, [UNO_BFLOAT16] = {widen_bf16_n, narrow_bf16_n},
        [UNO_FLOAT8E4M3] = {widen_f8e4m3_n, narrow_f8e4m3_n}, [UNO_FLOAT8E5M2] = {widen_f8e5m2_n, narrow_f8e5m2_n},
    },
};
