/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.h - what the two files of the NCCL reader share: one line, its frame taken apart. */
#ifndef UNO_DOCTOR_NCCL_H
#define UNO_DOCTOR_NCCL_H

#include "reader.h"

struct nccl_line {
    const struct line *line;
    const char *host;
    int64_t pid;
    int dev;
    bool warn;
    const char *where; /* file:line of a warning, "" if none */
    const char *msg;
};

/* A fact of this line with host, process and device filled. */
struct fact nccl_fact(const struct nccl_line *n, enum fact_kind kind);

/* Network and memory messages: true = known. */
bool nccl_network(struct model *m, const struct nccl_line *n);

/* A message of NCCL that something else prints without its frame (PyTorch's "Last error:"). */
void nccl_message(struct model *m, const struct line *l, const char *msg);

#endif
