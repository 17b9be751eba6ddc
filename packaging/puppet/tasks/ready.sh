#!/bin/sh
# Puts members back into service.
set -eu
. "${PT__installdir:?}/proscenium/files/tasks/task.sh"

members
proxy

# shellcheck disable=SC2086
exec proscenium ready $proxy $members
