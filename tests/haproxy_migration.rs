//! `conf/haproxy-migration.toml`: checks by a script, and masters that are upgraded and tested while they get no agents.

use std::{
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use testkit::{Ca, Client, Protocol, Proxy, Reply, StandIn};

use crate::{
    examples::{example, member, of_clients, start_checked, to_compilers},
    support::{
        LIMIT, agent_check::CheckAgent, assert_identity, done, http1_alone,
        layer4::listener_address,
    },
};

const CATALOG: &str = "/production/catalog/web01";
/// Masters are on separate hosts, because each host has a script on the same port.
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const THIRD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// The document's script behind xinetd: it answers with the document's bytes, without reading the request.
struct Script {
    answers: AtomicUsize,
    stopped: AtomicBool,
    status: AtomicUsize,
}

impl Script {
    fn start(listener: TcpListener) -> Arc<Self> {
        let script = Arc::new(Self {
            answers: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            status: AtomicUsize::new(200),
        });
        let running = Arc::clone(&script);
        thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                let _ = socket.write_all(running.answer());
                running.answers.fetch_add(1, Ordering::SeqCst);
                if running.stopped.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        script
    }

    fn answer(&self) -> &'static [u8] {
        match self.status.load(Ordering::SeqCst) {
            200 => {
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 26\r\n\r\nPuppetmaster is running.\r\n"
            }
            _ => {
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 26\r\n\r\nPuppetmaster has failed.\r\n"
            }
        }
    }

    /// Acts as `service xinetd stop`.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Sets the status of the answers; returns the number of answers so far, which only grows.
    fn set(&self, status: usize) -> usize {
        let before = self.answers.load(Ordering::SeqCst);
        self.status.store(status, Ordering::SeqCst);
        before
    }
}

/// Makes a server on loopback reachable at another address of this machine, on a free port; returns the address.
fn host(address: Ipv4Addr, server: SocketAddr) -> String {
    let listener = TcpListener::bind((address, 0)).expect("a free port");
    let reached = listener.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // When the server is stopped it refuses connections, and this host closes its own.
            let Ok(server) = TcpStream::connect(server) else {
                continue;
            };
            let back = (server.try_clone(), client.try_clone());
            thread::spawn(move || pass(client, server));
            if let (Ok(server), Ok(client)) = back {
                thread::spawn(move || pass(server, client));
            }
        }
    });
    reached
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Scripts on the same free port at each of these addresses.
fn scripts<const N: usize>(addresses: [Ipv4Addr; N]) -> (u16, [Arc<Script>; N]) {
    for _ in 0..100 {
        let first = TcpListener::bind((addresses[0], 0)).expect("a free port");
        let port = first.local_addr().expect("bound").port();
        let others: Vec<_> = addresses[1..]
            .iter()
            .map_while(|address| TcpListener::bind((*address, port)).ok())
            .collect();
        if others.len() + 1 == N {
            let mut listeners = std::iter::once(first).chain(others);
            let listeners = addresses.map(|_| listeners.next().expect("as many"));
            return (port, listeners.map(Script::start));
        }
    }
    panic!("no port is free at all of {addresses:?}")
}

struct Estate {
    proxy: Proxy,
    ca: Ca,
    puppetca: StandIn,
    /// Two masters behind the proxy's TLS listener, and one whose connections are passed through.
    masters: [StandIn; 3],
    /// Addresses of the two masters as members.
    addresses: [String; 2],
    scripts: [Arc<Script>; 3],
    program: CheckAgent,
}

fn start() -> Estate {
    let (ca, proxies) = (Ca::new(), Ca::other());
    let own = proxies.agent("proscenium");
    let puppetca = member(&ca, &ca, "puppetca");
    let second = ca.leaf("m2").ip("127.0.0.2").issue();
    let masters = [
        member(&ca, &proxies, "m1"),
        StandIn::builder("m2")
            .ca(&ca)
            .tls(&proxies, &second)
            .start(),
        member(&ca, &ca, "m3"),
    ];
    for master in masters.iter().chain([&puppetca]) {
        answer_status(master);
    }
    let addresses = [
        masters[0].address(),
        host(SECOND, masters[1].socket_address()),
    ];
    let raw = host(THIRD, masters[2].socket_address());
    let (port, scripts) = scripts([Ipv4Addr::LOCALHOST, SECOND, THIRD]);
    let program = CheckAgent::start();
    let port = format!("{{ port = {port}");
    let program_port = format!("port = {}", program.port);
    let puppetca_address = puppetca.address();
    let [first, second] = &addresses;
    let mut replaced = vec![
        ("0.0.0.0:8140", "127.0.0.1:{port}"),
        ("0.0.0.0:8141", "127.0.0.1:0"),
        ("puppetca.example.com:8140", &puppetca_address),
        ("puppetmaster3.example.com:8140", &raw),
        ("port = 9201", &program_port),
    ];
    for _ in 0..2 {
        replaced.push(("puppetmaster1.example.com:8140", first));
        replaced.push(("puppetmaster2.example.com:8140", second));
        replaced.push(("{ port = 9200", &port));
    }
    replaced.extend([("interval = \"2s\"", "interval = \"20ms\""); 5]);
    replaced.extend([("/etc/proscenium", "{dir}"); 4]);
    let text = example("haproxy-migration.toml", &replaced);
    let proxy = start_checked(|| to_compilers(&ca, &own, &text));
    proxy.wait_for_members(&["ca", "compilers", "test", "not-migrated"]);
    Estate {
        proxy,
        ca,
        puppetca,
        masters,
        addresses,
        scripts,
        program,
    }
}

/// Makes a master answer as one with the document's lines in its auth.conf.
fn answer_status(master: &StandIn) {
    master.answer(|request| {
        let is_status = request.path() == "/production/status/no_key";
        is_status.then(|| Reply::ok("{\"is_alive\":true,\"version\":\"3.8.7\"}"))
    });
}

impl Estate {
    fn agent(&self, certname: &str) -> Client {
        self.proxy.client(Some(&self.ca.agent(certname)))
    }

    /// The master from which each of these client addresses gets a catalog.
    fn homes(&self, certname: &str) -> Vec<String> {
        self.masters.iter().for_each(StandIn::forget);
        let target = format!("/production/catalog/{certname}");
        for n in 1..=12 {
            let source = IpAddr::from([127, 0, 1, n]);
            let client = self.agent(certname).source(source);
            for _ in 0..2 {
                assert_eq!(client.get(&target).status, 200, "from {source}");
            }
        }
        let mut homes = vec![String::new(); 12];
        for request in self.masters.iter().flat_map(of_clients) {
            assert_identity(&request, "SUCCESS", Some(&format!("CN={certname}")));
            let source = request.only("x-forwarded-for").rsplit('.').next();
            let n: usize = source.and_then(|n| n.parse().ok()).expect("a number");
            let home = &mut homes[n - 1];
            assert!(home.is_empty() || *home == request.member, "{n} has moved");
            *home = request.member;
        }
        homes
    }

    fn wait_for(&self, pool: &str, n: usize, health: &str) {
        self.proxy.wait_for_health(pool, &self.addresses[n], health);
    }
}

#[test]
fn a_check_script_takes_its_master_down_by_503_and_by_stopping() {
    let estate = start();
    let homes = estate.homes("web01");
    for master in ["m1", "m2"] {
        assert!(homes.iter().any(|home| home == master), "{homes:?}");
    }
    assert_eq!(estate.homes("web01"), homes, "balance source");
    // fall 3, rise 3.
    let [script, ..] = &estate.scripts;
    let before = script.set(503);
    estate.wait_for("compilers", 0, "down");
    let answers = script.answers.load(Ordering::SeqCst) - before;
    assert!(answers >= 3, "{answers} answers of 503");
    estate
        .proxy
        .wait_for_event("answered `HTTP/1.1 503 Service Unavailable`");
    assert_eq!(estate.homes("web01"), vec!["m2"; 12]);
    let before = script.set(200);
    estate.wait_for("compilers", 0, "up");
    let answers = script.answers.load(Ordering::SeqCst) - before;
    assert!(answers >= 3, "{answers} answers of 200");
    assert_eq!(estate.homes("web01"), homes, "only clients of m1 moved");
    // xinetd is disabled: the master still serves direct requests, here those of the test agent.
    script.stop();
    estate.wait_for("compilers", 0, "down");
    assert_eq!(estate.homes("web01"), vec!["m2"; 12]);
    estate.wait_for("test", 0, "up");
}

#[test]
fn the_status_of_old_masters_is_requested_as_by_the_documents_script() {
    let estate = start();
    let probe = estate.puppetca.probes().remove(0);
    assert_eq!(
        (probe.target.as_str(), probe.only("accept")),
        ("/production/status/no_key", "pson")
    );
    let address = estate.puppetca.address();
    // Without the document's lines in auth.conf.
    estate.puppetca.answer(|_| Some(Reply::status(403)));
    estate.proxy.wait_for_health("ca", &address, "down");
    answer_status(&estate.puppetca);
    estate.proxy.wait_for_health("ca", &address, "up");
}

#[test]
fn a_master_without_agents_is_upgraded_and_tested() {
    let estate = start();
    let [first, second] = estate.addresses.each_ref().map(String::as_str);
    let homes = estate.homes("web01");
    let target = "/puppet/v3/catalog/test.example.com";
    let ssldir = estate.proxy.ssldir();
    let ssldir = ["--ssldir", ssldir.to_str().expect("no odd characters")];
    let words = ["explain", target, "--certname", "test.example.com"];
    let explained = done(&estate.proxy, &words, &ssldir);
    assert!(explained.contains("pool     test\n"), "{explained}");
    // Take the master out of service. It finishes its requests.
    let command = ["drain", "compilers", first, "--wait", "--why", "upgrade"];
    let drained = done(&estate.proxy, &command, &[]);
    assert!(drained.ends_with("no request is left\n"), "{drained}");
    done(&estate.proxy, &["drain", "test", second], &[]);
    // Upgrade the master.
    estate.masters[0].kill();
    estate.wait_for("test", 0, "down");
    assert_eq!(estate.homes("web01"), vec!["m2"; 12]);
    // A request that is sent to the master waits until it has been upgraded.
    let mut test = estate
        .agent("test.example.com")
        .connect()
        .expect("connects");
    let catalog = "/production/catalog/test.example.com";
    test.send("GET", catalog, &[], b"").expect("sends");
    estate.proxy.wait_for_status("a request to wait", |status| {
        let mut pools = status["pools"].as_array().into_iter().flatten();
        pools.any(|pool| pool["name"] == "test" && pool["waiting"] == 1)
    });
    estate.masters[0].restart();
    assert_eq!(test.read_response().expect("an answer").status, 200);
    estate.wait_for("test", 0, "up");
    // Test the master: only the proxy reaches it, and only the test agent is routed to it.
    assert_eq!(estate.homes("test.example.com"), vec!["m1"; 12]);
    assert_eq!(estate.homes("web01"), vec!["m2"; 12]);
    let direct = estate
        .agent("test.example.com")
        .at(estate.masters[0].socket_address())
        .protocol(Protocol::Http1);
    let refused = direct.try_request("GET", "/production/catalog/test.example.com", &[], b"");
    assert!(refused.is_err(), "{refused:?}");
    // Put the master back.
    done(&estate.proxy, &["ready", "compilers", first], &[]);
    done(&estate.proxy, &["ready", "test", second], &[]);
    estate.wait_for("compilers", 0, "up");
    assert_eq!(estate.homes("web01"), homes);
}

#[test]
fn a_program_on_the_masters_host_drains_it() {
    let estate = start();
    let homes = estate.homes("web01");
    let wait = |state: &str| {
        estate.proxy.wait_for_status(state, |status| {
            let pools = status["pools"].as_array().into_iter().flatten();
            let mut compilers = pools.filter(|pool| pool["name"] == "compilers");
            let member = compilers.next().map(|pool| &pool["members"][0]);
            member.is_some_and(|member| member["agent_check"]["state"] == state)
        });
    };
    estate.program.say(b"drain\n");
    wait("drain");
    assert_eq!(estate.homes("web01"), vec!["m2"; 12]);
    estate.program.say(b"ready\n");
    wait("ready");
    assert_eq!(estate.homes("web01"), homes);
}

#[test]
fn a_master_that_is_not_migrated_gets_the_agents_own_connection() {
    http1_alone!("the master itself speaks to the client, in HTTP/1.1");
    let estate = start();
    let agent = estate.ca.agent("web01");
    let raw = listener_address(&estate.proxy, "raw");
    let client = estate.proxy.client(Some(&agent)).at(raw);
    let answer = client.request("GET", CATALOG, &[("X-Client-DN", "CN=web02")], b"");
    assert_eq!(answer.status, 200);
    let [request] = &estate.masters[2].requests()[..] else {
        panic!("one request")
    };
    assert_eq!(request.peer_certificates[0], agent.cert_der);
    // The proxy neither adds nor removes headers here, so such a master must not trust headers.
    assert!(request.headers.all("x-client-verify").is_empty());
    assert_eq!(request.only("x-client-dn"), "CN=web02");
    estate.scripts[2].stop();
    let closed = testkit::wait_until(LIMIT, || client.try_request("GET", CATALOG, &[], b"").err());
    assert!(closed.is_some(), "no master is left");
}
