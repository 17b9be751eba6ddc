# What is tried with the whole stack: each promise is a sentence and a function. Sourced by lab.

PROMISES_KEPT=0
OUTPUT=$LAB_DIR/output   # of the last command that was expected

promises() {
  local run=$MEMBERS$$ # names no run before this one used
  manual=$run-manual; first=$run-first.auto; second=$run-second.auto; gone=$run-gone.auto; late=$run-late.auto
  promise "an unsigned agent leaves its request and goes" leaves_its_request
  promise "a signed agent's first run brings plugins, catalog, files and report" first_run
  promise "agents that the CA signs at once enrol through the proxy" enrols
  promise "what one agent puts into the filebucket another gets" filebucket_is_shared
  promise "two compilers share the requests" compilers_share
  promise "a revoked agent is refused with a sentence" revoked_is_refused
  promise "the agent's CRL refresh brings the revocation" crl_refresh
  promise "a compiler stopped with SIGTERM between requests fails no run" stop_fails_no_run
  promise "a CRL swapped during a slow catalog lets that answer through and refuses the report" crl_swap_in_flight
  promise "a compiler killed during a catalog ends that run only, with 502, and no other sees that catalog" kill_ends_one_run
}

leaves_its_request() {
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
  # Trusted facts: the role stands in the certificate only, so X-Client-Cert reached the compiler.
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
  local kept=$LAB_DIR/$first/kept sum
  echo "kept by $first" >"$kept"
  sum=$(sha256sum "$kept" | cut -d' ' -f1)
  expect 0 filebucket "$first" backup "$kept"
  printed "$sum"
  expect 0 filebucket "$second" get "$sum"
  printed "kept by $first"
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
  proxy_take_crl "$gone"
  expect 1 agent_run "$gone"
  printed "$REFUSAL"
  # Enrolment is open to all, but not to a certificate that is refused.
  expect 0 request "$gone" /puppet-ca/v1/certificate/ca -w ' status %{http_code}'
  printed "status 403"
  printed "is revoked"
}

crl_refresh() {
  expect "0 2" agent_run "$manual" --crl_refresh_interval 1
  expect 0 revoked_in "$(serial_of "$gone")" "$LAB_DIR/$manual/ssl/crl.pem"
}

# The agent holds its catalog and asks for its files only after the compiler has been told to end.
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
  proxy_take_crl "$late"
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
  wait_for 30 "m1 to take requests again" takes_requests m1
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

# --- what promises are made of ---------------------------------------------------------------------

REFUSAL=${LAB_REFUSAL:-'403.*revoked'}          # what a revoked agent prints
LOST_ANSWER=${LAB_LOST_ANSWER:-'Error 502 on SERVER: .*'}  # what an agent prints whose compiler died under it

promise() { # promise SENTENCE FUNCTION
  PROMISE=$1
  "$2"
  PROMISES_KEPT=$((PROMISES_KEPT + 1))
  say "ok: $1 ($MEMBERS)"
}

broken() { # broken WHY: say it with all that was seen, and end
  { echo "--- output"; cat "$OUTPUT"
    echo "--- the proxy's last lines"; tail -n 8 "$LAB_DIR"/proxy/log/*
  } >&2
  say "FAILED: $PROMISE ($MEMBERS): $1"
  say "$PROMISES_KEPT passed, 1 failed"
  exit 1
}

expect() { # expect STATUSES COMMAND...: it ends with one of them
  local statuses=$1 status=0
  shift
  "$@" >"$OUTPUT" 2>&1 || status=$?
  [[ " $statuses " == *" $status "* ]] || broken "status $status, expected $statuses: $*"
}
expect_end() { # expect_end STATUSES PID: that background run ends with one of them
  local status=0
  wait "$2" || status=$?
  [[ " $1 " == *" $status "* ]] || broken "status $status, expected $1"
}
printed() { grep -aqE "$1" "$OUTPUT" || broken "not printed: $1"; }

answered() { # answered REGEX: exactly one compiler's log has it, once
  local name count=0
  for name in $COMPILERS; do count=$((count + $(requests_at "$name" "$1"))); done
  [ $count = 1 ] || broken "$count answers, expected one: $1"
}
unanswered() { # unanswered REGEX: no compiler's log has it
  local name
  for name in $COMPILERS; do [ "$(requests_at "$name" "$1")" = 0 ] || broken "$name answered: $1"; done
}

new_hold() { mktemp -d "$LAB_DIR/hold.XXXXXX"; }
held_by_a_compiler() { compgen -G "$1/held.*" >/dev/null; }

takes_requests() { # takes_requests NAME: a request through the proxy reaches it
  local path="/puppet/v3/file_metadata/modules/lab/small?environment=production&probe=$RANDOM$RANDOM"
  request "$first" "$path" -o /dev/null & request "$first" "$path" -o /dev/null
  wait $!
  [ "$(requests_at "$1" "${path#*probe=}.* 200")" -gt 0 ]
}
