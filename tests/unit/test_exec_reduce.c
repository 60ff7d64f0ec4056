/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels: conversions of narrow floats against a slow reference that only compares doubles; the plain C version against
 * a reference that works on one element at a time; every vectorised version against the plain one, bit for bit.
 * UNISONO_TEST_SEED repeats a run.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reduce_reference.h"

#define OPS (UNO_OP_COUNT + 1) /* the last one is premulsum */

static struct rng rng;
static uint64_t seed;

static int op_value(int i)
{
    return i < UNO_OP_COUNT ? i : UNO_OP_DYNAMIC;
}

/* ---- narrow formats ---------------------------------------------------------------------------------------------- */

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static void narrow_formats_widen(void **state)
{
    (void)state;
    for (int s = 0; s < kernel_sets_count; s++)
        for (size_t k = 0; kernel_sets[s]->usable() && k < ARRAY_LEN(ref_formats); k++) {
            const struct format *f = &ref_formats[k];
            unsigned codes = ref_sign_bit(f) * 2;
            uint16_t in[65536];
            static float out[65536];
            for (unsigned c = 0; c < codes; c++)
                if (ref_sign_bit(f) == 0x80)
                    ((uint8_t *)in)[c] = (uint8_t)c;
                else
                    in[c] = (uint16_t)c;
            kernel_sets[s]->narrow[f->type].widen(out, in, codes - 1); /* odd: the last ones go another way */
            for (unsigned c = 0; c + 1 < codes; c++) {
                float want = ref_widen(f, c);
                if (isnan(want) ? !isnan(out[c]) : bits_of(out[c]) != bits_of(want))
                    fail_msg("%s %s: code %#x widens to %a, not %a", kernel_sets[s]->isa, type_name(f->type), c, out[c], want);
            }
        }
}

static void check_narrow(const struct format *f, const float *x, size_t n)
{
    uint16_t out[1024];
    for (int s = 0; s < kernel_sets_count; s++) {
        if (!kernel_sets[s]->usable())
            continue;
        kernel_sets[s]->narrow[f->type].narrow(out, x, n);
        for (size_t i = 0; i < n; i++)
            if (ref_code(f, out, i) != ref_narrow(f, x[i]))
                fail_msg("%s %s: %a narrows to %#x, not %#x (seed %llu)", kernel_sets[s]->isa, type_name(f->type), x[i],
                         ref_code(f, out, i), ref_narrow(f, x[i]), (unsigned long long)seed);
    }
}

/* Every value, every midpoint, and the floats next to them, of both signs; then a stride through all floats. */
static void narrow_formats_round_to_nearest_even(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(ref_formats); k++) {
        const struct format *f = &ref_formats[k];
        float x[1024];
        size_t n = 0;
        for (unsigned c = 0; c <= f->beyond; c++) {
            double here = ref_magnitude(f, c), next = ref_magnitude(f, c + 1);
            const float around[] = {(float)here, (float)((here + next) / 2)};
            for (int j = 0; j < 2; j++) {
                const float near[] = {around[j], nextafterf(around[j], INFINITY), nextafterf(around[j], -INFINITY)};
                for (int t = 0; t < 3; t++) {
                    x[n++] = near[t];
                    x[n++] = -near[t];
                }
            }
            if (n + 12 > ARRAY_LEN(x) || c == f->beyond) {
                check_narrow(f, x, n);
                n = 0;
            }
        }
        for (uint64_t u = rng_below(&rng, 20011); u < 1ull << 32; u += 20011) {
            uint32_t w = (uint32_t)u;
            memcpy(&x[n++], &w, sizeof w);
            if (n == 1021) {
                check_narrow(f, x, n);
                n = 0;
            }
        }
        check_narrow(f, x, n);
        const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, 0x1p-149f, -0x1p-149f, 3.4e38f};
        check_narrow(f, special, ARRAY_LEN(special));
    }
}

/* ---- inputs ------------------------------------------------------------------------------------------------------------ */

/* Mostly moderate values, so that sums say something, and every kind of special one. */
static void fill(uno_type t, void *out, size_t n)
{
    size_t each = uno_type_bytes(t), half = t == UNO_COMPLEX64 ? 4 : t == UNO_COMPLEX128 ? 8 : each;
    static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, -NAN, 1.0, -1.0, 0x1p-149, -0x1p-149, 0x1p-1074, 0x1p-126,
                                     3.4e38, -3.4e38, 1.7e308, 65504, 57344, 448};
    for (size_t at = 0; at < n * each; at += half) {
        char *p = (char *)out + at;
        uint64_t r = rng_next(&rng);
        double v = (r & 15) == 0 ? special[(r >> 8) % ARRAY_LEN(special)] : ((double)(r >> 11) * 0x1p-53 - 0.5) * ((r & 16) ? 8 : 600);
        bool real = t == UNO_FLOAT32 || t == UNO_FLOAT64 || half != each;
        float f = (float)v;
        if ((r & 31) == 1 || !real)
            memcpy(p, &(uint64_t){rng_next(&rng)}, half); /* any bits at all */
        else
            memcpy(p, half == 4 ? (void *)&f : (void *)&v, half);
        if (ref_format(t) && (r & 31) != 1) {
            uint16_t code = (uint16_t)ref_narrow(ref_format(t), f);
            memcpy(p, &code, half);
        }
        if (t == UNO_BOOL && (r & 1))
            *p = 0;
    }
}

struct job {
    uno_type type;
    int op, n;
    size_t count;
    const void *operands[REF_MOST_OPERANDS];
    char *memory[REF_MOST_OPERANDS];
    struct reduce_scale scale;
};

static size_t align_of(uno_type t)
{
    return t == UNO_COMPLEX64 ? 4 : t == UNO_COMPLEX128 ? 8 : uno_type_bytes(t);
}

/* Operands end where their allocation ends (an address sanitizer sees the first byte too many), at any element alignment. */
static void job_make(struct job *j, uno_type type, int op, int n, size_t count)
{
    *j = (struct job){.type = type, .op = op, .n = n, .count = count, .scale = {.scaled_operand = -1}};
    size_t each = uno_type_bytes(type);
    for (int k = 0; k < n; k++) {
        size_t offset = align_of(type) * rng_below(&rng, 64 / align_of(type));
        j->memory[k] = malloc(offset + count * each + (offset + count * each == 0));
        assert_non_null(j->memory[k]);
        fill(type, j->memory[k] + offset, count);
        j->operands[k] = j->memory[k] + offset;
    }
    fill(type, j->scale.scalar, 1);
    if (op >= UNO_OP_DYNAMIC)
        j->scale.scaled_operand = (int)rng_below(&rng, (uint64_t)n + 1) - 1;
    if (op == UNO_AVG)
        j->scale.divide_by = (uint32_t)(rng_below(&rng, 4) ? 1 + rng_below(&rng, 9) : rng_next(&rng));
}
static void job_free(struct job *j)
{
    for (int k = 0; k < j->n; k++)
        free(j->memory[k]);
}

/* Run fn into fresh guarded memory; returns it. alias >= 0: dst is that operand's own memory, given back afterwards. */
#define GUARD 64
static void job_run(const struct job *j, reduce_fn fn, int alias, bool two, unsigned flags, char *result)
{
    size_t each = uno_type_bytes(j->type), bytes = j->count * each;
    char *area[2], *dst[2], *saved = NULL;
    for (int d = 0; d < 2; d++) {
        area[d] = malloc(bytes + 3 * GUARD);
        assert_non_null(area[d]);
        memset(area[d], 0x5a, bytes + 3 * GUARD);
        dst[d] = area[d] + GUARD + align_of(j->type) * rng_below(&rng, GUARD / align_of(j->type));
    }
    char *out = dst[0];
    if (alias >= 0) {
        out = (char *)(uintptr_t)j->operands[alias];
        saved = malloc(bytes + 1);
        memcpy(saved, out, bytes);
    }
    if (rng_below(&rng, 2)) /* both begin at the same place of a line: what is streamed into both goes line by line */
        dst[1] = area[1] + GUARD + ((uintptr_t)out - (uintptr_t)area[1]) % GUARD;
    fn(out, two ? dst[1] : NULL, j->operands, j->n, j->count, &j->scale, flags);
    memcpy(result, out, bytes);
    if (alias >= 0)
        memcpy(out, saved, bytes);
    for (int d = 0; d < 2; d++) {
        bool written = d == 0 ? alias < 0 : two;
        if (written)
            assert_memory_equal(dst[d], result, bytes);
        for (char *p = area[d]; p < area[d] + bytes + 3 * GUARD; p++)
            if (*p != 0x5a && !(written && p >= dst[d] && p < dst[d] + bytes))
                fail_msg("%s %s n=%d count=%zu: wrote outside its output", type_name(j->type), op_name(j->op), j->n, j->count);
        free(area[d]);
    }
    free(saved);
}

static void compare(const struct job *j, const char *who, const char *got, const char *want)
{
    size_t each = uno_type_bytes(j->type);
    for (size_t i = 0; i < j->count; i++)
        if (memcmp(got + i * each, want + i * each, each) != 0) {
            uint64_t g[2] = {0}, w[2] = {0};
            memcpy(g, got + i * each, each);
            memcpy(w, want + i * each, each);
            fail_msg("%s: %s %s of %d, element %zu of %zu: %llx %llx, not %llx %llx (seed %llu)", who, type_name(j->type),
                     op_name(j->op), j->n, i, j->count, (unsigned long long)g[1], (unsigned long long)g[0],
                     (unsigned long long)w[1], (unsigned long long)w[0], (unsigned long long)seed);
        }
}

static reduce_fn set_find(const struct kernel_set *set, uno_type t, int op)
{
    return set->reduce[t][op >= UNO_OP_DYNAMIC ? UNO_SUM : op];
}

static void one_case(uno_type t, int op, int n, size_t count)
{
    struct job j;
    job_make(&j, t, op, n, count);
    size_t bytes = count * uno_type_bytes(t) + 1;
    char *want = malloc(bytes), *got = malloc(bytes);
    job_run(&j, reduce_find(t, op, false), -1, false, 0, want);
    for (int s = 0; s < kernel_sets_count; s++) {
        if (!kernel_sets[s]->usable())
            continue;
        reduce_fn fn = set_find(kernel_sets[s], t, op);
        job_run(&j, fn, -1, false, 0, got);
        compare(&j, kernel_sets[s]->isa, got, want);
        unsigned r = (unsigned)rng_next(&rng);
        job_run(&j, fn, (int)(r >> 8) % n, r & 4, r & 3, got); /* in place, second output, streaming: in some combination */
        compare(&j, kernel_sets[s]->isa, got, want);
        for (unsigned flags = 0; flags <= (REDUCE_STREAM_DST | REDUCE_STREAM_DST2); flags++) {
            job_run(&j, fn, -1, r & 16, flags, got);
            compare(&j, kernel_sets[s]->isa, got, want);
        }
    }
    free(want);
    free(got);
    job_free(&j);
}

static void vectorised_equals_plain(void **state)
{
    (void)state;
    for (int t = 0; t < UNO_TYPE_COUNT; t++)
        for (int o = 0; o < OPS; o++) {
            if (uno_op_check((uno_op)op_value(o), (uno_type)t) != UNO_OK)
                continue;
            for (size_t count = 0; count <= 130; count++)
                one_case((uno_type)t, op_value(o), 1 + (int)rng_below(&rng, REF_MOST_OPERANDS), count);
            for (int n = 1; n <= REF_MOST_OPERANDS; n++)
                one_case((uno_type)t, op_value(o), n, 500 + rng_below(&rng, 30));
            one_case((uno_type)t, op_value(o), 2, 4096 + rng_below(&rng, 4096));
            one_case((uno_type)t, op_value(o), 3, 4096 + rng_below(&rng, 4096));
        }
}

static void plain_equals_the_definition(void **state)
{
    (void)state;
    for (int t = 0; t < UNO_TYPE_COUNT; t++)
        for (int o = 0; o < OPS; o++) {
            if (uno_op_check((uno_op)op_value(o), (uno_type)t) != UNO_OK)
                continue;
            size_t each = uno_type_bytes((uno_type)t);
            for (int n = 1; n <= REF_MOST_OPERANDS; n++) {
                struct job j;
                job_make(&j, (uno_type)t, op_value(o), n, 400);
                char *got = malloc(400 * each + 1), *want = malloc(400 * each + 1);
                job_run(&j, reduce_find((uno_type)t, op_value(o), false), -1, false, 0, got);
                for (size_t i = 0; i < j.count; i++) {
                    const void *at[REF_MOST_OPERANDS];
                    for (int k = 0; k < n; k++)
                        at[k] = (const char *)j.operands[k] + i * each;
                    ref_element((uno_type)t, op_value(o), want + i * each, at, n, &j.scale);
                }
                compare(&j, "plain", got, want);
                free(got);
                free(want);
                job_free(&j);
            }
        }
}

static void signed_zero_and_nan_have_their_order(void **state)
{
    (void)state;
    const float pz = 0.0f, nz = -0.0f, nan = -NAN, one = 1;
    for (int s = 0; s < kernel_sets_count; s++) {
        if (!kernel_sets[s]->usable())
            continue;
        for (int op = UNO_MAX; op <= UNO_MIN; op++) {
            reduce_fn fn = kernel_sets[s]->reduce[UNO_FLOAT32][op];
            float r;
            fn(&r, NULL, (const void *[]){&pz, &nz}, 2, 1, NULL, 0);
            assert_int_equal(bits_of(r), 0);
            fn(&r, NULL, (const void *[]){&nz, &pz}, 2, 1, NULL, 0);
            assert_int_equal(bits_of(r), 0x80000000u);
            fn(&r, NULL, (const void *[]){&one, &nan, &one}, 3, 1, NULL, 0);
            assert_int_equal(bits_of(r), 0x7fc00000u);
            fn(&r, NULL, (const void *[]){&nan, &one}, 2, 1, NULL, 0);
            assert_int_equal(bits_of(r), 0x7fc00000u);
        }
    }
}

/* 256 + 1 + 1 in bfloat16: rounding after each step would lose both ones. */
static void narrow_floats_round_once(void **state)
{
    (void)state;
    const uint16_t big = 0x4380, one = 0x3f80;
    uint16_t r;
    reduce_find(UNO_BFLOAT16, UNO_SUM, true)(&r, NULL, (const void *[]){&big, &one, &one}, 3, 1, NULL, 0);
    assert_int_equal(r, 0x4381);
}

static void averages_divide_and_truncate(void **state)
{
    (void)state;
    const int8_t a = -7, b = 0;
    int8_t r;
    struct reduce_scale half = {.scaled_operand = -1, .divide_by = 2};
    reduce_find(UNO_INT8, UNO_AVG, true)(&r, NULL, (const void *[]){&a, &b}, 2, 1, &half, 0);
    assert_int_equal(r, -3);
    const float x = 3, y = 4;
    float f;
    reduce_find(UNO_FLOAT32, UNO_AVG, true)(&f, NULL, (const void *[]){&x, &y}, 2, 1, &half, 0);
    assert_true(f == 3.5f);
    struct reduce_scale scaled = {.scaled_operand = 0, .divide_by = 1};
    memcpy(scaled.scalar, &y, sizeof y);
    reduce_scale_copy(UNO_FLOAT32, UNO_OP_DYNAMIC, &f, &x, 1, &scaled);
    assert_true(f == 12.0f);
}

static void large_arrays_stream(void **state)
{
    (void)state;
    one_case(UNO_FLOAT32, UNO_SUM, 2, 300000 + rng_below(&rng, 1000));
    one_case(UNO_BFLOAT16, UNO_SUM, 3, 300000 + rng_below(&rng, 1000));
}

static void copies_are_copies(void **state)
{
    (void)state;
    for (int round = 0; round < 400; round++) {
        size_t bytes = rng_below(&rng, round < 300 ? 300 : 100000), a = rng_below(&rng, 64), b = rng_below(&rng, 64);
        char *src = malloc(a + bytes + 1), *dst = malloc(b + bytes + 65);
        fill(UNO_UINT8, src + a, bytes);
        memset(dst, 0x5a, b + bytes + 65);
        if (round & 1)
            copy_bytes(dst + b, src + a, bytes, round & 2);
        else
            kernel_sets[0]->stream(dst + b, src + a, bytes);
        assert_memory_equal(dst + b, src + a, bytes);
        for (size_t i = 0; i < b; i++)
            assert_int_equal(dst[i], 0x5a);
        for (size_t i = 0; i < 65; i++)
            assert_int_equal(dst[b + bytes + i], 0x5a);
        free(src);
        free(dst);
    }
    copy_bytes(NULL, NULL, 0, true);
}

/* ---- which reduction for which type: code, kernels, docs/types.md ---------------------------------------------------------- */

static void kernels_exist_where_the_table_says(void **state)
{
    (void)state;
    for (int t = 0; t < UNO_TYPE_COUNT; t++)
        for (int o = 0; o < OPS; o++)
            for (int best = 0; best < 2; best++)
                assert_int_equal(reduce_find((uno_type)t, op_value(o), best) != NULL,
                                 uno_op_check((uno_op)op_value(o), (uno_type)t) == UNO_OK);
    assert_int_equal(uno_op_check(UNO_MAX, UNO_COMPLEX64), UNO_ERR_TYPE);
    assert_string_equal(err_text(), "max is not defined for complex64; legal are sum prod avg premulsum");
    assert_int_equal(uno_op_check((uno_op)9, UNO_INT8), UNO_ERR_ARG);
    assert_int_equal(uno_op_check((uno_op)-1, UNO_INT8), UNO_ERR_ARG);
    assert_int_equal(uno_op_check(UNO_SUM, (uno_type)17), UNO_ERR_ARG);
    assert_null(reduce_find((uno_type)17, UNO_SUM, true));
    assert_null(reduce_find(UNO_INT8, 9, true));
    assert_null(reduce_find(UNO_INT8, -1, true));
}

/* Rows look like "| float32 | yes | yes | ... |", columns in the order of uno_op, then premulsum. */
static void docs_show_the_same_table(void **state)
{
    (void)state;
    const char *root = getenv("UNISONO_SOURCE");
    char path[4096], line[1024], rows = 0;
    if (!root)
        skip(); /* set by meson */
    snprintf(path, sizeof path, "%s/docs/types.md", root);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        char *save, *cell = line[0] == '|' ? strtok_r(line, "|", &save) : NULL, name[32];
        uno_type t;
        if (!cell || sscanf(cell, " %31s", name) != 1 || type_parse(name, &t) != UNO_OK)
            continue;
        rows++;
        for (int o = 0; o < OPS; o++) {
            char word[16] = "";
            cell = strtok_r(NULL, "|", &save);
            assert_non_null(cell);
            sscanf(cell, " %15s", word);
            bool legal = uno_op_check((uno_op)op_value(o), t) == UNO_OK;
            if (strcmp(word, legal ? "yes" : "error") != 0)
                fail_msg("docs/types.md: %s of %s is \"%s\" but should be \"%s\"", op_name(op_value(o)), name, word,
                         legal ? "yes" : "error");
        }
    }
    fclose(f);
    assert_int_equal(rows, UNO_TYPE_COUNT);
}

int main(void)
{
    const char *given = getenv("UNISONO_TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : clock_ns();
    rng_seed(&rng, seed);
    printf("seed %llu, instruction set %s\n", (unsigned long long)seed, reduce_isa());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_formats_widen), cmocka_unit_test(narrow_formats_round_to_nearest_even),
        cmocka_unit_test(signed_zero_and_nan_have_their_order), cmocka_unit_test(narrow_floats_round_once),
        cmocka_unit_test(averages_divide_and_truncate), cmocka_unit_test(plain_equals_the_definition),
        cmocka_unit_test(vectorised_equals_plain), cmocka_unit_test(large_arrays_stream),
        cmocka_unit_test(copies_are_copies), cmocka_unit_test(kernels_exist_where_the_table_says),
        cmocka_unit_test(docs_show_the_same_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
