#!/bin/sh
# Upgrades, restarts or reloads the proxy when it is its turn: one proxy of a fleet at a time.
set -eu
. "${PT__installdir:?}/proscenium/files/tasks/task.sh"

proxy
matches "${PT_action:=upgrade}" 'upgrade|restart|reload' || die "action must be upgrade, restart or reload, not '$PT_action'"
duration timeout "${PT_timeout:=30m}"

case "$PT_action" in
  upgrade)
    prepare_upgrade proscenium "${PT_version:-}"
    # The package succeeds although the new version has not taken over, and the reload then fails.
    set -- sh -c "$upgrade && systemctl reload proscenium"
    ;;
  *)
    [ -z "${PT_version:-}" ] || die "version is for an upgrade, not for a $PT_action"
    set -- systemctl "$PT_action" proscenium
    ;;
esac

# shellcheck disable=SC2086
exec proscenium fleet turn $proxy --timeout="$PT_timeout" -- "$@"
