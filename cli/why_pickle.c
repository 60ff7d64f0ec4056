/* SPDX-License-Identifier: Apache-2.0 */
/* why_pickle.c - see why_pickle.h. Opcodes of Python's pickletools: no memo is needed, for nothing is shared. */
#include "why_pickle.h"

#include <stdint.h>
#include <string.h>

static void put_le(FILE *f, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        putc((int)(v >> 8 * i & 0xff), f);
}

static void put_value(FILE *f, const json_t *v);

static void put_text(FILE *f, const char *s, size_t bytes)
{
    putc('X', f); /* BINUNICODE */
    put_le(f, bytes, 4);
    fwrite(s, 1, bytes, f);
}

static void put_integer(FILE *f, json_int_t n)
{
    if (n >= INT32_MIN && n <= INT32_MAX) {
        putc('J', f); /* BININT */
        put_le(f, (uint64_t)n, 4);
        return;
    }
    fputs("\x8a\x08", f); /* LONG1 of eight bytes */
    put_le(f, (uint64_t)n, 8);
}

static void put_list(FILE *f, const json_t *v)
{
    fputs("](", f); /* EMPTY_LIST, MARK */
    for (size_t i = 0; i < json_array_size(v); i++)
        put_value(f, json_array_get(v, i));
    putc('e', f); /* APPENDS */
}

static void put_dict(FILE *f, const json_t *v)
{
    fputs("}(", f); /* EMPTY_DICT, MARK */
    for (void *i = json_object_iter((json_t *)v); i; i = json_object_iter_next((json_t *)v, i)) {
        put_text(f, json_object_iter_key(i), strlen(json_object_iter_key(i)));
        put_value(f, json_object_iter_value(i));
    }
    putc('u', f); /* SETITEMS */
}

static void put_value(FILE *f, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: put_dict(f, v); break;
    case JSON_ARRAY: put_list(f, v); break;
    case JSON_STRING: put_text(f, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: put_integer(f, json_integer_value(v)); break;
    case JSON_TRUE: putc(0x88, f); break;
    case JSON_FALSE: putc(0x89, f); break;
    default: putc('N', f); break;
    }
}

bool pickle_write(FILE *f, const json_t *value)
{
    fputs("\x80\x02", f); /* PROTO 2 */
    put_value(f, value);
    putc('.', f);
    return !ferror(f);
}
