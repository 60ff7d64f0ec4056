/* SPDX-License-Identifier: Apache-2.0 */
/* planner_places.c - hosts and their ranks as the generator "two_level" sees them. */
#include "planner_places.h"

#include <stdlib.h>

void places_free(struct places *p) { free(p->start); }

uno_err places_make(struct places *p, const struct plan *plan, int rank)
{
    int n = plan->nranks, hosts = 0;
    for (int r = 0; r < n; r++)
        hosts = MAX(hosts, plan->host_of[r] + 1);
    *p = (struct places){.n = n, .hosts = hosts, .r = rank, .host = plan->host_of[rank]};
    p->start = mem_array((size_t)hosts + 1 + 2 * (size_t)n, sizeof *p->start);
    if (!p->start)
        return UNO_ERR_MEMORY;
    p->member = p->start + hosts + 1;
    p->nth = p->member + n;
    for (int r = 0; r < n; r++)
        p->nth[r] = p->start[plan->host_of[r] + 1]++; /* sizes first */
    p->least = n;
    for (int h = 0; h < hosts; h++) {
        p->least = MIN(p->least, p->start[h + 1]);
        p->start[h + 1] += p->start[h];
    }
    for (int r = 0; r < n; r++)
        p->member[p->start[plan->host_of[r]] + p->nth[r]] = r;
    p->local = p->nth[rank];
    p->size = host_size(p, p->host);
    return UNO_OK;
}

int places_send_inside(struct places *p)
{
    if (p->size == 1)
        return -1;
    return p->size > 2 ? build_send_group(&p->b) : build_send_to(&p->b, rank_at(p, p->host, 1 - p->local), 1);
}

int places_recv_inside(struct places *p, int from)
{
    int peer = rank_at(p, p->host, from);
    return p->size > 2 ? build_recv_group(&p->b, peer) : build_recv_from(&p->b, peer, 1);
}

void places_operands_inside(struct places *p)
{
    for (int l = 0; l < p->size; l++)
        if (l != p->local)
            build_on_recv(&p->b, build_recv_from(&p->b, rank_at(p, p->host, l), 0));
    build_self(&p->b, p->local);
}

void places_operands_between(struct places *p, int local)
{
    for (int h = 0; h < p->hosts; h++)
        if (h != p->host)
            build_on_recv(&p->b, build_recv_from(&p->b, rank_at(p, h, local % host_size(p, h)), 0));
    build_self(&p->b, p->host);
}
