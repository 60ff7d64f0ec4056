/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader.h - the contract of readers. A reader of lines sees every line of every text, stripped of colour and of what launchers put in
 * front; it keeps what it knows and says whether it knew the line. A reader of whole files is chosen by `sniff`.
 */
#ifndef UNO_DOCTOR_READER_H
#define UNO_DOCTOR_READER_H

#include "model.h"
#include "scan.h"

enum { LINE_BYTES = 64 << 10 }; /* what is longer is cut, and said */

/* One line of text as readers see it. */
struct line {
    const char *text; /* without colour, prefixes and line end */
    const char *raw;  /* without colour and line end */
    const char *file;
    long number;
    const char *host;  /* who says it: from the prefix, or the section it stands in; "" = not known */
    const char *owner; /* host, or "rank 3", or the section's words */
    int rank;          /* from the prefix; NOBODY = not known */
    int task;          /* number that a launcher put in front, which need not be the rank */
    int64_t pid;
    double time_s;
    bool cut; /* the text ends in it without a line end, so its last word may be a part of one */
};

/* What readers of lines remember from one line of a file to the next; each has its own part (see the files). Zeroed at each file. */
struct context {
    char host[128], section[160];
    int section_rank;
    char rccl[48]; /* version in RCCL's header, whose next lines name the host */
    long rccl_line;
    long stalled_line; /* where Horovod's list of stalled ranks begins; 0 = nowhere */
    int bench_columns; /* of the table of Gloo's benchmark that was begun; 0 = none */
    char bench_algorithm[48]; /* of Gloo's benchmark, and its processes; empty, 0 = not told */
    int64_t bench_processes;
    struct matrix_state *matrix;
    struct shell_state *shell;
    struct system_state *system;
    struct rdma_state *rdma;
    struct ras_state *ras;
    struct trace_state *trace;
};

struct reader {
    const char *name; /* as --help and notes call it */
    const char *help;
    /* Whole files: true when the first bytes look like this format. NULL for readers of lines. */
    bool (*sniff)(const char *head, size_t bytes);
    /* Read a whole file into the model; false with a sentence in `why` when it is not what it looked like. */
    bool (*read)(struct model *m, const char *file, const char *data, size_t bytes, char *why, size_t why_bytes);
    /* Read one line; true = known, later readers do not see it. */
    bool (*line)(struct model *m, struct context *c, const struct line *l);
    /* The file ends; whoever still holds something gives it to the model. May be NULL. */
    void (*end)(struct model *m, struct context *c, const char *file);
};

/* A fact at this line, with its owner. */
struct fact fact_at(const struct line *l, enum fact_kind kind);

/* Give it to the model; true, since the line was known. */
static inline bool fact_add(struct model *m, struct fact f)
{
    model_add(m, &f);
    return true;
}

/* What was found in a line, as a string of the model. */
static inline const char *span_words(struct model *m, struct span s)
{
    return model_string(m, s.p, s.n);
}

/* Strip prefixes and colour from `text` (in place), and say who spoke. */
void line_strip(char *text, struct context *c, struct line *l, struct model *m);

/* The reader of lines feeds a text through all of them. `more` returns bytes read, 0 at the end. */
typedef size_t (*read_bytes)(void *from, char *to, size_t bytes);
void lines_read(struct model *m, const char *file, read_bytes more, void *from);

extern const struct reader *const readers[];

#define READER(variable, text) extern const struct reader variable;
#include "readers.def"
#undef READER

#endif
