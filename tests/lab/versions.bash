# Agents of several versions in one estate: 7.23 of Debian 12, 8.10 of Debian 13, OpenVox of Debian sid. versions.tsv lists what the
# lab tries. Sourced by lab.

# get_agent VARIABLE 7|8|openvox: sets it to the directory for AGENT, which is empty for the agent of this version of Puppet. If there
# is none, prints a line and fails; where every tool is required, that ends the lab, except for OpenVox, since Debian sid changes.
get_agent() {
  local directory
  if directory=$(agent_of "$2"); then
    printf -v "$1" %s "$directory"
  else
    [ "$2" = openvox ] || [ "${PROSCENIUM_TOOLS:-}" != required ] || die "PROSCENIUM_TOOLS=required"
    return 1
  fi
}

agent_of() {
  case $1 in
  "$PUPPET") ;;
  7) machine_agent ;;
  8) unpacked "$LAB_CACHE/agent8" trixie puppet-agent ;;
  # Each lab downloads it again.
  openvox) unpacked "$LAB_DIR/openvox" sid openvox-agent ruby-openvox openfact ;;
  esac
}

# Each version is the one of versions.tsv, and so of docs/operating/versions.md.
versions_are_listed() {
  expect 0 grep -F "Puppet Server	$(puppetserver_version | sed 's/-.*//')	" "$LAB_SOURCE/versions.tsv"
  expect 0 grep -F "Puppet agent	$(puppet --version)	" "$LAB_SOURCE/versions.tsv"
}

# The agent of this machine, from the root of Debian 13.
machine_agent() {
  local agent=$LAB_DIR/agent7
  # shellcheck disable=SC2016
  [[ $(on_machine dpkg-query -W -f '${Version}' puppet-agent 2>/dev/null) == 7.* ]] || { say "    SKIPPED: this machine has no Puppet agent of Debian 12" >&2; return 1; }
  mkdir -p "$agent/usr/bin"
  printf '#!/bin/sh\nunset RUBYLIB\nexec chroot %s /usr/bin/puppet "$@"\n' "$MACHINE" >"$agent/usr/bin/puppet"
  chmod +x "$agent/usr/bin/puppet"
  echo "$agent"
}

unpacked() { # unpacked DIRECTORY SUITE PACKAGE...: downloads the packages and unpacks them there, without installing them
  local agent=$1 suite=$2 apt=$1.apt
  shift 2
  [ ! -d "$agent" ] || { echo "$agent"; return; }
  rm -rf "$apt"
  mkdir -p "$apt"/{lists/partial,archives/partial,parts,unpacked}
  echo "deb [signed-by=$KEYRING] $(mirror) $suite main" >"$apt/sources.list"
  # shellcheck disable=SC2016
  on_machine sh -euc 'cd "$1"; shift
    foreign() {
      apt-get -q -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts="$PWD/parts" -o Dir::State::lists="$PWD/lists" \
        -o Dir::State::status=/dev/null -o Dir::Cache="$PWD" -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::Retries=3 -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
    }
    foreign update; foreign download "$@"; for package in *.deb; do dpkg -x "$package" unpacked; done' \
    sh "$apt" "$@" >"$apt/log" 2>&1 || { say "    SKIPPED: $1 of Debian $suite cannot be downloaded ($apt/log)" >&2; return 1; }
  mv "$apt/unpacked" "$agent"
  rm -r "$apt"
  echo "$agent"
}

# Debian has the libraries of an agent in one directory or as gems.
agent_libraries() {
  printf '%s:' "$AGENT"/usr/lib/ruby/vendor_ruby "$AGENT"/usr/share/rubygems-integration/all/gems/*/lib
}

KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
# That of the machine's own sources.
mirror() { on_machine apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1; }
