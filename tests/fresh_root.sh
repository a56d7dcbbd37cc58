# SPDX-License-Identifier: Apache-2.0
#
# New, empty Debians for tests/fresh.sh and tests/package.sh, which source this
# with their name in $0, a log in $log, and all their own words in "$@".
# Packages come from where this machine's apt gets its own.

suite=bookworm

say() { printf '#### %(%F %H:%M:%S)T %s\n' -1 "$*"; }

((EUID == 0)) || {
  echo "$(basename "$0"): debootstrap and chroot need root" >&2
  exit 1
}
# Mounts and processes of the new Debian end with the script, however it ends.
if [[ ${FABRICWISE_FRESH_INSIDE:-} != yes ]]; then
  mkdir -p "$(dirname "$log")"
  FABRICWISE_FRESH_INSIDE=yes exec unshare --mount --pid --fork --kill-child \
    --mount-proc "$PWD/tests/$(basename "$0")" "$@"
fi
exec > >(tee "$log") 2>&1

# Removal never follows a mount, should one be left.
roots=()
remove_roots() {
  local root
  for root in "${roots[@]}"; do
    umount -l "$root/proc" "$root/sys" "$root/dev/pts" 2>/dev/null || true
    rm -rf --one-file-system "$root"
  done
}
trap remove_roots EXIT

# sources SUITE: this machine's own sources.list lines for it, if any.
sources() {
  # shellcheck disable=SC2016 # apt's own variables
  apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' \
    'Identifier: Packages' | sort -u |
    while read -r site release component; do
      [[ $release != "$1"* ]] || echo "deb $site $release $component"
    done
}

# make_debian SUITE [PACKAGE,PACKAGE...]: sets $root.
make_debian() {
  local mirror lines
  root=$(mktemp -d /var/tmp/fabricwise-fresh.XXXXXX)
  roots+=("$root")
  chmod 755 "$root"
  lines=$(sources "$1")
  mirror=$(sources "$suite" | awk -v suite="$suite" '$3 == suite {print $2; exit}')
  say "debootstrap $1"
  debootstrap --variant=minbase ${2:+--include="$2"} "$1" "$root" \
    ${mirror:+"$mirror"} |
    grep -vE '^I: (Retrieving|Validating|Extracting|Unpacking|Configuring)'
  [[ ! $lines ]] || echo "$lines" >"$root/etc/apt/sources.list"
  apt-config dump | grep -E '^Acquire::https?::Proxy' \
    >"$root/etc/apt/apt.conf.d/99proxy" || true
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
}
