#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The other libraries that bench.py compares with: where they come from, how their workers are built and started, and with which
settings. They are kept outside the checkout.

    bench/peers.py [--folder DIR] [--gloo-source DIR] [--ucc-source DIR]     fetch and build what can be had, say what cannot

Open MPI, MPICH and Intel MPI come as wheels, UCX too; UCC and Gloo are built from the source trees given (UCC is in no package
registry; without a source tree Gloo is the distribution's package libgloo-dev).
"""
import argparse
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(HERE, "workers")
DEFAULT_FOLDER = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "unisono-peers")


class Peer:
    """title and settings: for the results page. install(folder, options) raises Missing with the reason; environment(job): BENCH_ and
    the library's own variables; command(folder, job): argv that starts all ranks, or None where bench.py starts them itself."""

    def __init__(self, name, title, settings, install, environment=lambda f, job: {}, command=None):
        self.name, self.title, self.settings = name, title, settings
        self.install, self.environment, self.command = install, environment, command

    def worker(self, folder):
        return os.path.join(folder, "bin", self.name)


class Missing(Exception):
    pass


class Job:
    """What a group of ranks is started for. hosts: addresses in network namespaces, None for one host; ifname: their interface;
    switch: the launcher's address, which all reach; agent: a program "agent HOST COMMAND ..." that runs a command on a host."""

    def __init__(self, size, crowded, folder, hosts=None, ifname=None, switch=None, agent=None):
        self.size, self.crowded, self.folder = size, crowded, folder
        self.hosts, self.ifname, self.switch, self.agent = hosts, ifname, switch, agent


# ---- getting them --------------------------------------------------------------------------------------------------------------

def run(argv, cwd=None, log=None, env=None):
    with open(log or os.devnull, "a") as out:
        done = subprocess.run(argv, cwd=cwd, stdout=out, stderr=subprocess.STDOUT, env=env)
    if done.returncode != 0:
        raise Missing("%s ended with status %d%s" % (" ".join(argv[:4]), done.returncode, "; see " + log if log else ""))


def wheels(folder, name, packages):
    """A virtual environment of its own for each, as wheels of MPI all want to be bin/mpirun."""
    place = os.path.join(folder, name)
    if not os.path.exists(os.path.join(place, "installed")):
        run([sys.executable, "-m", "venv", place])
        run([os.path.join(place, "bin", "pip"), "install", "-q", "--no-deps"] + packages, log=os.path.join(folder, name + ".log"))
        open(os.path.join(place, "installed"), "w").close()
    return place


def build_worker(folder, name, compiler, source, flags, libraries):
    os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
    log = os.path.join(folder, "build-%s.log" % name)
    objects = []
    for path, tool in ((source, compiler), ("worker.c", ["gcc"])):
        objects.append(os.path.join(folder, "bin", name + "." + path + ".o"))
        run(tool + ["-O2", "-D_GNU_SOURCE", "-I" + SOURCES] + (flags if path == source else []) +
            ["-c", os.path.join(SOURCES, path), "-o", objects[-1]], log=log)
    run(compiler + objects + libraries + ["-o", os.path.join(folder, "bin", name)], log=log)


def install_mpi(name, package):
    def install(folder, options):
        place = wheels(folder, package[0].replace("-", "_"), package)
        include, lib = os.path.join(place, "include"), os.path.join(place, "lib")
        build_worker(folder, name, ["gcc"], "mpi.c", ["-I" + include], ["-L" + lib, "-lmpi", "-Wl,-rpath," + lib])
    return install


def built_from_source(folder, name, tree, steps):
    place = os.path.join(folder, name)
    if not os.path.exists(os.path.join(place, "installed")):
        work = os.path.join(folder, "build", name)
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(tree, work)
        for step in steps(place):
            run(step, cwd=work, log=os.path.join(folder, name + ".log"))
        open(os.path.join(place, "installed"), "w").close()
    return place


def install_gloo(name):
    def install(folder, options):
        flags, libraries, title = [], ["-lgloo"], "Gloo of the distribution (libgloo-dev)"
        if options.gloo_source or os.path.exists(os.path.join(folder, "gloo", "installed")):
            place = built_from_source(folder, "gloo", options.gloo_source, lambda to: [
                ["cmake", "-B", "out", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=-march=native", "-DBUILD_TEST=OFF",
                 "-DCMAKE_POLICY_VERSION_MINIMUM=3.5", "-DCMAKE_INSTALL_PREFIX=" + to],
                ["make", "-C", "out", "-j2", "install"]])
            flags, libraries, title = ["-I" + os.path.join(place, "include")], [os.path.join(place, "lib", "libgloo.a")], "Gloo, newest source"
        elif not os.path.exists("/usr/include/gloo/context.h"):
            raise Missing("neither --gloo-source nor the distribution's libgloo-dev is there")
        build_worker(folder, name, ["g++"], "gloo.cpp", ["-std=c++17", "-march=native", '-DGLOO_NAME="%s"' % title] + flags,
                     libraries + ["-lpthread"])
    return install


def install_ucc(folder, options):
    ucx = os.path.join(wheels(folder, "ucx", ["libucx-cu12"]), "lib")
    found = [os.path.join(at, "libucx") for at, names, _ in os.walk(ucx) if "libucx" in names]
    if not found:
        raise Missing("the wheel libucx-cu12 holds no libucx")
    for at, _, names in os.walk(found[0]):
        for leaf in names:  # their paths are those of the machine that built them
            if leaf.endswith((".la", ".a")):
                os.unlink(os.path.join(at, leaf))
    if not (options.ucc_source or os.path.exists(os.path.join(folder, "ucc", "installed"))):
        raise Missing("UCC is in no registry; give its source tree with --ucc-source")
    place = built_from_source(folder, "ucc", options.ucc_source, lambda to: [
        ["./autogen.sh"],
        ["./configure", "--prefix=" + to, "--with-ucx=" + found[0], "--without-cuda", "--without-rocm", "--without-mpi",
         "--with-tls=ucp,self", "--disable-gtest"],
        ["make", "-j2", "install"]])
    build_worker(folder, "ucc", ["gcc"], "ucc.c", ["-I" + os.path.join(place, "include")],
                 ["-L" + os.path.join(place, "lib"), "-lucc", "-Wl,--disable-new-dtags",
                  "-Wl,-rpath," + os.path.join(place, "lib") + ":" + os.path.join(found[0], "lib")])


def install_oneccl(folder, options):
    """The static library for processors alone; the shared one of the wheel wants a SYCL runtime."""
    place = wheels(folder, "oneccl", ["oneccl-cpu", "oneccl-cpu-devel", "intel-cmplr-lib-rt"])
    lib = os.path.join(place, "lib")
    build_worker(folder, "oneccl", ["g++"], "oneccl.cpp", ["-std=c++17", "-I" + os.path.join(place, "include")],
                 [os.path.join(lib, "ccl", "cpu", "lib", "libccl.a")] + [os.path.join(lib, n) for n in (
                     "libintlc.so.5", "libsvml.so", "libirng.so", "libimf.so")] + ["-Wl,-rpath," + lib, "-lhwloc", "-ldl", "-lpthread"])


# ---- starting them -------------------------------------------------------------------------------------------------------------

def open_mpi(pml):
    def command(folder, job):
        at = os.path.join(folder, "openmpi")
        argv = [os.path.join(at, "bin", "mpirun"), "--allow-run-as-root", "--bind-to", "none", "-n", str(job.size)]
        if pml == "ucx":
            argv += ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]
        else:
            argv += ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp" if job.hosts else "self,sm"]
        if job.crowded:
            argv += ["--mca", "mpi_yield_when_idle", "1"]
        if job.hosts:
            argv += ["--host", ",".join("%s:%d" % (h, job.size // len(job.hosts)) for h in job.hosts), "--mca", "btl_tcp_if_include",
                     job.ifname, "--mca", "plm", "ssh", "--prtemca", "plm_ssh_agent", job.agent]
        else:
            argv += ["--host", "localhost:%d" % job.size]
        if job.hosts and pml == "ucx":
            argv += ["-x", "UCX_TLS=tcp,self", "-x", "UCX_NET_DEVICES=" + job.ifname]
        return argv + ["-x", "BENCH_SOCKET"]
    return command


def hydra(place):
    def command(folder, job):
        argv = [os.path.join(folder, place, "bin", "mpiexec.hydra"), "-n", str(job.size)]
        if job.hosts:
            argv += ["-localhost", job.switch, "-launcher", "ssh", "-launcher-exec", job.agent, "-hosts", ",".join(job.hosts), "-ppn",
                     str(job.size // len(job.hosts))]
        return argv
    return command


def mpich_environment(folder, job):
    own = {"MPIR_CVAR_ENABLE_GPU": "0", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1" if job.crowded else "0"}
    if job.hosts:  # namespaces of one kernel: its transports would find shared memory
        own.update(UCX_TLS="tcp,self", UCX_NET_DEVICES=job.ifname, FI_PROVIDER="tcp", FI_TCP_IFACE=job.ifname)
    return own


def intel_environment(folder, job):
    at = os.path.join(folder, "impi_rt")
    own = {"I_MPI_ROOT": at, "I_MPI_PIN": "0", "I_MPI_FABRICS": "shm", "I_MPI_HYDRA_BOOTSTRAP": "fork"}
    if job.crowded:
        own["I_MPI_THREAD_YIELD"] = "3"
    if job.hosts:
        own.update(I_MPI_FABRICS="shm:ofi", I_MPI_OFI_LIBRARY_INTERNAL="0", FI_PROVIDER="tcp", FI_TCP_IFACE=job.ifname)
        del own["I_MPI_HYDRA_BOOTSTRAP"]
    return own


def ucc_environment(folder, job):
    """Its modules are to take the UCX they were built with, not the distribution's."""
    ucx = [at for at, _, names in os.walk(os.path.join(folder, "ucx", "lib")) if "libucp.so.0" in names]
    return {"LD_LIBRARY_PATH": ":".join(ucx), "UCX_TLS": "tcp,self" if job.hosts else "shm,self", "UCX_NET_DEVICES": job.ifname or "all", "UCX_WARN_UNUSED_ENV_VARS": "n"}


def oneccl_environment(folder, job):
    own = {"CCL_ATL_TRANSPORT": "ofi", "CCL_WORKER_OFFLOAD": "0", "CCL_WORKER_WAIT": "0", "CCL_LOG_LEVEL": "error",
           "CCL_PROCESS_LAUNCHER": "none", "CCL_LOCAL_SIZE": str(job.size if not job.hosts else job.size // len(job.hosts)),
           "CCL_ATL_SHM": "0" if job.hosts else "1", "FI_PROVIDER": "tcp" if job.hosts else "shm"}
    if job.hosts:
        own.update(FI_TCP_IFACE=job.ifname, CCL_KVS_IFACE=job.ifname)
    if job.crowded:
        own["CCL_YIELD"] = "sched_yield"
    return own


def gloo_environment(kind):
    return lambda folder, job: {"BENCH_GLOO": kind, "BENCH_IFACE": job.ifname or "lo"}


PEERS = [
    Peer("openmpi", "Open MPI, ob1", "pml ob1, btl self,sm (process_vm_readv where allowed); mpi_yield_when_idle when crowded; ranks bound",
         install_mpi("openmpi", ["openmpi"]), command=open_mpi("ob1")),
    Peer("openmpi-ucx", "Open MPI, UCX", "pml ucx over shared memory; mpi_yield_when_idle when crowded; ranks bound",
         install_mpi("openmpi-ucx", ["openmpi"]), command=open_mpi("ucx")),
    Peer("mpich", "MPICH", "as delivered (ch4); MPIR_CVAR_POLLS_BEFORE_YIELD=1 when crowded; ranks bound", install_mpi("mpich", ["mpich"]),
         mpich_environment, hydra("mpich")),
    Peer("intelmpi", "Intel MPI", "I_MPI_FABRICS=shm; I_MPI_THREAD_YIELD=3 when crowded; ranks bound", install_mpi("intelmpi", ["impi-rt", "impi-devel"]),
         intel_environment, hydra("impi_rt")),
    Peer("gloo", "Gloo", "newer interface: bcube to 1 MB, ring above; its loop thread on the other processor", install_gloo("gloo"), gloo_environment("loop")),
    Peer("gloo-poll", "Gloo, polling", "older interface: halving-doubling, pairs polled by the caller, no loop thread at work",
         install_gloo("gloo-poll"), gloo_environment("poll")),
    Peer("ucc", "UCC over UCX", "UCX_TLS=shm,self; one process-wide team", install_ucc, ucc_environment),
    Peer("oneccl", "oneCCL", "CCL_ATL_TRANSPORT=ofi over the distribution's libfabric (FI_PROVIDER=shm on one host, tcp between hosts), "
         "CCL_WORKER_OFFLOAD=0, no affinity of its own", install_oneccl, oneccl_environment),
]


def install_all(options, wanted=None):
    """Names of those of the wanted (None = all) that are there, and {name: reason} of the others."""
    there, missing = [], {}
    os.makedirs(options.folder, exist_ok=True)
    for peer in PEERS if wanted is None else [p for p in PEERS if p.name in wanted]:
        try:
            peer.install(options.folder, options)
            there.append(peer.name)
        except (Missing, OSError) as why:
            missing[peer.name] = str(why)
    return there, missing


def add_options(parser):
    parser.add_argument("--folder", default=DEFAULT_FOLDER, help="where the other libraries are kept; default %(default)s")
    parser.add_argument("--gloo-source", help="a source tree of Gloo; without it, the distribution's package")
    parser.add_argument("--ucc-source", help="a source tree of UCC, which is in no registry")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    there, missing = install_all(parser.parse_args())
    for name in there:
        print("%-12s there" % name)
    for name, why in missing.items():
        print("%-12s missing: %s" % (name, why))
    return 0 if there else 1


if __name__ == "__main__":
    sys.exit(main())
