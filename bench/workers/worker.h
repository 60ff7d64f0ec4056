/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h - one rank of one implementation, told by bench/bench.py what to measure. worker.c speaks with the driver, makes
 * and checks the data and takes the times; each implementation gives the functions below in a file of its own, so that
 * all are measured by the same code. Nothing of an implementation is called between measurements: whoever is not measured
 * sleeps on the driver's socket.
 */
#ifndef BENCH_WORKER_H
#define BENCH_WORKER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum coll { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL, SEND_RECV, BARRIER, COLLS };

/* count: float32 elements of what a rank contributes to one peer: the vector of all_reduce, broadcast (root 0) and send_recv
 * (to the next rank, from the one before, at once); one block of all_gather, reduce_scatter and all_to_all. */
struct call { enum coll coll; const float *send; float *recv; size_t count; int in_place; };

/* Join; sets rank and size, which are -1 before if the launcher did not say. 0, or not with a sentence on stderr. */
int peer_join(int *rank, int *size);
/* NULL, or why this call cannot be measured here. Called before the first peer_call of a measurement. */
const char *peer_prepare(const struct call *call);
/* Once, until the result is there. 0, or not. */
int peer_call(const struct call *call);
void peer_barrier(void);
/* Memory of the implementation's own kind, if it has one: worker.c has the two of those that have none. NULL if not. */
void *peer_memory(size_t bytes);
void peer_memory_free(void *p);
/* Name and version, without line ends. */
const char *peer_version(void);
void peer_leave(void);

/* For those without a launcher of their own: every rank gives `bytes`, all get all, in the order of ranks. */
int worker_exchange(int rank, int size, const void *mine, size_t bytes, void *all);
/* A pointer to the value of BENCH_name, or `other`. */
const char *worker_setting(const char *name, const char *other);

#ifdef __cplusplus
}
#endif
#endif
