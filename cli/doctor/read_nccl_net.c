/* SPDX-License-Identifier: Apache-2.0 */
/* read_nccl_net.c - what NCCL and RCCL say of interfaces, cards, connections and memory, and how these fail. */
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

/* "[0]eth0:10.0.0.1<0> [1]ib0:10.1.0.1<0>", or one without its number. */
static void interfaces(struct model *m, const struct nccl_line *n, const char *list, const char *what)
{
    for (const char *p = list; p && *p;) {
        p += strspn(p, " ");
        int64_t index;
        if (scan(p, "[%d]", &index) && *p == '[')
            p = strchr(p, ']') + 1;
        const char *colon = strchr(p, ':'), *less = strchr(p, '<');
        if (!colon || !less || less < colon)
            return;
        struct fact f = nccl_fact(n, F_BOOTSTRAP);
        f.dev = NOBODY;
        f.pid = NOBODY;
        f.name = model_string(m, p, (size_t)(colon - p));
        f.value = model_string(m, colon + 1, (size_t)(less - colon - 1));
        f.extra = what;
        model_add(m, &f);
        p = strchr(less, '>');
        p = p ? p + 1 : NULL;
    }
}

/* "[0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB ib0:10.44.1.4<0>" */
static void cards(struct model *m, const struct nccl_line *n, const char *list)
{
    const char *oob = strstr(list, "OOB ");
    if (!oob) /* it ends every such list, so this one was cut, and a card that it lacks need not be missing */
        return;
    for (const char *p = list; p && *p && p < oob; p = strchr(p, ' ')) {
        p += strspn(p, " ");
        struct span name, kind;
        int64_t index, port;
        if (*p != '[' || !scan(p, "[%d]%t:%d%*/%w", &index, &name, &port, &kind) || name.n > 64)
            continue;
        struct fact f = nccl_fact(n, F_NIC);
        f.dev = NOBODY;
        f.pid = NOBODY;
        f.name = span_words(m, name);
        f.value = memmem(kind.p, kind.n, "RoCE", 4) ? "RoCE" : "IB";
        f.a = port;
        f.b = index;
        model_add(m, &f);
    }
    interfaces(m, n, oob + 4, "oob");
}

static bool chosen(struct model *m, const struct nccl_line *n)
{
    struct span list, name;
    int64_t a;
    if (scan(n->msg, "Bootstrap : Using %t", &list) || scan(n->msg, "Bootstrap: Using %t", &list) || scan(n->msg, "NET : Using interface %t", &list)) {
        interfaces(m, n, list.p, "bootstrap");
        return true;
    }
    if (scan(n->msg, "NET/Socket : Using %t", &list) && !has(list.p, "threads")) {
        interfaces(m, n, list.p, "socket");
        return true;
    }
    if (scan(n->msg, "NET/IB : Using %t", &list) || scan(n->msg, "NET/IBext : Using %t", &list) || scan(n->msg, "NET/IB: Using %t", &list)) {
        cards(m, n, list.p);
        return true;
    }
    if (has(n->msg, "GPU Direct RDMA") || has(n->msg, "GDRDMA not enabled")) {
        struct fact f = nccl_fact(n, F_GDR_STATE);
        f.pid = NOBODY;
        f.dev = NOBODY;
        f.a = has(n->msg, "nabled") && !has(n->msg, "not enabled");
        f.name = scan(n->msg, "'%t'", &name) ? span_words(m, name) : "";
        f.value = has(n->msg, "distance") ? "distance" : has(n->msg, "memory_peers") ? "module" : "";
        return fact_add(m, f);
    }
    if (scan(n->msg, "NCCL Dev %d IbDev%*GID %d (%t)", &a, &a, &name)) {
        struct fact f = nccl_fact(n, F_GID_USED);
        f.pid = NOBODY;
        f.a = a;
        f.value = span_words(m, name);
        return fact_add(m, f);
    }
    return false;
}

static bool mixed_counts(struct model *m, const struct nccl_line *n)
{
    int64_t least, most, rank;
    if (scan(n->msg, "mixed local Net device counts across ranks (min %d, max %d)", &least, &most)) {
        struct fact f = nccl_fact(n, F_NET_COUNTS);
        f.pid = f.dev = NOBODY;
        f.a = least;
        f.b = most;
        f.c = has(n->msg, "Ignoring");
        return fact_add(m, f);
    }
    return scan(n->msg, "Rank %d has %d local Net devices", &rank, &least) || begins(n->msg, "Local Net device counts");
}

/* ---- RDMA errors --------------------------------------------------------------------------------------------------- */

static bool completion(struct model *m, const struct nccl_line *n)
{
    struct span peer, gid;
    int64_t status, vendor = 0;
    if (!scan(n->msg, "Got completion from peer %w", &peer))
        return false;
    if (!scan(n->msg, "with error %d", &status) && !scan(n->msg, "status=%d", &status) && !scan(n->msg, "status=%*(%d)", &status))
        return false;
    (void)(scan(n->msg, "vendor err %d", &vendor) || scan(n->msg, "vendor_err=%d", &vendor));
    struct fact f = nccl_fact(n, F_COMPLETION);
    f.a = status;
    f.b = vendor;
    f.value = model_string(m, peer.p, strcspn(peer.p, "<, "));
    if (scan(n->msg, "localGid %w", &gid))
        f.name = span_words(m, gid);
    if (scan(n->msg, "remoteGids%w", &gid) || scan(n->msg, "remoteGid %w", &gid))
        f.extra = span_words(m, gid);
    if (scan(n->msg, "hca %w", &gid))
        f.more = span_words(m, gid);
    return fact_add(m, f);
}

static int64_t errno_of(const char *words)
{
    static const struct { const char *words; int number; } known[] = {{"Network is unreachable", 101}, {"No route to host", 113}, {"timed out", 110}, {"Invalid argument", 22},
        {"No such device", 19}, {"Cannot allocate memory", 12}, {"Connection refused", 111}, {"No space left", 28}, {"No such file", 2}, {"Permission denied", 13}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (has(words, known[i].words))
            return known[i].number;
    return 0;
}

static bool verbs_call(struct model *m, const struct nccl_line *n)
{
    struct span call, s;
    int64_t number = 0;
    if (!scan(n->msg, "Call to ibv_%w", &call))
        return false;
    const char *name = model_say(m, "ibv_%.*s", (int)call.n, call.p);
    if (!begins(name, "ibv_modify_qp")) {
        struct fact f = nccl_fact(n, F_REGISTER);
        f.name = name;
        const char *with = strstr(n->msg, "error ");
        f.value = with ? model_words(m, with + 6) : "";
        return fact_add(m, f);
    }
    struct fact f = nccl_fact(n, F_QUEUE_PAIR);
    f.a = scan(n->msg, "errno %d", &number) || scan(n->msg, "failed with %d", &number) || scan(n->msg, "failed with error %d", &number) ? number : errno_of(n->msg);
    f.more = scan(n->msg, "failed with %t,", &s) || scan(n->msg, "failed with %t", &s) ? span_words(m, s) : "";
    f.name = scan(n->msg, "on dev %w", &s) ? model_string(m, s.p, strcspn(s.p, ":, ")) : "";
    f.b = scan(n->msg, "local GID index %d", &number) ? number : NOBODY;
    f.value = scan(n->msg, "local GID ::ffff:%w", &s) || scan(n->msg, "local GID %w", &s) ? span_words(m, s) : "";
    if (begins(f.value, "index"))
        f.value = scan(strstr(n->msg, "index") + 1, "local GID %w", &s) ? span_words(m, s) : "";
    f.extra = scan(n->msg, "remote GID ::ffff:%w", &s) || scan(n->msg, "remote GID %w", &s) ? span_words(m, s) : "";
    return fact_add(m, f);
}

static bool rdma_warned(struct model *m, const struct nccl_line *n)
{
    bool gid = has(n->msg, "async event") && has(n->msg, "GID table change"), types = has(n->msg, "incompatible devices") || has(n->msg, "NICs of only one link type");
    if (!gid && !types)
        return false;
    struct fact f = nccl_fact(n, gid ? F_GID_CHANGED : F_LINK_TYPES);
    struct span s;
    f.pid = f.dev = NOBODY;
    f.name = types ? model_words(m, n->msg) : scan(n->msg, "NET/IB : %w", &s) && memchr(s.p, ':', s.n) ? span_words(m, s) : "";
    return fact_add(m, f);
}

static bool rdma(struct model *m, const struct nccl_line *n)
{
    struct span s;
    int64_t a, b;
    if (completion(m, n) || verbs_call(m, n))
        return true;
    if (scan(n->msg, "Unable to open device %w", &s)) {
        struct fact f = nccl_fact(n, F_NIC_GONE);
        f.pid = f.dev = NOBODY;
        f.name = span_words(m, s);
        return fact_add(m, f);
    }
    b = NOBODY;
    if (scan(n->msg, "collective mismatch error, local size %d remote size %d", &a, &b) || scan(n->msg, "essage truncated : receiving %d bytes instead of %d", &a, &b) || scan(n->msg, "essage truncated : received %d bytes instead of %d", &a, &b) ||
        scan(n->msg, "incorrect receive info: size %d", &a)) {
        struct fact f = nccl_fact(n, F_SIZES_DIFFER);
        f.a = a;
        f.b = b;
        f.name = begins(n->msg, "Message truncated") ? "joining" : b == NOBODY ? "receive" : "";
        f.value = scan(n->msg, "peer %w", &s) ? model_string(m, s.p, strcspn(s.p, "< ")) : "";
        return fact_add(m, f);
    }
    if (has(n->msg, "async event") && (has(n->msg, "port error") || (has(n->msg, "fatal") && !has(n->msg, "non-fatal")) || has(n->msg, "catastrophic"))) {
        struct fact f = nccl_fact(n, F_LINK_EVENT);
        f.pid = NOBODY;
        f.value = model_words(m, n->msg);
        f.name = scan(n->msg, "NET/IB : %w", &s) && memchr(s.p, ':', s.n) ? span_words(m, s) : "";
        return fact_add(m, f);
    }
    return rdma_warned(m, n);
}

/* ---- sockets -------------------------------------------------------------------------------------------------------- */

static bool connect_failed(struct model *m, const struct nccl_line *n)
{
    struct span peer, words;
    int64_t port = 0;
    const char *what = NULL;
    bool given_up = n->warn;
    if (scan(n->msg, "onnect to %w failed : %t", &peer, &words) || scan(n->msg, "connect to %w returned %t,", &peer, &words))
        what = "connect";
    else if (scan(n->msg, "Call to recv from %w failed : %t", &peer, &words))
        what = "receive";
    else if (scan(n->msg, "Call to send to %w failed : %t", &peer, &words))
        what = "send";
    else if (scan(n->msg, "Connection closed by remote peer %w", &peer))
        what = "receive", words = (struct span){"connection closed", 17};
    if (!what)
        return false;
    (void)scan(peer.p, "<%d>", &port);
    struct fact f = nccl_fact(n, F_CONNECT);
    f.value = model_string(m, peer.p, strcspn(peer.p, "< "));
    f.a = port;
    f.b = given_up;
    f.name = span_words(m, words);
    f.extra = what;
    f.more = "nccl";
    return fact_add(m, f);
}

static bool bootstrap_said(struct model *m, const struct nccl_line *n)
{
    int64_t a, b;
    struct span v, w;
    struct fact f;
    if (scan(n->msg, "with family %d is neither", &a)) {
        f = nccl_fact(n, F_FAMILY);
        f.a = a;
    } else if (scan(n->msg, "Mismatched NCCL version detected : rank %d version %w rank %d version %w", &a, &v, &b, &w)) {
        f = nccl_fact(n, F_VERSIONS_SAID);
        f.rank = (int)a;
        f.value = span_words(m, v);
        f.peer = (int)b;
        f.extra = span_words(m, w);
    } else if (scan(n->msg, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %w", &a, &b, &v)) {
        f = nccl_fact(n, F_SAME_GPU);
        f.pid = f.dev = NOBODY;
        f.rank = (int)a;
        f.peer = (int)b;
        f.name = span_words(m, v);
    } else if (begins(n->msg, "Multiple Ranks are using the same GPU")) {
        f = nccl_fact(n, F_SAME_GPU);
    } else if (scan(n->msg, "rank %d of %d ranks has already checked in", &a, &b)) {
        f = nccl_fact(n, F_SAME_RANK);
        f.rank = (int)a;
        f.a = b;
    } else if (scan(n->msg, "mismatch in info from procs, nranks %d vs %d", &a, &b) || scan(n->msg, "mismatch in rank count from procs %d : %d", &a, &b)) {
        f = nccl_fact(n, F_WORLD_DIFFERS);
        f.a = a;
        f.b = b;
    } else if (n->warn && (has(n->msg, "Invalid NCCL_COMM_ID") || scan(n->msg, "Call to bind failed : %t", &v))) {
        f = nccl_fact(n, F_BIND_FAILED);
        f.name = has(n->msg, "Invalid NCCL_COMM_ID") ? "format" : span_words(m, v);
    } else if (has(n->msg, "Mismatched collective detected")) {
        f = nccl_fact(n, F_CALLS_DIFFER);
        f.rank = scan(n->msg, "around rank %d", &a) ? (int)a : NOBODY;
    } else if (has(n->msg, "no socket interface found") || has(n->msg, "No usable listening interface") || has(n->msg, "No interface found in the same subnet")) {
        f = nccl_fact(n, F_CONNECT);
        f.name = "no interface";
        f.value = scan(n->msg, "remote address %w", &v) ? model_string(m, v.p, strcspn(v.p, "<")) : "";
        f.extra = "choose";
        f.b = 1;
        f.more = "nccl";
    } else if (has(n->msg, "socket magic mismatch") || has(n->msg, "wrong socket type")) {
        f = nccl_fact(n, F_MAGIC);
        f.value = scan(n->msg, "from %w", &v) ? model_string(m, v.p, strcspn(v.p, "< :")) : "";
    } else {
        return false;
    }
    return fact_add(m, f);
}

/* ---- memory, GPUs, plugins --------------------------------------------------------------------------------------------- */

static bool shared_memory(struct model *m, const struct nccl_line *n)
{
    struct span path, words;
    int64_t bytes = 0, number = 0;
    const char *what = NULL;
    if (scan(n->msg, "attaching to shared memory segment %w (size %d)", &path, &bytes))
        what = "attach";
    else if (scan(n->msg, "creating shared memory segment %w (size %d)", &path, &bytes))
        what = "create";
    else if (scan(n->msg, "failed to extend %w to %d bytes", &path, &bytes) || scan(n->msg, "Call to posix_fallocate failed : %t", &path))
        what = "extend";
    if (!what)
        return false;
    struct fact f = nccl_fact(n, F_SHM);
    f.name = begins(path.p, "/") ? span_words(m, path) : "";
    f.a = bytes;
    f.value = scan(n->msg, "error: %t(", &words) ? span_words(m, words) : "";
    f.b = scan(n->msg, "error: %*(%d)", &number) ? number : errno_of(n->msg);
    f.extra = what;
    return fact_add(m, f);
}

static bool gpu(struct model *m, const struct nccl_line *n)
{
    struct span words;
    int64_t a;
    if (scan(n->msg, "Failed to bind NVLink SHARP (NVLS) Multicast memory of size %d : %t", &a, &words)) {
        struct fact f = nccl_fact(n, F_NVLS);
        f.a = a;
        f.name = span_words(m, words);
        return fact_add(m, f);
    }
    if (has(n->where, "nvls") && scan(n->msg, "failure%*'%t'", &words)) { /* what fails there is multicast memory */
        struct fact f = nccl_fact(n, F_NVLS);
        f.name = span_words(m, words);
        return fact_add(m, f);
    }
    if (!scan(n->msg, "Cuda failure%*'%t'", &words) && !scan(n->msg, "HIP failure%*'%t'", &words))
        return false;
    struct fact f = nccl_fact(n, F_GPU_FAILURE);
    f.name = span_words(m, words);
    f.extra = n->where;
    f.value = "nccl";
    return fact_add(m, f);
}

static bool plugin(struct model *m, const struct nccl_line *n)
{
    struct span name;
    if (!has(n->msg, "lugin"))
        return false;
    struct fact f = nccl_fact(n, F_PLUGIN);
    f.pid = f.dev = NOBODY;
    if (scan(n->msg, "Failed to find %w symbol", &name))
        f.a = 1, f.name = span_words(m, name);
    else if (scan(n->msg, "Could not find: %w", &name))
        f.a = 0, f.name = span_words(m, name);
    else if (scan(n->msg, "Plugin load returned %*: %w", &name))
        f.a = 0, f.name = span_words(m, name);
    else if (scan(n->msg, "No plugin found (%t)", &name))
        f.a = 0, f.name = span_words(m, name);
    else if (scan(n->msg, "loaded external network plugin %w", &name) || scan(n->msg, "Assigned NET plugin %w", &name))
        f.a = 2, f.name = span_words(m, name);
    else
        return false;
    f.value = model_words(m, n->msg);
    return fact_add(m, f);
}

/* The plugin that carries NCCL over libfabric (aws-ofi-nccl). */
static bool over_libfabric(struct model *m, const struct nccl_line *n)
{
    int64_t code = 0;
    if (!has(n->msg, "NET/OFI") || !(has(n->msg, "completed with error") || (has(n->msg, "RC: ") && n->warn)))
        return false;
    (void)scan(n->msg, "RC: %d", &code);
    struct fact f = nccl_fact(n, F_LIBFABRIC);
    f.name = model_words(m, skip_blanks(strstr(n->msg, "NET/OFI") + 7));
    f.a = code < 0 ? -code : code;
    f.extra = has(n->msg, "completed with error") ? "completion" : "setup";
    f.value = "NET/OFI";
    return fact_add(m, f);
}

bool nccl_network(struct model *m, const struct nccl_line *n)
{
    return chosen(m, n) || mixed_counts(m, n) || rdma(m, n) || over_libfabric(m, n) || connect_failed(m, n) || bootstrap_said(m, n) || shared_memory(m, n) || gpu(m, n) || plugin(m, n);
}
