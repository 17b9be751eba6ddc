#!/bin/sh
# Takes members out of service, and waits until their requests have finished.
set -eu
. "${PT__installdir:?}/proscenium/files/tasks/task.sh"

members
proxy
duration timeout "${PT_timeout:=10m}"
matches "${PT_why:=}" '[^[:cntrl:]]{1,200}' || die "why must be one line of 1 to 200 characters"

# shellcheck disable=SC2086
exec proscenium drain $proxy --wait --timeout="$PT_timeout" --why="$PT_why" $members
