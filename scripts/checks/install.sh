#!/usr/bin/env bash
# scripts/checks/install.sh PACKAGE...: installs packages that single checks need, from Debian.
#
# Does nothing if they are installed. Exit status 77, with the reason, if they cannot be, or if
# TROUPE_NO_SETUP is set.
set -euo pipefail
missing=()
for package in "$@"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
    missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
[ -z "${TROUPE_NO_SETUP:-}" ] || { echo "${missing[*]} must be installed first" && exit 77; }
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}"
}
why=$({ install || { "${as_root[@]}" apt-get update -qq && install; }; } 2>&1 >/dev/null) ||
  { echo "${missing[*]} cannot be installed: $(tail -n 1 <<<"$why")" && exit 77; }
