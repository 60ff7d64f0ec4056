/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_top.c - `unisono top`: ranks and communicators of a job as they run. Reads what the processes of this host show in shared memory, and
 * asks for other hosts' ledgers once a second; nobody is signalled or stopped.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "job.h"
#include "output.h"
#include "top.h"

#define READINGS 10            /* of the ledgers in one interval */
#define ASK_S 1.0              /* so often are other hosts asked */

struct top_options {
    struct job_wanted wanted;
    bool once, local;
    double interval_s;
    struct top_limit limit;
    enum top_sort sort;
};

static void usage(void)
{
    printf("usage: unisono top [PID | --job NAME] [--once] [--local] [--interval SECONDS] [--limit SIZE] [--sort WORD]\n\n"
           "Shows ranks and communicators of a job as they run, on all its hosts: calls, messages and bytes a second, who waits and for\n"
           "whom, who is slow. PID is a process of the job, or what started it; without one it is the only job of this user on this host.\n"
           "Keys: q quits, r o m b i w l sort by rank, ops, msgs, bytes, limit, wait, late.\n\n"
           "      --job NAME          the number or the program of a job, when there are several\n"
           "      --once              one table and the end, for scripts; needs no terminal\n"
           "      --local             only the ranks of this host; others are not asked\n"
           "      --interval SECONDS  between two tables (default 1)\n"
           "      --limit SIZE        bytes a second that are 100%% in column LIMIT; 0 = none; default: what one processor copies in memory\n"
           "      --sort WORD         rank (default), ops, msgs, bytes, limit, wait or late\n\n"
           "Exit status: 0 = done, 2 = not done.\n");
}

static bool parse_sort(const char *word, enum top_sort *sort)
{
    for (int i = 0; i < TOP_SORTS; i++)
        if (strcmp(word, top_sort_name((enum top_sort)i)) == 0) {
            *sort = (enum top_sort)i;
            return true;
        }
    return false;
}

static int take(int letter, const char *value, void *to)
{
    struct top_options *o = to;
    uint64_t bps;
    switch (letter) {
    case '1': o->once = true; return CLI_GOOD;
    case 'l': o->local = true; return CLI_GOOD;
    case 'm':
        if (!out_parse_bytes(value, &bps))
            return out_error("top", "--limit %s: it is bytes a second, as 12G or 800M; 0 = none", value);
        o->limit = (struct top_limit){(double)bps, true};
        return CLI_GOOD;
    case 's': return parse_sort(value, &o->sort) ? CLI_GOOD : out_error("top", "--sort %s: legal is rank, ops, msgs, bytes, limit, wait or late", value);
    default: return job_seconds("top", "--interval", value, 0.1, 3600, &o->interval_s);
    }
}

static int parse(int argc, char **argv, struct top_options *o)
{
    static const struct option options[] = {JOB_OPTIONS, {"once", no_argument, NULL, '1'}, {"interval", required_argument, NULL, 'i'},
                                            {"sort", required_argument, NULL, 's'}, {"local", no_argument, NULL, 'l'},
                                            {"limit", required_argument, NULL, 'm'}, {0}};
    static const struct job_syntax syntax = {options, take, usage, "one job is shown"};
    *o = (struct top_options){.wanted = {.command = "top", .live = true}, .interval_s = 1.0};
    int rc = job_options(argc, argv, &syntax, &o->wanted, o);
    const char *what = o->wanted.what;
    if (rc == CLI_GOOD && what && strspn(what, "0123456789") != strlen(what))
        return out_error("top", "%s is no process id; what a job left behind is read with `unisono why %s`", what, what);
    return rc;
}

/* ---- the terminal -------------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t stopped; /* a signal wants the end */
static struct termios before;
static bool changed;

static void on_signal(int sig)
{
    (void)sig;
    stopped = 1;
}

static void terminal_begin(void)
{
    struct sigaction act = {.sa_handler = on_signal};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0) {
        struct termios raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        raw.c_cc[VSUSP] = _POSIX_VDISABLE; /* who stops us would be left with this terminal */
        changed = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    fputs("\033[?1049h\033[?25l", stdout); /* the other screen, no cursor */
}

static void terminal_end(void)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (changed)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

/* Wait, and look for a key meanwhile. Returns it, 0 = none. */
static int wait_key(int ms)
{
    struct pollfd p = {.fd = changed ? STDIN_FILENO : -1, .events = POLLIN};
    char key = 0;
    if (poll(&p, 1, ms) != 1)
        return 0;
    if (read(STDIN_FILENO, &key, 1) <= 0)
        return 'q'; /* the terminal has gone */
    return key;
}

/* ---- tables ------------------------------------------------------------------------------------------------------------------ */

static bool all_ended(const struct job_found *found)
{
    for (int r = 0; r < found->job->size; r++)
        if (found->here[r] && strcmp(found->job->ranks[r].status, "reported") == 0)
            return false;
    return true;
}

static void show(const struct job_found *found, struct top_row *rows, int n, double seconds, const struct top_options *o)
{
    struct winsize size = {0};
    top_sort(rows, n, o->sort);
    if (o->once) {
        top_print(stdout, found, rows, n, seconds, 0, 0);
        return;
    }
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col;
    fputs("\033[H", stdout);
    int lines = known ? size.ws_row : 24;
    if (top_print(stdout, found, rows, n, seconds, lines, known ? size.ws_col : 80) < lines)
        fputs("\n\033[J", stdout);
    fflush(stdout);
}

/* A key was pressed: true ends the interval, so that it shows at once. */
static bool obey(int key, struct top_options *o)
{
    static const char keys[] = "rombiwl";
    const char *at = key ? strchr(keys, key) : NULL;
    if (at)
        o->sort = (enum top_sort)(at - keys);
    if (key == 'q' || key == 'Q' || key == 3 || key == 4)
        stopped = 1;
    return at || stopped;
}

/* Other hosts are asked now and then, and it is gone on meanwhile. */
static void keep_asking(struct job_found *found, const struct top_options *o)
{
    static double next_s;
    static bool asked;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double now_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    if (o->once || o->local)
        return;
    if (asked && job_hear_others(found))
        asked = false;
    if (asked || now_s < next_s)
        return;
    job_ask_others(found);
    asked = true;
    next_s = now_s + ASK_S;
}

/* For one table: other hosts are asked, and waited for, where it begins and where it ends. */
static int read_whole(struct job_found *found, const struct top_options *o)
{
    if (!o->local) {
        job_ask_others(found);
        while (!stopped && !job_hear_others(found))
            wait_key(5);
    }
    return job_read("top", found);
}

/* One interval. */
static int measure(struct job_found *found, struct top_meter *m, struct top_options *o)
{
    struct top_row *rows = NULL;
    double seconds = 0;
    int step_ms = (int)(o->interval_s * 1000 / READINGS);
    if (o->once && read_whole(found, o) != CLI_GOOD)
        return CLI_ERROR;
    bool ok = meter_begin(m, found);
    for (int i = 0; ok && i < READINGS && !stopped; i++) {
        bool at_once = obey(wait_key(step_ms), o), last = at_once || i + 1 == READINGS;
        if (stopped)
            return CLI_GOOD;
        keep_asking(found, o);
        if ((last && o->once ? read_whole(found, o) : job_read("top", found)) != CLI_GOOD)
            return CLI_ERROR;
        if (last)
            break;
        ok = meter_sample(m, found);
    }
    int n = ok ? meter_rows(m, found, &o->limit, &rows, &seconds) : -1;
    if (n < 0)
        return out_error("top", "no memory");
    show(found, rows, n, seconds, o);
    return CLI_GOOD;
}

static int watch_job(struct job_found *found, struct top_options *o)
{
    struct top_meter *m = meter_new();
    int rc = m ? CLI_GOOD : out_error("top", "no memory");
    bool ended = false;
    if (rc == CLI_GOOD && !o->once)
        terminal_begin();
    while (rc == CLI_GOOD && !stopped && !ended) {
        rc = measure(found, m, o);
        ended = o->once || all_ended(found);
    }
    if (m && !o->once)
        terminal_end();
    if (rc == CLI_ERROR && m && !o->once)
        out_error("top", "%s", uno_last_error(NULL)); /* what was said before went with the screen */
    if (rc == CLI_GOOD && ended && !o->once)
        puts("all processes of the job on this host have ended");
    meter_free(m);
    return rc;
}

int cmd_top(int argc, char **argv)
{
    struct top_options o;
    struct job_found found;
    int rc = parse(argc, argv, &o);
    if (rc != CLI_GOOD)
        return rc == CLI_BAD ? CLI_GOOD : rc;
    if (!o.once && !isatty(STDOUT_FILENO))
        return out_error("top", "standard output is no terminal; --once writes one table");
    rc = job_find(&o.wanted, &found);
    if (rc == CLI_GOOD && !o.limit.everywhere)
        o.limit.bps = limit_measure();
    if (rc == CLI_GOOD)
        rc = job_read("top", &found);
    if (rc == CLI_GOOD)
        rc = watch_job(&found, &o);
    job_free(&found);
    return rc;
}
