/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_inner.h - the steward's state, shared by the files of this folder: watch.c has the thread and its commands, watch_peers.c who
 * lives and who is told, watch_hosts.c who speaks for a host, watch_inquiry.c what is said.
 * Everything but the command queue belongs to the steward's thread.
 */
#ifndef UNO_WATCH_INNER_H
#define UNO_WATCH_INNER_H

#include <pthread.h>

#include "watch/watch.h"
#include "watch/watch_board.h"
#include "watch/watch_door.h"
#include "watch/watch_ends.h"
#include "watch/watch_frame.h"
#include "watch/watch_post.h"
#include "watch/watch_process.h"
#include "watch/watch_report.h"

enum peer_state { PEER_ALIVE = 0, PEER_LEFT, PEER_DEAD };

struct peer {                 /* one per process of the job, in the order of their lowest ranks */
    int process;              /* that lowest rank */
    enum peer_state state;
    struct process_eye eye;   /* processes of this host but our own; pidfd -1 otherwise */
    bool proved;              /* ended or left, for certain: its own host saw it, or it said so */
    bool polled;              /* no pidfd: looked at every POLL_NS */
    uint64_t ended_ns;        /* its end was seen then, how it ended is not known yet; 0 = no */
    uint64_t suspect_ns;      /* all its connections ended then without goodbye; 0 = no */
    char suspect_text[200];
    uint64_t told_ns;         /* its launcher says that it has ended, and nobody else does; first seen then, 0 = no */
    struct net_link *link;    /* NULL until something was sent */
    bool unlinkable;          /* there is no way to it; said once */
    bool broken;              /* because the protocol was broken, which is no matter of the network */
    struct inbox {            /* the message that comes from it in parts */
        uint32_t id;
        uint8_t kind;
        size_t total, have, cap; /* have 0: none */
        unsigned char *data;
    } inbox;
    struct records records;   /* processes of this host, our own too */
    char text[FRAME_TEXT_BYTES]; /* PEER_DEAD, PEER_LEFT: the sentence */
    uint64_t gone_ns;         /* PEER_DEAD, PEER_LEFT: when that was learned */
    /* processes of this host */
    uint32_t beat, stalled, resumed, notices; /* as last seen there */
    uint64_t hurry;
    uint64_t beat_ns;         /* when `beat` last changed */
    bool mute;                /* its steward does not run: stopped, frozen, starved */
    bool starves;             /* the hub, whose control group gives it hardly a processor: it cannot speak for anybody */
};

struct moved { uint64_t at_ns, bytes, busy_us, behind_us; }; /* sums up to a moment, as steward_page.moved; at_ns 0: none */
enum host_state { HOST_HEARD = 0, HOST_MUTE /* its kernel answers, its hub does not */, HOST_SILENT };
struct host {                 /* what the hub knows of another host */
    int hub;                  /* index of the peer that says it is the hub there */
    uint32_t generation;
    bool heard;               /* ever */
    enum host_state state;
    bool linked;              /* scratch of link_hubs */
    bool told, failed;        /* SILENT: it was said; communicators were told to fail */
    uint64_t heard_ns;        /* when something last came from there; before that, when that could first be expected */
    uint64_t beat_ns;         /* when the next heartbeat goes there */
    int turn;                 /* whose turn it is to be asked while the hub there is silent */
    uint64_t answered_ns;     /* a heartbeat of theirs was last answered by us, who are not the hub */
    uint64_t sent_ns, sent_at_ns; /* their newest heartbeat: their clock, and ours when it came */
    bool offset_known;        /* our clock = theirs + offset_ns, within error_ns; measured at offset_at_ns */
    int64_t offset_ns;
    uint64_t error_ns, offset_at_ns;
    struct moved moved[TIMES_KEPT]; /* sums of this host's processes at the last ticks, the newest first */
    struct moved slow;        /* since then more lay ready all the time, and it moved far less than it had done; at_ns 0: not so */
    struct moved seen_slow;   /* when that was seen */
    uint64_t measured_bps, best_bps; /* over sockets to there: lately while there was much to send, and the most so far; 0 = never */
    struct net_link_facts facts; /* of the way to its hub, when it was last looked at */
};
struct owed { struct peer *to; uint32_t number; uint64_t ready_ns; }; /* a hub waits for our host's reports; ready_ns 0: nobody */
struct gather {               /* the facts of all ranks, while they are collected */
    bool runs;
    bool own;                 /* this host's ranks are in facts */
    uint32_t number;          /* of all that this process ever began */
    bool *asked;              /* by host: its answer is missing */
    int nasked;
    uint64_t deadline_ns;
    struct verdict_facts facts; /* while it runs */
};
struct answer {               /* what tools of this host ask, and what they are answered */
    struct gather gather;
    uint32_t served, looked;  /* page->questions and page->looks when one was last taken up */
    struct net_segment *segment; /* the last answer, for a while */
    uint64_t forget_ns;
};
struct inquiry {
    uint64_t stall_ns;        /* somebody was last said to be stalled; 0 = never */
    uint64_t own_stall_ns;    /* ... on this host */
    bool resumed;             /* somebody who was stalled went on */
    uint64_t resumed_ns;      /* first seen then */
    uint64_t tell_root_ns;    /* not before */
    /* as the root */
    struct gather gather;
    uint64_t next_ns, step_ns;
    uint64_t hurry_ns;        /* somebody's deadline was said to be near; 0 = it is not */
    uint32_t hurry_ms;        /* what counts as a stall there */
    uint64_t judge_ns;        /* what counts as one in the inquiry that runs */
    bool told, told_fault, told_pace; /* the last: others went on at a slow one's pace */
    uint64_t told_identity[8]; /* what was said since things last went on: facts that take turns are not repeated */
    int ntold;
    uint64_t told_since_ns;
    char told_kind[32];
    uint64_t guess_identity, guess_since_ns, guess_at_ns; /* a verdict that is a guess: made first then, and at every inquiry since, last then */
    uint32_t said;            /* number of the last sentence from here */
    int32_t heard_origin;     /* the last one from elsewhere */
    uint32_t heard_number;
    uint32_t heard_identity[8]; /* faults that anybody has told this host since things last went on: a new root does not repeat them */
    int nheard;
    uint64_t heard_ns, fresh_ns;
};
struct pair { int32_t a, b; };/* hosts that do not reach each other, as somebody said; a < b */

enum command_kind { COMMAND_ABORT, COMMAND_CONTROL, COMMAND_DOWN, COMMAND_TELL };
struct command {              /* from other threads to the steward */
    struct command *next;
    enum command_kind kind;
    int from;                 /* CONTROL, DOWN; TELL: to whom */
    uint8_t message;          /* TELL */
    uint64_t when_ns;         /* CONTROL: when it came */
    enum net_down how;        /* DOWN */
    int nranks;               /* ABORT: members[nranks] */
    int *ranks;
    struct frame frame;       /* ABORT: ready to send; DOWN: only its text */
    size_t bytes;             /* CONTROL, TELL: data[bytes] */
    unsigned char data[];
};

struct watch {
    /* any thread */
    pthread_mutex_t lock;     /* protects first and last */
    struct command *first, **last;
    int bell;                 /* eventfd: wakes the steward */
    _Atomic bool stop;        /* release in watch_stop, pairs with the acquire in the steward's loop */
    _Atomic bool leaving;     /* no more reports; relaxed, nothing else depends on it */
    _Atomic bool left;        /* the steward has seen that */
    _Atomic bool forked;      /* in a child: every call does nothing; set before any other thread of the child exists */
    bool running;
    pthread_t thread;
    /* the steward's */
    struct watch_options opt;
    struct watch_member *members;
    struct peer *peers;
    int npeers, self;         /* self: index of the own process */
    int epoll, net_fd;
    uint64_t caller_tick_ns;  /* opt.on_tick wants to be called then */
    uint32_t message_id;      /* of the last message sent */
    struct ends *ends;        /* what the launcher tells; NULL = nothing */
    uint32_t ends_seen;       /* ends_changes when that was last looked at */
    struct steward_page *page, *private_page; /* own; private: there is no board */
    struct host *hosts;       /* by host index; the own one is not used */
    int nhosts, own_host;
    bool hub;                 /* this process is its host's hub */
    uint64_t tick_ns;         /* next look at boards and hosts */
    uint64_t woke_ns;         /* the steward's loop was here last */
    uint64_t beat_step_ns, tick_step_ns, suspect_timeout_ns, stall_ns;
    struct pair pairs[64];
    int npairs;
    struct owed owed[4];
    uint32_t gathers;         /* begun so far */
    struct inquiry inquiry;
    struct answer answer;
    uint64_t times_ns, rates_ns; /* next times_tick, rates_tick */
    struct own_moved { struct moved sum; bool more; } moved[STEWARD_HOSTS]; /* this process's, at the last rates_tick */
    int npolled;
    uint64_t poll_ns;         /* next look at the polled ones */
    uint64_t prove_ns;        /* next look whether pidfds are the right processes' */
    bool boards_open;         /* records_open was called */
    uint64_t records_ns;      /* next records_tick */
    uint64_t look_ns;         /* when the last look was begun; 0 = never */
    struct stacks *stacks;    /* of the look of stacks_look_ns, or one before that still stands; NULL = none */
    uint64_t stacks_look_ns;
    uint32_t position_served;
    const char *ledger_dir;   /* "" = nothing is saved */
    uint64_t post_ns;         /* ledgers are saved then; 0 = nothing to save */
    bool post_again;          /* ... and once more, when more is known */
    _Atomic bool post_due;    /* something is to be saved before the process ends; relaxed, watch_goodbye looks at it */
    uint64_t alone_ns;        /* next look whether the program has threads left */
    struct door door;         /* for tools of this user */
    uint64_t net_again_ns;    /* net's descriptor counts again from then on; 0 = it does */
    uint64_t net_idle_ns;     /* net is served then even if nothing fires */
};

#define DOOR_TAG(which) (-4 - (which)) /* epoll data of the door's sockets */
#define STEWARD_TICK_NS 250000000ull /* between beats, at most */
#define POLL_NS 100000000ull    /* between looks at /proc without pidfds */
#define PROVE_AFTER_NS 300000000ull
#define PROVE_STEP_NS 20000000ull
#define PROVED_AT_ONCE 8
#define BOARDS_AT_ONCE 4        /* processes of a host that map all boards when they begin */
#define HOW_NS 30000000ull      /* so long the steward waits to learn how a process ended */
#define HOW_STEP_NS 3000000ull
#define TOLD_NS 100000000ull    /* ... before its launcher's word is passed on: it knows more */
#define TOLD_STEP_NS 10000000ull
#define SUSPECT_NS 600000000ull /* so long a host's hub has to say what became of a process whose connections ended */

/* watch_peers.c, on the steward's thread. */
uno_err peers_new(struct watch *w);             /* the table; needs opt and members */
void peers_free(struct watch *w);
void peers_watch(struct watch *w);              /* begin: pidfds, links between hubs */
void peers_event(struct watch *w, int index);   /* a pidfd fired */
void peers_timers(struct watch *w, uint64_t now);
void peers_look(struct watch *w);          /* the last look at those of this host */
uint64_t peers_next_ns(const struct watch *w);  /* when peers_timers has something to do; UINT64_MAX = never */
void peers_frame(struct watch *w, int from, const void *data, size_t bytes, uint64_t when_ns);
struct peer *peer_find(struct watch *w, int process); /* NULL = there is none */
bool peer_told_end(const struct watch *w, const struct peer *p, uno_end *end); /* what its launcher says of its end; false: nothing */
bool peer_is_local(const struct watch *w, const struct peer *p);
void peer_name(const struct watch *w, const struct peer *p, char *buf, size_t buf_bytes);
/* One control frame; drops what cannot be sent, and says so once. */
bool peer_send(struct watch *w, struct peer *to, const void *data, size_t bytes);
void peers_down(struct watch *w, int from, enum net_down how, const char *text);
void peers_abort(struct watch *w, const struct frame *f, const int *ranks, int nranks);

void peers_link_hubs(struct watch *w);          /* as the hub: to other hosts' hubs, if there is no link yet */
void peers_hub_changed(struct watch *w);        /* we are the hub now: say what the one before may have left unsaid */

/* watch_hosts.c: who is a host's hub, and which hosts are heard. */
uno_err hosts_new(struct watch *w);
void hosts_free(struct watch *w);
void hosts_leave(struct watch *w, uint64_t now); /* before the process leaves */
void hosts_begin(struct watch *w);
void hosts_late(struct watch *w, uint64_t late_ns, uint64_t now); /* we did not run for so long: silence was ours */
void hosts_timers(struct watch *w, uint64_t now);
uint64_t hosts_next_ns(const struct watch *w);
bool hosts_is_hub(const struct watch *w);
int hosts_hub_here(const struct watch *w);      /* index of the peer that is this host's hub */
void hosts_heard(struct watch *w, const struct peer *from, uint64_t when_ns); /* anything came from there */
uno_err hosts_beat(struct watch *w, const struct peer *from, const void *data, size_t bytes, uint64_t when_ns);
void hosts_pair_said(struct watch *w, const struct peer *from, const void *data, size_t bytes);
struct peer *hosts_hub_of(struct watch *w, int host); /* whom to tell what is for that host; NULL = nobody is left there */
/* "hosts a (ranks 0-1) and b (ranks 2-3) do not reach each other ..." */
void hosts_pair_text(const struct watch *w, int host, uint64_t now, char *buf, size_t buf_bytes);

/* watch_inquiry.c: what is going on, and what is said of it. */
void inquiry_notice(struct watch *w, const struct notice *n); /* from any process of this host */
void inquiry_message(struct watch *w, struct peer *from, uint8_t kind, const void *data, size_t bytes);
void inquiry_page(struct watch *w, struct peer *p, const struct steward_page *page, uint64_t now); /* at every tick, for all here */
void inquiry_timers(struct watch *w, uint64_t now);
void inquiry_late(struct watch *w, uint64_t late_ns); /* we did not run for so long */
bool inquiry_pending(const struct watch *w);
void inquiry_free(struct watch *w);

/* watch_gather.c: the facts of all ranks. */
/* What was collected before is forgotten. look: what all processes do now belongs to it; else their ledgers alone. UNO_ERR_MEMORY. */
uno_err gather_begin(struct watch *w, struct gather *g, bool look, uint64_t now);
/* To be called when time passes. true: g->facts is as full as it gets; gather_end when they are not needed any more. */
bool gather_done(struct watch *w, struct gather *g, uint64_t now);
void gather_end(struct gather *g);
void gather_asked(struct watch *w, struct peer *from, const void *data, size_t bytes);
void gather_answered(struct watch *w, struct gather *g, const struct peer *from, uint8_t kind, const void *data, size_t bytes);
void gather_timers(struct watch *w, uint64_t now); /* what this host owes others */
uint64_t gather_next_ns(const struct watch *w);

/* watch_answer.c: a tool of this host asks for the facts of all ranks (steward_page.questions). */
void answer_timers(struct watch *w, uint64_t now);
uint64_t answer_next_ns(const struct watch *w);
void answer_free(struct watch *w);
/* The other side: copy the newest answer of a process; *data is freed with free(). UNO_ERR_UNREACHABLE: it is gone. */
uno_err answer_copy(const struct peer *p, void **data, size_t *bytes);

/* watch_times.c: what is seen over seconds. */
void times_tick(struct watch *w, uint64_t now);  /* at every round: who gets no processor? */
void times_fill(const struct records *rec, int32_t pid, uint64_t now, struct verdict_process *v); /* ... and for how long, to what share */
void rates_tick(struct watch *w, uint64_t now);  /* at every round: how fast do sockets to other hosts move what they are given? */
void rates_fill(const struct host *host, struct verdict_link *l); /* ... lately, and since when too slowly */

/* watch_message.c: messages longer than a frame. */
enum { MESSAGE_PAIR = 1, MESSAGE_STALL, MESSAGE_RESUMED, MESSAGE_INQUIRE, MESSAGE_REPORT, MESSAGE_REPORTED, MESSAGE_VERDICT, MESSAGE_HURRY };
/* the stewards' own kinds, below WATCH_MESSAGE_FIRST */
void message_send(struct watch *w, struct peer *to, uint8_t kind, const void *data, size_t bytes);
/* A part came. UNO_ERR_PARSE: it does not fit to what came before; what was there is forgotten. */
uno_err message_part(struct watch *w, struct peer *from, const void *data, size_t bytes);
void message_forget(struct peer *p);

#endif
