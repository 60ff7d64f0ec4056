/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks of waiting threads, read from outside: of children of this program that wait in chains of calls which keep their frames in
 * different ways, of one that runs, and of copies whose tables hold nonsense.
 */
#include <alloca.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "live.h"
#include "watch/watch_proc.h"
#include "watch/watch_symbols.h"
#include "watch/watch_unwind.h"

#define MOST 48
#if defined(__clang__)
#define PLAIN __attribute__((noinline, optnone))
#else
#define PLAIN __attribute__((noinline, optimize("O0", "no-omit-frame-pointer")))
#endif

static volatile int after; /* written behind each call, so that none is the last act of its caller */
static int nothing[2];

/* ---- chains: a function, and one that calls it ------------------------------------------------------------------------------ */

static NOINLINE void inner_sleep(void) { sleep(60); after++; }
static NOINLINE void chain_sleep(void) { inner_sleep(); after++; }

static NOINLINE void inner_poll(void) { poll(&(struct pollfd){.fd = nothing[0], .events = POLLIN}, 1, 60000); after++; }
static NOINLINE void chain_poll(void) { inner_poll(); after++; }

static PLAIN void inner_plain(void) { char c; after += (int)read(nothing[0], &c, 1); }
static PLAIN void chain_plain(void) { volatile char room[3000]; room[7] = 1; inner_plain(); after += room[7]; }

static NOINLINE void inner_alloca(size_t n) { volatile char *p = alloca(n); p[n - 1] = 1; pause(); after += p[n - 1]; }
static NOINLINE void chain_alloca(void) { inner_alloca((size_t)getpid() % 100 + 5000); after++; }

/* Where a frame is searched for, what lies about from calls before must not be taken for it. */
static NOINLINE int leaves_much(int depth) { volatile int x[50]; x[depth] = depth; return depth == 0 ? 0 : leaves_much(depth - 1) + x[depth]; }
static PLAIN void inner_stale(void) { volatile char room[6000]; char c; room[7] = 1; after += (int)read(nothing[0], &c, 1) + room[7]; }
static NOINLINE void chain_stale(void) { after += leaves_much(30); inner_stale(); after++; }

static NOINLINE void inner_direct(void) { syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0); after++; }
static NOINLINE void chain_direct(void) { inner_direct(); after++; }

static NOINLINE void inner_pointer(void) { char c; after += (int)read(nothing[0], &c, 1); }
static void (*volatile pointer)(void) = inner_pointer;
static PLAIN void chain_pointer(void) { pointer(); after++; }

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static NOINLINE void inner_mutex(void) { pthread_mutex_lock(&mutex); pthread_mutex_lock(&mutex); after++; }
static NOINLINE void chain_mutex(void) { inner_mutex(); after++; }

static int compare(const void *a, const void *b)
{
    pause();
    return after++ + *(const int *)a - *(const int *)b;
}
static NOINLINE void inner_qsort(void) { int x[2] = {2, 1}; qsort(x, 2, sizeof x[0], compare); after++; } /* by way of the C library */
static NOINLINE void chain_qsort(void) { inner_qsort(); after++; }

static const struct { void (*wait)(void); const char *stack; } chains[] = { /* with what calls the chain */
    {chain_sleep, " inner_sleep chain_sleep child_of "}, {chain_poll, " inner_poll chain_poll child_of "},
    {chain_plain, " inner_plain chain_plain child_of "}, {chain_alloca, " inner_alloca chain_alloca child_of "},
    {chain_stale, " inner_stale chain_stale child_of "}, {chain_direct, " inner_direct chain_direct child_of "},
    {chain_pointer, " inner_pointer chain_pointer child_of "}, {chain_mutex, " inner_mutex chain_mutex child_of "},
    {chain_qsort, " inner_qsort chain_qsort child_of "}};

static NOINLINE pid_t child_of(void (*act)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGSEGV, SIG_DFL); /* a child is no test */
        alarm(60);
        act();
        _exit(0);
    }
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* Its functions, top first, with a blank before and behind each. */
static uint32_t stack_of(pid_t pid, char *names, size_t bytes)
{
    uint64_t pc[MOST];
    uint32_t sure;
    struct symbol_files files = {0};
    struct symbols *s = symbols_open(pid, &files);
    assert_non_null(s);
    uint32_t n = unwind_waiting(s, pid, pid, pc, MOST, &sure, clock_ns() + LIMIT_NS);
    assert_true(sure <= n);
    size_t len = (size_t)snprintf(names, bytes, " ");
    for (uint32_t i = 0; i < n && len < bytes; i++) {
        struct symbol_name name;
        symbols_name(s, pc[i] - (i > 0), &name);
        len += (size_t)snprintf(names + len, bytes - len, "%s ", name.function[0] ? name.function : "?");
    }
    symbols_close(s);
    symbol_files_close(&files);
    return n;
}

static bool can_look(void)
{
#if !defined(__x86_64__) && !defined(__aarch64__)
    return false;
#endif
    struct proc_waits w;
    pid_t pid = child_of(chain_sleep);
    bool can = false;
    for (uint64_t until = clock_ns() + LIMIT_NS / 10; !can && clock_ns() < until; usleep(1000))
        can = proc_waits(pid, pid, &w);
    end(pid);
    return can;
}

static void chains_are_seen(void **state)
{
    (void)state;
    if (!UNWINDS)
        skip();
    char names[4096] = "";
    for (size_t i = 0; i < ARRAY_LEN(chains); i++) {
        pid_t pid = child_of(chains[i].wait);
        bool seen = false;
        for (uint64_t until = clock_ns() + LIMIT_NS; !seen && clock_ns() < until; usleep(2000)) {
            stack_of(pid, names, sizeof names);
            seen = strstr(names, chains[i].stack) && strstr(names, " main ");
        }
        end(pid);
        if (!seen)
            fail_msg("of the stack%sthis is told:%s", chains[i].stack, names);
    }
}

static void runs(void)
{
    for (;;)
        after++;
}

static void who_runs_is_not_told(void **state)
{
    (void)state;
    char names[4096];
    pid_t pid = child_of(runs);
    for (int i = 0; i < 200; i++)
        if (stack_of(pid, names, sizeof names) > 0 && strstr(names, " runs "))
            fail_msg("it runs, but the stack%s is told", names); /* it may be seen while its processor is another's */
    end(pid);
    assert_int_equal(stack_of(pid, names, sizeof names), 0);
}

/* ---- tables that hold nonsense ---------------------------------------------------------------------------------------------- */

static char *own_file;
static off_t own_bytes, tables_at, tables_end; /* in it: from .eh_frame_hdr to the end of its segment, where .eh_frame lies, too */

static int find_tables(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const ElfW(Phdr) *tables = NULL;
    (void)bytes, (void)arg;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME)
            tables = &info->dlpi_phdr[i];
    for (int i = 0; tables && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && tables->p_vaddr >= p->p_vaddr && tables->p_vaddr < p->p_vaddr + p->p_memsz) {
            tables_at = (off_t)tables->p_offset;
            tables_end = (off_t)(p->p_offset + p->p_filesz);
        }
    }
    return 1; /* no other file */
}

/* A copy of this program with wrong bytes in its tables, and now and then in its head, where nothing that is loaded or run depends on them. */
static void write_scribbled(const char *path, unsigned *seed)
{
    char *copy = malloc((size_t)own_bytes);
    assert_non_null(copy);
    memcpy(copy, own_file, (size_t)own_bytes);
    unsigned many = 1u << (*seed % 12), head = *seed % 3; /* few wrong bytes, or nothing but */
    for (unsigned k = 0; k < many; k++)
        copy[tables_at + rand_r(seed) % (tables_end - tables_at)] = (char)rand_r(seed);
    if (head == 0)
        copy[tables_at + rand_r(seed) % 12] = (char)rand_r(seed);
    if (head == 1) { /* where its sections lie, and how many there are */
        ElfW(Ehdr) *h = (ElfW(Ehdr) *)(void *)copy;
        h->e_shoff = (ElfW(Off))rand_r(seed) % (ElfW(Off))own_bytes;
        h->e_shnum = (ElfW(Half))rand_r(seed);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_true(fd >= 0 && write(fd, copy, (size_t)own_bytes) == own_bytes);
    close(fd);
    free(copy);
}

static char scribbled[] = "/tmp/unisono-unwind-XXXXXX";
static void runs_scribbled(void) { execl(scribbled, scribbled, "waits", (char *)NULL); }

static void nonsense_ends_the_stack(void **state)
{
    (void)state;
    char names[4096];
    const char *given = getenv("UNISONO_TEST_SEED");
    unsigned first = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)clock_ns();
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to = mkstemp(scribbled);
    assert_true(fd >= 0 && to >= 0);
    close(to);
    own_bytes = lseek(fd, 0, SEEK_END);
    own_file = malloc((size_t)own_bytes);
    assert_true(own_file && pread(fd, own_file, (size_t)own_bytes, 0) == own_bytes);
    close(fd);
    dl_iterate_phdr(find_tables, NULL);
    assert_true(tables_at > 0 && tables_end > tables_at && tables_end <= own_bytes);
    print_message("seed %u (UNISONO_TEST_SEED)\n", first);
    for (unsigned i = 0; i < 60; i++) {
        unsigned seed = first + i;
        unlink(scribbled); /* who runs it keeps it */
        write_scribbled(scribbled, &seed);
        pid_t pid = child_of(runs_scribbled);
        uint64_t worst = 0;
        for (int look = 0; look < 5; look++) { /* on its way there, too */
            uint64_t began = clock_ns();
            assert_true(stack_of(pid, names, sizeof names) <= MOST);
            worst = MAX(worst, clock_ns() - began);
            usleep(1000);
        }
        end(pid);
        if (worst > 2000000000)
            fail_msg("seed %u: that took %.1f s", first + i, (double)worst / 1e9);
    }
    unlink(scribbled);
    free(own_file);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chains_are_seen), cmocka_unit_test(who_runs_is_not_told),
                                       cmocka_unit_test(nonsense_ends_the_stack)};
    if (pipe(nothing) != 0)
        return 1;
    if (argc == 2 && strcmp(argv[1], "waits") == 0) {
        alarm(60);
        chain_plain();
        return 0;
    }
    if (!can_look()) {
        print_message("where a child waits may not be read here\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
