# Decisions of the proxy, with a real CA and real agents: revoked and blocked agents, access rules, the check of certificate
# requests, and copies that are served while the CA is down. With MEMBERS=guards; sourced by lab.

. "$LAB_SOURCE/../adapters/proscenium.bash"

guards() {
  local run=$MEMBERS$$ # names no run before this one used
  rights=$run-rights.auto; web=$run-web.auto; database=$run-database.auto; busy=$run-busy.auto; late=$run-late.auto
  new=$run-new.auto; steady=$run-steady.auto
  ca_is_up
  promise "a certificate request for rights at the CA never reaches it, and its agent can see the reason" rights_stay_out
  promise "agents with a role enrol, and a rule by role refuses the run of one" rule_by_role
  promise "a blocked agent's run fails with a message, and passes after unblocking" block_and_unblock
  promise "a CRL fetched during a request lets its response through and refuses the agent's next request" fetch_while_busy
  promise "a revoked agent's run ends as soon as the CRL is fetched" fetched_on_request
  promise "a revoked agent's run ends within the fetch interval" fetched_in_time
  promise "a new agent gets the CA's certificates and CRLs while the CA is down" served_without_the_ca
  # Agents of Puppet 7 refresh nothing by default.
  [ "$PUPPET" = 7 ] || promise "an agent's daily refresh and its run pass while the CA is down" refreshed_without_the_ca
}

# The test that stops the CA is the last of its mode.
ca_is_up() {
  alive ca || ca_start
}

rights_stay_out() {
  # pp_cli_auth, by its OID, because this agent does not know its name.
  EXTENSION='1.3.6.1.4.1.34380.1.3.39: "true"' expect 1 agent_run "$rights" --waitforcert 0 --http_debug
  printed "Failed to submit the CSR, HTTP response was 403"
  # The agent prints this text only with --http_debug.
  printed "pp_cli_auth.*this proxy"
  [ "$(requests_at ca "/certificate_request/$rights")" = 0 ] || broken "the request reached the CA"
  expect 0 ca_command list --all
  ! grep -q "$rights" "$OUTPUT" || broken "the CA has the request"
}

rule_by_role() {
  expect 0 agent_enrol "$web"
  EXTENSION="pp_role: database" expect 0 agent_enrol "$database"
  expect 1 agent_run "$database"
  printed '403.*the access rule "no-catalogs-for-databases"'
  unanswered "/puppet/v3/catalog/$database"
}

block_and_unblock() {
  expect 0 verb block "$web.$DOMAIN" --why "stolen, ticket 4711"
  expect 1 agent_run "$web"
  printed "403.*is blocked by the operator"
  unanswered "/puppet/v3/catalog/$web"
  expect 0 verb unblock "$web.$DOMAIN"
  expect 2 agent_run "$web"
  answered "PUT /puppet/v3/report/$web.$DOMAIN"'[^"]*" 200'
}

fetch_while_busy() {
  local hold catalog refusal
  expect 0 agent_enrol "$busy"
  hold=$(new_hold)
  HOLD=$hold agent_run "$busy" >"$OUTPUT" 2>&1 & local run=$!
  wait_for 60 "a compiler to hold the catalog" held_by_a_compiler "$hold"
  revoke "$busy"
  crl_fetch
  : >"$hold/release"
  expect_end "1 2 4 6" $run
  printed "$REFUSAL"
  answered "POST /puppet/v3/catalog/$busy.$DOMAIN"'[^"]*" 200'
  catalog=$(grep -F "/v3/catalog/$busy" "$LAB_DIR/proxy/log/access.log" || :)
  # The agent's next connections are refused as well, and their records may be written earlier.
  wait_for 10 "the refusal's record" refused_on_port "$(field port "$catalog")"
}

fetched_on_request() {
  revoked_while_it_runs "$web" crl_fetch
  say "    revoked at the CA, and refused $REFUSED_AFTER s after crl fetch started"
}

fetched_in_time() {
  CRL_INTERVAL=5 cmd_proxy
  expect 0 agent_enrol "$late"
  revoked_while_it_runs "$late"
  say "    revoked at the CA, and refused $REFUSED_AFTER s later; the CRL is fetched every 5 s"
}

served_without_the_ca() {
  expect 0 agent_enrol "$steady"
  signal ca TERM
  wait_for 60 "the CA to end" gone ca
  # Only the CA can answer a certificate request. The proxy sends Retry-After. An agent sleeps no longer than its runinterval, a hundred times.
  expect 1 agent_run "$new" --waitforcert 0 --runinterval 0
  printed "Request to .*/certificate_request/$new.$DOMAIN failed|Failed to submit the CSR, HTTP response was 50[23]|Too many HTTP retries"
  expect 0 cmp "$LAB_DIR/$new/ssl/certs/ca.pem" "$LAB_DIR/$late/ssl/certs/ca.pem"
  expect 0 revoked_in "$(serial_of "$late")" "$LAB_DIR/$new/ssl/crl.pem"
}

# First the proxy has copies, then it has none.
refreshed_without_the_ca() {
  local ssl=$LAB_DIR/$steady/ssl
  touch -d '-25 hours' "$ssl/certs/ca.pem" "$ssl/crl.pem"
  expect 2 agent_run "$steady"
  [ "$(find "$ssl/certs/ca.pem" "$ssl/crl.pem" -mmin -60 | wc -l)" = 2 ] || broken "the agent did not refresh its files"
  proxy_stop
  (MEMBERS=tls proxy_start)
  touch -d '-25 hours' "$ssl/certs/ca.pem" "$ssl/crl.pem"
  expect 0 agent_run "$steady"
  printed "Failed to refresh CRL, using existing CRL: Service Unavailable"
  ! grep -a "Sleeping for" "$OUTPUT" || broken "the agent repeated a request"
}

# --- helpers ------------------------------------------------------------------------

verb() { # verb WORDS...: a command to the running proxy, with several to the first one or that in ON
  "$(proscenium_binary)" "$@" --socket "$LAB_DIR/${ON:-${PROXIES%% *}}/admin.sock"
}
on_all() { local ON; for ON in $PROXIES; do "$@" || return; done; } # on_all COMMAND...: on each proxy, until it fails
on_any() { local ON; for ON in $PROXIES; do ! "$@" || return 0; done; return 1; }

# Access records of all proxies since mark_records.
mark_records() { local ON; for ON in $PROXIES; do wc -l <"$LAB_DIR/$ON/log/access.log" >"$LAB_DIR/$ON/records"; done; }
new_records() { on_all records_of_one; }
records_of_one() { tail -n "+$(($(cat "$LAB_DIR/$ON/records") + 1))" "$LAB_DIR/$ON/log/access.log"; }

crl_fetch() {
  SINCE=$(date +%s.%N)
  verb crl fetch >"$LAB_DIR/fetch.log" 2>&1 || broken "crl fetch: $(cat "$LAB_DIR/fetch.log")"
}

revoke() { # revoke NAME: as the CA's administrator does it. SINCE is the time of the revocation, and first_refusal looks for later records.
  mark_records
  ca_command revoke --certname "$1.$DOMAIN" >"$LAB_DIR/revoke.log" 2>&1 & local command=$!
  wait_for 60 "the CA to revoke $1" revocation_at_the_ca "$1"
  SINCE=$(date +%s.%N)
  wait $command || broken "revoke: $(cat "$LAB_DIR/revoke.log")"
}
revocation_at_the_ca() { [ "$(requests_at ca "PUT /puppet-ca/v1/certificate_status/$1[^\"]*\" 204")" -gt 0 ]; }

# Runs an agent that requests a file five times a second until one is refused, and revokes it meanwhile. REFUSED_AFTER is the
# time from SINCE in seconds. The test requires only the refusal; the time is printed for information.
revoked_while_it_runs() { # revoked_while_it_runs NAME [COMMAND...]: the command makes the proxy learn of the revocation
  local name=$1
  shift
  TICKS=yes agent_run "$name" >"$OUTPUT" 2>&1 & local run=$!
  wait_for 120 "the agent to request files" test -e "$LAB_DIR/$name/out/tick1"
  revoke "$name"
  "$@"
  expect_end "4 6" $run
  printed "Could not evaluate.*$REFUSAL"
  wait_for 10 "the refusal's record" was_refused
  REFUSED_AFTER=$(date -d "$(field time "$(first_refusal)")" +%s.%N |
    awk -v since="$SINCE" '{ printf "%.1f", $1 - since }')
}

# The first record of the proxy, a JSON object, about a revoked agent since `revoke` started. Workers write independently, so
# records of two connections may be in either order. Each record begins with the time of its request.
first_refusal() {
  new_records | LC_ALL=C sort |
    awk '/"verdict":"FAILED:revoked"/ && !n++ { print } END { exit !n }'
}
was_refused() { first_refusal >/dev/null; }
refused_on_port() { [ "$(field port "$(first_refusal)")" = "$1" ]; }
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" <<<"$2"; } # field NAME RECORD
