/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_pickle.c - Python pickles, protocols 0 to 5, of plain types only: dict, list, tuple, str, bytes, int, float, bool, None. An opcode
 * that names or calls anything is refused with its name; nothing is ever run. Values become jansson values, so that JSON and pickle are
 * one from there on. A list or dict that was fetched from the memo cannot be changed any more, so no value can contain itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flight.h"
#include "reader.h"

enum { STACK = 4096, MEMO = 1 << 18, VALUES = 4 << 20, DEPTH = 200 /* jansson frees by recursion */ };

struct item {
    json_t *value;  /* NULL = a mark */
    bool fetched;
    int depth;      /* of containers in it */
    int64_t memo;   /* where it is kept; -1 = nowhere */
};
struct kept {
    json_t *value;
    int depth;
    bool fetched;   /* at least once: from then on it may not be filled, so that nothing contains itself */
};

struct pickle {
    const unsigned char *data;
    size_t bytes, at;
    struct item stack[STACK];
    int top;
    struct kept *memo;
    size_t memo_used, values;
    const char *wrong;
    char why[128];
};

static bool fail(struct pickle *p, const char *why)
{
    if (!p->wrong)
        p->wrong = why;
    return false;
}

static bool take(struct pickle *p, void *to, size_t n)
{
    if (p->bytes - p->at < n)
        return fail(p, "it ends in the middle");
    memcpy(to, p->data + p->at, n);
    p->at += n;
    return true;
}

static uint64_t number(struct pickle *p, size_t n)
{
    unsigned char b[8] = {0};
    uint64_t v = 0;
    if (!take(p, b, n))
        return 0;
    for (size_t i = n; i-- > 0;)
        v = v << 8 | b[i];
    return v;
}

/* Takes the reference. */
static bool push_deep(struct pickle *p, json_t *v, bool fetched, int depth)
{
    if (!v)
        return fail(p, "a value of it cannot be kept");
    if (p->top >= STACK || ++p->values > VALUES) {
        json_decref(v);
        return fail(p, "it is nested too deeply, or has too many values");
    }
    p->stack[p->top++] = (struct item){v, fetched, depth, -1};
    return true;
}

static bool push(struct pickle *p, json_t *v, bool fetched)
{
    return push_deep(p, v, fetched, 0);
}

static bool push_mark(struct pickle *p)
{
    if (p->top >= STACK)
        return fail(p, "it is nested too deeply");
    p->stack[p->top++] = (struct item){NULL, false, 0, -1};
    return true;
}

static json_t *pop(struct pickle *p)
{
    if (p->top == 0 || !p->stack[p->top - 1].value) {
        fail(p, "a value is missing");
        return NULL;
    }
    return p->stack[--p->top].value;
}

static bool push_text(struct pickle *p, uint64_t n)
{
    if (p->bytes - p->at < n)
        return fail(p, "it ends in the middle of a string");
    json_t *v = json_stringn((const char *)p->data + p->at, n);
    if (!v)
        v = json_string(""); /* bytes that are no text */
    p->at += n;
    return push(p, v, false);
}

/* The opcodes of protocol 0 end their argument with a newline. */
static bool line_of(struct pickle *p, char *to, size_t bytes)
{
    const unsigned char *end = memchr(p->data + p->at, '\n', p->bytes - p->at);
    if (!end)
        return fail(p, "it ends in the middle");
    size_t n = (size_t)(end - (p->data + p->at)), keep = n < bytes - 1 ? n : bytes - 1;
    memcpy(to, p->data + p->at, keep);
    to[keep] = 0;
    p->at += n + 1;
    return true;
}

static bool push_long(struct pickle *p, uint64_t n)
{
    if (p->bytes - p->at < n)
        return fail(p, "it ends in the middle of a number");
    int64_t v = 0;
    for (uint64_t i = n < 8 ? n : 8; i-- > 0;)
        v = (int64_t)((uint64_t)v << 8 | p->data[p->at + i]);
    if (n > 0 && n < 8 && p->data[p->at + n - 1] & 0x80)
        v -= (int64_t)1 << (8 * n);
    p->at += n;
    return push(p, json_integer(v), false);
}

static bool put(struct pickle *p, uint64_t i)
{
    struct item *top = p->top ? &p->stack[p->top - 1] : NULL;
    if (!top || !top->value || i >= MEMO || p->memo[i].value || top->memo >= 0)
        return fail(p, "its memo is wrong");
    p->memo[i] = (struct kept){json_incref(top->value), top->depth, top->fetched};
    top->memo = (int64_t)i;
    return true;
}

static bool get(struct pickle *p, uint64_t i)
{
    if (i >= MEMO || !p->memo[i].value)
        return fail(p, "its memo is wrong");
    p->memo[i].fetched = true;
    return push_deep(p, json_incref(p->memo[i].value), true, p->memo[i].depth);
}

static int mark_of(struct pickle *p)
{
    int i = p->top - 1;
    while (i >= 0 && p->stack[i].value)
        i--;
    if (i < 0)
        fail(p, "a mark is missing");
    return i;
}

static const char *key_text(json_t *key, char *buf, size_t bytes)
{
    if (json_is_string(key))
        return json_string_value(key);
    snprintf(buf, bytes, "%lld", (long long)json_integer_value(key));
    return buf;
}

static void drop_to(struct pickle *p, int top)
{
    while (p->top > top)
        json_decref(p->stack[--p->top].value);
}

/* A container that holds what stands from `from` on is that deep. */
static bool depth_with(struct pickle *p, int from, int *depth)
{
    for (int i = from; i < p->top; i++)
        *depth = p->stack[i].depth + 1 > *depth ? p->stack[i].depth + 1 : *depth;
    return *depth <= DEPTH || fail(p, "it is nested too deeply, or has too many values");
}

/* What stands above `from` goes into the list or dict below it. */
static bool fill(struct pickle *p, int container, int from)
{
    char buf[32];
    if (container < 0 || !p->stack[container].value || p->stack[container].fetched)
        return fail(p, "a list or dict is filled that is not new");
    struct item *c = &p->stack[container];
    json_t *to = c->value;
    if (c->memo >= 0 && p->memo[c->memo].fetched)
        return fail(p, "a value contains itself");
    if (!depth_with(p, from, &c->depth))
        return false;
    if (c->memo >= 0)
        p->memo[c->memo].depth = c->depth;
    if (json_is_array(to)) {
        for (int i = from; i < p->top; i++)
            json_array_append(to, p->stack[i].value);
    } else if (json_is_object(to) && (p->top - from) % 2 == 0) {
        for (int i = from; i < p->top; i += 2)
            json_object_set_nocheck(to, key_text(p->stack[i].value, buf, sizeof buf), p->stack[i + 1].value);
    } else {
        return fail(p, "what is filled is no list or dict");
    }
    drop_to(p, from);
    return true;
}

/* A tuple, list or dict of what stands above the mark, or of the last n. */
static bool collect(struct pickle *p, int n, json_t *empty)
{
    int from = n >= 0 ? p->top - n : mark_of(p) + 1;
    bool good = !p->wrong && from >= (n >= 0 ? 0 : 1) && empty;
    for (int i = from; good && i < p->top; i++)
        good = p->stack[i].value != NULL;
    if (!good) {
        json_decref(empty);
        return fail(p, "a value is missing");
    }
    char buf[32];
    int depth = 1;
    if (!depth_with(p, from, &depth)) {
        json_decref(empty);
        return false;
    }
    if (json_is_array(empty))
        for (int i = from; i < p->top; i++)
            json_array_append(empty, p->stack[i].value);
    else
        for (int i = from; i + 1 < p->top; i += 2)
            json_object_set_nocheck(empty, key_text(p->stack[i].value, buf, sizeof buf), p->stack[i + 1].value);
    drop_to(p, from);
    if (n < 0)
        p->top--;
    return push_deep(p, empty, false, depth);
}

static bool fill_from_mark(struct pickle *p)
{
    int mark = mark_of(p);
    if (mark < 1)
        return fail(p, "a mark is missing");
    int container = mark - 1;
    /* The mark goes away first: what is above it moves down by one. */
    memmove(&p->stack[mark], &p->stack[mark + 1], (size_t)(p->top - mark - 1) * sizeof p->stack[0]);
    p->top--;
    return fill(p, container, mark);
}

static bool push_float(struct pickle *p)
{
    unsigned char b[8];
    uint64_t bits = 0;
    double v;
    if (!take(p, b, 8))
        return false;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | b[i];
    memcpy(&v, &bits, 8);
    json_t *real = json_real(v);
    return push(p, real ? real : json_null(), false); /* infinity and NaN are no JSON */
}

static bool text_opcode(struct pickle *p, int op)
{
    char text[512];
    if (!line_of(p, text, sizeof text))
        return false;
    switch (op) {
    case 'I':
        return push(p, strcmp(text, "01") == 0 ? json_true() : strcmp(text, "00") == 0 ? json_false() : json_integer(strtoll(text, NULL, 10)), false);
    case 'L': return push(p, json_integer(strtoll(text, NULL, 10)), false);
    case 'F': {
        json_t *real = json_real(strtod(text, NULL));
        return push(p, real ? real : json_null(), false);
    }
    case 'p': return put(p, strtoull(text, NULL, 10));
    case 'g': return get(p, strtoull(text, NULL, 10));
    default: {
        json_t *s = json_string(text);
        return push(p, s ? s : json_string(""), false);
    }
    }
}

static bool refuse(struct pickle *p, int op)
{
    static const struct { int op; const char *name; } calls[] = {{'c', "GLOBAL"}, {'R', "REDUCE"}, {'b', "BUILD"}, {'i', "INST"}, {'o', "OBJ"}, {0x81, "NEWOBJ"}, {0x92, "NEWOBJ_EX"},
        {0x93, "STACK_GLOBAL"}, {0x82, "EXT1"}, {0x83, "EXT2"}, {0x84, "EXT4"}, {'P', "PERSID"}, {'Q', "BINPERSID"}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i].op == op) {
            snprintf(p->why, sizeof p->why, "it would call Python code (opcode %s at byte %zu), which is never done here", calls[i].name, p->at - 1);
            return fail(p, p->why);
        }
    snprintf(p->why, sizeof p->why, "byte %zu is no opcode of a pickle of plain types", p->at - 1);
    return fail(p, p->why);
}

static bool step(struct pickle *p, int op)
{
    switch (op) {
    case 0x80: number(p, 1); return !p->wrong;
    case 0x95: number(p, 8); return !p->wrong;
    case '(': return push_mark(p);
    case '}': return push(p, json_object(), false);
    case ']': case 0x8f: case ')': return push(p, json_array(), false);
    case 'N': return push(p, json_null(), false);
    case 0x88: return push(p, json_true(), false);
    case 0x89: return push(p, json_false(), false);
    case 'K': { uint64_t v = number(p, 1); return !p->wrong && push(p, json_integer((json_int_t)v), false); }
    case 'M': { uint64_t v = number(p, 2); return !p->wrong && push(p, json_integer((json_int_t)v), false); }
    case 'J': { uint64_t v = number(p, 4); return !p->wrong && push(p, json_integer((int32_t)v), false); }
    case 0x8a: { uint64_t n = number(p, 1); return !p->wrong && push_long(p, n); }
    case 0x8b: { uint64_t n = number(p, 4); return !p->wrong && push_long(p, n); }
    case 'G': return push_float(p);
    case 'U': case 'C': case 0x8c: { uint64_t n = number(p, 1); return !p->wrong && push_text(p, n); }
    case 'X': case 'T': case 'B': { uint64_t n = number(p, 4); return !p->wrong && push_text(p, n); }
    case 0x8d: case 0x8e: case 0x96: { uint64_t n = number(p, 8); return !p->wrong && push_text(p, n); }
    case 'q': { uint64_t i = number(p, 1); return !p->wrong && put(p, i); }
    case 'r': { uint64_t i = number(p, 4); return !p->wrong && put(p, i); }
    case 0x94: return put(p, p->memo_used++);
    case 'h': { uint64_t i = number(p, 1); return !p->wrong && get(p, i); }
    case 'j': { uint64_t i = number(p, 4); return !p->wrong && get(p, i); }
    case 'a': return p->top >= 2 && p->stack[p->top - 1].value ? fill(p, p->top - 2, p->top - 1) : fail(p, "a value is missing");
    case 's': return p->top >= 3 && p->stack[p->top - 1].value && p->stack[p->top - 2].value ? fill(p, p->top - 3, p->top - 2) : fail(p, "a value is missing");
    case 'e': case 'u': case 0x90: return fill_from_mark(p);
    case 't': case 'l': case 0x91: return collect(p, -1, json_array());
    case 'd': return collect(p, -1, json_object());
    case 0x85: case 0x86: case 0x87: return collect(p, op - 0x84, json_array());
    case '0': json_decref(pop(p)); return !p->wrong;
    case 'I': case 'L': case 'F': case 'V': case 'S': case 'p': case 'g': return text_opcode(p, op);
    default: return refuse(p, op);
    }
}

static json_t *unpickle(struct pickle *p)
{
    while (p->at < p->bytes) {
        int op = p->data[p->at++];
        if (op == '.')
            return pop(p);
        if (!step(p, op))
            return NULL;
    }
    fail(p, "it ends in the middle");
    return NULL;
}

static bool sniff(const char *head, size_t bytes)
{
    const unsigned char *h = (const unsigned char *)head;
    return bytes >= 3 && h[0] == 0x80 && h[1] >= 2 && h[1] <= 5;
}

static bool read(struct model *m, const char *file, const char *data, size_t bytes, char *why, size_t why_bytes)
{
    struct pickle *p = calloc(1, sizeof *p);
    if (!p || !(p->memo = calloc(MEMO, sizeof *p->memo))) {
        free(p);
        snprintf(why, why_bytes, "there is no memory");
        return false;
    }
    p->data = (const unsigned char *)data;
    p->bytes = bytes;
    json_t *root = unpickle(p);
    bool good = root && flight_looks(root);
    if (good)
        flight_take(m, file, root);
    else
        snprintf(why, why_bytes, "%s", root ? "what is in it is no flight-recorder dump" : p->wrong ? p->wrong : "it is not whole");
    json_decref(root);
    drop_to(p, 0);
    for (size_t i = 0; i < MEMO; i++)
        json_decref(p->memo[i].value);
    free(p->memo);
    free(p);
    return good;
}

const struct reader reader_pickle = {.name = "a flight-recorder dump (pickle)", .sniff = sniff, .read = read};
