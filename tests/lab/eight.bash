# What only Puppet 8 does: certificates are renewed, and agents refresh the CA's certificates and CRL daily. Agents of all versions
# run behind one proxy. With MEMBERS=eight; sourced by lab.

eight() {
  local run=$MEMBERS$$ version # names no run before this one used
  renewing=$run-renewing.auto; gone=$run-gone.auto
  ca_is_up
  for version in 7 8 openvox; do
    # Debian sid changes.
    [ "$version" != openvox ] || [ -z "${LAB_CI:-}" ] || continue
    get_agent AGENT $version || continue
    promise "an agent of $(agent_is) enrols, and its run transfers plugins, catalog, files and report" agent_of_version_runs
  done
  AGENT=
  promise "the status service answers through the proxy" status_is_simple
  promise "a CA without the proxy in its inventory renews nothing, and the agent's run passes" renewal_is_refused
  promise "with the proxy in the inventory, the CA renews an agent's certificate through the proxy" agent_is_renewed
  promise "the proxy renews its own certificate at the CA and presents it, and agents' runs pass" proxy_is_renewed
  promise "the command that the alarm names renews the proxy's certificate" alarm_names_the_command
  promise "an agent's daily refresh downloads the CRL and the CA's certificates" daily_refresh
}

# The version as the agent states it.
agent_is() {
  case $version in openvox) echo "OpenVox $(with_agent puppet --version)" ;; *) echo "Puppet $(with_agent puppet --version)" ;; esac
}

agent_of_version_runs() {
  local first="$run-$version.auto"
  [ "$version" = openvox ] || expect 0 grep -F "Puppet agent	$(with_agent puppet --version)	" "$LAB_SOURCE/versions.tsv"
  expect 0 agent_enrol "$first"
  manual=$first first_run
  expect 0 agent_run "$first"
}

status_is_simple() {
  expect 0 request - /status/v1/simple -w ' status %{http_code}'
  printed "^running status 200"
}

# From half of the certificate's lifetime on, as with an interval longer than all of it, each run requests a renewal.
renewing_run() { agent_run "$renewing" --hostcert_renewal_interval 90d; }
renewals_at_the_ca() { requests_at ca "\"POST /puppet-ca/v1/certificate_renewal[^\"]*\" $1 "; } # renewals_at_the_ca STATUS
INVENTORY=$LAB_DIR/ca/cadir/infra_inventory.txt

renewal_is_refused() {
  local serial refused
  # If the lab was tested before.
  sed -i "/^puppet\.$DOMAIN\$/d" "$INVENTORY"
  expect 0 agent_enrol "$renewing"
  serial=$(serial_of "$renewing")
  refused=$(renewals_at_the_ca 400)
  expect 2 renewing_run
  [ "$(renewals_at_the_ca 400)" = $((refused + 1)) ] || broken "the CA did not refuse a renewal"
  expect 0 grep "x-client-cert header was specified, but the client making the request was not in the allow list" "$LAB_DIR/ca/log/server.log"
  [ "$(serial_of "$renewing")" = "$serial" ] || broken "the certificate was renewed"
}

agent_is_renewed() {
  local serial key
  echo "puppet.$DOMAIN" >>"$INVENTORY"
  serial=$(serial_of "$renewing")
  key=$(key_in "$LAB_DIR/$renewing/ssl/certs/$renewing.$DOMAIN.pem")
  expect "0 2" renewing_run
  [ "$(serial_of "$renewing")" != "$serial" ] || broken "the certificate was not renewed"
  [ "$(key_in "$LAB_DIR/$renewing/ssl/certs/$renewing.$DOMAIN.pem")" = "$key" ] || broken "the certificate has another key"
  expect 0 request "$renewing" "/puppet/v3/node/$renewing.$DOMAIN?environment=production" -w ' status %{http_code}'
  printed "status 200"
}
key_in() { openssl x509 -noout -pubkey -in "$1"; }

# A certificate of the same CA and key that expires in five days: $CLINIC/own.pem.
due_certificate() {
  clinic
  clinic_certificate own "$(date -u -d '-50 days' +%Y%m%d%H%M%SZ)" "$(date -u -d '+5 days' +%Y%m%d%H%M%SZ)"
}

proxy_is_renewed() {
  local chain=$LAB_DIR/proxy/ssl/certs/puppet.$DOMAIN.pem key
  key=$(key_in "$chain")
  due_certificate
  cp "$CLINIC/own.pem" "$chain.new"
  mv "$chain.new" "$chain"
  expect 0 verb reload
  wait_for 60 "the proxy to renew its certificate" valid_for_days 30 "$chain"
  [ "$(key_in "$chain")" = "$key" ] || broken "the certificate has another key"
  wait_for 10 "the proxy to present it" presents "$chain"
  expect "0 2" agent_run "$renewing"
}
# On a copy of the files, so that the proxy does not renew first.
alarm_names_the_command() {
  local ssl=$LAB_DIR/proxy/ssl copy=$CLINIC/ssl command
  due_certificate
  cp -r "$ssl" "$copy"
  cp "$CLINIC/own.pem" "$copy/certs/puppet.$DOMAIN.pem"
  command=$(grep -aoE "run \`puppet ssl [^\`]*" "$LAB_DIR/proxy/log/stdout.log" | tail -n 1)
  command=${command#*\`}
  # shellcheck disable=SC2086
  expect 0 ${command//$ssl/$copy} --ca_server "ca.$DOMAIN" --confdir "$LAB_DIR/proxy"
  expect 0 valid_for_days 30 "$copy/certs/puppet.$DOMAIN.pem"
}
valid_for_days() { openssl x509 -noout -checkend $(($1 * 86400)) -in "$2" >/dev/null; }
presents() { # presents CHAIN
  local serial
  serial=$(openssl s_client -connect "$(address proxy):$TLS_PORT" -servername "puppet.$DOMAIN" </dev/null 2>/dev/null | openssl x509 -noout -serial)
  [ "$serial" = "$(openssl x509 -noout -serial -in "$1")" ]
}

# A day after their last change.
daily_refresh() {
  local ssl=$LAB_DIR/$renewing/ssl document before=()
  expect 0 agent_enrol "$gone"
  expect 0 ca_command revoke --certname "$gone.$DOMAIN"
  for document in $REFRESHED; do before+=("$(refreshes "$document")"); done
  touch -d '-25 hours' "$ssl/certs/ca.pem" "$ssl/crl.pem"
  expect "0 2" agent_run "$renewing"
  for document in $REFRESHED; do
    wait_for 10 "the agent's request for $document without its certificate" refreshed "$document" "${before[0]}"
    before=("${before[@]:1}")
  done
  expect 0 revoked_in "$(serial_of "$gone")" "$ssl/crl.pem"
}
REFRESHED="certificate certificate_revocation_list"
# The CA sees no identity, and the proxy may have a copy.
refreshes() { # refreshes DOCUMENT
  requests_at proxy "\"target\":\"/puppet-ca/v1/$1/ca[^\"]*\".*\"status\":(200|304),.*\"verdict\":\"NONE\""
}
refreshed() { [ "$(refreshes "$1")" -gt "$2" ]; } # refreshed DOCUMENT BEFORE
