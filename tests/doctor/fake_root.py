# SPDX-License-Identifier: Apache-2.0
"""A folder that stands for / of a machine with four GPUs and two RDMA cards behind PCIe switches of two sockets: what of /sys and /proc the doctor
looks at. A test changes single files of it."""
import os


def put(root, path, text):
    full = os.path.join(root, path.lstrip("/"))
    os.makedirs(os.path.dirname(full), exist_ok=True)
    mode = "wb" if isinstance(text, bytes) else "w"
    with open(full, mode) as f:
        f.write(text if isinstance(text, bytes) or text.endswith("\n") else text + "\n")


def device(root, chain, kind, vendor, numa, speed="32.0 GT/s PCIe", width=16, group=None):
    """chain: the bridges above it and itself, from the root complex on."""
    folder = "sys/devices/pci" + chain[0][:7] + "/" + "/".join(chain)
    values = {"class": kind, "vendor": vendor, "device": "0x2330", "numa_node": str(numa), "current_link_speed": speed, "max_link_speed": speed, "current_link_width": str(width),
              "max_link_width": str(width)}
    for name, text in values.items():
        put(root, folder + "/" + name, text)
    if group:
        put(root, folder + "/iommu_group/type", group)
    link = os.path.join(root, "sys/bus/pci/devices", chain[-1])
    os.makedirs(os.path.dirname(link), exist_ok=True)
    os.symlink("../../../" + folder[len("sys/"):], link)
    return folder


def acs(control):
    """The configuration space of a bridge whose access control services are set like that."""
    space = bytearray(4096)
    space[0x100:0x104] = (0x000d | 1 << 16).to_bytes(4, "little")
    space[0x106:0x108] = control.to_bytes(2, "little")
    return bytes(space)


def machine(root, vendor="0x10de", gpu_class="0x030200", group="identity"):
    """Returns {bus id: its folder}."""
    folders = {}
    for socket in (0, 1):
        high = "0000:%s0" % "1a"[socket]
        port, up = high + ":01.0", high[:-1] + "1:00.0"
        for chain in ([port], [port, up]):
            folders[chain[-1]] = device(root, chain, "0x060400", "0x8086", socket)
            put(root, folders[chain[-1]] + "/config", acs(0))
        for slot in range(3):
            down, leaf = "%s2:%02x.0" % (high[:-1], slot), "%s%d:00.0" % (high[:-1], 3 + slot)
            folders[down] = device(root, [port, up, down], "0x060400", "0x1000", socket)
            put(root, folders[down] + "/config", acs(0))
            kind = (gpu_class, vendor) if slot < 2 else ("0x020700", "0x15b3")
            folders[leaf] = device(root, [port, up, down, leaf], *kind, socket, group=group)
        card, at = "mlx5_%d" % socket, folders["%s5:00.0" % high[:-1]]
        put(root, at + "/infiniband/" + card + "/node_guid", "94:6d:ae:03:00:00:00:0%d" % socket)
        for name, text in {"state": "4: ACTIVE", "link_layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)"}.items():
            put(root, at + "/infiniband/" + card + "/ports/1/" + name, text)
        os.makedirs(os.path.join(root, "sys/class/infiniband"), exist_ok=True)
        os.symlink("../../../" + at + "/infiniband/" + card, os.path.join(root, "sys/class/infiniband", card))
        os.symlink("../..", os.path.join(root, at, "infiniband", card, "device"))
        put(root, "sys/devices/system/node/node%d/cpulist" % socket, ("0-15", "16-31")[socket])
        put(root, "sys/devices/system/node/node%d/cpumap" % socket, ("0000ffff", "ffff0000")[socket])
    put(root, "sys/devices/system/cpu/online", "0-31")
    put(root, "sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc")
    put(root, "sys/module/nvidia_peermem/version", "1")
    put(root, "proc/sys/kernel/numa_balancing", "0")
    put(root, "proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt quiet")
    put(root, "proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: fpu vme")
    put(root, "proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-31\nMems_allowed_list:\t0-1")
    put(root, "proc/self/cgroup", "0::/system.slice/job.scope")
    put(root, "proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max processes             65536                65536                processes\nMax open files            65536                65536                files\n"
        "Max locked memory         unlimited            unlimited            bytes")
    for name, index, speed, mtu in (("lo", 1, "", 65536), ("eno1", 2, 1000, 1500), ("enp5s0", 3, 100000, 9000)):
        put(root, "sys/class/net/%s/ifindex" % name, str(index))
        put(root, "sys/class/net/%s/mtu" % name, str(mtu))
        put(root, "sys/class/net/%s/operstate" % name, "up")
        if speed:
            put(root, "sys/class/net/%s/speed" % name, str(speed))
    return folders
