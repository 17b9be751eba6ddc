//! Connections that a listener passes through without terminating TLS.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use testkit::{Ca, Proxy, StandIn, wait_until};

use crate::support::{
    Estate, LIMIT, done,
    layer4::{Broker, assert_echo, connect, listener_address, read_to_end},
    passthrough::{passing, pool, record, start},
    set_state, wait_for,
};

fn metric(proxy: &Proxy, name: &str, labels: &[(&str, &str)]) -> f64 {
    proxy.metrics().sum(name, labels)
}

#[test]
fn bytes_pass_unchanged_in_both_directions_and_are_counted() {
    let broker = Broker::echo();
    let (estate, pcp) = start(passing(&[&broker], ""));
    let mut client = connect(pcp);
    let local = client.local_addr().expect("an address");
    for piece in [
        &b"\x16\x03\x01"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 70_000],
    ] {
        assert_echo(&mut client, piece);
    }
    let sent = 3 + 18 + 70_000;
    let member = [("pool", "brokers"), ("member", &*broker.address())];
    let proxy = &estate.proxy;
    assert_eq!(
        metric(proxy, "proscenium_member_passthrough_open", &member),
        1.0
    );
    assert_eq!(
        metric(
            proxy,
            "proscenium_member_passthrough_connections_total",
            &member
        ),
        1.0
    );
    for from in ["client", "member"] {
        let labels = [member[0], member[1], ("from", from)];
        let bytes = metric(proxy, "proscenium_member_passthrough_bytes_total", &labels);
        assert_eq!(bytes, f64::from(sent), "while it is open");
    }
    let status = proxy.status().to_string();
    assert!(status.contains("\"tunnels\":1"), "{status}");
    client.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(read_to_end(&mut client), b"");
    let record = record(proxy);
    assert_eq!(record["listener"], "pcp");
    assert_eq!(record["pool"], "brokers");
    assert_eq!(record["member"], broker.address());
    assert_eq!(record["bytes_in"], sent);
    assert_eq!(record["bytes_out"], sent);
    assert_eq!(record["ended_by"], "client");
    assert!(record["reason"].is_null());
    assert!(record["status"].is_null());
    assert!(record["method"].is_null());
    assert_eq!(record["client"], "127.0.0.1");
    assert_eq!(record["port"], local.port());
    assert!(
        record["total_us"].is_u64() && record["connect_us"].is_u64(),
        "{record}"
    );
    assert_eq!(record["attempts"], 1);
    wait_for("the place is free again", || {
        metric(proxy, "proscenium_member_passthrough_open", &member) == 0.0
    });
}

#[test]
fn a_member_that_sends_first_is_passed_on_at_once() {
    let broker = Broker::start(|stream, _| {
        let _ = stream.write_all(b"220 ready\r\n");
        let _ = stream.read(&mut [0; 16]);
    });
    let (_estate, pcp) = start(passing(&[&broker], ""));
    let mut client = connect(pcp);
    let mut greeting = [0; 11];
    client.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(&greeting, b"220 ready\r\n");
}

#[test]
fn a_half_close_is_passed_on_and_the_other_direction_stays_open() {
    // The server answers only after its peer has sent everything.
    let broker = Broker::start(|stream, keep| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        keep(&all);
        let _ = stream.write_all(b"goodbye");
    });
    let (estate, pcp) = start(passing(&[&broker], ""));
    let mut client = connect(pcp);
    client.write_all(b"hello").expect("sends");
    client.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(read_to_end(&mut client), b"goodbye");
    assert_eq!(record(&estate.proxy)["ended_by"], "client");

    // The same with the server closing its direction first.
    let broker = Broker::start(|stream, keep| {
        let _ = stream.write_all(b"hello");
        let _ = stream.shutdown(Shutdown::Write);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        keep(&all);
    });
    let (estate, pcp) = start(passing(&[&broker], ""));
    let mut client = connect(pcp);
    assert_eq!(read_to_end(&mut client), b"hello");
    client.write_all(b"goodbye").expect("sends");
    client.shutdown(Shutdown::Write).expect("a socket");
    wait_for("all of it arrives", || broker.received() == [b"goodbye"]);
    assert_eq!(record(&estate.proxy)["ended_by"], "member");
}

#[test]
fn a_reset_is_passed_on_as_a_reset() {
    let broker = Broker::start(|stream, keep| {
        let mut piece = [0; 16];
        match stream.read(&mut piece) {
            Ok(length) if piece[..length] == *b"reset" => {
                rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))
                    .expect("a socket");
            }
            Ok(_) => {
                if let Err(error) = stream.read(&mut piece) {
                    keep(format!("{:?}", error.kind()).as_bytes());
                }
            }
            Err(_) => {}
        }
    });
    let (estate, pcp) = start(passing(&[&broker], ""));
    let mut client = connect(pcp);
    client.write_all(b"reset").expect("sends");
    let error = client.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let record = record(&estate.proxy);
    assert_eq!(record["ended_by"], "member");
    assert_eq!(record["reason"], "member-closed");

    let mut client = connect(pcp);
    client.write_all(b"stay").expect("sends");
    wait_for("it arrives", || broker.open() == 1);
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).expect("a socket");
    drop(client);
    wait_for("the member sees a reset", || {
        broker.received() == [b"ConnectionReset"]
    });
    let record = estate.wait_for_record(|record| record["ended_by"] == "client");
    assert_eq!(record["reason"], "client-gone");
}

#[test]
fn an_idle_tunnel_is_closed_and_the_default_is_an_hour() {
    let broker = Broker::echo();
    let (estate, pcp) = start(passing(&[&broker], "tunnel_idle_timeout = \"300ms\""));
    let mut client = connect(pcp);
    assert_echo(&mut client, b"hello");
    let began = Instant::now();
    assert_eq!(read_to_end(&mut client), b"");
    assert!(
        began.elapsed() >= Duration::from_millis(200),
        "{:?}",
        began.elapsed()
    );
    let record = record(&estate.proxy);
    assert_eq!(record["reason"], "tunnel-idle-timeout");
    assert_eq!(record["ended_by"], "proxy");
    wait_for("the member's end is closed", || broker.open() == 0);
    let limit = [("limit", "tunnel_idle_timeout"), ("listener", "pcp")];
    assert_eq!(
        metric(&estate.proxy, "proscenium_limits_hit_total", &limit),
        1.0
    );

    let (estate, _) = start(passing(&[&broker], ""));
    let shown = done(&estate.proxy, &["config", "show"], &["--defaults"]);
    let brokers = shown.split("[pools.brokers]").nth(1).expect("the pool");
    assert!(
        brokers.contains("tunnel_idle_timeout = \"1h\""),
        "{brokers}"
    );
}

#[test]
fn tcp_keepalive_is_on_for_both_sides() {
    let broker = Broker::echo();
    let (estate, pcp) = start(passing(&[&broker], ""));
    let mut client = connect(pcp);
    assert_echo(&mut client, b"hello");
    let towards_client = client.local_addr().expect("an address").port();
    let towards_member: u16 = broker
        .address()
        .rsplit_once(':')
        .expect("a port")
        .1
        .parse()
        .expect("a port");
    for port in [towards_client, towards_member] {
        let armed = wait_until(LIMIT, || {
            let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", estate.proxy.pid()));
            has_keepalive(&table.expect("procfs"), port).then_some(())
        });
        assert!(armed.is_some(), "SO_KEEPALIVE towards port {port}");
    }
}

/// Whether the socket whose peer has this port has a keepalive timer: the kind of timer, then when it ends.
fn has_keepalive(table: &str, peer_port: u16) -> bool {
    const ESTABLISHED: &str = "01";
    const KEEPALIVE: &str = "02:";
    table.lines().skip(1).any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields[2].ends_with(&format!(":{peer_port:04X}"))
            && fields[3] == ESTABLISHED
            && fields[5].starts_with(KEEPALIVE)
    })
}

#[test]
fn another_member_is_used_where_one_cannot_be_reached() {
    let (gone, broker) = (testkit::HeldPort::take(), Broker::echo());
    let members = [gone.address().to_string(), broker.address()];
    let tables = format!(
        "[listeners.pcp]\naddress = \"127.0.0.1:0\"\npassthrough = \"brokers\"\n{}",
        pool(
            &members,
            "algorithm = \"first\"\ncheck = { type = \"none\" }"
        )
    );
    let builder = Estate::builder().compilers(1).with(&tables);
    let (estate, pcp) = start(builder);
    assert_echo(&mut connect(pcp), b"hello");
    let record = record(&estate.proxy);
    assert_eq!(record["attempts"], 2);
    assert_eq!(record["member"], broker.address());
    let failed = [("pool", "brokers"), ("result", "connect")];
    assert_eq!(
        metric(&estate.proxy, "proscenium_attempts_total", &failed),
        1.0
    );
    // By now the proxy knows that the member is down.
    assert_echo(&mut connect(pcp), b"hello");
    assert_eq!(
        metric(&estate.proxy, "proscenium_attempts_total", &failed),
        1.0
    );
}

#[test]
fn without_a_member_a_connection_is_closed_with_a_record() {
    let broker = Broker::echo();
    let (estate, pcp) = start(passing(&[&broker], ""));
    set_state(&estate.proxy, "maintenance", "brokers", &broker.address());
    assert_eq!(read_to_end(&mut connect(pcp)), b"");
    let record = record(&estate.proxy);
    assert_eq!(record["reason"], "no-member-available");
    assert!(record["member"].is_null());
    assert_eq!(record["attempts"], 0);
    let refused = [("reason", "no-member-available")];
    assert_eq!(
        metric(&estate.proxy, "proscenium_refusals_total", &refused),
        1.0
    );
    set_state(&estate.proxy, "ready", "brokers", &broker.address());
    estate.wait_for_members(&["brokers"]);
    assert_echo(&mut connect(pcp), b"hello");
}

#[test]
fn a_member_gets_no_more_connections_than_its_maximum() {
    let broker = Broker::echo();
    let members = format!(
        "members = [{{ address = {:?}, max = 1 }}]",
        broker.address()
    );
    let tables = format!(
        "[listeners.pcp]\naddress = \"127.0.0.1:0\"\npassthrough = \"brokers\"\n\
         [pools.brokers]\n{members}\ntrusted_headers_off = true\n"
    );
    let builder = Estate::builder().compilers(1).with(&tables);
    let (estate, pcp) = start(builder);
    let mut first = connect(pcp);
    assert_echo(&mut first, b"hello");
    assert_eq!(read_to_end(&mut connect(pcp)), b"");
    assert_eq!(record(&estate.proxy)["reason"], "members-full");
    drop(first);
    wait_for("the place is free", || {
        let mut next = connect(pcp);
        next.write_all(b"x").is_ok() && matches!(next.read(&mut [0; 1]), Ok(1))
    });
}

#[test]
fn a_check_takes_a_broker_down_and_may_use_tls_on_another_port() {
    let ca = Ca::new();
    let status = StandIn::builder("status")
        .tls(&ca, &ca.server("localhost"))
        .start();
    let port = status.socket_address().port();
    let (first, second) = (Broker::echo(), Broker::echo());
    let members = [first.address(), second.address()];
    let check = format!(
        "algorithm = \"round-robin\"\n[pools.brokers.check]\ntype = \"http\"\nport = {port}\ntls = true\n\
         interval = \"50ms\"\nfall = 1\nrise = 1"
    );
    let members =
        members.map(|address| format!("{{ address = {address:?}, server_name = \"localhost\" }}"));
    let tables = format!(
        "[listeners.pcp]\naddress = \"127.0.0.1:0\"\npassthrough = \"brokers\"\n\
         [pools.brokers]\nmembers = [{}]\ntrusted_headers_off = true\n{check}\n",
        members.join(", ")
    );
    let (estate, pcp) = start(Estate::builder().ca(&ca).compilers(1).with(&tables));
    assert_echo(&mut connect(pcp), b"hello");
    assert!(!status.probes().is_empty(), "over TLS at the other port");
    status.answer(|_| Some(testkit::Reply::status(503)));
    for member in [&first, &second] {
        estate.wait_for_health("brokers", &member.address(), "down");
    }
    assert_eq!(read_to_end(&mut connect(pcp)), b"");
}

/// Opens connections one after another, and returns them in that order.
fn open(pcp: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = connect(pcp);
        assert_echo(&mut client, b"hello");
        clients.push(client);
    }
    clients
}

/// Asserts that the proxy closed these connections, oldest first, for this reason, and took at least this time. The
/// times are those of its records.
#[track_caller]
fn assert_closed_in_turn(proxy: &Proxy, clients: Vec<TcpStream>, reason: &str, least: Duration) {
    let port = |client: &TcpStream| client.local_addr().expect("an address").port();
    let opened: Vec<_> = clients.iter().map(port).collect();
    for mut client in clients {
        assert_eq!(read_to_end(&mut client), b"");
    }
    let closed = || -> Vec<Value> {
        let records = proxy.records().into_iter();
        records
            .filter(|record| record["reason"] == reason)
            .collect()
    };
    wait_for("a record of each", || closed().len() == opened.len());
    let records = closed();
    let closed: Vec<_> = records
        .iter()
        .map(|record| record["port"].clone())
        .collect();
    assert_eq!(closed, opened, "the oldest first");
    assert!(records.iter().all(|record| record["ended_by"] == "proxy"));
    let end = |record: &Value| start_of(record) + record["total_us"].as_u64().expect("a time");
    let (first, last) = (end(&records[0]), end(&records[records.len() - 1]));
    // The time of day restarts at midnight.
    let took = (last + DAY_US - first) % DAY_US;
    assert!(took >= least.as_micros() as u64, "{took} us");
}

const DAY_US: u64 = 86_400_000_000;

/// The time of day at which a connection began, in microseconds.
fn start_of(record: &Value) -> u64 {
    let time = record["time"].as_str().expect("a time");
    let (_, clock) = time.split_once('T').expect("a clock");
    let numbers = clock.trim_end_matches('Z').split([':', '.']);
    let numbers: Vec<u64> = numbers
        .map(|number| number.parse().expect("a number"))
        .collect();
    let [hours, minutes, seconds, micros] = numbers[..] else {
        panic!("{time}")
    };
    ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros
}

#[test]
fn a_reload_that_removes_the_member_closes_its_tunnels_oldest_first_and_not_at_once() {
    let (gone, stays) = (Broker::echo(), Broker::echo());
    let lines = "algorithm = \"first\"\ntunnel_close_rate = 5";
    // One worker, so that all tunnels notice the change at the same time.
    let builder = passing(&[&gone, &stays], lines).top("workers = 1");
    let (estate, pcp) = start(builder);
    let clients = open(pcp, 6);
    let from = format!("members = [{:?}, {:?}]", gone.address(), stays.address());
    estate.edit_config(&from, &format!("members = [{:?}]", stays.address()));
    estate.proxy.reload_applied();
    let mut fresh = connect(pcp);
    assert_echo(&mut fresh, b"hello");
    // Five gaps of 200 ms each; the first close may be late.
    assert_closed_in_turn(
        &estate.proxy,
        clients,
        "drained",
        Duration::from_millis(300),
    );
    assert_echo(&mut fresh, b"hello");
}

#[test]
fn a_stop_closes_all_tunnels_oldest_first_before_the_grace_ends() {
    let broker = Broker::echo();
    let builder =
        passing(&[&broker], "tunnel_close_rate = 1").top("drain_grace = \"4s\"\nworkers = 1");
    let (estate, pcp) = start(builder);
    let clients = open(pcp, 10);
    estate.proxy.signal(Signal::TERM);
    // By the rate alone it would take ten seconds.
    assert_closed_in_turn(
        &estate.proxy,
        clients,
        "drained",
        Duration::from_millis(1000),
    );
    let outcome = estate.proxy.wait_for_end(LIMIT);
    assert!(outcome.stderr.contains("cut=0"), "{}", outcome.stderr);
}

#[test]
fn maintenance_closes_tunnels_one_by_one_and_drain_leaves_them_open() {
    let broker = Broker::echo();
    let builder = passing(
        &[&broker],
        "tunnel_close_rate = 5\ncheck = { type = \"tcp\", interval = \"50ms\" }",
    );
    let (estate, pcp) = start(builder.top("workers = 1"));
    let mut clients = open(pcp, 4);
    set_state(&estate.proxy, "drain", "brokers", &broker.address());
    for client in &mut clients {
        assert_echo(client, b"still there");
    }
    assert_eq!(read_to_end(&mut connect(pcp)), b"", "nothing new");
    let member = broker.address();
    let arguments = ["--force", "--wait", "--timeout", "20s"];
    done(
        &estate.proxy,
        &["maintenance", "brokers", &member],
        &arguments,
    );
    assert_closed_in_turn(
        &estate.proxy,
        clients,
        "drained",
        Duration::from_millis(200),
    );
    set_state(&estate.proxy, "ready", "brokers", &member);
    estate.wait_for_members(&["brokers"]);
    open(pcp, 1);
}

#[test]
fn a_reload_that_does_not_concern_a_tunnel_leaves_it_open() {
    let broker = Broker::echo();
    let (estate, pcp) = start(passing(&[&broker], ""));
    let mut client = connect(pcp);
    assert_echo(&mut client, b"hello");
    estate.edit_config(
        "[listeners.pcp]",
        "[upstream]\nidle_timeout = \"61s\"\n[listeners.pcp]",
    );
    estate.proxy.reload_applied();
    assert_echo(&mut client, b"again");
    // Removing a listener closes its tunnels.
    let text = estate.proxy.config_text();
    let (before, rest) = text.split_once("[listeners.pcp]").expect("the listener");
    let (_, after) = rest.split_once("[pools.brokers]").expect("the pool");
    let (_, after) = after
        .split_once("trusted_headers_off = true")
        .expect("its last line");
    estate.write_config(&format!("{before}{after}"));
    estate.proxy.reload_applied();
    assert_eq!(read_to_end(&mut client), b"");
}

#[test]
fn a_side_that_does_not_read_uses_no_memory() {
    // Sends without end, as fast as the peer reads.
    let broker = Broker::start(|stream, _| {
        let piece = vec![b'x'; 1 << 20];
        while stream.write_all(&piece).is_ok() {}
    });
    let (estate, pcp) = start(passing(&[&broker], ""));
    let before = estate.proxy.memory_peak_kib();
    let clients: Vec<_> = (0..64).map(|_| connect(pcp)).collect();
    wait_for("all are open", || broker.open() >= 64);
    let labels = [("pool", "brokers"), ("from", "member")];
    let mut moved = 0.0;
    wait_for("nothing moves any more", || {
        std::thread::sleep(crate::support::layer4::MOMENT);
        let now = metric(
            &estate.proxy,
            "proscenium_member_passthrough_bytes_total",
            &labels,
        );
        std::mem::replace(&mut moved, now) == now && now > 0.0
    });
    let grown = estate.proxy.memory_growth_kib(before);
    // At most 32 KiB wait in the proxy for each side, in addition to the socket buffers of the kernel.
    assert!(grown < 64 * 80, "{grown} KiB for 64 tunnels");
    drop(clients);
}

#[test]
fn every_algorithm_that_needs_no_request_picks_members() {
    let brokers = [Broker::echo(), Broker::echo()];
    let members: Vec<_> = brokers.iter().map(Broker::address).collect();
    let algorithms = [
        "least-load",
        "least-connections",
        "round-robin",
        "random",
        "source-hash",
        "first",
    ];
    let listener = |name: &str| {
        format!("[listeners.{name}]\naddress = \"127.0.0.1:0\"\npassthrough = \"{name}\"\n")
    };
    let pool = |name: &str| {
        format!(
            "[pools.{name}]\nmembers = {members:?}\ntrusted_headers_off = true\nalgorithm = \"{name}\"\n"
        )
    };
    let tables: Vec<_> = algorithms
        .iter()
        .map(|name| listener(name) + &pool(name))
        .collect();
    let tables = tables.concat();
    let estate = Estate::builder().compilers(1).with(&tables).start();
    estate.wait_for_members(&algorithms);
    for algorithm in algorithms {
        let address = listener_address(&estate.proxy, algorithm);
        let clients = open(address, 8);
        let open = |member: &str| {
            let labels = [("pool", algorithm), ("member", member)];
            metric(&estate.proxy, "proscenium_member_passthrough_open", &labels)
        };
        let counts = [open(&members[0]), open(&members[1])];
        assert_eq!(counts[0] + counts[1], 8.0, "{algorithm}");
        match algorithm {
            "least-load" | "least-connections" | "round-robin" => {
                assert_eq!(counts, [4.0, 4.0], "{algorithm}");
            }
            // All clients here have the same address.
            "source-hash" => assert!(counts.contains(&8.0), "{algorithm}: {counts:?}"),
            "first" => assert_eq!(counts, [8.0, 0.0], "{algorithm}"),
            _ => {}
        }
        drop(clients);
    }
}

/// The lines of a pool whose check uses a separate port, which `up` opens.
fn checked_at(up: &TcpListener, lines: &str) -> String {
    let port = up.local_addr().expect("an address").port();
    format!(
        "check = {{ type = \"tcp\", port = {port}, interval = \"100ms\", rise = 1, fall = 1 }}\n{lines}"
    )
}

/// Accepts this many probes, which takes the member through some time as up.
fn accept_probes(up: &TcpListener, count: usize) {
    for _ in 0..count {
        up.accept().expect("a probe");
    }
}

/// The number of clients whose tunnel is open.
fn open_ones(clients: &mut [TcpStream]) -> usize {
    let is_open = |client: &mut TcpStream| {
        let mut byte = [0];
        client.set_nonblocking(true).expect("a socket");
        let closed = matches!(client.read(&mut byte), Ok(0));
        client.set_nonblocking(false).expect("a socket");
        !closed
    };
    clients
        .iter_mut()
        .filter_map(|client| is_open(client).then_some(()))
        .count()
}

#[test]
fn a_member_that_goes_down_keeps_its_tunnels() {
    let broker = Broker::echo();
    let up = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (estate, pcp) = start(passing(&[&broker], &checked_at(&up, "")));
    let mut clients = open(pcp, 2);
    drop(up);
    estate.wait_for_health("brokers", &broker.address(), "down");
    for client in &mut clients {
        assert_echo(client, b"still there");
    }
    assert_eq!(read_to_end(&mut connect(pcp)), b"", "nothing new");
}

#[test]
fn a_member_that_goes_down_loses_its_tunnels_one_by_one_with_on_down_cut() {
    let broker = Broker::echo();
    let up = TcpListener::bind("127.0.0.1:0").expect("a port");
    let lines = checked_at(&up, "on_down = \"cut\"\ntunnel_close_rate = 5");
    let (estate, pcp) = start(passing(&[&broker], &lines).top("workers = 1"));
    let clients = open(pcp, 6);
    // A drain by an operator closes no tunnel.
    set_state(&estate.proxy, "drain", "brokers", &broker.address());
    set_state(&estate.proxy, "ready", "brokers", &broker.address());
    drop(up);
    assert_closed_in_turn(
        &estate.proxy,
        clients,
        "member-down",
        Duration::from_millis(300),
    );
}

#[test]
fn tunnels_of_a_member_that_is_up_again_stay_open() {
    let broker = Broker::echo();
    let up = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = up.local_addr().expect("an address");
    let lines = checked_at(&up, "on_down = \"cut\"\ntunnel_close_rate = 1");
    let (estate, pcp) = start(passing(&[&broker], &lines));
    let mut clients = open(pcp, 10);
    drop(up);
    wait_for("the first is closed", || open_ones(&mut clients) < 10);
    let up = TcpListener::bind(address).expect("the same port");
    estate.wait_for_health("brokers", &broker.address(), "up");
    let left = open_ones(&mut clients);
    assert!(left > 0, "none is left");
    // For two seconds, in which the proxy would otherwise close two more tunnels.
    accept_probes(&up, 20);
    assert_eq!(open_ones(&mut clients), left);
}
