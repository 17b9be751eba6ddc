//! `conf/puppet-enterprise.toml`: compilers with their brokers and the agent installer behind one name.

use std::thread;

use testkit::{Ca, Proxy, Reply, ReplyGate, StandIn};

use crate::{
    examples::{example, member, start_checked, to_compilers},
    support::{
        LIMIT, assert_identity,
        layer4::{Broker, assert_echo, connect, listener_address, read_to_end},
        paths::CATALOG,
    },
};

/// The common part of the checks of both pools.
const CHECK: &str = "type = \"http\"\npath";
const BROKERS: &str = "type = \"http\"\nport";
const COMPILERS: [&str; 2] = ["c1.example.com", "c2.example.com"];

/// The example in front of two compilers that accept only the proxy, their brokers and the CA.
struct Site {
    ca: Ca,
    primary: StandIn,
    compilers: [StandIn; 2],
    brokers: [Broker; 2],
    proxy: Proxy,
}

fn site() -> Site {
    let ca = Ca::new();
    // The compilers accept only certificates signed by this CA.
    let proxies = Ca::other();
    let own = proxies.agent("proscenium");
    let primary = member(&ca, &ca, "primary");
    let compilers = COMPILERS.map(|name| member(&ca, &proxies, name));
    let brokers = [Broker::echo(), Broker::echo()];
    let named = |address: &str, name: &str| {
        format!("{{ address = \"{address}\", server_name = \"{name}\" }}")
    };
    let [c1, c2] = [0, 1].map(|n| named(&compilers[n].address(), COMPILERS[n]));
    // The brokers share a host here, so the status of the first compiler applies to both.
    let [b1, b2] = [0, 1].map(|n| named(&brokers[n].address(), COMPILERS[0]));
    let status = format!("\nport = {}\n", compilers[0].socket_address().port());
    let text = example(
        "puppet-enterprise.toml",
        &[
            ("0.0.0.0:8140", "127.0.0.1:{port}"),
            ("0.0.0.0:8142", "127.0.0.1:0"),
            ("primary.example.com:8140", &primary.address()),
            ("\"c1.example.com:8140\"", &c1),
            ("\"c2.example.com:8140\"", &c2),
            ("\"c1.example.com:8142\"", &b1),
            ("\"c2.example.com:8142\"", &b2),
            ("\nport = 8140\n", &status),
            (CHECK, &format!("interval = \"50ms\"\n{CHECK}")),
            (BROKERS, &format!("interval = \"50ms\"\n{BROKERS}")),
            ("/etc/proscenium", "{dir}"),
            ("/etc/proscenium", "{dir}"),
            ("/etc/proscenium", "{dir}"),
            ("/etc/proscenium", "{dir}"),
            ("/etc/proscenium", "{dir}"),
        ],
    );
    let crl = ca.crl_pem();
    let proxy = start_checked(|| to_compilers(&ca, &own, &text).file("crl.pem", &crl, 0o644));
    proxy.wait_for_members(&["ca", "compilers", "brokers"]);
    Site {
        ca,
        primary,
        compilers,
        brokers,
        proxy,
    }
}

#[test]
fn the_example_balances_compilers_by_open_requests_and_the_status_of_each() {
    let site = site();
    let client = site.proxy.client(Some(&site.ca.agent("web01")));
    client.get("/puppet-ca/v1/certificate/web02");
    assert!(site.primary.last().headers.all("x-client-cert").is_empty());
    let gate = ReplyGate::new();
    for compiler in &site.compilers {
        let gate = gate.clone();
        compiler
            .answer(move |request| (!request.is_probe()).then(|| Reply::ok("catalog").gate(&gate)));
    }
    gate.hold();
    thread::scope(|scope| {
        let agents: Vec<_> = ["web02", "web03"]
            .map(|name| {
                let agent = site.proxy.client(Some(&site.ca.agent(name)));
                let catalog = format!("/puppet/v3/catalog/{name}?environment=production");
                scope.spawn(move || agent.get(&catalog).status)
            })
            .into_iter()
            .collect();
        for compiler in &site.compilers {
            compiler.wait_for_head(1, LIMIT);
        }
        gate.release();
        for agent in agents {
            assert_eq!(agent.join().expect("an agent"), 200);
        }
    });
    for compiler in &site.compilers {
        let requests = compiler.requests();
        assert_eq!(requests.len(), 1, "the one with the fewest open requests");
        assert_eq!(requests[0].only("x-client-verify"), "SUCCESS");
    }
    // One service of the second compiler has failed.
    let [first, second] = &site.compilers;
    second.answer(|request| match request.path() {
        "/status/v1/simple" => Some(Reply::status(503)),
        "/status/v1/simple/server" => Some(Reply::ok("running")),
        _ => None,
    });
    let down = |health: &str| {
        site.proxy
            .wait_for_health("compilers", &second.address(), health);
    };
    down("down");
    first.forget();
    second.forget();
    for _ in 0..3 {
        assert_eq!(client.get(CATALOG).status, 200);
    }
    assert_eq!((first.requests().len(), second.requests().len()), (3, 0));
    // With another check, only the service that compiles counts, or only the port.
    for (from, to) in [
        (
            "type = \"http\"\npath = \"/status/v1/simple\"\n\n# The brokers",
            "type = \"http\"\npath = \"/status/v1/simple/server\"\n\n# The brokers",
        ),
        (
            "type = \"http\"\npath = \"/status/v1/simple/server\"\n\n# The brokers",
            "type = \"tcp\"\n\n# The brokers",
        ),
    ] {
        site.proxy.edit_config(from, to);
        site.proxy.reload_applied();
        down("up");
    }
}

#[test]
fn the_example_passes_pcp_through_and_checks_brokers_over_tls_on_8140() {
    let site = site();
    let pcp = listener_address(&site.proxy, "pcp");
    let mut clients = [connect(pcp), connect(pcp)];
    for client in &mut clients {
        assert_echo(client, b"\x16\x03\x01 the client's own handshake");
    }
    for broker in &site.brokers {
        assert_eq!(
            broker.received(),
            [b"\x16\x03\x01 the client's own handshake"]
        );
    }
    let status = &site.compilers[0];
    assert!(!status.probes().is_empty());
    status.answer(|request| request.is_probe().then(|| Reply::status(503)));
    for broker in &site.brokers {
        site.proxy
            .wait_for_health("brokers", &broker.address(), "down");
    }
    assert_eq!(read_to_end(&mut connect(pcp)), b"");
    // The proxy closes the tunnels, so that the clients connect again.
    for client in &mut clients {
        assert_eq!(read_to_end(client), b"");
    }
}

#[test]
fn the_example_serves_the_installer_to_every_client_with_the_proxys_name() {
    let site = site();
    for compiler in &site.compilers {
        let name = compiler.name().to_owned();
        compiler.answer(move |request| {
            let script = format!("server={name}; curl https://{name}:8140/packages/current");
            let reply = match request.path() {
                "/packages/current/install.bash" => Reply::ok(&script),
                _ => Reply::status(302).header("Location", &format!("https://{name}:8140/a")),
            };
            (!request.is_probe()).then_some(reply.header("Content-Type", "text/x-sh"))
        });
    }
    let stranger = site.proxy.client(None);
    for _ in 0..2 {
        let host = [("Host", "evil.example.net")];
        let installer = stranger.request("GET", "/packages/current/install.bash", &host, b"");
        assert_eq!(
            (installer.status, installer.text()),
            (
                200,
                "server=puppet.example.com; curl https://puppet.example.com:8140/packages/current"
                    .to_owned()
            )
        );
        let redirect = stranger.get("/packages/latest");
        assert_eq!(
            redirect.headers.only("location"),
            "https://puppet.example.com:8140/a"
        );
    }
    let asked: Vec<_> = site.compilers.iter().flat_map(StandIn::requests).collect();
    assert_eq!(asked.len(), 4);
    for request in &asked {
        assert_identity(request, "NONE", None);
    }
    assert_eq!(stranger.get(CATALOG).status, 403);
    let post = stranger.request("POST", "/packages/current/install.bash", &[], b"x");
    assert_eq!(post.status, 404);
}
