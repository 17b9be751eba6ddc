# Compilers restart, or are full, while agents run. After a drain no run fails; after SIGTERM alone the access log explains each
# failed run; and agents of each version finish their runs when the queue is full. With MEMBERS=load; sourced by
# lab.

. "$LAB_SOURCE/../adapters/proscenium.bash"

load() {
  local run=$MEMBERS$$ # names no run before this one used
  one=$run-one.auto; two=$run-two.auto; busy=$run-busy.auto; retrying=$run-retrying.auto
  CLOSED="${COMPILERS##* }"
  promise "agents enrol, and their first runs pass" first_runs
  promise "the status shows how many JRubies each compiler has" jrubies_are_read
  promise "two compilers restarted in turn after drain --wait fail no run" drained_restarts_fail_no_run
  promise "a compiler that forbids its JRuby counts works, and the status shows the rule that its auth.conf needs" \
    forbidden_counts_are_explained
  promise "two compilers restarted by SIGTERM alone fail only requests in flight that must not be repeated" \
    restarts_fail_only_what_must_not_be_repeated
  if get_agent FAILING_AGENT 7; then
    promise "the only available compiler restarted by SIGTERM under agents that fail on a 503: no request gets one, and requests wait" \
      only_compiler_restarts
  fi
  promise "after the rule from the status is added to its auth.conf, that compiler shows its JRubies" jrubies_are_read
  if get_agent RETRYING_AGENT 8 && get_agent FAILING_AGENT 7; then
    promise "when the queue is full, an agent that retries is refused, another waits, and both runs pass" \
      full_queue_fails_no_run
  fi
}

first_runs() {
  local name
  for name in "$one" "$two" "$busy"; do
    expect 0 agent_enrol "$name"
    expect 2 agent_run "$name"
  done
}

jrubies_are_read() {
  local name
  # The value of max-active-instances in config/puppetserver.conf.
  for name in $COMPILERS; do
    wait_for 60 "the JRubies of $name" proxy_shows "$name" ".* 1 JRubies"
  done
}

drained_restarts_fail_no_run() {
  local name
  loops_start
  hold_a_catalog
  for name in $HOLDER $OTHER; do
    drain "$name"
    [ "$name" != "$CLOSED" ] || forbid_counts
    restart "$name"
    expect 0 verb ready compilers "$(member "$name")"
    wait_for 60 "the proxies to use $name again" on_all proxy_uses "$name"
  done
  loops_stop
  no_run_failed
}

forbidden_counts_are_explained() {
  RULE=$(wait_for 60 "the status to show the rule" rule_for_counts)
  proxy_uses "$CLOSED" || broken "the proxy does not use $CLOSED"
}
forbid_counts() { # also removes the rule of allow_counts, if the lab was tested before
  sed -i -e "/^{ match-request/d" -e "/match-request/,/name:/{/path: \"\/status\/v1\/services\"/,/name:/s/allow-unauthenticated: true/deny: \"*\"/}" \
    "$LAB_DIR/$CLOSED/conf.d/auth.conf"
}
allow_counts() {
  sed -i "0,/rules: \[/s||&\n$RULE,|" "$LAB_DIR/$CLOSED/conf.d/auth.conf"
}
rule_for_counts() { # of auth.conf, as the status shows it
  verb status | grep -F "$(member "$CLOSED"): JRuby counts unknown" | grep -oE "\{ match-request: .* \}"
}

# A catalog is still being compiled when the first compiler gets SIGKILL, as from a service manager whose stop timeout ends.
restarts_fail_only_what_must_not_be_repeated() {
  local name
  loops_start
  hold_a_catalog
  stop "$HOLDER" 2>/dev/null
  end_held_run 1
  allow_counts
  for name in $HOLDER $OTHER; do
    restart "$name"
    wait_for 60 "the proxy to use $name again" proxy_uses "$name"
  done
  loops_stop
  failed_records >"$LOOPS/failed"
  ! grep -vE "$MUST_NOT_BE_REPEATED" "$LOOPS/failed" >"$OUTPUT" || broken "requests failed that can be repeated"
  runs_are_explained
  say "    $(wc -l <"$LOOPS/runs") runs, $(grep -cvE ' [02]$' "$LOOPS/runs") failed; failed requests:"
  while read -r record; do
    say "    $(field method "$record") $(field target "$record"): $(field status "$record")," \
      "reason $(field reason "$record"), member $(field member "$record"), attempts $(field attempts "$record")"
  done <"$LOOPS/failed"
}

# The other compiler is drained, so the one that restarts is the only one. Requests wait longer than it takes to start. What was
# sent to it and cut off gets 502, and is counted.
only_compiler_restarts() {
  local name=${COMPILERS%% *} began waited
  expect 0 verb drain compilers "$(member "$CLOSED")"
  AGENT=$FAILING_AGENT loops_start
  began=$SECONDS
  signal "$name" TERM
  wait_for 60 "the proxy to notice that $name is down" proxy_shows "$name" "down "
  wait_for 60 "a request to wait for $name" requests_wait
  expect 0 request - /status/v1/simple -w ' status %{http_code}'
  printed "error status 503"
  restart "$name"
  wait_for 60 "the proxy to use $name again" proxy_uses "$name"
  began=$((SECONDS - began))
  loops_stop
  failed_records | grep -vF /status/v1/simple >"$LOOPS/failed" || :
  ! grep -vE "$MUST_NOT_BE_REPEATED" "$LOOPS/failed" >"$OUTPUT" || broken "requests failed that can be repeated"
  runs_are_explained
  waited=$(new_records | grep -oE '"queue_us":[0-9]{7,}' | sort -t: -k2 -n | tail -n 1) ||
    broken "no request waited"
  say "    restarted in $began s; the longest wait was $((${waited#*:} / 1000000)) s; $(wc -l <"$LOOPS/runs") runs," \
    "$(grep -cvE ' [02]$' "$LOOPS/runs" || :) failed, for $(wc -l <"$LOOPS/failed") catalogs and reports that were cut off"
  expect 0 verb ready compilers "$(member "$CLOSED")"
  wait_for 60 "the proxy to use $CLOSED again" proxy_uses "$CLOSED"
}
requests_wait() { verb status | grep -qE "^  [0-9]+ requests wait for a member"; }

# Both compilers are busy, and one request may wait. The request of an agent that retries waits first; then the other agent
# needs its slot in the queue. Only the other agent (7.23) does not retry: after the release there are more requests at once than
# the pool has slots for.
full_queue_fails_no_run() {
  local hold run_at_one run_at_other retrying_run waiting_run
  AGENT=$RETRYING_AGENT expect 0 agent_enrol "$retrying"
  QUEUE_MAX=1 cmd_proxy
  jrubies_are_read
  mark_records
  hold=$(new_hold)
  AGENT=$RETRYING_AGENT HOLD=$hold agent_run "$busy" >"$LOOPS/busy.out" 2>&1 & run_at_one=$!
  AGENT=$RETRYING_AGENT HOLD=$hold agent_run "$one" >"$LOOPS/one.out" 2>&1 & run_at_other=$!
  wait_for 60 "both compilers to hold a catalog" held_by_both_compilers "$hold"
  AGENT=$RETRYING_AGENT agent_run "$retrying" >"$LOOPS/retrying.out" 2>&1 & retrying_run=$!
  wait_for 60 "a request of $retrying to wait" request_waits
  AGENT=$FAILING_AGENT agent_run "$two" >"$LOOPS/waiting.out" 2>&1 & waiting_run=$!
  wait_for 60 "$retrying to make room for $two" was_refused_with "$retrying" queue-made-room
  wait_for 60 "$retrying to retry too early" was_refused_with "$retrying" queue-full
  : >"$hold/release"
  run_ends busy $run_at_one
  run_ends one $run_at_other
  run_ends waiting $waiting_run
  run_ends retrying $retrying_run
  printed "Sleeping for [0-9]+ seconds before retrying the request"
  ! failed_records | grep -F "\"certname\":\"$two.$DOMAIN\"" >"$OUTPUT" || broken "requests of $two failed"
  say "    $(failed_records | wc -l) requests refused: $(field user_agent "$(failed_records | head -n 1)")"
}
run_ends() { # run_ends OUTPUT PID
  cp "$LOOPS/$1.out" "$OUTPUT"
  expect_end "0 2" "$2"
}
held_by_both_compilers() { for name in $COMPILERS; do [ -e "$1/held.$name.$DOMAIN" ] || return; done; }
request_waits() { verb status | grep -q "^  1 requests wait for a member"; }
was_refused_with() { # was_refused_with NAME REASON
  failed_records | grep -F "\"certname\":\"$1.$DOMAIN\"" | grep -qE "\"status\":503,.*\"reason\":\"$2\""
}

# --- helpers ------------------------------------------------------------------------

member() { echo "$1.$DOMAIN:$TLS_PORT"; } # member NAME: its address in the configuration

# A catalog is being compiled until end_held_run: HOLDER is the compiler that compiles it, OTHER the other one.
hold_a_catalog() {
  HELD=$(new_hold)
  HOLD=$HELD agent_run "$busy" >"$LOOPS/held.out" 2>&1 & HELD_RUN=$!
  wait_for 60 "a compiler to hold the catalog" held_by_a_compiler "$HELD"
  HOLDER=$(basename "$HELD"/held.* ".$DOMAIN"); HOLDER=${HOLDER#held.}
  for OTHER in $COMPILERS; do [ "$OTHER" = "$HOLDER" ] || break; done
}
end_held_run() { # end_held_run STATUSES
  local status=0
  : >"$HELD/release"
  wait "$HELD_RUN" || status=$?
  echo "$busy 0 $status" >>"$LOOPS/runs"
  cp "$LOOPS/held.out" "$OUTPUT"
  [[ " $1 " == *" $status "* ]] || broken "status $status, expected $1"
  HELD=""
}

drain() { # drain NAME: until that compiler has no requests; a held catalog is finished meanwhile
  local status=0
  verb drain compilers "$(member "$1")" --wait --timeout 2m --why "restart" >"$LOOPS/drain" 2>&1 & local drain=$!
  wait_for 60 "the proxies to drain $1" on_all proxy_shows "$1" "[a-z]+ +drain "
  if [ "${HELD:-}" ]; then
    on_any proxy_shows "$1" ".* [1-9][0-9]* in flight" && kill -0 $drain || broken "a catalog is being compiled: $(cat "$LOOPS/drain")"
    end_held_run "0 2"
  fi
  wait $drain || status=$?
  [ $status = 0 ] || broken "drain --wait exited with $status: $(cat "$LOOPS/drain")"
}

restart() { # restart NAME: stops it by SIGTERM first, if it runs
  ! alive "$1" || signal "$1" TERM
  wait_for 60 "$1 to end" gone "$1"
  server_start "$1"
  wait_running "$1"
}

proxy_shows() { # proxy_shows NAME REGEX: whether the status line of that compiler matches
  verb status | grep -qE "^ +$1\.$DOMAIN:$TLS_PORT +$2"
}
proxy_uses() { proxy_shows "$1" "up +ready "; }

# Agents that run repeatedly until loops_stop. The directory LOOPS has the output of each run, and a line for each in `runs`:
# the agent, a number, the exit status.
loops_start() {
  local name
  mark_records
  LOOPS=$(mktemp -d "$LAB_DIR/loops.XXXXXX")
  LOOP_PIDS=()
  for name in "$one" "$two"; do
    run_in_a_loop "$name" & LOOP_PIDS+=($!)
  done
  wait_for 60 "an agent's run" test -s "$LOOPS/runs"
}

run_in_a_loop() { # run_in_a_loop NAME
  local n=0 status
  # Lower priority, so that compilers start faster.
  renice -n 5 "$BASHPID" >/dev/null
  # Stop also if the lab itself has failed.
  until [ -e "$LOOPS/stop" ] || ! kill -0 $$ 2>/dev/null; do
    n=$((n + 1)) status=0
    agent_run "$1" >"$LOOPS/$1.$n.out" 2>&1 || status=$?
    echo "$1 $n $status" >>"$LOOPS/runs"
  done
}

loops_stop() {
  : >"$LOOPS/stop"
  wait "${LOOP_PIDS[@]}"
}

# Neither a run nor a request has failed since loops_start. Also prints how many TLS sessions were resumed.
no_run_failed() { # no_run_failed [NAME]: except requests of that agent
  failed_records | grep -vF "\"certname\":\"${1:-}.$DOMAIN\"" >"$OUTPUT" || :
  [ ! -s "$OUTPUT" ] || broken "requests failed"
  ! grep -vE ' [02]$' "$LOOPS/runs" >"$OUTPUT" || broken "runs failed"
  say "    $(wc -l <"$LOOPS/runs") runs; $(connections '"user_agent":"Puppet') connections of agents, $(connections '"resumed":true') of them resumed a session"
}
# connections TEXT: how many had a record with this text since loops_start. In such a short time, no port is used twice.
connections() { on_all ports "$1" | wc -l; }
ports() { records_of_one | sed -nE "/$1/s/.*\"port\":([0-9]+).*/\1/p" | sort -u; }

# Records of requests that were refused or failed since mark_records.
failed_records() {
  new_records | grep -E '"status":(null|[45])|"reason":"' || :
}

# A catalog or a report that was sent to a compiler, which then closed the connection or answered that it is stopping.
MUST_NOT_BE_REPEATED='"method":"(POST|PUT)".*("status":502,.*"reason":"member-closed"|"status":503,.*"reason":null).*"member":"m[12]\..*"attempts":[1-9]'

# Each failed run has a failed request of its own.
runs_are_explained() {
  local name runs requests
  for name in "$one" "$two" "$busy"; do
    runs=$(grep -cE "^$name .* ([13-9]|[0-9]{2,})$" "$LOOPS/runs" || :)
    requests=$(grep -cF "\"certname\":\"$name.$DOMAIN\"" "$LOOPS/failed" || :)
    cp "$LOOPS/failed" "$OUTPUT"
    [ "$runs" -le "$requests" ] || broken "$runs runs of $name failed, but only $requests requests"
  done
}
