/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - words for the public enums, both ways. */
#include "base.h"

#include <string.h>
#include <strings.h>

static const struct { const char *name, *other; size_t bytes; } types[UNO_TYPE_COUNT] = {
    [UNO_INT8] = {"int8", "char", 1},        [UNO_UINT8] = {"uint8", "byte", 1},
    [UNO_INT32] = {"int32", "int", 4},       [UNO_UINT32] = {"uint32", "uint", 4},
    [UNO_INT64] = {"int64", "long", 8},      [UNO_UINT64] = {"uint64", "ulong", 8},
    [UNO_FLOAT16] = {"float16", "half", 2},  [UNO_FLOAT32] = {"float32", "float", 4},
    [UNO_FLOAT64] = {"float64", "double", 8}, [UNO_BFLOAT16] = {"bfloat16", "bf16", 2},
    [UNO_FLOAT8E4M3] = {"f8e4m3", "fp8e4m3", 1}, [UNO_FLOAT8E5M2] = {"f8e5m2", "fp8e5m2", 1},
    [UNO_BOOL] = {"bool", "boolean", 1},     [UNO_INT16] = {"int16", "short", 2},
    [UNO_UINT16] = {"uint16", "ushort", 2},  [UNO_COMPLEX64] = {"complex64", "cfloat", 8},
    [UNO_COMPLEX128] = {"complex128", "cdouble", 16},
};
static const char *const ops[UNO_OP_COUNT] = {"sum", "prod", "max", "min", "avg", "band", "bor", "bxor"};
static const char *const colls[COLL_NAMED] = {
    "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all",
    "gather", "scatter", "barrier", "all_gather_v", "reduce_scatter_v", "all_to_all_v", "comm_split"};
static const char *const errs[] = {
    [UNO_OK] = "UNO_OK", [UNO_ERR_ARG] = "UNO_ERR_ARG", [UNO_ERR_TYPE] = "UNO_ERR_TYPE", [UNO_ERR_USAGE] = "UNO_ERR_USAGE",
    [UNO_ERR_CONFIG] = "UNO_ERR_CONFIG", [UNO_ERR_PARSE] = "UNO_ERR_PARSE", [UNO_ERR_PLAN] = "UNO_ERR_PLAN",
    [UNO_ERR_UNSUPPORTED] = "UNO_ERR_UNSUPPORTED", [UNO_ERR_TRUNCATED] = "UNO_ERR_TRUNCATED",
    [UNO_ERR_IN_PROGRESS] = "UNO_ERR_IN_PROGRESS", [UNO_ERR_PEER_DEAD] = "UNO_ERR_PEER_DEAD",
    [UNO_ERR_UNREACHABLE] = "UNO_ERR_UNREACHABLE", [UNO_ERR_MISMATCH] = "UNO_ERR_MISMATCH",
    [UNO_ERR_TIMEOUT] = "UNO_ERR_TIMEOUT", [UNO_ERR_AUTH] = "UNO_ERR_AUTH", [UNO_ERR_ABORTED] = "UNO_ERR_ABORTED",
    [UNO_ERR_EXCLUDED] = "UNO_ERR_EXCLUDED", [UNO_ERR_MEMORY] = "UNO_ERR_MEMORY", [UNO_ERR_SYSTEM] = "UNO_ERR_SYSTEM",
    [UNO_ERR_INTERNAL] = "UNO_ERR_INTERNAL"};

const char *uno_err_name(uno_err err)
{
    const char *name = (unsigned)err < ARRAY_LEN(errs) ? errs[err] : NULL;
    return name ? name : "unknown error";
}

size_t uno_type_bytes(uno_type type)
{
    return (unsigned)type < UNO_TYPE_COUNT ? types[type].bytes : 0;
}

const char *type_name(uno_type type)
{
    return (unsigned)type < UNO_TYPE_COUNT ? types[type].name : "?";
}

const char *op_name(int op)
{
    if (op >= UNO_OP_DYNAMIC)
        return "premulsum";
    return op >= 0 && op < UNO_OP_COUNT ? ops[op] : "?";
}

bool coll_has_root(uno_coll coll)
{
    return coll == UNO_BROADCAST || coll == UNO_REDUCE || coll == UNO_GATHER || coll == UNO_SCATTER;
}

bool coll_reduces(uno_coll coll)
{
    return coll == UNO_ALL_REDUCE || coll == UNO_REDUCE || coll == UNO_REDUCE_SCATTER || coll == UNO_REDUCE_SCATTER_V;
}

bool coll_is_v(uno_coll coll)
{
    return coll == UNO_ALL_GATHER_V || coll == UNO_REDUCE_SCATTER_V || coll == UNO_ALL_TO_ALL_V;
}

const char *coll_name(uno_coll coll)
{
    return (unsigned)coll < COLL_NAMED ? colls[coll] : "?";
}

uno_err type_parse(const char *s, uno_type *type)
{
    for (int i = 0; i < UNO_TYPE_COUNT; i++)
        if (strcasecmp(s, types[i].name) == 0 || strcasecmp(s, types[i].other) == 0) {
            *type = (uno_type)i;
            return UNO_OK;
        }
    return err_set(UNO_ERR_PARSE,
                   "\"%.40s\" is not a type; legal are int8 uint8 int16 uint16 int32 uint32 int64 uint64 half float double "
                   "bfloat16 f8e4m3 f8e5m2 bool complex64 complex128", s);
}

/* Compare without case, '_' and '-', and without a trailing "_perf". */
static bool same_coll(const char *s, const char *name)
{
    for (;; s++, name++) {
        while (*s == '_' || *s == '-') {
            if (strcasecmp(s, "_perf") == 0)
                break;
            s++;
        }
        while (*name == '_')
            name++;
        if (*name == 0)
            return *s == 0 || strcasecmp(s, "_perf") == 0;
        if ((*s | 32) != (*name | 32))
            return false;
    }
}

uno_err coll_parse(const char *s, uno_coll *coll)
{
    for (int i = 0; i < UNO_COLL_COUNT; i++)
        if (same_coll(s, colls[i])) {
            *coll = (uno_coll)i;
            return UNO_OK;
        }
    return err_set(UNO_ERR_PARSE,
                   "\"%.40s\" is not a collective; legal are all_reduce broadcast reduce all_gather reduce_scatter all_to_all "
                   "gather scatter barrier all_gather_v reduce_scatter_v all_to_all_v", s);
}
