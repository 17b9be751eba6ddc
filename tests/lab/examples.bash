# An example of conf/ as it is, but for addresses and paths, with real agents. With MEMBERS=NAME.toml; sourced by lab.

examples() {
  local run=${MEMBERS%.toml}$$ # names no run before this one used
  manual=$run-manual; first=$run-first.auto; second=$run-second.auto; gone=$run-gone.auto; late=$run-late.auto
  promise "an unsigned agent leaves its request and goes" leaves_its_request
  promise "a signed agent's first run brings plugins, catalog, files and report" first_run
  promise "agents that the CA signs at once enrol through the proxy" enrols
  promise "two compilers share the requests" compilers_share
  promise "a client's own identity headers get it no other agent's documents" example_is_not_forged
  promise "a revoked agent is refused with a sentence" revoked_is_refused
}

example_is_not_forged() {
  local path forged=(-H "X-Client-DN: CN=$second.$DOMAIN" -H "X-Client-Verify: SUCCESS" -w ' status %{http_code}')
  for path in /puppet/v3/node/ /puppet/v3/catalog/; do
    expect 0 request "$first" "$path$second.$DOMAIN?environment=production" "${forged[@]}"
    printed "status 403"
    expect 0 request - "$path$second.$DOMAIN?environment=production" "${forged[@]}"
    printed "status 403"
  done
  expect 0 request "$first" "/puppet/v3/node/$first.$DOMAIN?environment=production" "${forged[@]}"
  printed "status 200"
}
