# Two proxies behind one address share drains and blocks through a real etcd, while agents run in loops. The servers, etcd and the
# agents are in the network namespace of this lab, and each proxy in one of its own. First a third proxy passes connections through
# by round robin, then the address itself moves between the namespaces of the proxies. With `lab fleet`; sourced by lab.

. "$LAB_SOURCE/../adapters/proscenium.bash"

fleet() {
  local run=$MEMBERS$$ # names no run before this one used
  one=$run-one.auto; two=$run-two.auto; busy=$run-busy.auto; late=$run-late.auto; last=$run-last.auto
  CLOSED="" PROXIES="p1 p2"
  MEMBERS=round-robin
  promise "two proxies with an etcd whose certificates are of the Puppet CA are one fleet" is_one_fleet
  promise "agents enrol, and their first runs pass" first_runs
  promise "both proxies serve the agents" both_serve
  promise "compilers restarted after drain --wait on one proxy fail no run" drained_restarts_fail_no_run
  revoked=$late
  promise "an agent is revoked, crl fetch runs on one proxy, and both refuse it; no other run fails" revoked_on_both
  promise "while etcd is down, a compiler restarts after drain --wait on each proxy, and no run fails" restart_without_etcd
  promise "a proxy stops and starts again, and no run fails" proxy_restarts
  promise "both proxies are upgraded at once with fleet turn, which lets one wait for the other, and no run fails" upgraded_in_turn
  MEMBERS=moved-address
  move_address p1
  # The operator's proxy is the one that serves no agent.
  PROXIES="p2 p1"
  promise "compilers restarted after drain --wait on the proxy without the address fail no run" drained_restarts_fail_no_run
  promise "the address moves during a run: only the request on the open connection fails, and the next run passes" address_moves
  revoked=$last
  promise "an agent is revoked, crl fetch runs on one proxy, and both refuse it; no other run fails" revoked_on_both
}

is_one_fleet() {
  wait_for 60 "p1 to show p2 as serving" fleet_shows p1 "p2\.$DOMAIN.* serving"
  wait_for 60 "p2 to show p1 as serving" fleet_shows p2 "p1\.$DOMAIN.* serving"
}
fleet_shows() { ON=$1 verb fleet >"$LAB_DIR/$1/fleet" 2>&1 && ! store_is_missed <"$LAB_DIR/$1/fleet" && grep -qE "^$2" "$LAB_DIR/$1/fleet"; }
store_is_missed() { grep -qE "^fleet .* (not reached|connecting) "; }
misses_etcd() { verb fleet 2>&1 | store_is_missed; }

both_serve() {
  mark_records
  request "$one" "/puppet/v3/node/$one.$DOMAIN" -o /dev/null
  request "$one" "/puppet/v3/node/$one.$DOMAIN" -o /dev/null
  wait_for 10 "a record of each proxy" on_all served_an_agent
}
served_an_agent() { records_of_one | grep -q '"certname":"'; }

revoked_on_both() {
  local name
  expect 0 agent_enrol "$revoked"
  expect 2 agent_run "$revoked"
  loops_start
  revoke "$revoked"
  crl_fetch
  for name in $PROXIES; do
    wait_for 120 "$name to refuse $revoked" refused "$revoked" --connect-to "::$(address "$name"):$TLS_PORT"
    say "    refused by $name $(awk -v since="$SINCE" -v now="$(date +%s.%N)" 'BEGIN { printf "%.1f", now - since }') s after crl fetch started on ${PROXIES%% *}"
  done
  expect 1 agent_run "$revoked"
  printed "$REFUSAL"
  loops_stop
  no_run_failed "$revoked"
}

# Nothing of the fleet is reachable from before the first run until after the last.
restart_without_etcd() {
  local name=${COMPILERS%% *} ON
  stop etcd
  wait_for 60 "both proxies to miss etcd" on_all misses_etcd
  loops_start
  for ON in $PROXIES; do
    expect 5 verb drain compilers "$(member "$name")" --wait --timeout 2m --why "restart without etcd"
  done
  restart "$name"
  for ON in $PROXIES; do
    expect 5 verb ready compilers "$(member "$name")"
    wait_for 60 "$ON to use $name again" proxy_uses "$name"
  done
  loops_stop
  no_run_failed
  etcd_start
  is_one_fleet
  on_all proxy_uses "$name" || broken "etcd has brought a former state back"
}

proxy_restarts() {
  loops_start
  stop p2
  fleet_proxy_start p2
  wait_for 60 "the layer-4 proxy to use p2 again" layer_4_uses p2
  loops_stop
  no_run_failed
}
layer_4_uses() { ON=proxy verb status | grep -qE "^ +$(address "$1"):$TLS_PORT +up "; }

# The agent has its catalog and an open connection, and requests its files only after the address has moved. An agent of 7.23
# repeats no request whose connection is reset.
address_moves() {
  local hold
  hold=$(new_hold)
  PAUSE=$hold agent_run "$busy" >"$OUTPUT" 2>&1 & local run=$!
  wait_for 60 "the agent to hold its catalog" test -e "$hold/held.agent"
  move_address p2
  : >"$hold/release"
  expect_end "4 6" $run
  [ "$(grep -c "Connection reset by peer" "$OUTPUT")" = "$(grep -c "Could not evaluate" "$OUTPUT")" ] || broken "another request failed"
  expect "0 2" agent_run "$busy"
}

# Both proxies take their turn, although both want it at once. Each runs another build afterwards.
upgraded_in_turn() {
  local name pid turns=() failed=""
  : >"$LAB_DIR/turns"
  loops_start
  for name in p1 p2; do
    "$PROSCENIUM" fleet turn --socket "$LAB_DIR/$name/admin.sock" --timeout 10m -- \
      bash -euc "$(declare -f install_build); install_build $name" >"$LOOPS/turn-$name" 2>&1 & turns+=($!)
  done
  for pid in "${turns[@]}"; do wait "$pid" || failed=yes; done
  cat "$LOOPS"/turn-* >"$OUTPUT"
  [ -z "$failed" ] || broken "a turn failed"
  printed "fleet turn: waiting"
  loops_stop
  no_run_failed
  for name in p1 p2; do alive "$name" || broken "$name has not handed over"; done
  cp "$LAB_DIR/turns" "$OUTPUT"
  [ "$(cut -d ' ' -f 2 "$OUTPUT" | uniq | wc -l)" = 2 ] || broken "the upgrades overlapped"
}
install_build() { # install_build NAME: as a package does it
  local program=$LAB_DIR/$1/proscenium process
  echo "begin $1" >>"$LAB_DIR/turns"
  cp "$program" "$program.new"
  echo >>"$program.new"
  mv "$program.new" "$program"
  "$program" reload --socket "$LAB_DIR/$1/admin.sock"
  for process in /proc/[0-9]*; do
    [ ! "$process/exe" -ef "$program" ] || echo "${process#/proc/}" >"$LAB_DIR/$1.pid"
  done
  echo "end $1" >>"$LAB_DIR/turns"
}

# --- helpers ------------------------------------------------------------------------

# A bridge with the addresses of the servers, and a namespace for each proxy. A process keeps it.
network_make() {
  local name
  mkdir -p "$LAB_DIR"
  ip link set lo up
  ip link add lab type bridge
  ip link set lab up
  # The first one is the primary address, whose removal would remove the others.
  for name in ca etcd $COMPILERS proxy; do ip address add "$(address "$name")/24" dev lab; done
  for name in p1 p2; do
    unshare --net sleep infinity & started "$name-network"
    wait_for 10 "the network of $name" has_own_network "$name"
    ip link add "$name" type veth peer name eth0 netns "$(cat "$LAB_DIR/$name-network.pid")"
    ip link set "$name" master lab up
    in_network "$name" ip link set lo up
    in_network "$name" ip link set eth0 up
    in_network "$name" ip address add "$(address "$name")/24" dev eth0
  done
}
network_of() { echo "/proc/$(cat "$LAB_DIR/$1-network.pid")/ns/net"; }
has_own_network() { ! [ "$(network_of "$1")" -ef /proc/self/ns/net ]; }
in_network() { nsenter "--net=$(network_of "$1")" "${@:2}"; } # in_network NAME COMMAND...

# The address of agents moves to that proxy, as keepalived does it, also from the layer-4 proxy.
move_address() {
  local name address
  address=$(address proxy)
  stop proxy
  ip address delete "$address/24" dev lab 2>/dev/null || :
  for name in p1 p2; do in_network "$name" ip address delete "$address/24" dev eth0 2>/dev/null || :; done
  in_network "$1" ip address add "$address/24" dev eth0
  # keepalived announces the new owner to the neighbours.
  ip neighbour flush to "$address"
}

# etcd and the proxies, which are enrolled like any machine.
fleet_start() {
  local name
  for name in p1 p2; do enrol_in_fleet "$name" "dns_alt_names = puppet.$DOMAIN"; done
  enrol_in_fleet etcd
  etcd_start
  etcd_rights
  "$PROSCENIUM" fleet key >"$LAB_DIR/fleet.key"
  chmod 600 "$LAB_DIR/fleet.key"
  for name in p1 p2; do fleet_proxy_start "$name"; done
}
enrol_in_fleet() { # enrol_in_fleet NAME [LINE]
  puppet_conf "$1" ca "keylength = 2048
${2:-}"
  mkdir -p "$LAB_DIR/$1/log"
  enrol "$1" || die "not enrolled: $(tail -n 3 "$LAB_DIR/$1/bootstrap.log")"
}

fleet_proxy_start() { # fleet_proxy_start NAME: with a program of its own, which can be upgraded
  cp "$PROSCENIUM" "$LAB_DIR/$1/proscenium"
  (
    MEMBERS=fleet PROSCENIUM=$LAB_DIR/$1/proscenium
    proxy_environment "$1" "$1"
    export FRONT_LISTEN=0.0.0.0:$TLS_PORT FRONT_READY=0.0.0.0:$READY_PORT FRONT_ETCD=etcd.$DOMAIN:2379 FRONT_FLEET_KEY=$LAB_DIR/fleet.key
    nsenter "--net=$(network_of "$1")" sh -c "exec $LAB_PROXY" >>"$LAB_DIR/$1/log/stdout.log" 2>&1 </dev/null &
    started "$1"
  )
  wait_for 60 "$1 to be ready" proxy_is_ready "$1"
}
READY_PORT=9140
proxy_is_ready() {
  alive "$1" || die "$1 is gone: $(tail -n 20 "$LAB_DIR/$1/log/stdout.log")"
  curl -sf -o /dev/null -m 2 "http://$(address "$1"):$READY_PORT/ready"
}

# As docs/operating/fleet.md describes it.
etcd_start() {
  local dir=$LAB_DIR/etcd listen
  listen=https://$(address etcd):2379
  etcd --name lab --data-dir "$dir/data" --listen-client-urls "$listen" --advertise-client-urls "https://etcd.$DOMAIN:2379" \
    --client-cert-auth --trusted-ca-file "$dir/ssl/certs/ca.pem" --client-crl-file "$dir/ssl/crl.pem" \
    --cert-file "$dir/ssl/certs/etcd.$DOMAIN.pem" --key-file "$dir/ssl/private_keys/etcd.$DOMAIN.pem" \
    --auto-compaction-mode periodic --auto-compaction-retention 1h >>"$dir/log/stdout.log" 2>&1 </dev/null &
  started etcd
  wait_for 30 "etcd to listen" etcd_listens
}
etcd_listens() {
  alive etcd || die "etcd is gone: $(tail -n 3 "$LAB_DIR/etcd/log/stdout.log")"
  (: <"/dev/tcp/$(address etcd)/2379") 2>/dev/null
}
etcd_rights() {
  local command
  while read -r command; do
    # shellcheck disable=SC2086
    etcd_control $command >>"$LAB_DIR/etcd/log/rights.log" 2>&1 || die "etcdctl $command: $(tail -n 1 "$LAB_DIR/etcd/log/rights.log")"
  done <<-X
	user add root --no-password
	role add proscenium
	role grant-permission proscenium --prefix=true readwrite /proscenium/
	user add p1.$DOMAIN --no-password
	user grant-role p1.$DOMAIN proscenium
	user add p2.$DOMAIN --no-password
	user grant-role p2.$DOMAIN proscenium
	user grant-role root root
	auth enable
	X
}
etcd_control() {
  local ssl=$LAB_DIR/etcd/ssl
  ETCDCTL_API=3 etcdctl --endpoints "https://etcd.$DOMAIN:2379" --cacert "$ssl/certs/ca.pem" \
    --cert "$ssl/certs/etcd.$DOMAIN.pem" --key "$ssl/private_keys/etcd.$DOMAIN.pem" "$@" </dev/null
}
