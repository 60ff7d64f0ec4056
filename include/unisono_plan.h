/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unisono_plan.h - topologies and plans as data: load, make, show, check, verify. For tools; nothing here moves a byte or talks
 * to other processes. Library: libunisono_plan (it needs jansson and expat, which libunisono does not). Every function that
 * returns uno_err returns UNO_OK (0) or a code whose sentence uno_plan_last_error() gives.
 * Different handles may be used by different threads at once; one handle by one thread at a time.
 */
#ifndef UNISONO_PLAN_H
#define UNISONO_PLAN_H

#include "unisono.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Return the sentence of the calling thread's last error in this library; never NULL. Lives until its next error. */
UNO_API const char *uno_plan_last_error(void);
/* Free a text that a function of this header returned. NULL is allowed. */
UNO_API void uno_text_free(char *text);

/* ---- topology ----------------------------------------------------------------------------------- */

typedef struct uno_topology uno_topology;

/* Read a topology. input: NULL or "" = this machine; a file (hwloc XML, our JSON); else a synthetic line such as
 * "host:2 numa:2 core:8 nic:1@25G" (docs/topology-format.md). UNO_ERR_PARSE says where and what is legal, UNO_ERR_SYSTEM when
 * the file cannot be read. *topology: owned by the caller, freed with uno_topology_free. */
UNO_API uno_err uno_topology_load(const char *input, uno_topology **topology) UNO_MUST_CHECK;
UNO_API void uno_topology_free(uno_topology *topology);
/* Write it as people draw it. *text: freed with uno_text_free. */
UNO_API uno_err uno_topology_print(const uno_topology *topology, char **text) UNO_MUST_CHECK;
/* Write it as JSON that uno_topology_load reads back. */
UNO_API uno_err uno_topology_json(const uno_topology *topology, char **text) UNO_MUST_CHECK;
/* Say what looks wrong, one sentence a line; *count: how many. Not an error. */
UNO_API uno_err uno_topology_check(const uno_topology *topology, char **text, int *count) UNO_MUST_CHECK;

/* ---- costs: what the planner computes with ---------------------------------------------------------- */

typedef struct uno_costs uno_costs;
typedef struct uno_cost {
    const char *name, *help;               /* static */
    uint64_t ps, built_in_ps, least_ps, most_ps;
} uno_cost;
/* Load the costs that a job whose rank 0 is on this machine would use now: those of the calibration file that `unisono tune` wrote
 * (UNISONO_COSTS, or below XDG_CACHE_HOME or HOME/.cache), else built-in ones. *costs: the caller's, freed with uno_costs_free. */
UNO_API uno_err uno_costs_load(uno_costs **costs) UNO_MUST_CHECK;
UNO_API void uno_costs_free(uno_costs *costs);
/* Return 1 if they are the file's, 0 if they are built in. */
UNO_API int uno_costs_measured(const uno_costs *costs);
/* Return the file's path, "" if there is no place for one; the sentence that says why a file that is there is not followed, or "".
 * They live as long as the costs. */
UNO_API const char *uno_costs_path(const uno_costs *costs);
UNO_API const char *uno_costs_why_not(const uno_costs *costs);
/* Write into *text of which machine they are (out, freed with uno_text_free). */
UNO_API uno_err uno_costs_machine(char **text) UNO_MUST_CHECK;
/* Store cost number `index` (from 0) in *cost. UNO_ERR_ARG when there are fewer. */
UNO_API uno_err uno_costs_get(const uno_costs *costs, int index, uno_cost *cost) UNO_MUST_CHECK;
/* Change one, in picoseconds. UNO_ERR_ARG: no such name, or a value that cannot be. */
UNO_API uno_err uno_costs_set(uno_costs *costs, const char *name, uint64_t ps) UNO_MUST_CHECK;
/* Write them to their path, as this machine's, whole or not at all. UNO_ERR_CONFIG, UNO_ERR_SYSTEM. */
UNO_API uno_err uno_costs_save(const uno_costs *costs) UNO_MUST_CHECK;

/* ---- plans --------------------------------------------------------------------------------- */

typedef struct uno_plan uno_plan; /* a schedule: what each rank does with which chunk in what order */

/* How a plan is shown: for people; our JSON (docs/plan-format.md); MSCCL's XML, which UNO_PLAN_XML refuses when the plan has
 * groups or lists of connections, and UNO_PLAN_XML_UNICAST expands. */
typedef enum uno_plan_form { UNO_PLAN_TEXT = 0, UNO_PLAN_JSON, UNO_PLAN_XML, UNO_PLAN_XML_UNICAST } uno_plan_form;

/* Load a plan from a file, JSON or MSCCL XML by its first character, at most 64 MB. *plan: out, the caller's, freed with
 * uno_plan_free. UNO_ERR_PARSE names the place and what is legal; UNO_ERR_SYSTEM if the file cannot be read. Loading does
 * not verify. */
UNO_API uno_err uno_plan_load(const char *path, uno_plan **plan) UNO_MUST_CHECK;

/* What a plan is made from. Initialise with UNO_PLAN_PARAMS_INIT. */
typedef struct uno_plan_params {
    size_t size;         /* sizeof(uno_plan_params) */
    uno_coll coll;       /* a plain collective; V forms use its plan */
    int nranks;          /* 1 to 4096; 0 = as many as `hosts` hold */
    const char *algo;    /* one of uno_plan_algo(); NULL = what the planner chooses for `bytes` with this machine's costs */
    int channels;        /* parallel copies, each with its own chunks; 0 = 1, or the planner's choice */
    int root;            /* of rooted collectives */
    const char *hosts;   /* "2x4" = two hosts with 4 ranks each, "3,5" = ranks of each; NULL = all on one host */
    uint64_t bytes;      /* what the planner chooses for: size of the larger of the two buffers */
} uno_plan_params;
#define UNO_PLAN_PARAMS_INIT { sizeof(uno_plan_params), UNO_ALL_REDUCE, 0, NULL, 0, 0, NULL, 1u << 20 }

/* Make a plan. *plan: out, the caller's. UNO_ERR_ARG for what is not legal (the sentence lists what is);
 * UNO_ERR_UNSUPPORTED when the algorithm does not fit, with the reason. */
UNO_API uno_err uno_plan_make(const uno_plan_params *params, uno_plan **plan) UNO_MUST_CHECK;
/* Write into *text which plan the planner would choose for params->bytes, why, and what each candidate is predicted to take.
 * *text: out, freed with uno_text_free. */
UNO_API uno_err uno_plan_explain(const uno_plan_params *params, char **text) UNO_MUST_CHECK;
/* Free. NULL is allowed. */
UNO_API void uno_plan_free(uno_plan *plan);

/* An algorithm that plans can be made with. Strings are static. */
typedef struct uno_plan_algo_info {
    const char *name, *help;
    uint32_t colls;      /* bit c: it has a plan for collective c */
} uno_plan_algo_info;
/* Store algorithm number `index` (from 0) in *algo. UNO_ERR_ARG when there are fewer. */
UNO_API uno_err uno_plan_algo(int index, uno_plan_algo_info *algo) UNO_MUST_CHECK;
/* Return the name of a collective ("all_reduce"), "?" if unknown; find one by name (also "allreduce", "all-reduce"). */
UNO_API const char *uno_plan_coll_name(uno_coll coll);
UNO_API uno_err uno_plan_coll_parse(const char *name, uno_coll *coll) UNO_MUST_CHECK;

typedef struct uno_plan_facts {
    const char *name;            /* lives as long as the plan */
    uno_coll coll;
    int nranks, hosts, parts;    /* parts: chunks a block */
    int channels, root;
    int slots;                   /* slots a connection that its origin assumes */
    int in_place, out_of_place;  /* its claims */
    int imported;                /* 1 = from a file */
    uint64_t id[2];              /* low, high word */
} uno_plan_facts;
/* Store what the plan says of itself in *facts. Never fails. */
UNO_API void uno_plan_facts_of(const uno_plan *plan, uno_plan_facts *facts);

/* Write a plan into *text (out, freed with uno_text_free). rank: one rank only, UNO_PLAN_TEXT only; < 0 = all.
 * UNO_ERR_UNSUPPORTED when MSCCL's XML cannot say it; the sentence names the step. */
UNO_API uno_err uno_plan_show(const uno_plan *plan, uno_plan_form form, int rank, char **text) UNO_MUST_CHECK;

typedef struct uno_plan_verify_options {
    size_t size;         /* sizeof(uno_plan_verify_options) */
    int slots;           /* slots a connection; 0 = what the plan's origin assumes */
    int in_place;        /* 1 = check with the input in the output, as NCCL defines in place; 0 = with separate buffers */
    int lent;            /* 1 = slots may also carry lent memory; 0 = copies only */
} uno_plan_verify_options;
#define UNO_PLAN_VERIFY_INIT { sizeof(uno_plan_verify_options), 0, 0, 1 }

typedef struct uno_plan_verdict {
    int proved;          /* 1 = proved: right on every input of every size, no deadlock, no race; 0 = refuted */
    const char *kind;    /* "ok" "bounds" "connection" "deadlock" "race" "missing" "twice" "wrong"; static */
    int rank, lane, step;/* of the step that is wrong; -1 where it does not apply */
    char reason[512];    /* a sentence; "" when proved */
} uno_plan_verdict;
/* Prove a plan or find the step that is wrong. options: NULL = UNO_PLAN_VERIFY_INIT. UNO_OK = *verdict is filled, whatever it
 * says. */
UNO_API uno_err uno_plan_verify(const uno_plan *plan, const uno_plan_verify_options *options,
                                uno_plan_verdict *verdict) UNO_MUST_CHECK;

typedef struct uno_plan_time {
    uint64_t total_ps;             /* until the last rank is done */
    uint64_t shm_bytes, net_bytes; /* payload that moves between ranks of a host, between hosts */
    int critical_rank;             /* the one that is done last */
} uno_plan_time;
/* Run a plan in virtual time on a machine with default costs, float32, tiles of 64 KB, `bytes` in the larger of the two
 * buffers. UNO_ERR_PLAN when the plan cannot end. */
UNO_API uno_err uno_plan_simulate(const uno_plan *plan, uint64_t bytes, uno_plan_time *time) UNO_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
