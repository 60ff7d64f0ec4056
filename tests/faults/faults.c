/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults.c - runs the table of cases: things that go wrong around and between real processes. `faults [--carrier shm|tcp]
 * [--but NAME] [NAME...]`, each NAME the beginning of names; --list names them. Each case runs in fresh processes, with a deadline,
 * an own directory for temporary files and stderr kept apart; afterwards no process, no file and nothing in /dev/shm may be left.
 */
#include "faults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

struct shared *sh;
const struct fault_case *now_case;
int now_carrier;
static bool in_rank;
static int case_failures;

void failed(const char *file, int line, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *slash = strrchr(file, '/');
    fprintf(stderr, "%s:%d: %s\n", slash ? slash + 1 : file, line, text);
    if (in_rank)
        _exit(3);
    case_failures++;
}

bool wait_for(bool (*yes)(void *arg), void *arg, double seconds)
{
    uint64_t deadline = clock_after(seconds);
    while (!yes(arg)) {
        if (clock_ns() > deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return true;
}

struct stage_wait { int rank, stage; };
static bool stage_reached(void *arg)
{
    const struct stage_wait *w = arg;
    return atomic_load(&sh->stage[w->rank]) >= w->stage;
}

void wait_stage(int rank, int stage)
{
    CHECK(wait_for(stage_reached, &(struct stage_wait){rank, stage}, now_case->limit_s), "rank %d did not come to stage %d", rank, stage);
}

void wait_all_stages(int except, int stage)
{
    for (int r = 0; r < now_case->ranks; r++)
        if (r != except)
            wait_stage(r, stage);
}

void set_stage(int rank, int stage)
{
    atomic_store(&sh->stage[rank], stage);
}

static bool have_id(void *arg)
{
    (void)arg;
    return atomic_load(&sh->have_id) != 0;
}

void get_id(int rank)
{
    if (rank != 0) {
        CHECK(wait_for(have_id, NULL, now_case->limit_s), "no id was made");
        return;
    }
    uno_err err = uno_get_id(&sh->id);
    CHECK(err == UNO_OK, "uno_get_id: %s", uno_last_error(NULL));
    atomic_store(&sh->have_id, 1);
}

uno_err try_join(int rank, int size, const uno_config *config, uno_comm **comm)
{
    get_id(rank);
    return uno_comm_init_rank(comm, size, &sh->id, rank, config);
}

uno_comm *join_as(int rank, int size, const uno_config *config)
{
    uno_comm *comm = NULL;
    uno_err err = try_join(rank, size, config, &comm);
    CHECK(err == UNO_OK, "rank %d cannot join: %s", rank, uno_last_error(NULL));
    return comm;
}

void note(int rank, uno_err err, const uno_comm *comm)
{
    struct outcome *o = &sh->outcome[rank];
    o->err = err;
    o->at_ns = clock_ns();
    snprintf(o->text, sizeof o->text, "%s", err == UNO_OK ? "" : uno_last_error(comm));
    atomic_store(&o->done, 1);
}

/* What this machine does beside the case: the most threads that wanted a processor, and the longest that a nap overslept. */
static struct { double runnable, late_s; } busy;

static void look_busy(void)
{
    double runnable = 0;
    FILE *f = fopen("/proc/loadavg", "re");
    if (f && fscanf(f, "%*f %*f %*f %lf/", &runnable) == 1)
        busy.runnable = MAX(busy.runnable, runnable - now_case->ranks);
    if (f)
        fclose(f);
}

/* Times allowed are those of a machine that does nothing else; on a busy one all takes longer. */
static double allowed_here(double within_s)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return within_s * (1 + MAX(busy.runnable, 0) / (double)MAX(processors, 1)) + 10 * busy.late_s;
}

void expect(int rank, uno_err err, const char *word, double within_s)
{
    const struct outcome *o = &sh->outcome[rank];
    if (!atomic_load(&o->done)) {
        failed(__FILE__, __LINE__, "rank %d returned nothing, expected %s", rank, uno_err_name(err));
        return;
    }
    CHECK(o->err == err, "rank %d returned %s (%s), expected %s", rank, uno_err_name(o->err), o->text, uno_err_name(err));
    CHECK(!word || strstr(o->text, word), "rank %d: no '%s' in '%s'", rank, word, o->text);
    double took = ((double)o->at_ns - (double)atomic_load(&sh->mark_ns)) / 1e9;
    CHECK(within_s < 0 || took <= allowed_here(within_s), "rank %d learned it after %.3f s, allowed are %.1f", rank, took,
          allowed_here(within_s));
}

void expect_exit(const int *statuses, int rank, int status)
{
    CHECK(WIFEXITED(statuses[rank]) && WEXITSTATUS(statuses[rank]) == status, "rank %d ended with wait status 0x%x, expected exit(%d)", rank,
          (unsigned)statuses[rank], status);
}

void expect_signal(const int *statuses, int rank, int sig)
{
    CHECK(WIFSIGNALED(statuses[rank]) && WTERMSIG(statuses[rank]) == sig, "rank %d ended with wait status 0x%x, expected signal %d", rank,
          (unsigned)statuses[rank], sig);
}

void expect_all_zero(const int *statuses)
{
    for (int r = 0; r < now_case->ranks; r++)
        expect_exit(statuses, r, 0);
}

/* ---- running one case ------------------------------------------------------------------------------------------------ */

static int count_files(const char *path, const char *prefix)
{
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.' && strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    if (d)
        closedir(d);
    return n;
}

static void collect(const pid_t *pids, int *statuses)
{
    uint64_t deadline = clock_after(now_case->limit_s);
    int left = now_case->ranks;
    bool late = false;
    bool gone[MAX_RANKS] = {false};
    memset(&busy, 0, sizeof busy);
    for (unsigned naps = 0; left; naps++) {
        for (int r = 0; r < now_case->ranks; r++)
            if (!gone[r] && waitpid(pids[r], &statuses[r], WNOHANG) == pids[r]) {
                gone[r] = true;
                left--;
                atomic_fetch_add(&sh->ended, 1);
            }
        if (left && clock_ns() > deadline && !late) {
            late = true;
            for (int r = 0; r < now_case->ranks; r++)
                if (!gone[r]) {
                    failed(__FILE__, __LINE__, "rank %d hangs, stage %d", r, atomic_load(&sh->stage[r]));
                    if (getenv("FAULTS_STACKS")) {
                        char cmd[100];
                        snprintf(cmd, sizeof cmd, "gdb -p %d -batch -ex 'thread apply all bt 12' 2>/dev/null | grep -E '^#|^Thread'", pids[r]);
                        (void)!system(cmd);
                    }
                    kill(pids[r], SIGKILL);
                }
        }
        uint64_t start = clock_ns();
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        busy.late_s = MAX(busy.late_s, (double)(clock_ns() - start) / 1e9 - 0.001);
        if (naps % 16 == 0)
            look_busy();
    }
}

/* What the ranks left behind is ours (subreaper): the announced ones are ended, others are a failure. */
static void sweep(void)
{
    for (int i = 0; i < atomic_load(&sh->kids); i++)
        kill(sh->kid[i], SIGKILL);
    for (pid_t pid; (pid = waitpid(-1, NULL, 0)) > 0 || errno == EINTR;) {
        bool known = false;
        for (int i = 0; i < atomic_load(&sh->kids); i++)
            known = known || sh->kid[i] == pid;
        CHECK(known, "process %d was left behind", pid);
    }
}

static void show(FILE *f)
{
    char line[2048];
    rewind(f);
    while (fgets(line, sizeof line, f))
        fprintf(stderr, "    | %s", line);
}

static bool run_case(const struct fault_case *c, int carrier)
{
    char dir[] = "/tmp/unisono-faults-XXXXXX";
    now_case = c;
    now_carrier = carrier;
    case_failures = 0;
    memset(sh, 0, sizeof *sh);
    FILE *said = tmpfile();
    if (!mkdtemp(dir) || !said) {
        perror("temporary files");
        return false;
    }
    int shm_before = count_files("/dev/shm", "unisono");
    pid_t pids[MAX_RANKS];
    int statuses[MAX_RANKS] = {0};
    uint64_t start = clock_ns();
    fflush(NULL);
    for (int r = 0; r < c->ranks; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            in_rank = true;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (!getenv("FAULTS_STDERR")) /* by hand */
                dup2(fileno(said), 2);
            setenv("TMPDIR", dir, 1);
            if (carrier == TCP) {
                setenv("UNISONO_SHM_DISABLE", "1", 1);
                setenv("UNISONO_SOCKET_IFNAME", "lo", 1);
            }
            c->rank(r);
            exit(0);
        }
    }
    if (c->during)
        c->during(pids);
    collect(pids, statuses);
    if (c->judge)
        c->judge(statuses);
    else
        expect_all_zero(statuses);
    sweep();
    CHECK(count_files(dir, "") == 0, "files were left in TMPDIR");
    CHECK(count_files("/dev/shm", "unisono") <= shm_before, "something was left in /dev/shm");
    if (c->flags & QUIET) {
        fseek(said, 0, SEEK_END);
        CHECK(ftell(said) == 0, "something was said on stderr");
    }
    printf("%-6s %-28s %-4s %6.2f s\n", case_failures ? "FAILED" : "ok", c->name, carrier == TCP ? "tcp" : carrier == SHM ? "shm" : "",
           (double)(clock_ns() - start) / 1e9);
    if (case_failures || getenv("FAULTS_SHOW")) {
        show(said);
        for (int r = 0; r < c->ranks; r++)
            if (atomic_load(&sh->outcome[r].done))
                fprintf(stderr, "    rank %d: %s %s\n", r, uno_err_name(sh->outcome[r].err), sh->outcome[r].text);
    }
    fclose(said);
    rmdir(dir);
    return case_failures == 0;
}

/* ---- the table ---------------------------------------------------------------------------------------------------------- */

static bool wanted(const char *name, int nnames, char **names)
{
    for (int i = 0; i < nnames; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return nnames == 0;
}

int main(int argc, char **argv)
{
    static const int each[] = {SHM, TCP, ONCE};
    const struct fault_case *tables[] = {fault_cases_peers, fault_cases_groups, fault_cases_join, fault_cases_calls, fault_cases_memory, fault_cases_shrink, fault_cases_shrink_ends,
                                         fault_cases_lend};
    int only = SHM | TCP | ONCE, at = 1, bad = 0, ran = 0;
    bool list = false;
    const char *but = NULL;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--list") == 0)
            list = true;
        else if (strcmp(argv[at], "--carrier") == 0 && at + 1 < argc)
            only = strcmp(argv[++at], "tcp") == 0 ? TCP : SHM | ONCE;
        else if (strcmp(argv[at], "--but") == 0 && at + 1 < argc)
            but = argv[++at];
    }
    if (argc == 3 && strcmp(argv[1], "--occupy") == 0)
        lend_occupy(argv[2]);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED)
        return 1;
    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        for (const struct fault_case *c = tables[t]; c->name; c++)
            for (size_t k = 0; k < ARRAY_LEN(each); k++) {
                if (!(c->carriers & each[k] & only) || !wanted(c->name, argc - at, argv + at) || (but && strncmp(c->name, but, strlen(but)) == 0))
                    continue;
                ran++;
                if (list)
                    printf("%s\n", c->name);
                else
                    bad += !run_case(c, each[k]);
            }
    if (!list)
        printf("%d cases, %d failed\n", ran, bad);
    return bad || ran == 0;
}
