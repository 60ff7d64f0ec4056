/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_reference.c - see reduce_reference.h. */
#include "reduce_reference.h"

#include <math.h>
#include <string.h>

/* ---- narrow formats, by their definition ------------------------------------------------------------------------ */

const struct format ref_formats[REF_FORMATS] = {
    {UNO_FLOAT16, 10, 15, 0x7c00, 0x7e00}, {UNO_BFLOAT16, 7, 127, 0x7f80, 0x7fc0},
    {UNO_FLOAT8E4M3, 3, 7, 0x7f, 0x7f},    {UNO_FLOAT8E5M2, 2, 15, 0x7c, 0x7e}};

const struct format *ref_format(uno_type type)
{
    for (size_t i = 0; i < ARRAY_LEN(ref_formats); i++)
        if (ref_formats[i].type == type)
            return &ref_formats[i];
    return NULL;
}
unsigned ref_sign_bit(const struct format *f)
{
    return f->type == UNO_FLOAT16 || f->type == UNO_BFLOAT16 ? 0x8000 : 0x80;
}
/* Magnitude of a code, as if the exponents went on beyond the largest finite value. */
double ref_magnitude(const struct format *f, unsigned code)
{
    unsigned e = code >> f->mant, m = code & ((1u << f->mant) - 1);
    return e ? ldexp(m + (1 << f->mant), (int)e - f->bias - f->mant) : ldexp(m, 1 - f->bias - f->mant);
}
static bool code_is_nan(const struct format *f, unsigned code)
{
    unsigned u = code & (ref_sign_bit(f) - 1);
    return f->type == UNO_FLOAT8E4M3 ? u == f->nan : u > f->beyond;
}
float ref_widen(const struct format *f, unsigned code)
{
    unsigned u = code & (ref_sign_bit(f) - 1);
    double v = code_is_nan(f, code) ? NAN : u == f->beyond ? INFINITY : ref_magnitude(f, u);
    return (float)(code & ref_sign_bit(f) ? -v : v);
}
unsigned ref_narrow(const struct format *f, float x)
{
    if (isnan(x))
        return f->nan;
    double v = fabs((double)x);
    unsigned lo = 0, hi = f->beyond; /* the largest code not above v, capped */
    while (lo < hi) {
        unsigned mid = (lo + hi + 1) / 2;
        if (ref_magnitude(f, mid) <= v)
            lo = mid;
        else
            hi = mid - 1;
    }
    if (lo < f->beyond) {
        double down = v - ref_magnitude(f, lo), up = ref_magnitude(f, lo + 1) - v;
        lo += up < down || (up == down && (lo & 1));
    }
    if (lo == f->beyond && f->beyond == f->nan)
        return f->nan;
    return lo | (signbit(x) ? ref_sign_bit(f) : 0);
}

unsigned ref_code(const struct format *f, const void *p, size_t i)
{
    return ref_sign_bit(f) == 0x80 ? ((const uint8_t *)p)[i] : ((const uint16_t *)p)[i];
}

/* ---- one element at a time ----------------------------------------------------------------------------------------- */

static float pick_f(float a, float b, bool max)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return (max ? b > a : b < a) ? b : a;
}
static double pick_d(double a, double b, bool max)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return (max ? b > a : b < a) ? b : a;
}

/* The scaled operand is scaled already. */
static float ref_float(int op, const float *x, int n, const struct reduce_scale *sc)
{
    float acc = 0;
    for (int k = 0; k < n; k++) {
        volatile float v = x[k];
        volatile float step = k == 0 ? v : op == UNO_PROD ? acc * v : op == UNO_MAX || op == UNO_MIN ? pick_f(acc, v, op == UNO_MAX)
                                                                                                    : acc + v;
        acc = step;
    }
    return sc->divide_by > 1 ? acc / (float)sc->divide_by : acc;
}
static double ref_double(int op, const double *x, int n, const struct reduce_scale *sc, double scalar)
{
    double acc = 0;
    for (int k = 0; k < n; k++) {
        volatile double v = k == sc->scaled_operand ? x[k] * scalar : x[k];
        volatile double step = k == 0 ? v : op == UNO_PROD ? acc * v : op == UNO_MAX || op == UNO_MIN ? pick_d(acc, v, op == UNO_MAX)
                                                                                                     : acc + v;
        acc = step;
    }
    return sc->divide_by > 1 ? acc / (double)sc->divide_by : acc;
}

/* Exact integers modulo 2^bits; s: the value as signed or unsigned. */
static __int128 wrap(__int128 v, int bits, bool is_signed)
{
    unsigned __int128 m = (unsigned __int128)v & (((unsigned __int128)1 << bits) - 1);
    if (is_signed && (m >> (bits - 1)))
        return (__int128)m - ((__int128)1 << bits);
    return (__int128)m;
}
static __int128 ref_int(int op, const __int128 *x, int n, int bits, bool is_signed, const struct reduce_scale *sc, __int128 scalar)
{
    __int128 acc = 0;
    for (int k = 0; k < n; k++) {
        __int128 v = k == sc->scaled_operand ? wrap((__int128)((unsigned __int128)x[k] * (unsigned __int128)scalar), bits, is_signed)
                                             : x[k];
        acc = k == 0 ? v : op == UNO_PROD ? (__int128)((unsigned __int128)acc * (unsigned __int128)v) :
              op == UNO_MAX ? MAX(acc, v) : op == UNO_MIN ? MIN(acc, v) : op == UNO_BAND ? acc & v :
              op == UNO_BOR ? acc | v : op == UNO_BXOR ? acc ^ v : acc + v;
        acc = wrap(acc, bits, is_signed);
    }
    return sc->divide_by > 1 ? wrap(acc / sc->divide_by, bits, is_signed) : acc;
}

static bool is_signed_int(uno_type t) { return t == UNO_INT8 || t == UNO_INT16 || t == UNO_INT32 || t == UNO_INT64; }

/* Doubles hold floats exactly; one operation on floats is the same operation on doubles, rounded. */
static double rounded(bool single, double x)
{
    volatile float f = (float)x;
    return single ? (double)f : x;
}
static void complex_times(bool single, double *x, const double *y)
{
    double rr = rounded(single, x[0] * y[0]), ii = rounded(single, x[1] * y[1]);
    double ri = rounded(single, x[0] * y[1]), ir = rounded(single, x[1] * y[0]);
    x[0] = rounded(single, rr - ii);
    x[1] = rounded(single, ri + ir);
}
static void complex_load(bool single, double *v, const void *p)
{
    float f[2];
    memcpy(single ? (void *)f : (void *)v, p, single ? 8 : 16);
    for (int j = 0; single && j < 2; j++)
        v[j] = f[j];
}
static void ref_complex(uno_type t, int op, void *out, const void *const *ops, int n, const struct reduce_scale *sc)
{
    bool single = t == UNO_COMPLEX64;
    double acc[2] = {0, 0}, scalar[2], v[2];
    complex_load(single, scalar, sc->scalar);
    for (int k = 0; k < n; k++) {
        complex_load(single, v, ops[k]);
        if (k == sc->scaled_operand)
            complex_times(single, v, scalar);
        if (k == 0)
            memcpy(acc, v, sizeof acc);
        else if (op == UNO_PROD)
            complex_times(single, acc, v);
        else
            for (int j = 0; j < 2; j++)
                acc[j] = rounded(single, acc[j] + v[j]);
    }
    float f[2];
    for (int j = 0; j < 2; j++) {
        if (sc->divide_by > 1)
            acc[j] = rounded(single, acc[j] / rounded(single, sc->divide_by));
        if (isnan(acc[j]))
            acc[j] = fabs(NAN);
        f[j] = (float)acc[j];
    }
    memcpy(out, single ? (void *)f : (void *)acc, single ? 8 : 16);
}

void ref_element(uno_type t, int op, void *out, const void *const *ops, int n, const struct reduce_scale *sc)
{
    const struct format *f = ref_format(t);
    size_t each = uno_type_bytes(t);
    if (f || t == UNO_FLOAT32) {
        float x[REF_MOST_OPERANDS], scalar = 0, r;
        for (int k = -1; k < n; k++) {
            const void *p = k < 0 ? sc->scalar : ops[k];
            uint16_t h[1] = {0};
            if (f)
                memcpy(h, p, each);
            float v = 0;
            if (f)
                v = ref_widen(f, ref_code(f, h, 0));
            else
                memcpy(&v, p, 4);
            if (k < 0)
                scalar = v;
            else
                x[k] = v;
        }
        if (sc->scaled_operand >= 0) {
            volatile float v = x[sc->scaled_operand] * scalar;
            x[sc->scaled_operand] = f ? ref_widen(f, ref_narrow(f, isnan(v) ? fabsf(NAN) : v)) : v;
        }
        r = ref_float(op, x, n, sc);
        if (isnan(r))
            r = fabsf(NAN);
        uint16_t code = f ? (uint16_t)ref_narrow(f, r) : 0;
        memcpy(out, f ? (void *)&code : (void *)&r, each);
    } else if (t == UNO_FLOAT64) {
        double x[REF_MOST_OPERANDS], scalar, r;
        memcpy(&scalar, sc->scalar, 8);
        for (int k = 0; k < n; k++)
            memcpy(&x[k], ops[k], 8);
        r = ref_double(op, x, n, sc, scalar);
        if (isnan(r))
            r = fabs(NAN);
        memcpy(out, &r, 8);
    } else if (t == UNO_COMPLEX64 || t == UNO_COMPLEX128) {
        ref_complex(t, op, out, ops, n, sc);
    } else if (t == UNO_BOOL) {
        bool acc = *(const uint8_t *)ops[0] != 0;
        for (int k = 1; k < n; k++) {
            bool v = *(const uint8_t *)ops[k] != 0;
            acc = op == UNO_SUM || op == UNO_MAX || op == UNO_BOR ? acc || v : op == UNO_BXOR ? acc != v : acc && v;
        }
        *(uint8_t *)out = acc;
    } else {
        __int128 x[REF_MOST_OPERANDS], scalar = 0;
        for (int k = -1; k < n; k++) {
            uint64_t raw = 0;
            memcpy(&raw, k < 0 ? sc->scalar : ops[k], each); /* little-endian machines only; others fail here loudly */
            __int128 v = wrap(raw, (int)each * 8, is_signed_int(t));
            if (k < 0)
                scalar = v;
            else
                x[k] = v;
        }
        uint64_t r = (uint64_t)ref_int(op, x, n, (int)each * 8, is_signed_int(t), sc, scalar);
        memcpy(out, &r, each);
    }
}
