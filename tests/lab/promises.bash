# The tests of the whole stack: each promise is a sentence and a function. Sourced by lab.

PROMISES_PASSED=0
OUTPUT=$LAB_DIR/output   # output of the last command run by expect

promises() {
  local run=$MEMBERS$$ # names no run before this one used
  manual=$run-manual; first=$run-first.auto; second=$run-second.auto; gone=$run-gone.auto; late=$run-late.auto
  promise "an unsigned agent submits its certificate request and exits" submits_its_request
  promise "a signed agent's first run transfers plugins, catalog, files and report" first_run
  promise "agents that the CA signs at once enrol through the proxy" enrols
  promise "a file that one agent puts into the filebucket is available to another" filebucket_is_shared
  promise "two compilers share the requests" compilers_share
  promise "a revoked agent is refused with a message" revoked_is_refused
  promise "the agent's CRL refresh downloads the revocation" crl_refresh
  promise "a compiler stopped with SIGTERM between requests fails no run" stop_fails_no_run
  promise "a CRL swapped during a slow catalog lets the catalog through and refuses the report" crl_swap_in_flight
  promise "a compiler killed during a catalog fails only that run, with 502, and the catalog is not retried" kill_ends_one_run
  [ "$MEMBERS" != plain ] || promise "\`puppetserver ca\` works through the proxy at a CA over plain HTTP, with the certificate of the CA's host alone" ca_tool_over_plain_http
}

submits_its_request() {
  expect 1 agent_run "$manual" --waitforcert 0
  expect 0 ca_command list
  printed "$manual.$DOMAIN"
  expect 0 ca_command sign --certname "$manual.$DOMAIN"
}

first_run() {
  expect 2 agent_run "$manual"
  local out=$LAB_DIR/$manual/out
  local site=$LAB_DIR/code/environments/production/modules/lab
  expect 0 cmp "$out/big" "$site/files/big"
  expect 0 diff -r "$out/tree" "$site/files/tree"
  # Trusted facts: only the certificate has the role, so X-Client-Cert reached the compiler.
  expect 0 diff "$out/motd" - <<-X
	certname $manual.$DOMAIN
	authenticated remote
	role web
	plugin synced synced
	X
  answered "PUT /puppet/v3/report/$manual.$DOMAIN"'[^"]*" 200'
}

enrols() {
  local name
  for name in "$first" "$second" "$gone" "$late"; do expect 0 agent_enrol "$name"; done
}

filebucket_is_shared() {
  local file=$LAB_DIR/$first/saved sum
  echo "saved by $first" >"$file"
  sum=$(sha256sum "$file" | cut -d' ' -f1)
  expect 0 filebucket "$first" backup "$file"
  printed "$sum"
  expect 0 filebucket "$second" get "$sum"
  printed "saved by $first"
}

compilers_share() {
  local path="/puppet/v3/file_metadata/modules/lab/small?environment=production&probe=$RANDOM" name n
  for n in 1 2 3 4 5 6 7 8; do request "$first" "$path" -f -o /dev/null & done
  wait
  for name in $COMPILERS; do
    [ "$(requests_at "$name" "GET ${path//[?]/[?]}\"? ?.* 200")" -gt 0 ] || broken "$name answered none of 8 requests"
  done
}

revoked_is_refused() {
  expect 0 ca_command revoke --certname "$gone.$DOMAIN"
  proxy_load_crl "$gone"
  expect 1 agent_run "$gone"
  printed "$REFUSAL"
  # Enrolment is open to every client, except one with a refused certificate.
  expect 0 request "$gone" /puppet-ca/v1/certificate/ca -w ' status %{http_code}'
  printed "status 403"
  printed "is revoked"
}

crl_refresh() {
  expect "0 2" agent_run "$manual" --crl_refresh_interval 1
  expect 0 revoked_in "$(serial_of "$gone")" "$LAB_DIR/$manual/ssl/crl.pem"
}

# The agent has its catalog, and requests its files only after SIGTERM was sent to the compiler.
stop_fails_no_run() {
  local hold
  hold=$(new_hold)
  PAUSE=$hold agent_run "$first" >"$OUTPUT" 2>&1 & local run=$!
  wait_for 60 "the agent to hold its catalog" test -e "$hold/held.agent"
  signal m1 TERM
  : >"$hold/release"
  expect_end 2 $run
  expect "0 2" agent_run "$first"
  wait_for 60 "m1 to end" gone m1
  server_start m1
}

crl_swap_in_flight() {
  local hold
  hold=$(new_hold)
  HOLD=$hold agent_run "$late" >"$OUTPUT" 2>&1 & local run=$!
  wait_for 60 "a compiler to hold the catalog" held_by_a_compiler "$hold"
  ca_command revoke --certname "$late.$DOMAIN" >/dev/null
  proxy_load_crl "$late"
  : >"$hold/release"
  expect_end "1 2 4 6" $run
  printed "Applying configuration version"
  printed "Could not send report.*$REFUSAL"
  answered "POST /puppet/v3/catalog/$late.$DOMAIN"'[^"]*" 200'
  unanswered "PUT /puppet/v3/report/$late.$DOMAIN"
}

kill_ends_one_run() {
  local hold victim name
  wait_running m1
  wait_for 30 "m1 to get requests again" gets_requests m1
  hold=$(new_hold)
  HOLD=$hold agent_run "$second" >"$OUTPUT" 2>&1 & local run=$!
  wait_for 60 "a compiler to hold the catalog" held_by_a_compiler "$hold"
  victim=$(basename "$hold"/held.* ".$DOMAIN"); victim=${victim#held.}
  signal "$victim" KILL
  expect_end 1 $run
  printed "$LOST_ANSWER"
  : >"$hold/release"
  [ "$(echo "$hold"/held.*)" = "$hold/held.$victim.$DOMAIN" ] || broken "a second compiler began the catalog: $(ls "$hold")"
  unanswered "POST /puppet/v3/catalog/$second.$DOMAIN"
  expect "0 2" agent_run "$second"
  server_start "$victim"
  wait_running "$victim"
}

# As docs/operating/ca.md describes it: a rule of the CA and one of the proxy name the CA's host. Afterwards the CA has its
# own rules again, because a CA that members reach over TLS must not trust headers.
ca_tool_over_plain_http() {
  local rules=$LAB_DIR/ca/conf.d/auth.conf path=/puppet-ca/v1/certificate_statuses/any
  cp "$rules" "$rules.own"
  perl -0pi -e 's/allow: (\{\s*extensions: \{\s*pp_cli_auth: "true"\s*\}\s*\})/allow: [ "ca.'$DOMAIN'", $1 ]/g;
    s/version: 1\n/version: 1\n    allow-header-cert-info: true\n/' "$rules"
  stop ca
  ca_start
  printf '\n[[access]]\nname = "ca-tool"\naction = "allow"\nclass = ["ca-administration"]\ncertname = ["ca.%s"]\n' "$DOMAIN" \
    >>"$LAB_DIR/proxy/proscenium.toml"
  expect 0 verb reload
  CERTNAME=ca puppet_conf tool puppet
  sed -i "s|^ssldir.*|ssldir = $LAB_DIR/ca/ssl|" "$LAB_DIR/tool/puppet.conf"
  wait_for 30 "the pool of the CA to be available" ca_tool_answers
  expect 0 ca_tool_lists
  printed "$first.$DOMAIN"
  expect 0 request "$first" "$path" -w ' status %{http_code}'
  printed "status 403"
  mv "$rules.own" "$rules"
  stop ca
  ca_start
}
ca_tool_answers() { ca_tool_lists >"$OUTPUT" 2>&1; }
ca_tool_lists() { puppetserver ca list --all --config "$LAB_DIR/tool/puppet.conf"; }

# --- helpers ---------------------------------------------------------------------

REFUSAL=${LAB_REFUSAL:-'403.*revoked'}          # output of a revoked agent
LOST_ANSWER=${LAB_LOST_ANSWER:-'Error 502 on SERVER: .*'}  # output of an agent whose compiler was killed

promise() { # promise SENTENCE FUNCTION
  PROMISE=$1
  "$2"
  PROMISES_PASSED=$((PROMISES_PASSED + 1))
  say "ok: $1 ($MEMBERS)"
}

broken() { # broken WHY: print the reason with all output, and exit
  { echo "--- output"; cat "$OUTPUT"
    echo "--- the proxy's last lines"; tail -n 8 "$LAB_DIR"/p*/log/*
  } >&2
  say "FAILED: $PROMISE ($MEMBERS): $1"
  say "$PROMISES_PASSED passed, 1 failed"
  exit 1
}

expect() { # expect STATUSES COMMAND...: run it, and require one of these exit statuses
  local statuses=$1 status=0
  shift
  "$@" >"$OUTPUT" 2>&1 || status=$?
  [[ " $statuses " == *" $status "* ]] || broken "status $status, expected $statuses: $*"
}
expect_end() { # expect_end STATUSES PID: require one of these exit statuses of a background run
  local status=0
  wait "$2" || status=$?
  [[ " $1 " == *" $status "* ]] || broken "status $status, expected $1"
}
printed() { grep -aqE "$1" "$OUTPUT" || broken "not printed: $1"; }

answered() { # answered REGEX: exactly one line in the logs of all compilers matches
  local name count=0
  for name in $COMPILERS; do count=$((count + $(requests_at "$name" "$1"))); done
  [ $count = 1 ] || broken "$count answers, expected one: $1"
}
unanswered() { # unanswered REGEX: no line in the logs of the compilers matches
  local name
  for name in $COMPILERS; do [ "$(requests_at "$name" "$1")" = 0 ] || broken "$name answered: $1"; done
}

new_hold() { mktemp -d "$LAB_DIR/hold.XXXXXX"; }
held_by_a_compiler() { compgen -G "$1/held.*" >/dev/null; }

gets_requests() { # gets_requests NAME: a request through the proxy reaches it
  local path="/puppet/v3/file_metadata/modules/lab/small?environment=production&probe=$RANDOM$RANDOM"
  request "$first" "$path" -o /dev/null & request "$first" "$path" -o /dev/null
  wait $!
  [ "$(requests_at "$1" "${path#*probe=}.* 200")" -gt 0 ]
}
