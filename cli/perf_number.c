/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_number.c - the types and operations of the benchmark: nccl-tests' words, precision, and exact conversion of
 * doubles to every floating type. Written apart from the library's own conversions, so that one checks the other.
 */
#include "perf.h"

#include <math.h>
#include <string.h>
#include <strings.h>

enum kind { INTEGER, BOOLEAN, REAL, COMPLEX };
static const struct type_facts {
    const char *word, *other;
    enum kind kind;
    int precision;                        /* significant bits of a real part */
    int part_bytes;                       /* of one real part */
    int exponent_bits, mantissa_bits;     /* of formats the compiler does not have */
} types[UNO_TYPE_COUNT] = {
    [UNO_INT8] = {"int8", "char", INTEGER, 0, 1, 0, 0},
    [UNO_UINT8] = {"uint8", "byte", INTEGER, 0, 1, 0, 0},
    [UNO_INT32] = {"int32", "int", INTEGER, 0, 4, 0, 0},
    [UNO_UINT32] = {"uint32", "uint", INTEGER, 0, 4, 0, 0},
    [UNO_INT64] = {"int64", "long", INTEGER, 0, 8, 0, 0},
    [UNO_UINT64] = {"uint64", "ulong", INTEGER, 0, 8, 0, 0},
    [UNO_FLOAT16] = {"half", "float16", REAL, 11, 2, 5, 10},
    [UNO_FLOAT32] = {"float", "float32", REAL, 24, 4, 8, 23},
    [UNO_FLOAT64] = {"double", "float64", REAL, 53, 8, 11, 52},
    [UNO_BFLOAT16] = {"bfloat16", "bf16", REAL, 8, 2, 8, 7},
    [UNO_FLOAT8E4M3] = {"f8e4m3", "fp8e4m3", REAL, 4, 1, 4, 3},
    [UNO_FLOAT8E5M2] = {"f8e5m2", "fp8e5m2", REAL, 3, 1, 5, 2},
    [UNO_BOOL] = {"bool", "boolean", BOOLEAN, 0, 1, 0, 0},
    [UNO_INT16] = {"int16", "short", INTEGER, 0, 2, 0, 0},
    [UNO_UINT16] = {"uint16", "ushort", INTEGER, 0, 2, 0, 0},
    [UNO_COMPLEX64] = {"complex64", "cfloat", COMPLEX, 24, 4, 8, 23},
    [UNO_COMPLEX128] = {"complex128", "cdouble", COMPLEX, 53, 8, 11, 52},
};

static const struct { const char *word; int op; } ops[] = {
    {"sum", UNO_SUM}, {"prod", UNO_PROD}, {"min", UNO_MIN}, {"max", UNO_MAX}, {"avg", UNO_AVG},
    {"mulsum", PERF_MULSUM}, {"band", UNO_BAND}, {"bor", UNO_BOR}, {"bxor", UNO_BXOR}};
enum { OPS = sizeof ops / sizeof ops[0] };

const char *perf_type_word(int type)
{
    return type >= 0 && type < UNO_TYPE_COUNT ? types[type].word : "?";
}

int perf_type_parse(const char *word)
{
    for (int i = 0; i < UNO_TYPE_COUNT; i++)
        if (strcasecmp(word, types[i].word) == 0 || strcasecmp(word, types[i].other) == 0)
            return i;
    return -1;
}

const char *perf_op_word(int op)
{
    for (int i = 0; i < OPS; i++)
        if (ops[i].op == op)
            return ops[i].word;
    return "none";
}

int perf_op_parse(const char *word)
{
    for (int i = 0; i < OPS; i++)
        if (strcasecmp(word, ops[i].word) == 0)
            return ops[i].op;
    return -1;
}

bool perf_op_fits(int op, int type)
{
    if (op == PERF_MULSUM)
        return types[type].kind != BOOLEAN && uno_op_check(UNO_SUM, (uno_type)type) == UNO_OK;
    return uno_op_check((uno_op)op, (uno_type)type) == UNO_OK;
}

int perf_type_precision(int type)
{
    return types[type].precision;
}

/* The bits of v in a format with these fields, rounded to nearest even. e4m3 has no infinity: too large becomes NaN. */
static uint64_t pack(double v, int exponent_bits, int mantissa_bits)
{
    bool finite_only = exponent_bits == 4;
    uint64_t sign = (uint64_t)(signbit(v) != 0) << (exponent_bits + mantissa_bits);
    uint64_t top = (((uint64_t)1 << exponent_bits) - 1) << mantissa_bits; /* infinity */
    uint64_t nan = finite_only ? top | 7 : top | (uint64_t)1 << (mantissa_bits - 1);
    if (isnan(v))
        return sign | nan;
    if (isinf(v))
        return sign | (finite_only ? nan : top);
    int bias = (1 << (exponent_bits - 1)) - 1, e;
    if (v == 0)
        return sign;
    frexp(v, &e);
    e -= 1; /* v = 1.xxx * 2^e */
    if (e < 1 - bias)
        e = 1 - bias; /* subnormal: the step stays that of the smallest normal */
    /* In units of the last place; nearbyint rounds to even. A carry runs into the exponent by itself. */
    uint64_t units = (uint64_t)nearbyint(ldexp(fabs(v), mantissa_bits - e));
    uint64_t bits = units + ((uint64_t)(e + bias - 1) << mantissa_bits);
    uint64_t limit = finite_only ? nan : top;
    return sign | (bits >= limit ? limit : bits);
}

static void store(void *out, size_t index, int bytes, uint64_t bits)
{
    memcpy((char *)out + index * (size_t)bytes, &bits, (size_t)bytes); /* little endian, as all supported machines */
}

void perf_encode(int type, const double *values, size_t n, void *out)
{
    const struct type_facts *t = &types[type];
    size_t parts = t->kind == COMPLEX ? 2 * n : n;
    if (t->mantissa_bits == 52) {
        memcpy(out, values, parts * sizeof(double));
    } else if (t->mantissa_bits == 23) {
        for (size_t i = 0; i < parts; i++)
            ((float *)out)[i] = (float)values[i];
    } else {
        for (size_t i = 0; i < parts; i++)
            store(out, i, t->part_bytes, pack(values[i], t->exponent_bits, t->mantissa_bits));
    }
}

/* Bits as a number that grows by one from each value to the next. */
static int64_t ordinal(uint64_t bits, int width)
{
    uint64_t sign = (uint64_t)1 << (width - 1);
    return bits & sign ? -(int64_t)(bits & ~sign) : (int64_t)bits;
}

bool perf_near(int type, const void *a, const void *b, int ulps)
{
    const struct type_facts *t = &types[type];
    for (int part = 0; part < (t->kind == COMPLEX ? 2 : 1); part++) {
        uint64_t x = 0, y = 0;
        memcpy(&x, (const char *)a + part * t->part_bytes, (size_t)t->part_bytes);
        memcpy(&y, (const char *)b + part * t->part_bytes, (size_t)t->part_bytes);
        int width = 8 * t->part_bytes;
        uint64_t infinity = (((uint64_t)1 << t->exponent_bits) - 1) << t->mantissa_bits;
        uint64_t largest = t->exponent_bits == 4 ? infinity | 6 : infinity; /* above: NaN */
        uint64_t magnitude = ~((uint64_t)1 << (width - 1)) & (width == 64 ? ~(uint64_t)0 : ((uint64_t)1 << width) - 1);
        if ((x & magnitude) > largest || (y & magnitude) > largest)
            return false;
        int64_t distance = ordinal(x, width) - ordinal(y, width);
        if (distance > ulps || distance < -ulps)
            return false;
    }
    return true;
}
