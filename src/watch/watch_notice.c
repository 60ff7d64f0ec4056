/* SPDX-License-Identifier: Apache-2.0 */
/* watch_notice.c - see watch_notice.h. A notice is a sequence lock with its number as the sequence, as an event in the ledger. */
#include "watch/watch_notice.h"

#include <string.h>

void notice_post(struct steward_page *s, enum notice_kind kind, int host, uint64_t comm_id, uint32_t identity, const char *text)
{
    uint32_t number = atomic_load_explicit(&s->notices, memory_order_relaxed) + 1;
    struct notice *n = &s->notice[number % STEWARD_NOTICES];
    atomic_store_explicit(&n->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* 0 before the fields; pairs with the second look in notice_read */
    n->kind = kind;
    n->host = host;
    n->comm_id = comm_id;
    n->identity = identity;
    snprintf(n->text, sizeof n->text, "%s", text);
    atomic_store_explicit(&n->number, number, memory_order_release);
    atomic_store_explicit(&s->notices, number, memory_order_release); /* pairs with the acquire of who looks for news */
}

bool notice_read(const struct steward_page *s, uint32_t number, struct notice *copy)
{
    const struct notice *n = &s->notice[number % STEWARD_NOTICES];
    if (atomic_load_explicit(&n->number, memory_order_acquire) != number)
        return false;
    copy->kind = n->kind;
    copy->host = n->host;
    copy->comm_id = n->comm_id;
    copy->identity = n->identity;
    memcpy(copy->text, n->text, sizeof copy->text);
    copy->text[sizeof copy->text - 1] = 0;
    atomic_thread_fence(memory_order_acquire); /* the fields before the second look; pairs with the fence in notice_post */
    return atomic_load_explicit(&n->number, memory_order_relaxed) == number;
}
