/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c - allocation that tests can let fail, and the fault points behind it. */
#include "base.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One armed point at a time is enough for tests. left > 0: calls left until the failing one. Other threads may pass points meanwhile. */
enum { NOBODY, EVERYBODY, ONE_THREAD };
static struct {
    _Atomic char name[32];
    _Atomic long left;
    _Atomic int armed;
} fault;
static _Thread_local bool mine; /* ONE_THREAD: this one */

static void arm(const char *name, long nth, int whom)
{
    atomic_store(&fault.armed, NOBODY);
    size_t len = name ? strnlen(name, sizeof fault.name - 1) : 0;
    for (size_t i = 0; i < sizeof fault.name; i++)
        atomic_store_explicit(&fault.name[i], i < len ? name[i] : '\0', memory_order_relaxed);
    atomic_store(&fault.left, nth);
    mine = nth > 0 && whom == ONE_THREAD;
    atomic_store(&fault.armed, nth > 0 ? whom : NOBODY);
}

void fault_arm(const char *name, long nth)
{
    arm(name, nth, EVERYBODY);
}

void fault_arm_here(const char *name, long nth)
{
    arm(name, nth, ONE_THREAD);
}

static bool is_named(const char *name)
{
    size_t i = 0;
    while (name[i] && atomic_load_explicit(&fault.name[i], memory_order_relaxed) == name[i])
        i++; /* its last character is always 0 */
    return atomic_load_explicit(&fault.name[i], memory_order_relaxed) == name[i];
}

bool fault_hit(const char *name)
{
    int armed = atomic_load_explicit(&fault.armed, memory_order_relaxed);
    if (__builtin_expect(armed == NOBODY, 1) || (armed == ONE_THREAD && !mine))
        return false;
    return is_named(name) && atomic_fetch_sub(&fault.left, 1) == 1;
}

long fault_value(const char *name)
{
    return atomic_load(&fault.armed) && is_named(name) ? atomic_load(&fault.left) : 0;
}

static void *or_say(void *p, size_t bytes)
{
    if (!p)
        err_set(UNO_ERR_MEMORY, "no memory for %zu bytes", bytes);
    return p;
}

void *mem_alloc(size_t bytes)
{
    return or_say(fault_hit("alloc") ? NULL : malloc(bytes ? bytes : 1), bytes);
}

void *mem_zalloc(size_t bytes)
{
    return or_say(fault_hit("alloc") ? NULL : calloc(1, bytes ? bytes : 1), bytes);
}

void *mem_array(size_t count, size_t each_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, each_bytes, &bytes)) {
        err_set(UNO_ERR_MEMORY, "%zu elements of %zu bytes are more than memory can hold", count, each_bytes);
        return NULL;
    }
    return mem_zalloc(bytes);
}

uno_err mem_grow(void *array_ptr, size_t *cap, size_t need, size_t each_bytes)
{
    if (need <= *cap)
        return UNO_OK;
    size_t fresh = *cap ? *cap : 8, bytes;
    while (fresh < need)
        fresh = fresh > SIZE_MAX / 2 ? need : fresh * 2;
    void *old, *p = NULL;
    memcpy(&old, array_ptr, sizeof old);
    if (!__builtin_mul_overflow(fresh, each_bytes, &bytes) && !fault_hit("alloc"))
        p = realloc(old, bytes);
    if (!p)
        return err_set(UNO_ERR_MEMORY, "no memory for %zu elements of %zu bytes", need, each_bytes);
    memcpy(array_ptr, &p, sizeof p);
    *cap = fresh;
    return UNO_OK;
}

size_t mem_page(void)
{
    long asked = fault_value("page");
    return (size_t)(asked > 0 ? asked : sysconf(_SC_PAGESIZE));
}
