//! `conf/compile-masters.toml`: compile masters of two sites and a central CA ("Scaling Puppet Server with compile
//! masters").

use testkit::{Ca, NameServer, Protocol, Proxy, StandIn, srv_records};

use crate::{
    examples::{example, member, of_clients},
    support::{self, assert_identity, paths::CATALOG},
};

/// A certificate that no CA here has issued. The proxy has no copy, so a CA sends the 404.
const CA: &str = "/puppet-ca/v1/certificate/web99";
const OLD: &str = "old-puppet.example.com";
const MASTERS: [&str; 5] = ["master-1", "master-2", "master-3", "ca-1", "ca-2"];

struct Sites {
    proxy: Proxy,
    ca: Ca,
    /// The servers named in `MASTERS`, in the same order.
    masters: [StandIn; 5],
    /// The master that connections are passed through to.
    old: StandIn,
    _dns: NameServer,
}

/// `None` without a DNS server.
fn start() -> Option<Sites> {
    let ca = Ca::new();
    let masters = MASTERS.map(|name| member(&ca, &ca, &host(name)));
    let old = member(&ca, &ca, OLD);
    let server = NameServer::start(&zone(&masters))?;
    let text = example(
        "compile-masters.toml",
        &[
            ("0.0.0.0:8140", "127.0.0.1:{port}"),
            ("192.0.2.53", &server.address().to_string()),
            ("old-1.example.com:8140", &old.address()),
        ],
    );
    let built = || {
        let built = support::proxy(&ca).whole(&text);
        built.argument("--ssldir").argument("{dir}/ssl")
    };
    let checked = built().check();
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let first = format!("{} (priority 0, weight 75)", shown(&masters[0]));
    assert!(checked.stdout.contains(&first), "{}", checked.stdout);
    let proxy = built().start();
    proxy.wait_for_members(&["ca", "compilers", "old-masters"]);
    Some(Sites {
        proxy,
        ca,
        masters,
        old,
        _dns: server,
    })
}

/// The document's DNS records, with the ports of these servers.
fn zone(masters: &[StandIn; 5]) -> String {
    let records = |service: &str, targets: &[(u16, u16, usize)]| {
        let names = targets
            .iter()
            .map(|(_, _, n)| format!("{}.", host(MASTERS[*n])));
        let names: Vec<_> = names.collect();
        let of = targets.iter().zip(&names);
        let of: Vec<_> = of
            .map(|((priority, weight, n), name)| {
                let port = masters[*n].socket_address().port();
                (*priority, *weight, port, name.as_str())
            })
            .collect();
        srv_records(service, &of)
    };
    let addresses = MASTERS.map(|name| format!("{name}.compilers A 127.0.0.1\n"));
    records("_x-puppet._tcp", &[(0, 75, 0), (0, 25, 1), (1, 5, 2)])
        + &records("_x-puppet-ca._tcp", &[(0, 1, 3), (1, 1, 4)])
        + &addresses.concat()
}

fn host(name: &str) -> String {
    format!("{name}.compilers.example.com")
}

/// A member as the proxy shows it.
fn shown(master: &StandIn) -> String {
    format!("{}:{}", master.name(), master.socket_address().port())
}

impl Sites {
    /// The number of catalogs that each compile master got.
    fn catalogs(&self, number: usize) -> [usize; 3] {
        self.masters.iter().for_each(StandIn::forget);
        let client = self.proxy.client(Some(&self.ca.agent("web01")));
        for _ in 0..number {
            assert_eq!(client.get(CATALOG).status, 200);
        }
        [0, 1, 2].map(|n| of_clients(&self.masters[n]).len())
    }

    fn stop(&self, n: usize) {
        self.masters[n].stop();
        let member = shown(&self.masters[n]);
        self.proxy.wait_for_health("compilers", &member, "down");
    }

    fn restart(&self, n: usize) {
        self.masters[n].restart();
        let member = shown(&self.masters[n]);
        self.proxy.wait_for_health("compilers", &member, "up");
    }
}

#[test]
fn site_a_shares_requests_by_weight_and_site_b_serves_while_site_a_is_down() {
    let Some(sites) = start() else {
        return;
    };
    assert_eq!(sites.catalogs(40), [30, 10, 0], "75 to 25, none to site B");
    sites.stop(0);
    assert_eq!(sites.catalogs(4), [0, 4, 0], "the rest of site A first");
    sites.stop(1);
    assert_eq!(sites.catalogs(4), [0, 0, 4], "site B while site A is down");
    sites.restart(1);
    assert_eq!(sites.catalogs(4), [0, 4, 0], "and back");
}

#[test]
fn one_name_and_one_certificate_of_the_proxy_serve_every_agent() {
    let Some(sites) = start() else {
        return;
    };
    let agent = sites.ca.agent("web01");
    // The certificates of the compile masters have only their own names, and the agent expects the proxy's name.
    let client = sites.proxy.client(Some(&agent));
    let forged = [("X-Client-DN", "CN=admin"), ("X-Client-Verify", "SUCCESS")];
    for (target, status) in [(CATALOG, 200), (CA, 404)] {
        let answer = client.request("GET", target, &forged, b"");
        assert_eq!(answer.status, status, "{target}");
    }
    let of = |range: std::ops::Range<usize>| {
        let masters = sites.masters[range].iter();
        masters.flat_map(of_clients).collect::<Vec<_>>()
    };
    let (catalogs, authorities) = (of(0..3), of(3..5));
    assert_eq!((catalogs.len(), authorities.len()), (1, 1));
    assert_identity(&catalogs[0], "SUCCESS", Some("CN=web01"));
    assert_eq!(authorities[0].member, host("ca-1"), "the central CA");
    // A new agent reaches the central CA and nothing else.
    let stranger = sites.proxy.client(None);
    assert_eq!(stranger.get(CA).status, 404);
    assert_eq!(stranger.get(CATALOG).status, 403);
}

#[test]
fn raw_tcp_and_terminated_tls_share_one_port_by_server_name() {
    let Some(sites) = start() else {
        return;
    };
    let agent = sites.ca.agent("web01");
    let raw = sites.proxy.client(Some(&agent)).server_name(OLD);
    let raw = raw.protocol(Protocol::Http1);
    assert_eq!(raw.get(CATALOG).status, 200);
    let seen = of_clients(&sites.old);
    assert_eq!(seen.len(), 1);
    let own = std::slice::from_ref(&agent.cert_der);
    assert_eq!(seen[0].peer_certificates, own, "the agent's own TLS");
    assert!(seen[0].headers.get("x-client-verify").is_none());
    let client = sites.proxy.client(Some(&agent));
    assert_eq!(client.get(CATALOG).status, 200);
    assert_eq!(of_clients(&sites.old).len(), 1, "terminated here");
}
