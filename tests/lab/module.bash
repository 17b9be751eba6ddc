# The Puppet module in packaging/puppet: the real agent applies its classes, and Puppet runs its plan. With MEMBERS=module;
# sourced by lab.

module() {
  local run=$MEMBERS$$ # names no run before this one used
  one=$run-one.auto; two=$run-two.auto; busy=$run-busy.auto; separate=$run-separate.auto
  export FACTER_lab_dir=$LAB_DIR FACTER_lab_net=$LAB_NET FACTER_lab_program
  FACTER_lab_program=$(proscenium_binary)
  module_install
  promise "agents enrol, and their first runs pass" first_runs
  promise "the agent applies the class of the proxy, which reloads; its second run changes nothing" proxy_is_applied_once
  promise "settings that the proxy refuses fail the run and leave the file as it was" refused_settings_change_nothing
  promise "the account of the service can read the agent's key afterwards, and no other account can" key_is_readable
  promise "the agent applies the class of the CA server; its second run changes nothing" ca_is_applied_once
  promise "a compiler with the class and the CA of init serves agents through the proxy, and no client directly" compiler_accepts_the_proxy_only
  plan_tools_make
  promise "a task refuses invalid parameters" tasks_check_their_parameters
  # Two restarts under load, which the specs of the plan repeat with stand-ins.
  [ -z "${LAB_CI:-}" ] || return 0
  promise "the plan upgrades two compilers in turn while agents run, and fails no run" plan_fails_no_run
  promise "if an upgrade fails, the plan stops: that compiler stays drained, and the other one as it was" plan_stops_at_an_error
}

# The module on the compilers, below its own name.
module_install() {
  MODULES=$LAB_DIR/code/environments/production/modules
  rm -rf "$MODULES/proscenium"
  cp -r "$LAB_SOURCE/../../packaging/puppet" "$MODULES/proscenium"
}

# apply NAME STATUSES [options]: a run of the agent of that machine, which has its class from site/…/manifests/module.pp
apply() {
  local name=$run-$1.auto statuses=$2
  shift 2
  [ -d "$LAB_DIR/$name/ssl/certs" ] || expect 0 agent_enrol "$name"
  expect "$statuses" agent_run "$name" "$@"
}

proxy_is_applied_once() {
  local before
  before=$(generation)
  apply proxy 2
  [ "$(generation)" -gt "$before" ] || broken "the proxy did not reload: generation $before"
  expect 0 head -n 1 "$LAB_DIR/proxy/proscenium.toml"
  printed "^# Managed by Puppet"
  before=$(generation)
  apply proxy 0
  [ "$(generation)" = "$before" ] || broken "the proxy reloaded without a change"
}
generation() { verb status | sed -nE 's/^generation ([0-9]+) since.*/\1/p'; }

refused_settings_change_nothing() {
  local before
  before=$(generation)
  cp "$LAB_DIR/proxy/proscenium.toml" "$LAB_DIR/proxy/before.toml"
  FACTER_lab_settings=refused apply proxy 4
  printed " check --config .* returned 78"
  printed "nowhere"
  expect 0 cmp "$LAB_DIR/proxy/proscenium.toml" "$LAB_DIR/proxy/before.toml"
  [ "$(generation)" = "$before" ] || broken "the proxy reloaded"
}

# In a mount namespace in which Debian's ssldir has the proxy's certificate, and is closed to other accounts as Debian's is.
key_is_readable() {
  local key=/var/lib/puppet/ssl/private_keys/puppet.$DOMAIN.pem
  expect 0 agent_enrol "$run-key.auto"
  export -f agent_run agent_make with_agent
  # shellcheck disable=SC2016
  expect 0 env LAB_DIR="$LAB_DIR" unshare --mount bash -euc '
    name=$1 key=$2 ssl=$3
    mkdir -p /var/lib/puppet
    mount -t tmpfs -o mode=0750 tmpfs /var/lib/puppet
    cp -r "$ssl" /var/lib/puppet/ssl
    chmod 0750 /var/lib/puppet/ssl /var/lib/puppet/ssl/private_keys
    chmod 0640 "$key"
    readable() { runuser -u "$1" -- test -r "$key"; }
    ! readable daemon
    status=0; agent_run "$name" || status=$?; [ $status = 2 ]
    readable daemon; ! readable games
    # The agent of this machine resets the mode.
    chmod 0750 /var/lib/puppet/ssl/private_keys
    chmod 0640 "$key"
    agent_run "$name"
    readable daemon
  ' bash "$run-key.auto" "$key" "$LAB_DIR/proxy/ssl"
}

ca_is_applied_once() {
  local inventory=$LAB_DIR/ca/cadir/infra_inventory.txt
  # If the lab was tested before.
  sed -i "/^puppet\.$DOMAIN\$/d" "$inventory"
  apply ca 2
  expect 0 grep -c "^    allow-header-cert-info: false" "$LAB_DIR/ca/conf.d/auth.conf"
  expect 0 grep -nx "puppet.$DOMAIN" "$inventory"
  apply ca 0
  [ "$(grep -cx "puppet.$DOMAIN" "$inventory")" = 1 ] || broken "the inventory has the proxy twice"
}

# The compiler m2 with Debian's own files, to which the agent applies the class.
compiler_accepts_the_proxy_only() {
  local stock=/etc/puppet/puppetserver saved=$LAB_DIR/m2.saved path="/puppet/v3/node/$one.$DOMAIN"
  separate_ca_make
  FACTER_lab_settings=separate apply proxy 2
  rm -rf "$saved"
  mkdir "$saved"
  cp -r "$LAB_DIR"/m2/{conf.d,services.d} "$saved/"
  sed -i '/^webserver: {/,/^}/d' "$LAB_DIR/m2/conf.d/puppetserver.conf"
  cp "$stock"/conf.d/{auth,webserver}.conf "$LAB_DIR/m2/conf.d/"
  cp "$stock/services.d/ca.cfg" "$LAB_DIR/m2/services.d/"
  apply compiler 2
  apply compiler 0
  # The class writes what `proscenium init` prints for operators who do not use it.
  expect 0 diff <(webserver_lines "$LAB_DIR/separate/webserver-m2.$DOMAIN.conf") <(webserver_lines "$LAB_DIR/m2/conf.d/webserver.conf")
  stop m2
  server_start m2
  wait_for 120 "the proxy to use m2 with the certificate of the separate CA" separate_is_up

  expect 0 agent_enrol "$separate"
  expect 2 agent_run "$separate"
  expect 0 diff "$LAB_DIR/$separate/out/motd" - <<-X
	certname $separate.$DOMAIN
	authenticated remote
	role web
	plugin synced synced
	X
  [ "$(requests_at m2 "/puppet/v3/catalog/$separate.$DOMAIN")" = 1 ] || broken "m2 did not compile"

  # An agent's certificate and a name in the headers: the handshake fails. There is no plain port.
  expect "35 56" curl -sS -m 20 --cacert "$LAB_DIR/proxy/ssl/certs/ca.pem" -H "X-Client-Verify: SUCCESS" -H "X-Client-DN: CN=$two.$DOMAIN" \
    --cert "$LAB_DIR/$one/ssl/certs/$one.$DOMAIN.pem" --key "$LAB_DIR/$one/ssl/private_keys/$one.$DOMAIN.pem" "https://m2.$DOMAIN:$TLS_PORT$path"
  expect 7 curl -sS -m 20 "http://$(address m2):$PLAIN_PORT$path"

  stop m2
  cp -r "$saved"/. "$LAB_DIR/m2/"
  rm "$LAB_DIR/m2/conf.d/webserver.conf"
  restart m2
  apply proxy 2
  wait_for 60 "the proxy to use m2 again" proxy_uses m2
}
separate_is_up() { verb status | sed -n '/^pool separate/,/^$/p' | grep -qE "^ +m2\.$DOMAIN:$TLS_PORT +up +ready "; }

# The CA of `proscenium init`, with a certificate for the proxy.
separate_ca_make() {
  [ -d "$LAB_DIR/separate" ] || expect 0 "$(proscenium_binary)" init --compiler-ca "$LAB_DIR/separate" --compiler "m2.$DOMAIN"
}
# The lines of `proscenium init` for the compiler, or those of the class, with the paths of the lab.
webserver_lines() { # webserver_lines FILE
  sed -E "s|/etc/puppet/puppetserver|$LAB_DIR/m2|; s|/var/lib/puppet/ssl|$LAB_DIR/m2/ssl|; s|0\.0\.0\.0|$(address m2)|" "$1" |
    sed -E '/^#|ssl-protocols/d; s/"//g' | sort
}

plan_fails_no_run() {
  local name before=() after=()
  for name in $COMPILERS; do before+=("$(cat "$LAB_DIR/$name.pid")"); done
  loops_start
  expect 0 upgrade_compilers
  loops_stop
  failed_records >"$LOOPS/failed"
  [ ! -s "$LOOPS/failed" ] || { cp "$LOOPS/failed" "$OUTPUT"; broken "requests failed"; }
  ! grep -vE ' [02]$' "$LOOPS/runs" >"$LOOPS/failed" || { cp "$LOOPS/failed" "$OUTPUT"; broken "runs failed"; }
  expect 0 diff "$LAB_DIR/upgrades" - <<-X
	m1.$DOMAIN: apt-get update
	m1.$DOMAIN: apt-get install puppetserver=7.9.5
	m1.$DOMAIN: systemctl restart puppetserver
	m2.$DOMAIN: apt-get update
	m2.$DOMAIN: apt-get install puppetserver=7.9.5
	m2.$DOMAIN: systemctl restart puppetserver
	X
  for name in $COMPILERS; do
    after+=("$(cat "$LAB_DIR/$name.pid")")
    proxy_uses "$name" || broken "the proxy does not use $name"
  done
  [ "${before[0]}" != "${after[0]}" ] && [ "${before[1]}" != "${after[1]}" ] || broken "a compiler did not restart"
  say "    $(wc -l <"$LOOPS/runs") runs"
}

plan_stops_at_an_error() {
  : >"$LAB_DIR/upgrades"
  : >"$LAB_DIR/tools/fails"
  expect 1 upgrade_compilers
  rm "$LAB_DIR/tools/fails"
  printed "proscenium::upgrade failed on m1.$DOMAIN"
  printed "still drained on puppet.$DOMAIN.* proscenium ready --socket .* --host m1.$DOMAIN"
  proxy_shows m1 "up +drain " || broken "m1 is not drained"
  proxy_uses m2 || broken "the proxy does not use m2"
  expect 1 grep -F "m2.$DOMAIN" "$LAB_DIR/upgrades"
  verb status >"$OUTPUT"
  printed "m1\.$DOMAIN.*lab upgrade"
  # Nor does it start while m1 is drained.
  expect 1 upgrade_compilers
  printed "m1\.$DOMAIN:$TLS_PORT is up, but its administrative state is drain"
  # Now m2 is the last available member.
  expect 1 task drain PT_host="m2.$DOMAIN" PT_why=again
  printed "force"
  expect 0 task ready PT_member="m1.$DOMAIN:$TLS_PORT" PT_pool=compilers
  proxy_uses m1 || broken "the proxy does not use m1 again"
}

tasks_check_their_parameters() {
  local parameters
  for parameters in "PT_host=m1;true PT_why=a" "PT_host=-x PT_why=a" "PT_member=m1 PT_why=a" "PT_host=m1 PT_member=m1:1 PT_why=a" \
    "PT_host=m1" "PT_why=a" "PT_host=m1 PT_why=a PT_timeout=soon" "PT_member=m1:1 PT_pool=--force PT_why=a" "PT_host=m1 PT_why=a PT_socket=--force"; do
    # shellcheck disable=SC2086
    expect 1 task drain $parameters
    printed "must be|set either"
  done
  expect 1 task drain "PT_host=m1
--force" PT_why=a
  printed "host must be"
  expect 1 task wait_up "PT_host=m9.$DOMAIN" PT_timeout_seconds=0
  printed "has no member on this host"
  expect 1 task upgrade "PT_package=--purge"
  printed "package must be"
}

# --- helpers ------------------------------------------------------------------------

# The programs that tasks run: the proxy's own, and stand-ins for those that would change this machine.
plan_tools_make() {
  local tools=$LAB_DIR/tools
  rm -rf "$tools"
  mkdir "$tools"
  ln -s "$(realpath "$(proscenium_binary)")" "$tools/proscenium"
  cat >"$tools/apt-get" <<-X
	#!/bin/sh
	[ ! -e "$tools/fails" ] || exit 100
	for last; do :; done
	case " \$* " in *" update "*) action=update ;; *" install "*) action="install \$last" ;; esac
	echo "\$TARGET: apt-get \$action" >>"$LAB_DIR/upgrades"
	X
  cat >"$tools/systemctl" <<-X
	#!/bin/sh
	echo "\$TARGET: systemctl \$*" >>"$LAB_DIR/upgrades"
	exec "$LAB_SOURCE/lab" restart "\${TARGET%%.*}"
	X
  chmod +x "$tools"/{apt-get,systemctl}
  : >"$LAB_DIR/upgrades"
}

upgrade_compilers() {
  PATH=$LAB_DIR/tools:$PATH ruby "$LAB_SOURCE/plan.rb" "$MODULES" proscenium::upgrade_compilers "$(cat <<-X
	{ "compilers": ["m1.$DOMAIN", "m2.$DOMAIN"], "proxies": ["puppet.$DOMAIN"], "why": "lab upgrade", "version": "7.9.5",
	  "up_timeout_seconds": 300, "socket": "$LAB_DIR/proxy/admin.sock" }
	X
  )"
}

task() { # task NAME PT_PARAMETER=VALUE...: as Bolt runs it on the proxy
  local name=$1
  shift
  env PATH="$LAB_DIR/tools:$PATH" PT__installdir="$MODULES" PT_socket="$LAB_DIR/proxy/admin.sock" "$@" "$MODULES/proscenium/tasks/$name.sh"
}
