/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_top.c - `unisono top`: ranks and communicators of a job of this host as they run. Reads what its processes show in shared memory;
 * nobody is signalled or stopped.
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

struct top_options {
    struct job_wanted wanted;
    bool once;
    double interval_s;
    enum top_sort sort;
};

static void usage(void)
{
    printf("usage: unisono top [PID | --job NAME] [--once] [--interval SECONDS] [--sort WORD]\n\n"
           "Shows ranks and communicators of a job as they run: calls and bytes a second, who waits and for whom, who is slow. PID is a\n"
           "process of the job, or what started it; without one it is the only job of this user on this host. Keys: q quits, r o b w l\n"
           "sort by rank, ops, bytes, wait, late.\n\n"
           "      --job NAME          the number or the program of a job, when there are several\n"
           "      --once              one table and the end, for scripts; needs no terminal\n"
           "      --interval SECONDS  between two tables (default 1)\n"
           "      --sort WORD         rank (default), ops, bytes, wait or late\n\n"
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
    switch (letter) {
    case '1': o->once = true; return CLI_GOOD;
    case 's': return parse_sort(value, &o->sort) ? CLI_GOOD : out_error("top", "--sort %s: legal is rank, ops, bytes, wait or late", value);
    default: return job_seconds("top", "--interval", value, 0.1, 3600, &o->interval_s);
    }
}

static int parse(int argc, char **argv, struct top_options *o)
{
    static const struct option options[] = {JOB_OPTIONS, {"once", no_argument, NULL, '1'}, {"interval", required_argument, NULL, 'i'},
                                            {"sort", required_argument, NULL, 's'}, {0}};
    static const struct job_syntax syntax = {options, take, usage, "one job is shown"};
    *o = (struct top_options){.wanted = {.command = "top"}, .interval_s = 1.0};
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

static bool all_ended(const uno_job *job)
{
    for (int r = 0; r < job->size; r++)
        if (strcmp(job->ranks[r].status, "reported") == 0)
            return false;
    return true;
}

static void show(struct job_found *found, struct top_row *rows, int n, double seconds, const struct top_options *o)
{
    struct winsize size = {0};
    top_sort(rows, n, o->sort);
    if (o->once) {
        top_print(stdout, found->job, rows, n, seconds, 0, 0);
        return;
    }
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col;
    fputs("\033[H", stdout);
    top_print(stdout, found->job, rows, n, seconds, known ? size.ws_row - 1 : 23, known ? size.ws_col : 80);
    fputs("\033[J", stdout);
    fflush(stdout);
}

/* A key was pressed: true ends the interval, so that it shows at once. */
static bool obey(int key, struct top_options *o)
{
    static const char keys[] = "robwl";
    const char *at = key ? strchr(keys, key) : NULL;
    if (at)
        o->sort = (enum top_sort)(at - keys);
    if (key == 'q' || key == 'Q' || key == 3 || key == 4)
        stopped = 1;
    return at || stopped;
}

/* One interval. */
static int measure(struct job_found *found, struct top_meter *m, struct top_options *o)
{
    struct top_row *rows = NULL;
    double seconds = 0;
    int step_ms = (int)(o->interval_s * 1000 / READINGS);
    bool ok = meter_begin(m, found->job);
    for (int i = 0; ok && i < READINGS && !stopped; i++) {
        bool at_once = obey(wait_key(step_ms), o);
        if (stopped)
            return CLI_GOOD;
        if (job_read("top", found) != CLI_GOOD)
            return CLI_ERROR;
        if (at_once || i + 1 == READINGS)
            break;
        ok = meter_sample(m, found->job);
    }
    int n = ok ? meter_rows(m, found->job, &rows, &seconds) : -1;
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
        ended = o->once || all_ended(found->job);
    }
    if (m && !o->once)
        terminal_end();
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
    if (rc == CLI_GOOD)
        rc = job_read("top", &found);
    if (rc == CLI_GOOD)
        rc = watch_job(&found, &o);
    job_free(&found);
    return rc;
}
