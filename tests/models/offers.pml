/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offered memory (src/net/net_lend.c): a receiver opens an offer for a message that it expects; the sender claims it by compare and
 * swap and writes there, or finds none and uses its slot; a sender whose operation fails drops its claim; a receiver whose
 * operation fails takes the offer back by compare and swap, or, when it is claimed, detaches: between processes a private copy
 * moves over the pages, between threads it waits for the copy in hand, whose end is the message's flag or the dropped claim.
 *
 * Checked: once the receiver's operation has returned nobody writes to its memory; a message said to be placed is there whole; the
 * receiver's return waits for no sender but one that is copying. The receiver may fail at any moment, the sender before it posts.
 *
 * Broken twins: LOAD takes an offer back by a plain store after it looked, NO_DETACH returns although the offer is claimed,
 * NO_DROP leaves the claim of a failed operation standing, WAIT_ANY waits although a dropped claim has left 0.
 * THREADS: both ends are threads of one process; else the receiver detaches.
 */
mtype = { NONE, OPEN, CLAIMED };
mtype key = NONE;       /* of message 1; others differ in the number and fail the comparison */
byte shared, private;   /* the offered pages as the sender maps them; the receiver's copy when detached */
bool detached;
bool posted, placed;    /* the flag of the slot; its kind */
bool returned;          /* the receiver's operation has returned: its memory is its caller's */
bool copying;           /* the sender is between claim and flag */

#define OWN (detached -> private : shared)

inline write(v)
{
    atomic { assert(!returned || detached); shared = v }
}

active proctype sender()
{
    bool claimed;
    if
    :: skip                /* never fires: it left, or failed elsewhere */
    :: atomic { key == OPEN -> skip };
       atomic { if :: key == OPEN -> key = CLAIMED; claimed = true; copying = true :: else fi }
       if
       :: claimed ->
           write(1);       /* half */
           write(2);
           if
           :: placed = true; atomic { posted = true; copying = false }
           :: skip;        /* a loan that it reads is withdrawn: its operation fails */
#ifdef NO_DROP
              copying = false
#else
              atomic { if :: key == CLAIMED -> key = NONE :: else fi; copying = false }
#endif
           fi
       :: else -> posted = true
       fi
    :: posted = true       /* found no offer, used the slot */
    fi
}

active proctype receiver()
{
    mtype seen;
    key = OPEN;
    if
    :: posted ->
        atomic { key = NONE; if :: placed -> assert(OWN == 2) :: else fi }
        returned = true
    :: skip ->             /* its operation fails */
        seen = key;
#ifdef LOAD
        if :: seen == OPEN -> key = NONE; goto out :: else fi;
#else
        atomic { if :: seen == OPEN && key == OPEN -> key = NONE; goto out :: else -> if :: seen == OPEN -> seen = key :: else fi fi }
#endif
#ifndef WAIT_ANY
        if :: seen == NONE -> goto out :: else fi;
#endif
#ifndef NO_DETACH
#ifdef THREADS
        (posted || key != seen)
#else
        atomic { private = shared; detached = true }
#endif
#endif
out:    returned = true
    fi
}
