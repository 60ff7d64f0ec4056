/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_xml_read.c - MSCCL's XML -> plan, with the semantics of docs/plan-format.md. A thread block is a lane, its
 * (send | recv, chan) are its connections, a step keeps its number. Elements are read as they come (expat); nothing nests deeper
 * than a step and no document type is accepted, so no input can grow. Every sentence names the line.
 */
#include "plan_text.h"

#include <expat.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { AT_TOP, AT_ALGO, AT_GPU, AT_TB, AT_STEP };
static const char *const level_names[] = {"algo", "gpu", "tb", "step"};

struct step_note { /* what a step of the current gpu says beside the plan's own fields */
    unsigned long line;
    bool has_dependents; /* hasdep */
};

struct reader {
    const char *where;
    XML_Parser parser;
    struct plan *plan;
    struct plan_build build;
    struct plan_prog *prog;      /* of the current gpu */
    bool *seen;                  /* ranks that had a gpu element */
    int level;
    int tb, send, recv, channel; /* of the current thread block */
    int scratch;
    int *lane_of;                /* by tb id; -1 = none */
    struct step_note *notes;     /* by step of the current gpu */
    size_t cap_lane_of, cap_notes;
    int tb_ids;
    long steps_total;
    uno_err err;
};

/* Newer versions of expat call it deprecated and have nothing else that older ones know. */
static unsigned long line_of(const struct reader *r)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return (unsigned long)XML_GetCurrentLineNumber(r->parser);
#pragma GCC diagnostic pop
}

static void bad_at(struct reader *r, unsigned long line, const char *fmt, ...) UNO_PRINTF(3, 4);
static void bad_at(struct reader *r, unsigned long line, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    if (r->err != UNO_OK)
        return; /* the first cause counts */
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    r->err = err_set(UNO_ERR_PARSE, "%.200s line %lu: %s", r->where, line, what);
}
#define bad(r, ...) bad_at((r), line_of(r), __VA_ARGS__)

/* ---- attributes ------------------------------------------------------------------------------ */

static const char *attr(const XML_Char **atts, const char *name)
{
    for (; *atts; atts += 2)
        if (strcmp(atts[0], name) == 0)
            return atts[1];
    return NULL;
}

/* A whole number; absent gives `missing`, unless that is INT32_MIN: then it is an error. */
static int int_attr(struct reader *r, const XML_Char **atts, const char *name, int min, int max, int missing)
{
    const char *s = attr(atts, name);
    int64_t v = missing;
    if (r->err != UNO_OK) /* its sentence stands; a number that cannot be read would write its own over it */
        return missing;
    if (!s && missing == INT32_MIN)
        bad(r, "<%s> lacks %s", level_names[r->level], name);
    else if (s && text_parse_int(s, min, max, &v) != UNO_OK)
        bad(r, "%s=\"%.40s\" of <%s> must be a whole number from %d to %d", name, s, level_names[r->level], min, max);
    return (int)v;
}

/* ---- <algo> ------------------------------------------------------------------------------------ */

static void read_proto(struct reader *r, const XML_Char **atts)
{
    static const struct { const char *name; int slots; } protos[] = {{"Simple", 2}, {"LL", 8}, {"LL128", 8}};
    const char *proto = attr(atts, "proto");
    for (size_t i = 0; proto && i < ARRAY_LEN(protos); i++)
        if (strcasecmp(proto, protos[i].name) == 0) {
            r->plan->k_claimed = protos[i].slots;
            return;
        }
    bad(r, "proto=\"%.40s\" is none of Simple, LL, LL128", proto ? proto : "");
}

static void read_algo(struct reader *r, const XML_Char **atts)
{
    struct plan *plan = r->plan;
    const char *coll = attr(atts, "coll"), *name = attr(atts, "name");
    if (!coll || coll_parse(coll, &plan->coll) != UNO_OK) {
        bad(r, "coll=\"%.40s\" is not a collective of a plan; legal are allreduce broadcast reduce allgather reducescatter "
               "alltoall gather scatter", coll ? coll : "");
        return;
    }
    plan_set_name(plan, name ? name : "unnamed");
    plan->nranks = int_attr(r, atts, "ngpus", 1, PLAN_MAX_RANKS, INT32_MIN);
    int chunks = int_attr(r, atts, "nchunksperloop", 1, PLAN_MAX_CHUNKS, INT32_MIN);
    plan->channels = int_attr(r, atts, "nchannels", 1, PLAN_MAX_CHANNELS, INT32_MIN);
    plan->root = int_attr(r, atts, "root", 0, PLAN_MAX_RANKS - 1, 0);
    plan->in_place_ok = int_attr(r, atts, "inplace", 0, 1, INT32_MIN);
    plan->out_of_place_ok = int_attr(r, atts, "outofplace", 0, 1, !plan->in_place_ok);
    read_proto(r, atts);
    if (r->err != UNO_OK)
        return;
    int blocks = plan_coll_blocks(plan->coll) ? plan->nranks : 1;
    plan->parts = chunks / blocks;
    if (chunks % blocks != 0)
        bad(r, "nchunksperloop=\"%d\" is not a multiple of the %d ranks, as %s needs", chunks, blocks, coll_name(plan->coll));
    if (!plan->in_place_ok && !plan->out_of_place_ok)
        bad(r, "inplace and outofplace are both 0: the plan claims nothing");
    if (r->err == UNO_OK)
        r->err = plan_import_begin(plan, r->where);
    r->seen = r->err == UNO_OK ? mem_array((size_t)plan->nranks, sizeof *r->seen) : NULL;
    if (r->err == UNO_OK && !r->seen)
        r->err = UNO_ERR_MEMORY;
}

/* ---- <gpu> -------------------------------------------------------------------------------------- */

/* 0 says that the buffer is the other one, in place; else the number that the collective has. */
static void check_buffer(struct reader *r, const XML_Char **atts, const char *name, enum plan_buf buf)
{
    int expected = plan_buf_chunks(r->plan, buf), n = int_attr(r, atts, name, 0, PLAN_MAX_CHUNKS, INT32_MIN);
    if (n > expected)
        bad(r, "%s=\"%d\", but %s with nchunksperloop=\"%d\" has %d", name, n, coll_name(r->plan->coll),
            plan_shapes(r->plan), expected);
}

static void begin_gpu(struct reader *r, const XML_Char **atts)
{
    int id = int_attr(r, atts, "id", 0, r->plan->nranks - 1, INT32_MIN);
    check_buffer(r, atts, "i_chunks", PLAN_IN);
    check_buffer(r, atts, "o_chunks", PLAN_OUT);
    r->scratch = int_attr(r, atts, "s_chunks", 0, PLAN_MAX_CHUNKS, INT32_MIN);
    if (r->err == UNO_OK && r->seen[id])
        bad(r, "gpu %d is there twice", id);
    if (r->err != UNO_OK)
        return;
    r->seen[id] = true;
    r->prog = &r->plan->progs[id];
    r->tb_ids = 0;
    build_begin(&r->build, r->plan, id, r->prog);
}

/* Turn one wait's tb id into a lane, and see that the awaited step exists and says hasdep=1. */
static void resolve_wait(struct reader *r, struct plan_dep *d, unsigned long line)
{
    struct plan_prog *p = r->prog;
    int lane = d->lane < r->tb_ids ? r->lane_of[d->lane] : -1;
    if (lane < 0) {
        bad_at(r, line, "gpu %d: this step waits for tb %d, which does not exist", p->rank, d->lane);
    } else if (d->step >= p->lanes[lane].nsteps) {
        bad_at(r, line, "gpu %d: this step waits for step %d of tb %d, which has %d steps", p->rank, d->step, d->lane,
               p->lanes[lane].nsteps);
    } else {
        const struct step_note *target = &r->notes[p->lanes[lane].first + d->step];
        if (!target->has_dependents)
            bad_at(r, line, "gpu %d: this step waits for step %d of tb %d (line %lu), which says hasdep=\"0\"", p->rank,
                   d->step, d->lane, target->line);
        d->lane = lane;
    }
}

/* Waits hold thread block ids until all thread blocks of the gpu are known. */
static void resolve_waits(struct reader *r)
{
    struct plan_prog *p = r->prog;
    for (int s = 0; s < p->nsteps && r->err == UNO_OK; s++)
        for (int i = p->steps[s].dep; i < p->steps[s].dep + p->steps[s].ndep; i++)
            resolve_wait(r, &p->deps[i], r->notes[s].line);
}

static void end_gpu(struct reader *r)
{
    r->err = build_end(&r->build, r->scratch);
    if (r->err == UNO_OK)
        resolve_waits(r);
}

/* ---- <tb> ---------------------------------------------------------------------------------------- */

static void begin_tb(struct reader *r, const XML_Char **atts)
{
    r->tb = int_attr(r, atts, "id", 0, PLAN_MAX_LANES - 1, INT32_MIN);
    r->send = int_attr(r, atts, "send", -1, r->plan->nranks - 1, INT32_MIN);
    r->recv = int_attr(r, atts, "recv", -1, r->plan->nranks - 1, INT32_MIN);
    r->channel = int_attr(r, atts, "chan", -1, PLAN_MAX_CHANNELS - 1, INT32_MIN);
    if (r->err == UNO_OK && r->channel >= r->plan->channels)
        bad(r, "chan=\"%d\", but nchannels=\"%d\"", r->channel, r->plan->channels);
    if (r->err == UNO_OK && r->channel < 0 && (r->send >= 0 || r->recv >= 0))
        bad(r, "chan=\"-1\" of a tb that sends or receives");
    if (r->err != UNO_OK || (r->err = mem_grow(&r->lane_of, &r->cap_lane_of, (size_t)r->tb + 1, sizeof *r->lane_of)) != UNO_OK)
        return;
    while (r->tb_ids <= r->tb)
        r->lane_of[r->tb_ids++] = -1;
    if (r->lane_of[r->tb] >= 0)
        bad(r, "tb %d of gpu %d is there twice", r->tb, r->prog->rank);
    else
        r->lane_of[r->tb] = build_lane(&r->build);
    if (r->err == UNO_OK)
        r->err = r->build.err;
}

/* ---- <step> -------------------------------------------------------------------------------------- */

static int read_op(struct reader *r, const XML_Char **atts)
{
    const char *type = attr(atts, "type");
    for (int op = 0; type && op < PLAN_OP_COUNT; op++)
        if (op != PLAN_RECV_SEND && strcmp(type, plan_ops[op].xml) == 0) /* "rs" is ours, MSCCL has no such step */
            return op;
    bad(r, "unknown opcode type=\"%.40s\"; legal are nop cpy re s r rcs rrs rrc rrcs", type ? type : "");
    return PLAN_NOP;
}

static void read_operand(struct reader *r, const XML_Char **atts, const char *buf_name, const char *off_name, bool used,
                         enum plan_buf *buf, int *chunk)
{
    *buf = PLAN_NONE;
    *chunk = 0;
    if (!used)
        return; /* attributes stand there all the same, and mean nothing */
    const char *name = attr(atts, buf_name);
    static const char *const letters[] = {[PLAN_IN] = "i", [PLAN_OUT] = "o", [PLAN_SCRATCH] = "s"};
    for (int b = PLAN_IN; name && b <= PLAN_SCRATCH; b++)
        if (strcmp(name, letters[b]) == 0)
            *buf = (enum plan_buf)b;
    if (*buf == PLAN_NONE)
        bad(r, "unknown buffer %s=\"%.40s\"; legal are i, o, s", buf_name, name ? name : "");
    *chunk = int_attr(r, atts, off_name, 0, PLAN_MAX_CHUNKS - 1, INT32_MIN);
}

static void connect_step(struct reader *r, const struct plan_op_info *op)
{
    if (op->receives && r->recv < 0)
        bad(r, "a step \"%s\" receives, but its tb has recv=\"-1\"", op->xml);
    else if (op->receives)
        build_on_recv(&r->build, build_recv_from(&r->build, r->recv, r->channel));
    if (op->sends && r->send < 0)
        bad(r, "a step \"%s\" sends, but its tb has send=\"-1\"", op->xml);
    else if (op->sends)
        build_on_send(&r->build, build_send_to(&r->build, r->send, r->channel));
    if (op->receives && op->reduces)
        build_self(&r->build, 1); /* received o src */
}

static void read_wait(struct reader *r, const XML_Char **atts)
{
    int tb = int_attr(r, atts, "depid", -1, PLAN_MAX_LANES - 1, -1);
    int step = int_attr(r, atts, "deps", -1, PLAN_MAX_STEPS - 1, -1);
    if (r->err == UNO_OK && (tb < 0) != (step < 0))
        bad(r, "depid=\"%d\" with deps=\"%d\": both or none", tb, step);
    if (r->err == UNO_OK && tb >= 0)
        build_wait(&r->build, tb, step);
}

static void read_step(struct reader *r, const XML_Char **atts)
{
    int op = read_op(r, atts), expected = r->prog->lanes[r->prog->nlanes - 1].nsteps, src, dst;
    const struct plan_op_info *info = &plan_ops[op];
    enum plan_buf src_buf, dst_buf;
    int number = int_attr(r, atts, "s", 0, PLAN_MAX_STEPS - 1, INT32_MIN);
    if (r->err == UNO_OK && number != expected)
        bad(r, "step s=\"%d\" is out of order; s=\"%d\" should stand here", number, expected);
    if (++r->steps_total > PLAN_MAX_STEPS)
        bad(r, "more than %d steps in all", PLAN_MAX_STEPS);
    read_operand(r, atts, "srcbuf", "srcoff", info->reads_src, &src_buf, &src);
    read_operand(r, atts, "dstbuf", "dstoff", info->reads_dst || info->writes_dst, &dst_buf, &dst);
    int count = op == PLAN_NOP ? 1 : int_attr(r, atts, "cnt", 1, PLAN_MAX_CHUNKS, INT32_MIN);
    struct step_note note = {line_of(r), int_attr(r, atts, "hasdep", 0, 1, 0) == 1};
    if (r->err == UNO_OK)
        r->err = mem_grow(&r->notes, &r->cap_notes, (size_t)r->prog->nsteps + 1, sizeof *r->notes);
    if (r->err != UNO_OK)
        return;
    r->notes[r->prog->nsteps] = note;
    build_step(&r->build, (enum plan_op)op, src_buf, src, dst_buf, dst, count);
    connect_step(r, info);
    read_wait(r, atts);
    if (r->err == UNO_OK)
        r->err = r->build.err;
}

/* ---- the document ----------------------------------------------------------------------------------- */

static void XMLCALL begin_element(void *user, const XML_Char *name, const XML_Char **atts)
{
    static void (*const readers[])(struct reader *, const XML_Char **) = {read_algo, begin_gpu, begin_tb, read_step};
    struct reader *r = user;
    if (r->err != UNO_OK)
        return; /* expat may still hand out what it has */
    if (r->level >= AT_STEP)
        bad(r, "<%.40s> inside <step>; a step has nothing inside", name);
    else if (strcmp(name, level_names[r->level]) != 0)
        bad(r, "<%.40s> where <%s> should stand", name, level_names[r->level]);
    else
        readers[r->level](r, atts);
    r->level++;
    if (r->err != UNO_OK)
        XML_StopParser(r->parser, XML_FALSE);
}

static void XMLCALL end_element(void *user, const XML_Char *name)
{
    struct reader *r = user;
    if (r->err != UNO_OK)
        return;
    if (r->level == AT_GPU)
        end_gpu(r);
    r->level--;
    if (r->err != UNO_OK)
        XML_StopParser(r->parser, XML_FALSE);
}

static void XMLCALL refuse_doctype(void *user, const XML_Char *name, const XML_Char *sysid, const XML_Char *pubid, int internal)
{
    struct reader *r = user;
    bad(r, "a document type with entities has no place in a plan, and is not expanded");
    XML_StopParser(r->parser, XML_FALSE);
}

static uno_err parse(struct reader *r, const char *text, size_t bytes)
{
    XML_SetUserData(r->parser, r);
    XML_SetElementHandler(r->parser, begin_element, end_element);
    XML_SetStartDoctypeDeclHandler(r->parser, refuse_doctype);
    enum XML_Status status = XML_Parse(r->parser, text, (int)bytes, 1);
    if (r->err != UNO_OK)
        return r->err;
    if (status != XML_STATUS_OK) {
        enum XML_Error code = XML_GetErrorCode(r->parser);
        bad(r, "%s%s", XML_ErrorString(code), r->level > AT_TOP ? " (the file may be cut short)" : "");
        return code == XML_ERROR_NO_MEMORY ? err_set(UNO_ERR_MEMORY, "no memory to read %.200s", r->where) : r->err;
    }
    for (int rank = 0; rank < r->plan->nranks; rank++)
        if (!r->seen[rank]) {
            bad(r, "gpu %d of %d is missing", rank, r->plan->nranks);
            return r->err;
        }
    return UNO_OK;
}

uno_err plan_from_xml(const char *text, size_t bytes, const char *where, struct plan **plan)
{
    *plan = NULL;
    if (bytes > PLAN_MAX_FILE_BYTES)
        return err_set(UNO_ERR_PARSE, "%.200s is larger than %u MB", where, PLAN_MAX_FILE_BYTES >> 20);
    struct reader r = {.where = where, .plan = mem_zalloc(sizeof *r.plan)};
    r.parser = r.plan ? XML_ParserCreate(NULL) : NULL;
    uno_err err = r.parser ? parse(&r, text, bytes) : err_set(UNO_ERR_MEMORY, "no memory to read %.200s", where);
    if (r.parser)
        XML_ParserFree(r.parser);
    free(r.seen);
    free(r.lane_of);
    free(r.notes);
    if (err != UNO_OK) {
        plan_free(r.plan);
        return err;
    }
    r.plan->id = hash128(text, bytes, 0);
    *plan = r.plan;
    return UNO_OK;
}
