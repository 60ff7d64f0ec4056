#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""house.py - the rules of the house that a machine can read.

    house.py includes                 the law of includes (docs/design.md, section 7)
    house.py spdx                     every file says its licence
    house.py settings [--write]       docs/settings.md is what src/base/config.def says
    house.py documented               every subcommand and every error code has its place in docs/
    house.py links                    relative links in Markdown lead somewhere
    house.py headers CC CXX           every public header compiles alone, in C and in C++
    house.py symbols LIBRARY HEADER.. the library exports what these public headers declare, and nothing else
    house.py self-test                each rule finds what it is there to find

Exit status 0 = kept, 1 = broken, with one line a finding.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Folder -> folders whose header it may include; its own files always.
LAW = {
    "base": set(),
    "topo": {"base"},
    "plan": {"base", "topo"},
    "verify": {"base", "topo", "plan"},
    "sim": {"base", "topo", "plan"},
    "planner": {"base", "topo", "plan", "verify", "sim"},
    "net": {"base"},
    "boot": {"base"},
    "verdict": {"base"},
    "watch": {"base", "net", "verdict"},
    "exec": {"base", "plan", "net", "watch"},
}
TOP = {"jobs": {"base", "verdict"}}  # files of src/ itself; the others there may include every folder's header
# The deciding side never sees a socket.
NO_SOCKETS = {"topo", "plan", "verify", "sim", "planner", "verdict"}
SOCKETS = re.compile(r"^(sys/socket|sys/un|netinet/.*|arpa/inet|netdb)\.h$")
# Header of a dependency -> where it may stand. A file name ending in / is a folder.
DEPENDENCIES = {
    "sodium.h": ["src/base/"],
    "hwloc.h": ["src/topo/", "cli/"],
    "jansson.h": ["src/topo/", "src/plan/", "cli/"],
    "expat.h": ["src/topo/", "src/plan/", "cli/"],
    "cmocka.h": ["tests/"],
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def files(root, *suffixes):
    """Repository files below root with one of these suffixes, build folders left out."""
    for folder, names, leaves in os.walk(root):
        names[:] = [n for n in names if not n.startswith((".git", "build")) and n != "__pycache__" and not n.endswith(".egg-info")]
        for leaf in sorted(leaves):
            if not suffixes or leaf.endswith(suffixes):
                yield os.path.relpath(os.path.join(folder, leaf), root)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def public_headers(root):
    return {os.path.basename(p) for p in files(os.path.join(root, "include"), ".h")}


def check_quoted(root, path, header, public):
    """None, or why this file may not include "header"."""
    parts = path.split("/")
    if ".." in header.split("/"):
        return "no way up: includes start at src/ or include/"
    if header in public or parts[0] == "tests":
        return None
    if os.path.exists(os.path.join(root, "src", "tables", header)):  # data alone: lists that the library and the tools would repeat
        return None if header.endswith(".def") else "src/tables has lists, not headers"
    if parts[0] in ("cli", "examples", "python", "include", "bench"):
        beside = os.path.exists(os.path.join(root, os.path.dirname(path), header))
        below = os.path.exists(os.path.join(root, parts[0], header))
        if parts[0] == "bench" and header == "floor_kernels.h":  # cli/: the same kernels, so that the numbers compare
            return None
        return None if beside or below else "only public headers and its own folder's files are open to " + parts[0]
    if parts[0] != "src":
        return None
    own = parts[1] if len(parts) > 2 else ""
    folder = header.split("/")[0] if "/" in header else own
    if folder == own:
        return None
    if own:
        allowed = LAW.get(own)
        if allowed is None:
            return "folder src/%s is not in the law of includes" % own
    else:
        allowed = TOP.get(parts[1].rsplit(".", 1)[0], set(LAW))
    if folder not in allowed:
        return "%s may include %s" % (own or path, ", ".join(sorted(allowed)) or "nothing else")
    name = header.split("/")[-1]
    if folder != "base" and name != folder + ".h" and own:
        return "folder %s shows others %s/%s.h alone" % (folder, folder, folder)
    return None


def check_system(path, header):
    parts = path.split("/")
    if parts[0] == "src" and parts[1] in NO_SOCKETS and SOCKETS.match(header):
        return "the deciding side never sees a socket"
    places = DEPENDENCIES.get(header.split("/")[0] if header.startswith("hwloc/") else header)
    if header.startswith("hwloc/"):
        places = DEPENDENCIES["hwloc.h"]
    if places and not path.startswith(tuple(places)):
        return "it belongs to " + ", ".join(places)
    return None


def rule_includes(root):
    public = public_headers(root)
    found = []
    for path in files(root, ".c", ".h", ".def", ".cpp"):
        text = read(root, path)
        for m in INCLUDE.finditer(text):
            why = check_quoted(root, path, m[2], public) if m[1] == '"' else check_system(path, m[2])
            if why:
                found.append("%s:%d: includes %s; %s" % (path, text.count("\n", 0, m.start()) + 1, m[2], why))
    return found


SPDX_FREE = ("LICENSE", ".md", ".json", ".xml", ".txt", ".tsv", ".expect", ".svg", ".png", ".gitignore", ".bin", ".seed")


def rule_spdx(root):
    found = []
    for path in files(root):
        if path.endswith(SPDX_FREE) or "/corpus/" in path or "/data/" in path or path.startswith("tests/plans/"):
            continue
        head = "".join(read(root, path).splitlines(True)[:4])
        if "SPDX-License-Identifier: Apache-2.0" not in head:
            found.append(path + ": no SPDX-License-Identifier: Apache-2.0 in its first lines")
    return found


# ---- settings ---------------------------------------------------------------------------------------

def c_strings(text):
    """The value of adjacent C string literals."""
    return "".join(bytes(s, "utf-8").decode("unicode_escape") for s in re.findall(r'"((?:[^"\\]|\\.)*)"', text))


def split_arguments(text):
    parts, depth, quoted, start = [], 0, False, 0
    for i, c in enumerate(text):
        if c == '"' and text[i - 1] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return parts + [text[start:].strip()]


def settings(root):
    text = re.sub(r"/\*.*?\*/", "", read(root, "src/base/config.def"), flags=re.S)
    for m in re.finditer(r"^CFG_(\w+)\s*\(", text, re.M):
        depth, quoted, i = 1, False, m.end()
        while depth:
            if text[i] == '"' and text[i - 1] != "\\":
                quoted = not quoted
            elif not quoted:
                depth += (text[i] == "(") - (text[i] == ")")
            i += 1
        yield m[1], split_arguments(text[m.end():i - 1])


def human(value):
    value = value.strip().rstrip("LUlu")
    return value


def settings_page(root):
    out = ["# Settings", "",
           "Every setting of Unisono, from the one table `src/base/config.def` (`tests/house/house.py settings --write` makes this",
           "page). A value is looked for in the environment as `UNISONO_NAME`, then in what the program passed, then under the NCCL or",
           "RCCL names given here, then the default holds. `UNISONO_` values are strict: an illegal one fails the job with a sentence that",
           "lists what is legal, an unknown name is reported with the nearest real one. `unisono doctor --env` shows what is in force and why.",
           "", "Sizes take K, M, G, T; times take us, ms, s, m, h (plain numbers are seconds); yes-or-no settings take 1 0 true false yes no on off.",
           ""]
    for kind, a in settings(root):
        name, rest = c_strings(a[1]), a[2:]
        limits = ""
        if kind in ("INT", "BYTES", "SECONDS"):
            limits = "%s to %s" % (human(rest[1]), human(rest[2]))
            rest = [rest[0]] + rest[3:]
        elif kind == "WORD":
            limits = c_strings(rest[1]).replace(",", ", ")
            rest = [rest[0]] + rest[2:]
        dflt = c_strings(rest[0]) if '"' in rest[0] else human(rest[0])
        if kind == "BOOL":
            dflt = "yes" if dflt in ("1", "true") else "no"
        compare, foreign, text = rest[1], c_strings(rest[2]), c_strings(rest[3])
        out += ["## UNISONO_" + name, "", text, "",
                "- kind: %s%s" % (kind.lower(), "; legal: " + limits if limits else ""),
                "- default: " + (dflt if dflt else "empty"),
                "- must be equal on all ranks: " + ("yes" if compare.strip() == "1" else "no")]
        if foreign:
            out.append("- also read as: " + foreign.replace(",", ", "))
        out.append("")
    return "\n".join(out)


def rule_settings(root, write=False):
    page = settings_page(root)
    path = os.path.join(root, "docs/settings.md")
    if write:
        with open(path, "w", encoding="utf-8") as f:
            f.write(page)
        return []
    if not os.path.exists(path) or read(root, "docs/settings.md") != page:
        return ["docs/settings.md is not what src/base/config.def says; run tests/house/house.py settings --write"]
    return []


# ---- commands and errors -------------------------------------------------------------------------------

def rule_documented(root):
    found = []
    main_page = read(root, "docs/man/unisono.1.scd")
    for m in re.finditer(r"^COMMAND\((\w+),", read(root, "cli/commands.def"), re.M):
        if not re.search(r"\*%s\*" % m[1], main_page):
            found.append("docs/man/unisono.1.scd does not list the subcommand " + m[1])
        if m[1] not in ("help", "version", "completion") and not os.path.exists(
                os.path.join(root, "docs/man/unisono-%s.1.scd" % m[1])):
            found.append("docs/man/unisono-%s.1.scd is missing" % m[1])
    errors = read(root, "docs/errors.md")
    for m in re.finditer(r"^\s+(UNO_(?:OK|ERR_\w+)) = \d+", read(root, "include/unisono.h"), re.M):
        if "`%s`" % m[1] not in errors:
            found.append("docs/errors.md does not explain " + m[1])
    return found


def rule_links(root):
    found = []
    for path in files(root, ".md"):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", read(root, path)):
            if "://" not in target and not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
                found.append("%s: the link to %s leads nowhere" % (path, target))
    return found


# ---- headers and symbols -----------------------------------------------------------------------------------

def rule_headers(root, cc, cxx):
    found = []
    for header in sorted(public_headers(root)):
        for compiler, language, standard in ((cc, "c", "c11"), (cxx, "c++", "c++11")):
            source = '#include "%s"\n' % header
            run = subprocess.run([*compiler.split(), "-x", language, "-std=" + standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                                  "-fsyntax-only", "-I", os.path.join(root, "include"), "-"],
                                 input=source, text=True, capture_output=True, check=False)
            if run.returncode != 0:
                found.append("include/%s does not compile alone as %s: %s" % (header, standard, run.stderr.strip()[:400]))
    return found


def declared(root, headers):
    names = set()
    for path in headers:
        text = re.sub(r"/\*.*?\*/", "", read(os.path.join(root, "include"), path), flags=re.S)
        for m in re.finditer(r"^UNO_API\b[^;(]*?\b(uno_\w+)\s*\(", text, re.M):
            names.add(m[1])
    return names


def rule_symbols(root, library, headers):
    out = subprocess.run(["nm", "-D", "--defined-only", library], text=True, capture_output=True, check=True).stdout
    exported = {line.split()[2].split("@")[0] for line in out.splitlines() if len(line.split()) == 3 and line.split()[1] != "A"}
    want = declared(root, headers)
    # What a compiler or sanitizer adds is not ours to name.
    ours = {s for s in exported if not s.startswith(("_", "__asan", "__ubsan", "__tsan", "__odr"))}
    return (["exported, but in no public header: " + s for s in sorted(ours - want)] +
            ["declared in a public header, but not exported: " + s for s in sorted(want - exported)])


# ---- the rules themselves -------------------------------------------------------------------------------------

GOOD = {
    "include/unisono.h": "/* SPDX-License-Identifier: Apache-2.0 */\n#define UNO_API\nUNO_API int uno_version(void);\n",
    "src/base/base.h": '/* SPDX-License-Identifier: Apache-2.0 */\n#include "unisono.h"\n',
    "src/topo/topo.h": '/* SPDX-License-Identifier: Apache-2.0 */\n#include "base/base.h"\n#include <hwloc.h>\n',
    "src/net/net.h": '/* SPDX-License-Identifier: Apache-2.0 */\n#include <sys/socket.h>\n',
    "src/net/net_tcp.c": '/* SPDX-License-Identifier: Apache-2.0 */\n#include "net_own.h"\n#include "base/base_sock.h"\n',
    "src/comm.c": '/* SPDX-License-Identifier: Apache-2.0 */\n#include "topo/topo.h"\n#include "net/net.h"\n',
    "cli/main.c": '/* SPDX-License-Identifier: Apache-2.0 */\n#include "unisono.h"\n',
    "tests/unit/t.c": '/* SPDX-License-Identifier: Apache-2.0 */\n#include "net/net_own.h"\n',
}
BAD = [  # file, content, rule
    ("src/topo/x.c", '#include "net/net.h"\n', rule_includes),
    ("src/base/x.c", '#include "topo/topo.h"\n', rule_includes),
    ("src/exec/x.c", '#include "net/net_tcp.h"\n', rule_includes),
    ("src/exec/y.c", '#include "planner/planner.h"\n', rule_includes),
    ("src/plan/x.c", "#include <sys/socket.h>\n", rule_includes),
    ("src/net/x.c", "#include <hwloc.h>\n", rule_includes),
    ("src/boot/x.c", "#  include <sodium.h>\n", rule_includes),
    ("src/net/y.c", '#include "../base/base.h"\n', rule_includes),
    ("src/jobs.c", '#include "exec/exec.h"\n', rule_includes),
    ("src/attic/x.c", '#include "base/base.h"\n', rule_includes),
    ("cli/x.c", '#include "base/base.h"\n', rule_includes),
    ("src/plan/z.c", "int a;\n", rule_spdx),
    ("docs/x.md", "[here](nowhere.md)\n", rule_links),
]


def plant(root, tree):
    for path, text in tree.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as f:
            f.write(text)


def self_test():
    found = []
    with tempfile.TemporaryDirectory() as root:
        plant(root, GOOD)
        found += ["healthy tree: " + f for f in rule_includes(root) + rule_spdx(root)]
        for path, text, rule in BAD:
            plant(root, {path: text if rule is not rule_includes else "/* SPDX-License-Identifier: Apache-2.0 */\n" + text})
            if len(rule(root)) != 1:
                found.append("%s does not find %s: %s" % (rule.__name__, path, text.strip()))
            os.remove(os.path.join(root, path))
        plant(root, {"include/bad.h": "static inline int *f(void *p) { return p; }\nsize_t n;\n"})
        # Without a C++ compiler meson leaves the rule out, so there is nothing to try.
        if shutil.which("c++") and len(rule_headers(root, "cc", "c++")) != 2:
            found.append("rule_headers does not find a header that compiles in neither language")
        if declared(root, ["unisono.h"]) != {"uno_version"}:
            found.append("declared() reads %s" % declared(root, ["unisono.h"]))
    return found


def main(argv):
    rules = {
        "includes": lambda: rule_includes(ROOT),
        "spdx": lambda: rule_spdx(ROOT),
        "settings": lambda: rule_settings(ROOT, "--write" in argv),
        "documented": lambda: rule_documented(ROOT),
        "links": lambda: rule_links(ROOT),
        "headers": lambda: rule_headers(ROOT, argv[2], argv[3]),
        "symbols": lambda: rule_symbols(ROOT, argv[2], argv[3:]),
        "self-test": self_test,
    }
    if len(argv) < 2 or argv[1] not in rules:
        print(__doc__)
        return 2
    found = rules[argv[1]]()
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
