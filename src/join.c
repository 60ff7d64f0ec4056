/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - how ranks of several processes come to a communicator: everyone's description is exchanged once, ranks of a host map
 * each other's control regions, settings are compared, the steward starts. Called by comm.c and group.c; assemble.c makes the
 * communicator itself, join_local.c joins ranks of one process, split.c makes children.
 */
#include "comm.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What every rank tells all others: one row of the first exchange. */
struct join_info {
    uint32_t version, word_bits, uid, processors;
    int32_t pid;
    int32_t launched;          /* as watch_member has it */
    _Alignas(8) uint64_t start_ticks;
    id128 host;                /* equal = same host, if memory can really be mapped */
    uint64_t processor_set;    /* hash of the affinity mask */
    uint64_t settings;         /* hash of everything that ranks must agree on */
    struct net_segment_ref region, board;
    char hostname[64];
    struct sock_address_book book;
    uint64_t log;              /* log_identity */
    uint64_t warnings;         /* config_warnings */
    struct topo_costs costs;   /* rank 0's are everyone's */
};
/* The first exchange is where ranks learn that their word sizes differ: it has one layout for all. */
_Static_assert(sizeof(struct join_info) == 536 + sizeof(struct topo_costs) && offsetof(struct join_info, book) == 192, "the same on machines of 32 and 64 bits");

/* Second exchange: could I map them all? */
struct join_verdict { uint8_t failed; char text[247]; };

struct joining {
    uno_comm *comm;
    struct boot *boot;
    struct join_info *infos;
    struct text settings;
    bool met;                  /* the exchanges about memory are over: from here on a failure is told to everybody */
};

static uint64_t own_start_ticks(void)
{
    char buf[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    if (!f)
        return 0;
    size_t n = fread(buf, 1, sizeof buf - 1, f);
    fclose(f);
    buf[n] = 0;
    const char *p = strrchr(buf, ')'); /* the name may hold anything */
    unsigned long long ticks = 0;
    if (!p || sscanf(p + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &ticks) != 1)
        return 0;
    return ticks;
}

/* UNISONO_HOST if set, else boot id and network namespace: containers that share neither are different hosts. */
static id128 host_key(const struct config *cfg)
{
    if (cfg->host[0])
        return hash128(cfg->host, strlen(cfg->host), 1);
    struct { char boot[40]; uint64_t dev, ino; } key;
    memset(&key, 0, sizeof key);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (!fgets(key.boot, sizeof key.boot, f))
            key.boot[0] = 0;
        fclose(f);
    }
    struct stat st;
    if (stat("/proc/self/ns/net", &st) == 0) {
        key.dev = st.st_dev;
        key.ino = st.st_ino;
    }
    if (!key.boot[0] && gethostname(key.boot, sizeof key.boot - 1) != 0)
        key.ino = (uint64_t)getpid();
    return hash128(&key, sizeof key, 2);
}

static uint64_t processor_set(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    id128 h = hash128(&set, sizeof set, 3);
    return h.lo ^ h.hi;
}

static int32_t launched_as(const struct config *cfg)
{
    int64_t rank;
    return cfg->ends_fd[0] && text_parse_int(cfg->rank, 0, INT32_MAX, &rank) == UNO_OK ? (int32_t)rank : -1;
}

static uno_err describe(struct joining *j, struct join_info *me)
{
    uno_comm *c = j->comm;
    memset(me, 0, sizeof *me);
    me->version = UNO_VERSION;
    me->word_bits = (uint32_t)(sizeof(void *) * 8);
    me->uid = (uint32_t)getuid();
    me->processors = (uint32_t)topo_processors();
    me->pid = getpid();
    me->launched = launched_as(&c->cfg);
    me->start_ticks = own_start_ticks();
    me->log = log_identity();
    me->warnings = config_warnings();
    me->host = host_key(&c->cfg);
    me->processor_set = processor_set();
    net_segment_ref(c->segment, &me->region);
    if (c->job->board)
        watch_board_ref(c->job->board, &me->board);
    gethostname(me->hostname, sizeof me->hostname - 1);
    if (c->job->net)
        net_proc_address(c->job->net, &me->book);
    if (c->rank == 0)
        me->costs = join_costs(&c->cfg);
    TRY(config_fingerprint(&c->cfg, &j->settings));
    id128 h = hash128(j->settings.s, j->settings.len, 4);
    me->settings = h.lo ^ h.hi;
    return UNO_OK;
}

/* ---- after the exchange ------------------------------------------------------------------------------------------ */

#define VERSION_FMT "%u.%u.%u"
#define VERSION_ARGS(v) (v) / 10000, (v) / 100 % 100, (v) % 100 /* see UNO_VERSION */

static uno_err check_versions(const struct joining *j)
{
    for (int r = 1; r < j->comm->size; r++) {
        const struct join_info *a = &j->infos[0], *b = &j->infos[r];
        if (a->version != b->version)
            return err_set(UNO_ERR_MISMATCH, "rank 0 (%.60s) runs version " VERSION_FMT " and rank %d (%.60s) version " VERSION_FMT " of this library; "
                           "install one version everywhere", a->hostname, VERSION_ARGS(a->version), r, b->hostname, VERSION_ARGS(b->version));
        if (a->word_bits != b->word_bits)
            return err_set(UNO_ERR_MISMATCH, "rank 0 (%.60s) runs a library for words of %u bits and rank %d (%.60s) one for %u; install one build everywhere",
                           a->hostname, a->word_bits, r, b->hostname, b->word_bits);
    }
    return UNO_OK;
}

/* Settings differ somewhere: fetch the texts and name the first line that differs. Every rank comes to the same sentence. */
static uno_err check_settings(struct joining *j)
{
    uno_comm *c = j->comm;
    bool differ = false;
    for (int r = 1; r < c->size; r++)
        differ = differ || j->infos[r].settings != j->infos[0].settings;
    if (!differ)
        return UNO_OK;
    enum { BYTES = 4096 };
    char mine[BYTES] = "", *all = mem_array((size_t)c->size, BYTES);
    if (!all)
        return UNO_ERR_MEMORY;
    snprintf(mine, sizeof mine, "%s", j->settings.s);
    uno_err err = boot_exchange(j->boot, mine, sizeof mine, all);
    for (int r = 1; r < c->size && err == UNO_OK; r++) {
        char *a = all, *b = all + (size_t)r * BYTES;
        a[BYTES - 1] = b[BYTES - 1] = 0;
        while (*a && *b && err == UNO_OK) {
            size_t la = strcspn(a, "\n"), lb = strcspn(b, "\n");
            if (la != lb || memcmp(a, b, la) != 0)
                err = err_set(UNO_ERR_CONFIG, "settings differ: rank 0 (%.60s) has %.*s, rank %d (%.60s) has %.*s; give all ranks the same",
                              j->infos[0].hostname, (int)la, a, r, j->infos[r].hostname, (int)lb, b);
            a += la + (a[la] == '\n');
            b += lb + (b[lb] == '\n');
        }
    }
    free(all);
    return err;
}

static bool same_host(const struct join_info *a, const struct join_info *b)
{
    return id128_equal(a->host, b->host) && a->uid == b->uid;
}

/* Map the regions of this host's ranks and agree on who could: a rank with any failure counts as a host of its own. */
static uno_err map_host(struct joining *j)
{
    uno_comm *c = j->comm;
    struct join_verdict mine = {0}, *all = mem_array((size_t)c->size, sizeof *all);
    if (!all)
        return UNO_ERR_MEMORY;
    for (int r = 0; r < c->size && !mine.failed; r++) {
        c->region_refs[r] = j->infos[r].region;
        if (r != c->rank && !c->cfg.shm_disable && same_host(&j->infos[r], &j->infos[c->rank]) && comm_map_region(c, r) != UNO_OK) {
            mine.failed = 1;
            snprintf(mine.text, sizeof mine.text, "%.240s", err_text());
        }
    }
    uno_err err = boot_exchange(j->boot, &mine, sizeof mine, all);
    for (int r = 0; r < c->size && err == UNO_OK; r++) {
        int host = r;
        for (int q = 0; q < r && !all[r].failed && !c->cfg.shm_disable; q++)
            if (same_host(&j->infos[q], &j->infos[r]) && !all[q].failed) {
                host = c->host_of[q];
                break;
            }
        c->host_of[r] = host == r ? c->nhosts++ : host;
        all[r].text[sizeof all[r].text - 1] = 0;
        if (all[r].failed && c->rank == 0)
            LOG(LOG_WARN, LOG_INIT, "rank %d uses TCP inside its host: %s", r, all[r].text);
    }
    for (int r = 0; r < c->size; r++)
        if (c->regions[r] && r != c->rank && (err != UNO_OK || c->host_of[r] != c->host_of[c->rank])) {
            net_segment_unmap(&c->region_refs[r]);
            c->regions[r] = NULL;
        }
    free(all);
    return err;
}

static int ranks_here(const uno_comm *c)
{
    int here = 0;
    for (int r = 0; r < c->size; r++)
        here += c->host_of[r] == c->host_of[c->rank];
    return here;
}

/* More ranks of this host on one set of processors than it has? */
static bool crowded(const struct joining *j)
{
    const uno_comm *c = j->comm;
    for (int r = 0; r < c->size; r++) {
        uint32_t sharing = 0;
        for (int q = 0; q < c->size; q++)
            sharing += c->host_of[q] == c->host_of[c->rank] && j->infos[q].processor_set == j->infos[r].processor_set;
        if (c->host_of[r] == c->host_of[c->rank] && sharing > j->infos[r].processors)
            return true;
    }
    return false;
}

static uno_err fill_job(struct joining *j)
{
    uno_comm *c = j->comm;
    struct job *job = c->job;
    job->members = mem_array((size_t)c->size, sizeof *job->members);
    job->host_of = mem_array((size_t)c->size, sizeof *job->host_of);
    job->links = mem_array((size_t)c->size, sizeof(struct net_link *));
    if (!job->members || !job->host_of || !job->links)
        return UNO_ERR_MEMORY;
    job->nhosts = c->nhosts;
    for (int r = 0; r < c->size; r++) {
        const struct join_info *i = &j->infos[r];
        struct watch_member *m = &job->members[r];
        m->process = r;
        m->host = job->host_of[r] = c->host_of[r];
        m->pid = i->pid;
        m->start_ticks = i->start_ticks;
        m->launched = i->launched;
        m->log = i->log;
        snprintf(m->hostname, sizeof m->hostname, "%.63s", i->hostname);
        m->book = i->book;
        m->board = i->board;
        c->job_rank[r] = r;
        if (job->net && c->host_of[r] != c->host_of[c->rank])
            TRY(net_link_get(job->net, r, &m->book, &job->links[r]));
    }
    return UNO_OK;
}

/* ---- the way in -------------------------------------------------------------------------------------------------------- */

struct topo_costs join_costs(const struct config *cfg)
{
    static atomic_flag said = ATOMIC_FLAG_INIT; /* alone: nothing is passed through it */
    struct text why = {0};
    bool found;
    struct topo_costs costs = topo_tune_load(cfg->costs, &found, &why);
    if (why.s && !atomic_flag_test_and_set_explicit(&said, memory_order_relaxed))
        LOG(LOG_WARN, LOG_INIT, "%s", why.s);
    text_free(&why);
    return costs;
}

static struct topo_costs agreed_costs(const struct joining *j)
{
    struct topo_costs costs = topo_costs_sane(&j->infos[0].costs) ? j->infos[0].costs : topo_costs_default;
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < j->comm->size; r++) {
        uint64_t sum = 0, seen = 0; /* distinct sets of processors on r's host */
        for (int q = 0; q < j->comm->size; q++) {
            bool first = j->comm->host_of[q] == j->comm->host_of[r];
            for (int p = 0; p < q && first; p++)
                first = j->comm->host_of[p] != j->comm->host_of[r] || j->infos[p].processor_set != j->infos[q].processor_set;
            if (first && seen++ < 1024)
                sum += j->infos[q].processors;
        }
        least = MIN(least, sum);
        if (j->comm->size > 64)
            break; /* hosts are alike in large jobs; the loop is cubic */
    }
    costs.processors = MAX(least, 1);
    return costs;
}

static uno_err make_job(uno_comm *c, const uno_id *id)
{
    struct job *job = mem_zalloc(sizeof *job);
    if (!job)
        return UNO_ERR_MEMORY;
    pthread_mutex_init(&job->lock, NULL);
    job->rank = c->rank;
    job->size = c->size;
    uno_err err = shrink_new_job(job, &c->cfg);
    if (err != UNO_OK) {
        pthread_mutex_destroy(&job->lock);
        free(job);
        return err;
    }
    job_add(job);
    job_attach(job, c);
    struct net_proc_options opt = {.cfg = &c->cfg, .self = c->rank, .ranks = c->size, .on_control = job_on_control, .on_down = job_on_down,
                                   .arg = job};
    boot_id_key(id, &opt.key, &opt.job);
    job->id = opt.job;
    c->id = hash_mix(opt.job, 1);
    note_board(job, &c->cfg);
    return c->size > 1 ? net_proc_new(&opt, &job->net) : UNO_OK;
}

static uno_err exchange_all(struct joining *j, const uno_id *id, uint64_t deadline_ns)
{
    uno_comm *c = j->comm;
    TRY(make_job(c, id));
    struct join_info me;
    TRY(describe(j, &me));
    j->infos = mem_array((size_t)c->size, sizeof *j->infos);
    if (!j->infos)
        return UNO_ERR_MEMORY;
    (void)requests_go_on(NULL);
    TRY(boot_open(id, c->rank, c->size, &c->cfg, deadline_ns, &j->boot));
    TRY(boot_exchange(j->boot, &me, sizeof me, j->infos));
    TRY(check_versions(j));
    TRY(check_settings(j));
    TRY(map_host(j));
    j->met = true;
    if (c->nhosts == 1 && c->job->net) {
        net_proc_free(c->job->net);
        c->job->net = NULL;
    }
    return fill_job(j);
}

/* All ranks join or none does; the lowest failing rank's sentence is everyone's. */
static uno_err agree(struct joining *j, uno_err err)
{
    struct { int32_t code; char text[252]; } mine = {.code = (int32_t)err}, *all = NULL;
    int size = j->comm->size;
    if (err != UNO_OK)
        snprintf(mine.text, sizeof mine.text, "%.250s", err_text());
    all = mem_array((size_t)size, sizeof *all);
    if (!all)
        return UNO_ERR_MEMORY;
    uno_err said = boot_exchange(j->boot, &mine, sizeof mine, all);
    for (int r = 0; r < size && said == UNO_OK; r++) {
        all[r].text[sizeof all[r].text - 1] = 0;
        if (all[r].code && r == j->comm->rank)
            said = err_set(err, "%s", mine.text);
        else if (all[r].code)
            said = err_set((uno_err)all[r].code, "rank %d failed: %s", r, all[r].text);
    }
    free(all);
    return said;
}

/* Once a process, by the first communicator. */
static uno_err configure_process(const struct config *cfg, int rank)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    static bool configured;
    uno_err err = UNO_OK;
    pthread_mutex_lock(&once);
    if (!configured) {
        err = config_log(cfg, rank);
        exec_wait_configure(cfg->spin);
        net_doze_register();
        char point[32];
        long nth = 0;
        if (sscanf(cfg->fault, "%31[^:]:%ld", point, &nth) == 2)
            fault_arm(point, nth);
        configured = err == UNO_OK;
    }
    pthread_mutex_unlock(&once);
    return err;
}

/* Settings without effect are said once a process, and on a host by its lowest rank, or the lowest that has these. */
static void report_settings(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set_explicit(&said, memory_order_relaxed)) /* alone: nothing is passed through it */
        config_report();
}

static bool reports_settings(const struct joining *j)
{
    const struct join_info *me = &j->infos[j->comm->rank];
    bool lowest = true, said = me->warnings == 0;
    for (int r = 0; r < j->comm->rank; r++)
        if (same_host(&j->infos[r], me)) {
            lowest = false;
            said = said || j->infos[r].warnings == me->warnings;
        }
    return lowest || !said;
}

static uno_err join(uno_comm **comm, int nranks, const uno_id *id, int rank, const struct config *cfg, const char *name)
{
    TRY(configure_process(cfg, rank));
    uint64_t deadline = clock_after(cfg->join_timeout);
    struct joining j = {0};
    TRY(comm_alloc(rank, nranks, cfg, name, &j.comm));
    uno_err err = exchange_all(&j, id, deadline);
    if (err == UNO_OK) {
        j.comm->costs = agreed_costs(&j);
        j.comm->env.crowded = crowded(&j);
        j.comm->env.cache_bytes = topo_cache_share(ranks_here(j.comm));
        err = comm_assemble(j.comm);
    }
    if (err == UNO_OK && nranks > 1)
        err = job_watch(j.comm);
    else if (err == UNO_OK)
        job_watch_if_possible(j.comm); /* a receive from oneself may have no send */
    if (j.met && nranks > 1)
        err = agree(&j, err);
    if (err == UNO_OK && reports_settings(&j))
        report_settings();
    if (j.boot)
        boot_close(j.boot);
    free(j.infos);
    text_free(&j.settings);
    if (err != UNO_OK) {
        char text[ERR_TEXT_BYTES];
        snprintf(text, sizeof text, "rank %d of %d could not join: %.900s", rank, nranks, err_text());
        comm_free(j.comm);
        return err_set(err, "%s", text);
    }
    if (rank == 0)
        LOG(LOG_INFO, LOG_INIT, "joined, %d ranks on %d host%s%s", nranks, j.comm->nhosts, j.comm->nhosts == 1 ? "" : "s",
            nranks > 1 && cfg->auth == 1 ? "; without a secret (UNISONO_AUTH=none)" : ""); /* 1: none, see config.def */
    *comm = j.comm;
    return UNO_OK;
}

static uno_err check_seconds(const char *name, double s)
{
    if (s > 0 || s < 0) /* not 0, not NaN */
        return UNO_OK;
    return err_set(UNO_ERR_ARG, "config: %s is %g; legal is more than 0, or less for the default", name, s);
}

static uno_err program_config(const uno_config *config, struct config *cfg)
{
    struct config_program program = {-1, -1};
    if (config) {
        if (config->magic != UNO_CONFIG_MAGIC || config->size < sizeof(uno_config))
            return err_set(UNO_ERR_ARG, "config was not initialised with UNO_CONFIG_INIT");
        program.timeout_s = config->timeout_s;
        program.join_timeout_s = config->join_timeout_s;
        TRY(check_seconds("timeout_s", program.timeout_s));
        TRY(check_seconds("join_timeout_s", program.join_timeout_s));
    }
    return config_load(cfg, &program);
}

/* Before anything is as large as the job. */
static uno_err check_size(const char *call, int n)
{
    if (n > BOOT_MAX_RANKS)
        return err_set(UNO_ERR_ARG, "%s: %d ranks; at most %d are possible", call, n, BOOT_MAX_RANKS);
    return UNO_OK;
}

uno_err join_id(uno_comm **comm, int nranks, const uno_id *id, int rank, const uno_config *config)
{
    struct config cfg;
    TRY(check_size("uno_comm_init_rank", nranks));
    TRY(program_config(config, &cfg));
    return join(comm, nranks, id, rank, &cfg, config ? config->name : NULL);
}

uno_err join_env(uno_comm **comm, const uno_config *config)
{
    struct config cfg;
    TRY(program_config(config, &cfg));
    bool launched = false;
    for (int i = 0; i < boot_source_count && !launched; i++)
        launched = boot_sources[i].detect(&cfg);
    if (!launched) {
        char text[200];
        uno_err err = join_all(comm, 1, config);
        if (err == UNO_OK && boot_half_told(text, sizeof text))
            LOG(LOG_WARN, LOG_ENV, "%s", text);
        return err;
    }
    struct boot_place place;
    memset(&place, 0, sizeof place);
    TRY(boot_from_env(&cfg, &place));
    return join(comm, place.size, &place.id, place.rank, &cfg, config ? config->name : NULL);
}

uno_err join_all(uno_comm **comms, int n, const uno_config *config)
{
    struct config cfg;
    TRY(check_size("uno_comm_init_all", n));
    TRY(program_config(config, &cfg));
    TRY(configure_process(&cfg, -1));
    memset(comms, 0, (size_t)n * sizeof *comms);
    uno_err err = join_local(comms, n, &cfg, config ? config->name : NULL);
    if (err == UNO_OK) {
        report_settings();
        return UNO_OK;
    }
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", err_text());
    for (int r = 0; r < n; r++) {
        comm_free(comms[r]);
        comms[r] = NULL;
    }
    return err_set(err, "%s", text);
}
