/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control frames and the messages that are made of them, as a stranger would send them: cut, out of order, lying about sizes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "watch/watch.h"
#include "watch/watch_frame.h"

static struct got {
    _Atomic int messages;
    int from;
    enum watch_message kind;
    size_t bytes;
    unsigned char data[WATCH_MESSAGE_BYTES];
} got;

static void on_message(void *arg, int from, enum watch_message kind, const void *data, size_t bytes)
{
    (void)arg;
    got.from = from;
    got.kind = kind;
    got.bytes = bytes;
    memcpy(got.data, data, bytes);
    got.messages++;
}
static void on_dead(void *arg, int process, const char *text)
{
    (void)arg, (void)process, (void)text;
}
static void on_abort(void *arg, uint64_t comm_id, uno_err code, int rank, const char *text)
{
    (void)arg, (void)comm_id, (void)code, (void)rank, (void)text;
}

static struct watch *start(void)
{
    struct watch_member m[2] = {{.process = 0, .host = 0, .pid = getpid()}, {.process = 1, .host = 1, .pid = 100}};
    struct watch_options opt = {.rank = 0, .size = 2, .members = m, .on_dead = on_dead, .on_abort = on_abort, .on_message = on_message};
    struct watch *w = NULL;
    assert_int_equal(watch_start(&opt, &w), UNO_OK);
    memset(&got, 0, sizeof got);
    return w;
}

static void say_message(struct watch *w, int from, uint8_t kind, uint32_t id, const void *data, uint32_t bytes)
{
    unsigned char buf[PART_HEADER_BYTES + PART_BYTES];
    struct part p = {.message = kind, .id = id, .total = bytes, .bytes = bytes, .data = data};
    watch_on_control(w, from, buf, part_write(&p, buf));
}

static void say_part(struct watch *w, uint32_t id, uint32_t total, uint32_t offset, uint32_t bytes, const void *data)
{
    unsigned char buf[PART_HEADER_BYTES + PART_BYTES + 8];
    struct part p = {.message = WATCH_MESSAGE_ASK, .id = id, .total = total, .offset = offset, .bytes = bytes, .data = data};
    watch_on_control(w, 1, buf, part_write(&p, buf));
}

static bool wait_messages(int n)
{
    for (int i = 0; i < 4000 && got.messages < n; i++)
        usleep(500);
    return got.messages == n;
}

static void frames_are_read_as_written(void **state)
{
    (void)state;
    unsigned char buf[PART_HEADER_BYTES + PART_BYTES + 8];
    struct beat b = {.hub = 3, .generation = 0x80000001u, .sent_ns = 1ull << 63, .heard_sent_ns = 7, .heard_at_ns = 8}, c;
    size_t n = beat_write(&b, buf);
    assert_int_equal(frame_kind_of(buf, n), FRAME_BEAT);
    assert_int_equal(beat_read(buf, n, &c), UNO_OK);
    assert_memory_equal(&b, &c, sizeof b);
    assert_int_equal(beat_read(buf, n - 1, &c), UNO_ERR_PARSE);
    assert_int_equal(beat_read(buf, n + 1, &c), UNO_ERR_PARSE);
    struct part p = {.message = 200, .id = 9, .total = 10, .offset = 4, .bytes = 6, .data = "abcdef"}, q;
    n = part_write(&p, buf);
    assert_int_equal(part_read(buf, n, &q), UNO_OK);
    assert_int_equal(q.message, 200);
    assert_int_equal(q.total, 10);
    assert_memory_equal(q.data, "abcdef", 6);
    assert_int_equal(part_read(buf, n + 1, &q), UNO_ERR_PARSE); /* a byte more than its total */
    assert_int_equal(part_read(buf, PART_HEADER_BYTES - 1, &q), UNO_ERR_PARSE);
    assert_int_equal(part_read(buf, PART_HEADER_BYTES + PART_BYTES + 1, &q), UNO_ERR_PARSE);
    memset(buf + 12, 0xff, 8); /* total and offset */
    assert_int_equal(part_read(buf, n, &q), UNO_ERR_PARSE);
    struct frame f;
    assert_int_equal(frame_read(buf, n, &f), UNO_ERR_PARSE); /* another shape */
}

static void long_messages_arrive_whole(void **state)
{
    (void)state;
    struct watch *w = start();
    static unsigned char data[WATCH_MESSAGE_BYTES];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7 + i / 251);
    const uint32_t sizes[] = {0, 1, PART_BYTES, PART_BYTES + 1, WATCH_MESSAGE_BYTES};
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        uint32_t at = 0;
        do {
            uint32_t n = MIN(sizes[k] - at, PART_BYTES);
            say_part(w, (uint32_t)k, sizes[k], at, n, data + at);
            at += n;
        } while (at < sizes[k]);
        assert_true(wait_messages((int)k + 1));
        assert_int_equal(got.bytes, sizes[k]);
        assert_int_equal(got.from, 1);
        assert_memory_equal(got.data, data, sizes[k]);
    }
    watch_stop(w);
}

static void liars_are_not_believed(void **state)
{
    (void)state;
    struct watch *w = start();
    static const unsigned char data[PART_BYTES];
    say_part(w, 1, 0xffffffffu, 0, PART_BYTES, data);            /* longer than any message */
    say_part(w, 2, WATCH_MESSAGE_BYTES + 1, 0, PART_BYTES, data);
    say_part(w, 3, 8000, 4000, 4000, data);                      /* no beginning */
    say_part(w, 4, 8000, 0, 4000, data);
    say_part(w, 5, 8000, 4000, 4000, data);                      /* end of another one */
    say_part(w, 6, 8000, 0, 4000, data);
    say_part(w, 6, 9000, 4000, 4000, data);                      /* another length */
    say_part(w, 7, 8000, 0, 4000, data);
    say_part(w, 7, 8000, 4001, 3999, data);                      /* a hole */
    say_part(w, 8, 8000, 0, 0, data);                            /* nothing, for ever */
    say_part(w, 9, 8000, 0, 4000, data);                         /* never finished */
    say_part(w, 10, 3, 0, 3, "yes");
    assert_true(wait_messages(1));
    assert_memory_equal(got.data, "yes", 3);
    watch_stop(w);
}

static void random_bytes_do_no_harm(void **state)
{
    (void)state;
    struct watch *w = start();
    struct rng r;
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    rng_seed(&r, seed);
    for (int i = 0; i < 20000; i++) {
        unsigned char buf[PART_HEADER_BYTES + PART_BYTES + 64];
        size_t n = i % 16 ? rng_below(&r, 64) : rng_below(&r, sizeof buf);
        for (size_t k = 0; k < n; k++)
            buf[k] = (unsigned char)rng_next(&r);
        if (n >= 4) { /* a right beginning, so that something behind it is looked at */
            buf[0] = 0x55;
            buf[1] = 0x57;
            buf[2] = 1;
            buf[3] = (unsigned char)(1 + rng_below(&r, 6));
        }
        if (n >= 20 && i % 2)
            memset(buf + 5, 0, 13); /* small sizes */
        watch_on_control(w, (int)rng_below(&r, 4), buf, n);
    }
    say_part(w, 11, 3, 0, 3, "end");
    for (int i = 0; i < 20000 && !(got.bytes == 3 && memcmp(got.data, "end", 3) == 0); i++)
        usleep(500);
    assert_memory_equal(got.data, "end", 3);
    watch_stop(w);
}

/* Messages of the stewards' own kinds: stalls, inquiries, reports, verdicts, cuts, of any content. */
static void nonsense_between_stewards_does_no_harm(void **state)
{
    (void)state;
    struct watch *w = start();
    struct rng r;
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    rng_seed(&r, seed);
    for (uint32_t i = 0; i < 20000; i++) {
        unsigned char data[3000];
        uint32_t n = (uint32_t)(i % 8 ? rng_below(&r, 40) : rng_below(&r, sizeof data));
        for (uint32_t k = 0; k < n; k++)
            data[k] = (unsigned char)(i % 3 ? rng_next(&r) : rng_below(&r, 3));
        say_message(w, 1, (uint8_t)rng_below(&r, WATCH_MESSAGE_FIRST), i, data, n);
        if (i % 50 == 0)
            watch_stalled(w); /* so that inquiries run meanwhile */
    }
    say_message(w, 1, WATCH_MESSAGE_ASK, 1, "end", 3);
    for (int i = 0; i < 20000 && !got.messages; i++)
        usleep(500);
    assert_int_equal(got.messages, 1);
    watch_resumed(w);
    watch_stop(w);
}

/* What a terminal would obey does not reach it. */
static void a_verdict_from_elsewhere_is_printed_clean(void **state)
{
    (void)state;
    char line[2048] = "";
    FILE *log = tmpfile();
    log_configure(LOG_WARN, LOG_ALL_TOPICS, "", log);
    struct watch *w = start();
    struct { int32_t kind, origin; uint32_t number, zero; uint64_t comm_id; char text[64]; } v = {1, 1, 1, 0, 77, "rank 3 is \033[31mstopped"};
    say_message(w, 1, 7, 1, &v, (uint32_t)(24 + strlen(v.text)));
    say_message(w, 1, 7, 2, &v, (uint32_t)(24 + strlen(v.text))); /* heard before */
    v.number = 2;
    v.origin = 0; /* ours */
    say_message(w, 1, 7, 3, &v, (uint32_t)(24 + strlen(v.text)));
    v.origin = 1;
    v.kind = 99;
    say_message(w, 1, 7, 4, &v, (uint32_t)(24 + strlen(v.text)));
    say_message(w, 1, WATCH_MESSAGE_ASK, 5, "end", 3);
    for (int i = 0; i < 20000 && !got.messages; i++)
        usleep(500);
    watch_stop(w);
    log_configure(LOG_WARN, LOG_ALL_TOPICS, "", NULL);
    rewind(log);
    assert_non_null(fgets(line, sizeof line, log));
    assert_string_equal(line, "unisono: rank 3 is ?[31mstopped\n");
    assert_null(fgets(line, sizeof line, log));
    fclose(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_read_as_written), cmocka_unit_test(long_messages_arrive_whole),
        cmocka_unit_test(liars_are_not_believed), cmocka_unit_test(random_bytes_do_no_harm),
        cmocka_unit_test(nonsense_between_stewards_does_no_harm), cmocka_unit_test(a_verdict_from_elsewhere_is_printed_clean)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
