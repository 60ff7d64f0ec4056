/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_ops.c - which reduction is defined for which type. docs/types.md shows the same table and a test compares the two
 * with the kernels that exist.
 */
#include "exec/exec.h"

#define BIT(op) (1u << (op))
#define PREMULSUM BIT(UNO_OP_COUNT)
#define ORDERED (BIT(UNO_SUM) | BIT(UNO_PROD) | BIT(UNO_MAX) | BIT(UNO_MIN))
#define BITWISE (BIT(UNO_BAND) | BIT(UNO_BOR) | BIT(UNO_BXOR))
#define SCALED (BIT(UNO_AVG) | PREMULSUM)

static unsigned legal_ops(uno_type type)
{
    switch (type) {
    case UNO_BOOL:
        return ORDERED | BITWISE;
    case UNO_FLOAT16:
    case UNO_FLOAT32:
    case UNO_FLOAT64:
    case UNO_BFLOAT16:
    case UNO_FLOAT8E4M3:
    case UNO_FLOAT8E5M2:
        return ORDERED | SCALED;
    case UNO_COMPLEX64:
    case UNO_COMPLEX128:
        return BIT(UNO_SUM) | BIT(UNO_PROD) | SCALED;
    default:
        return ORDERED | BITWISE | SCALED;
    }
}

uno_err uno_op_check(uno_op op, uno_type type)
{
    if ((unsigned)type >= UNO_TYPE_COUNT)
        return err_set(UNO_ERR_ARG, "%d is not a type; legal are the values of uno_type, 0 to %d", (int)type, UNO_TYPE_COUNT - 1);
    bool dynamic = (int)op >= UNO_OP_DYNAMIC;
    if ((int)op < 0 || (op >= UNO_OP_COUNT && !dynamic))
        return err_set(UNO_ERR_ARG, "%d is not a reduction; legal are the values of uno_op, 0 to %d, and those from "
                       "uno_op_create_premulsum", (int)op, UNO_OP_COUNT - 1);
    unsigned legal = legal_ops(type);
    if (legal & (dynamic ? PREMULSUM : BIT(op)))
        return UNO_OK;
    char names[128];
    size_t len = 0;
    names[0] = 0;
    for (int i = 0; i <= UNO_OP_COUNT; i++)
        if (legal & BIT(i))
            len += (size_t)snprintf(names + len, sizeof names - len, " %s", op_name(i < UNO_OP_COUNT ? i : UNO_OP_DYNAMIC));
    return err_set(UNO_ERR_TYPE, "%s is not defined for %s; legal are%s", op_name(op), type_name(type), names);
}
