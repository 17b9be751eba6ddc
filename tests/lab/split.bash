# Services on separate servers, with conf/split-services.toml: catalogs and reports at m1, files at m2 in plain HTTP, and
# m2 over TLS as the compiler for debugging. With MEMBERS=split; sourced by lab.

split() {
  local run=$MEMBERS$$ # names no run before this one used
  web=$run-web.auto; debug=debug-$run.auto
  promise "a run gets its catalog from one server and its files from another, both with the agent's identity" split_run
  promise "the debug header sends a developer's run to the debug compiler, and no other agent's" debug_run
  promise "a client's own identity headers reach neither the compilers nor the file servers" split_is_not_forged
}

split_run() {
  expect 0 agent_enrol "$web"
  expect 2 agent_run "$web"
  expect 0 cmp "$LAB_DIR/$web/out/big" "$LAB_DIR/code/environments/production/modules/lab/files/big"
  # Trusted facts: the certificate reached the compiler. Plugins are files, so they came from the file server.
  expect 0 diff "$LAB_DIR/$web/out/motd" - <<-X
	certname $web.$DOMAIN
	authenticated remote
	role web
	plugin synced synced
	X
  # A record is written after its response.
  wait_for 10 "the report's record at m1" served m1 "PUT /puppet/v3/report/" "$web"
  served m1 "POST /puppet/v3/catalog/" "$web" || broken "m1 did not compile"
  served m2 "GET /puppet/v3/file_metadatas/" "$web" || broken "m2 served no metadata"
  served m2 "GET /puppet/v3/file_content/" "$web" || broken "m2 served no content"
  ! served m1 "GET /puppet/v3/file_" "$web" || broken "m1 served files"
  ! served m2 "P[A-Z]* /puppet/v3/(catalog|report)/" "$web" || broken "m2 got a catalog or a report"
}

debug_run() {
  local header="X-Puppet-Debug:on"
  expect 0 agent_enrol "$debug"
  expect 2 agent_run "$debug" --http_extra_headers "$header"
  wait_for 10 "the report's record at m2" served m2 "PUT /puppet/v3/report/" "$debug"
  served m2 "POST /puppet/v3/catalog/" "$debug" || broken "m2 did not compile"
  ! served m1 "[A-Z]+ /puppet/v3/" "$debug" || broken "m1 got a request of the debug run"
  expect "0 2" agent_run "$web" --http_extra_headers "$header"
  ! served m2 "POST /puppet/v3/catalog/" "$web" || broken "m2 compiled for an agent that is not a developer's"
}

split_is_not_forged() {
  local path forged=(-H "X-Client-DN: CN=$debug.$DOMAIN" -H "X-Client-Verify: SUCCESS" -w ' status %{http_code}')
  for path in /puppet/v3/node/ /puppet/v3/catalog/; do
    expect 0 request "$web" "$path$debug.$DOMAIN?environment=production" "${forged[@]}"
    printed "status 403"
  done
  expect 0 request "$web" "/puppet/v3/file_metadata/modules/lab/small?environment=production&probe=$$" "${forged[@]}"
  printed "status 200"
  wait_for 10 "the record at m2" served m2 "GET /puppet/v3/file_metadata/modules/lab/small[^ ]*probe=$$ " "$web"
  expect 0 request - "/puppet/v3/file_metadata/modules/lab/small?environment=production" "${forged[@]}"
  printed "status 403"
}

# served NAME REGEX AGENT: whether that server has answered such a request with the agent's identity
served() {
  [ "$(requests_at "$1" "\"$2.* verify=SUCCESS dn=[^ ]*CN=$3.$DOMAIN")" -gt 0 ]
}
