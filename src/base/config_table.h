/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_table.h - private to base/config*.c: config.def as rows, one value as a variant, and the foreign grammars.
 */
#ifndef UNO_BASE_CONFIG_TABLE_H
#define UNO_BASE_CONFIG_TABLE_H

#include "base_config.h"

enum cfg_kind { CFG_KIND_BOOL, CFG_KIND_INT, CFG_KIND_BYTES, CFG_KIND_SECONDS, CFG_KIND_WORD, CFG_KIND_STRING };

struct cfg_entry {
    enum cfg_kind kind;
    size_t offset;              /* in struct config */
    const char *name;           /* "UNISONO_TIMEOUT" */
    double dflt_seconds, min_seconds, max_seconds;
    int64_t dflt, min, max;     /* BOOL, INT, BYTES */
    const char *text;           /* default of WORD and STRING */
    const char *words;          /* WORD: comma list */
    const char *nccl;           /* foreign names, comma list */
    const char *help;
    bool compare;
};
extern const struct cfg_entry cfg_table[];
extern const size_t cfg_count;

union cfg_value { bool b; int64_t i; uint64_t u; double s; int w; const char *t; };

/* An UNISONO_ value, strictly. UNO_ERR_CONFIG with a sentence that lists what is legal. *value's text is s itself or static. */
uno_err cfg_parse(const struct cfg_entry *e, const char *s, union cfg_value *value);
void cfg_print(const struct cfg_entry *e, union cfg_value value, struct text *out);
const struct cfg_entry *cfg_find(const char *name);
/* Number of a word in a comma list, without case; -1 if it is not there. */
int cfg_word_index(const char *words, const char *word, size_t len);
/* Keep a copy of s for the life of the process; equal strings are kept once. NULL: no memory. */
const char *cfg_keep(const char *s);

/* A foreign variable in its own grammar. false: it means nothing here, the row's next source decides. note: "" or what should
 * be said about it. Never fails a job. */
struct cfg_note { char s[300]; };
bool cfg_foreign(const struct cfg_entry *e, const char *name, const char *s, union cfg_value *value, struct cfg_note *note);

/* Where a row's value comes from: an environment name, or "program", "default". Foreign names only if read_nccl. */
struct cfg_source { const char *name; union cfg_value value; };
uno_err cfg_resolve(const struct cfg_entry *e, const struct config_program *program, bool read_nccl, struct cfg_source *out);
uno_err cfg_read_nccl(bool *yes);

#define CFG_ALGOS "flat,flat2,ring,tree,hd,two_level"
#define CFG_TOPICS "init,coll,p2p,net,plan,env,mem,boot,watch,topo"

#endif
