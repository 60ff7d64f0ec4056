/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform_rest.c - what is not a product of parameters: point-to-point in every form, groups, streams and events, splits, own
 * memory. Each check is a function in the list at the end.
 */
#include "conform.h"
#include "share.h"

#include <stdlib.h>
#include <string.h>

#define EXPECT(cond, ...)                                   \
    do {                                                    \
        if (!(cond))                                        \
            return err_set(UNO_ERR_INTERNAL, __VA_ARGS__);  \
    } while (0)

static const size_t sizes[] = {0, 1, 100, 1023, 1024, 1025, 70000, 300000};

static int32_t value(int from, int to, size_t i)
{
    return from * 1000003 + to * 1009 + (int32_t)i;
}

static uno_err check(const int32_t *got, int from, int to, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        EXPECT(got[i] == value(from, to, i), "%s: element %zu from rank %d is %d, expected %d", what, i, from, got[i], value(from, to, i));
    return UNO_OK;
}

static void fill(int32_t *p, int from, int to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = value(from, to, i);
}

/* Everybody sends to the next and receives from the one before, in a group, in either order of calls. */
static uno_err shift_in_group(uno_comm *c, int32_t *a, int32_t *b, size_t n, bool receive_first, uno_stream *stream)
{
    int size = uno_comm_size(c), me = uno_comm_rank(c), next = (me + 1) % size, last = (me + size - 1) % size;
    fill(a, me, next, n);
    memset(b, 0, n * 4);
    TRY(uno_group_start());
    TRY(share_pass(&(struct share_pass){a, b, n, UNO_INT32, next, last, receive_first}, c, stream));
    TRY(uno_group_end());
    TRY(uno_stream_synchronize(stream));
    return check(b, last, me, n, stream ? "send and recv in a group on a stream" : "send and recv in a group");
}

static uno_err ring_in_groups(uno_comm *c, int32_t *a, int32_t *b)
{
    uno_stream *stream;
    TRY(uno_stream_create(&stream));
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
        for (int way = 0; way < 4; way++)
            TRY(shift_in_group(c, a, b, sizes[s], way & 1, way & 2 ? stream : NULL));
    return uno_stream_destroy(stream);
}

/* Tags decide, not the order of sending; more messages than credits. */
static uno_err tags_out_of_order(uno_comm *c, int32_t *a, int32_t *b)
{
    enum { MESSAGES = 40 };
    int n = uno_comm_size(c), me = uno_comm_rank(c), next = (me + 1) % n, last = (me + n - 1) % n;
    uno_request *out[MESSAGES], *in[MESSAGES];
    for (int m = 0; m < MESSAGES; m++) {
        size_t len = m % 3 == 2 ? 3000 : 7;
        fill(a + m * 3000, me, m, len);
        TRY(uno_isend(a + m * 3000, len, UNO_INT32, next, m, c, &out[m]));
    }
    for (int m = MESSAGES - 1; m >= 0; m--)
        TRY(uno_irecv(b + m * 3000, 3000, UNO_INT32, last, m, c, &in[m]));
    for (int m = 0; m < MESSAGES; m++) {
        uno_status st;
        TRY(uno_wait(&in[m], &st));
        size_t len = m % 3 == 2 ? 3000 : 7;
        EXPECT(st.count == len && st.tag == m && st.peer == last, "message %d: count %zu tag %d peer %d", m, st.count, st.tag, st.peer);
        TRY(check(b + m * 3000, last, m, len, "tagged message"));
        TRY(uno_wait(&out[m], NULL));
    }
    return UNO_OK;
}

static uno_err any_source(uno_comm *c, int32_t *a, int32_t *b)
{
    int n = uno_comm_size(c), me = uno_comm_rank(c);
    bool seen[64] = {false};
    uno_request *request;
    if (me != 0) {
        fill(a, me, 0, 50);
        TRY(uno_isend(a, 50, UNO_INT32, 0, 9, c, &request));
        return uno_wait(&request, NULL);
    }
    for (int i = 1; i < n; i++) {
        uno_status st;
        TRY(uno_irecv(b, 50, UNO_INT32, UNO_ANY, 9, c, &request));
        uno_err err;
        while ((err = uno_test(&request, &st)) == UNO_ERR_IN_PROGRESS)
            ;
        TRY(err);
        EXPECT(st.peer > 0 && st.peer < n && !seen[st.peer], "any-source gave rank %d", st.peer);
        seen[st.peer] = true;
        TRY(check(b, st.peer, 0, 50, "any source"));
    }
    return UNO_OK;
}

static uno_err truncated(uno_comm *c, int32_t *a, int32_t *b)
{
    int n = uno_comm_size(c), me = uno_comm_rank(c), next = (me + 1) % n, last = (me + n - 1) % n;
    for (int large = 0; large < 2; large++) {
        size_t len = large ? 5000 : 20;
        uno_request *out, *in;
        fill(a, me, next, len);
        TRY(uno_isend(a, len, UNO_INT32, next, 1, c, &out));
        TRY(uno_irecv(b, 10, UNO_INT32, last, 1, c, &in));
        uno_err err = uno_wait(&in, NULL);
        EXPECT(err == UNO_ERR_TRUNCATED, "a message of %zu in room for 10 gave %s", len, uno_err_name(err));
        TRY(uno_wait(&out, NULL));
        TRY(uno_barrier(c, NULL));
    }
    return UNO_OK;
}

/* Two streams, an event between them, collectives and sends mixed. */
static uno_err streams(uno_comm *c, int32_t *a, int32_t *b)
{
    int n = uno_comm_size(c), me = uno_comm_rank(c);
    uno_stream *s, *t;
    uno_event *e;
    TRY(uno_stream_create(&s));
    TRY(uno_stream_create(&t));
    TRY(uno_event_create(&e));
    for (int i = 0; i < 5000; i++)
        a[i] = me + i;
    TRY(uno_all_reduce(a, b, 5000, UNO_INT32, UNO_SUM, c, s));
    TRY(uno_event_record(e, s));
    TRY(uno_stream_wait_event(t, e));
    TRY(uno_all_reduce(b, b, 5000, UNO_INT32, UNO_MAX, c, t));
    TRY(uno_broadcast(b, b + 5000, 5000, UNO_INT32, n - 1, c, t));
    TRY(uno_stream_synchronize(t));
    TRY(uno_event_query(e));
    TRY(uno_stream_query(s));
    for (int i = 0; i < 5000; i++)
        EXPECT(b[5000 + i] == n * (n - 1) / 2 + n * i, "streams: element %d is %d", i, b[5000 + i]);
    TRY(uno_event_destroy(e));
    TRY(uno_stream_destroy(s));
    return uno_stream_destroy(t);
}

static uno_err splits(uno_comm *c, int32_t *a, int32_t *b)
{
    int n = uno_comm_size(c), me = uno_comm_rank(c);
    uno_comm *half, *same, *none;
    TRY(uno_comm_split(c, me % 2, -me, &half, NULL)); /* reversed order */
    TRY(uno_comm_dup(c, &same, NULL));
    TRY(uno_comm_split(c, me == 0 ? 0 : UNO_NO_COLOR, 0, &none, NULL));
    EXPECT((none != NULL) == (me == 0), "a rank without colour got a communicator");
    int members = (n - me % 2 + 1) / 2, place = members - 1 - me / 2;
    EXPECT(uno_comm_size(half) == members && uno_comm_rank(half) == place, "split: rank %d of %d", uno_comm_rank(half), uno_comm_size(half));
    a[0] = me;
    TRY(uno_all_gather(a, b, 1, UNO_INT32, half, NULL));
    for (int i = 0; i < members; i++)
        EXPECT(b[i] == (members - 1 - i) * 2 + me % 2, "split: member %d is old rank %d", i, b[i]);
    for (int i = 0; i < 3000; i++)
        a[i] = me;
    TRY(uno_group_start()); /* two communicators in one group */
    TRY(uno_all_reduce(a, b, 3000, UNO_INT32, UNO_SUM, same, NULL));
    TRY(uno_all_reduce(a, b + 3000, 3000, UNO_INT32, UNO_MAX, half, NULL));
    TRY(uno_group_end());
    for (int i = 0; i < 3000; i++)
        EXPECT(b[i] == n * (n - 1) / 2 && b[3000 + i] == (members - 1) * 2 + me % 2, "grouped communicators: element %d", i);
    TRY(uno_comm_destroy(none));
    TRY(uno_comm_destroy(half));
    return uno_comm_destroy(same);
}

/* Blocks of both sides of an all-to-all in one array, one of send, one of recv. */
static uno_err blocks_in_turn(uno_comm *c, int32_t *a, int32_t *b)
{
    int n = uno_comm_size(c), me = uno_comm_rank(c);
    size_t counts[64], displs[64];
    for (size_t count = 5; count <= 5000; count *= 1000) {
        for (int q = 0; q < n; q++) {
            counts[q] = count;
            displs[q] = 2 * (size_t)q * count;
            for (size_t i = 0; i < count; i++)
                a[displs[q] + i] = 100 * me + q;
        }
        TRY(uno_all_to_all_v(a, counts, displs, a + count, counts, displs, UNO_INT32, c, NULL));
        for (int q = 0; q < n; q++)
            for (size_t i = 0; i < count; i++)
                EXPECT(a[displs[q] + i] == 100 * me + q && a[displs[q] + count + i] == 100 * q + me, "in turn: block %d has %d and %d", q,
                       a[displs[q] + i], a[displs[q] + count + i]);
        EXPECT(uno_all_to_all_v(a, counts, displs, a + count - 1, counts, displs, UNO_INT32, c, NULL) == UNO_ERR_ARG, "an overlap of one");
        EXPECT(uno_all_to_all_v(a, counts, NULL, a + count, counts, displs, UNO_INT32, c, NULL) == UNO_ERR_ARG || n == 1, "an overlap");
    }
    (void)b;
    return UNO_OK;
}

/* Groups that only their members make, of several shapes at once: with one's parity in reversed order, and with one's neighbour. */
static uno_err created_groups(uno_comm *c, int32_t *a, int32_t *b)
{
    int n = uno_comm_size(c), me = uno_comm_rank(c), members = (n - me % 2 + 1) / 2;
    uno_id mine[2], *ids = mem_zalloc((size_t)n * sizeof mine);
    int *ranks = mem_zalloc((size_t)n * sizeof *ranks);
    uno_comm *half, *pair;
    if (!ids || !ranks)
        return UNO_ERR_MEMORY;
    memset(mine, 0, sizeof mine);
    if (me < 2) /* the lowest of its parity */
        TRY(uno_get_id(&mine[0]));
    if (me % 2 == 0)
        TRY(uno_get_id(&mine[1]));
    TRY(uno_all_gather(mine, ids, sizeof mine, UNO_UINT8, c, NULL));
    for (int i = 0; i < members; i++)
        ranks[i] = (members - 1 - i) * 2 + me % 2;
    TRY(uno_comm_create_group(c, ranks, members, &ids[me % 2 * 2], &half, NULL));
    int place = members - 1 - me / 2, first = me / 2 * 2, two = MIN(2, n - first), sum = 0;
    EXPECT(uno_comm_size(half) == members && uno_comm_rank(half) == place, "created: rank %d of %d", uno_comm_rank(half), uno_comm_size(half));
    TRY(uno_comm_create_group(c, (int[]){first, first + 1}, two, &ids[first * 2 + 1], &pair, NULL));
    for (int i = 0; i < two; i++)
        sum += first + i;
    for (int i = 0; i < 3000; i++)
        a[i] = me;
    TRY(uno_group_start()); /* three communicators in one group */
    TRY(uno_all_gather(a, b, 1000, UNO_INT32, half, NULL));
    TRY(uno_all_reduce(a, b + 1000 * members, 3000, UNO_INT32, UNO_SUM, pair, NULL));
    TRY(uno_all_reduce(a, b + 1000 * members + 3000, 1, UNO_INT32, UNO_MAX, c, NULL));
    TRY(uno_group_end());
    for (int i = 0; i < 1000 * members; i++)
        EXPECT(b[i] == ranks[i / 1000], "created: element %d is %d", i, b[i]);
    for (int i = 0; i < 3000; i++)
        EXPECT(b[1000 * members + i] == sum, "created: sum %d of a pair, not %d", b[1000 * members + i], sum);
    EXPECT(b[1000 * members + 3000] == n - 1, "created: largest %d", b[1000 * members + 3000]);
    free(ids);
    free(ranks);
    TRY(uno_comm_destroy(half));
    return uno_comm_destroy(pair);
}

static int mappings_of(const char *what)
{
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, what) != NULL;
    if (f)
        fclose(f);
    return n;
}

/* Memory that peers have mapped, freed and made again: nobody keeps it, and nobody takes the new one for the old one. */
static uno_err memory_comes_and_goes(uno_comm *c, int32_t *a, int32_t *b)
{
    enum { TIMES = 40, N = 16384 };
    int n = uno_comm_size(c), me = uno_comm_rank(c);
    for (int t = 0; t < TIMES; t++) {
        void *in, *out;
        TRY(uno_mem_alloc(&in, N * 4));
        TRY(uno_mem_alloc(&out, (size_t)n * N * 4));
        fill(in, me, t, N);
        TRY(uno_all_gather(in, out, N, UNO_INT32, c, NULL));
        for (int q = 0; q < n; q++)
            TRY(check((int32_t *)out + (size_t)q * N, q, t, N, "memory made anew"));
        TRY(uno_mem_free(in));
        TRY(uno_mem_free(out));
    }
    for (int i = 0; i < 2; i++) { /* everybody has freed; everybody has said so; everybody has noticed */
        TRY(uno_barrier(c, NULL));
        TRY(uno_all_reduce(a, b, N, UNO_INT32, UNO_MAX, c, NULL));
    }
    int left = mappings_of("unisono-user");
    EXPECT(left == 0, "%d mappings of freed memory are left", left);
    return uno_barrier(c, NULL);
}

/* Arguments that are wrong leave the communicator alive. */
static uno_err bad_arguments(uno_comm *c, int32_t *a, int32_t *b)
{
    int n = uno_comm_size(c);
    EXPECT(uno_all_reduce(NULL, b, 4, UNO_INT32, UNO_SUM, c, NULL) == UNO_ERR_ARG, "NULL send");
    EXPECT(uno_all_reduce(a, (char *)b + 1, 4, UNO_INT32, UNO_SUM, c, NULL) == UNO_ERR_ARG, "misaligned recv");
    EXPECT(uno_all_reduce(a, a + 1, 4, UNO_INT32, UNO_SUM, c, NULL) == UNO_ERR_ARG, "overlap");
    EXPECT(uno_all_reduce(a, b, (size_t)-1, UNO_INT32, UNO_SUM, c, NULL) == UNO_ERR_ARG, "negative count");
    EXPECT(uno_all_reduce(a, b, 4, (uno_type)99, UNO_SUM, c, NULL) == UNO_ERR_ARG, "unknown type");
    EXPECT(uno_all_reduce(a, b, 4, UNO_INT32, (uno_op)63, c, NULL) == UNO_ERR_ARG, "unknown op");
    EXPECT(uno_all_reduce(a, b, 4, UNO_FLOAT32, UNO_BAND, c, NULL) == UNO_ERR_TYPE, "band of floats");
    EXPECT(uno_all_reduce(a, b, 4, UNO_INT32, (uno_op)1000, c, NULL) == UNO_ERR_ARG, "operation of nobody");
    EXPECT(uno_broadcast(a, b, 4, UNO_INT32, n, c, NULL) == UNO_ERR_ARG, "root out of range");
    EXPECT(uno_broadcast(a, b, 4, UNO_INT32, -1, c, NULL) == UNO_ERR_ARG, "negative root");
    EXPECT(uno_send(a, 4, UNO_INT32, n, c, NULL) == UNO_ERR_ARG, "peer out of range");
    EXPECT(uno_all_gather_v(a, b, NULL, NULL, UNO_INT32, c, NULL) == UNO_ERR_ARG, "NULL counts");
    EXPECT(uno_last_error(c)[0] != 0, "no sentence");
    EXPECT(uno_group_end() == UNO_ERR_USAGE, "end without start");
    return uno_barrier(c, NULL);
}

uno_err conform_rest(uno_comm *comm, uint64_t seed, int *passed)
{
    static const struct { const char *name; uno_err (*run)(uno_comm *, int32_t *, int32_t *); } list[] = {
        {"ring in groups", ring_in_groups}, {"tags out of order", tags_out_of_order}, {"any source", any_source},
        {"truncated", truncated}, {"streams", streams}, {"splits", splits}, {"created groups", created_groups},
        {"blocks in turn", blocks_in_turn}, {"memory comes and goes", memory_comes_and_goes}, {"bad arguments", bad_arguments}};
    (void)seed;
    int32_t *a = mem_zalloc(1 << 21), *b = mem_zalloc(1 << 21);
    uno_err err = a && b ? UNO_OK : UNO_ERR_MEMORY;
    for (size_t i = 0; i < ARRAY_LEN(list) && err == UNO_OK; i++) {
        err = list[i].run(comm, a, b);
        if (err != UNO_OK)
            err_wrap(err, "%s", list[i].name);
        else
            ++*passed;
    }
    free(a);
    free(b);
    return err;
}
