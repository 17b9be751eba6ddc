# Compilers restart while agents run in loops: no run fails after a drain, and after SIGTERM alone the access log explains
# each failed run. With MEMBERS=load; sourced by lab.

. "$LAB_SOURCE/../adapters/proscenium.bash"

load() {
  local run=$MEMBERS$$ # names no run before this one used
  one=$run-one.auto; two=$run-two.auto; busy=$run-busy.auto
  promise "agents enrol, and their first runs pass" first_runs
  promise "two compilers restarted in turn after drain fail no run" drained_restarts_fail_no_run
  promise "two compilers restarted by SIGTERM alone fail only requests that they had and that must not be repeated" \
    restarts_fail_only_what_must_not_be_repeated
}

first_runs() {
  local name
  for name in "$one" "$two" "$busy"; do
    expect 0 agent_enrol "$name"
    expect 2 agent_run "$name"
  done
}

drained_restarts_fail_no_run() {
  local name
  loops_start
  hold_a_catalog
  for name in $HOLDER $OTHER; do
    drain "$name"
    restart "$name"
    expect 0 verb ready compilers "$(member "$name")"
    wait_for 60 "the proxy to use $name again" proxy_uses "$name"
  done
  loops_stop
  failed_records >"$OUTPUT"
  [ ! -s "$OUTPUT" ] || broken "requests failed"
  ! grep -vE ' [02]$' "$LOOPS/runs" >"$OUTPUT" || broken "runs failed"
  say "    $(wc -l <"$LOOPS/runs") runs"
}

# The first compiler gets SIGKILL like from a service manager whose stop timeout ends: a catalog is still being compiled.
restarts_fail_only_what_must_not_be_repeated() {
  local name
  loops_start
  hold_a_catalog
  stop "$HOLDER" 2>/dev/null
  end_held_run 1
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

# --- what these are made of ------------------------------------------------------------------------

member() { echo "$1.$DOMAIN:$TLS_PORT"; } # member NAME: as the configuration names it

# A catalog is being compiled until end_held_run: HOLDER is the compiler that does it, OTHER the other one.
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

drain() { # drain NAME: until the proxy shows no request of that compiler; a held catalog ends meanwhile
  expect 0 verb drain compilers "$(member "$1")"
  if [ "${HELD:-}" ]; then
    proxy_shows "$1" ".* [1-9][0-9]* in flight" || broken "a catalog is being compiled, but the proxy shows no request"
    end_held_run "0 2"
  fi
  wait_for 60 "$1 to have no request" proxy_shows "$1" ".* 0 in flight"
}

restart() { # restart NAME: by SIGTERM, if it runs
  ! alive "$1" || signal "$1" TERM
  wait_for 60 "$1 to end" gone "$1"
  server_start "$1"
  wait_running "$1"
}

proxy_shows() { # proxy_shows NAME REGEX: in the line of that compiler
  verb status | grep -qE "^ +$1\.$DOMAIN:$TLS_PORT +$2"
}
proxy_uses() { proxy_shows "$1" "up +ready "; }

# Agents that run again and again until loops_stop. LOOPS has the output of each run, and in `runs` a line for each: the
# agent, a number, the exit status.
loops_start() {
  local name
  BEFORE=$(wc -l <"$LAB_DIR/proxy/log/access.log")
  LOOPS=$(mktemp -d "$LAB_DIR/loops.XXXXXX")
  LOOP_PIDS=()
  for name in "$one" "$two"; do
    run_in_a_loop "$name" & LOOP_PIDS+=($!)
  done
  wait_for 60 "an agent's run" test -s "$LOOPS/runs"
}

run_in_a_loop() { # run_in_a_loop NAME
  local n=0 status
  # The lab itself may have failed.
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

# Records since loops_start of requests that were refused or failed.
failed_records() {
  tail -n "+$((BEFORE + 1))" "$LAB_DIR/proxy/log/access.log" | grep -E '"status":(null|[45])|"reason":"' || :
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
