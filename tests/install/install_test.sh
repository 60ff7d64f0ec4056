#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install_test.sh BUILD SOURCE - installs into an empty root, then does what a user does: builds an example against what is there
# with pkg-config alone, and starts it with the installed launcher.
set -eu
build=$1 source=$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
DESTDIR=$root meson install -C "$build" --no-rebuild --quiet >/dev/null
pc=$(find "$root" -name unisono.pc)
bin=$(dirname "$(find "$root" -name unisono -type f -path '*/bin/*')")
export PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$root"
lib=$(dirname "${pc%/*}")
# shellcheck disable=SC2046
${CC:-cc} -Wall -Werror "$source/examples/pi.c" $(pkg-config --cflags --libs unisono) -lm -o "$root/pi"
# The tools find the library by themselves; the program is told.
"$bin/unisono" run -n 2 -- env LD_LIBRARY_PATH="$lib" "$root/pi"
"$bin/all_reduce_perf" --ranks 2 -b 8 -e 1K -f 2 -n 2 >/dev/null
# What a training process loads: libc, hwloc, libsodium and what they bring, no JSON, no XML, no tool.
needed=$(readelf -d "$lib/libunisono.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|libpthread|libhwloc|libsodium|ld-linux-.*)\.so' || true)
[ -z "$needed" ] || { echo "libunisono.so needs more than it may: $needed"; exit 1; }
for page in unisono unisono-run unisono-perf unisono-plan unisono-topo unisono-doctor unisono-top unisono-tune unisono-why; do
    command -v scdoc >/dev/null 2>&1 || break
    [ -n "$(find "$root" -name "$page.1")" ] || { echo "no man page $page"; exit 1; }
done
