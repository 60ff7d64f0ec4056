/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of one connection in shared memory (net_post, net_arrived, net_release in src/net/net.h; publish_slots and find_slots in
 * src/net/net_end.c): a sender, two readers of its group, k slots, a released counter of each reader, and operations that change k.
 *
 * Both ends see the same sequence of operations. A reader that gets to an operation later than the sender must neither take a slot
 * of another geometry nor lose one; the sender must not write a slot, nor clear it for a new geometry, while a reader may use it.
 * Checked: every reader reads message n, whole, as message n; the geometry found is the one expected; nobody waits for ever.
 * Loads and stores are taken as sequentially consistent: every pair passes one message by release and acquire.
 *
 * Payloads that go round a room (net_end.c) refine this and are not modelled: heads, counters and geometry are as here, with as many
 * slots as the code has, k or more. A message has a slot and, beside it, needs a place that no message under way has; only the sender
 * looks for one, by what it wrote itself and the counters that it has acquired. So a payload is never written over while a reader
 * may use it, for the same reason as a slot. And it waits no longer than here: places are powers of two at multiples of themselves, so
 * each message under way, lent ones with their empty place too, is in the way of one block of `stride` at most. With fewer than k of
 * them one of the k blocks is free, and the search steps on every block's beginning. A smaller k than that of the operation before
 * changes no slots; its first messages may then wait for those of that operation, which is the wait for a geometry that is checked here.
 * The real code is driven through all that by payloads_go_round_their_room in tests/unit/test_calls.c.
 *
 * Broken twins: EARLY_SLOT gives the sender one credit too many, EARLY_PUBLISH clears and publishes slots before the old ones
 * are released, ONE_READER looks at the counter of the first reader only, NO_SHAPE_NO lets a reader take any published geometry.
 */
#define OPS 3
#define KMAX 2

byte shape[OPS], messages[OPS]; /* slots of each operation, and how many messages it sends: chosen at the start, alike for all */
byte flag[KMAX], payload[KMAX]; /* slots lie at the same place in every geometry, as when they shrink or fit */
byte place_k, place_no;         /* struct net_place */
byte released[2];

#ifdef ONE_READER
#define FREED(n) (released[0] >= (n))
#else
#define FREED(n) (released[0] >= (n) && released[1] >= (n))
#endif
#ifdef EARLY_SLOT
#define CREDIT(next, k) ((next) <= (k) + 1 || FREED((next) - 1 - (k)))
#else
#define CREDIT(next, k) ((next) <= (k) || FREED((next) - (k)))
#endif

proctype sender()
{
    byte op, m, i, next = 1, k, slot, no;
    bool mapped;
    for (op : 0 .. OPS - 1) {
        atomic { if :: k != shape[op] -> k = shape[op]; no = no + 1; mapped = false :: else fi; m = 0 }
        do
        :: m == messages[op] -> break
        :: m < messages[op] ->
            if
            :: mapped
            :: !mapped ->
#ifndef EARLY_PUBLISH
                FREED(next - 1);
#endif
                i = 0;
                do
                :: i < k -> flag[i] = next - 1; i = i + 1
                :: else -> break
                od;
                place_k = k;
                atomic { place_no = no; slot = 0; mapped = true }
            fi;
            CREDIT(next, k);
            payload[slot] = 0; /* half written */
            payload[slot] = next;
            atomic { flag[slot] = next; next = next + 1; slot = (slot + 1) % k; m = m + 1 }
        od
    }
}

proctype reader(byte me)
{
    byte op, m, next = 1, k, slot, no;
    bool mapped;
    for (op : 0 .. OPS - 1) {
        atomic { if :: k != shape[op] -> k = shape[op]; no = no + 1; mapped = false :: else fi; m = 0 }
        do
        :: m == messages[op] -> break
        :: m < messages[op] ->
            if
            :: mapped
#ifdef NO_SHAPE_NO
            :: !mapped && place_no != 0 -> skip;
#else
            :: !mapped && place_no == no -> skip;
#endif
                atomic { assert(place_k == k); slot = 0; mapped = true }
            fi;
            flag[slot] == next;
            assert(payload[slot] == next);
            atomic { released[me] = next; next = next + 1; slot = (slot + 1) % k; m = m + 1 }
        od
    }
}

init
{
    byte i, v;
    atomic {
        for (i : 0 .. OPS - 1) {
            select (v : 1 .. KMAX);
            shape[i] = v;
            select (v : 0 .. 3);
            messages[i] = v
        }
        run sender();
        run reader(0);
        run reader(1)
    }
}
