/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.c - the side that asks: agents are started, told a token, asked what they are, for their clock, and to measure each other. */
#include "hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "remote.h"

enum { HOSTS_MOST = 512, START_MS = 30000, ANSWER_MS = 12000, CLOCKS = 8, LINE_MOST = 1 << 20 };

struct agent {
    char *name, *command;
    pid_t pid;
    int in, out;      /* -1 = none */
    FILE *err;        /* what it or the remote shell wrote there */
    char *have;       /* read, not yet used */
    size_t used, cap;
    json_t *hello;    /* NULL = it cannot be asked */
    char why[400];
    double clock_ms, clock_error_ms;
};

/* ---- starting and ending ----------------------------------------------------------------------------------------------------------------------- */

static bool is_here(const struct hosts_options *opt, const char *host)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return !opt->launcher && (strcmp(host, "localhost") == 0 || strcmp(host, name) == 0);
}

static void lost(struct agent *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void lost(struct agent *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!*a->why)
        vsnprintf(a->why, sizeof a->why, fmt, ap);
    va_end(ap);
    json_decref(a->hello);
    a->hello = NULL;
}

static void start(struct agent *a, const struct hosts_options *opt)
{
    struct remote_command c = {0};
    int down[2] = {-1, -1}, up[2] = {-1, -1};
    a->err = tmpfile();
    if (a->err)
        fcntl(fileno(a->err), F_SETFD, FD_CLOEXEC);
    /* `env PROGRAM` is the command that runs another on this host. */
    bool good = a->err && remote_make(&c, is_here(opt, a->name) ? "env" : opt->launcher, opt->program, a->name, "doctor", "--agent") && pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0;
    a->command = c.shown;
    c.shown = NULL;
    a->pid = good ? fork() : -1;
    if (a->pid == 0)
        remote_become(c.word, down[0], up[1], fileno(a->err));
    remote_free(&c);
    if (down[0] >= 0)
        close(down[0]);
    if (up[1] >= 0)
        close(up[1]);
    a->in = down[1];
    a->out = up[0];
    if (a->pid < 0)
        lost(a, "its agent cannot be started: %s", strerror(errno));
    else
        fcntl(a->out, F_SETFL, O_NONBLOCK);
}

static void stop(struct agent *a)
{
    if (a->in >= 0)
        close(a->in);
    if (a->out >= 0)
        close(a->out);
    if (a->pid > 0) {
        for (int i = 0; i < 40 && waitpid(a->pid, NULL, WNOHANG) == 0; i++)
            poll(NULL, 0, 25);
        if (kill(-a->pid, SIGKILL) == 0)
            waitpid(a->pid, NULL, 0);
    }
    if (a->err)
        fclose(a->err);
    json_decref(a->hello);
    free(a->have);
    free(a->command);
    free(a->name);
}

/* ---- lines both ways ------------------------------------------------------------------------------------------------------------------------------ */

static bool tell(struct agent *a, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(a->in, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n, bytes -= (size_t)n;
    }
    return true;
}

/* The next whole line, malloc'ed; NULL at the end, or when it does not come in time. */
static char *next_line(struct agent *a, double until_ms)
{
    for (;;) {
        char *end = a->used ? memchr(a->have, '\n', a->used) : NULL;
        if (end) {
            size_t n = (size_t)(end - a->have);
            char *line = strndup(a->have, n);
            a->used -= n + 1;
            memmove(a->have, end + 1, a->used);
            return line;
        }
        double left = until_ms - hosts_now_ms();
        struct pollfd p = {.fd = a->out, .events = POLLIN};
        if (a->used > LINE_MOST || left <= 0 || (poll(&p, 1, (int)left + 1) < 0 && errno != EINTR))
            return NULL;
        if (a->cap < a->used + 8192) {
            char *more = realloc(a->have, a->cap + 65536);
            if (!more)
                return NULL;
            a->have = more;
            a->cap += 65536;
        }
        ssize_t n = read(a->out, a->have + a->used, a->cap - a->used);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return NULL;
        a->used += n > 0 ? (size_t)n : 0;
    }
}

/* The last words of its stderr, in which a remote shell says why. */
static void last_words(struct agent *a, char *to, size_t bytes)
{
    char line[256];
    *to = 0;
    rewind(a->err);
    while (fgets(line, sizeof line, a->err))
        if (line[strspn(line, " \r\n")])
            snprintf(to, bytes, "%.*s", (int)strcspn(line, "\r\n"), line);
}

static void greet(struct agent *a, double until_ms)
{
    char *line, words[256];
    while (a->pid > 0 && !a->hello && (line = next_line(a, until_ms))) {
        if (strncmp(line, HOSTS_MAGIC, strlen(HOSTS_MAGIC)) == 0)
            a->hello = json_loads(line + strlen(HOSTS_MAGIC), 0, NULL);
        free(line);
    }
    if (a->hello || *a->why)
        return;
    bool late = hosts_now_ms() >= until_ms;
    last_words(a, words, sizeof words);
    if (late)
        lost(a, "`%s` has not answered within %d s%s%s", a->command ? a->command : a->name, START_MS / 1000, *words ? "; it said: " : "", words);
    else
        lost(a, "`%s` ended%s%s", a->command ? a->command : a->name, *words ? ": " : " without a word", words);
}

static bool order(struct agent *a, json_t *what)
{
    char *text = json_dumps(what, JSON_COMPACT);
    bool good = text && tell(a, text, strlen(text)) && tell(a, "\n", 1);
    free(text);
    json_decref(what);
    return good;
}

static json_t *answer(struct agent *a, double until_ms)
{
    char *line = next_line(a, until_ms);
    json_t *v = line ? json_loads(line, 0, NULL) : NULL;
    free(line);
    if (!v)
        lost(a, "its agent ended, or fell silent, while it was asked");
    return v;
}

/* ---- clocks ---------------------------------------------------------------------------------------------------------------------------------------- */

static double real_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The quickest of several answers bounds the error: its clock was read at some time between question and answer. */
static void ask_clock(struct agent *a)
{
    a->clock_error_ms = -1;
    for (int i = 0; i < CLOCKS && a->hello; i++) {
        double t0 = real_ms();
        json_t *v = order(a, json_pack("{s:s}", "do", "clock")) ? answer(a, hosts_now_ms() + ANSWER_MS) : NULL;
        double t1 = real_ms(), half = (t1 - t0) / 2;
        if (v && (a->clock_error_ms < 0 || half < a->clock_error_ms)) {
            a->clock_ms = (double)json_integer_value(json_object_get(v, "ns")) / 1e6 - (t0 + half);
            a->clock_error_ms = half;
        }
        json_decref(v);
    }
}

/* ---- pairs ------------------------------------------------------------------------------------------------------------------------------------------- */

static const char *address_of(const struct agent *a, size_t which, const char **interface)
{
    json_t *one = json_array_get(json_object_get(a->hello, "addresses"), which);
    *interface = json_string_value(json_object_get(one, "interface"));
    return json_string_value(json_object_get(one, "address"));
}

/* All of a round at once: each host measures towards one other, and is measured by one other. */
static void round_of(struct agent *v, int n, int step, size_t which, bool *done, json_t *pairs)
{
    bool *asked = calloc((size_t)n, sizeof *asked);
    const char *interface;
    for (int i = 0; asked && i < n; i++) {
        int to = (i + step) % n;
        const char *address = v[i].hello && v[to].hello && !done[i] ? address_of(&v[to], which, &interface) : NULL;
        if (address)
            asked[i] = order(&v[i], json_pack("{s:s, s:s, s:I}", "do", "pair", "address", address, "port", json_integer_value(json_object_get(v[to].hello, "port"))));
    }
    double until = hosts_now_ms() + ANSWER_MS;
    for (int i = 0; asked && i < n; i++) {
        int to = (i + step) % n;
        const char *address = asked[i] && v[to].hello ? address_of(&v[to], which, &interface) : NULL;
        json_t *a = asked[i] ? answer(&v[i], until) : NULL;
        if (!a || !address) {
            json_decref(a);
            continue;
        }
        done[i] = json_is_true(json_object_get(a, "connected"));
        json_object_set_new(a, "from", json_string(v[i].name));
        json_object_set_new(a, "to", json_string(v[to].name));
        json_object_set_new(a, "address", json_string(address));
        json_object_set_new(a, "interface", json_string(interface ? interface : ""));
        json_array_append_new(pairs, a);
    }
    free(asked);
}

static double usual_rate(json_t *pairs)
{
    size_t n = json_array_size(pairs), i, used = 0;
    double *v = calloc(n ? n : 1, sizeof *v);
    json_t *p;
    json_array_foreach(pairs, i, p)
        if (v && json_real_value(json_object_get(p, "gbs")) > 0)
            v[used++] = json_real_value(json_object_get(p, "gbs"));
    if (v)
        qsort(v, used, sizeof *v, hosts_by_size);
    double usual = used ? v[used - 1 - used / 6] : 0; /* what the good ones reach: a host with a bad link is in many pairs */
    free(v);
    return usual;
}

static struct agent *agent_named(struct agent *v, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (name && strcmp(v[i].name, name) == 0)
            return &v[i];
    return NULL;
}

/* A host that was busy for a moment looks slow: what is far below the others is measured again, alone, and the best counts. */
static void again(struct agent *v, int n, json_t *pairs)
{
    enum { TIMES = 3, AT_MOST = 64 };
    double usual = usual_rate(pairs);
    int asked = 0;
    size_t i;
    json_t *p;
    json_array_foreach(pairs, i, p) {
        struct agent *from = agent_named(v, n, json_string_value(json_object_get(p, "from"))), *to = agent_named(v, n, json_string_value(json_object_get(p, "to")));
        double best = json_real_value(json_object_get(p, "gbs"));
        for (int k = 0; k < TIMES && best > 0 && best * 3 < usual && from && to && from->hello && to->hello && asked < AT_MOST; k++, asked++) {
            json_t *a = order(from, json_pack("{s:s, s:O, s:O}", "do", "pair", "address", json_object_get(p, "address"), "port", json_object_get(to->hello, "port"))) ? answer(from, hosts_now_ms() + ANSWER_MS) : NULL;
            if (a && json_real_value(json_object_get(a, "gbs")) > best) {
                best = json_real_value(json_object_get(a, "gbs"));
                json_object_update(p, a);
            }
            json_decref(a);
        }
    }
}

/* Where the first address is not reached, the others are tried. */
static json_t *measure(struct agent *v, int n)
{
    json_t *pairs = json_array();
    bool *done = calloc(n > 0 ? (size_t)n : 1, sizeof *done);
    for (int step = 1; done && step < n; step++) {
        memset(done, 0, (size_t)n * sizeof *done);
        for (size_t which = 0; which < 3; which++)
            round_of(v, n, step, which, done, pairs);
    }
    again(v, n, pairs);
    free(done);
    return pairs;
}

/* ---- all of it ------------------------------------------------------------------------------------------------------------------------------------------ */

static json_t *host_object(struct agent *a)
{
    json_t *o = a->hello ? json_incref(a->hello) : json_object();
    json_object_set_new(o, "host", json_string(a->name));
    json_object_del(o, "port");
    if (!a->hello) {
        json_object_set_new(o, "lost", json_string(a->why));
    } else if (a->clock_error_ms >= 0) {
        json_object_set_new(o, "clock_ms", json_real(a->clock_ms));
        json_object_set_new(o, "clock_error_ms", json_real(a->clock_error_ms));
    }
    return o;
}

static int split(const char *names, struct agent *v)
{
    int n = 0;
    for (const char *p = names; *p && n < HOSTS_MOST;) {
        size_t k = strcspn(p, ",");
        bool again = false;
        for (int i = 0; i < n; i++)
            again = again || (strlen(v[i].name) == k && memcmp(v[i].name, p, k) == 0);
        if (k && !again) {
            v[n] = (struct agent){.name = strndup(p, k), .in = -1, .out = -1, .clock_error_ms = -1};
            n += v[n].name != NULL;
        }
        p += k + (p[k] != 0);
    }
    return n;
}

static bool make_token(char token[HOSTS_TOKEN + 2])
{
    unsigned char bytes[HOSTS_TOKEN / 2];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    token[HOSTS_TOKEN] = '\n';
    token[HOSTS_TOKEN + 1] = 0;
    return true;
}

char *hosts_gather(const struct hosts_options *opt, char *why, size_t why_bytes)
{
    struct agent *v = calloc(HOSTS_MOST, sizeof *v);
    int n = v ? split(opt->names, v) : 0;
    char token[HOSTS_TOKEN + 2];
    if (n == 0) {
        snprintf(why, why_bytes, "--hosts \"%s\": it names no host; write them as nodeA,nodeB", opt->names);
        free(v);
        return NULL;
    }
    if (!make_token(token)) {
        snprintf(why, why_bytes, "--hosts: the kernel gives no random bytes: %s", strerror(errno));
        for (int i = 0; i < n; i++)
            free(v[i].name);
        free(v);
        return NULL;
    }
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < n; i++)
        start(&v[i], opt);
    for (int i = 0; i < n; i++)
        if (v[i].pid > 0)
            (void)tell(&v[i], token, HOSTS_TOKEN + 1);
    double until = hosts_now_ms() + START_MS;
    for (int i = 0; i < n; i++)
        greet(&v[i], until);
    for (int i = 0; i < n; i++)
        ask_clock(&v[i]);
    json_t *pairs = measure(v, n), *hosts = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(hosts, host_object(&v[i]));
    json_t *all = json_pack("{s:i, s:o, s:o}", "unisono_hosts", 1, "hosts", hosts, "pairs", pairs);
    char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(all);
    for (int i = 0; i < n; i++)
        stop(&v[i]);
    free(v);
    return text;
}
