#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that ./dev demo and ./dev test each need nothing but a new Debian 12:
# makes one with debootstrap, copies the last commit into it (and the folder
# ../shared/data where there is one), and there, with nothing installed before,
#
#   1. ./dev demo, as root, in a checkout that belongs to somebody else
#   2. ./dev demo again, without a network
#   3. ./dev demo, as that somebody, through sudo, one package taken away
#   4. ./dev test, as root, in a second new Debian
#
# usage: tests/fresh.sh [demo|test|all] [LOG]    (default: all build/fresh.log)
# As root.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

owner=somebody
tree=/home/$owner/fabricwise
part=${1:-all}
log=${2:-build/fresh.log}

[[ $part =~ ^(demo|test|all)$ ]] || {
  echo "fresh.sh: demo, test or all, not $part" >&2
  exit 1
}
# shellcheck source=tests/fresh_root.sh
source tests/fresh_root.sh

# make_root: a new Debian with the tree and its data; sets $root.
make_root() {
  make_debian "$suite"
  mount -t proc proc "$root/proc"
  # As on every machine. Without it, counting processors leaves ENOENT in errno,
  # and gRPC 1.51, which looks at errno long after connect(), may take it for
  # that of a connection under way.
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"

  chroot "$root" useradd --create-home --shell /bin/bash "$owner"
  mkdir -p "$root$tree"
  git -c safe.directory="$PWD" archive HEAD | tar -x -C "$root$tree"
  if [[ -d ../shared/data ]]; then
    mkdir -p "$root$(dirname "$tree")/shared"
    cp -r ../shared/data "$root$(dirname "$tree")/shared/data"
  fi
  chroot "$root" chown -R "$owner:" "/home/$owner"
}

# inside COMMAND...: in $root, with a bare environment and nobody at the
# keyboard, and a locale that is not there.
inside() {
  say "$*"
  local start=$SECONDS
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/root LANG=de_DE.ISO-8859-1 chroot "$root" "$@" </dev/null
  say "took $((SECONDS - start)) s"
  if grep -lx fabricwised /proc/[0-9]*/comm; then
    say "a daemon is still running"
    exit 1
  fi
}

say "commit $(git -c safe.directory="$PWD" rev-parse HEAD)"
if [[ $part != test ]]; then
  make_root
  inside "$tree/dev" demo
  say "without a network"
  unshare --net bash -euc 'ip link set lo up; exec "$@"' -- \
    env -i PATH="$PATH" chroot "$root" "$tree/dev" demo </dev/null
  chroot "$root" apt-get install --yes --no-install-recommends sudo
  echo "$owner ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$owner"
  chroot "$root" apt-get remove --yes nlohmann-json3-dev
  chroot "$root" chown -R "$owner:" "$tree"
  inside su - "$owner" -c "$tree/dev demo"
fi
if [[ $part != demo ]]; then
  make_root
  inside "$tree/dev" test
fi
say "all passed"
