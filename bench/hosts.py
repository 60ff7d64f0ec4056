# SPDX-License-Identifier: Apache-2.0
"""Hosts that are network namespaces, each with an interface to one bridge; the bridge's namespace has an address too, so that
launchers started there reach all hosts."""
import contextlib
import os
import subprocess
import tempfile

NET = "10.215.0.%d"


def ip(*words):
    subprocess.run(("ip",) + words, check=True, stderr=subprocess.DEVNULL)


def from_switch(job):
    return ["ip", "netns", "exec", os.path.basename(job.agent).split("agent-")[1] + "-s"]


# Called as "agent HOST COMMAND ...", as launchers call ssh. The host is an address; its namespace gets a host name of its own.
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "%s-${host##*.}" unshare --uts sh -c 'hostname "node$1"; shift; eval "$*"' sh "${host##*.}" "$@"
"""


@contextlib.contextmanager
def made(count):
    """Arguments of peers.Job for so many hosts, or None where namespaces cannot be made."""
    name = "ubench%d" % os.getpid()
    folder = tempfile.mkdtemp(prefix="bench-hosts-")
    agent = os.path.join(folder, "agent-" + name)
    spaces = [name + "-s"] + ["%s-%d" % (name, n) for n in range(1, count + 1)]
    try:
        try:
            for space in spaces:
                ip("netns", "add", space)
        except (subprocess.CalledProcessError, OSError):
            yield None
            return
        ip("-n", spaces[0], "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        ip("-n", spaces[0], "addr", "add", NET % 254 + "/24", "dev", "bridge")
        for n, space in enumerate(spaces[1:], 1):
            ip("link", "add", "host", "netns", space, "type", "veth", "peer", "name", "port%d" % n, "netns", spaces[0])
            ip("-n", spaces[0], "link", "set", "port%d" % n, "master", "bridge", "up")
            ip("-n", space, "addr", "add", NET % n + "/24", "dev", "host")
            ip("-n", space, "link", "set", "host", "up")
        for space in spaces:
            ip("-n", space, "link", "set", "lo", "up")
        ip("-n", spaces[0], "link", "set", "bridge", "up")
        with open(agent, "w") as f:
            f.write(AGENT % name)
        os.chmod(agent, 0o755)
        addresses = [NET % n for n in range(1, count + 1)]
        yield {"hosts": addresses, "switch": NET % 254, "ifname": "host", "agent": agent}
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL)
        if os.path.exists(agent):
            os.unlink(agent)
        os.rmdir(folder)
