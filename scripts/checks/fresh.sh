#!/usr/bin/env bash
# scripts/checks/fresh.sh [COMMAND]: does the tree build and pass its tests on a fresh machine?
#
# Makes a minimal Debian 12 in build/ with debootstrap, copies the last commit into it, has bash run
# `scripts/demo --steps 20` and `scripts/test` there, or COMMAND, and removes it. The mirror and the
# proxy are this machine's. It needs root, 10 GB and 40 minutes; exit status 77 if debootstrap
# cannot be installed or a file system cannot be mounted.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;; esac
checks=$(cd "$(dirname "$0")" && pwd)
cd "$checks/../.."

release=bookworm
command=${1:-'scripts/demo --steps 20 && scripts/test'}
[ "$(id -u)" -eq 0 ] || { echo "debootstrap needs root" && exit 77; }
"$checks/install.sh" debootstrap
# Mounts are this process's own, so that none outlives it, however it ends.
if [ -z "${TROUPE_FRESH_MOUNTS:-}" ]; then
  unshare --mount --propagation private true 2>/dev/null ||
    { echo "this machine does not permit mounts" && exit 77; }
  TROUPE_FRESH_MOUNTS=own exec unshare --mount --propagation private "$checks/fresh.sh" "$command"
fi
unset TROUPE_FRESH_MOUNTS

mkdir -p build
root=$(mktemp -d "$PWD/build/fresh.XXXXXX")
chmod 755 "$root"  # other users are in there too
remove() {
  local mounted
  mounted=$(awk -v root="$root/" 'index($5, root) == 1 { print $5 }' /proc/self/mountinfo | sort -r)
  while IFS= read -r at; do [ -z "$at" ] || umount "$at" || umount -l "$at"; done <<<"$mounted"
  if grep -qF " $root/" /proc/self/mountinfo; then
    echo "$root: file systems are mounted there still; it is not removed"
  else
    rm -rf --one-file-system "$root"
  fi
}
trap remove EXIT
trap 'exit 143' TERM INT HUP

# CODENAME URI of each Debian archive that this machine's apt uses.
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
mkdir "$root/troupe"
git archive HEAD | tar -xf - -C "$root/troupe"

# Nothing of this shell's environment but the way out.
environment=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb)
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY JOBS; do
  [ -z "${!name:-}" ] || environment+=("$name=${!name}")
done
chroot "$root" /usr/bin/env -i "${environment[@]}" bash -c "cd /troupe && { $command; }" ||
  { status=$? && echo "'$command' ends with $status on a fresh machine" && exit 1; }
