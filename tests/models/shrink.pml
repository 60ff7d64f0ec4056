/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who goes on after a failure (src/watch/watch_agree.c): one Paxos decision among N ranks that may die at any moment, and of whose
 * death the others hear late or never. A quorum is every member that is not known to be gone, or more than half of all, or exactly
 * half with rank 0; members known to be gone do not count as answers. Messages may be lost, repeated and late without limit: what was
 * once said stays readable, and nobody has to read it.
 *
 * Checked: two living ranks never know different decisions. Ballot 1 is rank 0's, 2 is rank 1's, with AGAIN there is 3, rank 0's; each
 * proposes another value when it is free to.
 *
 * Broken twins: NO_ADOPT proposes its own value although another was accepted, LOW accepts below what was promised, COUNT_DEAD lets
 * the answers of dead members stand for the living, GUESS takes a silent member for dead (as a closed connection would), HALF lets
 * any half decide, BELIEVE takes a dead member's decision although something later was
 * accepted. N is 3, or 2 with TWO, or 4
 * with FOUR, where ranks 0 and 3 may die, or with ANYONE any two.
 */
#ifdef TWO
#define N 2
#else
#ifdef FOUR
#define N 4
#else
#define N 3
#endif
#endif
#ifdef AGAIN
#define BALLOTS 4           /* 1 to 3 */
#else
#define BALLOTS 3
#endif
#define MOST_DEATHS (N == 4 -> 2 : N - 1)
#ifdef ANYONE
#define MAY_DIE(r) true
#else
#define MAY_DIE(r) (N < 4 || (r) == 0 || (r) == 3) /* the half with rank 0 is lost */
#endif
#define BIT(r) (1 << (r))
#define COUNT(s) (((s) & 1) + ((s) >> 1 & 1) + ((s) >> 2 & 1) + ((s) >> 3 & 1))

byte phase[BALLOTS];        /* published: 1 prepare, 2 accept */
byte value[BALLOTS];
byte promises[BALLOTS], accepts[BALLOTS]; /* sets of ranks that have answered */
byte best[BALLOTS], best_value[BALLOTS];  /* highest accepted ballot that came with a promise */
byte promised[N], accepted[N], has[N];
bool decided[N];
byte dead;                  /* set of ranks */
byte known[N];              /* whom each rank knows to be dead */
byte deaths;

#define ALL (BIT(N) - 1)
#define LIVING(p) (ALL & ~known[p])
#ifdef COUNT_DEAD
#define ANSWERS(p, s) (s)
#else
#define ANSWERS(p, s) ((s) & LIVING(p))
#endif
#ifdef HALF
#define HALF_OK(s) (2 * COUNT(s) == N)
#else
#define HALF_OK(s) (2 * COUNT(s) == N && (s) & 1)
#endif
#ifdef COUNT_DEAD
#define QUORUM(p, s) (COUNT(s) >= COUNT(LIVING(p)) || 2 * COUNT(s) > N || HALF_OK(s))
#else
#define QUORUM(p, s) (ANSWERS(p, s) == LIVING(p) || 2 * COUNT(ANSWERS(p, s)) > N || HALF_OK(ANSWERS(p, s)))
#endif
#ifdef LOW
#define NOT_LOW true
#else
#define NOT_LOW (promised[r] <= b)
#endif
#ifdef BELIEVE
#define BELIEVED true
#else
#define BELIEVED (accepted[r] <= accepted[o])
#endif
#define ALIVE(r) (!(dead & BIT(r)))

inline check(r)
{
    for (i : 0 .. N - 1) {
        assert(!(ALIVE(i) && decided[i] && ALIVE(r) && decided[r] && has[i] != has[r]))
    }
    i = 0
}

inline promise(r, b)
{
    promised[r] = b;
    if
    :: accepted[r] > best[b] -> best[b] = accepted[r]; best_value[b] = has[r]
    :: else
    fi;
    promises[b] = promises[b] | BIT(r)
}

inline accept(r, b)
{
    promised[r] = b; accepted[r] = b; has[r] = value[b];
    accepts[b] = accepts[b] | BIT(r)
}

inline learn(r, b, v)
{
    if :: accepted[r] < b -> accepted[r] = b :: else fi;
    if :: promised[r] < accepted[r] -> promised[r] = accepted[r] :: else fi;
    has[r] = v;
    decided[r] = true;
    check(r)
}

proctype proposer(byte p; byte b)
{
    byte i;
    atomic { ALIVE(p) && !decided[p] && promised[p] < b -> promise(p, b); phase[b] = 1 }
    atomic {
        ALIVE(p) && !decided[p] && QUORUM(p, promises[b]);
#ifdef NO_ADOPT
        value[b] = b;
#else
        if :: best[b] -> value[b] = best_value[b] :: else -> value[b] = b fi;
#endif
        phase[b] = 2;
        if :: promised[p] <= b -> accept(p, b) :: else fi
    }
    atomic { ALIVE(p) && !decided[p] && QUORUM(p, accepts[b]) ->
        learn(p, b, value[b])
    }
}

proctype member(byte r)
{
    byte i, b, o;
end:
    do
    :: atomic { !ALIVE(r) -> break }
    :: atomic { ALIVE(r) && MAY_DIE(r) && deaths < MOST_DEATHS -> dead = dead | BIT(r); deaths++; break }
    :: atomic { /* answer any ballot that was ever proposed */
        ALIVE(r) ->
        select (b : 1 .. BALLOTS - 1);
        if
        :: phase[b] && promised[r] < b && !decided[r] -> promise(r, b)
        :: phase[b] == 2 && !decided[r] && !(accepts[b] & BIT(r)) && NOT_LOW -> accept(r, b)
        :: else
        fi;
        b = 0 }
    :: atomic { /* hear of a death, or of a decision */
        ALIVE(r) ->
        select (o : 0 .. N - 1);
        if
        :: r < 2 && !ALIVE(o) && !(known[r] & BIT(o)) -> known[r] = known[r] | BIT(o)
#ifdef GUESS
        :: r < 2 && ALIVE(o) && o != r && !(known[r] & BIT(o)) -> known[r] = known[r] | BIT(o)
#endif
        :: decided[o] && !decided[r] && (ALIVE(o) || BELIEVED) -> learn(r, accepted[o], has[o])
        :: else
        fi;
        o = 0 }
    od
}

init
{
    byte i;
    atomic {
        for (i : 0 .. N - 1) { run member(i) }
        run proposer(0, 1);
        run proposer(1, 2);
#ifdef AGAIN
        run proposer(0, 3)
#endif
    }
}
