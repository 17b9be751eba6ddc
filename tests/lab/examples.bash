# An example of conf/ with the addresses and paths of the lab, and real agents. With MEMBERS=NAME.toml; sourced by lab.

examples() {
  local run=${MEMBERS%.toml}$$ # names no run before this one used
  manual=$run-manual; first=$run-first.auto; second=$run-second.auto; gone=$run-gone.auto; late=$run-late.auto
  promise "an unsigned agent submits its certificate request and exits" submits_its_request
  promise "a signed agent's first run transfers plugins, catalog, files and report" first_run
  promise "agents that the CA signs at once enrol through the proxy" enrols
  promise "two compilers share the requests" compilers_share
  promise "a client cannot get another agent's documents with identity headers of its own" example_is_not_forged
  if grep -q ':8142"' "$LAB_DIR/proxy/proscenium.toml"; then
    promise "the TLS connection of an agent for remote commands reaches a broker unchanged" broker_sees_the_agent
  fi
  promise "a revoked agent is refused with a message" revoked_is_refused
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

# Debian has no broker. A server that shows its client's certificate takes its role.
broker_sees_the_agent() {
  local name
  for name in $COMPILERS; do broker_start "$name"; done
  for name in $COMPILERS; do wait_for 10 "the broker at $name" shows_its_client "$(address "$name")"; done
  wait_for 30 "a broker through the proxy" shows_its_client "$(address proxy)"
  cp "$LAB_DIR/$first/broker" "$OUTPUT"
  # The agent sees the broker's certificate, and the broker the agent's: the proxy did not terminate TLS.
  printed "subject=.*CN ?= ?m[1-9]\\.$DOMAIN"
  printed "Subject:.*CN ?= ?$first\\.$DOMAIN"
  for name in $COMPILERS; do stop "$name-broker"; done
}
broker_start() { # broker_start COMPILER
  local ssl=$LAB_DIR/$1/ssl
  openssl s_server -accept "$(address "$1"):8142" -cert "$ssl/certs/$1.$DOMAIN.pem" -key "$ssl/private_keys/$1.$DOMAIN.pem" \
    -CAfile "$ssl/certs/ca.pem" -Verify 2 -www >"$LAB_DIR/$1/log/broker.log" 2>&1 </dev/null &
  started "$1-broker"
}
shows_its_client() { # shows_its_client ADDRESS: whether the broker reached there shows the certificate of the agent $first
  local ssl=$LAB_DIR/$first/ssl
  printf 'GET / HTTP/1.0\r\n\r\n' | timeout 5 openssl s_client -connect "$1:8142" -ign_eof -servername "puppet.$DOMAIN" \
    -cert "$ssl/certs/$first.$DOMAIN.pem" -key "$ssl/private_keys/$first.$DOMAIN.pem" -CAfile "$ssl/certs/ca.pem" 2>/dev/null |
    tee "$LAB_DIR/$first/broker" | grep -a "Subject:.*$first" >/dev/null
}
