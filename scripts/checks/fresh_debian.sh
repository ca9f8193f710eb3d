# shellcheck shell=bash
# A minimal Debian 12 in build/, for checks that need a fresh machine. Sourced, in the tree's root.
#
#   . scripts/checks/fresh_debian.sh
#   with_own_mounts "$0" "$@"            # runs the script again with mounts of its own
#   make_debian                          # sets `root`; it is removed when the script ends
#   in_debian 'apt-get update'           # bash there, with nothing of this shell's environment
#
# The mirror and the proxy are this machine's. Exit status 77 if debootstrap cannot be installed or
# a file system cannot be mounted.
release=bookworm

# Mounts are the process's own, so that none outlives it, however it ends.
with_own_mounts() { # script, argument...
  [ "$(id -u)" -eq 0 ] || { echo "debootstrap needs root" && exit 77; }
  scripts/checks/install.sh debootstrap || exit
  if [ -z "${TROUPE_FRESH_MOUNTS:-}" ]; then
    unshare --mount --propagation private true 2>/dev/null ||
      { echo "this machine does not permit mounts" && exit 77; }
    TROUPE_FRESH_MOUNTS=own exec unshare --mount --propagation private "$@"
  fi
  unset TROUPE_FRESH_MOUNTS
}

remove_debian() {
  local mounted
  mounted=$(awk -v root="$root/" 'index($5, root) == 1 { print $5 }' /proc/self/mountinfo | sort -r)
  while IFS= read -r at; do [ -z "$at" ] || umount "$at" || umount -l "$at"; done <<<"$mounted"
  if grep -qF " $root/" /proc/self/mountinfo; then
    echo "$root: file systems are mounted there still; it is not removed"
  else
    rm -rf --one-file-system "$root"
  fi
}

make_debian() {
  mkdir -p build
  root=$(mktemp -d "$PWD/build/fresh.XXXXXX")
  chmod 755 "$root"  # other users are in there too
  trap remove_debian EXIT
  trap 'exit 143' TERM INT HUP
  # CODENAME URI of each Debian archive that this machine's apt uses.
  local archives mirror
  archives=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
    grep -E "^$release(-updates|-security)? " | sort -u)
  mirror=$(sed -n "s/^$release //p" <<<"$archives" | sed -n 1p)
  [ -n "$mirror" ] || { echo "apt knows no mirror of Debian 12" && exit 77; }
  debootstrap --variant=minbase "$release" "$root" "$mirror" >"$root.log" 2>&1 ||
    { tail -n 20 "$root.log" && exit 1; }
  rm "$root.log"
  sed -E 's/(.*) (.*)/deb \2 \1 main/' <<<"$archives" >"$root/etc/apt/sources.list"
  apt-config dump | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/99host" || true
  cp /etc/hosts /etc/resolv.conf "$root/etc/"
  mount -t proc proc "$root/proc" 2>/dev/null || mount --bind /proc "$root/proc"
  mount --bind /dev "$root/dev"
  mount --bind /dev/pts "$root/dev/pts"
  mount -t tmpfs tmpfs "$root/dev/shm"
}

# Nothing of this shell's environment but the way out.
in_debian() { # command
  local environment=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb) name
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY JOBS; do
    [ -z "${!name:-}" ] || environment+=("$name=${!name}")
  done
  chroot "$root" /usr/bin/env -i "${environment[@]}" bash -c "$1"
}
