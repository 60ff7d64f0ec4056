/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes.h - who did what last, and since when: one lane a rank (or a process or host whose rank is not known), put together from operations,
 * watchdogs, traces, RAS and errors. Where there are many, those that stand alike are one lane. It judges nothing; the page draws it.
 */
#ifndef UNO_DOCTOR_LANES_H
#define UNO_DOCTOR_LANES_H

#include "rule.h"

enum lane_state {
#define LANE_STATE(name, class, words) LANE_##name,
#include "lanes.def"
#undef LANE_STATE
    LANE_STATES
};

struct lane_look {
    const char *class, *words;
};
extern const struct lane_look lane_looks[LANE_STATES];

enum { LANE_MARKS = 6, LANE_BARS = 48, LANES_APART = 32, LANES_SHOWN = 64 };

struct lane_mark {
    const char *words;
    const struct fact *fact;
    double at; /* 0 = not known */
};

struct lane_bar { /* an operation */
    double from, to; /* to: 0 = open */
    enum lane_state state;
    const char *words;
};

struct lane {
    const char *key;
    int rank; /* NOBODY: `name` says who it is */
    struct ranks ranks; /* all that stand alike; the lane itself when it stands alone */
    int others;         /* processes without a rank that stand like it */
    const char *name, *place;
    enum lane_state state;
    const char *does, *site; /* in words */
    int64_t number;          /* operation it stands in, or came to; NOBODY = not known */
    int of;                  /* size of the group that misses it */
    double since;            /* earliest of those that stand alike; 0 = not known */
    struct lane_mark marks[LANE_MARKS];
    int mark_count, marks_more;
    struct lane_bar *bars;
    int bar_count, bar_cap;
};

struct lane_cell {
    const char *name;
    enum lane_state state;
};

struct lanes {
    struct lane *v;
    int count;
    int heard; /* lanes before any were put together */
    struct lane_cell *cells; /* one for each of those, in order of rank */
    bool timed; /* from and to are times that can be drawn */
    double from, to;
    int64_t low, high; /* operation numbers; NOBODY = none */
};

/* Lives as long as the model. NULL when there is nothing to draw. */
struct lanes *lanes_of(struct judge *j);

#endif
