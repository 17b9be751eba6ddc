# What the proxy decides by itself, with a real CA and real agents: who is revoked, blocked or refused by a rule, what a
# certificate request may ask for, what is answered while the CA is down. With MEMBERS=guards; sourced by lab.

. "$LAB_SOURCE/../adapters/proscenium.bash"

guards() {
  local run=$MEMBERS$$ # names no run before this one used
  rights=$run-rights.auto; web=$run-web.auto; database=$run-database.auto; busy=$run-busy.auto; late=$run-late.auto
  new=$run-new.auto
  ca_is_up
  promise "a request for rights at the CA never reaches it, and its agent can see why" rights_stay_out
  promise "agents with a role enrol, and a rule by role refuses the run of one" rule_by_role
  promise "a blocked agent's run fails with a sentence, and passes when the block is lifted" block_and_unblock
  promise "a CRL fetched while an agent waits lets that answer through and refuses its next request" fetch_while_busy
  promise "a revoked agent's run ends as soon as the CRL is fetched" fetched_when_asked
  promise "a revoked agent's run ends within the interval of fetching" fetched_in_time
  promise "a new agent gets the CA's certificates and lists while the CA is down" served_without_the_ca
}

# The promise that stops it is the last of its mode.
ca_is_up() {
  alive ca || ca_start
}

rights_stay_out() {
  # pp_cli_auth, which this agent has no name for.
  EXTENSION='1.3.6.1.4.1.34380.1.3.39: "true"' expect 1 agent_run "$rights" --waitforcert 0 --http_debug
  printed "Failed to submit the CSR, HTTP response was 403"
  # The agent shows this text only to who wants to see what was said.
  printed "pp_cli_auth.*this proxy"
  [ "$(requests_at ca "/certificate_request/$rights")" = 0 ] || broken "the CA was asked"
  expect 0 ca_command list --all
  ! grep -q "$rights" "$OUTPUT" || broken "the CA knows of it"
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

fetched_when_asked() {
  revoked_while_it_asks "$web" crl_fetch
  say "    revoked at the CA, and refused $REFUSED_AFTER s after crl fetch was begun"
}

fetched_in_time() {
  CRL_INTERVAL=5 cmd_proxy
  expect 0 agent_enrol "$late"
  revoked_while_it_asks "$late"
  say "    revoked at the CA, and refused $REFUSED_AFTER s later; the list is fetched every 5 s"
}

served_without_the_ca() {
  signal ca TERM
  wait_for 60 "the CA to end" gone ca
  # Its request the CA has to answer itself. An agent is told to come again, and sleeps no longer than its runinterval.
  expect 1 agent_run "$new" --waitforcert 0 --runinterval 1
  printed "Request to .*/certificate_request/$new.$DOMAIN failed|Failed to submit the CSR, HTTP response was 50[23]"
  expect 0 cmp "$LAB_DIR/$new/ssl/certs/ca.pem" "$LAB_DIR/$late/ssl/certs/ca.pem"
  expect 0 revoked_in "$(serial_of "$late")" "$LAB_DIR/$new/ssl/crl.pem"
}

# --- what these are made of ------------------------------------------------------------------------

verb() { # verb WORDS...: what an operator types, to the running proxy
  "$(proscenium_binary)" "$@" --socket "$LAB_DIR/proxy/admin.sock"
}

crl_fetch() {
  SINCE=$(date +%s.%N)
  verb crl fetch >"$LAB_DIR/proxy/fetch.log" 2>&1 || broken "crl fetch: $(cat "$LAB_DIR/proxy/fetch.log")"
}

revoke() { # revoke NAME: as the CA's administrator does it; SINCE is when the CA had done it, first_refusal comes after
  BEFORE=$(wc -l <"$LAB_DIR/proxy/log/access.log")
  ca_command revoke --certname "$1.$DOMAIN" >"$LAB_DIR/admin/revoke.log" 2>&1 & local command=$!
  wait_for 60 "the CA to revoke $1" revocation_at_the_ca "$1"
  SINCE=$(date +%s.%N)
  wait $command || broken "revoke: $(cat "$LAB_DIR/admin/revoke.log")"
}
revocation_at_the_ca() { [ "$(requests_at ca "PUT /puppet-ca/v1/certificate_status/$1[^\"]*\" 204")" -gt 0 ]; }

# An agent that asks for a file five times a second until one is refused, and is revoked meanwhile. REFUSED_AFTER is in
# seconds from SINCE on; the promise is that the refusal comes, the figure is for people.
revoked_while_it_asks() { # revoked_while_it_asks NAME [COMMAND...]: the command makes the revocation known
  local name=$1
  shift
  TICKS=yes agent_run "$name" >"$OUTPUT" 2>&1 & local run=$!
  wait_for 120 "the agent to ask for files" test -e "$LAB_DIR/$name/out/tick1"
  revoke "$name"
  "$@"
  expect_end "4 6" $run
  printed "Could not evaluate.*$REFUSAL"
  wait_for 10 "the refusal's record" was_refused
  REFUSED_AFTER=$(date -d "$(field time "$(first_refusal)")" +%s.%N |
    awk -v since="$SINCE" '{ printf "%.1f", $1 - since }')
}

# A record of the proxy, one JSON object: the first that tells of somebody revoked since `revoke` was begun. Workers write
# by themselves, so records of two connections may stand in either order: each begins with its request's time.
first_refusal() {
  tail -n "+$((BEFORE + 1))" "$LAB_DIR/proxy/log/access.log" | LC_ALL=C sort |
    awk '/"verdict":"FAILED:revoked"/ && !n++ { print } END { exit !n }'
}
was_refused() { first_refusal >/dev/null; }
refused_on_port() { [ "$(field port "$(first_refusal)")" = "$1" ]; }
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" <<<"$2"; } # field NAME RECORD
