#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that what build/package holds (./dev package, ./dev bundle) lives on
# machines that have nothing of this tree:
#
#   1. the Debian package, on a new Debian 12 run by systemd: installed, asked,
#      killed, upgraded with its data kept, removed, purged
#   2. the tarball, on a new Debian 13 with nothing else installed
#
# usage: tests/package.sh [LOG]    (default: build/package.log)
# As root, on Debian 12, for which the package is made.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

log=${1:-build/package.log}
# shellcheck source=tests/fresh_root.sh
source tests/fresh_root.sh

# A container that is left running keeps its folder from being removed.
machine= container=
stop_machine() {
  if [[ $container ]]; then
    kill -KILL $machine "$container" || true
    wait "$container" || true
  fi
  remove_roots
}
trap stop_machine EXIT

newer_suite=trixie
profiles=/usr/share/fabricwise/profiles
question=(--model gpt-oss-120b --engine vllm --concurrency 64)

contain=(systemd-nspawn --quiet --register=no --keep-unit --console=pipe)
nspawn() {
  "${contain[@]}" --directory="$root" "$@" </dev/null
}

# boot: systemd runs $root, without a network; sets $machine to its process 1.
boot() {
  "${contain[@]}" --directory="$root" --private-network --boot \
    </dev/null >"$log.boot" 2>&1 &
  container=$!
  for _ in {1..300}; do
    machine=$(pgrep --parent "$container" || true)
    if [[ $machine ]] && within systemctl is-system-running --wait; then
      return 0
    fi
    sleep 0.1
  done
  cat "$log.boot"
  say "systemd does not come up"
  exit 1
}

# within COMMAND...: in the booted $root.
within() {
  nsenter --target "$machine" --all env -i DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    "$@" </dev/null
}

# soon COMMAND...: succeeds within ten seconds.
soon() {
  for _ in {1..100}; do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.1
  done
  "$@"
}

# expect COMMAND...: succeeds; expect ! COMMAND...: fails.
expect() {
  say "$*"
  local wanted=0 got=0
  [[ $1 != ! ]] || {
    wanted=1
    shift
  }
  "$@" || got=1
  ((got == wanted)) || {
    say "not as expected"
    [[ ! $machine ]] || within journalctl --no-pager --unit fabricwised || true
    exit 1
  }
}

# The same files as another, later version.
later=$(mktemp -d)
cpack --config build/release/CPackConfig.cmake -G DEB -B "$later" \
  -D CPACK_DEBIAN_PACKAGE_VERSION=99.0
make_debian "$suite" systemd,systemd-sysv,dbus
cp build/package/fabricwise_*.deb "$root/first.deb"
cp "$later"/fabricwise_99.0*.deb "$root/later.deb"
rm -r "$later"
nspawn apt-get update
nspawn apt-get install --yes --download-only --no-install-recommends ./first.deb
boot

expect within apt-get install --yes --no-install-recommends ./first.deb
expect within systemctl is-enabled fabricwised
expect within systemctl is-active fabricwised
# Neither a GPU nor a profile: up, with nothing to advise from.
expect soon within sh -c 'fabricwise status || test $? = 3'
expect ! within fabricwise recommend "${question[@]}"

say "with a recorded node"
within sh -c "echo 'profile = $profiles/h200x2-p2p.json' \
  >>/etc/fabricwise/fabricwised.conf"
expect within systemctl restart fabricwised
expect within fabricwise recommend "${question[@]}"
expect within sh -c \
  'test "$(stat -c %U /proc/$(systemctl show -P MainPID fabricwised))" = fabricwise'
measurements=$(within fabricwise profile export | wc -c)

say "killed, it comes back"
within systemctl kill --signal=KILL fabricwised
expect soon within sh -c 'test "$(systemctl show -P NRestarts fabricwised)" = 1'
expect soon within fabricwise recommend "${question[@]}"

say "upgraded, it keeps what it knew and what was configured"
expect within apt-get install --yes --no-install-recommends ./later.deb
expect within systemctl is-active fabricwised
expect soon within fabricwise recommend "${question[@]}"
expect test "$(within fabricwise profile export | wc -c)" = "$measurements"
expect within test -s /var/lib/fabricwise/store.db

say "removed, it is gone but for its data and configuration"
expect within apt-get remove --yes fabricwise
expect ! within sh -c 'grep -x fabricwised /proc/[0-9]*/comm'
expect within test -s /var/lib/fabricwise/store.db
expect within test -s /etc/fabricwise/fabricwised.conf
expect within apt-get purge --yes fabricwise
expect ! within test -e /var/lib/fabricwise
expect ! within test -e /etc/fabricwise
expect ! within getent passwd fabricwise
expect within systemctl poweroff
wait "$container"
machine= container=

make_debian "$newer_suite"
tar -xzf build/package/fabricwise-*.tar.gz -C "$root/opt"
in_bundle() {
  nspawn --private-network sh -ec "cd /opt/fabricwise-*; $*"
}
expect in_bundle bin/fabricwise recommend --profile h200x2-p2p "${question[@]}"
expect in_bundle "
  bin/fabricwised --listen unix:/tmp/socket --database /tmp/store.db \
    --profile share/fabricwise/profiles/h200x2-p2p.json &
  for i in 1 2 3 4 5 6 7 8 9 10; do
    sleep 0.2
    bin/fabricwise status --target unix:/tmp/socket && break
  done
  bin/fabricwise recommend --target unix:/tmp/socket ${question[*]}"
say "all passed"
