/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about real processes on disk, and with a keeper: a launcher or a tool that has joined nothing, and reads what is left when all
 * have ended.
 */
#include "live.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "watch/watch_save.h"

enum doing { IDLE = LIVE_IDLE, REDUCES, READS, FORKS };

static char ledger_dir[100]; /* "" = the ranks save nothing */

static void prepare(int rank)
{
    (void)rank;
    if (ledger_dir[0])
        setenv("UNISONO_LEDGER_DIR", ledger_dir, 1);
}

static void act(int what, uno_comm *comm, int rank)
{
    switch ((enum doing)what) {
    case REDUCES: live_reduces(comm); break;
    case READS: (void)sleeps_in_a_read(); break;
    case FORKS: live_forks(); break;
    default: break;
    }
}

static int start(void)
{
    static const struct live_play play = {.name = "world", .position = "step", .prepare = prepare, .act = act};
    return live_start(&play);
}

static int setup(void **state)
{
    (void)state;
    return start();
}

static int teardown(void **state)
{
    (void)state;
    live_end();
    return 0;
}

static int setup_ledger_dir(void **state)
{
    (void)state;
    snprintf(ledger_dir, sizeof ledger_dir, "/tmp/unisono-report-XXXXXX");
    return mkdtemp(ledger_dir) == NULL;
}

static void remove_tree(const char *path)
{
    char sub[600];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(sub, sizeof sub, "%.250s/%.250s", path, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlink(sub) != 0)
            remove_tree(sub);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static int teardown_ledger_dir(void **state)
{
    (void)state;
    remove_tree(ledger_dir);
    ledger_dir[0] = 0;
    return 0;
}

static void folder(char *buf, size_t bytes) { snprintf(buf, bytes, "%s/unisono-%u", ledger_dir, (unsigned)getuid()); }

static int count_files(void)
{
    char path[200];
    int n = 0;
    folder(path, sizeof path);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d)
        closedir(d);
    return n;
}

static void files_are_ours(void **state)
{
    (void)state;
    char path[1300], dir[200];
    struct stat st;
    folder(dir, sizeof dir);
    assert_int_equal(save_file(ledger_dir, "a.facts", "hello", 5, path, sizeof path), UNO_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, 5);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(save_file(ledger_dir, "a.facts", "hello again", 11, path, sizeof path), UNO_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 11);
    assert_int_equal(count_files(), 1);

    fault_arm("save", 1); /* a full disk: one sentence, nothing half written, the old file stays */
    assert_int_equal(save_file(ledger_dir, "a.facts", "x", 1, path, sizeof path), UNO_ERR_SYSTEM);
    assert_non_null(strstr(uno_last_error(NULL), "No space left"));
    assert_int_equal(count_files(), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 11);

    chmod(dir, 0755);
    assert_int_equal(save_file(ledger_dir, "b.facts", "x", 1, path, sizeof path), UNO_ERR_USAGE);
    assert_non_null(strstr(uno_last_error(NULL), "0700"));
    remove_tree(dir);
    assert_int_equal(symlink("/tmp", dir), 0);
    assert_int_equal(save_file(ledger_dir, "b.facts", "x", 1, path, sizeof path), UNO_ERR_SYSTEM);
    unlink(dir);
    assert_int_equal(save_file("/proc/none", "b.facts", "x", 1, path, sizeof path), UNO_ERR_SYSTEM);
}

static void oldest_removed(void **state)
{
    (void)state;
    char path[1300], name[32], first[1300];
    for (int i = 0; i < SAVE_MOST_FILES + 5; i++) {
        snprintf(name, sizeof name, "job-%03d.facts", i);
        assert_int_equal(save_file(ledger_dir, name, name, strlen(name), path, sizeof path), UNO_OK);
        struct timespec when[2] = {{1000000 + i, 0}, {1000000 + i, 0}};
        assert_int_equal(utimensat(AT_FDCWD, path, when, 0), 0);
        if (i == 0)
            snprintf(first, sizeof first, "%s", path);
    }
    assert_int_equal(count_files(), SAVE_MOST_FILES);
    assert_int_equal(access(first, F_OK), -1);
    assert_int_equal(access(path, F_OK), 0);
}

static int setup_saving(void **state)
{
    return setup_ledger_dir(state) != 0 || start() != 0;
}
/* As above, but only the keeper saves. */
static int setup_keeping(void **state)
{
    int bad = start();
    return setup_ledger_dir(state) != 0 || bad != 0;
}
static int teardown_saving(void **state)
{
    teardown(state);
    return teardown_ledger_dir(state);
}

/* The records in the one file there is; returns how many. */
static int read_saved(struct verdict_rank *ranks, int most)
{
    char dir[200], path[500] = "";
    static char buf[RANKS * VERDICT_RECORD_LIMIT];
    folder(dir, sizeof dir);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.')
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    if (d)
        closedir(d);
    FILE *f = path[0] ? fopen(path, "r") : NULL;
    size_t bytes = f ? fread(buf, 1, sizeof buf, f) : 0, at = 0, one;
    if (f)
        fclose(f);
    int n = 0;
    for (; at < bytes && n < most; at += one) {
        assert_int_equal(verdict_record_bytes(buf + at, bytes - at, &one), UNO_OK);
        assert_int_equal(verdict_decode(buf + at, one, &ranks[n++]), UNO_OK);
    }
    return n;
}

static struct verdict_rank saved[RANKS];
static int dead_rank;
static bool saved_dead(void *arg)
{
    (void)arg;
    int n = read_saved(saved, RANKS);
    if (n == RANKS && saved[dead_rank].status == VERDICT_DEAD)
        return true;
    for (int i = 0; i < n; i++)
        verdict_rank_free(&saved[i]);
    return false;
}

static void death_is_saved(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        live_order_all(REDUCES);
    live_order(0, REDUCES);
    for (int death = 0; death < 2; death++) { /* then the hub itself: the next one saves */
        dead_rank = death == 0 ? 2 : 0;
        kill(live.pids[dead_rank], SIGKILL);
        waitpid(live.pids[dead_rank], NULL, 0);
        live.pids[dead_rank] = 0;
        assert_true(live_soon(saved_dead, NULL));
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(saved[r].rank, r);
            assert_int_equal(saved[r].size, RANKS);
            assert_int_equal(saved[r].status, r == 2 || r == dead_rank ? VERDICT_DEAD : VERDICT_REPORTED);
            const struct verdict_comm *c = live_comm(&saved[r], "world");
            assert_non_null(c);
            assert_true(c->newest >= 3);
            assert_int_equal(c->nevents, c->newest);
        }
        if (saved[2].ended != VERDICT_ENDED_UNKNOWN)
            assert_int_equal(saved[2].ended_code, SIGKILL);
        for (int r = 0; r < RANKS; r++)
            verdict_rank_free(&saved[r]);
    }
}

/* ---- the keeper: a launcher or a tool that has joined nothing ---------------------------------------------------------------- */

static int decode_all(const void *data, size_t bytes, struct verdict_rank *ranks)
{
    int n = 0;
    for (size_t at = 0, one; at < bytes; at += one) {
        assert_int_equal(verdict_record_bytes((const char *)data + at, bytes - at, &one), UNO_OK);
        assert_true(n < RANKS);
        assert_int_equal(verdict_decode((const char *)data + at, one, &ranks[n++]), UNO_OK);
    }
    return n;
}

static void kept_beyond_the_end(void **state)
{
    (void)state;
    uno_keeper *k;
    struct verdict_rank ranks[RANKS];
    void *data;
    size_t bytes;
    char path[1100];
    assert_int_equal(uno_keeper_new(&k), UNO_OK);
    assert_int_equal(uno_keeper_look(k, getpid()), UNO_ERR_IN_PROGRESS);
    assert_int_equal(uno_keeper_look(k, 0x3ffffff), UNO_ERR_SYSTEM);
    assert_int_equal(uno_keeper_save(k, ledger_dir, path, sizeof path), UNO_ERR_IN_PROGRESS);
    live_order_all(REDUCES);
    live_order(2, READS);
    assert_int_equal(uno_keeper_look_around(k, live.pids[1]), UNO_OK);
    assert_int_equal(uno_keeper_facts(k, 1, &data, &bytes), UNO_OK);
    free(data);
    assert_int_equal(uno_keeper_facts(k, 1, &data, &bytes), UNO_OK);
    assert_int_equal(decode_all(data, bytes, ranks), RANKS);
    free(data);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].rank, r);
        assert_int_equal(ranks[r].status, VERDICT_REPORTED);
        assert_int_equal(ranks[r].reporter, -1);
        assert_int_equal(live_comm(&ranks[r], "world")->newest, 1);
        assert_string_equal(ranks[r].process.python, "train.py:212 in step");
    }
    assert_non_null(strstr(ranks[2].process.stack, "sleeps_in_a_read"));
    for (int r = 0; r < RANKS; r++)
        verdict_rank_free(&ranks[r]);
    assert_int_equal(uno_keeper_ask(k), UNO_OK); /* all ranks are here: nobody needs to be asked */
    assert_int_equal(uno_keeper_answer(k, &data, &bytes), UNO_OK);
    assert_int_equal(bytes, 0);

    for (int r = 0; r < RANKS; r++) /* all at once: nobody of them is left to tell */
        kill(live.pids[r], SIGKILL);
    for (int r = 0; r < RANKS; r++) {
        int status;
        waitpid(live.pids[r], &status, 0);
        if (r > 0)
            uno_keeper_ended(k, live.pids[r], status);
        live.pids[r] = 0;
    }
    assert_int_equal(uno_keeper_save(k, ledger_dir, path, sizeof path), UNO_OK);
    assert_int_equal(read_saved(ranks, RANKS), RANKS);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, VERDICT_DEAD);
        assert_int_equal(live_comm(&ranks[r], "world")->newest, 1);
        if (r > 0)
            assert_int_equal(ranks[r].ended_code, SIGKILL);
        verdict_rank_free(&ranks[r]);
    }
    uno_keeper_free(k);
}

static void not_to_be_kept(void **state)
{
    (void)state;
    uno_keeper *k;
    void *data;
    size_t bytes;
    assert_int_equal(uno_keeper_new(&k), UNO_OK);
    live_order(1, FORKS);
    assert_true(live_reaches(&live.shared->done[1], 1));
    assert_int_equal(uno_keeper_look(k, live.shared->forked), UNO_ERR_USAGE);
    assert_non_null(strstr(uno_last_error(NULL), "forked child"));
    kill(live.shared->forked, SIGKILL);
    uno_comm *local;
    assert_int_equal(uno_comm_init_all(&local, 1, NULL), UNO_OK);
    assert_int_equal(uno_keeper_look(k, getpid()), UNO_ERR_UNSUPPORTED);
    assert_int_equal(uno_comm_destroy(local), UNO_OK);
    assert_int_equal(uno_keeper_facts(k, 0, &data, &bytes), UNO_OK);
    assert_int_equal(bytes, 0);
    free(data);
    assert_int_equal(uno_keeper_ask(k), UNO_ERR_USAGE);
    assert_non_null(strstr(uno_last_error(NULL), "no job are kept"));
    assert_int_equal(uno_keeper_answer(k, &data, &bytes), UNO_ERR_USAGE);
    uno_keeper_free(k);
    assert_int_equal(uno_keeper_look(NULL, 1), UNO_ERR_ARG);
    assert_int_equal(uno_keeper_ask(NULL), UNO_ERR_ARG);
    assert_int_equal(uno_keeper_answer(NULL, &data, &bytes), UNO_ERR_ARG);
}

/* ---- records of strangers ------------------------------------------------------------------------------------------------------ */

static size_t one_record(uint64_t job, int rank, int size, unsigned char *buf)
{
    struct verdict_rank r = verdict_rank_unknown(rank, size);
    size_t bytes = 0;
    r.job = job;
    r.status = VERDICT_REPORTED;
    assert_int_equal(verdict_encode(&r, buf, VERDICT_RECORD_MIN, &bytes), UNO_OK);
    return bytes;
}

static long most_kb(void)
{
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return u.ru_maxrss;
}

/* A record of some hundred bytes that tells of a large job takes memory for one rank; of larger ones than can be, none. */
static void much_announced(void **state)
{
    (void)state;
    static unsigned char buf[VERDICT_RECORD_MIN];
    uno_jobs *jobs;
    const uno_job *job;
    const uno_verdict *v;
    assert_int_equal(uno_jobs_new(&jobs), UNO_OK);
    assert_int_equal(uno_jobs_add(jobs, buf, one_record(1, 0, 1 << 20, buf)), UNO_ERR_PARSE);
    assert_non_null(strstr(uno_last_error(NULL), "a job of a size that cannot be"));
    long before = most_kb();
    for (int n = 0; n < 4; n++)
        assert_int_equal(uno_jobs_add(jobs, buf, one_record(2 + (uint64_t)n, 65000 + n, 65536, buf)), UNO_OK);
    for (size_t n = 0; n < 4; n++) {
        assert_int_equal(uno_jobs_get(jobs, n, &job), UNO_OK);
        assert_true(job->size == 65536 && job->reported == 1);
        assert_string_equal(job->ranks[65000 + n].status, "reported");
        assert_string_equal(job->ranks[65001 + n].status, "unknown");
        assert_int_equal(job->ranks[65001 + n].rank, 65001 + n);
    }
    assert_true(most_kb() - before < 100 << 10);
    assert_int_equal(uno_jobs_judge(jobs, 3, 0, 1, &v), UNO_OK);
    for (int n = 4; n < 16; n++)
        assert_int_equal(uno_jobs_add(jobs, buf, one_record(2 + (uint64_t)n, 0, 65536, buf)), UNO_OK);
    assert_int_equal(uno_jobs_add(jobs, buf, one_record(100, 0, 2, buf)), UNO_ERR_UNSUPPORTED);
    assert_non_null(strstr(uno_last_error(NULL), "read fewer files at once"));
    assert_int_equal(uno_jobs_add(jobs, buf, one_record(5, 1, 65536, buf)), UNO_OK); /* of one that is known */
    uno_jobs_free(jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(much_announced),
        cmocka_unit_test_setup_teardown(files_are_ours, setup_ledger_dir, teardown_ledger_dir),
        cmocka_unit_test_setup_teardown(oldest_removed, setup_ledger_dir, teardown_ledger_dir),
        cmocka_unit_test_setup_teardown(death_is_saved, setup_saving, teardown_saving),
        cmocka_unit_test_setup_teardown(kept_beyond_the_end, setup_keeping, teardown_saving),
        cmocka_unit_test_setup_teardown(not_to_be_kept, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
