#!/bin/sh
# Waits until the proxy's health checks of all members on a host succeed.
set -eu
. "${PT__installdir:?}/proscenium/files/tasks/task.sh"

proxy
matches "${PT_host:=}" "$HOST" || die "host must be a host name or an address, not '$PT_host'"
matches "${PT_timeout_seconds:=600}" '[0-9]{1,5}' ||
  die "timeout_seconds must be a number of seconds, not '$PT_timeout_seconds'"
matches "${PT_ready:=false}" 'true|false' || die "ready must be true or false, not '$PT_ready'"

# Prints the members that are not up, or not in service if they must be; fails if the host has no member. The first words
# of a member's line are its address, its health and its administrative state.
not_up() {
  # shellcheck disable=SC2086
  proscenium status $proxy | awk -v host="$PT_host:" -v ready="$PT_ready" '
    index($1, host) == 1 && $1 ~ /:[0-9]+$/ {
      found = 1
      if ($2 != "up") print $1 " is " $2
      else if (ready == "true" && $3 != "ready") print $1 " is up, but its administrative state is " $3
    }
    END { if (!found) { print "the proxy has no member on this host"; exit 1 } }
  '
}

waited=0
while down=$(not_up) && [ -n "$down" ]; do
  [ "$waited" -lt "$PT_timeout_seconds" ] || break
  waited=$((waited + 1))
  sleep 1
done
[ -z "$down" ] || die "$PT_host: $down"
echo "all members on $PT_host are up"
