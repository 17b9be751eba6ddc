# Agents, and commands of an administrator. Sourced by lab.

agent_run() { # agent_run NAME [options]: one real run through the proxy; exit status as with --detailed-exitcodes
  local name=$1
  shift
  agent_make "$name"
  with_agent env FACTER_lab_out="$LAB_DIR/$name/out" ${HOLD:+FACTER_lab_hold="$HOLD"} ${PAUSE:+FACTER_lab_pause="$PAUSE"} \
    ${TICKS:+FACTER_lab_ticks="$TICKS"} \
    timeout 600 puppet agent --test --color false --confdir "$LAB_DIR/$name" "$@"
}

# AGENT is the directory of another version of the agent (versions.bash). By default that of this version of Puppet runs.
with_agent() { # with_agent COMMAND...
  env ${AGENT:+PATH="$AGENT/usr/bin:$PATH" RUBYLIB="$(agent_libraries)"} "$@"
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
