/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small ring (src/exec/exec_small.c): operation N uses entry N mod E of each writer's ring, readers acknowledge nothing, and an
 * entry may be written when every rank's ledger shows that it started N - (E - 1), for then it has finished everything below. Who has
 * read the flags of all others in N knows the same of N.
 *
 * Checked for four operations of three ranks with three entries, across the place where numbers wrap around (0 is left out as in
 * the code) and, with PLAIN, away from it: no reader takes an entry that was overwritten or not yet written, and nobody waits for
 * ever, for every sequence of the kinds below. Loads and stores are taken as sequentially consistent: every pair here passes one
 * message (payload then flag, reads then ledger number), for which release and acquire are enough.
 *
 * Ghost: `kind` (ranks call the same operation).
 *
 * Broken twins: EARLY lets an entry be reused one operation too soon; ZERO takes "started the last number before 0" for "started
 * 0"; SIGNED compares the remembered limit with a sign, so that a rank that has not written for M/2 operations believes it.
 */
#define R 3  /* ranks */
#define E 3  /* entries */
#define L 4  /* ledger events */
#define M 48 /* numbers; a multiple of E and L */
/* Four operations, so that each walk uses an entry again. Five did not end within a minute, so that is not tried here. */
#ifdef PLAIN
#define FIRST 3
#define LAST 7
#else
#define FIRST (M - 3) /* 46, 47, 1, 2 */
#define LAST 2
#endif
#define K 12 /* operations that may be in flight */

#define MOD(x) (((x) + 2 * M) % M)
#define BEHIND(a, b) (MOD((a) - (b)) >= M / 2) /* (int32_t)(a - b) < 0 */
#define ENTRY(q, n) ((q) * E + (n) % E)
#define EVENT(q, n) ledger[(q) * L + (n) % L]
#define STARTED(q, n) (EVENT(q, n) != 0 && !BEHIND(EVENT(q, n), n))
#define EVERYONE_STARTED(n) (STARTED(0, n) && STARTED(1, n) && STARTED(2, n))

#ifdef ZERO
#define NOT_ZERO(n) ((n) == 0 -> M - 1 : (n))
#else
#define NOT_ZERO(n) ((n) == 0 -> 1 : (n))
#endif
#define EARLIER(n, back) NOT_ZERO(MOD((n) - (back)))
#ifdef EARLY
#define AHEAD E
#else
#define AHEAD (E - 1)
#endif
#ifdef SIGNED
#define COVERED(limit, n) (MOD((n) - (limit)) == 0 || BEHIND(n, limit))
#else
#define COVERED(limit, n) (MOD((limit) - (n)) < E)
#endif

/* 1: everyone writes and reads. 2, 3, 4: rank 0, 1, 2 writes, the others read. 5, 6, 7: the others write, rank 0, 1, 2 reads. */
#define WRITES(kind, me) ((kind) == 1 || (kind) == 2 + (me) || ((kind) >= 5 && (kind) != 5 + (me)))
#define READS_ALL(kind, me) ((kind) == 1 || (kind) == 5 + (me))
#define READS(kind, me, q) ((q) != (me) && ((kind) == 1 || (kind) == 2 + (q) || (kind) == 5 + (me)))

byte kind[K], finished[K];
byte ledger[R * L];
byte payload[R * E], flag[R * E];

/* The kinds that are tried. Not all seven: ranks are alike but for their order, and the search would take too long. */
#ifdef TO_ROOT
#define KINDS :: kind[n % K] = 1 :: kind[n % K] = 3 :: kind[n % K] = 5 :: kind[n % K] = 6
#else
#define KINDS :: kind[n % K] = 1 :: kind[n % K] = 2 :: kind[n % K] = 3 :: kind[n % K] = 5
#endif

inline finish_and_start()
{
    finished[n % K] = finished[n % K] + 1;
    if
    :: finished[n % K] == R ->
        finished[n % K] = 0;
        kind[n % K] = 0
    :: else
    fi;
    n = n + 1;
    if :: n == M -> n = 1 :: else fi;
    if :: kind[n % K] == 0 -> if KINDS fi :: else fi;
    EVENT(me, n) = 0
}

inline write()
{
    atomic {
        if
        :: COVERED(limit, n)
        :: !COVERED(limit, n) && EVERYONE_STARTED(EARLIER(n, 1)) -> limit = MOD(n - 1 + AHEAD)
        :: !COVERED(limit, n) && EVERYONE_STARTED(EARLIER(n, AHEAD)) -> limit = n
        fi
    }
    payload[ENTRY(me, n)] = n;
    flag[ENTRY(me, n)] = n
}

inline read(q)
{
    if
    :: !READS(kind[n % K], me, q)
    :: READS(kind[n % K], me, q) && flag[ENTRY(q, n)] == n -> assert(payload[ENTRY(q, n)] == n)
    fi
}

proctype rank(byte me; byte limit)
{
    byte n = FIRST;
    do
    :: atomic {
           if :: n == LAST -> break :: else fi;
           finish_and_start()
       }
       EVENT(me, n) = n;
       if :: WRITES(kind[n % K], me) -> write() :: else fi;
       read(0); read(1); read(2);
       if :: READS_ALL(kind[n % K], me) -> limit = MOD(n + AHEAD) :: else fi
    od
}

init
{
    byte limit;
    atomic {
        /* Rank 1 may not have written for any number of operations, so that its limit is any number, as the others read it. */
        EVENT(0, FIRST) = FIRST;
        EVENT(1, FIRST) = FIRST;
        EVENT(2, FIRST) = FIRST;
        select (limit : 0 .. M - 1);
        run rank(0, MOD(FIRST + E));
        run rank(1, limit);
        run rank(2, MOD(FIRST + E))
    }
}
