/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf.h - the parts of `unisono perf`, in the order in which cmd_perf.c uses them:
 *   options (perf_options.c)  what is asked
 *   launch  (perf_launch.c, perf_split.c)  ranks from the launcher, forked, or as threads; each *crew* is one thread with its ranks
 *   sweep   (perf_sweep.c, perf_buffers.c, perf_measure.c)  one crew's walk over sizes, types, operations, roots: warm up, time, check
 *   coll    (perf_coll.c, perf_pairs.c)  the collectives: counts, calls, expected results, bandwidth factors
 *   data    (perf_data.c, perf_number.c)  inputs whose exact result does not depend on order, and the comparison
 *   choices (perf_choices.c)  every algorithm at the same size, in turns
 *   limit   (perf_limit.c)    what the machine allows for the same collective and size
 *   report  (perf_report.c, perf_remarks.c, perf_json.c)  nccl-tests' table, lines of our own after it, JSON
 */
#ifndef UNO_CLI_PERF_H
#define UNO_CLI_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "unisono.h"
#include "unisono_watch.h"

/* ---- what is asked -------------------------------------------------------------------------------------- */

enum { PERF_ALL = -1 };     /* in type, op, root: each in turn */
enum { PERF_MULSUM = 100 }; /* in op: sum of scaled inputs; the operation is made on each communicator */

enum perf_buffers { BUFFERS_SHIFTED, BUFFERS_WARM, BUFFERS_COLD };
enum perf_average { AVERAGE_RANK0 = 0, AVERAGE_MEAN, AVERAGE_MIN, AVERAGE_MAX };

struct perf_coll;

struct perf_options {
    const struct perf_coll *coll;
    int threads, per_thread; /* of one process; 0 = not given */
    int ranks;               /* processes to start, 0 = not given */
    bool bind, bind_both;    /* both: --sweep compares */
    bool sweep;              /* perf_scale.h */
    int sweep_ranks[8], sweep_ranks_count, sweep_comms[8], sweep_comms_count; /* count 0 = not given */
    const char *plot_file;
    uint64_t min_bytes, max_bytes, step_bytes;
    int step_factor;         /* <= 1: steps are added */
    int iters, agg_iters, warmup, cycles, check;
    int op, type, root;      /* uno_op or PERF_MULSUM, uno_type, rank; or PERF_ALL */
    int blocking;            /* nccl-tests' -z */
    bool parallel_init, use_stream, cpu_time, stamps, memory_report, per_iter, percentiles;
    int per_iter_skip, unalign;
    double timeout_s;        /* 0 = the library's */
    enum perf_average average;
    enum perf_buffers buffers;
    enum { EXPLAIN_NOT, EXPLAIN_LINE, EXPLAIN_SIZES, EXPLAIN_ALL } explain;
    bool shared_memory, limit, choices, first_look; /* first_look: called without any argument */
    const char *output_file; /* -J */
    const char *json_file;   /* --json */
    char split_op;           /* & | % /: ranks are split by their process's number; 0 = not */
    int split_value;
    char notes[768];         /* lines "# ...\n" about options without effect, and a busy machine */
};

enum options_answer { OPTIONS_RUN, OPTIONS_DONE, OPTIONS_BAD }; /* DONE: help was shown */
/* Parse. argv[0] may be "perf" or a name like "all_reduce_perf". On BAD a sentence was printed. */
enum options_answer perf_options_parse(int argc, char **argv, struct perf_options *o);

/* ---- numbers and data --------------------------------------------------------------------------------------- */

/* nccl-tests' words where it has them ("float", "half"), and back; -1 if unknown. */
const char *perf_type_word(int type);
int perf_type_parse(const char *word);
const char *perf_op_word(int op);
int perf_op_parse(const char *word);
/* Is op defined for type? PERF_MULSUM is where sum is. */
bool perf_op_fits(int op, int type);
/* A type's precision: significant bits of its real parts, 0 for integers and bool. */
int perf_type_precision(int type);
/* Write n numbers given as doubles (complex: n pairs) as elements of a real or complex type, rounded to nearest even. */
void perf_encode(int type, const double *values, size_t n, void *out);
/* Are two elements of a floating type (its real parts) within `ulps` steps of each other? NaN is never near anything. */
bool perf_near(int type, const void *a, const void *b, int ulps);

/* Which element of which rank's input: what an output element must be made from. */
enum segment_kind { SEGMENT_COPY, SEGMENT_REDUCE };
struct segment {
    enum segment_kind kind;
    int source;           /* SEGMENT_COPY: rank; SEGMENT_REDUCE: all ranks */
    size_t from, to, count; /* elements: offset in the source's input, in the output, length */
};
struct data_rule {
    int type, op, ranks; /* op: uno_op, PERF_MULSUM, or -1: bytes are only moved */
    uint64_t seed;
};
/* The first n elements of `rank`'s input. */
void perf_data_fill(const struct data_rule *rule, int rank, void *out, size_t n);
/* Count the elements of `result` (at segment.to) that are not what the segment says. */
uint64_t perf_data_wrong(const struct data_rule *rule, const struct segment *segment, const void *result);
/* The factor of `rank` in PERF_MULSUM: 1 on even ranks, 2 on odd ones, as one element of `type` (16 bytes room). */
void perf_data_factor(int type, int rank, void *element);

/* ---- collectives ----------------------------------------------------------------------------------------------- */

/* One line of the table: a size, made concrete. */
struct job {
    const struct perf_coll *coll;
    int ranks, type, op, root;     /* op -1: none; root -1: none */
    size_t type_bytes, count;      /* count: the argument of the call, and the column */
    size_t shown_bytes;            /* the size column */
    size_t extent;                 /* elements: the largest part of a buffer that a rank uses */
    size_t *sends, *recvs, *send_at, *recv_at; /* alltoallv: ranks x ranks, row = rank; NULL elsewhere */
};
/* The ends of one rank's call. */
struct ends { const void *send; void *recv; };

struct perf_coll {
    const char *name;    /* "all_reduce"; the program is NAME_perf */
    const char *same;    /* another word for it, or NULL */
    int explains;        /* uno_coll that uno_comm_explain is asked for, -1 = none */
    bool reduces, rooted, split, exchanges;
    /* split: the size is that of all blocks, count is one block. exchanges: there is no in-place form; the second half of a
     * line repeats the first with the two buffers exchanged. */
    /* Offsets (elements) of the send and receive side in the one buffer of an in-place call. */
    void (*in_place)(const struct job *j, int rank, size_t *send_at, size_t *recv_at);
    /* Issue one step for one rank. Steps after the first read what earlier ones received, so a group may not span two. */
    int (*steps)(const struct job *j); /* NULL = one */
    uno_err (*call)(const struct job *j, int rank, int step, uno_op op, struct ends e, uno_comm *comm, uno_stream *stream);
    /* The i-th segment of rank's expected output; false when there is none. */
    bool (*expect)(const struct job *j, int rank, int i, struct segment *s);
    size_t (*input)(const struct job *j, int rank); /* elements of rank's input, 0 = sends nothing */
    /* Bytes that algbw counts, and busbw's factor to algbw. */
    double (*moved)(const struct job *j);
    double (*bus_factor)(const struct job *j);
};

extern const struct perf_coll perf_colls[];
extern const int perf_coll_count;
const struct perf_coll *perf_coll_find(const char *word);
/* Make `bytes` concrete for these ranks. False if there is no memory. */
bool perf_job_init(struct job *j, const struct perf_coll *coll, int ranks, int type, int op, int root, uint64_t bytes);
void perf_job_free(struct job *j);

/* perf_pairs.c: alltoallv's bytes for each pair. Read the environment's wishes; false: a sentence was printed. */
bool perf_pairs_load(const struct perf_options *o);
bool perf_pairs_fixed(void); /* a matrix says them, whatever the size */
/* What `from` sends to `to` when a rank has about `total` to send: whole 16 bytes. */
size_t perf_pairs_bytes(int from, int to, int ranks, size_t total);
struct line;
void perf_pairs_summary(FILE *f, const struct line *l, int ranks); /* if asked for: a line for each rank */

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* Everything that crews of one process share, and, of started processes, all of them (in memory mapped by all). */
struct launch_page;

/* One thread and the ranks it drives. */
struct crew {
    const struct perf_options *o;
    struct launch_page *page;
    int ranks;             /* of all crews; with a split, of this crew's group */
    int first, mine;       /* ranks first .. first + mine - 1 of these are this crew's */
    uno_comm **comms;      /* mine */
    int world, place;      /* all ranks, and this crew's first among them: ranks and first without a split */
    uno_comm **all;        /* mine: communicators of all ranks; comms without a split */
    int color, groups, least; /* of the split; least: ranks of the smallest group */
    uno_stream **streams;  /* mine; NULL entries without -y 0 */
    const char *how;       /* "4 processes started here, ..." for the first line */
};
/* Start or join the ranks as asked and run `work` once in each crew; returns the exit status of this process. */
int perf_launch(struct perf_options *o, int (*work)(struct crew *));
bool perf_has_launcher(void); /* does a launcher say which rank this process is? */
/* Say what went wrong, once for all crews that share the page, as "unisono perf: rank R: during: sentence (UNO_ERR_...)".
 * Returns CLI_ERROR. */
int perf_fail(struct crew *c, uno_err err, const char *during);
/* The same in own words. */
int perf_fail_text(struct crew *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Small talk; collective over all crews, of all groups. Return UNO_OK or the first rank's error. */
uno_err perf_barrier(struct crew *c);
/* out[r] = what rank r of all gave, `bytes` each. mine: one entry for each rank of this crew. */
uno_err perf_gather(struct crew *c, const void *mine, size_t bytes, void *out);
/* values[i] = the largest of all crews' values[i]. */
uno_err perf_max(struct crew *c, double *values, size_t n);

/* Collective: is the matrix one for these ranks and buffers? *status: an exit status; not 0: a sentence was printed. */
uno_err perf_pairs_check(struct crew *c, size_t max_bytes, int *status);

/* perf_split.c. Read the environment's wish; false: a sentence was printed. */
bool perf_split_parse(struct perf_options *o);
/* comms, ranks, first: of the crew's group. The crew is part of the process with this number. */
uno_err perf_split(struct crew *c, int process);
void perf_split_end(struct crew *c);

/* ---- results ------------------------------------------------------------------------------------------------------ */

struct iter_stats { double min_us, max_us, avg_us, p50_us, p95_us, p99_us, stdev_us, cv_pct; };
struct half { /* of a line: out of place, in place */
    double time_us, cpu_us, alg_bw, bus_bw;
    int64_t wrong;         /* elements, -1 = not checked */
    struct iter_stats stats;
    double *times_us;      /* per iteration, slowest rank; NULL if not asked */
    int times;
};
enum { PERF_ALGOS = 8 };
struct choice_times { int count; const char *name[PERF_ALGOS]; double us[PERF_ALGOS], chosen_us; }; /* names are static */
struct line {
    size_t bytes, count;
    int type, op, root;    /* op -1: none */
    struct half halves[2];
    double limit_us;       /* 0 = not measured */
    const char *limit_how; /* static */
    char *explained;       /* NULL = not asked */
    struct choice_times choices; /* count 0 = not asked */
};
struct rank_info { int pid, local, group; char host[64], processors[64]; long rss_start_kb, rss_end_kb, own_kb; }; /* own_kb: of the benchmark's buffers */

/* Only the crew with rank 0 has one. */
struct report {
    const struct perf_options *o;
    FILE *table;             /* NULL when standard output carries JSON */
    FILE *json, *output;     /* --json, -J */
    bool json_is_stdout;
    struct rank_info *ranks; /* gathered by the sweep; owned here */
    int rank_count, group_ranks; /* of all, of the group whose table this is */
    struct line *lines;
    size_t line_count, line_cap;
    int bad_lines;           /* with a wrong value */
    double bus_sum;
    size_t bus_count;
    char limit_note[512];
    uno_counts counts;       /* of rank 0, of the whole run */
    double started;          /* seconds, for the progress line */
    bool progress_shown;
};
/* Open files; on failure a sentence was printed and false returned. */
bool report_open(struct report *r, struct crew *c);
void report_header(struct report *r, const struct crew *c, size_t max_bytes);
/* Print one line of the table and keep it (takes over its pointers). */
void report_line(struct report *r, const struct line *line);
/* A line on a terminal while a run is long; text NULL removes it. */
void report_progress(struct report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The lines of our own after the table, as asked. */
void report_remarks(struct report *r);
/* Of uno_comm_explain's line the algorithm's words, "flat, 2 channels". Returns their length. */
size_t perf_explained_algorithm(const char *explained, const char **words);
/* perf_predict.c. Of uno_comm_explain's line the predicted time, 0 = none; is it off, and by how many per cent of what was measured? */
double perf_predicted_us(const char *explained);
bool perf_prediction_off(const struct line *l, double *percent);
void perf_predictions_print(const struct report *r);
void perf_choices_print(const struct report *r); /* perf_choices.c */
double perf_choices_ratio(const struct line *l); /* the chosen one's time to that of the best */
/* Footer, remarks, JSON. Returns the exit status. */
int report_close(struct report *r);
void report_free(struct report *r);
void report_json_write(struct report *r, FILE *f);
/* As nccl-tests prints numbers: 2, 1 or no decimals, whichever fits width; exponents beyond. str: 32 bytes. */
char *report_number(double value, int width, char *str);
double report_average(const struct report *r);
double report_min_bw(void); /* NCCL_TESTS_MIN_BW, -1 if unset */

/* ---- limit ----------------------------------------------------------------------------------------------------------- */

struct limit; /* memory mapped by all ranks of this host */
/* Collective. *limit NULL with `note` saying why when it cannot be measured here. */
uno_err perf_limit_open(struct crew *c, size_t max_bytes, struct limit **limit, char *note, size_t note_bytes);
/* Collective: the best time of one such operation, 0 if this size does not fit. */
uno_err perf_limit_measure(struct limit *l, struct crew *c, const struct job *j, double *time_us, const char **how);
void perf_limit_close(struct limit *l);

/* ---- the walk ---------------------------------------------------------------------------------------------------------- */

/* One crew's whole run; returns an exit status. */
int perf_sweep(struct crew *c);

double perf_now(void); /* seconds, CLOCK_MONOTONIC */

#endif
