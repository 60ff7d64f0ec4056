# SPDX-License-Identifier: Apache-2.0
"""Builds package unisono: one extension against the installed torch, with libunisono.so beside it in the wheel.

libunisono is taken from UNISONO_PREFIX (an installation), from UNISONO_BUILD (a build folder of this repository), from this repository,
which is built for the purpose, or from pkg-config; in this order. docs/torch.md has the details.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent
SONAME = "libunisono.so.0"

try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError:
    sys.exit("unisono: torch is not installed where this is built; install torch, then pip install --no-build-isolation ./python")
if not torch.distributed.is_available():
    sys.exit("unisono: this torch was built without torch.distributed, to which the backend belongs")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def build_repository():
    """The repository's own build, released and without tests, in build/ of this folder."""
    folder = HERE / "build" / "meson"
    if not (folder / "build.ninja").exists():
        subprocess.run(["meson", "setup", str(folder), str(REPOSITORY), "-Dtests=false"], check=True)
    subprocess.run(["meson", "compile", "-C", str(folder), "unisono:shared_library"], check=True)
    return folder / "src", REPOSITORY / "include"


def find_library():
    """(folder of libunisono.so.0, folder of unisono.h)"""
    if prefix := os.environ.get("UNISONO_PREFIX"):
        found = sorted(pathlib.Path(prefix).glob(f"lib*/**/{SONAME}"))
        if not found:
            sys.exit(f"unisono: UNISONO_PREFIX={prefix} has no lib*/{SONAME}; give the prefix of an installation of unisono")
        return found[0].parent, pathlib.Path(prefix) / "include"
    if build := os.environ.get("UNISONO_BUILD"):
        folder = pathlib.Path(build).resolve() / "src"
        if not (folder / SONAME).exists():
            sys.exit(f"unisono: UNISONO_BUILD={build} has no src/{SONAME}; build it first: ninja -C {build}")
        return folder, REPOSITORY / "include"
    if (REPOSITORY / "meson.build").exists() and (REPOSITORY / "src" / "unisono.map").exists():
        return build_repository()
    try:
        return (pathlib.Path(output("pkg-config", "--variable=libdir", "unisono")),
                pathlib.Path(output("pkg-config", "--variable=includedir", "unisono")))
    except (OSError, subprocess.CalledProcessError):
        sys.exit("unisono: no libunisono: neither UNISONO_PREFIX nor UNISONO_BUILD is set, pkg-config knows no unisono, and this is no "
                 "checkout of its repository")


def names_of_torch():
    """Macros for what this torch's headers have and older ones do not, or call otherwise (csrc/versions.hpp)."""
    folder = pathlib.Path(torch.__file__).parent / "include" / "torch" / "csrc" / "distributed" / "c10d"
    text = "".join((folder / name).read_text(encoding="utf-8") for name in ("Backend.hpp", "Types.hpp"))
    return [(f"UNISONO_TORCH_HAS_{name}", "1") for name in ("ErrorType", "PreMulSumSupplement") if re.search(rf"\b{name}\b", text)]


library, include = find_library()


class BuildWithLibrary(build_py):
    """Puts libunisono.so.0 where the extension looks for it."""

    def run(self):
        super().run()
        beside = pathlib.Path(self.build_lib) / "unisono" / "lib"
        beside.mkdir(parents=True, exist_ok=True)
        # In its place at once: programs that run may have the one that lies there mapped.
        shutil.copy2((library / SONAME).resolve(), beside / f"{SONAME}.new")
        os.replace(beside / f"{SONAME}.new", beside / SONAME)


setup(
    name="unisono",
    version="0.1.0",
    description="Collective communication that explains itself: the PyTorch backend",
    license="Apache-2.0",
    python_requires=">=3.9",
    packages=["unisono", "unisono.torch"],
    ext_modules=[
        CppExtension(
            "unisono.torch._C",
            ["csrc/all.cpp"],
            include_dirs=[str(include)],
            define_macros=[("UNISONO_BUILT_FOR", f'"{torch.__version__}"'), *names_of_torch()],
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"],
            extra_link_args=[str(library / SONAME), "-Wl,-rpath,$ORIGIN/../lib"],
            depends=[str(p.relative_to(HERE)) for p in (HERE / "csrc").glob("*.?pp")],
        )
    ],
    cmdclass={"build_ext": BuildExtension, "build_py": BuildWithLibrary},
)
