/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floors.h - what two processes on two processors can reach without any library: prototypes of a float32 sum all-reduce,
 * and the hand-overs and copies they are made of. Stages: floors.c (options, report), floors_proto.c (the prototypes),
 * floors_machine.c (copies, sums, hand-overs).
 */
#ifndef UNO_BENCH_FLOORS_H
#define UNO_BENCH_FLOORS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RANKS = 2, LINE = 64, SLOTS = 2, CHUNK_MAX = 1 << 20 };

/* A line of 56 bytes of payload and its flag, written last. */
struct small_line { _Alignas(LINE) unsigned char payload[56]; _Atomic uint64_t flag; };

/* Mapped by both before the fork. Every flag is written by one process (release) and read by the other (acquire): what was
 * written before the flag is there when the flag is seen. */
struct shared {
    struct { _Alignas(LINE) _Atomic uint64_t value; } flag[RANKS];   /* steps finished, in step with each other */
    struct { _Alignas(LINE) _Atomic uint64_t value; } chunk[RANKS];  /* messages in slots */
    struct small_line line[RANKS][SLOTS];
    struct { _Alignas(LINE) _Atomic uint32_t value; } word;          /* for hand-overs; futex */
    _Atomic int failed;
    double seconds[RANKS];
    void *send[RANKS], *recv[RANKS];                                 /* addresses in the owner, for peer reads */
    int pid[RANKS];
    _Alignas(4096) unsigned char slot[RANKS][2][SLOTS][CHUNK_MAX];   /* [rank][way][slot] */
};

struct worker {
    struct shared *s;
    int rank, peer, cpu[RANKS];
    uint64_t steps, chunks, lines; /* so far; equal in both processes */
    float *send, *recv;            /* ordinary memory */
    float *map_send[RANKS], *map_recv[RANKS]; /* mapped by both */
    float *temp;                   /* CHUNK_MAX bytes, stays in the cache */
    bool can_read_peer;            /* process_vm_readv is allowed */
};

/* Wait until the other process has finished as many steps; ends the program with a sentence after 60 s. */
void step_together(struct worker *w);
void wait_for(struct worker *w, _Atomic uint64_t *flag, uint64_t value);
double now_seconds(void);

struct proto {
    const char *name;
    bool mapped;     /* works on memory that both have mapped */
    bool chunked;    /* takes a chunk size */
    bool reads_peer;
    size_t most_bytes; /* 0 = no limit */
    void (*run)(struct worker *w, size_t bytes, size_t chunk);
};
extern const struct proto protos[];
extern const int proto_count;

/* Microseconds of one run, the slower process's mean, median of `batches`; collective. Results are checked before and after:
 * *wrong counts elements. */
double proto_time(struct worker *w, const struct proto *p, size_t bytes, size_t chunk, int batches, uint64_t *wrong);

/* Collective; result valid in rank 0. name: static string, value in unit. */
struct machine_fact { const char *name, *unit; double value; };
int machine_facts(struct worker *w, struct machine_fact *facts, int most);

#endif
