/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_json_read.c - our JSON -> plan; the format is docs/plan-format.md. Strict: a key that nothing reads is an error.
 * Called by plan_file.c and tests. Sentences name rank, lane and step; the line where the JSON itself is broken.
 */
#include "plan_text.h"

#include <jansson.h>
#include <string.h>

struct reader {
    const char *where;
    struct plan *plan;
    struct plan_build build;
    int rank, lane, step; /* where we are; -1 = not inside */
    long steps_total;
};

static uno_err bad(const struct reader *r, const char *fmt, ...) UNO_PRINTF(2, 3);
static uno_err bad(const struct reader *r, const char *fmt, ...)
{
    char what[512], place[96] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (r->step >= 0)
        snprintf(place, sizeof place, "rank %d, lane %d, step %d: ", r->rank, r->lane, r->step);
    else if (r->lane >= 0)
        snprintf(place, sizeof place, "rank %d, lane %d: ", r->rank, r->lane);
    else if (r->rank >= 0)
        snprintf(place, sizeof place, "rank %d: ", r->rank);
    return err_set(UNO_ERR_PARSE, "%.200s: %s%s", r->where, place, what);
}

/* ---- values ---------------------------------------------------------------------------------- */

static uno_err check_keys(const struct reader *r, const json_t *object, const char *const *legal, size_t count)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        size_t i = 0;
        while (i < count && strcmp(key, legal[i]) != 0)
            i++;
        if (i == count) {
            const char *near = text_nearest(key, legal, count);
            return bad(r, "unknown key \"%.60s\"%s%s%s", key, near ? "; did you mean \"" : "", near ? near : "",
                       near ? "\"?" : "");
        }
    }
    return UNO_OK;
}

static uno_err int_value(const struct reader *r, const json_t *v, const char *what, int64_t min, int64_t max, int *value)
{
    if (!json_is_integer(v))
        return bad(r, "%s must be a whole number", what);
    json_int_t i = json_integer_value(v);
    if (i < min || i > max)
        return bad(r, "%s is %lld; legal are %lld to %lld", what, (long long)i, (long long)min, (long long)max);
    *value = (int)i;
    return UNO_OK;
}

/* An optional member; keeps *value when it is absent. */
static uno_err int_member(const struct reader *r, const json_t *object, const char *key, int64_t min, int64_t max, int *value)
{
    const json_t *v = json_object_get(object, key);
    return v ? int_value(r, v, key, min, max, value) : UNO_OK;
}

/* An optional member; *value is NULL when it is absent. Lives as long as the object. */
static uno_err text_member(const struct reader *r, const json_t *object, const char *key, const char **value)
{
    const json_t *v = json_object_get(object, key);
    *value = json_string_value(v);
    return v && !*value ? bad(r, "%s must be a text in quotes", key) : UNO_OK;
}

static uno_err bool_member(const struct reader *r, const json_t *object, const char *key, bool *value)
{
    const json_t *v = json_object_get(object, key);
    if (v && !json_is_boolean(v))
        return bad(r, "%s must be true or false", key);
    if (v)
        *value = json_is_true(v);
    return UNO_OK;
}

/* An array of two: first and second element. */
static uno_err pair_value(const struct reader *r, const json_t *v, const char *what, const char *form, const json_t **a,
                          const json_t **b)
{
    if (!json_is_array(v) || json_array_size(v) != 2)
        return bad(r, "%s must be %s", what, form);
    *a = json_array_get(v, 0);
    *b = json_array_get(v, 1);
    return UNO_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static uno_err read_op(const struct reader *r, const json_t *step, int *op)
{
    const char *name = json_string_value(json_object_get(step, "op"));
    if (!name)
        return bad(r, "a step needs an \"op\"");
    for (*op = 0; *op < PLAN_OP_COUNT; ++*op)
        if (strcmp(name, plan_ops[*op].name) == 0)
            return UNO_OK;
    struct text legal = {0};
    for (int i = 0; i < PLAN_OP_COUNT; i++)
        text_add(&legal, " %s", plan_ops[i].name);
    uno_err err = bad(r, "unknown op \"%.40s\"; legal are%s", name, legal.s ? legal.s : "");
    text_free(&legal);
    return err;
}

/* ["in" | "out" | "scratch", chunk]; present exactly when the opcode uses it. */
static uno_err read_operand(const struct reader *r, const json_t *step, const char *key, bool used, const char *op,
                            int64_t shift, enum plan_buf *buf, int *chunk)
{
    const json_t *v = json_object_get(step, key), *name = NULL, *number = NULL;
    *buf = PLAN_NONE;
    *chunk = 0;
    if (!v != !used)
        return bad(r, used ? "%s needs \"%s\"" : "%s has no use for \"%s\"", op, key);
    if (!v)
        return UNO_OK;
    TRY(pair_value(r, v, key, "[\"in\" or \"out\" or \"scratch\", chunk]", &name, &number));
    for (int b = PLAN_IN; b <= PLAN_SCRATCH; b++)
        if (json_is_string(name) && strcmp(json_string_value(name), plan_buf_names[b]) == 0)
            *buf = (enum plan_buf)b;
    if (*buf == PLAN_NONE)
        return bad(r, "unknown buffer \"%.40s\" in %s; legal are in, out, scratch",
                   json_is_string(name) ? json_string_value(name) : "?", key);
    int base = 0;
    TRY(int_value(r, number, key, 0, PLAN_MAX_CHUNKS - 1, &base));
    if (base + shift < 0 || base + shift >= PLAN_MAX_CHUNKS)
        return bad(r, "repeated, %s reaches chunk %lld; legal are 0 to %d", key, (long long)(base + shift), PLAN_MAX_CHUNKS - 1);
    *chunk = (int)(base + shift);
    return UNO_OK;
}

/* [peer, channel] or [peer, "group"]. */
static uno_err read_source(struct reader *r, const json_t *v, int *conn)
{
    const json_t *peer_value = NULL, *channel_value = NULL;
    int peer = 0, channel = 0;
    TRY(pair_value(r, v, "an element of recv", "[rank, channel] or [rank, \"group\"]", &peer_value, &channel_value));
    TRY(int_value(r, peer_value, "recv rank", 0, r->plan->nranks - 1, &peer));
    if (json_is_string(channel_value) && strcmp(json_string_value(channel_value), "group") == 0) {
        *conn = build_recv_group(&r->build, peer);
        return UNO_OK;
    }
    TRY(int_value(r, channel_value, "recv channel", 0, PLAN_MAX_CHANNELS - 1, &channel));
    r->plan->channels = MAX(r->plan->channels, channel + 1);
    *conn = build_recv_from(&r->build, peer, channel);
    return UNO_OK;
}

static uno_err read_recv(struct reader *r, const json_t *step, const struct plan_op_info *op)
{
    const json_t *list = json_object_get(step, "recv");
    size_t n = json_array_size(list);
    if (!list != !op->receives)
        return bad(r, op->receives ? "%s needs \"recv\"" : "%s has no use for \"recv\"", op->name);
    if (!list)
        return UNO_OK;
    if (!json_is_array(list) || n == 0 || (n > 1 && !op->reduces))
        return bad(r, op->reduces ? "recv must be a list of one or more connections" : "recv must be a list of one connection");
    for (size_t i = 0; i < n; i++) {
        int conn = -1;
        TRY(read_source(r, json_array_get(list, i), &conn));
        build_on_recv(&r->build, conn);
    }
    int self = 0;
    if (json_object_get(step, "self") && !op->reduces)
        return bad(r, "%s has no use for \"self\"", op->name);
    TRY(int_member(r, step, "self", 0, (int64_t)n, &self));
    build_self(&r->build, self);
    return UNO_OK;
}

static uno_err read_send(struct reader *r, const json_t *step, const struct plan_op_info *op)
{
    const json_t *v = json_object_get(step, "send"), *peer_value = NULL, *channel_value = NULL;
    int peer = 0, channel = 0;
    if (!v != !op->sends)
        return bad(r, op->sends ? "%s needs \"send\"" : "%s has no use for \"send\"", op->name);
    if (!v)
        return UNO_OK;
    if (json_is_string(v) && strcmp(json_string_value(v), "group") == 0) {
        build_on_send(&r->build, build_send_group(&r->build));
        return UNO_OK;
    }
    TRY(pair_value(r, v, "send", "[rank, channel] or \"group\"", &peer_value, &channel_value));
    TRY(int_value(r, peer_value, "send rank", 0, r->plan->nranks - 1, &peer));
    TRY(int_value(r, channel_value, "send channel", 0, PLAN_MAX_CHANNELS - 1, &channel));
    r->plan->channels = MAX(r->plan->channels, channel + 1);
    build_on_send(&r->build, build_send_to(&r->build, peer, channel));
    return UNO_OK;
}

/* Whether they exist is checked when all lanes are there. */
static uno_err read_waits(struct reader *r, const json_t *step, int64_t step_shift)
{
    const json_t *list = json_object_get(step, "wait");
    if (list && !json_is_array(list))
        return bad(r, "wait must be a list of [lane, step]");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *lane_value = NULL, *step_value = NULL;
        int lane = 0, number = 0;
        TRY(pair_value(r, json_array_get(list, i), "an element of wait", "[lane, step]", &lane_value, &step_value));
        TRY(int_value(r, lane_value, "wait lane", 0, PLAN_MAX_LANES - 1, &lane));
        TRY(int_value(r, step_value, "wait step", 0, PLAN_MAX_STEPS - 1, &number));
        if (number + step_shift < 0 || number + step_shift >= PLAN_MAX_STEPS)
            return bad(r, "repeated, a wait reaches step %lld", (long long)(number + step_shift));
        build_wait(&r->build, lane, (int)(number + step_shift));
    }
    return UNO_OK;
}

static uno_err read_step(struct reader *r, const json_t *step, int64_t chunk_shift, int64_t step_shift)
{
    static const char *const keys[] = {"op", "src", "dst", "count", "shape", "recv", "self", "send", "wait"};
    if (!json_is_object(step))
        return bad(r, "a step must be an object");
    TRY(check_keys(r, step, keys, ARRAY_LEN(keys)));
    if (++r->steps_total > PLAN_MAX_STEPS)
        return bad(r, "more than %d steps in all", PLAN_MAX_STEPS);
    int op = PLAN_NOP, src = 0, dst = 0, count = 1, shape = -1;
    enum plan_buf src_buf = PLAN_NONE, dst_buf = PLAN_NONE;
    TRY(read_op(r, step, &op));
    const struct plan_op_info *info = &plan_ops[op];
    TRY(read_operand(r, step, "src", info->reads_src, info->name, chunk_shift, &src_buf, &src));
    TRY(read_operand(r, step, "dst", info->reads_dst || info->writes_dst, info->name, chunk_shift, &dst_buf, &dst));
    TRY(int_member(r, step, "count", 1, op == PLAN_NOP ? 1 : PLAN_MAX_CHUNKS, &count));
    build_step(&r->build, (enum plan_op)op, src_buf, src, dst_buf, dst, count);
    TRY(int_member(r, step, "shape", 0, PLAN_MAX_CHUNKS - 1, &shape));
    if (shape >= 0 && shape + chunk_shift >= 0 && shape + chunk_shift < PLAN_MAX_CHUNKS)
        build_shape(&r->build, (int)(shape + chunk_shift));
    TRY(read_recv(r, step, info));
    TRY(read_send(r, step, info));
    TRY(read_waits(r, step, step_shift));
    r->step++;
    return r->build.err;
}

/* ---- lanes and ranks ---------------------------------------------------------------------------- */

static uno_err read_items(struct reader *r, const json_t *items, int depth, int64_t chunk_shift, int64_t step_shift);

/* Sugar: {"repeat": n, "stride": s, "wait_stride": w, "steps": [...]}; round i adds i*s to chunks and shapes, i*w to waits. */
static uno_err read_repeat(struct reader *r, const json_t *item, int depth, int64_t chunk_shift, int64_t step_shift)
{
    static const char *const keys[] = {"repeat", "stride", "wait_stride", "steps"};
    int times = 0, stride = 0, wait_stride = 0;
    const json_t *steps = json_object_get(item, "steps");
    TRY(check_keys(r, item, keys, ARRAY_LEN(keys)));
    TRY(int_member(r, item, "repeat", 0, PLAN_MAX_STEPS, &times));
    TRY(int_member(r, item, "stride", -PLAN_MAX_CHUNKS, PLAN_MAX_CHUNKS, &stride));
    TRY(int_member(r, item, "wait_stride", 0, PLAN_MAX_STEPS, &wait_stride));
    if (!json_is_array(steps))
        return bad(r, "a repeat needs \"steps\", a list");
    if (json_array_size(steps) == 0)
        return bad(r, "a repeat of no steps");
    if (depth == 8)
        return bad(r, "repeats are nested more than 8 deep");
    for (int i = 0; i < times; i++) {
        if (++r->steps_total > PLAN_MAX_STEPS) /* rounds count too: nested repeats must not run for ever */
            return bad(r, "more than %d steps in all", PLAN_MAX_STEPS);
        TRY(read_items(r, steps, depth + 1, chunk_shift + (int64_t)i * stride, step_shift + (int64_t)i * wait_stride));
    }
    return UNO_OK;
}

static uno_err read_items(struct reader *r, const json_t *items, int depth, int64_t chunk_shift, int64_t step_shift)
{
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        bool repeat = json_object_get(item, "repeat") != NULL;
        TRY(repeat ? read_repeat(r, item, depth, chunk_shift, step_shift) : read_step(r, item, chunk_shift, step_shift));
    }
    return UNO_OK;
}

static uno_err check_waits(struct reader *r, const struct plan_prog *p)
{
    for (r->lane = 0; r->lane < p->nlanes; r->lane++)
        for (r->step = 0; r->step < p->lanes[r->lane].nsteps; r->step++) {
            const struct plan_step *s = &p->steps[p->lanes[r->lane].first + r->step];
            for (int i = s->dep; i < s->dep + s->ndep; i++) {
                const struct plan_dep *d = &p->deps[i];
                if (d->lane >= p->nlanes)
                    return bad(r, "waits for lane %d, but the rank has %d lanes", d->lane, p->nlanes);
                if (d->step >= p->lanes[d->lane].nsteps)
                    return bad(r, "waits for step %d of lane %d, which has %d steps", d->step, d->lane,
                               p->lanes[d->lane].nsteps);
            }
        }
    r->lane = r->step = -1;
    return UNO_OK;
}

static uno_err read_program(struct reader *r, const json_t *object)
{
    static const char *const keys[] = {"rank", "scratch", "lanes"};
    int scratch = 0;
    const json_t *lanes = json_object_get(object, "lanes");
    TRY(check_keys(r, object, keys, ARRAY_LEN(keys)));
    TRY(int_member(r, object, "scratch", 0, PLAN_MAX_CHUNKS, &scratch));
    if (!json_is_array(lanes))
        return bad(r, "a program needs \"lanes\", a list of lists of steps");
    if (json_array_size(lanes) > PLAN_MAX_LANES)
        return bad(r, "%zu lanes; at most %d are legal", json_array_size(lanes), PLAN_MAX_LANES);
    build_begin(&r->build, r->plan, r->rank, &r->plan->progs[r->rank]);
    for (r->lane = 0; r->lane < (int)json_array_size(lanes); r->lane++) {
        const json_t *items = json_array_get(lanes, (size_t)r->lane);
        if (!json_is_array(items))
            return bad(r, "a lane must be a list of steps");
        build_lane(&r->build);
        r->step = 0;
        TRY(read_items(r, items, 0, 0, 0));
        r->step = -1;
    }
    r->lane = -1;
    TRY(build_end(&r->build, scratch));
    return check_waits(r, &r->plan->progs[r->rank]);
}

static uno_err read_programs(struct reader *r, const json_t *programs)
{
    if (!json_is_array(programs) || json_array_size(programs) != (size_t)r->plan->nranks)
        return bad(r, "\"programs\" must be a list of %d programs, one a rank", r->plan->nranks);
    for (int i = 0; i < r->plan->nranks; i++) {
        const json_t *object = json_array_get(programs, (size_t)i);
        int rank = -1;
        TRY(int_member(r, object, "rank", 0, r->plan->nranks - 1, &rank));
        if (rank != i)
            return bad(r, "program %d must say \"rank\": %d", i, i);
        r->rank = i;
        TRY(read_program(r, object));
        r->rank = -1;
    }
    return UNO_OK;
}

/* ---- the plan -------------------------------------------------------------------------------------- */

static uno_err read_hosts(struct reader *r, const json_t *hosts)
{
    int n = r->plan->nranks;
    if (!hosts)
        return UNO_OK;
    if (!json_is_array(hosts) || json_array_size(hosts) != (size_t)n)
        return bad(r, "\"hosts\" must be a list of %d host numbers, one a rank", n);
    for (int i = 0; i < n; i++)
        TRY(int_value(r, json_array_get(hosts, (size_t)i), "a host number", 0, n - 1, &r->plan->host_of[i]));
    return UNO_OK;
}

static uno_err read_head(struct reader *r, const json_t *root)
{
    static const char *const keys[] = {"unisono_plan", "name", "collective", "ranks", "parts", "channels", "root", "in_place",
                                       "out_of_place", "slots", "hosts", "programs"};
    struct plan *plan = r->plan;
    int version = 0;
    if (!json_is_object(root))
        return bad(r, "a plan must be an object");
    TRY(int_member(r, root, "unisono_plan", 1, 1, &version));
    if (version != 1)
        return bad(r, "this is not a plan: \"unisono_plan\": 1 is missing");
    TRY(check_keys(r, root, keys, ARRAY_LEN(keys)));
    const char *name, *coll;
    TRY(text_member(r, root, "name", &name));
    TRY(text_member(r, root, "collective", &coll));
    if (!coll)
        return bad(r, "\"collective\" is missing");
    if (coll_parse(coll, &plan->coll) != UNO_OK)
        return err_wrap(UNO_ERR_PARSE, "%.200s", r->where);
    if (!json_object_get(root, "ranks"))
        return bad(r, "\"ranks\" is missing");
    plan_set_name(plan, name ? name : "unnamed");
    plan->in_place_ok = plan->out_of_place_ok = true;
    plan->k_claimed = 2;
    plan->channels = 1;
    TRY(int_member(r, root, "ranks", 1, PLAN_MAX_RANKS, &plan->nranks));
    TRY(int_member(r, root, "parts", 1, PLAN_MAX_CHUNKS, &plan->parts));
    TRY(int_member(r, root, "channels", 1, PLAN_MAX_CHANNELS, &plan->channels));
    TRY(int_member(r, root, "root", 0, PLAN_MAX_RANKS - 1, &plan->root));
    TRY(int_member(r, root, "slots", 1, 1 << 16, &plan->k_claimed));
    TRY(bool_member(r, root, "in_place", &plan->in_place_ok));
    TRY(bool_member(r, root, "out_of_place", &plan->out_of_place_ok));
    if (!plan->in_place_ok && !plan->out_of_place_ok)
        return bad(r, "in_place and out_of_place are both false: the plan claims nothing");
    TRY(plan_import_begin(plan, r->where));
    return read_hosts(r, json_object_get(root, "hosts"));
}

uno_err plan_from_json(const char *text, size_t bytes, const char *where, struct plan **plan)
{
    json_error_t at;
    *plan = NULL;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    if (!root)
        return err_set(UNO_ERR_PARSE, "%.200s line %d: %s", where, at.line, at.text);
    struct reader r = {.where = where, .plan = mem_zalloc(sizeof *r.plan), .rank = -1, .lane = -1, .step = -1};
    uno_err err = r.plan ? read_head(&r, root) : UNO_ERR_MEMORY;
    if (err == UNO_OK)
        err = read_programs(&r, json_object_get(root, "programs"));
    json_decref(root);
    if (err != UNO_OK) {
        plan_free(r.plan);
        return err;
    }
    r.plan->id = hash128(text, bytes, 0);
    *plan = r.plan;
    return UNO_OK;
}
