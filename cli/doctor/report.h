/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - the communication topology: which GPUs reach each other over what, with which bandwidth, which network card each takes, GPUDirect or
 * not. One report a source: a topology file (this machine's is made as one), the tables of nvidia-smi and rocm-smi a host, the logs of a job.
 */
#ifndef UNO_DOCTOR_REPORT_H
#define UNO_DOCTOR_REPORT_H

#include "model.h"

enum told { TOLD_NO, TOLD_YES, NOT_TOLD };

struct report_pair {
    const char *a, *b;
    const char *word, *over; /* "NVL", "12 NVLinks" */
    double gbs;              /* one way; 0 = the source does not tell */
    enum told direct;        /* GPUs write to each other's memory, without host memory between */
};

struct report_card {
    const char *gpu, *card;
    const char *word;
    double gbs, port_gbs; /* of the path; of the port. 0 = not told */
    enum told gpudirect;
    bool nearest;         /* it is one of those that this GPU takes */
};

struct report {
    const char *source, *what; /* what: one line of what was read */
    const char **gpus, **gpu_notes;
    int gpu_count;
    struct report_pair *pairs;
    int pair_count;
    struct report_card *cards;
    int card_count;
    struct report *next;
};

/* All that the model has. Memory is the model's; NULL = it has none. */
struct report *report_all(struct model *m);

/* Print them for people: -v every pair, else pairs that are alike together. */
void report_print(const struct report *first, bool verbose);

/* As JSON, a list; malloc'ed. */
char *report_json(const struct report *first);

#endif
