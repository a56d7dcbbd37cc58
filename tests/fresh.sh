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
# As root. Packages come from where this machine's apt gets its own.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

suite=bookworm
owner=somebody
tree=/home/$owner/fabricwise
part=${1:-all}
log=${2:-build/fresh.log}

[[ $part =~ ^(demo|test|all)$ ]] || {
  echo "fresh.sh: demo, test or all, not $part" >&2
  exit 1
}
((EUID == 0)) || {
  echo "fresh.sh: debootstrap and chroot need root" >&2
  exit 1
}
# Mounts and processes of the new Debian end with this script, however it ends.
if [[ ${FABRICWISE_FRESH_INSIDE:-} != yes ]]; then
  mkdir -p "$(dirname "$log")"
  FABRICWISE_FRESH_INSIDE=yes exec unshare --mount --pid --fork --kill-child \
    "$PWD/tests/$(basename "$0")" "$part" "$log"
fi
exec > >(tee "$log") 2>&1

say() { printf '#### %(%F %H:%M:%S)T %s\n' -1 "$*"; }

# Removal never follows a mount, should one be left.
roots=()
remove_roots() {
  local root
  for root in "${roots[@]}"; do
    umount -l "$root/proc" "$root/dev/pts" || true
    rm -rf --one-file-system "$root"
  done
}
trap remove_roots EXIT

# sources: this machine's own sources.list lines for the suite, if any.
sources() {
  # shellcheck disable=SC2016 # apt's own variables
  apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' \
    'Identifier: Packages' | sort -u |
    while read -r site release component; do
      [[ $release != "$suite"* ]] || echo "deb $site $release $component"
    done
}

# make_root: a new Debian with the tree and its data; sets $root.
make_root() {
  local mirror lines
  root=$(mktemp -d /var/tmp/fabricwise-fresh.XXXXXX)
  roots+=("$root")
  chmod 755 "$root"
  lines=$(sources)
  mirror=$(awk -v suite="$suite" '$3 == suite {print $2; exit}' <<<"$lines")
  say "debootstrap $suite"
  debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} |
    grep -vE '^I: (Retrieving|Validating|Extracting|Unpacking|Configuring)'
  [[ ! $lines ]] || echo "$lines" >"$root/etc/apt/sources.list"
  apt-config dump | grep -E '^Acquire::https?::Proxy' \
    >"$root/etc/apt/apt.conf.d/99proxy" || true
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  mount -t proc proc "$root/proc"
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
