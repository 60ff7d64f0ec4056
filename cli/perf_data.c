/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_data.c - inputs and expected results of the verification rounds. An input element is a hash of (seed, rank, index),
 * shaped so that the exact result is the same in every order of reduction: sums are of small integers times a common power
 * of two, whose partial sums all fit the type's significant bits; products are of powers of two and one mantissa; integers
 * wrap. So results are compared bit by bit (avg of floating types: 2 steps, since its division rounds).
 */
#include "perf.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 512 }; /* elements worked on at a time, so that temporaries stay in the first cache */

static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    return x ^ (x >> 32);
}

static uint64_t key_of(const struct data_rule *rule, int rank)
{
    return mix(rule->seed * 0x9e3779b97f4a7c15ull + mix((uint64_t)rank + 1));
}

static inline uint64_t hash_at(uint64_t key, size_t index)
{
    return mix(key + index * 0x9e3779b97f4a7c15ull);
}

/* 0 .. range - 1: the upper half of h * range. */
static inline uint64_t scaled(uint64_t h, uint64_t range)
{
    uint64_t low = UINT32_MAX, b = (h >> 32) * (range & low), c = (h & low) * (range >> 32);
    uint64_t carry = ((h & low) * (range & low) >> 32) + (b & low) + (c & low);
    return (h >> 32) * (range >> 32) + (b >> 32) + (c >> 32) + (carry >> 32);
}

static bool is_complex(int type)
{
    return type == UNO_COMPLEX64 || type == UNO_COMPLEX128;
}

static bool is_signed(int type)
{
    return type == UNO_INT8 || type == UNO_INT16 || type == UNO_INT32 || type == UNO_INT64;
}

/* How a sum's contributions are bounded: `active` ranks contribute at most `most` each, so that no partial sum exceeds
 * what the type holds exactly. */
struct bound { uint64_t active, most; };

static struct bound sum_bound(const struct data_rule *rule)
{
    int bits = perf_type_precision(rule->type);
    if (bits == 0) /* avg of integers: no wrap, no sign */
        bits = 8 * (int)uno_type_bytes(rule->type) - 1;
    if (bits > 52)
        bits = 52;
    uint64_t whole = ((uint64_t)1 << bits) - 1;
    if (rule->op == PERF_MULSUM)
        whole /= 2;
    struct bound b = {(uint64_t)rule->ranks, 0};
    if (b.active > whole)
        b.active = whole;
    b.most = whole / b.active;
    return b;
}

/* Is it `rank`'s turn among `active` of all ranks at this element? Everybody's, when all are active. */
static inline bool takes_part(const struct data_rule *rule, int rank, size_t index, uint64_t active)
{
    uint64_t ranks = (uint64_t)rule->ranks;
    return active >= ranks || ((uint64_t)rank + index) % ranks < active;
}

static void values_sum(const struct data_rule *rule, int rank, size_t first, size_t n, double *v)
{
    struct bound b = sum_bound(rule);
    uint64_t key = key_of(rule, rank), range = 2 * b.most + 1;
    for (size_t i = 0; i < n; i++) {
        int64_t x = (int64_t)scaled(hash_at(key, first + i), range) - (int64_t)b.most;
        double unit = (first + i) & 4 ? 0.5 : 1.0; /* a common power of two */
        v[i] = takes_part(rule, rank, first + i, b.active) ? (double)x * unit : 0.0;
    }
}

/* 1.xxx with every bit of the type's precision. */
static double mantissa(const struct data_rule *rule, uint64_t h)
{
    int bits = perf_type_precision(rule->type) - 1;
    return 1.0 + ldexp((double)(h >> (64 - bits)), -bits);
}

static void values_prod(const struct data_rule *rule, int rank, size_t first, size_t n, double *v)
{
    uint64_t key = key_of(rule, rank), ranks = (uint64_t)rule->ranks;
    for (size_t i = 0; i < n; i++) {
        uint64_t h = hash_at(key, first + i), place = ((uint64_t)rank + first + i) % ranks;
        if (place == 0)
            v[i] = mantissa(rule, h);
        else /* at most four halvings or doublings: fits the smallest format in any order */
            v[i] = place <= 4 ? (h & 1 ? 2.0 : 0.5) : 1.0;
        if ((h & 2) && !is_complex(rule->type)) /* signed zeros of complex products would depend on the order */
            v[i] = -v[i];
    }
}

static void values_order(const struct data_rule *rule, int rank, size_t first, size_t n, double *v)
{
    uint64_t key = key_of(rule, rank);
    for (size_t i = 0; i < n; i++) {
        uint64_t h = hash_at(key, first + i);
        double x = ldexp(mantissa(rule, h), (int)((h >> 3) % 7) - 3);
        v[i] = h & 1 ? -x : x;
    }
}

/* The values of n elements; complex types: n pairs. */
static void values(const struct data_rule *rule, int rank, size_t first, size_t n, double *v)
{
    bool complex_type = is_complex(rule->type);
    if (rule->op == UNO_PROD) {
        values_prod(rule, rank, first, n, v);
        for (size_t i = n; complex_type && i-- > 0;) {
            v[2 * i + 1] = 0.0;
            v[2 * i] = v[i];
        }
    } else if (rule->op == UNO_MIN || rule->op == UNO_MAX) {
        values_order(rule, rank, first, n, v);
    } else if (complex_type) {
        values_sum(rule, rank, 2 * first, 2 * n, v);
    } else {
        values_sum(rule, rank, first, n, v);
    }
}

static void integers(const struct data_rule *rule, int rank, size_t first, size_t n, uint64_t *v)
{
    uint64_t key = key_of(rule, rank);
    struct bound b = sum_bound(rule);
    int drop = 64 - 8 * (int)uno_type_bytes(rule->type);
    for (size_t i = 0; i < n; i++) {
        uint64_t h = hash_at(key, first + i);
        if (rule->type == UNO_BOOL)
            v[i] = h >> 63;
        else if (rule->op == UNO_AVG)
            v[i] = takes_part(rule, rank, first + i, b.active) ? scaled(h, b.most + 1) : 0;
        else if (is_signed(rule->type))
            v[i] = (uint64_t)((int64_t)h >> drop);
        else
            v[i] = h >> drop;
    }
}

static void store_integers(const struct data_rule *rule, const uint64_t *v, size_t n, void *out)
{
    switch (uno_type_bytes(rule->type)) {
    case 1:
        for (size_t i = 0; i < n; i++)
            ((uint8_t *)out)[i] = (uint8_t)v[i];
        break;
    case 2:
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = (uint16_t)v[i];
        break;
    case 4:
        for (size_t i = 0; i < n; i++)
            ((uint32_t *)out)[i] = (uint32_t)v[i];
        break;
    default:
        memcpy(out, v, n * sizeof *v);
    }
}

/* Any bits at all: what is only moved is compared bit by bit. */
static void raw_bits(const struct data_rule *rule, int rank, size_t first, size_t n, void *out)
{
    uint64_t key = key_of(rule, rank), v[2 * BLOCK];
    size_t bytes = uno_type_bytes(rule->type), words = bytes == 16 ? 2 : 1;
    for (size_t i = 0; i < n * words; i++) {
        v[i] = hash_at(key, first * words + i);
        if (rule->type == UNO_BOOL)
            v[i] >>= 63;
    }
    if (words == 2)
        memcpy(out, v, n * bytes);
    else
        store_integers(rule, v, n, out);
}

static bool is_integer(int type)
{
    return perf_type_precision(type) == 0;
}

void perf_data_fill(const struct data_rule *rule, int rank, void *out, size_t n)
{
    size_t bytes = uno_type_bytes(rule->type);
    double v[2 * BLOCK];
    uint64_t w[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t some = n - at < BLOCK ? n - at : BLOCK;
        char *to = (char *)out + at * bytes;
        if (rule->op < 0) {
            raw_bits(rule, rank, at, some, to);
        } else if (is_integer(rule->type)) {
            integers(rule, rank, at, some, w);
            store_integers(rule, w, some, to);
        } else {
            values(rule, rank, at, some, v);
            perf_encode(rule->type, v, some, to);
        }
    }
}

void perf_data_factor(int type, int rank, void *element)
{
    double pair[2] = {rank % 2 ? 2.0 : 1.0, 0.0};
    uint64_t whole = rank % 2 ? 2 : 1;
    if (is_integer(type))
        memcpy(element, &whole, uno_type_bytes(type));
    else
        perf_encode(type, pair, 1, element);
}

static void combine_reals(int op, double *acc, const double *v, size_t n, bool first, double factor)
{
    for (size_t i = 0; i < n; i++) {
        double x = v[i] * factor;
        if (first)
            acc[i] = x;
        else if (op == UNO_PROD)
            acc[i] *= x;
        else if (op == UNO_MIN)
            acc[i] = x < acc[i] ? x : acc[i];
        else if (op == UNO_MAX)
            acc[i] = x > acc[i] ? x : acc[i];
        else
            acc[i] += x;
    }
}

static uint64_t combine_bools(int op, uint64_t a, uint64_t b)
{
    if (op == UNO_PROD || op == UNO_MIN || op == UNO_BAND)
        return a & b;
    return op == UNO_BXOR ? a ^ b : a | b;
}

static uint64_t combine_integers(const struct data_rule *rule, uint64_t a, uint64_t b)
{
    if (rule->type == UNO_BOOL)
        return combine_bools(rule->op, a, b);
    bool less = is_signed(rule->type) ? (int64_t)a < (int64_t)b : a < b;
    switch (rule->op) {
    case UNO_PROD:
        return a * b;
    case UNO_MIN:
        return less ? a : b;
    case UNO_MAX:
        return less ? b : a;
    case UNO_BAND:
        return a & b;
    case UNO_BOR:
        return a | b;
    case UNO_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static void expect_reals(const struct data_rule *rule, size_t first, size_t n, void *out)
{
    double acc[2 * BLOCK], v[2 * BLOCK];
    size_t parts = is_complex(rule->type) ? 2 * n : n;
    for (int rank = 0; rank < rule->ranks; rank++) {
        values(rule, rank, first, n, v);
        combine_reals(rule->op, acc, v, parts, rank == 0, rule->op == PERF_MULSUM && rank % 2 ? 2.0 : 1.0);
    }
    for (size_t i = 0; rule->op == UNO_AVG && i < parts; i++)
        acc[i] /= rule->ranks;
    perf_encode(rule->type, acc, n, out);
}

static void expect_integers(const struct data_rule *rule, size_t first, size_t n, void *out)
{
    uint64_t acc[BLOCK], v[BLOCK];
    for (int rank = 0; rank < rule->ranks; rank++) {
        integers(rule, rank, first, n, v);
        uint64_t factor = rule->op == PERF_MULSUM && rank % 2 ? 2 : 1;
        for (size_t i = 0; i < n; i++)
            acc[i] = rank == 0 ? v[i] : combine_integers(rule, acc[i], v[i] * factor);
    }
    for (size_t i = 0; rule->op == UNO_AVG && i < n; i++)
        acc[i] /= (uint64_t)rule->ranks;
    store_integers(rule, acc, n, out);
}

uint64_t perf_data_wrong(const struct data_rule *rule, const struct segment *segment, const void *result)
{
    char expected[16 * BLOCK];
    size_t bytes = uno_type_bytes(rule->type);
    bool rounds = rule->op == UNO_AVG && !is_integer(rule->type) && segment->kind == SEGMENT_REDUCE;
    uint64_t wrong = 0;
    for (size_t at = 0; at < segment->count; at += BLOCK) {
        size_t some = segment->count - at < BLOCK ? segment->count - at : BLOCK;
        const char *got = (const char *)result + (segment->to + at) * bytes;
        if (segment->kind == SEGMENT_COPY)
            raw_bits(rule, segment->source, segment->from + at, some, expected);
        else if (is_integer(rule->type))
            expect_integers(rule, segment->from + at, some, expected);
        else
            expect_reals(rule, segment->from + at, some, expected);
        if (memcmp(got, expected, some * bytes) == 0)
            continue;
        for (size_t i = 0; i < some; i++)
            if (memcmp(got + i * bytes, expected + i * bytes, bytes) != 0 &&
                !(rounds && perf_near(rule->type, got + i * bytes, expected + i * bytes, 2)))
                wrong++;
    }
    return wrong;
}
