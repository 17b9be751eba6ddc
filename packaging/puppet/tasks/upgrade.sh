#!/bin/sh
# Upgrades a package and restarts its service. Run it on a compiler that is drained.
set -eu
. "${PT__installdir:?}/proscenium/files/tasks/task.sh"

matches "${PT_package:=puppetserver}" '[A-Za-z0-9][A-Za-z0-9+._-]*' ||
  die "package must be the name of a package, not '$PT_package'"
matches "${PT_service:=$PT_package}" '[A-Za-z0-9][A-Za-z0-9@._-]*' ||
  die "service must be the name of a service, not '$PT_service'"
[ -z "${PT_version:-}" ] || matches "$PT_version" '[A-Za-z0-9][A-Za-z0-9+.~:_-]*' ||
  die "version must be a version, not '$PT_version'"

if command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q update
  # A configuration file that was changed stays as it is.
  apt-get -q install --yes --only-upgrade -o Dpkg::Options::=--force-confold "$PT_package${PT_version:+=$PT_version}"
elif command -v dnf >/dev/null; then
  dnf upgrade --assumeyes "$PT_package${PT_version:+-$PT_version}"
else
  die "neither apt-get nor dnf is installed"
fi
systemctl restart "$PT_service"
