/* SPDX-License-Identifier: Apache-2.0 */
/* rules_settings.c - variables that do not do what they say, contradict each other, or differ between ranks. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "scene.h"
#include "settings.h"

/* ---- one variable ------------------------------------------------------------------------------------------------------------------------ */

/* Several values in one file (a script that sets it twice) are one variable. */
static void opinions(struct judge *j, struct names *wrong, struct names *texts, struct names *notes, const struct fact **first, const char **fixes, int *fix_count)
{
    EACH_FACT(j->m, F_SETTING, s) {
        struct opinion o = setting_opinion(j->m, s->name, s->value, s->a != 0);
        if (o.grade == GRADE_WRONG) {
            if (!names_has(wrong, s->name) && *fix_count < 6 && *o.remedy)
                fixes[(*fix_count)++] = o.remedy;
            names_add(j->m, wrong, s->name);
            names_add(j->m, texts, o.text);
            if (!*first)
                *first = s;
        } else if (o.grade == GRADE_NOTE) {
            names_add(j->m, notes, o.text);
        }
    }
    EACH_FACT(j->m, F_AFTER_PROGRAM, a) {
        names_add(j->m, wrong, a->name);
        names_add(j->m, texts, model_say(j->m, "%s=%s stands after the program's name, so it is an argument of the program and no variable", a->name, a->value));
        *first = *first ? *first : a;
    }
}

/* What a script hopes to find in a log, and no version prints. */
static bool is_printed(const char *words)
{
    static const char *const real[] = {"NCCL version", "RCCL version", "NCCL INFO", "NCCL WARN", "Init START", "Init COMPLETE", "Using network", "Connected all", "NET/IB", "NET/Socket", "NET/Plugin", "Channel", "via P2P", "via NET",
                                       "via SHM", "GPU Direct", "GDRDMA", "Bootstrap", "Trees", "Ring ", "comm 0x", "set by environment", "NCCL error", "NCCL_", "RCCL_", "ProcessGroupNCCL", "NVLS"};
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        if (has(words, real[i]))
            return true;
    return false;
}

static void hopes(struct judge *j, struct names *out, struct finding *f)
{
    EACH_FACT(j->m, F_GREP, g)
        if (!is_printed(g->name)) {
            names_add(j->m, out, model_say(j->m, "'%s'", g->name));
            evidence(f, g);
        }
}

void rule_setting_invalid(struct judge *j)
{
    struct names wrong = {0}, texts = {0}, notes = {0}, phrases = {0};
    const struct fact *first = NULL;
    const char *fixes[6];
    int fix_count = 0;
    opinions(j, &wrong, &texts, &notes, &first, fixes, &fix_count);
    if (!wrong.n)
        return;
    struct finding *f = find(j, ADVICE + 5, 0.9, "%d setting%s not do what %s: %s", wrong.n, wrong.n == 1 ? " does" : "s do", wrong.n == 1 ? "it says" : "they say", names_say(j->m, &wrong));
    for (int i = 0; i < texts.n; i++)
        explain(j, f, "%s.", texts.v[i]);
    for (int i = 0; i < notes.n; i++)
        explain(j, f, "%s.", notes.v[i]);
    EACH_FACT(j->m, F_LAUNCH_OPTION, o)
        if (has(o->name, "timeout") && *o->value) {
            explain(j, f, "The time-out that counts here is %s=%s.", o->name, o->value);
            break;
        }
    EACH_FACT(j->m, F_SETTING, s)
        if (names_has(&wrong, s->name))
            evidence(f, s);
    hopes(j, &phrases, f);
    if (phrases.n)
        explain(j, f, "No version of the library prints %s, so looking for it proves nothing; look for 'Init COMPLETE'.", names_say(j->m, &phrases));
    for (int i = 0; i < fix_count; i++)
        remedy_made(f, fixes[i]);
    EACH_FACT(j->m, F_AFTER_PROGRAM, a) {
        remedy(j, f, "put %s=%s before the program: `mpirun -x %s=%s ...`, or export it", a->name, a->value, a->name, a->value);
        evidence(f, a);
    }
    if (!f->remedy_count)
        remedy(j, f, "correct it, or `unset %s`", wrong.v[0]);
}

/* Alike but for underscores and plurals: what is meant is plain. */
static bool nearly(const char *a, const char *b)
{
    for (;; a++, b++) {
        a += strspn(a, "_S");
        b += strspn(b, "_S");
        if (*a != *b || !*a)
            return *a == *b;
    }
}

/* Names of Slurm that a script reads and Slurm does not set, though it sets one that is nearly the same. */
void rule_slurm_names(struct judge *j)
{
    static const char *const known[] = {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NAME", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES",
        "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_GPUS", "SLURM_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_JOB_GPUS", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_SUBMIT_DIR",
        "SLURM_SUBMIT_HOST", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT", "SLURMD_NODENAME", "SLURM_NODE_ALIASES", "SLURM_TOPOLOGY_ADDR", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
        "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP", "SLURM_JOB_PARTITION", "SLURM_JOB_ACCOUNT", "SLURM_JOB_QOS", "SLURM_JOB_USER", "SLURM_JOB_UID", "SLURM_JOB_START_TIME",
        "SLURM_JOB_END_TIME", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE", "SLURM_CLUSTER_NAME", "SLURM_CONF", "SLURM_RESTART_COUNT", "SLURM_DISTRIBUTION", "SLURM_CPU_BIND", "SLURM_GPU_BIND", "SLURM_HINT",
        "SLURM_EXPORT_ENV", "SLURM_OVERCOMMIT", "SLURM_UMASK", "SLURM_THREADS_PER_CORE", "SLURM_PRIO_PROCESS", "SLURM_WORKING_CLUSTER", "SLURM_HOSTFILE"};
    EACH_FACT(j->m, F_ASKED, a) {
        bool is = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is = is || same_text(known[i], a->name);
        EACH_FACT(j->m, F_SETTING, s) /* the script may set it itself */
            is = is || same_text(s->name, a->name);
        const char *near = NULL;
        for (size_t i = 0; !is && i < sizeof known / sizeof *known; i++)
            near = nearly(known[i], a->name) ? known[i] : near;
        if (!near)
            continue;
        struct finding *f = find(j, ADVICE + 7, 0.8, "Slurm sets no %s, which the script reads; there is %s", a->name, near);
        explain(j, f, "It is empty, so whatever is computed from it (ranks, world size, ports) is wrong or a default.");
        evidence(f, a);
        remedy(j, f, "`sed -i 's/%s/%s/g' %s`; what there is: `srun -N1 -n1 env | grep ^SLURM_`", a->name, near, a->file);
        return;
    }
}

/* ---- a prefix that matches more than was meant ---------------------------------------------------------------------------------------------- */

/* One plain name of a list, and what else a library's list shows that begins so. */
static void prefix_matches(struct judge *j, const struct fact *s, const char *entry, size_t n, enum fact_kind kind, struct names *also)
{
    bool exact = false;
    EACH_FACT(j->m, kind, f)
        exact = exact || (strlen(f->name) == n && memcmp(f->name, entry, n) == 0);
    if (!exact)
        return; /* a prefix on purpose: nothing is called just that */
    EACH_FACT(j->m, kind, f)
        if (strlen(f->name) > n && memcmp(f->name, entry, n) == 0)
            names_add(j->m, also, f->name);
}

void rule_prefix(struct judge *j)
{
    static const struct { const char *name; enum fact_kind kind; } lists[] = {{"NCCL_IB_HCA", F_NIC}, {"NCCL_SOCKET_IFNAME", F_BOOTSTRAP}};
    struct finding *f = NULL;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const struct fact *s = setting_of(j->m, lists[i].name);
        struct names also = {0};
        if (!s || s->value[0] == '=' || s->value[0] == '^')
            continue;
        for (const char *p = s->value; *p; p += *p == ',') {
            size_t n = strcspn(p, ",");
            size_t name = strcspn(p, ",:");
            prefix_matches(j, s, p, name < n ? name : n, lists[i].kind, &also);
            p += n;
        }
        if (!also.n)
            continue;
        if (!f)
            f = find(j, LIKELY - 5, 0.9, "%s=%s is a prefix and also selects %s: write %s==%s", s->name, s->value, names_say(j->m, &also), s->name, s->value);
        else
            explain(j, f, "Likewise %s=%s also selects %s.", s->name, s->value, names_say(j->m, &also));
        evidence(f, s);
        EACH_FACT(j->m, lists[i].kind, n)
            if (names_has(&also, n->name))
                evidence(f, n);
        remedy(j, f, "`export %s==%s`", s->name, s->value);
    }
    if (f)
        explain(j, f, "Names are prefixes; a leading = asks for exact names, ^ excludes, ^= excludes exactly.");
}

/* ---- contradictions ---------------------------------------------------------------------------------------------------------------------------- */

static long long number_of(const struct model *m, const char *name, long long otherwise)
{
    const struct fact *s = setting_of(m, name);
    return s && *s->value && !strchr(s->value, '$') ? setting_number(s->value) : otherwise;
}

void rule_contradiction(struct judge *j)
{
    static const struct { const char *off, *idle, *why; } pairs[] = {
        {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "the level is ignored once peer access is disabled"},
        {"NCCL_IB_DISABLE", "NCCL_IB_HCA", "no RDMA card is used at all"},
        {"NCCL_IB_DISABLE", "NCCL_IB_GID_INDEX", "no RDMA card is used at all"},
        {"NCCL_P2P_DISABLE", "NCCL_NVLS_ENABLE", "NVLink SHARP needs peer access"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct fact *off = setting_of(j->m, pairs[i].off), *idle = setting_of(j->m, pairs[i].idle);
        if (!off || !idle || number_of(j->m, pairs[i].off, 0) != 1 || (same_text(pairs[i].idle, "NCCL_NVLS_ENABLE") && number_of(j->m, pairs[i].idle, 0) == 0))
            continue;
        struct finding *f = find(j, ADVICE + 4, 0.8, "%s=%s makes %s=%s pointless: %s", off->name, off->value, idle->name, idle->value, pairs[i].why);
        evidence(f, off);
        evidence(f, idle);
        remedy(j, f, "keep one of the two: `unset %s`, or `unset %s`", idle->name, off->name);
        return;
    }
    long long least = number_of(j->m, "NCCL_MIN_NCHANNELS", -1), most = number_of(j->m, "NCCL_MAX_NCHANNELS", -1);
    if (least > 0 && most > 0 && least > most) {
        struct finding *f = find(j, ADVICE + 4, 0.85, "NCCL_MIN_NCHANNELS=%lld is more than NCCL_MAX_NCHANNELS=%lld: the minimum wins", least, most);
        evidence(f, setting_of(j->m, "NCCL_MIN_NCHANNELS"));
        evidence(f, setting_of(j->m, "NCCL_MAX_NCHANNELS"));
        remedy(j, f, "set NCCL_MAX_NCHANNELS alone, or neither: `unset NCCL_MIN_NCHANNELS`");
    }
}

/* ---- between ranks ------------------------------------------------------------------------------------------------------------------------------- */

static const struct fact *setting_at(const struct model *m, const char *owner, const char *name)
{
    EACH_FACT(m, F_SETTING, s)
        if (same_text(s->host, owner) && same_text(s->name, name))
            return s;
    EACH_FACT(m, F_SETTING_SEEN, s)
        if (same_text(s->host, owner) && same_text(s->name, name))
            return s;
    return NULL;
}

/* Who listed a whole environment: there a missing name is a variable that is not set. */
static void owners(struct judge *j, struct names *out)
{
    EACH_FACT(j->m, F_SETTING, s)
        if (same_text(s->extra, "listed"))
            names_add(j->m, out, s->host);
    EACH_FACT(j->m, F_HOST_CLOCK, h) /* one without any variable was asked, too */
        names_add(j->m, out, h->host);
}

struct difference {
    const struct fact *here, *there; /* there: NULL = not set */
    const char *lacks;               /* owner without it, or with another value */
};

static void differences(struct judge *j, const struct names *who, struct difference *d, int *n, int most)
{
    EACH_FACT(j->m, F_SETTING, s) {
        if (setting_may_differ(s->name) || !names_has(who, s->host))
            continue;
        bool told = false;
        for (int i = 0; i < *n; i++)
            told = told || same_text(d[i].here->name, s->name);
        for (int i = 0; i < who->n && !told; i++) {
            const struct fact *o = same_text(who->v[i], s->host) ? s : setting_at(j->m, who->v[i], s->name);
            if ((!o || !same_text(o->value, s->value)) && *n < most) {
                d[(*n)++] = (struct difference){s, o, who->v[i]};
                told = true;
            }
        }
    }
    /* What logs say was read is told only for what they say: a cut log has not said everything. */
    EACH_FACT(j->m, F_SETTING_SEEN, b) {
        const struct fact *a = j->m->first[F_SETTING_SEEN]; /* who said it first: if all are as he, all are alike */
        while (a->name != b->name)
            a = a->next;
        if (same_text(a->value, b->value) || same_text(a->host, b->host) || !*a->host || !*b->host || setting_may_differ(a->name))
            continue;
        bool told = false;
        for (int i = 0; i < *n; i++)
            told = told || same_text(d[i].here->name, a->name);
        if (!told && *n < most)
            d[(*n)++] = (struct difference){a, b, b->host};
    }
}

void rule_settings_differ(struct judge *j)
{
    struct names who = {0}, wire = {0}, all = {0};
    struct difference d[32];
    int n = 0;
    owners(j, &who);
    differences(j, &who, d, &n, 32);
    for (int i = 0; i < n; i++) {
        names_add(j->m, &all, d[i].here->name);
        if (setting_on_the_wire(d[i].here->name))
            names_add(j->m, &wire, d[i].here->name);
    }
    if (!n)
        return;
    const struct fact *sizes = first_of(j->m, F_SIZES_DIFFER);
    const struct names *tell = wire.n ? &wire : &all;
    bool unset = false;
    for (int i = 0; i < n; i++)
        unset = unset || (names_has(tell, d[i].here->name) && !d[i].there);
    struct finding *f = find(j, wire.n ? sizes ? CAUSE + 5 : LIKELY : ADVICE, wire.n ? 0.9 : 0.6, "%s %s between %s and %s", names_say(j->m, tell), tell->n == 1 ? "differs" : "differ", *d[0].here->host ? d[0].here->host : "one rank", *d[0].lacks ? d[0].lacks : "another");
    for (int i = 0; i < n; i++)
        if (names_has(tell, d[i].here->name)) {
            explain(j, f, "%s is %s on %s and %s on %s.", d[i].here->name, d[i].here->value, *d[i].here->host ? d[i].here->host : "one", d[i].there ? d[i].there->value : "not set", *d[i].lacks ? d[i].lacks : "another");
            evidence(f, d[i].here);
            evidence(f, d[i].there);
        }
    if (*setting_meaning(tell->v[0]))
        explain(j, f, "%s: %s", tell->v[0], setting_meaning(tell->v[0]));
    if (wire.n)
        explain(j, f, "What decides how data are cut and sent must be the same on all ranks; nobody checks it.");
    evidence(f, sizes);
    if (sizes)
        consequence(j, f, "sizes that do not fit (%lld against %lld bytes) come from this", (long long)sizes->a, (long long)sizes->b);
    remedy(j, f, unset ? "pass the environment to all ranks: `mpirun -x NAME`, `srun --export=ALL`, /etc/nccl.conf on every host, Ray runtime_env" : "on all ranks the same value, or none: `unset %s`", tell->v[0]);
}

/* Sizes that do not fit, and no setting that explains it. */
void rule_sizes_differ(struct judge *j)
{
    const struct fact *x = first_of(j->m, F_SIZES_DIFFER);
    if (!x)
        return;
    bool joining = same_text(x->name, "joining");
    struct finding *f = joining ? find(j, SYMPTOM + 6, 0.65, "Two ranks disagree while they join: one sent %lld bytes where the other expects %lld", (long long)x->a, (long long)x->b)
                        : x->b == NOBODY ? find(j, SYMPTOM + 5, 0.6, "A rank was offered a receive of %lld bytes that does not fit what it sends%s%s", (long long)x->a, *x->value ? ", by " : "", x->value)
                                         : find(j, SYMPTOM + 5, 0.6, "Two ranks disagree on the size of one message: %lld against %lld bytes%s%s", (long long)x->a, (long long)x->b, *x->value ? ", with " : "", x->value);
    if (joining)
        explain(j, f, "What is exchanged then has the size that the version and the number of ranks give it: two versions of the library are in the job, or two ideas of its size.");
    else
        explain(j, f, "Either they call the operation with different counts, or settings that cut messages (NCCL_BUFFSIZE, NCCL_PROTO, versions) differ; a card with relaxed ordering forced on does it too.");
    evidence(f, x);
    remedy(j, f, "compare `env | grep NCCL` and the version on both; run with `TORCH_DISTRIBUTED_DEBUG=DETAIL`; relaxed ordering of the card: `sudo mlxconfig -d DEVICE query | grep PCI_WR_ORDERING`");
}

/* Gloo cuts by nothing but the counts of the call, so there is one cause. It ends the process that sees it. */
void rule_gloo_sizes(struct judge *j)
{
    const struct fact *x = first_of(j->m, F_GLOO_SIZES);
    if (!x)
        return;
    struct finding *f = find(j, LIKELY + 12, 0.85, "Two ranks pass different sizes to one operation: Gloo received %lld bytes of a piece that has %lld here", (long long)x->a, (long long)x->b);
    const struct scene *s = scene_of(j);
    for (int i = 0; i < s->wait_count; i++)
        if (!s->waits[i].p2p && s->waits[i].number == s->waits[i].group->lowest) {
            explain(j, f, "Those that are left stand in %s%s%s.", operation_says(j, &s->waits[i]), *s->waits[i].site ? ", called by " : "", s->waits[i].site);
            evidence(f, s->waits[i].fact);
            break;
        }
    explain(j, f, "Gloo looks at each message and ends the process that sees it; who is gone after that is its victim, and so are those whose connections closed.");
    evidence(f, x);
    remedy(j, f, "print the sizes that each rank passes at that call: a last batch that is shorter, padding that differs; `TORCH_DISTRIBUTED_DEBUG=DETAIL` compares every call before it is made");
}
