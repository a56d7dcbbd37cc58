#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a tarball of an installed tree that needs nothing of the machine that it
# runs on but glibc, as old as this machine's or newer: the programs, the
# libraries that they load, recorded nodes.
#
# usage: deploy/bundle.sh BUILD_FOLDER TARBALL
set -euo pipefail
build=$1 tarball=$2

# Every machine's own: glibc, the GPU driver, and what comes with CUDA, of which
# a node that serves models has a copy that fits its driver.
own='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|nss_.*)\.so\..*)$'
gpu='^lib(cuda|nvidia-ml|nccl|cublas|cublasLt)\.so\..*$'

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
name=$(basename "$tarball" .tar.gz)
root=$stage/$name
DESTDIR=$stage/installed cmake --install "$build" --strip --prefix / >/dev/null
mkdir -p "$root/lib"
cp -r "$stage/installed/bin" "$stage/installed/share" "$root/"
cp -r "$stage/installed/lib/systemd" "$root/share/fabricwise/"

# Where a library is found, `ldd` prints "NAME => PATH (ADDRESS)".
ldd "$root"/bin/* | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u |
  while read -r library path; do
    [[ $library =~ $own || $library =~ $gpu ]] ||
      install -m 644 "$path" "$root/lib/$library"
  done
# Unlike RUNPATH, RPATH also holds for what the libraries load themselves.
for program in "$root"/bin/*; do
  # shellcheck disable=SC2016 # the loader's own variable
  patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$program"
done
mkdir -p "$(dirname "$tarball")"
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner \
  -czf "$tarball" "$name"
