/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks of waiting threads, read from outside: of children of this program that wait in chains of calls which keep their frames in
 * different ways, of one that runs, and of ones whose tables hold nonsense.
 */
#include <alloca.h>
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "watch/watch_proc.h"
#include "watch/watch_symbols.h"
#include "watch/watch_unwind.h"

#define LIMIT_NS 20000000000ull
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

static const struct { void (*wait)(void); const char *inner, *outer; } chains[] = {
    {chain_sleep, "inner_sleep", "chain_sleep"}, {chain_poll, "inner_poll", "chain_poll"},
    {chain_plain, "inner_plain", "chain_plain"}, {chain_alloca, "inner_alloca", "chain_alloca"},
    {chain_pointer, "inner_pointer", "chain_pointer"}, {chain_mutex, "inner_mutex", "chain_mutex"},
    {chain_qsort, "compare", "inner_qsort"}};

static pid_t child_of(void (*act)(void))
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
    struct symbols *s = symbols_open(pid);
    assert_non_null(s);
    uint32_t n = unwind_waiting(s, pid, pid, pc, MOST);
    size_t len = (size_t)snprintf(names, bytes, " ");
    for (uint32_t i = 0; i < n && len < bytes; i++) {
        struct symbol_name name;
        symbols_name(s, pc[i] - (i > 0), &name);
        len += (size_t)snprintf(names + len, bytes - len, "%s ", name.function[0] ? name.function : "?");
    }
    symbols_close(s);
    return n;
}

static bool has(const char *names, const char *inner, const char *outer)
{
    char a[64], b[64];
    snprintf(a, sizeof a, " %s ", inner);
    snprintf(b, sizeof b, " %s ", outer);
    const char *at = strstr(names, a);
    return at && strstr(at, b) && strstr(at, " main ");
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
    char names[4096] = "";
    for (size_t i = 0; i < ARRAY_LEN(chains); i++) {
        pid_t pid = child_of(chains[i].wait);
        bool seen = false;
        for (uint64_t until = clock_ns() + LIMIT_NS; !seen && clock_ns() < until; usleep(2000)) {
            stack_of(pid, names, sizeof names);
            seen = has(names, chains[i].inner, chains[i].outer);
        }
        end(pid);
        if (!seen)
            fail_msg("the stack of who waits in %s is told as%s", chains[i].inner, names);
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

static unsigned seed;

/* Into the tables of this program, which lie in memory that nothing else is read from. */
static int scribble(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const ElfW(Phdr) *tables = NULL, *around = NULL;
    (void)bytes, (void)arg;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME)
            tables = &info->dlpi_phdr[i];
    for (int i = 0; tables && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && tables->p_vaddr >= p->p_vaddr && tables->p_vaddr < p->p_vaddr + p->p_memsz)
            around = p;
    }
    if (!around)
        return 1;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = info->dlpi_addr + tables->p_vaddr, to = info->dlpi_addr + around->p_vaddr + around->p_memsz;
    uintptr_t first = from & ~(page - 1);
    if (mprotect((void *)first, to - first, PROT_READ | PROT_WRITE) != 0)
        return 1;
    unsigned many = 1u << (seed % 12), head = seed % 3; /* few wrong bytes, or nothing but */
    for (unsigned k = 0; k < many; k++)
        *(volatile uint8_t *)(from + (unsigned)rand_r(&seed) % (to - from)) = (uint8_t)rand_r(&seed);
    if (head == 0) /* else the head stays, which would most often end it at once */
        *(volatile uint8_t *)(from + (unsigned)rand_r(&seed) % 12) = (uint8_t)rand_r(&seed);
    return 1; /* no other file */
}

static void waits_with_nonsense(void)
{
    dl_iterate_phdr(scribble, NULL);
    chain_plain();
}

static void nonsense_ends_the_stack(void **state)
{
    (void)state;
    char names[4096];
    const char *given = getenv("UNISONO_TEST_SEED");
    unsigned first = given ? (unsigned)atoi(given) : (unsigned)clock_ns();
    print_message("seed %u (UNISONO_TEST_SEED)\n", first);
    for (unsigned i = 0; i < 150; i++) {
        seed = first + i;
        pid_t pid = child_of(waits_with_nonsense);
        for (uint64_t until = clock_ns() + LIMIT_NS; proc_state(pid, pid) != 'S' && proc_state(pid, pid) != 'Z' && clock_ns() < until;)
            usleep(200);
        assert_true(stack_of(pid, names, sizeof names) <= MOST);
        end(pid);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chains_are_seen), cmocka_unit_test(who_runs_is_not_told),
                                       cmocka_unit_test(nonsense_ends_the_stack)};
    if (pipe(nothing) != 0)
        return 1;
    if (!can_look()) {
        print_message("where a child waits may not be read here\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
