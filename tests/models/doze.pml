/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping and waking (net_doze_begin, net_doze, net_ring_region in src/net/net_region.c). A writer stores its message and then
 * looks whether the owner of the region sleeps, without a fence between the two: the sleeper pays instead. It says that it sleeps,
 * makes every process pass a barrier (membarrier), takes the bell's value, looks once more, and lets the futex compare the bell.
 *
 * Checked: no message is waited for by a sleeper that nobody wakes. The writers' store buffers are explicit: a message is visible
 * to others only when it has left the buffer, at any later time; the barrier empties all buffers, an atomic addition its own.
 *
 * Broken twins: NO_BARRIER leaves the barrier out, LATE_BELL takes the bell's value after it has looked,
 * LOOK_FIRST looks before it says that it sleeps.
 */
#define WRITERS 2
#define MESSAGES 2 /* of each writer */

byte buffered[WRITERS], seen[WRITERS]; /* messages stored; messages visible to the sleeper */
bool sleeping;                         /* the region's word, as all see it: the sleeper's store passes its own fence */
byte bell;
bool in_futex;

proctype buffer(byte w)
{
end:
    do
    :: seen[w] != buffered[w] -> seen[w] = buffered[w]
    od
}

proctype writer(byte w)
{
    byte m;
    for (m : 1 .. MESSAGES) {
        buffered[w] = m;      /* the release store of a flag or a counter */
        if
        :: sleeping ->        /* the relaxed load; it may come before the message is visible */
            atomic { seen[w] = buffered[w]; bell = bell + 1 }
            in_futex = false  /* FUTEX_WAKE */
        :: !sleeping
        fi
    }
}

#define ALL_HERE (seen[0] == MESSAGES && seen[1] == MESSAGES)

active proctype sleeper()
{
    byte b;
    atomic { run buffer(0); run buffer(1); run writer(0); run writer(1) }
    do
    :: ALL_HERE -> break
    :: !ALL_HERE ->           /* polled in vain */
#ifdef LOOK_FIRST
        if :: ALL_HERE -> break :: !ALL_HERE fi;
#endif
        sleeping = true;
#ifndef NO_BARRIER
        d_step { seen[0] = buffered[0]; seen[1] = buffered[1] }
#endif
again:
#ifndef LATE_BELL
        b = bell;
#endif
#ifndef LOOK_FIRST
        if :: ALL_HERE -> sleeping = false; break :: !ALL_HERE fi;
#endif
#ifdef LATE_BELL
        b = bell;
#endif
        atomic { if :: bell == b -> in_futex = true :: bell != b fi }
        !in_futex;
        if :: sleeping = false :: goto again fi /* looks, and either goes back to polling or dozes once more */
    od
}
