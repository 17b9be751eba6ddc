# Functions of the tasks. Bolt passes parameters in variables PT_NAME. The tasks check them too, because any caller may
# run them.

die() { echo "$*" >&2; exit 1; }

# matches VALUE REGEX: the whole value, which may have one line only
matches() { [ "$(printf '%s' "$1" | wc -l)" -eq 0 ] && printf '%s\n' "$1" | grep -qxE -e "$2"; }

NAME='[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?'
HOST="($NAME|\\[[0-9A-Fa-f:.]+\\])"
PORT='[0-9]{1,5}'

# The members that a task is about, in $members: one member (PT_member and PT_pool), or all on a host (PT_host).
members() {
  if [ -n "${PT_member:-}" ] && [ -z "${PT_host:-}" ]; then
    matches "$PT_member" "$HOST:$PORT" || die "member must be HOST:PORT, not '$PT_member'"
    set -- "$PT_member"
    if [ -n "${PT_pool:-}" ]; then
      matches "$PT_pool" '[A-Za-z0-9_][A-Za-z0-9_-]{0,63}' || die "pool must be the name of a pool, not '$PT_pool'"
      set -- "$PT_pool" "$@"
    fi
  elif [ -n "${PT_host:-}" ] && [ -z "${PT_member:-}${PT_pool:-}" ]; then
    matches "$PT_host" "$HOST" || die "host must be a host name or an address, not '$PT_host'"
    set -- --host "$PT_host"
  else
    die "set either host, or member and perhaps pool"
  fi
  # None of these words has a blank.
  members=$*
}

# The options that find the running proxy, in $proxy.
proxy() {
  proxy=
  if [ -n "${PT_socket:-}" ]; then
    matches "$PT_socket" '/[A-Za-z0-9_./-]+' || die "socket must be an absolute path, not '$PT_socket'"
    proxy="--socket $PT_socket"
  fi
}

# Reads the lists of packages, and sets $upgrade to the command that upgrades PACKAGE to VERSION, or to the newest version if
# it is empty. None of its words has a blank.
prepare_upgrade() { # prepare_upgrade PACKAGE VERSION
  [ -z "$2" ] || matches "$2" '[A-Za-z0-9][A-Za-z0-9+.~:_-]*' || die "version must be a version, not '$2'"
  if command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update
    # A configuration file that was changed stays as it is.
    upgrade="apt-get -q install --yes --only-upgrade -o Dpkg::Options::=--force-confold $1${2:+=$2}"
  elif command -v dnf >/dev/null; then
    upgrade="dnf upgrade --assumeyes $1${2:+-$2}"
  else
    die "neither apt-get nor dnf is installed"
  fi
}

duration() { # duration NAME VALUE
  matches "$2" '[0-9]{1,9}(s|m|h)' || die "$1 must be a duration such as 10m, not '$2'"
}
