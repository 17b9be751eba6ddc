# The findings of proscenium doctor on real servers: the lab's compilers are open, and further faults are created one by one in
# copies of the files. No server is changed. Sourced by lab.

CLINIC=$LAB_DIR/doctor

doctor_finds_faults() {
  promise "the doctor finds that the lab's compilers are open, and nothing else wrong with real servers" finds_the_lab_open
  promise "the doctor finds fourteen faults, created one by one" finds_what_is_planted
}

finds_the_lab_open() {
  clinic
  diagnosed 2 "failure  outside-anonymous: m1" "failure  outside-agent: m1" "failure  outside-plain: m1"
  printed "^passed: .*crl, crl-fresh, member-reached, member-certificate, credential-accepted, status, jrubies, clock, service"
  printed "headers-read, own-node, others-node, unknown-client, ca-headers, ca-rights"
  printed "head-room"
  printed "^note     environments: m1" && printed "environment_timeout. is 0 in production"
  grep -aE '^(failure|warning)' "$OUTPUT" | grep -avE ' outside-[a-z]*: m[12]' && broken "there are other findings"
  grep -aE '"(PUT|POST|DELETE) ' "$LAB_DIR"/*/log/access.log | grep -a proscenium-doctor && broken "a member got a request that changes something"
  return 0
}

finds_what_is_planted() {
  clinic; chmod o+r "$CLINIC/own.key"; diagnosed 78 "failure  configuration: .*" && printed "open to everyone"
  clinic; chmod o+w "$CLINIC/ca.pem"; diagnosed 2 "failure  files: .*ca.pem"
  clinic; clinic_certificate own 20200101000000Z 20200201000000Z; diagnosed 2 "failure  certificate-dates: .*own.pem"
  clinic; clinic_certificate own 20200101000000Z "$(date -u -d '+5 days' +%Y%m%d%H%M%SZ)"; diagnosed 2 "warning  certificate-dates: .*own.pem"
  clinic; clinic_with_rights; diagnosed 78 "failure  configuration: " && printed "pp_cli_auth"
  clinic; clinic_crl 20200101000000Z 20200102000000Z; diagnosed 2 "failure  crl: CN=Puppet CA"
  clinic; clinic_crl "" "" "$(openssl x509 -noout -serial -in "$CLINIC/own.pem" | cut -d= -f2)"; diagnosed 2 "failure  own-certificate: .*own.pem"
  clinic; openssl crl -in "$CLINIC/crl.pem" -out "$CLINIC/one.pem"; mv "$CLINIC/one.pem" "$CLINIC/crl.pem"; diagnosed 2 "failure  crl: CN=Puppet.*"
  clinic; clinic_self_signed; diagnosed 2 "failure  credential-accepted: m1"
  clinic; COMPILER="\"m1.$DOMAIN:1\""; diagnosed 2 "failure  member-reached: m1"
  clinic; COMPILER="{ address = \"m1.$DOMAIN:$TLS_PORT\", server_name = \"m9.$DOMAIN\" }"; diagnosed 2 "failure  member-certificate: m1"
  clinic; COMPILER="\"ca.$DOMAIN:$TLS_PORT\""; diagnosed 2 "failure  headers-read: ca" "failure  unknown-client: ca"
  clinic; CA="\"m1.$DOMAIN:$TLS_PORT\""; diagnosed 2 "failure  service: m1" "failure  ca-headers: m1"
  clinic; CA="\"m1.$DOMAIN:$PLAIN_PORT\""; diagnosed 2 "failure  member-reached: m1.*$PLAIN_PORT"
}

# --- helpers that create faults -----------------------------------------------------------------------

# A valid set-up: copies of the files that an operator gives the proxy, so that each of them can be broken.
clinic() {
  local ssl=$LAB_DIR/proxy/ssl
  rm -rf "$CLINIC"
  mkdir -p "$CLINIC"
  cp "$ssl/certs/puppet.$DOMAIN.pem" "$CLINIC/own.pem"
  cp "$ssl/private_keys/puppet.$DOMAIN.pem" "$CLINIC/own.key"
  cp "$ssl/certs/puppet.$DOMAIN.pem" "$CLINIC/member.pem"
  cp "$ssl/private_keys/puppet.$DOMAIN.pem" "$CLINIC/member.key"
  cp "$ssl/certs/ca.pem" "$CLINIC/ca.pem"
  curl -sf "http://$(address ca):$PLAIN_PORT/puppet-ca/v1/certificate_revocation_list/ca" >"$CLINIC/crl.pem"
  chmod 600 "$CLINIC"/*.key
  chmod 644 "$CLINIC"/*.pem
  CA="\"ca.$DOMAIN:$TLS_PORT\"" COMPILER="\"m1.$DOMAIN:$TLS_PORT\""
}

diagnosed() { # diagnosed STATUS WORDS...: the doctor exits with STATUS and prints each of WORDS at the beginning of a line
  local status=$1 words
  shift
  cat >"$CLINIC/proscenium.toml" <<X
[listeners.agents]
address = "$(address proxy):$TLS_PORT"
[tls]
certificates = [{ chain = "$CLINIC/own.pem", key = "$CLINIC/own.key" }]
[trust]
ca = "$CLINIC/ca.pem"
crl = "$CLINIC/crl.pem"
[trust.fetch]
enabled = false
[upstream.tls]
chain = "$CLINIC/member.pem"
key = "$CLINIC/member.key"
[pools.ca]
members = [$CA]
[pools.compilers]
members = [$COMPILER]
[admin]
socket = "$CLINIC/admin.sock"
[state]
directory = "$CLINIC/state"
X
  expect "$status" doctor --config "$CLINIC/proscenium.toml" --agent-cert "$LAB_DIR/$first/ssl/certs/$first.$DOMAIN.pem" \
    --agent-key "$LAB_DIR/$first/ssl/private_keys/$first.$DOMAIN.pem"
  for words; do printed "^$words"; done
}

# Certificates and CRLs that a CA server would not create: openssl makes them with the CA's key.
clinic_ca() {
  openssl x509 -in "$LAB_DIR/ca/cadir/ca_crt.pem" -out "$CLINIC/issuer.pem"
  : >"$CLINIC/index.txt"
  echo F001 >"$CLINIC/serial"
  echo 1000 >"$CLINIC/crlnumber"
  cat >"$CLINIC/openssl.cnf" <<X
[ca]
default_ca = lab
[lab]
database = $CLINIC/index.txt
new_certs_dir = $CLINIC
serial = $CLINIC/serial
crlnumber = $CLINIC/crlnumber
certificate = $CLINIC/issuer.pem
private_key = $LAB_DIR/ca/cadir/ca_key.pem
default_md = sha256
default_days = 30
default_crl_days = 30
policy = any
x509_extensions = leaf
crl_extensions = list
[any]
commonName = supplied
[leaf]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature,keyEncipherment
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = DNS:puppet.$DOMAIN,DNS:puppet
authorityKeyIdentifier = keyid
[list]
authorityKeyIdentifier = keyid
X
}

clinic_certificate() { # clinic_certificate NAME BEGIN END: for the existing key
  clinic_ca
  openssl req -new -key "$CLINIC/$1.key" -subj "/CN=puppet.$DOMAIN" -out "$CLINIC/$1.csr"
  openssl ca -batch -notext -config "$CLINIC/openssl.cnf" -startdate "$2" -enddate "$3" -in "$CLINIC/$1.csr" \
    -out "$CLINIC/$1.pem" 2>"$CLINIC/openssl.log"
}

clinic_crl() { # clinic_crl BEGIN END [SERIAL]: the CRL of the issuing CA, followed by the root's
  local times=() lists=$CLINIC/crl.pem
  clinic_ca
  [ -z "$1" ] || times=(-crl_lastupdate "$1" -crl_nextupdate "$2")
  [ -z "${3:-}" ] || printf 'R\t%s\t%s\t%s\tunknown\t/CN=puppet.%s\n' 401231235959Z 250101000000Z "$3" "$DOMAIN" >"$CLINIC/index.txt"
  openssl ca -gencrl -config "$CLINIC/openssl.cnf" "${times[@]}" -out "$CLINIC/issued.pem" 2>"$CLINIC/openssl.log"
  # The root's CRL: the block that the root has signed.
  awk -v dir="$CLINIC" '/-----BEGIN/ { n++ } { print > (dir "/list." n) }' "$lists"
  local list root
  for list in "$CLINIC"/list.*; do
    openssl crl -noout -issuer -in "$list" | grep -q "Root" && root=$list
  done
  cat "$CLINIC/issued.pem" "$root" >"$lists"
}

# The CA server's own certificate towards members.
clinic_with_rights() {
  cp "$LAB_DIR/ca/ssl/certs/ca.$DOMAIN.pem" "$CLINIC/member.pem"
  cp "$LAB_DIR/ca/ssl/private_keys/ca.$DOMAIN.pem" "$CLINIC/member.key"
  chmod 600 "$CLINIC/member.key"
}

# A self-signed certificate towards members.
clinic_self_signed() {
  openssl req -x509 -newkey rsa:2048 -nodes -keyout "$CLINIC/member.key" -out "$CLINIC/member.pem" -days 100 \
    -subj "/CN=puppet.$DOMAIN" 2>"$CLINIC/openssl.log"
  chmod 600 "$CLINIC/member.key"
}
