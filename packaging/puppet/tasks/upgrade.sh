#!/bin/sh
# Upgrades a package and restarts its service. Run it on a compiler that is drained.
set -eu
. "${PT__installdir:?}/proscenium/files/tasks/task.sh"

matches "${PT_package:=puppetserver}" '[A-Za-z0-9][A-Za-z0-9+._-]*' ||
  die "package must be the name of a package, not '$PT_package'"
matches "${PT_service:=$PT_package}" '[A-Za-z0-9][A-Za-z0-9@._-]*' ||
  die "service must be the name of a service, not '$PT_service'"

prepare_upgrade "$PT_package" "${PT_version:-}"
$upgrade
systemctl restart "$PT_service"
