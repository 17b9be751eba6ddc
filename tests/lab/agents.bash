# Agents, and commands of an administrator. Sourced by lab.

agent_run() { # agent_run NAME [options]: one real run through the proxy; exit status as with --detailed-exitcodes
  local name=$1
  shift
  agent_make "$name"
  with_agent env FACTER_lab_out="$LAB_DIR/$name/out" ${HOLD:+FACTER_lab_hold="$HOLD"} ${PAUSE:+FACTER_lab_pause="$PAUSE"} \
    ${TICKS:+FACTER_lab_ticks="$TICKS"} \
    timeout 600 puppet agent --test --color false --confdir "$LAB_DIR/$name" "$@"
}

# AGENT is the root directory of another version of the agent. By default the machine's own agent runs.
with_agent() { # with_agent COMMAND...
  env ${AGENT:+PATH="$AGENT/usr/bin:$PATH" RUBYLIB="$AGENT/usr/lib/ruby/vendor_ruby"} "$@"
}

agent_make() { # agent_make NAME: its puppet.conf, and the extension that its certificate request contains, a role
  [ ! -f "$LAB_DIR/$1/puppet.conf" ] || return 0
  # A short key if the CA signs at once: generating a long one takes longer than the rest of the enrolment.
  case $1 in *.auto) puppet_conf "$1" puppet "keylength = 2048" ;; *) puppet_conf "$1" puppet ;; esac
  printf 'extension_requests:\n  %s\n' "${EXTENSION:-pp_role: web}" >"$LAB_DIR/$1/csr_attributes.yaml"
}

agent_enrol() { # agent_enrol NAME: key, request and certificate, through the proxy; NAME.auto is signed at once
  agent_make "$1"
  with_agent timeout 60 puppet ssl bootstrap --waitforcert 1 --confdir "$LAB_DIR/$1"
}

filebucket() { # filebucket NAME ACTION...: puppet filebucket as that agent, through the proxy
  local name=$1
  shift
  puppet filebucket --confdir "$LAB_DIR/$name" --server "puppet.$DOMAIN" "$@"
}

request() { # request NAME PATH [options]: one request with that agent's certificate through the proxy; - for none
  local name=$1 path=$2 ssl=$LAB_DIR/$1/ssl certificate=()
  shift 2
  [ "$name" = - ] || certificate=(--cert "$ssl/certs/$name.$DOMAIN.pem" --key "$ssl/private_keys/$name.$DOMAIN.pem")
  curl -s -m 20 --cacert "$LAB_DIR/proxy/ssl/certs/ca.pem" "${certificate[@]}" \
    -H 'Accept: application/json, text/plain, */*' "https://puppet.$DOMAIN:$TLS_PORT$path" "$@"
}

ca_command() { # ca_command SUBCOMMAND...: puppetserver ca with the CA host's own certificate, at the CA itself
  if [ ! -d "$LAB_DIR/admin" ]; then
    CERTNAME=ca puppet_conf admin ca
    sed -i "s|^ssldir.*|ssldir = $LAB_DIR/ca/ssl|" "$LAB_DIR/admin/puppet.conf"
  fi
  local subcommand=$1
  shift
  puppetserver ca "$subcommand" --config "$LAB_DIR/admin/puppet.conf" "$@"
}

# The serial number of an agent's certificate, as openssl prints it in a CRL.
serial_of() { openssl x509 -noout -serial -in "$LAB_DIR/$1/ssl/certs/$1.$DOMAIN.pem" | cut -d= -f2; }
revoked_in() { openssl crl -noout -text -in "$2" | grep -q "Serial Number: $1\$"; }

# Debian 12's agent fails its run on a 503 with Retry-After. That of Debian 13 waits and repeats the request. The lab unpacks
# its package outside the lab's directory, which clean removes, and runs it with Ruby of Debian 12. If the package cannot be
# downloaded, or with LAB_RETRYING_AGENT=patched, the lab uses Debian 12's agent with a patch that adds the retries of 7.26.
# RETRYING_AGENT is the agent's root directory, RETRYING_AGENT_IS its description.
retrying_agent_make() {
  if [ "${LAB_RETRYING_AGENT:-}" != patched ] && retrying_agent_download; then
    RETRYING_AGENT=$LAB_DIR.retrying-agent
    RETRYING_AGENT_IS="the puppet-agent of Debian 13"
  else
    retrying_agent_patch
    RETRYING_AGENT_IS="the puppet-agent of this machine with a patch that adds the retries of 7.26"
  fi
  say "    the agent that retries is $RETRYING_AGENT_IS"
}
retrying_agent_download() {
  local apt=$LAB_DIR.apt agent=$LAB_DIR.retrying-agent
  [ ! -x "$agent/usr/bin/puppet" ] || return 0
  rm -rf "$apt" "$agent.new"
  mkdir -p "$apt"/{lists/partial,archives/partial,parts}
  # Uses the mirror of the machine's own sources.
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
    "$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1) trixie main" >"$apt/sources.list"
  (cd "$apt" && foreign_apt update && foreign_apt download puppet-agent && dpkg -x puppet-agent_*.deb "$agent.new") \
    >"$apt/log" 2>&1 || { tail -n 5 "$apt/log" >&2; say "    Debian 13's puppet-agent cannot be downloaded"; return 1; }
  mv "$agent.new" "$agent"
  rm -r "$apt"
}
retrying_agent_patch() {
  RETRYING_AGENT=$LAB_DIR/patched-agent
  mkdir -p "$RETRYING_AGENT/usr/bin"
  printf '#!/bin/sh\nRUBYOPT="-r%s" exec %s "$@"\n' "$LAB_SOURCE/retry_after.rb" "$(command -v puppet)" >"$RETRYING_AGENT/usr/bin/puppet"
  chmod +x "$RETRYING_AGENT/usr/bin/puppet"
}
foreign_apt() { # foreign_apt COMMAND...: apt-get with the sources and lists of $apt, not the machine's
  apt-get -q -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts="$apt/parts" -o Dir::State::lists="$apt/lists" \
    -o Dir::Cache="$apt" -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 \
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}
