/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - see settings.h. Sources are NCCL 2.30's, RCCL 2.21's and PyTorch's own parsers. */
#include "settings.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "unisono_watch.h"

enum reader_of { BOTH, NCCL, RCCL, UNUSED, CONTRIB, PLUGIN, SHARP, TESTS, PYTORCH };
enum type { BOOL, INT, LIST, TEXT };

static const struct known {
    const char *name;
    enum reader_of reader;
    enum type type;
    const char *dflt, *meaning;
} known[] = {
#define KNOWN(name, reader, type, dflt, meaning) {name, reader, type, dflt, meaning},
#include "known_env.def"
#undef KNOWN
};
enum { KNOWN_COUNT = sizeof known / sizeof *known };

/* Read by nobody: what was wanted instead. */
static const struct { const char *name, *wanted; } myths[] = {
    {"NCCL_TIMEOUT", "the time-out of collectives is PyTorch's: init_process_group(timeout=timedelta(...)), or the framework's own option"},
    {"RCCL_TIMEOUT", "the time-out of collectives is PyTorch's: init_process_group(timeout=timedelta(...)), or the framework's own option"},
    {"NCCL_TIMEOUT_MINUTES", "the time-out of collectives is PyTorch's: init_process_group(timeout=timedelta(...))"},
    {"NCCL_SOCKET_TIMEOUT", "connecting is retried NCCL_SOCKET_RETRY_CNT times; collectives have PyTorch's time-out"},
    {"RCCL_BUFFSIZE", "RCCL reads NCCL_BUFFSIZE"},
    {"RCCL_DEBUG", "RCCL reads NCCL_DEBUG"},
    {"RCCL_DEBUG_SUBSYS", "RCCL reads NCCL_DEBUG_SUBSYS"},
    {"RCCL_NET_PLUGIN", "RCCL reads NCCL_NET_PLUGIN"},
    {"RCCL_SOCKET_IFNAME", "RCCL reads NCCL_SOCKET_IFNAME"},
    {"RCCL_IB_HCA", "RCCL reads NCCL_IB_HCA"},
    {"NCCL_IB_MTU", "the MTU is that of the port (ibv_devinfo: active_mtu), set with ip link or by the subnet manager"},
    {"NCCL_MAX_RINGS", "NCCL_MAX_NCHANNELS was meant"},
    {"RCCL_ENABLE_XGMI", "xGMI is used whenever it is there"},
    {"NCCL_TREE_THRESHOLD", "removed in 2.5; NCCL_ALGO chooses"},
    {"NCCL_LL_THRESHOLD", "removed in 2.5; NCCL_PROTO chooses"},
    {"NCCL_SINGLE_RING_THRESHOLD", "removed in 2.3"},
    {"NCCL_IB_CUDA_SUPPORT", "removed in 2.4; NCCL_NET_GDR_LEVEL decides"},
    {"NCCL_CHECKS_DISABLE", "removed; NCCL_CHECK_MODE is what there is"},
    {"NCCL_ABORT_ON_ERROR", "PyTorch's TORCH_NCCL_ASYNC_ERROR_HANDLING was meant"},
    {"NCCL_MAX_P2P_PEERS", "the name is NCCL_P2P_MAX_PEERS"},
    {"NCCL_ENABLE_NVLINK", "NVLink is used whenever it is there"},
};

/* Old names that PyTorch still takes, or no longer. */
static const struct { const char *name, *now; } renamed[] = {
    {"NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}, {"NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT"}, {"NCCL_DESYNC_DEBUG", "TORCH_NCCL_DESYNC_DEBUG"},
    {"NCCL_ENABLE_TIMING", "TORCH_NCCL_ENABLE_TIMING"}, {"TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"}, {"TORCH_NCCL_TRACE_CPP_STACK", "TORCH_FR_CPP_STACK"},
    {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"}, {"NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS"}, {"NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS"},
};

/* Variables whose words are few. `exact`: case matters. A list may be inverted with ^. What an unknown word does, in the parser's own way. */
static const struct { const char *name, *words; bool exact, list; const char *otherwise; } words[] = {
    {"NCCL_DEBUG", "VERSION WARN INFO ABORT TRACE", false, false, "no level: nothing is printed, and nobody says so"},
    {"NCCL_DEBUG_SUBSYS", "INIT COLL P2P SHM NET GRAPH TUNING ENV ALLOC ALLOC_HOST CALL PROXY NVLS BOOTSTRAP REG PROFILE RAS DESTROY ALL", false, true, "no subsystem: NCCL ignores the whole value"},
    {"NCCL_P2P_LEVEL", "LOC NVL XGMI NVB C2C PIX PXB P2C PXN PHB SYS 0 1 2 3 4 5", true, false, "no level: it is ignored"},
    {"NCCL_NET_GDR_LEVEL", "LOC NVL XGMI NVB C2C PIX PXB P2C PXN PHB SYS 0 1 2 3 4 5", true, false, "no level: it is ignored"},
    {"NCCL_PROTO", "LL LL128 Simple", false, true, "no protocol: NCCL fails at init, RCCL ignores it"},
    {"NCCL_ALGO", "Tree Ring CollNetDirect CollNetChain NVLS NVLSTree PAT", false, true, "no algorithm: NCCL fails at init, RCCL ignores it"},
    {"TORCH_DISTRIBUTED_DEBUG", "OFF INFO DETAIL", false, false, "no level: PyTorch raises at import"},
    {"NCCL_LAUNCH_MODE", "PARALLEL GROUP", true, false, "no mode: it is ignored"},
    {"NCCL_SOCKET_FAMILY", "AF_INET AF_INET6", true, false, "no family: it is ignored"},
};

static const struct { const char *name; long long least, most; const char *otherwise; } ranges[] = {
    {"NCCL_IB_TIMEOUT", 1, 31, "it is an exponent of 4.096 us; 0 waits for ever, and only the low bits of larger values are used"},
    {"NCCL_IB_RETRY_CNT", 0, 7, "the card has three bits for it"},
    {"NCCL_IB_TC", -1, 255, "a traffic class is one byte"},
    {"NCCL_CROSS_NIC", 0, 2, "0 no, 1 yes, 2 only if it is faster"},
    {"NCCL_NVLS_ENABLE", 0, 2, "0 off, 1 forced, 2 automatic"},
    {"NCCL_IB_SL", -1, 15, "a service level has four bits"},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", 0, 3, "0 nothing, 1 and 3 end the process, 2 only aborts communicators"},
    {"NCCL_MIN_NCHANNELS", -2, 128, "NCCL has 64 channels at most, RCCL 128, and takes that many"},
    {"NCCL_MAX_NCHANNELS", -2, 128, "NCCL has 64 channels at most, RCCL 128, and takes that many"},
    {"NCCL_SOCKET_NTHREADS", -2, 16, "at most 16"},
};

static const struct known *known_named(const char *name)
{
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        if (same_text(known[i].name, name))
            return &known[i];
    return NULL;
}

const char *setting_meaning(const char *name)
{
    const struct known *k = known_named(name);
    return k ? k->meaning : "";
}

/* ---- whose it is ------------------------------------------------------------------------------------------------------------------------- */

static bool is_family(const char *name)
{
    static const struct { const char *prefix; bool all_known; } families[] = {
#define FAMILY(prefix, all_known) {prefix, all_known},
#include "families.def"
#undef FAMILY
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i].all_known && begins(name, families[i].prefix))
            return true;
    return false;
}

static bool other_known(const char *name)
{
    static const char *const names[] = {"GLOO_SOCKET_IFNAME", "GLOO_LOG_LEVEL", "GLOO_DEVICE_TRANSPORT", "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY", "GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT", "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (same_text(name, names[i]))
            return true;
    return false;
}

const char *setting_default(const char *name)
{
    const struct known *k = known_named(name);
    return k && strcmp(k->dflt, "-") != 0 ? k->dflt : "";
}

const char *setting_of_others(const char *name)
{
    static const char *const of_builds[] = {"VERSION", "HOME", "ROOT", "ROOT_DIR", "DIR", "PATH", "INCLUDE_DIR", "INCLUDE_DIRS", "INCLUDE_PATH", "LIB", "LIB_DIR", "LIB_PATH", "LIBRARY", "LIBRARIES", "LIBRARY_PATH", "BUILD_DIR", "SRC_DIR", "INSTALL_DIR", "TESTS_DIR", "TESTS_PATH", "TESTS_HOME", "TAG", "BRANCH", "COMMIT"};
    static const struct { const char *prefix, *who; } plugins[] = {{"NCCL_GPUDIRECTTCPX_", "Google's plugin GPUDirect-TCPX"}, {"NCCL_FASTRAK_", "Google's plugin FasTrak"}, {"NCCL_SHIMNET_", "Google's plugin gIB"}, {"NCCL_CTRAN_", "Meta's NCCLX"}, {"NCCL_COLLTRACE", "Meta's NCCLX"}};
    bool nccl = begins(name, "NCCL_") || begins(name, "RCCL_");
    for (size_t i = 0; nccl && i < sizeof of_builds / sizeof *of_builds; i++)
        if (same_text(name + 5, of_builds[i]))
            return "builds and images, not the library";
    for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++)
        if (begins(name, plugins[i].prefix))
            return plugins[i].who;
    return NULL;
}

/* Has the library that this tool is linked with a setting of that name? */
static bool is_own(const char *name)
{
    uno_setting *list = NULL;
    size_t n = 0;
    bool own = false;
    if (begins(name, "UNISONO_") && uno_settings(&list, &n) == UNO_OK)
        for (size_t i = 0; i < n; i++)
            own = own || strcmp(list[i].name, name) == 0;
    uno_settings_free(list, n);
    return own;
}

const char *setting_readers(const char *name)
{
    static const char *const readers_of[] = {[BOTH] = "NCCL and RCCL", [NCCL] = "NCCL", [RCCL] = "RCCL", [UNUSED] = "nobody, though it is declared", [CONTRIB] = "code that comes beside NCCL",
                                             [PLUGIN] = "a plugin of NCCL", [SHARP] = "the HPC-X/SHARP plugin", [TESTS] = "nccl-tests", [PYTORCH] = "PyTorch"};
    const struct known *k = known_named(name);
    if (k)
        return readers_of[k->reader];
    if (setting_of_others(name))
        return setting_of_others(name);
    return is_own(name) ? "Unisono" : other_known(name) ? "Gloo" : is_family(name) ? "nobody" : "";
}

long long setting_number(const char *value)
{
    return strtoll(value, NULL, 0);
}

static struct opinion opinion(enum grade grade, const char *text, const char *fix)
{
    return (struct opinion){grade, text, fix};
}

static const struct opinion FINE = {GRADE_FINE, "", ""};

/* `export NAME=VALUE`, as a shell can read it. */
static const char *assigned(struct model *m, const char *name, const char *value)
{
    return model_say(m, "`export %s`", shell_word(m, model_say(m, "%s=%s", name, value), false));
}

/* The one library that the logs are of; NULL when there are none, or of both. */
static const char *library_of(const struct model *m)
{
    const struct fact *v = m->first[F_VERSION];
    for (const struct fact *w = v; w; w = w->next)
        if (!same_text(w->name, v->name))
            return NULL;
    return v ? v->name : NULL;
}

/* ---- names ---------------------------------------------------------------------------------------------------------------------------- */

/* Ours are judged as a rank would: by the library itself, which reads the environment. */
static struct opinion own_opinion(struct model *m, const char *name, const char *value)
{
    uno_setting_finding *found = NULL;
    size_t n = 0;
    struct opinion o = FINE;
    const char *before = getenv(name);
    char *kept = before ? strdup(before) : NULL;
    if (setenv(name, value, 1) == 0 && uno_settings_audit(&found, &n) == UNO_OK)
        for (size_t i = 0; i < n; i++)
            if (strcmp(found[i].name, name) == 0 && (strcmp(found[i].what, "unknown") == 0 || (strcmp(found[i].what, "illegal") == 0 && !strchr(value, '$')))) /* $: the shell makes the value */
                o = opinion(GRADE_WRONG, model_say(m, "%s=%s: %s", name, value, found[i].text), "`unisono doctor --env --all` lists what is legal");
    uno_settings_audit_free(found, n);
    if (kept)
        setenv(name, kept, 1);
    else
        unsetenv(name);
    free(kept);
    return o;
}

static struct opinion name_opinion(struct model *m, const char *name, const char *value)
{
    if (begins(name, "UNISONO_"))
        return own_opinion(m, name, value);
    for (size_t i = 0; i < sizeof myths / sizeof *myths; i++)
        if (same_text(name, myths[i].name))
            return opinion(GRADE_WRONG, model_say(m, "%s is read by neither NCCL, RCCL nor PyTorch (unless your own script does): %s", name, myths[i].wanted), model_say(m, "`unset %s`", shell_word(m, name, false)));
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (same_text(name, renamed[i].name)) {
            bool torch = begins(renamed[i].now, "TORCH_") && begins(name, "NCCL_");
            return opinion(torch ? GRADE_WRONG : GRADE_NOTE, model_say(m, "%s %s %s", name, torch ? "is no variable of NCCL; it is PyTorch's, and was renamed" : "has a newer name,", renamed[i].now), assigned(m, renamed[i].now, value));
        }
    if (known_named(name) || other_known(name) || setting_of_others(name) || !is_family(name))
        return FINE;
    const char *names[KNOWN_COUNT];
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        names[i] = known[i].name;
    const char *near = out_nearest(name, names, KNOWN_COUNT);
    return opinion(GRADE_WRONG, model_say(m, "%s is read by nobody%s%s%s", name, near ? "; did you mean " : "", near ? near : "", near ? "?" : ""), near ? assigned(m, near, value) : model_say(m, "`unset %s`", shell_word(m, name, false)));
}

/* ---- values ----------------------------------------------------------------------------------------------------------------------------- */

static bool is_word(const char *list, const char *w, size_t n, bool exact)
{
    for (const char *p = list; *p; p += strspn(p, " ")) {
        size_t k = strcspn(p, " ");
        if (k == n && (exact ? memcmp(p, w, n) : strncasecmp(p, w, n)) == 0)
            return true;
        p += k;
    }
    return false;
}

/* The legal word that is nearest, and all of them. */
static const char *word_fix(struct model *m, const char *name, const char *legal, const char *w, size_t n)
{
    const char *list[48];
    size_t count = 0;
    for (const char *p = legal; *p && count < sizeof list / sizeof *list; p += strspn(p, " ")) {
        size_t k = strcspn(p, " ");
        list[count++] = model_string(m, p, k);
        p += k;
    }
    const char *near = NULL, *given = model_string(m, w, n);
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]) > 2 && n > 2 && (strncasecmp(list[i], given, strlen(list[i])) == 0 || strcasecmp(list[i], given) == 0))
            near = list[i];
    near = near ? near : out_nearest(given, list, count);
    return model_say(m, "%s%s%sthe words are %s", near ? "`export " : "", near ? model_say(m, "%s=%s`", name, near) : "", near ? "; " : "", legal);
}

/* 4M -> 4194304 */
static const char *number_fix(struct model *m, const char *name, long long v, char unit)
{
    static const char units[] = "kmgt";
    const char *at = strchr(units, tolower((unsigned char)unit));
    if (!at || !unit || v < 0 || v > 1 << 20)
        return model_say(m, "write the number out: `export %s=%lld`", name, v);
    return model_say(m, "write the number out: `export %s=%lld`", name, v << 10 * (at - units + 1));
}

/* "allreduce:tree,ring;allgather:ring" of NCCL: who is named before a colon, and nothing empty. */
static struct opinion function_opinion(struct model *m, const char *name, const char *value)
{
    static const char FUNCTIONS[] = "Broadcast Reduce AllGather ReduceScatter AllReduce";
    const char *library = library_of(m);
    if (library && same_text(library, "RCCL")) /* it passes over words that it does not know, and over what is empty */
        return FINE;
    size_t n = strlen(value);
    if (n && (value[n - 1] == ';' || value[n - 1] == ','))
        return opinion(GRADE_WRONG, model_say(m, "%s=%s ends in '%c', and NCCL fails at init on the empty word behind it", name, value, value[n - 1]), assigned(m, name, model_string(m, value, n - 1)));
    for (const char *p = value; *p; p += *p == ';') {
        size_t part = strcspn(p, ";");
        const char *colon = memchr(p, ':', part);
        if (colon && !is_word(FUNCTIONS, p, (size_t)(colon - p), false))
            return opinion(GRADE_WRONG, model_say(m, "%s=%s: '%.*s' is no function, and NCCL fails at init", name, value, (int)(colon - p), p), model_say(m, "the functions are %s", FUNCTIONS));
        p += part;
    }
    return FINE;
}

static struct opinion word_opinion(struct model *m, const char *name, const char *value)
{
    if (same_text(name, "NCCL_ALGO") || same_text(name, "NCCL_PROTO")) {
        struct opinion o = function_opinion(m, name, value);
        if (o.grade != GRADE_FINE)
            return o;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!same_text(name, words[i].name))
            continue;
        const char *p = value;
        p += words[i].list && *p == '^';
        while (*p) {
            size_t n = words[i].list ? strcspn(p, ",;") : strlen(p);
            const char *w = p;
            const char *colon = same_text(name, "NCCL_ALGO") || same_text(name, "NCCL_PROTO") ? memchr(p, ':', n) : NULL; /* function:list */
            size_t k = n;
            if (colon)
                k = (size_t)(p + n - colon - 1), w = colon + 1;
            if (k && w[0] == '^')
                w++, k--;
            if (!is_word(words[i].words, w, k, words[i].exact))
                return opinion(GRADE_WRONG, model_say(m, "%s=%s: '%.*s' is %s", name, value, (int)k, w, words[i].otherwise), word_fix(m, name, words[i].words, w, k));
            p += n;
            p += *p != 0;
        }
        return FINE;
    }
    return FINE;
}

/* y/yes/1/t/true and their opposites; PyTorch raises at anything else. */
static bool is_torch_bool(const char *v)
{
    return is_word("y yes 1 t true n no 0 f false", v, strlen(v), false);
}

static struct opinion torch_opinion(struct model *m, const struct known *k, const char *value)
{
    char *end;
    long long v = strtoll(value, &end, 10);
    if (k->type == BOOL && !is_torch_bool(value))
        return opinion(GRADE_WRONG, model_say(m, "%s=%s: PyTorch raises, for it is no boolean (1, true, yes, 0, false, no)", k->name, value), "");
    if (k->type == INT && end == value)
        return opinion(GRADE_WRONG, model_say(m, "%s=%s: PyTorch raises, for it is no whole number", k->name, value), *k->dflt ? model_say(m, "`export %s=%s` is the default", k->name, k->dflt) : "");
    if (k->type == INT && *end)
        return opinion(GRADE_WRONG, model_say(m, "%s=%s is read as %lld: units are not understood", k->name, value, v), model_say(m, "`export %s=%lld`", k->name, v));
    return FINE;
}

/* The few that NCCL reads by a newer parser of its own (src/include/param/parser_default.h); RCCL reads numbers there, too. */
static bool is_typed_bool(const char *name)
{
    return same_text(name, "NCCL_SET_THREAD_NAME") || same_text(name, "NCCL_WARN_ENABLE_DEBUG_INFO") || same_text(name, "NCCL_PARAM_DUMP_ALL");
}

static struct opinion typed_opinion(struct model *m, const struct known *k, const char *value)
{
    static const char WORDS[] = "1 t true 0 f false";
    const char *library = library_of(m);
    bool word = is_word(WORDS, value, strlen(value), false), digit = same_text(value, "1") || same_text(value, "0");
    if (digit || !*value || (word && (k->reader == NCCL || same_text(library ? library : "", "NCCL"))))
        return FINE;
    if (word)
        return opinion(library ? GRADE_WRONG : GRADE_NOTE, model_say(m, "%s=%s is understood by NCCL alone: RCCL reads a number, here 0", k->name, value), model_say(m, "`export %s=1`, or 0", k->name));
    return opinion(GRADE_WRONG, model_say(m, "%s=%s: NCCL takes 1, T, TRUE, 0, F or FALSE there, keeps its default at anything else, and does not say so", k->name, value), model_say(m, "`export %s=1`, or 0", k->name));
}

static struct opinion number_opinion(struct model *m, const struct known *k, const char *value)
{
    char *end;
    if (k->reader == PYTORCH)
        return torch_opinion(m, k, value);
    if (is_typed_bool(k->name))
        return typed_opinion(m, k, value);
    if ((k->type != BOOL && k->type != INT) || !*value)
        return FINE;
    long long v = strtoll(value, &end, 0);
    if (end == value)
        return opinion(GRADE_WRONG, model_say(m, "%s=%s is no number, and is read as 0", k->name, value), model_say(m, "`export %s=1` if it is to be on", k->name));
    if (*end && !isspace((unsigned char)*end))
        return opinion(GRADE_WRONG, model_say(m, "%s=%s is read as %lld: suffixes are not understood", k->name, value, v), number_fix(m, k->name, v, *end));
    const char *digits = value + strspn(value, " \t+-");
    if (digits[0] == '0' && isdigit((unsigned char)digits[1]) && v != strtoll(value, NULL, 10))
        return opinion(GRADE_WRONG, model_say(m, "%s=%s is read as octal, that is %lld", k->name, value, v), model_say(m, "write it without the 0 in front: `export %s=%lld`", k->name, strtoll(value, NULL, 10)));
    return FINE;
}

static struct opinion range_opinion(struct model *m, const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        long long v = setting_number(value);
        if (same_text(name, ranges[i].name) && (v < ranges[i].least || v > ranges[i].most))
            return opinion(GRADE_WRONG, model_say(m, "%s=%s is outside %lld to %lld: %s", name, value, ranges[i].least, ranges[i].most, ranges[i].otherwise), "");
    }
    return FINE;
}

/* Legal, and perhaps not what is meant. */
static struct opinion special_opinion(struct model *m, const struct known *k, const char *name, const char *value)
{
    long long v = setting_number(value);
    if (same_text(name, "GLOO_SOCKET_IFNAME") && (value[0] == '^' || value[0] == '=' || (strchr(value, '*'))))
        return opinion(GRADE_WRONG, model_say(m, "GLOO_SOCKET_IFNAME=%s: Gloo wants exact interface names; ^ and = are NCCL's syntax", value), "one whole name of `ip -br addr`: `export GLOO_SOCKET_IFNAME=eth0`");
    if ((same_text(name, "NCCL_P2P_DISABLE") || same_text(name, "NCCL_SHM_DISABLE")) && v != 0 && v != 1)
        return opinion(GRADE_WRONG, model_say(m, "%s=%s does nothing: only 1 acts", name, value), assigned(m, name, "1"));
    if ((same_text(name, "NCCL_BUFFSIZE") || same_text(name, "NCCL_LL_BUFFSIZE")) && *value && v != -2 && v < 65536)
        return opinion(GRADE_WRONG, model_say(m, "%s=%s asks for a buffer of %lld bytes; sensible are powers of two from 65536 on", name, value, v), model_say(m, "`unset %s` (4194304 is the default)", name));
    if (same_text(name, "NCCL_SOCKET_IFNAME") && strlen(value) == 1)
        return opinion(GRADE_WRONG, model_say(m, "NCCL_SOCKET_IFNAME=%s is ignored: a name has two characters or more", value), "");
    if ((same_text(name, "NCCL_NET_GDR_LEVEL") || same_text(name, "NCCL_P2P_LEVEL")) && isdigit((unsigned char)value[0])) {
        static const char *const levels[] = {"LOC", "PIX", "PXB", "PHB", "SYS"}; /* the old numbers */
        return opinion(GRADE_NOTE, model_say(m, "%s=%s means %s", name, value, levels[v > 4 ? 4 : v]), "");
    }
    if (same_text(name, "NCCL_ALGO") && *value && value[0] != '^' && !strchr(value, ':') && !has_nocase(value, "ring") && !has_nocase(value, "PAT"))
        return opinion(GRADE_NOTE, model_say(m, "NCCL_ALGO=%s leaves all-gather and others without an algorithm, which fails when they are first called; NCCL_ALGO=allreduce:%s is for all-reduce alone", value, value), "");
    if (same_text(name, "NCCL_PROTO") && value[0] != '^' && has_nocase(value, "LL128"))
        return opinion(GRADE_NOTE, model_say(m, "NCCL_PROTO=%s takes LL128 also where the hardware may not keep its order, and results may be wrong there", value), "");
    if (same_text(name, "NCCL_DEBUG_FILE") && value[0] == '~')
        return opinion(GRADE_NOTE, model_say(m, "NCCL_DEBUG_FILE=%s: the library does not expand ~, and writes a file of that name, or none", value), "");
    if (k && k->reader == SHARP)
        return opinion(GRADE_NOTE, model_say(m, "%s is read only by the HPC-X/SHARP plugin, and does nothing without it", name), "");
    if (same_text(name, "NCCL_NVLS_ENABLE") && v == 1)
        return opinion(GRADE_NOTE, model_say(m, "NCCL_NVLS_ENABLE=1 forces NVLink SHARP instead of leaving it automatic (2)"), "");
    if (same_text(name, "NCCL_IB_HCA") && *value && value[0] != '=' && value[0] != '^' && !strpbrk(value, ",:") && !isdigit((unsigned char)value[strlen(value) - 1]))
        return opinion(GRADE_NOTE, model_say(m, "NCCL_IB_HCA=%s is a prefix that selects every device whose name begins so", value), "");
    if (k && k->reader == UNUSED)
        return opinion(GRADE_NOTE, model_say(m, "%s is declared and never used", name), "");
    return FINE;
}

/* What one library understands and the other does not, where the logs say which runs. */
static struct opinion library_opinion(struct model *m, const struct known *k, const char *name, const char *value)
{
    static const char NCCL_LEVELS[] = "NVL C2C P2C", RCCL_LEVELS[] = "XGMI";
    const char *library = library_of(m);
    bool rccl = library && same_text(library, "RCCL"), level = same_text(name, "NCCL_P2P_LEVEL") || same_text(name, "NCCL_NET_GDR_LEVEL");
    if (!library)
        return FINE;
    if (k && (k->reader == NCCL || k->reader == RCCL) && (k->reader == RCCL) != rccl)
        return opinion(GRADE_NOTE, model_say(m, "%s is read by %s, and this job runs %s", name, rccl ? "NCCL" : "RCCL", library), "");
    if (level && is_word(rccl ? NCCL_LEVELS : RCCL_LEVELS, value, strlen(value), true))
        return opinion(GRADE_WRONG, model_say(m, "%s=%s: '%s' is no level of %s, which ignores it", name, value, value, library), rccl && same_text(value, "NVL") ? assigned(m, name, "XGMI") : !rccl ? assigned(m, name, "NVL") : "");
    if (rccl && same_text(name, "NCCL_ALGO") && strchr(value, ':'))
        return opinion(GRADE_WRONG, model_say(m, "NCCL_ALGO=%s: RCCL has no form function:list; it selects nothing, and Ring is taken for all", value), "one flat list: `export NCCL_ALGO=Ring,Tree`");
    if (rccl && same_text(name, "NCCL_NVLS_ENABLE") && setting_number(value) != 0)
        return opinion(GRADE_NOTE, model_say(m, "NCCL_NVLS_ENABLE=%s does nothing on AMD GPUs", value), "");
    return FINE;
}

struct opinion setting_opinion(struct model *m, const char *name, const char *value, bool blank)
{
    if (blank && is_family(name))
        return opinion(GRADE_WRONG, model_say(m, "a blank beside '=' makes '%s =%s' something else: the variable %s is not set by it", name, value, name), assigned(m, name, value));
    struct opinion o = name_opinion(m, name, value);
    if (o.grade == GRADE_WRONG || strchr(value, '$'))
        return o;
    size_t n = strlen(value);
    if (is_family(name) && n > 1 && (value[0] == '"' || value[0] == '\'') && value[n - 1] == value[0])
        return opinion(GRADE_WRONG, model_say(m, "%s=%s: the quotes are a part of the value, and its parser does not take them away", name, value), assigned(m, name, model_string(m, value + 1, n - 2)));
    const struct known *k = known_named(name);
    struct opinion tried[5] = {word_opinion(m, name, value), k ? number_opinion(m, k, value) : FINE, FINE, special_opinion(m, k, name, value), library_opinion(m, k, name, value)};
    if (tried[1].grade == GRADE_FINE)
        tried[2] = range_opinion(m, name, value);
    for (int i = 0; i < 5; i++)
        if (tried[i].grade > o.grade)
            o = tried[i];
    return o;
}

/* ---- between ranks ------------------------------------------------------------------------------------------------------------------------ */

bool setting_may_differ(const char *name)
{
    static const char *const names[] = {"RANK", "LOCAL_RANK", "NODE_RANK", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NCCL_HOSTID", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE",
                                        "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "TORCHELASTIC_RUN_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (same_text(name, names[i]))
            return true;
    return false;
}

bool setting_on_the_wire(const char *name)
{
    static const char *const names[] = {"NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_PROTO", "NCCL_ALGO", "NCCL_NTHREADS", "NCCL_LL128_NTHREADS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
                                        "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_CHUNK_SIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_NET", "NCCL_IB_DISABLE",
                                        "NCCL_NVLS_ENABLE", "NCCL_CROSS_NIC", "NCCL_COLLNET_ENABLE", "NCCL_PXN_DISABLE", "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_NET_SHARED_BUFFERS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (same_text(name, names[i]))
            return true;
    return false;
}
