# The proxy in front: its certificate, start, stop, CRLs. Sourced by lab.

# The command LAB_PROXY gets its configuration in these variables. It stays in the foreground, reloads its CRL on SIGHUP and
# exits on SIGTERM.
proxy_environment() { # proxy_environment [NAME CERTNAME]
  local ssl=$LAB_DIR/${1:-proxy}/ssl certname=${2:-puppet}.$DOMAIN name
  export MEMBERS FRONT_CRL_INTERVAL=${CRL_INTERVAL:-86400} FRONT_QUEUE_MAX=${QUEUE_MAX:-}
  export FRONT_DIR=$LAB_DIR/${1:-proxy} FRONT_LISTEN=$(address proxy):$TLS_PORT
  export FRONT_CA=$(address ca):$PLAIN_PORT FRONT_CA_TLS=ca.$DOMAIN:$TLS_PORT
  export FRONT_MASTERS="" FRONT_MASTERS_TLS=""
  for name in $COMPILERS; do
    FRONT_MASTERS+="$(address "$name"):$PLAIN_PORT "
    FRONT_MASTERS_TLS+="$name.$DOMAIN:$TLS_PORT "
  done
  export FRONT_CERT=$ssl/certs/$certname.pem FRONT_KEY=$ssl/private_keys/$certname.pem
  export FRONT_CA_BUNDLE=$ssl/certs/ca.pem FRONT_CRL=$ssl/crl.pem
}

# The proxy is enrolled like any agent, with its own certificate and without an authorization extension.
proxy_conf() {
  CERTNAME=puppet puppet_conf proxy ca "dns_alt_names = puppet"
  mkdir -p "$LAB_DIR/proxy/log"
}

proxy_start() {
  local MEMBERS=$MEMBERS
  if [ "$MEMBERS" = fleet ]; then
    fleet_start
    MEMBERS=front
    export FRONT_READY=:$READY_PORT FRONT_PROXIES="$(address p1):$TLS_PORT $(address p2):$TLS_PORT"
  fi
  proxy_copy
  proxy_environment
  sh -c "exec $LAB_PROXY" >>"$LAB_DIR/proxy/log/stdout.log" 2>&1 </dev/null &
  started proxy
  wait_for 30 "the proxy to answer" proxy_answers
  say "proxy runs, members $MEMBERS"
}
# If the program is built again while the lab runs, the proxy would hand over to it at the next SIGHUP.
proxy_copy() {
  local copy=$LAB_DIR/proscenium
  [ "$PROSCENIUM" ] && [ "$PROSCENIUM" != "$copy" ] || return 0
  cp "$PROSCENIUM" "$copy.new"
  mv "$copy.new" "$copy"
  PROSCENIUM=$copy
}
proxy_answers() {
  alive proxy || die "the proxy is gone: $(tail -n 20 "$LAB_DIR/proxy/log/stdout.log")"
  curl -skf -o /dev/null -m 2 "https://puppet.$DOMAIN:$TLS_PORT/status/v1/simple"
}

proxy_stop() { stop proxy; }

# Installs the CA's current CRLs, and waits until the proxy refuses that agent on a new connection.
proxy_load_crl() { # proxy_load_crl REVOKED-AGENT
  if [ "$MEMBERS" = six ]; then
    # The agent on the proxy's machine refreshes its CRL with this setting, and logs the result.
    puppet ssl bootstrap --verbose --crl_refresh_interval 1 --confdir "$LAB_DIR/proxy" >>"$LAB_DIR/proxy/bootstrap.log" 2>&1
  else
    curl -sf "http://$(address ca):$PLAIN_PORT/puppet-ca/v1/certificate_revocation_list/ca" >"$LAB_DIR/proxy/ssl/crl.pem.new"
    mv "$LAB_DIR/proxy/ssl/crl.pem.new" "$LAB_DIR/proxy/ssl/crl.pem"
  fi
  signal proxy HUP
  wait_for 10 "the proxy to load the CRL" refused "$1"
}
refused() { # refused NAME [options]
  local name=$1
  shift
  case $(request "$name" "/puppet/v3/node/$name.$DOMAIN?environment=production" -o /dev/null -w '%{http_code}' "$@") in 400 | 403 | 000) ;; *) return 1 ;; esac
}

# Runs proscenium doctor, by default with the configuration of the running proxy.
doctor() { # doctor [options]
  local options=()
  [[ " $* " == *" --config "* ]] || options=(--config "$LAB_DIR/proxy/proscenium.toml")
  [ "$MEMBERS" != six ] || [ ${#options[@]} = 0 ] || options+=(--ssldir "$LAB_DIR/proxy/ssl")
  "$(. "$LAB_SOURCE/../adapters/proscenium.bash" && proscenium_binary)" doctor --plain-port "$PLAIN_PORT" "${options[@]}" "$@"
}
