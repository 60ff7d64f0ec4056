/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_board.h - the board of a process: one memfd a joined job that says who it is, which communicators it has and where their
 * regions are, which programs and libraries its addresses lie in, and where stacks of its threads are put when somebody asks. Every
 * process of the host maps it at joining; who maps it can read it after a kill -9. Private to src/watch; others see watch_board as
 * a name.
 */
#ifndef UNO_WATCH_BOARD_H
#define UNO_WATCH_BOARD_H

#include <pthread.h>

#include "watch/watch.h"
#include "watch/watch_notice.h"

#define BOARD_MAGIC 0x6472616f62756eull
#define BOARD_COMMS 512           /* the oldest destroyed ones make room; more than that alive are not listed, and counted */
#define BOARD_MODULES 96
#define BOARD_FRAMES 48
#define BOARD_STACKS_OFF (-1)
#define BOARD_STACKS 2            /* the thread that waits in our calls or did last, and the main thread */
#define BOARD_POSITION_BYTES 160

enum board_state { BOARD_FREE = 0, BOARD_LIVE, BOARD_DESTROYED };
struct board_comm {
    _Atomic uint32_t state;       /* enum board_state; LIVE is a release store after the rest, pairs with the acquire of readers */
    int32_t rank;
    uint64_t id;
    uint64_t gone_ns;
    struct net_segment_ref region;
};

struct board_module { uint64_t start, end, offset; char name[40]; }; /* executable mappings, by address; name without its folder */

enum board_stack_state { STACK_FREE = 0, STACK_CLAIMED, STACK_WANTED, STACK_READY };
struct board_stack {
    _Atomic uint32_t state;       /* CLAIMED by compare-and-swap; WANTED and READY are release stores */
    int32_t tid;
    uint64_t claimed_ns;          /* who claimed it and died gives it up after a while */
    uint32_t frames;
    uint64_t pc[BOARD_FRAMES];    /* top first */
};

struct board_page {
    uint64_t magic;
    uint32_t version, bytes;
    uint64_t job;
    int32_t rank, size;           /* of the job; rank -1: all ranks are in this process */
    int32_t pid;
    uint32_t uid;
    uint64_t start_ticks, made_ns;
    uint64_t start_stack;         /* differs after exec; 0 = not known */
    char hostname[64], program[64];
    char cgroup[256];             /* its folder; "" = not known */
    uint64_t oom_kills;           /* counted in memory.events of that cgroup at joining */
    _Atomic int32_t stack_signal; /* 0 = somebody else took the signal; BOARD_STACKS_OFF */
    _Atomic uint32_t changes;     /* of comms; release, pairs with the acquire in records_refresh */
    _Atomic uint32_t unlisted;    /* communicators that had no room */
    _Atomic uint32_t goodbye;     /* not 0: its owner has left the job in order. Release store, read by who sees the process end */
    _Atomic int32_t steward_tid;  /* release store, pairs with the acquire in want_position; 0 = it does not run */
    _Atomic uint32_t position_wanted; /* how often somebody asked where the program is; release, pairs with records_serve */
    _Atomic uint32_t modules_seq, position_seq; /* odd while being written, as the notes of a ledger */
    uint32_t nmodules;
    struct board_module modules[BOARD_MODULES];
    char position[BOARD_POSITION_BYTES];
    uint64_t position_ns;
    struct board_stack stacks[BOARD_STACKS];
    struct board_comm comms[BOARD_COMMS];
    struct steward_page steward;
};

struct watch_board {              /* the owner's handle */
    struct net_segment *segment;
    struct board_page *page;
    pthread_mutex_t lock;         /* writers of comms, modules, position */
};

uint32_t watch_boards(void); /* how many this process has */
/* Is a mapped page what it should be? The reader checks once, and later trusts only sizes that it has checked. */
bool board_page_check(const struct board_page *p, uint64_t bytes);
/* Who else holds this board open: processes that its owner had forked, which inherit the descriptor under its number. Fills pids with
 * the first of them, lowest first; returns how many there are. Reads all of /proc. */
uint32_t board_holders(const struct net_segment_ref *board, int32_t *pids, uint32_t most);
/* "libfoo.so+0x1234"; "0x7f..." when no module holds it. Returns buf. */
char *board_site(const struct board_page *p, uint64_t address, char *buf, size_t buf_bytes);
/* Ask the program where it is (uno_set_position_callback) and put it on the board. */
void board_position(struct watch_board *b);
/* Copy a text of the page that its owner may be writing. */
void board_position_read(const struct board_page *p, char *buf, size_t buf_bytes, uint64_t *since_ns);

#endif
