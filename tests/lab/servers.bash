# The CA and the compilers: configuration, start, stop. Sourced by lab.

TLS_PORT=8140
PLAIN_PORT=8080

address() {
  case $1 in
  proxy) echo "$LAB_NET.10" ;;
  ca) echo "$LAB_NET.11" ;;
  m[1-9]) echo "$LAB_NET.$((11 + ${1#m}))" ;;
  p[1-9]) echo "$LAB_NET.$((20 + ${1#p}))" ;;
  etcd) echo "$LAB_NET.30" ;;
  *) die "no address for $1" ;;
  esac
}

# A root and an intermediate CA as Puppet makes them, and the site that the compilers serve.
ca_make() {
  mkdir -p "$LAB_DIR/code"
  cp -r "$LAB_SOURCE/site/." "$LAB_DIR/code/"
  head -c 2000000 /dev/urandom >"$LAB_DIR/code/environments/production/modules/lab/files/big"
  puppet_conf ca ca "autosign = $LAB_DIR/ca/autosign.conf"
  { echo "puppet.$DOMAIN"; for name in $COMPILERS $FLEET; do echo "$name.$DOMAIN"; done; echo "*.auto.$DOMAIN"; } >"$LAB_DIR/ca/autosign.conf"
  server_conf ca
  puppetserver ca setup --config "$LAB_DIR/ca/puppet.conf" --ca-name 'Puppet CA: lab' --subject-alt-names "ca.$DOMAIN" >"$LAB_DIR/ca/log/setup.log"
  say "CA made"
}

ca_start() {
  server_start ca
  wait_running ca
}

servers_start() {
  local name enrolments=()
  ca_start
  proxy_conf
  enrol proxy & enrolments+=($!)
  for name in $COMPILERS; do
    puppet_conf "$name" ca "dns_alt_names = puppet"
    enrol "$name" & enrolments+=($!)
    server_conf "$name"
  done
  for name in "${enrolments[@]}"; do wait "$name" || die "not enrolled: $(tail -n 12 "$LAB_DIR"/*/bootstrap.log "$LAB_DIR"/ca/log/*.log)"; done
  for name in $COMPILERS; do server_start "$name"; done
  for name in $COMPILERS; do wait_running "$name"; done
}
# Several enrolments at once at a CA that has just started, on a full machine, failed once. The command continues where it
# stopped, and its output is shown if it fails again.
enrol() {
  local tries
  for tries in 1 2 3; do
    puppet ssl bootstrap --waitforcert 1 --confdir "$LAB_DIR/$1" >>"$LAB_DIR/$1/bootstrap.log" 2>&1 && return
    say "$1 is not enrolled, try $tries"
  done
  return 1
}

puppet_conf() { # puppet_conf NAME SERVER [LINE]: the puppet.conf of one server or agent
  local dir=$LAB_DIR/$1
  mkdir -p "$dir/var"
  cat >"$dir/puppet.conf" <<-X
	[main]
	confdir = $dir
	vardir = $dir/var
	ssldir = $dir/ssl
	cadir = $dir/cadir
	codedir = $dir/code
	certname = ${CERTNAME:-$1}.$DOMAIN
	server = $2.$DOMAIN
	user = root
	group = root
	${3:-}
	X
}

# The stock rules and services. Compilers trust the proxy's headers and do not run the CA service.
server_conf() { # server_conf NAME
  local name=$1 dir=$LAB_DIR/$1 stock=/etc/puppet/puppetserver template
  mkdir -p "$dir"/{conf.d,services.d,log,run,gems,code}
  for template in puppetserver.conf logback.xml request-logging.xml; do
    sed -e "s|@dir@|$dir|g; s|@code@|$LAB_DIR/code|g; s|@name@|$name.$DOMAIN|g" \
      -e "s|@address@|$(address "$name")|g; s|@tls@|$TLS_PORT|g; s|@plain@|$PLAIN_PORT|g; s|@ca@|$CA_SETTINGS|" \
      "$LAB_SOURCE/config/$template" >"$dir/conf.d/$template"
  done
  mv "$dir"/conf.d/*.xml "$dir/"
  cp "$stock"/conf.d/{web-routes,metrics}.conf "$dir/conf.d/"
  cp "$stock/services.d/bootstrap.cfg" "$dir/services.d/"
  if [ "$name" = ca ]; then
    cp "$stock/conf.d/auth.conf" "$dir/conf.d/"
    cp "$stock/services.d/ca.cfg" "$dir/services.d/"
  else
    sed 's/^ *version: 1$/&\n    allow-header-cert-info: true/' "$stock/conf.d/auth.conf" >"$dir/conf.d/auth.conf"
    grep -q allow-header-cert-info "$dir/conf.d/auth.conf" || die "the stock auth.conf has another shape"
    echo puppetlabs.services.ca.certificate-authority-disabled-service/certificate-authority-disabled-service >"$dir/services.d/ca.cfg"
  fi
}

# Debian's jars contain Clojure sources, which a server compiles at each start. The lab compiles them once: a start then takes 10
# CPU seconds in place of 17. (A class-data archive of the JVM saves nothing, because most classes are made at run time.)
classes_make() {
  local services
  CLASSES=$LAB_CACHE/classes-$(puppetserver_version)
  [ ! -d "$CLASSES" ] || return 0
  rm -rf "$CLASSES.new"
  mkdir "$CLASSES.new"
  services=$(sed -n 's|^#\{0,1\}\(puppetlabs\.[^/]*\)/.*|\1|p' /etc/puppet/puppetserver/services.d/*.cfg | sort -u)
  java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dclojure.compile.path="$CLASSES.new" -cp "$CLASSES.new:$SERVER_JAR" \
    clojure.main -e "(run! compile '[$SERVER_MAIN $services])" >"$LAB_CACHE/classes.log" 2>&1 ||
    { tail -n 20 "$LAB_CACHE/classes.log" >&2; die "Puppet Server cannot be compiled"; }
  mv "$CLASSES.new" "$CLASSES"
  say "classes of Puppet Server compiled"
}
SERVER_JAR=/usr/share/puppetserver/puppetserver.jar
SERVER_MAIN=puppetlabs.trapperkeeper.main
puppetserver_version() { dpkg-query -W -f '${Version}' puppetserver; }

server_start() { # server_start NAME: in the background; one compiling thread, the quick compiler, a small heap
  local dir=$LAB_DIR/$1
  classes_make
  java "-Xms$LAB_HEAP" "-Xmx$LAB_HEAP" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Djruby.logger.class=com.puppetlabs.jruby_utils.jruby.Slf4jLogger -Djruby.lib=/usr/share/jruby/lib \
    -cp "$CLASSES:$SERVER_JAR" $SERVER_MAIN \
    --config "$dir/conf.d" --bootstrap-config "$dir/services.d" --restart-file "$dir/run/restart" \
    >"$dir/log/stdout.log" 2>&1 </dev/null &
  started "$1"
}

wait_running() { # wait_running NAME: until its status is running
  wait_for 600 "$1 to run" server_running "$1"
  say "$1 runs"
}
server_running() {
  alive "$1" || die "$1 is gone: $(tail -n 3 "$LAB_DIR/$1/log/stdout.log")"
  [ "$(curl -s -m 2 "http://$(address "$1"):$PLAIN_PORT/status/v1/simple")" = running ]
}

requests_at() { # requests_at NAME EXTENDED-REGEX: the number of matching lines in its access log
  grep -cE "$2" "$LAB_DIR/$1/log/access.log" || :
}

wait_for() { # wait_for SECONDS WHAT COMMAND...: until the command succeeds
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] || die "gave up waiting for $what"
    sleep 0.1
  done
}

started() { # started NAME: record the process ID of the last background process, and disown it so that the shell does not report its end
  local tries
  echo $! >"$LAB_DIR/$1.pid"
  disown
  # Until the program is executed, its environment is that of this shell, and alive would not recognize it.
  for tries in $(seq 50); do
    ! alive "$1" && kill -0 "$(cat "$LAB_DIR/$1.pid")" 2>/dev/null || break
    sleep 0.1
  done
}
# Checks the environment too, because after a crash the process ID may belong to another process.
alive() { [ -f "$LAB_DIR/$1.pid" ] && grep -qszFx "LAB_DIR=$LAB_DIR" "/proc/$(cat "$LAB_DIR/$1.pid")/environ"; }
gone() { ! alive "$1"; }

signal() { # signal NAME SIGNAL
  kill "-$2" "$(cat "$LAB_DIR/$1.pid")"
}

stop() { # stop NAME: SIGTERM, then SIGKILL if the process does not exit
  local tries
  if alive "$1"; then
    signal "$1" TERM
    for tries in $(seq 100); do alive "$1" || break; sleep 0.1; done
    if alive "$1"; then echo "lab: $1 did not exit within ${tries}00 ms of SIGTERM" >&2; signal "$1" KILL; fi
  fi
  rm -f "$LAB_DIR/$1.pid"
}
