/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_say_paths.c - the sentences of paths between hosts, and of operations that all have called and that do not end.
 */
#include "verdict/verdict_inner.h"

#include <stdlib.h>
#include <string.h>

/* ---- paths ---------------------------------------------------------------------------------------------------------------- */

static const char *host_name(const struct judge *j, int host)
{
    for (int r = 0; r < j->size; r++)
        if (j->f->ranks[r].host_index == host && j->f->ranks[r].host[0])
            return j->f->ranks[r].host;
    return NULL;
}

static void say_end(struct out *o, const struct judge *j, int host, const char *ifname, const char *addr)
{
    const char *name = host_name(j, host);
    if (name)
        say(o, "%s", name);
    else
        say(o, "host %d", host);
    if (ifname[0] && addr[0])
        say(o, " (%s, %s)", ifname, addr);
    else if (ifname[0] || addr[0])
        say(o, " (%s%s)", ifname, addr);
}

void say_pair(struct out *o, const struct judge *j, const struct verdict_link *l)
{
    say_end(o, j, l->from_host, l->from_if, l->from_addr);
    say(o, " and ");
    say_end(o, j, l->to_host, l->to_if, l->to_addr);
}

static int ranks_on(const struct judge *j, int host, int32_t *list)
{
    int n = 0;
    for (int r = 0; r < j->size; r++)
        if (j->f->ranks[r].host_index == host)
            list[n++] = r;
    return n;
}

static void say_ranks_on(struct out *o, const struct judge *j, int host)
{
    int32_t *list = mem_array((size_t)j->size, sizeof *list);
    int n = list ? ranks_on(j, host, list) : 0;
    if (n > 0)
        say_ranks(o, j, list, n);
    free(list);
}

void say_unreachable(struct out *o, struct judge *j, const struct fault *x)
{
    static const char *const how[] = {"is well", "nothing comes back", "connections are reset", "connections are refused",
                                      "there is no route", "nobody answers"};
    const struct verdict_link *l = x->link;
    say(o, "no path between ");
    say_pair(o, j, l);
    uint64_t age = age_of(j, x->since_ns);
    if (age) {
        say(o, " for ");
        say_age(o, age);
    }
    say(o, ": %s", how[MIN(l->state, (int)ARRAY_LEN(how) - 1)]);
    if (l->from_if_down)
        say(o, ", interface %s is down", l->from_if[0] ? l->from_if : "there");
    say(o, "; ");
    say_ranks_on(o, j, l->from_host);
    say(o, " cannot reach ");
    say_ranks_on(o, j, l->to_host);
    say(o, "; no process is known to have died");
    add_victims(o, j, x);
}

static void say_rate(struct out *o, uint64_t bps)
{
    bool giga = bps >= 1000000000u, mega = bps >= 1000000u;
    say(o, giga ? "%.1f GB/s" : mega ? "%.1f MB/s" : "%.1f KB/s", (double)bps / (giga ? 1e9 : mega ? 1e6 : 1e3));
}

void say_slow_link(struct out *o, struct judge *j, const struct fault *x)
{
    const struct verdict_link *l = x->link;
    uint64_t moves_bps = x->holds_up ? l->behind_bps : l->measured_bps;
    if (!x->holds_up) {
        say_operation(o, j, x->group, x->number);
        say(o, " runs for ");
        say_age(o, age_of(j, x->since_ns));
        say(o, ": ");
    }
    say(o, "the path between ");
    say_pair(o, j, l);
    say(o, x->holds_up ? " holds the others up: it moves " : " moves ");
    say_rate(o, moves_bps);
    if (x->holds_up) {
        say(o, " for ");
        say_age(o, l->behind_ns);
        say(o, " though more is ready to be sent");
    }
    if (l->expected_bps) {
        say(o, ", expected ");
        say_rate(o, l->expected_bps);
        say(o, " (%.0f %% of it)", 100.0 * (double)moves_bps / (double)l->expected_bps);
    }
    uint64_t best = 0;
    for (int r = 0; r < j->size; r++)
        for (uint32_t i = 0; i < j->f->ranks[r].nlinks; i++)
            if (&j->f->ranks[r].links[i] != l)
                best = MAX(best, j->f->ranks[r].links[i].measured_bps);
    if (best) {
        say(o, "; other paths move up to ");
        say_rate(o, best);
    }
    say(o, "; ");
    say_ranks_on(o, j, l->from_host);
    say(o, " and ");
    say_ranks_on(o, j, l->to_host);
    say(o, " use it, all others wait for them");
}

/* ---- all inside ---------------------------------------------------------------------------------------------------------- */

static void say_moved(struct out *o, const struct group *g)
{
    uint64_t moved = 0, total = 0;
    char a[32], b[32];
    for (uint32_t i = 0; i < g->nseats; i++) {
        const struct verdict_event *e = event_at(g->seats[i].comm, g->number);
        if (e && e->bytes_total) {
            moved += e->bytes_moved;
            total += e->bytes_total;
        }
    }
    if (total)
        say(o, ", %s of %s moved", text_bytes(a, sizeof a, moved), text_bytes(b, sizeof b, total));
}

/* Ranks in it that note no wait: the others wait for them, if for anybody. */
static void say_at_work(struct out *o, const struct judge *j, const struct group *g)
{
    int32_t *list = mem_array((size_t)j->size, sizeof *list);
    int n = 0;
    for (uint32_t i = 0; list && i < g->nseats; i++) {
        const struct verdict_event *e = event_at(g->seats[i].comm, g->number);
        if (e && e->state == VERDICT_RUNNING && e->wait_since_ns == 0)
            list[n++] = g->seats[i].rank;
    }
    if (n > 0 && (uint32_t)n < g->nseats) {
        say(o, "; ");
        say_ranks(o, j, list, n);
        say(o, n == 1 ? " works in it, the others wait" : " work in it, the others wait");
    }
    free(list);
}

void say_slow(struct out *o, struct judge *j, const struct fault *x)
{
    bool moves = age_of(j, x->group->moved_ns) < j->stall_ns && x->group->moved_ns;
    say_operation(o, j, x->group, x->number);
    say(o, " runs for ");
    say_age(o, age_of(j, x->since_ns));
    say_moved(o, x->group);
    say(o, ": all %d ranks have called it%s", x->group->size, moves ? " and it moves on" : "");
    say_at_work(o, j, x->group);
}

void say_ours(struct out *o, struct judge *j, const struct fault *x)
{
    say_operation(o, j, x->group, x->number);
    say(o, " is stuck for ");
    say_age(o, age_of(j, x->group->moved_ns));
    say_moved(o, x->group);
    say(o, ": all %d ranks have made the same call, all processes run and all paths work, yet nothing moves", x->group->size);
    for (uint32_t i = 0; i < x->group->nseats; i++) {
        const struct verdict_event *e = running(x->group->seats[i].comm);
        if (!e || e->waits_for < 0)
            continue;
        say(o, "; ");
        say_rank(o, j, x->group->seats[i].rank);
        say(o, " waits for ");
        say_rank(o, j, member_of(x->group, e->waits_for));
        if (e->step >= 0)
            say(o, " in step %d, tile %u", e->step, e->tile);
        break;
    }
    say(o, "; this is a fault of the library");
}
