/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_split.c - nccl-tests' splits: processes are coloured by their number, ranks of one colour measure among themselves, all
 * groups at the same time; the table is that of rank 0's group. Read by perf_options.c, made by perf_launch.c once all have joined.
 */
#include "perf.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "output.h"

/* "8", "0x7", "0b11"; base 16 reads "7" and "0x7". */
static bool parse_value(const char *s, int base, int *value)
{
    char *end;
    while (isspace((unsigned char)*s))
        s++;
    if (base == 0 && strncasecmp(s, "0b", 2) == 0) {
        s += 2;
        base = 2;
    }
    if (!isxdigit((unsigned char)*s))
        return false;
    unsigned long v = strtoul(s, &end, base);
    *value = (int)v;
    return *end == 0 && v <= 0x7fffffff;
}

bool perf_split_parse(struct perf_options *o)
{
    static const struct { const char *word; char op; } ops[] = {{"AND", '&'}, {"&", '&'}, {"OR", '|'},  {"|", '|'},
                                                                {"MOD", '%'}, {"%", '%'}, {"DIV", '/'}, {"/", '/'}};
    const char *mask = getenv("NCCL_TESTS_SPLIT_MASK"), *split = getenv("NCCL_TESTS_SPLIT");
    o->split_op = 0;
    if (mask) { /* the older name wins, as there */
        o->split_op = '&';
        if (parse_value(mask, 16, &o->split_value))
            return true;
        out_error("perf", "NCCL_TESTS_SPLIT_MASK=\"%s\": legal is a hexadecimal number, such as 0x7", mask);
        return false;
    }
    if (!split)
        return true;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (strncasecmp(split, ops[i].word, strlen(ops[i].word)) == 0 &&
            parse_value(split + strlen(ops[i].word), 0, &o->split_value) &&
            (o->split_value > 0 || ops[i].op == '&' || ops[i].op == '|')) {
            o->split_op = ops[i].op;
            return true;
        }
    out_error("perf", "NCCL_TESTS_SPLIT=\"%s\": legal is AND, OR, MOD or DIV (or & | %% /) and a number, such as \"MOD 2\" or \"AND 0x7\"; "
                      "MOD and DIV want one above 0", split);
    return false;
}

static int color_of(const struct perf_options *o, int process)
{
    switch (o->split_op) {
    case '&': return process & o->split_value;
    case '|': return process | o->split_value;
    case '%': return process % o->split_value;
    case '/': return process / o->split_value;
    default: return 0;
    }
}

struct seat { int color; uno_id id; };

/* Everybody's colour, and from the first rank of each colour the id of its group. seats: world + mine entries. */
static uno_err exchange_seats(struct crew *c, struct seat *seats)
{
    struct seat *mine = seats + c->world;
    bool first = true;
    for (int i = 0; i < c->mine; i++)
        mine[i].color = c->color;
    uno_err err = perf_gather(c, mine, sizeof *mine, seats);
    for (int r = 0; r < c->place; r++)
        first = first && seats[r].color != c->color;
    if (err == UNO_OK && first)
        err = uno_get_id(&mine[0].id);
    uno_err end = perf_gather(c, mine, sizeof *mine, seats); /* also with an error: others take part */
    return err != UNO_OK ? err : end;
}

static uno_err join_group(struct crew *c, const uno_id *id)
{
    uno_config config = UNO_CONFIG_INIT;
    if (c->o->timeout_s > 0)
        config.timeout_s = c->o->timeout_s;
    config.name = "perf group";
    uno_err err = c->mine > 1 ? uno_group_start() : UNO_OK, end = UNO_OK;
    for (int i = 0; i < c->mine && err == UNO_OK; i++)
        err = uno_comm_init_rank(&c->comms[i], c->ranks, id, c->first + i, &config);
    if (c->mine > 1)
        end = uno_group_end();
    return err != UNO_OK ? err : end;
}

/* Who else has this colour, how many groups there are, and are they of one size? Returns the first rank of this colour. */
static int count_groups(struct crew *c, const struct seat *seats)
{
    int leader = -1;
    c->ranks = c->first = c->groups = 0;
    for (int r = 0; r < c->world; r++) {
        int before = 0, size = 0;
        for (int q = 0; q < c->world; q++) {
            before += q < r && seats[q].color == seats[r].color;
            size += seats[q].color == seats[r].color;
        }
        c->groups += before == 0;
        c->least = c->least == 0 || size < c->least ? size : c->least;
        if (seats[r].color != c->color)
            continue;
        leader = leader < 0 ? r : leader;
        c->first += r < c->place;
        c->ranks = size;
    }
    return leader;
}

uno_err perf_split(struct crew *c, int process)
{
    c->groups = 1;
    c->least = c->ranks;
    c->color = color_of(c->o, process);
    if (c->o->split_op == 0)
        return UNO_OK;
    struct seat *seats = calloc((size_t)c->world + (size_t)c->mine, sizeof *seats);
    uno_comm **comms = calloc((size_t)c->mine, sizeof(uno_comm *));
    uno_err err = seats && comms ? exchange_seats(c, seats) : UNO_ERR_MEMORY;
    if (err == UNO_OK) {
        c->least = 0;
        c->comms = comms;
        comms = NULL;
        err = join_group(c, &seats[count_groups(c, seats)].id);
    }
    free(comms);
    free(seats);
    return err;
}

void perf_split_end(struct crew *c)
{
    if (c->comms == c->all)
        return;
    for (int i = 0; i < c->mine; i++)
        if (c->comms[i])
            uno_comm_destroy(c->comms[i]);
    free(c->comms);
    c->comms = c->all;
}
