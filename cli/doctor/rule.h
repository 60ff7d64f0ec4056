/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rule.h - what a rule is given and how it says what it found. A rule looks at facts of the model alone and keys on what they are, never on a
 * file, a host's name or a number of some job. Each has its line in rules.def.
 */
#ifndef UNO_DOCTOR_RULE_H
#define UNO_DOCTOR_RULE_H

#include "model.h"
#include "query.h"
#include "scan.h"

enum { EVIDENCE = 12, SENTENCES = 10 };

/* How near to the root of things a finding is; the first of a report is the one with most. Differences below ten order findings of a kind. */
enum weight {
    ADVICE = 20,      /* would be better otherwise, and need not be why the job failed */
    SYMPTOM = 40,     /* somebody saw that something is wrong elsewhere */
    LIKELY = 60,      /* the cause, unless something nearer is found */
    CAUSE = 80,       /* the input itself says so */
};

struct finding {
    const char *kind, *rule;
    const char *headline, *explanation;
    const struct fact *evidence[EVIDENCE];
    const char *consequences[SENTENCES], *remedies[SENTENCES];
    int evidence_count, evidence_more, consequence_count, remedy_count;
    int weight;
    double confidence;
    bool folded; /* into another, which it follows from */
    struct finding *next;
};

struct judge {
    struct model *m;
    struct finding *first, *last;
    size_t count;
    const struct rule *rule; /* the one that runs */
    struct scene *scene;     /* scene.c keeps it here */
};

struct rule {
    const char *kind, *name, *what, *source;
    void (*run)(struct judge *j);
};

extern const struct rule rules[];

/* A finding of the rule that runs. */
struct finding *find(struct judge *j, int weight, double confidence, const char *headline, ...) __attribute__((format(printf, 4, 5)));
void explain(struct judge *j, struct finding *f, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void evidence(struct finding *f, const struct fact *fact);
void evidence_all(const struct judge *j, struct finding *f, enum fact_kind kind); /* every fact of that kind */
void consequence(struct judge *j, struct finding *f, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* What to do; commands stand between back quotes, and what is put into one by %s is quoted as a shell needs it (remedy.c). */
void remedy(struct judge *j, struct finding *f, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same of a text that is made already, with shell_word where something stands in a command. */
void remedy_made(struct finding *f, const char *text);
/* s as a word of a command; in_quotes: it stands between quotes of the command already. */
const char *shell_word(struct model *m, const char *s, bool in_quotes);

/* A GPU call that failed over shared memory: rules_machine.c knows it, rules_dead.c leaves it alone. */
bool is_of_shared_memory(const struct fact *gpu_failure);

/* Has another rule found what could be wrong, and not only what would be better otherwise? */
bool anything_found(const struct judge *j);

/* Run every rule, fold consequences, put the first cause first. */
void judge_all(struct judge *j, struct model *m);

#define RULE(kind, function, what, source) void function(struct judge *j);
#include "rules.def"
#undef RULE

#endif
