/* SPDX-License-Identifier: Apache-2.0 */
/* plan_text.c - the small things that readers and writers of plans share. */
#include "plan_text.h"

#include <string.h>

const char *const plan_buf_names[] = {"", "in", "out", "scratch"};

bool plan_coll_blocks(uno_coll coll)
{
    return coll == UNO_ALL_GATHER || coll == UNO_REDUCE_SCATTER || coll == UNO_ALL_TO_ALL || coll == UNO_GATHER ||
           coll == UNO_SCATTER;
}

void plan_set_name(struct plan *plan, const char *name)
{
    size_t i = 0;
    for (; name[i] && i + 1 < sizeof plan->name; i++)
        plan->name[i] = name[i] >= 0x20 && name[i] < 0x7f ? name[i] : '?';
    plan->name[i] = 0;
}

void plan_add_escaped(struct text *out, const char *s, bool xml)
{
    for (; *s; s++) {
        if (!xml)
            text_add(out, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
        else if (*s == '"' || *s == '&' || *s == '<' || *s == '>')
            text_add(out, "&#%d;", *s);
        else
            text_add(out, "%c", *s);
    }
}

uno_err plan_import_begin(struct plan *plan, const char *where)
{
    if (plan->coll >= UNO_ALL_GATHER_V)
        return err_set(UNO_ERR_PARSE, "%.200s: a plan is never for %s; the v forms use the plan of the plain collective", where,
                       coll_name(plan->coll));
    if (plan->nranks < 1 || plan->nranks > PLAN_MAX_RANKS)
        return err_set(UNO_ERR_PARSE, "%.200s: %d ranks; legal are 1 to %d", where, plan->nranks, PLAN_MAX_RANKS);
    int blocks = plan_coll_blocks(plan->coll) ? plan->nranks : 1;
    if (plan->parts < 1 || plan->parts > PLAN_MAX_CHUNKS / blocks)
        return err_set(UNO_ERR_PARSE, "%.200s: %d chunks a block; legal are 1 to %d with %d blocks", where, plan->parts,
                       PLAN_MAX_CHUNKS / blocks, blocks);
    if (plan->root < 0 || plan->root >= plan->nranks)
        return err_set(UNO_ERR_PARSE, "%.200s: root %d is outside 0 to %d", where, plan->root, plan->nranks - 1);
    plan->needs_reduce = coll_reduces(plan->coll) || plan->coll == UNO_BARRIER;
    plan->progs = mem_array((size_t)plan->nranks, sizeof *plan->progs);
    if (plan->progs && !plan->host_of)
        plan->host_of = mem_array((size_t)plan->nranks, sizeof *plan->host_of);
    if (!plan->progs || !plan->host_of)
        return UNO_ERR_MEMORY;
    for (int r = 0; r < plan->nranks; r++)
        plan->progs[r].rank = r;
    return UNO_OK;
}
