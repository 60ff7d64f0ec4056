/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - what readers write and rules read: facts, each with the file and line it stood in. A fact that is seen again counts, it is not
 * kept twice; so a log repeated a hundred times, or a gigabyte of it, is as small as what it says.
 */
#ifndef UNO_DOCTOR_MODEL_H
#define UNO_DOCTOR_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fact_kind {
#define FACT(name, slots) F_##name,
#include "facts.def"
#undef FACT
    FACT_KINDS
};

enum { NOBODY = -1 }; /* a rank, device or process that the line does not name */

/* What the slots mean is said for each kind in facts.def. Strings are interned: equal strings are the same pointer; never NULL ("" = not
 * said). They live as long as the model. */
struct fact {
    enum fact_kind kind;
    int rank, peer, dev;
    int64_t pid;
    const char *host; /* or what stands for one: a pod, a section of a pasted file */
    const char *name, *value, *extra, *more;
    int64_t a, b, c, d;
    double x;
    /* What is newest of many alike lines (the last operation of a process): not part of what makes two facts the same. */
    bool newest;
    int64_t last_number, last_count;
    const char *last_word;
    const char *file;
    long line;
    const char *text; /* the line itself, cut */
    double time_s;    /* seconds of whatever clock the line carries; 0 = none */
    unsigned long order;
    unsigned long count;
    struct fact *next;
    struct fact *same_hash;
};

struct note {
    const char *text;
    struct note *next;
};

struct model {
    struct fact *first[FACT_KINDS], *last[FACT_KINDS];
    unsigned long counted[FACT_KINDS];
    unsigned long kept, dropped; /* facts kept; facts not kept because there were too many of their kind */
    unsigned long lines, files;
    struct note *notes, *last_note; /* what could not be read, and why */
    unsigned long unreadable;
    bool reading_done; /* what rules say is kept, however much was read */
    struct arena_block *blocks;
    size_t arena_bytes;
    struct string **strings;
    size_t string_slots, string_count;
    struct fact **facts;
    size_t fact_slots;
    struct topo_kept *topologies; /* paths.c keeps here what it found of each topology file */
};

#define EACH_FACT(model, kind, f) for (const struct fact *f = (model)->first[kind]; f; f = f->next)

struct model *model_new(void);
void model_free(struct model *m);

/* Memory that lives as long as the model, zeroed. Ends the program with a sentence when there is none: a tool has nothing better to do. */
void *model_alloc(struct model *m, size_t bytes);

/* The one copy of a string. Control characters become '?'. */
const char *model_string(struct model *m, const char *s, size_t bytes);
const char *model_words(struct model *m, const char *s);

/* A formatted string, interned too. */
const char *model_say(struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A fact of this kind with nothing in it, to be filled and given to model_add. */
struct fact fact_of(enum fact_kind kind);

/* Keep a fact, or count the one there is that says the same (equal in all slots but place and time). Returns what is kept, NULL if there
 * were too many. */
struct fact *model_add(struct model *m, const struct fact *f);

/* A sentence about input that was not read, or not wholly. */
void model_note(struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
