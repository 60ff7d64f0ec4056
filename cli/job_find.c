/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_find.c - which job is meant: by process, by name, or the only one of this user on this host. Processes are found in /proc and by
 * their sockets, what they show is read by the library's keeper; nobody is stopped, and no job needs to help.
 */
#include "job.h"

#include <ctype.h>
#include <dirent.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"

bool job_process_owner(int pid, unsigned *uid)
{
    char path[40], line[256];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "Uid: %*u %u", uid) == 1;
    if (f)
        fclose(f);
    if (!found && kill(pid, 0) == 0) { /* /proc hides it (hidepid), and only from others' eyes or while it is not dumpable: it is ours */
        *uid = (unsigned)geteuid();
        found = true;
    }
    return found;
}

/* A number in /proc/<pid>/status; 0 = it is not known. */
static int status_number(int pid, const char *key)
{
    char path[40], line[256];
    int number = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    while (f && !number && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            number = (int)strtol(line + strlen(key), NULL, 10);
    if (f)
        fclose(f);
    return number;
}

int job_process_parent(int pid)
{
    return status_number(pid, "PPid:");
}

int job_process_of(int tid)
{
    return status_number(tid, "Tgid:");
}

/* Is it a child, or a child's child, of ancestor? */
static bool descends(int pid, int ancestor)
{
    for (int depth = 0; pid > 1 && depth < 64; depth++) {
        pid = job_process_parent(pid);
        if (pid == ancestor)
            return true;
    }
    return false;
}

/* ---- all jobs of this user -------------------------------------------------------------------------------------------------- */

struct search {
    int wanted_pid;        /* 0 = none */
    uno_err wanted_err;    /* what the keeper said of it */
    char wanted_text[600];
    int other;             /* a process of this user that has joined a job and cannot be looked at; 0 = none */
    bool other_job;        /* ... though its job is in no list of this tool: another version, or all its ranks are threads */
    char other_text[600];  /* the keeper's sentence of it */
};

static void look_at(uno_keeper *keeper, int pid, struct search *s)
{
    unsigned uid;
    if (pid <= 0 || pid == (int)getpid() || !job_process_owner(pid, &uid) || uid != geteuid())
        return;
    uno_err err = uno_keeper_look(keeper, pid);
    if (err == UNO_ERR_UNSUPPORTED || (err == UNO_ERR_USAGE && !s->other)) {
        s->other = pid;
        s->other_job = err == UNO_ERR_UNSUPPORTED;
        snprintf(s->other_text, sizeof s->other_text, "%s", uno_last_error(NULL));
    }
    if (pid == s->wanted_pid) {
        s->wanted_err = err;
        snprintf(s->wanted_text, sizeof s->wanted_text, "%s", err == UNO_OK ? "" : uno_last_error(NULL));
    }
}

/* Whom /proc does not list. */
static void look_at_hidden(uno_keeper *keeper, struct search *s)
{
    static int pids[1024];
    char path[40];
    size_t n = uno_keeper_pids(pids, sizeof pids / sizeof *pids);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "/proc/%d", pids[i]);
        if (access(path, F_OK) != 0)
            look_at(keeper, pids[i], s);
    }
}

static void look_at_all(uno_keeper *keeper, struct search *s)
{
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));)
        look_at(keeper, isdigit((unsigned char)e->d_name[0]) ? (int)strtol(e->d_name, NULL, 10) : 0, s);
    if (d)
        closedir(d);
    look_at_hidden(keeper, s);
}

static int read_facts(const char *command, uno_keeper *keeper, bool look, uno_jobs **jobs)
{
    void *data = NULL;
    size_t bytes = 0;
    uno_err err = uno_jobs_new(jobs);
    if (err == UNO_OK)
        err = uno_keeper_facts(keeper, look, &data, &bytes);
    if (err == UNO_OK)
        err = uno_jobs_add(*jobs, data, bytes);
    free(data);
    return err == UNO_OK ? CLI_GOOD : out_error(command, "what the processes show cannot be read: %s", uno_last_error(NULL));
}

static bool holds_pid(const uno_job *job, int pid)
{
    for (int r = 0; r < job->size; r++)
        if (job->ranks[r].pid == pid)
            return true;
    return false;
}

/* A launcher or a shell: one of its descendants is a rank. */
static bool holds_descendant(const uno_job *job, int pid)
{
    for (int r = 0; r < job->size; r++)
        if (job->ranks[r].pid > 0 && descends(job->ranks[r].pid, pid))
            return true;
    return false;
}

static bool has_name(const uno_job *job, const char *name)
{
    char id[20];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)job->id);
    if (strcmp(job->program, name) == 0 || (strlen(name) >= 4 && strncmp(id, name, strlen(name)) == 0))
        return true;
    for (int r = 0; r < job->size; r++)
        if (strcmp(job->ranks[r].program, name) == 0)
            return true;
    return false;
}

static void list_jobs(uno_jobs *jobs)
{
    for (size_t i = 0; i < uno_jobs_count(jobs); i++) {
        const uno_job *job;
        if (uno_jobs_get(jobs, i, &job) != UNO_OK)
            continue;
        fprintf(stderr, "  --job %016llx  %s, %d rank%s", (unsigned long long)job->id, job->program[0] ? job->program : "?", job->size,
                job->size == 1 ? "" : "s");
        int shown = 0;
        for (int r = 0; r < job->size && shown < 8; r++)
            if (job->ranks[r].pid)
                fprintf(stderr, "%s%d", shown++ ? " " : ", pids ", job->ranks[r].pid);
        fprintf(stderr, "%s\n", job->reported > shown ? " ..." : "");
    }
}

/* The one job that is meant. */
static int choose(const struct job_wanted *w, int pid, struct job_found *found)
{
    size_t n = uno_jobs_count(found->jobs), hits = 0;
    for (int pass = 0; pass < 2 && hits == 0; pass++) {
        for (size_t i = 0; i < n; i++) {
            const uno_job *job;
            if (uno_jobs_get(found->jobs, i, &job) != UNO_OK)
                return out_error(w->command, "%s", uno_last_error(NULL));
            bool hit = pass == 0 ? (!w->name || has_name(job, w->name)) && (!pid || holds_pid(job, pid))
                                 : pid && holds_descendant(job, pid) && (!w->name || has_name(job, w->name));
            if (!hit)
                continue;
            hits++;
            found->index = i;
        }
    }
    if (hits == 1) {
        uno_err err = uno_jobs_get(found->jobs, found->index, &found->job);
        return err == UNO_OK ? CLI_GOOD : out_error(w->command, "%s", uno_last_error(NULL));
    }
    if (hits > 1 && pid)
        out_error(w->command, "process %d has to do with %zu jobs; choose one:", pid, hits);
    else if (hits > 1)
        out_error(w->command, "there are %zu jobs%s%s; choose one:", hits, w->name ? " called " : "", w->name ? w->name : "");
    else if (w->name && n)
        out_error(w->command, "there is no job \"%s\" %s; there is:", w->name, w->what ? "among these records" : "of this user on this host");
    else
        return -1;
    list_jobs(found->jobs);
    return CLI_ERROR;
}

/* top has nothing to show of what is over. */
static const char *reader_of_records(const struct job_wanted *w)
{
    return w->live ? "why" : w->command;
}

static int wrong_pid(const struct job_wanted *w, int pid)
{
    unsigned uid;
    if (!job_process_owner(pid, &uid))
        return out_error(w->command, "there is no process %d on this host; when a job is over, its records are read with "
                         "`unisono %s DIR` (UNISONO_LEDGER_DIR)", pid, reader_of_records(w));
    int process = job_process_of(pid);
    if (process && process != pid)
        return out_error(w->command, "%d is a thread of process %d; ask for that one: unisono %s %d", pid, process, w->command, process);
    if (uid == geteuid())
        return CLI_GOOD;
    struct passwd *p = getpwuid(uid);
    char number[24];
    snprintf(number, sizeof number, "#%u", uid);
    return out_error(w->command, "process %d belongs to another user (%s), and only that user may look at it: sudo -u '%s' unisono %s %d",
                     pid, p ? p->pw_name : number, p ? p->pw_name : number, w->command, pid);
}

static void tell_other(const struct job_wanted *w, const struct search *s)
{
    if (s->other && s->other_job)
        out_error(w->command, "one more job was not looked at: %s", s->other_text);
}

static int none_found(const struct job_wanted *w, const struct search *s)
{
    if (s->wanted_pid && s->other && s->other != s->wanted_pid && descends(s->other, s->wanted_pid))
        return out_error(w->command, "process %d is in no job that can be looked at; of those that it has started: %s", s->wanted_pid, s->other_text);
    if (s->wanted_pid && s->wanted_err != UNO_OK && s->wanted_err != UNO_ERR_IN_PROGRESS)
        return out_error(w->command, "%s", s->wanted_text);
    if (s->wanted_pid)
        return out_error(w->command, "process %d has joined no job of this library, or has left it, and so has none of its children",
                         s->wanted_pid);
    if (s->other)
        return out_error(w->command, "no process of this user on this host is in a job that can be looked at: %s", s->other_text);
    return out_error(w->command, "no process of this user on this host is in a job%s; records of a job that is over are read with `unisono %s DIR` "
                     "(UNISONO_LEDGER_DIR)", w->name ? " of that name, or in any" : "", reader_of_records(w));
}

/* From now on only the processes of that job are kept, so that no other one is disturbed. */
static int keep_only(const struct job_wanted *w, struct job_found *found)
{
    uno_keeper *keeper;
    if (uno_keeper_new(&keeper) != UNO_OK)
        return out_error(w->command, "%s", uno_last_error(NULL));
    found->id = found->job->id;
    found->size = found->job->size;
    for (int r = 0; r < found->job->size; r++)
        if (found->job->ranks[r].pid > 0) {
            uno_err err = uno_keeper_look(keeper, found->job->ranks[r].pid);
            (void)err; /* it has ended meanwhile */
        }
    uno_keeper_free(found->keeper);
    found->keeper = keeper;
    return CLI_GOOD;
}

static int find_live(const struct job_wanted *w, int pid, struct job_found *found)
{
    struct search s = {.wanted_pid = pid};
    int rc = pid ? wrong_pid(w, pid) : CLI_GOOD;
    found->live = true;
    if (rc != CLI_GOOD)
        return rc;
    if (uno_keeper_new(&found->keeper) != UNO_OK)
        return out_error(w->command, "%s", uno_last_error(NULL));
    look_at_all(found->keeper, &s);
    rc = read_facts(w->command, found->keeper, false, &found->jobs);
    if (rc == CLI_GOOD)
        rc = choose(w, pid, found);
    if (rc == -1)
        rc = none_found(w, &s);
    else if (rc != CLI_GOOD || (!pid && !w->name))
        tell_other(w, &s);
    return rc == CLI_GOOD ? keep_only(w, found) : rc;
}

/* Does the word mean a process, though a file or folder of that name may lie here? ./1234 is the file. */
static bool means_pid(const struct job_wanted *w, int *pid)
{
    const char *word = w->what;
    int64_t number = 0;
    unsigned uid;
    if (!word[0] || word[strspn(word, "0123456789")])
        return false;
    bool fits = out_parse_int(word, 1, 1 << 30, &number);
    *pid = fits ? (int)number : 0;
    return w->live || access(word, F_OK) != 0 || (fits && job_process_owner(*pid, &uid));
}

int job_find(const struct job_wanted *w, struct job_found *found)
{
    int pid = 0;
    *found = (struct job_found){0};
    bool files = w->what && !means_pid(w, &pid);
    if (!(files && access(w->what, F_OK) == 0) && access("/proc/self", F_OK) != 0)
        return out_error(w->command, "/proc is not mounted here, and without it no process can be found or looked at; `mount -t proc proc /proc` "
                         "helps, and records of a job that is over can be read (`unisono %s DIR`)", reader_of_records(w));
    if (!w->what)
        return find_live(w, 0, found);
    if (!files)
        return pid ? find_live(w, pid, found) : out_error(w->command, "%s is no process id", w->what);
    if (uno_jobs_new(&found->jobs) != UNO_OK)
        return out_error(w->command, "%s", uno_last_error(NULL));
    int rc = job_read_files(w->command, w->what, found->jobs);
    if (rc == CLI_GOOD)
        rc = choose(w, 0, found);
    return rc == -1 ? out_error(w->command, "%s holds no records", w->what) : rc;
}

/* jobs: what was read; the one that was found takes its place. */
static int take_up(const char *command, struct job_found *found, uno_jobs *jobs)
{
    for (size_t i = 0; i < uno_jobs_count(jobs); i++) {
        const uno_job *job;
        if (uno_jobs_get(jobs, i, &job) != UNO_OK || job->id != found->id || job->size != found->size)
            continue;
        uno_jobs_free(found->jobs);
        found->jobs = jobs;
        found->index = i;
        found->job = job;
        return CLI_GOOD;
    }
    uno_jobs_free(jobs);
    return out_error(command, "the job has ended meanwhile");
}

/* Which ranks are on this host: those of which the keeper itself has records. */
static int note_here(const char *command, struct job_found *found, uno_jobs *jobs)
{
    if (!found->here && !(found->here = calloc((size_t)found->size, sizeof *found->here)))
        return out_error(command, "no memory");
    for (size_t i = 0; i < uno_jobs_count(jobs); i++) {
        const uno_job *job;
        if (uno_jobs_get(jobs, i, &job) != UNO_OK)
            return out_error(command, "%s", uno_last_error(NULL));
        for (int r = 0; r < job->size && job->id == found->id && job->size == found->size; r++)
            found->here[r] = !job_unheard(&job->ranks[r]);
    }
    return CLI_GOOD;
}

int job_read(const char *command, struct job_found *found)
{
    uno_jobs *jobs = NULL;
    int rc = read_facts(command, found->keeper, false, &jobs);
    if (rc == CLI_GOOD)
        rc = note_here(command, found, jobs);
    if (rc == CLI_GOOD && found->others_bytes && uno_jobs_add(jobs, found->others, found->others_bytes) != UNO_OK)
        snprintf(found->unasked, sizeof found->unasked, "what they answer cannot be read: %s", uno_last_error(NULL));
    if (rc == CLI_GOOD)
        return take_up(command, found, jobs);
    uno_jobs_free(jobs);
    return rc;
}

void job_ask_others(struct job_found *found)
{
    if (uno_keeper_ask(found->keeper) != UNO_OK)
        snprintf(found->unasked, sizeof found->unasked, "%s", uno_last_error(NULL));
}

bool job_hear_others(struct job_found *found)
{
    void *data;
    size_t bytes;
    uno_err err = uno_keeper_answer(found->keeper, &data, &bytes);
    if (err == UNO_ERR_IN_PROGRESS)
        return false;
    if (err != UNO_OK) {
        snprintf(found->unasked, sizeof found->unasked, "%s", uno_last_error(NULL));
    } else if (bytes) {
        free(found->others);
        found->others = data;
        found->others_bytes = bytes;
        found->unasked[0] = 0;
    } else {
        free(data);
    }
    return true;
}

int job_ask(const char *command, struct job_found *found)
{
    uno_jobs *jobs = NULL;
    void *data = NULL;
    size_t bytes = 0;
    found->unasked[0] = 0;
    uno_err err = uno_keeper_gather(found->keeper, &data, &bytes); /* first: its look has begun when ours does not disturb it */
    if (err != UNO_OK)
        snprintf(found->unasked, sizeof found->unasked, "%s", uno_last_error(NULL));
    int rc = read_facts(command, found->keeper, true, &jobs);
    if (rc == CLI_GOOD && bytes && uno_jobs_add(jobs, data, bytes) != UNO_OK)
        snprintf(found->unasked, sizeof found->unasked, "what they answer cannot be read: %s", uno_last_error(NULL));
    free(data);
    if (rc == CLI_GOOD)
        return take_up(command, found, jobs);
    uno_jobs_free(jobs);
    return rc;
}

void job_free(struct job_found *found)
{
    uno_jobs_free(found->jobs);
    uno_keeper_free(found->keeper);
    free(found->here);
    free(found->others);
    *found = (struct job_found){0};
}

/* ---- words --------------------------------------------------------------------------------------------------------------------- */

char *job_comm_name(const uno_job_comm *c, char *buf, size_t buf_bytes)
{
    if (c->name[0])
        snprintf(buf, buf_bytes, "%s", c->name);
    else
        snprintf(buf, buf_bytes, "%08llx", (unsigned long long)(c->id >> 32 ^ (c->id & 0xffffffff)));
    return buf;
}

int job_member(const uno_job_comm *c, int comm_rank)
{
    if (comm_rank < 0 || comm_rank >= c->size)
        return comm_rank;
    return c->members ? (int)c->members[comm_rank] : comm_rank;
}

bool job_unheard(const uno_job_rank *r)
{
    return strcmp(r->status, "unknown") == 0;
}

bool job_silent(const uno_job_rank *r)
{
    return strcmp(r->status, "silent") == 0;
}

bool job_stands(const uno_job_rank *r)
{
    return strcmp(r->run, "stopped") == 0 || strcmp(r->run, "traced") == 0 || strcmp(r->run, "frozen") == 0;
}

char *job_list(const uno_job *job, bool (*so)(const uno_job_rank *r), char *buf, size_t buf_bytes)
{
    size_t len = 0;
    buf[0] = 0;
    for (int r = 0; r < job->size; r++) {
        int last = r;
        if (!so(&job->ranks[r]))
            continue;
        while (last + 1 < job->size && so(&job->ranks[last + 1]))
            last++;
        if (len + 40 > buf_bytes) {
            snprintf(buf + len, buf_bytes - len, ", ...");
            break;
        }
        len += (size_t)snprintf(buf + len, buf_bytes - len, last > r ? "%s%d-%d" : "%s%d", len ? ", " : "", r, last);
        r = last;
    }
    return buf;
}

int job_hosts(const uno_job *job)
{
    int hosts = 0;
    for (int r = 0; r < job->size; r++) {
        const uno_job_rank *rank = &job->ranks[r];
        bool counts = rank->host_index >= 0 && !job_silent(rank);
        for (int q = 0; q < r && counts; q++)
            counts = job->ranks[q].host_index != rank->host_index || job_silent(&job->ranks[q]);
        hosts += counts;
    }
    return hosts;
}
