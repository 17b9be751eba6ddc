//! The installed configuration and the files in `conf/` work, each in the estate that it is written for.

use std::{fs, path::Path};

use testkit::{
    Ca, EtcdCluster, Proxy, ProxyBuilder, Recorded, Reply, StandIn, TestCredential, wait_until,
};

use crate::support::{self, LIMIT, assert_identity, done, paths::CATALOG};

/// 32 bytes 0 in base64.
const FLEET_KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";

#[test]
fn the_installed_configuration_serves() {
    let ca = Ca::new();
    let [authority, c1, c2] = ["ca", "c1", "c2"].map(|name| member(&ca, &ca, name));
    let compilers = format!("members = [{:?}, {:?}]", c1.address(), c2.address());
    let text = example(
        "../packaging/proscenium.toml",
        &[
            ("0.0.0.0:8140", "127.0.0.1:{port}"),
            (
                "members = []",
                &format!("members = [{:?}]", authority.address()),
            ),
            ("members = []", &compilers),
            ("/var/log/proscenium", "{dir}"),
        ],
    );
    let built = || {
        support::proxy(&ca)
            .whole(&text)
            .argument("--ssldir")
            .argument("{dir}/ssl")
    };
    let proxy = start_checked(built);
    proxy.wait_for_members(&["ca", "compilers"]);
    let agent = ca.agent("web01");
    let client = proxy.client(Some(&agent));
    assert_eq!(client.get(CATALOG).status, 200);
    assert_eq!(
        client.get("/puppet-ca/v1/certificate/ca").text(),
        ca.bundle_pem()
    );
    assert_eq!(proxy.client(None).get(CATALOG).status, 403);
    let catalogs = [c1.requests(), c2.requests()].concat();
    assert_eq!(catalogs.len(), 1);
    assert_identity(&catalogs[0], "SUCCESS", Some("CN=web01"));
    assert!(!catalogs[0].only("x-client-cert").is_empty());
    // A CRL is fetched from the CA by default.
    proxy.wait_for_status("a list was fetched", |status| {
        status["trust"]["fetch"]["last_answer"].is_string()
    });
    let asked = authority.requests();
    let (lists, others): (Vec<_>, Vec<_>) = asked
        .iter()
        .partition(|request| request.path() == "/puppet-ca/v1/certificate_revocation_list/ca");
    assert_eq!(lists.len(), 1, "{asked:#?}");
    // The agent's request, which is missing if the proxy already has its copy, and the proxy's request for that copy.
    let (of_agents, own): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|request| request.headers.get("x-forwarded-for").is_some());
    assert!(of_agents.len() <= 1 && own.len() <= 1, "{asked:#?}");
    let is_ca = |request: &&Recorded| request.path() == "/puppet-ca/v1/certificate/ca";
    assert!(
        of_agents
            .iter()
            .copied()
            .chain(own)
            .all(|request| is_ca(&request)),
        "{asked:#?}"
    );
    assert_written(&proxy, " web01 [");
}

#[test]
fn trusted_header_compilers_serve_over_mutual_tls() {
    let ca = Ca::new();
    // Compilers accept only certificates signed by this CA.
    let proxies = Ca::other();
    let own = proxies.agent("proscenium");
    let authority = member(&ca, &ca, "ca");
    let [c1, c2] = ["c1", "c2"].map(|name| member(&ca, &proxies, name));
    let text = example(
        "trusted-header-compilers.toml",
        &[
            ("0.0.0.0:8140", "127.0.0.1:{port}"),
            ("ca.example.com:8140", &authority.address()),
            ("c1.example.com:8140", &c1.address()),
            ("c2.example.com:8140", &c2.address()),
            ("/etc/proscenium", "{dir}"),
            ("/etc/proscenium", "{dir}"),
        ],
    );
    let proxy = to_compilers(&ca, &own, &text).start();
    proxy.wait_for_members(&["ca", "compilers"]);
    let agent = ca.agent("web01");
    let client = proxy.client(Some(&agent));
    assert_eq!(client.get(CATALOG).status, 200);
    assert_eq!(client.get("/puppet-ca/v1/certificate/ca").status, 200);
    let catalog = [c1.requests(), c2.requests()].concat().remove(0);
    assert_identity(&catalog, "SUCCESS", Some("CN=web01"));
    assert!(!catalog.only("x-client-cert").is_empty());
    assert_eq!(catalog.peer_certificates[0], own.cert_der);
    let asked = authority.last();
    assert!(asked.headers.all("x-client-cert").is_empty());
    let agents_own = fs::read_to_string(proxy.ssldir().join("certs/puppet.pem")).expect("is there");
    let agents_own = TestCredential::from_pem("puppet", &agents_own, "");
    assert_eq!(asked.peer_certificates[0], agents_own.cert_der);
}

#[test]
fn a_single_host_serves_over_loopback() {
    let ca = Ca::new();
    let front = ca.server("puppet");
    let [authority, c1, c2] = ["ca", "c1", "c2"].map(|name| StandIn::builder(name).ca(&ca).start());
    let text = example(
        "single-host-loopback.toml",
        &[
            ("0.0.0.0:8140", "127.0.0.1:{port}"),
            ("127.0.0.1:8139", &authority.address()),
            ("127.0.0.1:8138", &c1.address()),
            ("127.0.0.1:8137", &c2.address()),
            ("/etc/proscenium", "{dir}"),
            ("/etc/proscenium", "{dir}"),
            ("/etc/puppetlabs/puppetserver", "{dir}"),
            ("/etc/puppetlabs/puppetserver", "{dir}"),
            ("/var/log/proscenium", "{dir}"),
        ],
    );
    let proxy = support::proxy(&ca)
        .whole(&text)
        .file("tls/chain.pem", &front.chain_pem(), 0o644)
        .file("tls/key.pem", &front.key_pem, 0o640)
        .file("ca/ca_crt.pem", &ca.bundle_pem(), 0o644)
        .file("ca/ca_crl.pem", &ca.crl_pem(), 0o644)
        .start();
    proxy.wait_for_event("serving");
    // The configuration sets every file, so no event mentions the agent's own copy.
    assert!(!proxy.stderr().contains("own copy"), "{}", proxy.stderr());
    proxy.wait_for_members(&["ca", "compilers"]);
    let agent = ca.agent("web01");
    assert_eq!(proxy.client(Some(&agent)).get(CATALOG).status, 200);
    let catalog = [c1.requests(), c2.requests()].concat().remove(0);
    assert_identity(&catalog, "SUCCESS", Some("CN=web01"));
    assert!(!catalog.only("x-client-cert").is_empty());
    assert_written(&proxy, " web01 [");
    // A revocation by the CA takes effect at the next reload.
    ca.revoke(&agent);
    proxy.write("ca/ca_crl.pem", &ca.crl_pem(), 0o644);
    proxy.hang_up();
    assert_eq!(proxy.client(Some(&agent)).get(CATALOG).status, 403);
}

#[test]
fn the_example_for_mongrel_serves() {
    // In Puppet of that age, the CA had no intermediate CA.
    let ca = Ca::single("Puppet CA: puppet.example.com");
    let masters = ["m1", "m2"].map(|name| StandIn::builder(name).ca(&ca).start());
    let proxy = mongrel(&ca, &masters.each_ref().map(StandIn::address));
    let agent = ca.agent("web01");
    let client = proxy.client(Some(&agent)).server_name("puppet.example.com");
    let forged = [("X-Client-DN", "CN=admin"), ("X-SSL-Subject", "CN=admin")];
    for target in [
        "/production/catalog/web01",
        "/puppet/v3/catalog/web01?environment=production",
        "/production/certificate/ca",
    ] {
        let answer = client.request("GET", target, &forged, b"");
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
    }
    let seen = masters
        .iter()
        .flat_map(StandIn::requests)
        .collect::<Vec<_>>();
    assert_eq!(seen.len(), 3);
    for request in &seen {
        assert_eq!(
            (request.version.as_str(), request.only("connection")),
            ("HTTP/1.0", "close")
        );
        assert_eq!(request.only("x-client-verify"), "SUCCESS");
        assert_eq!(request.only("x-client-dn"), "CN=web01");
        assert_eq!(request.only("x-ssl-subject"), "CN=web01");
        assert!(request.headers.all("x-client-cert").is_empty());
    }
    // SSLVerifyClient require: the handshake of a client without a certificate fails.
    let stranger = proxy.client(None).server_name("puppet.example.com");
    assert!(
        stranger
            .try_request("GET", "/production/certificate/ca", &[], b"")
            .is_err()
    );
    let log = |name: &str, words: &str| {
        let log = proxy.directory().join(name);
        let written = wait_until(LIMIT, || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.contains(words).then_some(())
        });
        assert!(written.is_some(), "{words} is not in {name}");
    };
    let request = format!("\"GET /production/catalog/web01 {}\"", support::version());
    log("balancer_access.log", &format!("{request} 200 "));
    log(
        "balancer_ssl_request.log",
        &format!("TLS13_AES_128_GCM_SHA256 {request} "),
    );
    // SSLVerifyClient optional: new agents can enrol and nothing else.
    proxy.edit_config("client_cert = \"required\"", "client_cert = \"optional\"");
    proxy.reload_applied();
    let stranger = proxy.client(None).server_name("puppet.example.com");
    assert_eq!(stranger.get("/production/certificate/ca").status, 200);
    assert_eq!(stranger.get("/production/node/web01").status, 403);
    // A CRL in the directory is used, whatever its name.
    ca.revoke(&agent);
    proxy.write("ssl/crl/0a1b2c3d.0", &ca.crl_pem(), 0o644);
    proxy.hang_up();
    let revoked = proxy.client(Some(&agent)).server_name("puppet.example.com");
    assert!(
        revoked
            .try_request("GET", "/production/node/web01", &[], b"")
            .is_err()
    );
}

/// A proxy with `conf/mongrel.toml` in front of these masters.
pub(crate) fn mongrel(ca: &Ca, masters: &[String; 2]) -> Proxy {
    let [first, second] = masters;
    let text = example(
        "mongrel.toml",
        &[
            ("0.0.0.0:8140", "127.0.0.1:{port}"),
            ("127.0.0.1:18140", first),
            ("127.0.0.1:18141", second),
            ("127.0.0.1:18140", first),
            ("/etc/puppet/ssl", "{dir}/ssl"),
            ("/etc/puppet/ssl", "{dir}/ssl"),
            ("/etc/puppet/ssl", "{dir}/ssl"),
            ("/etc/puppet/ssl", "{dir}/ssl"),
            ("/etc/puppet/ssl", "{dir}/ssl"),
            ("/var/log/proscenium", "{dir}"),
            ("/var/log/proscenium", "{dir}"),
        ],
    );
    let front = ca.server("puppet.example.com");
    let [chain, key] =
        ["certs", "private_keys"].map(|kind| format!("ssl/{kind}/puppet.example.com.pem"));
    let proxy = support::proxy(ca)
        .whole(&text)
        .file(&chain, &front.chain_pem(), 0o644)
        .file(&key, &front.key_pem, 0o640)
        .file("ssl/ca/ca_crt.pem", &ca.bundle_pem(), 0o644)
        .file("ssl/ca/ca_crl.pem", &ca.crl_pem(), 0o644)
        .file("ssl/crl/0a1b2c3d.0", &ca.crl_pem(), 0o644)
        .start();
    proxy.wait_for_members(&["ca", "compilers"]);
    proxy
}

/// A proxy with this configuration, whose certificate towards members is `tls/to-compilers.pem`.
pub(crate) fn to_compilers(ca: &Ca, own: &TestCredential, text: &str) -> ProxyBuilder {
    support::proxy(ca)
        .whole(text)
        .file("tls/to-compilers.pem", &own.chain_pem(), 0o644)
        .file("tls/to-compilers.key", &own.key_pem, 0o640)
        .argument("--ssldir")
        .argument("{dir}/ssl")
}

/// Checks the configuration, and starts the proxy with it.
#[track_caller]
pub(crate) fn start_checked(built: impl Fn() -> ProxyBuilder) -> Proxy {
    let checked = built().check();
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    built().start()
}

/// Asserts that the proxy's access log has a record with these words.
fn assert_written(proxy: &Proxy, words: &str) {
    let log = proxy.directory().join("access.log");
    let written = wait_until(LIMIT, || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.contains(words).then_some(())
    });
    assert!(written.is_some(), "{}", proxy.stderr());
}

/// Requests of clients; the CRLs and CA certificates that the proxy fetches for itself are left out.
pub(crate) fn of_clients(member: &StandIn) -> Vec<Recorded> {
    let of_the_proxy = |request: &Recorded| {
        let path = request.path();
        let is_document =
            path.contains("/certificate_revocation_list/") || path.ends_with("/certificate/ca");
        is_document && request.headers.get("x-forwarded-for").is_none()
    };
    let mut requests = member.requests();
    requests.retain(|request| !of_the_proxy(request));
    requests
}

#[test]
fn the_example_for_sessions_of_an_application_serves() {
    let ca = Ca::new();
    let names = ["ca", "c1", "c2", "app1", "app2"];
    let members = names.map(|name| member(&ca, &ca, name));
    for member in &members[3..] {
        let name = member.name().to_owned();
        member.answer(move |_| Some(Reply::ok(&name)));
    }
    let ports = [8140, 8140, 8140, 8443, 8443];
    let from = [0, 1, 2, 3, 4].map(|n| format!("{}.example.com:{}", names[n], ports[n]));
    let to = members.each_ref().map(StandIn::address);
    let mut replaced = vec![("0.0.0.0:8140", "127.0.0.1:{port}")];
    replaced.extend(
        from.iter()
            .map(String::as_str)
            .zip(to.iter().map(String::as_str)),
    );
    let text = example("sessions-of-an-application.toml", &replaced);
    let built = support::proxy(&ca).whole(&text);
    let proxy = built.argument("--ssldir").argument("{dir}/ssl").start();
    proxy.wait_for_members(&["ca", "compilers", "app"]);
    let client = proxy.client(Some(&ca.agent("web01")));
    assert_eq!(client.get(CATALOG).status, 200);
    let first = client.get("/app/");
    let set = first.headers.only("set-cookie");
    assert!(set.starts_with("APP_SERVER="), "{set}");
    let cookie = set.split(';').next().unwrap_or_default();
    for _ in 0..4 {
        let again = client.request("GET", "/app/page", &[("Cookie", cookie)], b"");
        assert_eq!((again.status, again.text()), (200, first.text()));
    }
    assert_eq!(proxy.client(None).get("/app/").status, 403);
}

#[test]
fn the_proxies_of_a_fleet_share_a_block() {
    let ca = Ca::new();
    let Some(store) = EtcdCluster::start(&ca, 3) else {
        return;
    };
    let [authority, c1, c2] = ["ca", "c1", "c2"].map(|name| member(&ca, &ca, name));
    let etcd = [0, 1, 2].map(|index| store.address(index).to_string());
    let proxies = ["p1", "p2"].map(|name| {
        let text = example(
            "fleet.toml",
            &[
                ("/etc/proscenium/ssl", "{dir}/ssl"),
                ("p1.example.com", name),
                ("0.0.0.0:8140", "127.0.0.1:{port}"),
                ("ca.example.com:8140", &authority.address()),
                ("c1.example.com:8140", &c1.address()),
                ("c2.example.com:8140", &c2.address()),
                ("127.0.0.1:9140", "127.0.0.1:0"),
                ("etcd1.example.com:2379", &etcd[0]),
                ("etcd2.example.com:2379", &etcd[1]),
                ("etcd3.example.com:2379", &etcd[2]),
                ("/etc/proscenium", "{dir}"),
            ],
        );
        let proxy = support::proxy(&ca).certname(name).whole(&text);
        proxy.file("fleet.key", FLEET_KEY, 0o600).start()
    });
    let agent = ca.agent("web01");
    for proxy in &proxies {
        proxy.wait_for_members(&["ca", "compilers"]);
        assert_eq!(proxy.client(Some(&agent)).get(CATALOG).status, 200);
    }
    done(&proxies[0], &["block"], &["web01", "--why", "stolen"]);
    for proxy in &proxies {
        let is_refused = || (proxy.client(Some(&agent)).get(CATALOG).status == 403).then_some(());
        assert!(
            wait_until(LIMIT, is_refused).is_some(),
            "{}",
            proxy.stderr()
        );
    }
}

/// A server over TLS that accepts client certificates signed by `client_ca`.
pub(crate) fn member(ca: &Ca, client_ca: &Ca, name: &str) -> StandIn {
    let builder = StandIn::builder(name).ca(ca);
    builder.tls(client_ca, &ca.server(name)).start()
}

/// A file of `conf/` with the addresses and paths of this test, and a reachable admin socket.
pub(crate) fn example(name: &str, replaced: &[(&str, &str)]) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conf");
    let text = fs::read_to_string(Path::new(folder).join(name)).expect("an example");
    let text = replaced.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in {name}");
        text.replacen(from, to, 1)
    });
    format!("{text}\n[admin]\nsocket = \"{{dir}}/admin.sock\"\n")
}
