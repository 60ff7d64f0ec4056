/* SPDX-License-Identifier: Apache-2.0 */
/* rules_machine.c - one machine: peer access, NVSwitch, NVLink, shared memory, limits, where ranks run, plugins, versions, wrong results. */
#include <stdlib.h>
#include <string.h>

#include "rule.h"

/* ---- PCIe peer access --------------------------------------------------------------------------------------------------------------- */

static bool job_seen(const struct model *m)
{
    return fact_seen(m, F_PATH) || fact_seen(m, F_INIT) || fact_seen(m, F_BENCH) || fact_seen(m, F_MATRIX);
}

void rule_acs(struct judge *j)
{
    struct names on = {0};
    struct finding *f;
    EACH_FACT(j->m, F_ACS, a)
        if (a->a || a->b)
            names_add(j->m, &on, *a->name ? a->name : "a bridge");
    if (!on.n)
        return;
    f = find(j, CAUSE - 10, job_seen(j->m) ? 0.85 : 0.6, "PCIe ACS redirection is on at bridge%s %s: traffic between GPUs goes through the IOMMU", on.n == 1 ? "" : "s", names_say(j->m, &on));
    explain(j, f, "With ReqRedir+ or CmpltRedir+ a write from one GPU to another is sent up to the root; what arrives may be nothing, and the first collective hangs without an error.");
    EACH_FACT(j->m, F_ACS, a)
        if (a->a || a->b)
            evidence(f, a);
    EACH_FACT(j->m, F_PATH, p)
        if (begins(p->value, "P2P")) {
            evidence(f, p);
            break;
        }
    for (int i = 0; i < on.n && i < 2; i++)
        remedy(j, f, "`sudo setpci -s %s ECAP_ACS+0x6.w=0000` (until the next boot; for good: switch ACS off in the BIOS)", on.v[i]);
    remedy(j, f, "to see whether that is it: `export NCCL_P2P_DISABLE=1` (slower, but it must then run); all bridges that redirect: `sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl:.*ReqRedir[+]' | grep -B1 ACSCtl`");
}

void rule_iommu(struct judge *j)
{
    const struct fact *said = NULL, *line = first_of(j->m, F_CMDLINE);
    EACH_FACT(j->m, F_IOMMU_WARNED, w)
        if (has(w->name, "iommu"))
            said = said ? said : w;
    if (!said || (line && has(line->value, "iommu=pt")))
        return;
    struct finding *f = find(j, LIKELY, line ? 0.85 : 0.7, "The kernel runs without iommu=pt%s%s: accesses between GPUs are translated, and can hang", *said->host ? " on " : "", said->host);
    explain(j, f, "The library warns of it once, at the start, where it is easily overlooked.%s", line ? " The kernel's command line shows that it is not set." : "");
    evidence(f, said);
    evidence(f, line);
    EACH_FACT(j->m, F_PATH, p)
        if (begins(p->value, "P2P")) {
            evidence(f, p);
            break;
        }
    remedy(j, f, "`sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub && sudo update-grub` (Red Hat: `sudo grubby --update-kernel=ALL --args=iommu=pt`; older AMD hosts: amd_iommu=on, too), then a reboot; `cat /proc/cmdline` shows it");
}

/* CUDA's word, where the library went by what the driver or a variable promised. */
static void tell_refused_call(struct judge *j, const struct fact *call)
{
    const struct fact *level = setting_of(j->m, "NCCL_P2P_LEVEL");
    struct finding *f = find(j, CAUSE + 2, 0.85, "%s has no peer access to another GPU of its host, and the library counted on it", Who_says(j->m, call));
    explain(j, f, "%s", level ? model_say(j->m, "NCCL_P2P_LEVEL=%s asks for it over paths where the driver does not give it.", level->value) : "Consumer cards, virtual GPUs and some virtual machines do not give it, and not every driver says so beforehand.");
    evidence(f, call);
    evidence(f, level);
    remedy(j, f, "`unset NCCL_P2P_LEVEL`; or without it: `export NCCL_P2P_DISABLE=1`; which pairs have it: `nvidia-smi topo -p2p r`");
}

/* nvidia-smi topo -p2p r, and CUDA when a GPU has too many peers. */
void rule_peer_refused(struct judge *j)
{
    static const struct { const char *word, *why; } words[] = {{"CNS", "the chipset does not support it"}, {"GNS", "the GPU does not support it"}, {"TNS", "the topology does not support it"}, {"NS", "it is not supported"}, {"DR", "it is switched off by a key of the driver's registry"}};
    const struct fact *one = NULL, *full = NULL;
    const char *why = "";
    int refused = 0;
    EACH_FACT(j->m, F_MATRIX, c)
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (same_text(c->extra, words[i].word)) {
                one = one ? one : c;
                why = *why ? why : words[i].why;
                refused++;
            }
    EACH_FACT(j->m, F_GPU_FAILURE, g)
        if (has(g->name, "peer access is not supported")) {
            tell_refused_call(j, g);
            return;
        } else {
            full = has(g->name, "peer mapping resources exhausted") ? g : full;
        }
    if (full) {
        struct finding *f = find(j, CAUSE + 2, 0.85, "%s cannot map one more peer: a GPU takes eight at most without NVLink", Who_says(j->m, full));
        explain(j, f, "With more GPUs in one host each process would map all others; the driver refuses the ninth, and the communicator is not made.");
        evidence(f, full);
        remedy(j, f, "let far pairs go through host memory: `export NCCL_P2P_LEVEL=PXB`, or fewer GPUs a job: `CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7`");
    }
    if (!one)
        return;
    struct finding *f = find(j, ADVICE + 10, 0.8, "%s and %s%s%s cannot reach each other's memory: %s", one->name, one->value, *one->host ? " of " : "", one->host, why);
    explain(j, f, "Data between %s go through host memory, at a part of the speed.", refused > 2 ? "these pairs" : "them");
    evidence(f, one);
    remedy(j, f, "both in slots of one root complex, and above 4G decoding on in the BIOS: `nvidia-smi topo -m`, `lspci -tv`; consumer cards have no peer access at all");
}

/* What RCCL says it misses of the environment. */
void rule_fine_grain(struct judge *j)
{
    const struct fact *said = NULL;
    EACH_FACT(j->m, F_IOMMU_WARNED, w)
        said = !said && has(w->name, "HSA_FORCE_FINE_GRAIN_PCIE") ? w : said;
    if (!said)
        return;
    struct finding *f = find(j, ADVICE + 6, 0.6, "RCCL misses HSA_FORCE_FINE_GRAIN_PCIE=1%s%s: without it GPUs on PCIe see each other's writes late, or not", *said->host ? " on " : "", said->host);
    explain(j, f, "Memory that a peer writes over PCIe must be fine-grained; over xGMI it is anyway.");
    evidence(f, said);
    remedy(j, f, "`export HSA_FORCE_FINE_GRAIN_PCIE=1` for all ranks");
}

/* ---- NVSwitch and NVLink --------------------------------------------------------------------------------------------------------------- */

void rule_fabric_manager(struct judge *j)
{
    const struct fact *service = NULL, *state = NULL, *call = NULL;
    EACH_FACT(j->m, F_SERVICE, s)
        if (has(s->name, "fabricmanager") && !same_text(s->value, "active"))
            service = s;
    EACH_FACT(j->m, F_GPU_FABRIC, g)
        if (!has(g->value, "Completed") && !has(g->value, "N/A"))
            state = g;
    EACH_FACT(j->m, F_GPU_FAILURE, g)
        if (has(g->name, "not yet initialized") || has(g->name, "system not ready"))
            call = g;
    if (!service && !state && !call)
        return;
    struct finding *f = find(j, CAUSE, service ? 0.95 : 0.8, "%s", service ? "nvidia-fabricmanager (Fabric Manager) is not running, so the NVSwitches are not set up" : "The NVSwitch fabric is not set up: Fabric Manager has not done its work");
    if (call)
        explain(j, f, "CUDA's '%s' (error 802) means just that on a machine with NVSwitches: every program fails at its first call.", call->name);
    if (state)
        explain(j, f, "The GPUs report the state '%s' of their fabric.", state->value);
    evidence(f, service);
    evidence(f, state);
    evidence(f, call);
    remedy(j, f, "`sudo systemctl enable --now nvidia-fabricmanager`; its version must be that of the driver: `nvidia-smi --query-gpu=driver_version --format=csv,noheader; dpkg -l | grep -i fabricmanager`");
    remedy(j, f, "restarted while GPUs were in use? Reset them, with nothing running there: `sudo nvidia-smi -r`, or reboot");
}

void rule_nvls(struct judge *j)
{
    const struct fact *n = first_of(j->m, F_NVLS);
    if (!n)
        return;
    struct finding *f = find(j, LIKELY, 0.8, "NVLink SHARP (NVLS) memory cannot be made or bound: %s", n->name);
    explain(j, f, "Multicast memory of NVSwitches is handed out by Fabric Manager; after it was restarted under running GPUs, or inside some containers, making or binding it fails or hangs, often only from three GPUs on.");
    evidence(f, n);
    remedy(j, f, "to go on without it: `export NCCL_NVLS_ENABLE=0`; then, with nothing running there: `sudo systemctl restart nvidia-fabricmanager && sudo nvidia-smi -r`, or reboot");
}

static int link_count(const struct fact *f)
{
    return begins(f->extra, "NV") && f->extra[2] >= '0' && f->extra[2] <= '9' ? (int)f->a : 0;
}

void rule_nvlink(struct judge *j)
{
    const struct fact *few = NULL, *many = NULL, *down = NULL;
    EACH_FACT(j->m, F_MATRIX, a)
        if (link_count(a)) {
            few = !few || link_count(a) < link_count(few) ? a : few;
            many = !many || link_count(a) > link_count(many) ? a : many;
        }
    EACH_FACT(j->m, F_NVLINK, l)
        if (!l->b)
            down = down ? down : l;
    int up = 0;
    EACH_FACT(j->m, F_NVLINK, l)
        up += l->b && down && l->dev == down->dev;
    bool pairs = few && link_count(few) < link_count(many), part = down && up > 0;
    /* Machines with a hybrid mesh have pairs of one and of two links by design; a link that is down is what tells. */
    bool by_design = pairs && !part && link_count(many) == 2 * link_count(few);
    if ((!pairs && !part) || by_design)
        return;
    int of = pairs ? link_count(many) : up + 1, have = pairs ? link_count(few) : up;
    struct finding *f = find(j, part ? CAUSE - 5 : LIKELY - 5, part ? 0.9 : 0.75, "%s: %d of %d NVLinks are up%s", pairs ? model_say(j->m, "%s-%s", few->name, few->value) : model_say(j->m, "GPU%d", down->dev), have, of,
                             down ? model_say(j->m, " (link %lld is inactive)", (long long)down->a) : "");
    if (pairs)
        explain(j, f, "The like pair %s-%s has %d.", many->name, many->value, link_count(many));
    explain(j, f, "A bridge that does not sit fully, or a bad link: bandwidth is lost, and initialisation can take minutes.");
    evidence(f, pairs ? few : NULL);
    evidence(f, pairs ? many : NULL);
    evidence(f, down);
    remedy(j, f, "`nvidia-smi nvlink -s` and, for error counters, `nvidia-smi nvlink -e`; reseat the bridge, or swap it with the good pair's to see whether the fault goes along");
}

void rule_nvlink_errors(struct judge *j)
{
    EACH_FACT(j->m, F_XID, x)
        if (x->a == 74) {
            struct finding *f = find(j, CAUSE, 0.8, "The GPU at %s%s%s reports NVLink errors (Xid 74)", x->name, *x->host ? " of " : "", x->host);
            explain(j, f, "%s", *x->value ? x->value : "A link between GPUs, or to a switch, failed.");
            evidence(f, x);
            remedy(j, f, "`nvidia-smi nvlink -e` on that host; reseat or replace; reset the GPUs before they are used again: `sudo nvidia-smi -r`");
            return;
        }
}

/* ---- shared memory ------------------------------------------------------------------------------------------------------------------------ */

static bool shm_differs(struct judge *j, const struct fact **one, const struct fact **other)
{
    EACH_FACT(j->m, F_SHM_ID, a)
        EACH_FACT(j->m, F_SHM_ID, b)
            if (a->order < b->order && !same_text(a->name, b->name)) {
                *one = a, *other = b;
                return true;
            }
    return false;
}

void rule_shared_memory(struct judge *j)
{
    const struct fact *s = first_of(j->m, F_SHM), *one = NULL, *other = NULL, *small = NULL, *loader = NULL, *call = NULL;
    EACH_FACT(j->m, F_EXCEPTION, e)
        if (has(e->value, "DataLoader worker") && (has(e->value, "Bus error") || has(e->value, "shared memory")))
            loader = loader ? loader : e;
    EACH_FACT(j->m, F_GPU_FAILURE, g)
        call = !call && is_of_shared_memory(g) ? g : call;
    bool differ = shm_differs(j, &one, &other);
    EACH_FACT(j->m, F_DISK, d)
        if (same_text(d->name, "/dev/shm") && (d->a <= 65536 || d->b < 16384))
            small = d;
    if (!s && !loader && !call && !(differ && fact_seen(j->m, F_BOOT_ID)) && !(small && job_seen(j->m)))
        return;
    bool apart = differ || (s && s->b == 2);
    const char *where = s ? s->host : call ? call->host : "";
    struct finding *f;
    if (apart)
        f = find(j, CAUSE, differ ? 0.9 : 0.75, "Ranks of one machine see different /dev/shm: they are in containers that do not share it");
    else
        f = find(j, CAUSE, s || loader ? 0.9 : call && !small ? 0.55 : 0.65, "%s/dev/shm is full or too small%s%s%s", loader ? model_say(j->m, "A data-loader worker%s died of it: ", loader->rank != NOBODY ? model_say(j->m, " of rank %d", loader->rank) : "") : "", *where ? " on " : "", where, small ? model_say(j->m, " (%lld MB)", (long long)small->a / 1024) : "");
    if (apart)
        explain(j, f, "The library takes them for one host (the boot id is the same) and hands one rank the name of a segment that is not there for the other: share the IPC namespace (--ipc=host).");
    else
        explain(j, f, "Docker gives a container 64 MB unless told otherwise; the library needs about %s for each pair of ranks that talk through host memory, and data loaders keep their batches there.", s && s->a ? bytes_say(j->m, s->a) : "ten MB");
    if (call && !apart)
        explain(j, f, "Here registering a segment with the GPU failed (%s), which a segment that cannot be backed does; segments that earlier runs left take room, too.", call->name);
    evidence(f, s);
    evidence(f, loader);
    evidence(f, call);
    evidence(f, one);
    evidence(f, other);
    evidence(f, small);
    evidence_all(j, f, F_BOOT_ID);
    if (apart) {
        remedy(j, f, "`docker run --ipc=host ...` (or `docker run --ipc=container:NAME ...`), Kubernetes hostIPC: true or one emptyDir (medium: Memory) at /dev/shm of both");
        remedy(j, f, "or keep the library from it, then the network is used: `export NCCL_SHM_DISABLE=1 NCCL_HOSTID=$(hostname)`, with another NCCL_HOSTID in each container");
    } else {
        remedy(j, f, "`docker run --shm-size=8g ...` or `docker run --ipc=host ...`; Kubernetes: an emptyDir of medium Memory at /dev/shm; on the host itself: `sudo mount -o remount,size=16G /dev/shm`");
        remedy(j, f, "what is left of earlier runs: `ls -l /dev/shm/nccl-*`, and `lsof /dev/shm` for who still has one open");
    }
}

/* ---- limits ---------------------------------------------------------------------------------------------------------------------------------- */

/* No limit of the process stands in the way: then it is the card's own, or the host's memory. */
static void tell_card_full(struct judge *j, const struct fact *refused, const struct fact *limit)
{
    struct finding *f = find(j, LIKELY, 0.7, "%s failed%s%s for want of memory, though locked memory is unlimited: the card has no more queues, or the host no memory", refused->name, *refused->host ? " on " : "", refused->host);
    explain(j, f, "All-to-all between many ranks takes a queue pair for each pair and channel; a card has a fixed number of them, and each takes memory of the host.");
    evidence(f, refused);
    evidence(f, limit);
    remedy(j, f, "fewer connections a card: `NCCL_PXN_DISABLE=0`, `NCCL_IB_QPS_PER_CONNECTION=1`, `NCCL_NCHANNELS_PER_NET_PEER=1`; what the card has: `ibv_devinfo -v | grep -E 'max_(qp|cq|mr):'`; the host: `free -g`");
}

void rule_limits(struct judge *j)
{
    const struct fact *refused = NULL, *low = NULL, *high = NULL, *files = NULL;
    EACH_FACT(j->m, F_REGISTER, r)
        if (has(r->value, "Cannot allocate memory") || (!*r->value && !has(r->name, "open_device")))
            refused = refused ? refused : r;
    EACH_FACT(j->m, F_LIMIT, l) {
        if (same_text(l->name, "memlock") && l->a >= 0 && l->a < 1 << 20)
            low = low ? low : l;
        else if (same_text(l->name, "memlock"))
            high = l;
    }
    EACH_FACT(j->m, F_WARNED, w)
        if (has(w->name, "Too many open files"))
            files = w;
    if (files) {
        struct finding *f = find(j, CAUSE, 0.9, "%s ran out of open files", who_says(j->m, files));
        explain(j, f, "Every connection takes one; large jobs need thousands.");
        evidence(f, files);
        remedy(j, f, "`ulimit -n 65536` in what starts the ranks; Docker: `docker run --ulimit nofile=65536 ...`; a service: `sudo install -D /dev/stdin /etc/systemd/system/slurmd.service.d/nofile.conf <<< $'[Service]\\nLimitNOFILE=65536'`, `sudo systemctl daemon-reload`, and its restart");
    }
    if (!refused && !(low && high))
        return;
    const char *where = low && *low->host ? low->host : refused && *refused->host ? refused->host : "";
    if (refused && !low && high && high->a < 0) {
        tell_card_full(j, refused, high);
        return;
    }
    const char *limit = low ? model_say(j->m, "%lld KiB", (long long)low->a) : "too low";
    struct finding *f = find(j, refused ? CAUSE : LIKELY - 10, refused && low ? 0.95 : 0.75, "The limit of locked memory (memlock) %s%s is %s%s%s", *where ? "on " : "here", where, limit, high && *high->host ? model_say(j->m, " (%s on %s)", high->a < 0 ? "unlimited" : "more", high->host) : "",
                             refused ? model_say(j->m, ", so %s failed", refused->name) : "");
    explain(j, f, "RDMA cards need memory that cannot be paged out; each process may lock only that much.");
    evidence(f, refused);
    evidence(f, low);
    evidence(f, high);
    remedy(j, f, "`ulimit -l unlimited` for what starts the ranks. Logins: `echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-memlock.conf`, and a new one; a service (slurmd, sshd): `sudo install -D /dev/stdin /etc/systemd/system/slurmd.service.d/memlock.conf <<< $'[Service]\\nLimitMEMLOCK=infinity'`, `sudo systemctl daemon-reload`, and its restart; `docker run --ulimit memlock=-1 --cap-add=IPC_LOCK ...`");
    remedy(j, f, "check where the ranks run, not where you are logged in: `srun --label bash -c 'echo $(hostname) $(ulimit -l)'`, or the same with mpirun");
}

/* ---- where ranks run ----------------------------------------------------------------------------------------------------------------------------- */

void rule_affinity(struct judge *j)
{
    const struct fact *one = NULL, *mask = NULL;
    EACH_FACT(j->m, F_BINDING, b)
        if (b->a == 1)
            one = one ? one : b;
    EACH_FACT(j->m, F_AFFINITY, a)
        if (a->a > 0 && a->a <= 2)
            mask = mask ? mask : a;
    if (!one && !mask)
        return;
    struct finding *f = find(j, LIKELY - 5, one ? 0.9 : 0.75, "Each rank is bound to %s%s: the library's own threads share it with the program", one || mask->a < 2 ? "one core" : "two processors", mask ? model_say(j->m, " (mask %s)", mask->name) : "");
    explain(j, f, "Proxy and socket threads inherit the mask of the process; on a single core they and the program take turns. mpirun binds like that unless told --bind-to none.");
    evidence(f, one);
    evidence(f, mask);
    EACH_FACT(j->m, F_BENCH, b) {
        evidence(f, b);
        break;
    }
    remedy(j, f, "`mpirun --bind-to none ...` (or `mpirun --map-by ppr:4:socket:PE=8 ...`); `srun --cpu-bind=none ...`, or `srun --cpus-per-task=8 ...`; by hand, near the GPU: `numactl --cpunodebind=0 --membind=0 python train.py`, the node from `nvidia-smi topo -m`");
    remedy(j, f, "check a rank: `grep Cpus_allowed_list /proc/PID/status`; `export NCCL_IGNORE_CPU_AFFINITY=1` lets the library ignore the mask");
}

void rule_numa_balancing(struct judge *j)
{
    const struct fact *n = first_of(j->m, F_NUMA_BALANCE);
    if (!n)
        return;
    struct finding *f = find(j, ADVICE, 0.7, "NUMA balancing is on%s%s: speeds will vary from run to run", *n->host ? " on " : "", n->host);
    explain(j, f, "The kernel unmaps pages to see who uses them, and moves them; what GPUs and cards have mapped is disturbed by it.");
    evidence(f, n);
    remedy(j, f, "`sudo sysctl -w kernel.numa_balancing=0`; for good: `echo kernel.numa_balancing=0 | sudo tee /etc/sysctl.d/90-numa-balancing.conf`");
}

/* ---- versions and plugins ------------------------------------------------------------------------------------------------------------------------ */

void rule_versions(struct judge *j)
{
    const struct fact *said = first_of(j->m, F_VERSIONS_SAID), *family = first_of(j->m, F_FAMILY), *a = NULL, *b = NULL;
    EACH_FACT(j->m, F_VERSION, w) {
        const struct fact *v = j->m->first[F_VERSION]; /* the first of that library whose host is known */
        while (v != w && !(same_text(v->name, w->name) && *v->host))
            v = v->next;
        if (!a && v != w && !same_text(v->value, w->value) && *w->host && !same_text(v->host, w->host))
            a = v, b = w;
    }
    if (!said && !a)
        return;
    if (a) {
        int with_a = 0, with_b = 0;
        EACH_FACT(j->m, F_VERSION, v)
            with_a += same_text(v->name, a->name) && same_text(v->value, a->value), with_b += same_text(v->name, b->name) && same_text(v->value, b->value);
        if (with_a > with_b) { /* the odd one first */
            const struct fact *k = a;
            a = b, b = k;
        }
    }
    struct names rest = {0};
    EACH_FACT(j->m, F_VERSION, v)
        if (b && same_text(v->name, b->name) && same_text(v->value, b->value))
            names_add(j->m, &rest, v->host);
    struct finding *f = a ? find(j, CAUSE + 5, family || said ? 0.95 : 0.85, "%s runs %s %s, %s %s %s", a->host, a->name, a->value, names_say(j->m, &rest), rest.n == 1 ? "runs" : "run", b->value)
                          : find(j, CAUSE + 5, 0.95, "Rank %d has version %s of the library, rank %d has %s", said->rank, said->value, said->peer, said->extra);
    explain(j, f, "What versions send each other while they meet differs between them, so one reads nonsense from the other%s.", family ? model_say(j->m, " (here an address of 'family %lld')", (long long)family->a) : "");
    evidence(f, said);
    evidence(f, a);
    evidence(f, b);
    evidence(f, family);
    if (family)
        consequence(j, f, "'connecting to address with family %lld': an address read from the wrong place", (long long)family->a);
    remedy(j, f, "one version everywhere: `python3 -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'` on every host, and which file is mapped: `grep -hoE '/.*lib(n|r)ccl[.]so.*' /proc/PID/maps | sort -u`");
}

void rule_plugin(struct judge *j)
{
    const struct fact *wanted = setting_of(j->m, "NCCL_NET_PLUGIN"), *net = setting_of(j->m, "NCCL_NET");
    EACH_FACT(j->m, F_PLUGIN, p) {
        bool asked = wanted && !same_text(wanted->value, "none") && has(p->name, wanted->value);
        bool wrong = p->a == 1 && has(p->name, "Plugin_v") && !fact_seen(j->m, F_NIC) && first_of(j->m, F_NETWORK) && same_text(first_of(j->m, F_NETWORK)->name, "Socket");
        bool loaded = false;
        EACH_FACT(j->m, F_PLUGIN, q)
            loaded = loaded || q->a == 2;
        if (!(p->a == 0 && (asked || (net && !begins(net->value, "IB") && !begins(net->value, "Socket")))) && !(wrong && !loaded))
            continue;
        struct finding *f = find(j, LIKELY, 0.75, p->a == 0 ? "The network plugin %s that was asked for is not found" : "The network plugin has no %s: it was built for another version of the library", p->name);
        explain(j, f, "The library goes on with its own transports, that is, without what the plugin is for (EFA, SHARP, ...), and says so only at INFO.");
        evidence(f, p);
        evidence(f, wanted);
        evidence(f, first_of(j->m, F_NETWORK));
        remedy(j, f, "is it on the path of the rank? `ldconfig -p | grep -E '(nccl|rccl)-net'`, `echo $LD_LIBRARY_PATH` inside the job; match plugin and library (NCCL 2.30 takes net v6-v12, RCCL 2.21 v5-v8)");
        return;
    }
}

/* ---- wrong results ------------------------------------------------------------------------------------------------------------------------------- */

void rule_wrong_results(struct judge *j)
{
    const struct fact *bad = NULL, *end = NULL;
    EACH_FACT(j->m, F_BENCH, b)
        if ((b->b > 0 || b->c > 0) && !bad)
            bad = b;
    EACH_FACT(j->m, F_BENCH_END, e)
        if (e->b && e->a > 0)
            end = end ? end : e;
    if (!bad && !end)
        return;
    int64_t wrong = bad ? bad->b + bad->c : end->a;
    struct finding *f = find(j, CAUSE + 5, 0.95, "The results are wrong: %lld elements%s%s", (long long)wrong, bad ? model_say(j->m, " at %s", bytes_say(j->m, bad->a)) : "", bad ? bad->b && bad->c ? ", in place and out of place" : bad->b ? ", out of place" : ", in place" : "");
    explain(j, f, "This is data corruption on some path between the ranks; until it is found no result of this machine can be trusted.");
    evidence(f, bad);
    evidence(f, end);
    remedy(j, f, "repeat with one path less each time, until it is right: `export NCCL_NET_GDR_LEVEL=LOC` (GPUDirect RDMA off), `export NCCL_P2P_DISABLE=1`, `export NCCL_PROTO=^LL128`, `export NCCL_NVLS_ENABLE=0`; and with another version of the library");
    remedy(j, f, "then look at that path: ACS and IOMMU (`sudo lspci -vvv | grep ACSCtl`, `cat /proc/cmdline`), firmware of cards and switches (`ibv_devinfo | grep fw_ver`), `nvidia-smi nvlink -e`");
}
