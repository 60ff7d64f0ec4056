/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - the schedule, as data (design section 2). Who makes plans: planner (generators), plan_json.c, plan_xml.c.
 * Who reads them: verify, sim, exec. A plan knows nothing of byte counts, types or carriers.
 *
 * A plan yields one rank's program at a time (plan_rank), O(ranks) long; only verify, sim and export look at all of them.
 *
 * Shapes. The data of a collective is a row of blocks, each cut into `parts` chunks; shape s = block * parts + part is the
 * length class of such a chunk. In `in` and `out`, chunk -> shape is given by the collective (plan_chunk_shape); a step that
 * touches only scratch carries its shape itself. All firings of a step use consecutive chunks and consecutive shapes.
 */
#ifndef UNO_PLAN_H
#define UNO_PLAN_H

#include "base/base.h"
#include "topo/topo.h"

enum plan_op {
#define OP(id, json, xml, rcv, rsrc, rdst, red, wdst, snd) PLAN_##id,
#include "ops.def"
#undef OP
    PLAN_OP_COUNT
};

struct plan_op_info {
    const char *name, *xml;
    bool receives, reads_src, reads_dst, reduces, writes_dst, sends;
};
extern const struct plan_op_info plan_ops[PLAN_OP_COUNT];

enum plan_buf { PLAN_NONE = 0, PLAN_IN, PLAN_OUT, PLAN_SCRATCH };

/* One end of a connection of this rank. Sending: `peer` is the destination, or -1 for the host-local group (all other
 * ranks of this rank's host, see plan.host_of). Receiving: `peer` is the source; `group` tells whether it is the source's
 * group connection. Group connections have channel 0. */
struct plan_conn {
    int peer;
    int channel;
    bool group;
};

/* Wait until step `step` of lane `lane` of this rank has finished in the same tile. A step whose chunks have no such tile
 * is passed by in its lane's order and still waits for its own waits: the proof counts on both. */
struct plan_dep {
    int lane, step; /* step counts from 0 within its lane */
};

/* plan_step.flags, where the collective reduces: premulsum scales at the first, avg divides at the second. */
enum plan_flag {
    PLAN_RAW_SRC = 1,   /* src is this rank's own contribution, as the caller gave it */
    PLAN_COMPLETES = 2, /* the result is the finished reduction of its chunk */
    PLAN_RAW_DST = 4    /* reduce: dst, which it reads, is the own contribution as the caller gave it */
};

struct plan_step {
    uint8_t op;               /* enum plan_op */
    uint8_t src_buf, dst_buf; /* enum plan_buf; PLAN_NONE where the opcode does not use it */
    uint8_t flags;            /* enum plan_flag */
    int32_t src, dst;         /* first chunk in that buffer */
    int32_t count;            /* firings, >= 1 (nop: 1); firing i uses chunk + i and shape + i */
    int32_t shape;            /* first shape */
    int32_t send;             /* index into prog.sends, or -1 */
    int32_t recv, nrecv;      /* slice of prog.recv_list, the order of operands; nrecv = 0 when it receives nothing */
    int32_t self;             /* place of the own contribution (src) among the operands, 0 .. nrecv */
    int32_t dep, ndep;        /* slice of prog.deps */
};

struct plan_lane {
    int first, nsteps; /* slice of prog.steps */
};

/* One rank's program. Owned by the caller of plan_rank; free with plan_prog_free. */
struct plan_prog {
    int rank;
    int scratch_chunks;
    int nlanes, nsteps, nsends, nrecvs, nrecv_list, ndeps;
    struct plan_lane *lanes;
    struct plan_step *steps;
    struct plan_conn *sends; /* distinct (peer|group, channel); each used by one lane only */
    struct plan_conn *recvs;
    int *recv_list;          /* indexes into recvs */
    struct plan_dep *deps;
};

/* What a generator is made from; hashed into the plan's id. Zero-initialise. */
struct plan_params {
    char algo[16];      /* "flat" "flat2" "ring" "tree" "hd" "two_level" */
    uno_coll coll;
    int nranks;
    int channels;       /* parallel copies, each with its own chunks; >= 1 */
    int root;           /* virtual root; generators that renumber are called with 0 */
    const int *host_of; /* nranks entries, host index of each rank; NULL = all on one host. Copied into the plan. */
};

struct plan {
    id128 id;             /* hash of params, or of the imported text */
    char name[48];        /* "ring", or an import's own name */
    uno_coll coll;        /* never a V form: those use the plan of the plain collective with other lengths */
    int nranks;
    int parts;            /* chunks per block */
    int channels;         /* highest channel + 1 */
    int root;             /* for rooted collectives */
    bool in_place_ok, out_of_place_ok; /* claims, checked by verify */
    bool copies_only;     /* right only when slots carry copies, never lent memory (set by verify) ... */
    bool lends_out_of_place; /* ... but a rank that is not in place may lend: what it lends is never written (set by verify) */
    bool needs_reduce;    /* the collective reduces */
    int k_claimed;        /* slots a connection the origin assumes (imports: 8 for LL/LL128, 2 Simple); 2 for generators */
    int *host_of;         /* nranks entries; all 0 when there is one host */
    struct plan_params params;                                    /* algo[0] = 0 for imports; host_of points to the above */
    uno_err (*generate)(const struct plan *, int rank, struct plan_prog *prog); /* generated plans */
    struct plan_prog *progs;                                      /* imports: nranks programs */
};

/* Fill *prog with rank's program (rank = virtual rank). UNO_ERR_MEMORY, UNO_ERR_PLAN. */
uno_err plan_rank(const struct plan *plan, int rank, struct plan_prog *prog);
void plan_prog_free(struct plan_prog *prog);
void plan_free(struct plan *plan);

/* ---- building programs (plan_build.c): used by generators and readers ----------------------------
 * A failed allocation is remembered and returned by build_end. */
struct plan_build {
    struct plan_prog *prog;
    const struct plan *plan;
    size_t cap_lanes, cap_steps, cap_sends, cap_recvs, cap_list, cap_deps;
    uno_err err;
};
void build_begin(struct plan_build *b, const struct plan *plan, int rank, struct plan_prog *prog);
int build_lane(struct plan_build *b);                                 /* following steps go there; returns its index */
int build_send_to(struct plan_build *b, int peer, int channel);       /* index into sends, found or added */
int build_send_group(struct plan_build *b);
int build_recv_from(struct plan_build *b, int peer, int channel);     /* index into recvs */
int build_recv_group(struct plan_build *b, int peer);
/* Append a step to the current lane; returns its number within the lane. Shape is derived from whichever operand is in
 * in/out; steps that touch only scratch (or nothing) need build_shape afterwards. */
int build_step(struct plan_build *b, enum plan_op op, enum plan_buf src_buf, int src, enum plan_buf dst_buf, int dst,
               int count);
void build_shape(struct plan_build *b, int shape);                    /* of the last step */
void build_on_send(struct plan_build *b, int send);                   /* of the last step */
void build_on_recv(struct plan_build *b, int recv);                   /* appends one to the last step's list */
void build_self(struct plan_build *b, int place);                     /* of the last step */
void build_flags(struct plan_build *b, unsigned flags);               /* added to the last step's */
void build_wait(struct plan_build *b, int lane, int step);            /* appends a wait to the last step */
uno_err build_end(struct plan_build *b, int scratch_chunks);

/* ---- chunks (plan_chunks.c) -------------------------------------------------------------------------- */
/* Number of chunks of a buffer on every rank: all_reduce in/out: parts; all_gather in: parts, out: n * parts; ... ;
 * barrier like all_reduce. Rooted collectives: the full buffer exists on the root only, but chunks are numbered alike. */
int plan_buf_chunks(const struct plan *plan, enum plan_buf buf);
int plan_shapes(const struct plan *plan);
/* Shape of chunk `chunk` of in or out on `rank` (virtual). */
int plan_chunk_shape(const struct plan *plan, int rank, enum plan_buf buf, int chunk);

/* What is asked for. Counts as in unisono.h (per rank / per block); counts/displs for the V forms only, in real-rank order. */
struct request {
    uno_coll coll;
    uno_type type;
    int op;              /* uno_op; ignored where nothing is reduced */
    int root;
    size_t count;
    const size_t *counts, *displs; /* v forms, n entries; displs NULL = packed */
    bool lent;           /* all_reduce of two ranks: in the one before, messages both ways lay in memory that the other rank maps */
    bool split;          /* an all_gather of uno_comm_split */
};
/* What ledgers and sentences call it. */
static inline uno_coll request_call(const struct request *req) { return req->split ? COLL_SPLIT : req->coll; }

/* Lengths and offsets of all shapes for one request. */
struct plan_chunks {
    int nshapes;
    size_t elem_bytes;
    size_t *len;      /* nshapes: elements */
    size_t *full_off; /* nshapes: element offset in the full buffer (blocks at their places) */
    size_t *part_off; /* nshapes: element offset within its block */
    size_t max_len;
};
/* shift: virtual rank v is real rank (v + shift) mod n; blocks move accordingly. Even split: units of 64 bytes (of 4096
 * once a chunk exceeds 64 KB) are dealt out as evenly as possible, first chunks get the extra ones; chunks may be empty. */
uno_err plan_chunks_make(const struct plan *plan, const struct request *req, int shift, struct plan_chunks *chunks);
void plan_chunks_free(struct plan_chunks *chunks);
/* Element offset of a chunk of in/out on `rank` (virtual). */
size_t plan_chunk_offset(const struct plan *plan, const struct plan_chunks *chunks, int rank, enum plan_buf buf, int chunk);
/* Tiles a chunk of `len` elements has: at least 1 (an empty chunk still sends one empty message). */
static inline size_t plan_tiles(size_t len, size_t tile_elems)
{
    return len == 0 ? 1 : (len + tile_elems - 1) / tile_elems;
}

/* How many ranks are on the host of this one, itself among them. */
int plan_host_ranks(const struct plan *plan, int rank);

/* ---- the firing graph (plan_graph.c): what verify proves and sim times, one tile of all ranks ------------
 * A node is one firing (step of count c: c nodes; a nop is one). It happens when its lane has come to it, the steps its
 * step waits for have finished (first firing only), every message it takes is there and, if it sends, the message k
 * places earlier on that connection has been released by all its readers. A firing whose chunk has no such tile takes and
 * sends nothing, but keeps its place in its lane and its step's waits: what is ordered through it stays ordered. */
struct plan_node {
    int32_t lane;     /* in plan_graph.lanes */
    int32_t step;     /* in that rank's prog.steps */
    int32_t i;        /* which firing of the step */
    int32_t shape;
    int32_t out;      /* message it sends, or -1 */
    int32_t in;       /* first of nrecv entries of plan_graph.in_list, in the order of the step's list */
};
struct plan_graph_lane {
    int32_t rank, lane;   /* lane counts within its rank */
    int32_t first, count; /* its nodes, in program order */
};
struct plan_link {            /* a connection with its messages of one tile, which are numbered in order */
    int32_t src, dst;         /* dst -1: group */
    int32_t channel;
    int32_t lane;             /* sending, in plan_graph.lanes */
    int32_t first, count;     /* its messages */
    int32_t readers, reader0; /* readers of each message; reader j of message m is reader_list[reader0 + (m-first)*readers + j] */
};
struct plan_graph {
    const struct plan *plan;
    struct plan_prog *progs;      /* nranks */
    bool owns_progs, shapes;
    int nnodes, nlanes, nlinks, nmessages, nsteps;
    struct plan_node *nodes;
    struct plan_graph_lane *lanes;
    struct plan_link *links;
    int32_t *sender, *link_of;    /* by message: node, link */
    int32_t *in_list;             /* messages taken */
    int32_t *reader_list;         /* nodes that take a message */
    int32_t *rank_lane, *rank_step; /* nranks + 1: first lane, first step of a rank */
    int32_t *step_node;           /* by rank_step[rank] + index in prog.steps: its first node; nsteps + 1 */
    int32_t *waiter0, *waiters;   /* by step, nsteps + 1: nodes that wait for it */
};
enum plan_fault_kind { PLAN_FAULT_NONE = 0, PLAN_FAULT_BOUNDS, PLAN_FAULT_CONNECTION };
struct plan_fault {
    enum plan_fault_kind kind;
    int rank, lane, step; /* step within its lane; -1 where it does not apply */
    char reason[400];
};
/* UNO_ERR_PLAN with *fault filled (and as the sentence) when the programs do not fit together. Free in every case.
 * shapes = false: do not look at shapes (imports before verify_label_shapes). */
uno_err plan_graph_make(const struct plan *plan, bool shapes, struct plan_graph *graph, struct plan_fault *fault);
void plan_graph_free(struct plan_graph *graph);
/* Sort topologically with k slots a connection into order (nnodes entries). *sorted < nnodes: there is a cycle. */
uno_err plan_graph_order(const struct plan_graph *graph, int k, int32_t *order, int *sorted);
static inline const struct plan_step *plan_node_step(const struct plan_graph *g, int node)
{
    const struct plan_node *n = &g->nodes[node];
    return &g->progs[g->lanes[n->lane].rank].steps[n->step];
}
/* Call visit for every node that has to happen before `node` (a node may come twice). kind: 'o' program order, 'w' wait,
 * 'm' message, 'c' credit. Stops when visit returns true and returns true. */
bool plan_graph_before(const struct plan_graph *graph, int k, int node,
                       bool (*visit)(void *arg, int before, char kind), void *arg);
/* The same for what has to happen after it. */
bool plan_graph_after(const struct plan_graph *graph, int k, int node,
                      bool (*visit)(void *arg, int after, char kind), void *arg);
/* "rank 0 lane 1 step 2 (send to 3)"; writes into buf, returns buf. */
const char *plan_node_text(const struct plan_graph *graph, int node, char *buf, size_t buf_bytes);
/* Whether this rank has that buffer: the far end of rooted collectives has only one of in and out. */
bool plan_has_buf(const struct plan *plan, int rank, enum plan_buf buf);
/* Chunks with equal classes have equal lengths in every request: the shape, in all_to_all its part. */
static inline int plan_class(const struct plan *plan, int shape)
{
    return plan->coll == UNO_ALL_TO_ALL ? shape % plan->parts : shape;
}

/* ---- text forms (in the tools' library: needs jansson and expat) --------------------------------------- */
uno_err plan_from_json(const char *text, size_t bytes, const char *where, struct plan **plan);
uno_err plan_to_json(const struct plan *plan, struct text *out);
/* MSCCL XML with the semantics of design section 2. `where` names the source in sentences. */
uno_err plan_from_xml(const char *text, size_t bytes, const char *where, struct plan **plan);
/* unicast: expand group connections and lists into plain sends and receives; else they are refused by name. */
uno_err plan_to_xml(const struct plan *plan, bool unicast, struct text *out);
/* By the file's first character; bounded to 64 MB. */
uno_err plan_from_file(const char *path, struct plan **plan);
/* The plan with virtual rank v as rank (v + shift) mod n, programs of all ranks made; for showing and exporting. */
uno_err plan_rotate(const struct plan *plan, int shift, struct plan **rotated);
/* For people: one rank or all (rank < 0). */
uno_err plan_print(const struct plan *plan, int rank, struct text *out);

#endif
