# SPDX-License-Identifier: Apache-2.0
# common.sh - read by the other scripts: what building needs, how to get it, and the build itself. POSIX shell.
#   BUILD_DIR      where to build (default: build)
#   MESON_OPTIONS  further options for meson setup, such as -Db_sanitize=address,undefined

root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD_DIR:-$root/build}

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }

# tool or pkg-config module, Debian's package
needs_tools='gcc:gcc meson:meson ninja:ninja-build pkg-config:pkg-config python3:python3'
needs_modules='hwloc:libhwloc-dev libsodium:libsodium-dev jansson:libjansson-dev expat:libexpat1-dev cmocka:libcmocka-dev'

missing_packages() {
    for need in $needs_tools ${EXTRA_TOOLS:-}; do
        command -v "${need%%:*}" >/dev/null 2>&1 || printf '%s ' "${need##*:}"
    done
    # cc finds its headers only with libc's
    [ -e /usr/include/stdio.h ] || [ ! -d /etc/apt ] || printf 'libc6-dev '
    for need in $needs_modules; do
        pkg-config --exists "${need%%:*}" 2>/dev/null || printf '%s ' "${need##*:}"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# What only some tests use: fetched where that is possible, else said.
get_test_packages() {
    absent=
    for need in ip:iproute2 spin:spin; do
        command -v "${need%%:*}" >/dev/null 2>&1 || absent="$absent${need##*:} "
    done
    [ -n "$absent" ] || return 0
    say "installing for tests: $absent"
    # shellcheck disable=SC2086
    { command -v apt-get && { [ "$(id -u)" = 0 ] || command -v sudo; } &&
        DEBIAN_FRONTEND=noninteractive as_root apt-get install -y --no-install-recommends $absent; } >/dev/null 2>&1 ||
        say "not installed: $absent- tests that need them are skipped"
}

get_packages() {
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        die "this machine has no apt. Install what Debian calls: $missing- then run this again"
    fi
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null 2>&1; then
        die "neither root nor sudo. Let an administrator run: apt-get install $missing- then run this again"
    fi
    say "installing: $missing"
    export DEBIAN_FRONTEND=noninteractive
    # Lists of packages may be old or absent; fetch them only if the first try fails.
    # shellcheck disable=SC2086
    as_root apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 ||
        { as_root apt-get update >/dev/null && as_root apt-get install -y --no-install-recommends $missing >/dev/null; } ||
        die "apt-get install $missing failed; its messages are above"
    missing=$(missing_packages)
    [ -z "$missing" ] || die "still missing after installation: $missing"
}

# Meson asks Debian's dpkg-dev, a development package that may be absent, where libraries belong; without it they would be installed
# where neither the loader nor pkg-config looks.
library_folder() {
    command -v dpkg >/dev/null 2>&1 && ! command -v dpkg-architecture >/dev/null 2>&1 || return 0
    folder=lib/$(gcc -print-multiarch 2>/dev/null) || return 0
    [ "$folder" = lib/ ] || [ ! -d "/usr/$folder" ] || printf '%s' "--libdir=$folder"
}

configure() {
    [ -e "$build/build.ninja" ] && return 0
    # shellcheck disable=SC2046,SC2086
    meson setup "$build" "$root" $(library_folder) ${MESON_OPTIONS:-} >"$build.log" 2>&1 ||
        { cat "$build.log" >&2; die "meson setup failed; its messages are above"; }
    rm -f "$build.log"
}

compile() {
    configure
    say "building in $build"
    # Warnings stay visible, the rest only when it fails.
    ninja -C "$build" >"$build/build.log" 2>&1 ||
        { sed -n '/^FAILED/,/^\[/p' "$build/build.log" | grep -v '^\[' | head -n 100 >&2; die "the build failed; $build/build.log has it all"; }
    grep -n 'warning:' "$build/build.log" >&2 || true
}
