/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines.c - a text, however long, as lines: split, cleaned of colour, of what srun, mpirun, kubectl, Ray, torchrun and time stamps put in
 * front, and offered to the readers of lines in turn.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

struct fact fact_at(const struct line *l, enum fact_kind kind)
{
    struct fact f = fact_of(kind);
    f.file = l->file;
    f.line = l->number;
    f.text = skip_blanks(l->raw);
    f.host = l->owner;
    f.rank = l->rank;
    f.pid = l->pid;
    f.time_s = l->time_s;
    return f;
}

/* ---- colour, and bytes that are no text ------------------------------------------------------------- */

static void strip_colour(char *s)
{
    char *to = s;
    for (const char *p = s; *p;) {
        if (*p == '\033' && p[1] == '[') {
            p += 2;
            while (*p && !isalpha((unsigned char)*p))
                p++;
            p += *p != 0;
        } else if (*p == '\033') {
            p++;
        } else if (*p == '\r' || (unsigned char)*p == '\b') {
            p++;
        } else {
            *to++ = *p++;
        }
    }
    *to = 0;
}

/* A progress bar overwrites itself: what stands after the last carriage return is what a terminal shows. */
static char *last_of_overwritten(char *s)
{
    size_t n = strlen(s);
    while (n && s[n - 1] == '\r')
        s[--n] = 0;
    char *at = strrchr(s, '\r');
    return at ? at + 1 : s;
}

/* ---- time -------------------------------------------------------------------------------------------- */

/* "2031-05-14 09:11:42", with T and fractions (behind a comma, as Python's logging has them) and Z; returns what follows, NULL if it is none. */
static const char *take_iso_time(const char *s, double *time_s)
{
    int y, mo, d, h, mi, n = 0;
    double sec;
    if (!isdigit((unsigned char)s[0]) || sscanf(s, "%4d-%2d-%2d%*1[T ]%2d:%2d:%lf%n", &y, &mo, &d, &h, &mi, &sec, &n) != 6 || n == 0)
        return NULL;
    *time_s = (((y * 372.0 + mo * 31.0 + d) * 24 + h) * 60 + mi) * 60 + sec;
    s += n;
    if (*s == ',' && isdigit((unsigned char)s[1])) {
        *time_s += strtod(s + 1, NULL) / pow(10, (double)strspn(s + 1, "0123456789"));
        s += 1 + strspn(s + 1, "0123456789");
    }
    if (*s == 'Z')
        s++;
    else if ((*s == '+' || *s == '-') && isdigit((unsigned char)s[1]))
        s += strspn(s, "+-:0123456789");
    return s;
}

/* ---- prefixes: each takes one off, or returns NULL ------------------------------------------------------ */

/* "slurmstepd[812]: " or "kernel: " behind a time and a host's name, as journalctl and syslog have it. */
static const char *prefix_unit(const char *s, const char *host, size_t host_bytes, bool dated, struct line *l, struct model *m)
{
    size_t n = strcspn(s, " :[");
    const char *p = s + n;
    if (n == 0 || n > 40 || host_bytes == 0 || host_bytes > 63)
        return NULL;
    if (*p == '[') {
        size_t digits = strspn(p + 1, "0123456789");
        p += 1 + digits;
        if (digits == 0 || *p++ != ']')
            return NULL;
    } else if (!dated) {
        return NULL; /* less would take a program's words for a host */
    }
    if (p[0] != ':' || (p[1] != ' ' && p[1]))
        return NULL;
    l->host = model_string(m, host, host_bytes);
    return p + 1 + (p[1] == ' ');
}

/* "May 14 02:10:44 node7 slurmstepd[812]: " of syslog; it knows no year. */
static const char *prefix_syslog(const char *s, struct line *l, struct model *m)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    int day, h, mi, sec, n = 0;
    char month[4] = "";
    if (!isupper((unsigned char)s[0]) || sscanf(s, "%3[A-Za-z] %2d %2d:%2d:%2d %n", month, &day, &h, &mi, &sec, &n) != 5 || n == 0 || !strstr(months, month))
        return NULL;
    size_t host = strcspn(s + n, " ");
    const char *after = s[n + host] == ' ' ? prefix_unit(s + n + host + 1, s + n, host, true, l, m) : NULL;
    if (after)
        l->time_s = (((strstr(months, month) - months) / 3 * 31.0 + day) * 24 + h) * 3600 + mi * 60 + sec;
    return after;
}

/* What may follow an ISO time: "stderr F " of containerd, or host and program of journalctl -o short-iso. */
static const char *after_time(const char *s, struct line *l, struct model *m)
{
    if (begins(s, "stdout F ") || begins(s, "stderr F ") || begins(s, "stdout P ") || begins(s, "stderr P "))
        return s + 9;
    size_t host = strcspn(s, " :[]()");
    const char *after = s[host] == ' ' ? prefix_unit(s + host + 1, s, host, false, l, m) : NULL;
    return after ? after : s;
}

static const char *prefix_time(const char *s, struct line *l, struct model *m)
{
    bool bracket = *s == '[';
    const char *end = take_iso_time(s + bracket, &l->time_s);
    if (!end || (bracket && *end != ']') || (!bracket && *end && *end != ' ' && *end != '\t'))
        return NULL;
    return after_time(skip_blanks(end + bracket), l, m);
}

/* "ERROR 07-14 02:13:11 [worker_base.py:620] " of vLLM; it knows no year. */
static const char *prefix_level(const char *s, struct line *l)
{
    static const char *const levels[] = {"INFO ", "WARNING ", "ERROR ", "CRITICAL ", "DEBUG "};
    int month, day, h, mi, sec, n = 0;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (begins(s, levels[i]) && sscanf(s + strlen(levels[i]), "%2d-%2d %2d:%2d:%2d%n", &month, &day, &h, &mi, &sec, &n) == 5 && n > 0) {
            const char *after = skip_blanks(s + strlen(levels[i]) + n), *end = *after == '[' ? strchr(after, ']') : NULL;
            if (!end || end - after > 100)
                return NULL;
            l->time_s = ((month * 31.0 + day) * 24 + h) * 3600 + mi * 60 + sec;
            return end[1] == ' ' ? end + 2 : end + 1; /* what follows may be indented: a traceback */
        }
    return NULL;
}

/* [ 7731.201552] of dmesg */
static const char *prefix_kernel(const char *s, struct line *l)
{
    double t;
    int n = 0;
    if (s[0] != '[' || sscanf(s, "[ %lf]%n", &t, &n) != 1 || n == 0 || !memchr(s, '.', (size_t)n))
        return NULL;
    l->time_s = t;
    return skip_blanks(s + n);
}

/* [1,3]<stdout>: of mpirun */
static const char *prefix_mpirun(const char *s, struct line *l)
{
    int job, task, n = 0;
    char stream[8];
    if (s[0] != '[' || sscanf(s, "[%d,%d]<%6[a-z]>:%n", &job, &task, stream, &n) != 3 || n == 0)
        return NULL;
    l->task = task;
    return s + n;
}

/* "3: " of srun -l; "[3] " of unisono run. Anything may begin with a number, so what follows must not be blank. */
static const char *prefix_task(const char *s, struct line *l)
{
    int task, n = 0;
    if (sscanf(s, "%5d: %n", &task, &n) == 1 && n > 0 && isdigit((unsigned char)s[0]))
        ;
    else if (s[0] == '[' && sscanf(s, "[%5d] %n", &task, &n) == 1 && n > 0)
        ;
    else
        return NULL;
    if (!s[n] || !memchr(s, ' ', (size_t)n))
        return NULL;
    l->task = task;
    return s + n;
}

/* [rank3]: and [default3]: of torchrun. Its log prefix [rank3]:[E514 03:12:09.114 File.cpp:1] keeps its second bracket. */
static const char *prefix_torchrun(const char *s, struct line *l)
{
    int rank, n = 0;
    char word[32];
    if (s[0] != '[' || sscanf(s, "[%31[a-z]%d]:%n", word, &rank, &n) != 2 || n == 0 || rank < 0)
        return NULL;
    if (strcmp(word, "rank") == 0)
        l->rank = rank;
    else
        l->task = rank;
    return s[n] == ' ' ? s + n + 1 : s + n;
}

/* (RayWorkerWrapper pid=4009, ip=10.0.0.7) */
static const char *prefix_ray(const char *s, struct line *l, struct model *m)
{
    int64_t pid;
    const char *end = strchr(s, ')');
    if (s[0] != '(' || !end || end - s > 160 || !scan(s, "pid=%d", &pid) || strstr(s, "pid=") > end)
        return NULL;
    struct span ip;
    const char *at = strstr(s, "ip=");
    if (at && at < end && scan(at, "ip=%w", &ip))
        l->host = model_string(m, ip.p, ip.n);
    l->pid = pid;
    return skip_blanks(end + 1);
}

/* [pod/name/container] of kubectl --prefix; "name-1  | " of compose */
static const char *prefix_pod(const char *s, struct line *l, struct model *m)
{
    if (begins(s, "[pod/")) {
        const char *from = s + 5, *end = strchr(s, ']');
        size_t n = strcspn(from, "/]");
        if (!end)
            return NULL;
        l->host = model_string(m, from, n);
        return skip_blanks(end + 1);
    }
    size_t n = name_bytes(s, "_.-");
    const char *bar = skip_blanks(s + n);
    if (n == 0 || n > 60 || bar == s + n || bar[0] != '|' || bar[1] != ' ' || !strpbrk(s, "-_") || strpbrk(s, "-_") > s + n)
        return NULL;
    l->host = model_string(m, s, n);
    return bar + 2;
}

/* "node7: " of pdsh, clush, ansible. A word with a digit that is no error, no bus address and no interface. */
static const char *prefix_host(const char *s, struct line *l, struct model *m)
{
    size_t n = name_bytes(s, "_.-");
    if (n < 2 || n > 63 || s[n] != ':' || s[n + 1] != ' ' || !isalpha((unsigned char)s[0]))
        return NULL;
    bool digit = false;
    for (size_t i = 0; i < n; i++)
        digit = digit || isdigit((unsigned char)s[i]);
    const char *rest = skip_blanks(s + n + 1);
    static const char *const not_hosts[] = {"Error", "Exception", "Warning", "NCCL", "RCCL", "HIP", "GPU", "CUDA", "Xid", "mlx5", "GLOO"};
    for (size_t i = 0; i < sizeof not_hosts / sizeof *not_hosts; i++)
        if (memmem(s, n, not_hosts[i], strlen(not_hosts[i])))
            return NULL;
    if (!digit || !*rest || begins(rest, "flags=") || rest[0] == '<')
        return NULL;
    l->host = model_string(m, s, n);
    return rest;
}

/* The first character says which can be; most lines of a log so cost one comparison. */
static const char *one_prefix(const char *s, struct line *l, struct model *m)
{
    const char *after = NULL;
    if (isdigit((unsigned char)*s))
        (void)((after = prefix_time(s, l, m)) || (after = prefix_task(s, l)));
    else if (*s == '[')
        (void)((after = prefix_torchrun(s, l)) || (after = prefix_time(s, l, m)) || (after = prefix_kernel(s, l)) || (after = prefix_mpirun(s, l)) ||
               (after = prefix_task(s, l)));
    else if (*s == '(')
        after = prefix_ray(s, l, m);
    else if (isupper((unsigned char)*s) && islower((unsigned char)s[1]) && s[2] && s[3] == ' ')
        after = prefix_syslog(s, l, m);
    else if (isupper((unsigned char)*s) && isupper((unsigned char)s[1]))
        after = prefix_level(s, l);
    if (!after && (*s == '[' || isalnum((unsigned char)*s)))
        (void)((after = prefix_pod(s, l, m)) || (after = prefix_host(s, l, m)));
    return after;
}

/* ---- sections of pasted files: "--- log n07 ---", "==> n07.log <==" ----------------------------------------- */

static bool is_filler(const char *word, size_t n)
{
    static const char *const words[] = {"env", "log", "logs", "kernel", "dmesg", "on", "of", "from", "host", "node", "pair", "good", "bad", "rank", "container",
                                        "output", "the", "environment", "file", "begin", "end", "pod", "worker", "master", "stdout", "stderr", "and"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && strncasecmp(word, words[i], n) == 0)
            return true;
    return false;
}

/* The last word of a title that can be the name of a host. */
static void section_host(const char *title, struct context *c)
{
    bool after_rank = false;
    c->host[0] = 0;
    c->section_rank = NOBODY;
    for (const char *p = title; *p;) {
        p += strspn(p, " \t,:;()");
        size_t n = strcspn(p, " \t,:;()");
        if (!n)
            break;
        bool number = strspn(p, "0123456789") == n;
        if (after_rank && number)
            c->section_rank = atoi(p);
        else if (!is_filler(p, n) && p[0] != '/' && n < sizeof c->host)
            snprintf(c->host, sizeof c->host, "%.*s", (int)n, p);
        after_rank = n == 4 && strncasecmp(p, "rank", 4) == 0;
        p += n;
    }
}

static bool section_line(const char *s, struct context *c)
{
    static const struct { const char *open, *close; } marks[] = {{"--- ", " ---"}, {"=== ", " ==="}, {"==> ", " <=="}, {"### ", " ###"}, {"#### ", " ####"}};
    size_t n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1]))
        n--;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t open = strlen(marks[i].open), close = strlen(marks[i].close);
        if (n <= open + close || n > 140 || !begins(s, marks[i].open) || strncmp(s + n - close, marks[i].close, close) != 0)
            continue;
        snprintf(c->section, sizeof c->section, "%.*s", (int)(n - open - close), s + open);
        section_host(c->section, c);
        return true;
    }
    return false;
}

void line_strip(char *text, struct context *c, struct line *l, struct model *m)
{
    l->rank = l->task = NOBODY;
    l->pid = NOBODY;
    l->host = "";
    l->time_s = 0;
    l->raw = text;
    const char *s = text;
    for (int i = 0; i < 6; i++) {
        const char *after = one_prefix(s, l, m);
        if (!after)
            break;
        s = after;
    }
    l->text = s;
    if (l->rank == NOBODY && c->section_rank != NOBODY)
        l->rank = c->section_rank;
    if (c->host[0]) /* nearer than a prefix, which may be that of whoever printed the section */
        l->host = model_words(m, c->host);
    l->owner = l->host;
    if (!*l->owner && (l->rank != NOBODY || l->task != NOBODY)) {
        char words[24];
        snprintf(words, sizeof words, l->rank != NOBODY ? "rank %d" : "task %d", l->rank != NOBODY ? l->rank : l->task);
        l->owner = model_words(m, words);
    }
}

/* ---- splitting ------------------------------------------------------------------------------------------- */

static void one_line(struct model *m, struct context *c, const char *file, long number, char *text, bool cut)
{
    text = last_of_overwritten(text);
    if (strpbrk(text, "\033\r\b"))
        strip_colour(text);
    struct line l = {.file = file, .number = number, .cut = cut};
    scan_hint(text, strlen(text));
    line_strip(text, c, &l, m);
    m->lines++;
    if (section_line(l.text, c)) {
        for (size_t i = 0; readers[i]; i++)
            if (readers[i]->end)
                readers[i]->end(m, c, file);
        return;
    }
    for (size_t i = 0; readers[i]; i++)
        if (readers[i]->line && readers[i]->line(m, c, &l))
            return;
}

struct splitter {
    char *buf; /* the beginning of a line that is not whole yet */
    size_t used;
    bool skipping; /* the rest of a line that was too long */
    bool ended;    /* the text has; what there is of a line is its last */
    long number, cut;
};

static void feed(struct model *m, struct context *c, const char *file, struct splitter *sp, const char *data, size_t bytes)
{
    while (bytes) {
        const char *newline = memchr(data, '\n', bytes);
        size_t part = newline ? (size_t)(newline - data) : bytes;
        size_t room = LINE_BYTES - 1 - sp->used, take = part < room ? part : room;
        if (!sp->skipping) {
            memcpy(sp->buf + sp->used, data, take);
            sp->used += take;
            if (take < part) {
                sp->skipping = true;
                sp->cut++;
            }
        }
        if (newline) {
            for (char *p = sp->buf; (p = memchr(p, 0, sp->used - (size_t)(p - sp->buf)));)
                *p = ' ';
            sp->buf[sp->used] = 0;
            one_line(m, c, file, ++sp->number, sp->buf, sp->ended);
            sp->used = 0;
            sp->skipping = false;
        }
        data += part + (newline != NULL);
        bytes -= part + (newline != NULL);
    }
}

void lines_read(struct model *m, const char *file, read_bytes more, void *from)
{
    enum { CHUNK = 256 << 10 };
    struct context c = {.section_rank = NOBODY};
    struct splitter sp = {.buf = malloc(LINE_BYTES)};
    char *chunk = malloc(CHUNK);
    if (!sp.buf || !chunk) {
        model_note(m, "%s: not read, there is no memory", file);
        free(sp.buf);
        free(chunk);
        return;
    }
    size_t n;
    while ((n = more(from, chunk, CHUNK)) > 0)
        feed(m, &c, file, &sp, chunk, n);
    sp.ended = true;
    if (sp.used)
        feed(m, &c, file, &sp, "\n", 1);
    for (size_t i = 0; readers[i]; i++)
        if (readers[i]->end)
            readers[i]->end(m, &c, file);
    scan_hint(NULL, 0);
    if (sp.cut)
        model_note(m, "%s: %ld lines are longer than %d KB; what is beyond was not read", file, sp.cut, LINE_BYTES >> 10);
    free(sp.buf);
    free(chunk);
}
