/* SPDX-License-Identifier: Apache-2.0 */
/* query.h - questions that several rules ask of a model: sets of ranks and words for them, who a process is, who belongs to a group. */
#ifndef UNO_DOCTOR_QUERY_H
#define UNO_DOCTOR_QUERY_H

#include "model.h"

/* Ranks in order, each once. Zeroed is empty; memory is the model's. */
struct ranks {
    int *v;
    int n, cap;
};

void ranks_add(struct model *m, struct ranks *r, int rank);
void ranks_add_list(struct model *m, struct ranks *r, const char *list); /* "0,1,5-7" */
bool ranks_has(const struct ranks *r, int rank);

/* "rank 3", "ranks 0, 3 and 7", "ranks 0-3": runs of three and more as a range. */
const char *ranks_say(struct model *m, const struct ranks *r);
/* The first for one rank, the second for several: "waits", "wait". */
const char *ranks_verb(const struct ranks *r, const char *one, const char *several);
const char *ranks_numbers(struct model *m, const struct ranks *r);
/* All of them as ranks_add_list reads them: "0-5,7". */
const char *ranks_list(struct model *m, const struct ranks *r);

/* Words, each once, in order of coming: hosts, names. */
struct names {
    const char **v;
    int n, cap;
    int *slots; /* of a hash over v, 2 * cap of them; 0 = free, else index + 1 */
};

void names_add(struct model *m, struct names *s, const char *name);
bool names_has(const struct names *s, const char *name);
int names_index(const struct names *s, const char *name); /* -1 = not there */
const char *names_say(struct model *m, const struct names *s); /* "a, b and c" */
const char *names_list(struct model *m, const struct names *s); /* "a,b,c" */

/* The rank of a process as its communicator's lines say, NOBODY if they do not. A process with several GPUs is told apart by `dev`. */
int rank_of(const struct model *m, const char *host, int64_t pid, int dev);

/* "rank 2 (GPU 1 on n7)" or what of it is known; the same as the beginning of a sentence. */
const char *who_says(struct model *m, const struct fact *f);
const char *Who_says(struct model *m, const struct fact *f);
const char *Ranks_say(struct model *m, const struct ranks *r);

bool same_text(const char *a, const char *b);
const struct fact *first_of(const struct model *m, enum fact_kind kind);
const struct fact *setting_of(const struct model *m, const char *name);
bool fact_seen(const struct model *m, enum fact_kind kind);

/* 1048576 -> "1 MiB", 3000 -> "3000 bytes" */
const char *bytes_say(struct model *m, int64_t bytes);

#endif
