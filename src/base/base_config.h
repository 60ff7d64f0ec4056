/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base_config.h - every setting of the system, from one table (config.def).
 *
 * Order: UNISONO_X, then the program, then NCCL_X / RCCL_X as mapped in the table, then the default. UNISONO_ values are
 * strict; NCCL_/RCCL_ values are read in that library's own grammar and never fail a job.
 */
#ifndef UNO_BASE_CONFIG_H
#define UNO_BASE_CONFIG_H

#include "base.h"

/* One field a row of config.def, named as the row, with the type of its kind:
 *   BOOL -> bool, INT -> int64_t, BYTES -> uint64_t, SECONDS -> double, WORD -> int (index in the row's word list),
 *   STRING -> const char * (owned by the table, lives for the process). */
struct config {
#define CFG_BOOL(id, name, dflt, compare, nccl, help) bool id;
#define CFG_INT(id, name, dflt, min, max, compare, nccl, help) int64_t id;
#define CFG_BYTES(id, name, dflt, min, max, compare, nccl, help) uint64_t id;
#define CFG_SECONDS(id, name, dflt, min, max, compare, nccl, help) double id;
#define CFG_WORD(id, name, dflt, words, compare, nccl, help) int id;
#define CFG_STRING(id, name, dflt, compare, nccl, help) const char *id;
#include "config.def"
#undef CFG_BOOL
#undef CFG_INT
#undef CFG_BYTES
#undef CFG_SECONDS
#undef CFG_WORD
#undef CFG_STRING
};

/* Read the environment into *cfg. `program` (may be NULL) holds the program's own values for timeout and the like.
 * UNO_ERR_CONFIG with a sentence that lists the legal values when an UNISONO_ value is illegal. */
struct config_program { double timeout_s, join_timeout_s; }; /* < 0 = not given */
uno_err config_load(struct config *cfg, const struct config_program *program);

/* A row seen from outside, for `unisono doctor --env`, docs tests and the join-time comparison. */
struct config_row {
    const char *name;       /* "UNISONO_TIMEOUT" */
    const char *kind;       /* "bool" "int" "bytes" "seconds" "word" "string" */
    const char *dflt;       /* as text */
    const char *legal;      /* as text: range or words */
    const char *nccl;       /* foreign names, comma separated, or "" */
    const char *help;
    bool compare;           /* ranks must agree; compared at join */
};
size_t config_rows(const struct config_row **rows);
/* Current value of row i as text and where it comes from ("default", "UNISONO_TIMEOUT", "NCCL_TIMEOUT", "program"). */
uno_err config_show(size_t row, struct text *value, const char **source);
/* Report of everything in the environment that begins with UNISONO_, NCCL_, RCCL_: one finding each. */
struct config_finding {
    char name[96];
    char value[128];
    enum { CONFIG_USED, CONFIG_UNKNOWN, CONFIG_ILLEGAL, CONFIG_NO_EFFECT, CONFIG_OVERRIDDEN } what;
    char text[384];         /* a sentence: what it does here, or the nearest real name, or the legal values */
};
uno_err config_audit(struct config_finding **findings, size_t *count); /* caller frees *findings */
/* One line on stderr for each UNISONO_ variable that has no effect or is misspelt; call it on one rank a host. */
void config_report(void);
uint64_t config_warnings(void);  /* the same where config_report warns of the same names; 0 = of none */
/* Set level, topics, label and file of the log from cfg. rank < 0: no label. UNO_ERR_CONFIG when the file cannot be opened. */
uno_err config_log(const struct config *cfg, int rank);
/* The text "NAME=value\n..." of all rows with `compare`, to exchange at join. */
uno_err config_fingerprint(const struct config *cfg, struct text *out);

#endif
