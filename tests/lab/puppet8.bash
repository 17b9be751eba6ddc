# PUPPET=8: Puppet Server 8.7 and agent 8.10 of Debian 13, in a root directory of their own. The root is made once, in
# LAB_CACHE, from the mirror of this machine. The whole lab runs in it, on this machine's loopback. Sourced by lab.

NEEDS="mmdebstrap"
PACKAGES="mmdebstrap"
CA_SETTINGS=", allow-auto-renewal: true"   # certificates of 60 days for agents of 8 and later
ROOT=$LAB_CACHE/trixie
MACHINE=/machine   # this machine's own files, in that root

lab_exec() { # lab_exec COMMAND...: where the programs of this version are
  local path
  [ -d "$ROOT" ] || root_make
  # A mount point, because a mount namespace cannot be made below another root.
  mount --bind "$ROOT" "$ROOT"
  mkdir -p "$ROOT$MACHINE"
  mount --rbind / "$ROOT$MACHINE"
  for path in /proc /dev /sys; do mount --rbind "$path" "$ROOT$path"; done
  touch "$ROOT/etc/hosts"
  # The lab, the tree and the program have the same paths in both.
  for path in /etc/hosts "$(realpath "$LAB_SOURCE/../..")" "${LAB_DIR%/*}" "$LAB_CACHE" "${PROSCENIUM%/*}"; do
    [ ! -d "$path" ] || mkdir -p "$ROOT$path"
    [ -z "$path" ] || mount --bind "$path" "$ROOT$path"
  done
  exec chroot "$ROOT" "$@"
}

root_make() {
  local log=$LAB_CACHE/trixie.log
  say "making a root of Debian 13 in $ROOT"
  rm -rf "$ROOT.new"
  # shellcheck disable=SC2016
  mmdebstrap --mode=root --variant=apt --include="${SERVER_PACKAGES// /,}" \
    --essential-hook='printf "#!/bin/sh\nexit 101\n" >"$1/usr/sbin/policy-rc.d" && chmod +x "$1/usr/sbin/policy-rc.d"' \
    --dpkgopt=force-unsafe-io trixie "$ROOT.new" "$(mirror)" >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; die "Debian 13's puppetserver cannot be installed: $log"; }
  mv "$ROOT.new" "$ROOT"
  say "root of Debian 13 made"
}
SERVER_PACKAGES="puppetserver puppet-agent curl openssl acl mount"

on_machine() { # on_machine COMMAND...: with this machine's programs
  if [ -d "$MACHINE" ]; then chroot "$MACHINE" "$@"; else "$@"; fi
}
