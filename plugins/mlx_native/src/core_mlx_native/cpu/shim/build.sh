#!/bin/sh
# Builds the shim for each architecture whose compiler is here, into DIR/<machine>/ (default: beside
# this script, which are the committed files). Debian: apt install gcc gcc-aarch64-linux-gnu
# Usage: build.sh [DIR]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}

build() { # machine compiler
    command -v "$2" >/dev/null || { echo "skipped $1: no $2" >&2; return 0; }
    mkdir -p "$out/$1"
    # -z now: a missing OpenBLAS is an error when the shim is loaded, not a crash when it is used.
    # Without the loop patterns: they would call memset, and with it need a C library.
    "$2" -O2 -fno-tree-loop-distribute-patterns -shared -fPIC -nostdlib -s -fvisibility=hidden \
        -Wl,-z,now -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-soname,libcore_cblas_shim.so \
        -o "$out/$1/libcore_cblas_shim.so" "$here/cblas_shim.c"
    echo "built $out/$1/libcore_cblas_shim.so"
}

if [ "$(uname -m)" = x86_64 ]; then
    build x86_64 gcc
    build aarch64 aarch64-linux-gnu-gcc
else
    build x86_64 x86_64-linux-gnu-gcc
    build aarch64 gcc
fi
