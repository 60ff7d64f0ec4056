/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger's event (ledger_begin in src/watch/watch.h, ledger_read in src/watch/ledger.c): number 0, fence, fields, number N with
 * release; a reader takes the number with acquire, the fields, a fence, and the number again, and keeps the copy if both agree.
 *
 * Checked: a copy that is kept has the fields of its number. Stores and loads are weak here: the writer's plain and relaxed stores
 * become visible in any order unless a release comes between, and the reader's loads of fields happen in any order between its
 * acquires. So the fences are checked too, which x86 would not need.
 *
 * Broken twins: NO_FENCE leaves out the writer's fence behind number 0, NO_READ_FENCE the reader's before its second look,
 * NO_ZERO writes the fields under the old number, LATE_NUMBER stores the new number without release.
 */
#define EVENTS 3 /* that go through one place of the ring */

byte number, a, b; /* what all see */
bool held[3];      /* stores of the writer that are not visible yet: number, a, b */
byte later[3];

#define VISIBLE (!held[0] && !held[1] && !held[2])

inline store(i, v)
{
    atomic { !held[i] -> later[i] = v; held[i] = true }
}

active proctype memory()
{
end:
    do
    :: atomic { held[0] -> number = later[0]; held[0] = false }
    :: atomic { held[1] -> a = later[1]; held[1] = false }
    :: atomic { held[2] -> b = later[2]; held[2] = false }
    od
}

active proctype writer()
{
    byte n;
    for (n : 1 .. EVENTS) {
#ifndef NO_ZERO
        store(0, 0);
#endif
#ifndef NO_FENCE
        VISIBLE; /* release fence: stores before it are visible before those after it */
#endif
        store(1, n);
        store(2, n);
#ifndef LATE_NUMBER
        VISIBLE; /* release */
#endif
        store(0, n)
    }
}

active proctype reader()
{
    byte looks, before, x, y, after;
    bool got_x, got_y, got_after;
    for (looks : 1 .. 2) {
        atomic { before = number; got_x = false; got_y = false; got_after = false }
        if
        :: before != 0 ->
            do /* loads between two acquires, in any order */
            :: atomic { !got_x -> x = a; got_x = true }
            :: atomic { !got_y -> y = b; got_y = true }
#ifdef NO_READ_FENCE
            :: atomic { !got_after -> after = number; got_after = true }
#else
            :: atomic { got_x && got_y && !got_after -> after = number; got_after = true }
#endif
            :: got_x && got_y && got_after -> break
            od;
            assert(after != before || (x == before && y == before))
        :: else
        fi
    }
}
