//! `conf/split-services.toml`: the services of Puppet on servers of their own ("Master Load Balancing").

use testkit::{Ca, Proxy, Recorded, Reply, StandIn, TestCredential};

use crate::{
    examples::{example, member, of_clients, start_checked, to_compilers},
    support::{LIMIT, assert_identity, assert_no_identity},
};

const CATALOG: &str = "/puppet/v3/catalog/web01";
const METADATAS: &str = "/puppet/v3/file_metadatas/plugins";
/// The addresses in the file, and the servers behind them. Those on loopback use plain HTTP.
const SERVERS: [(&str, &str); 10] = [
    ("ca", "ca.example.com:8140"),
    ("c1", "c1.example.com:8140"),
    ("c2", "c2.example.com:8140"),
    ("f1", "127.0.0.1:8138"),
    ("f2", "127.0.0.1:8137"),
    ("reports", "reports.example.com:8140"),
    ("debug", "debug.example.com:8140"),
    ("d1", "d1.example.com:8443"),
    ("d2", "d2.example.com:8443"),
    ("d3", "d3.example.com:8443"),
];

struct Split {
    proxy: Proxy,
    ca: Ca,
    /// The credentials that the proxy presents to servers that trust its headers.
    own: TestCredential,
    servers: Vec<StandIn>,
}

fn start() -> Split {
    let (ca, proxies) = (Ca::new(), Ca::other());
    let own = proxies.agent("proscenium");
    let servers: Vec<_> = SERVERS.map(|(name, _)| server(&ca, &proxies, name)).into();
    let addresses: Vec<_> = servers.iter().map(StandIn::address).collect();
    let mut replaced = vec![("0.0.0.0:8140", "127.0.0.1:{port}")];
    let from = SERVERS.iter().map(|(_, address)| *address);
    replaced.extend(from.zip(addresses.iter().map(String::as_str)));
    replaced.extend([("/etc/proscenium", "{dir}"); 6]);
    // `edge_answers` is off, so that requests for the documents of the CA reach it.
    let text = example("split-services.toml", &replaced) + "\n[ca]\nedge_answers = false\n";
    let proxy = start_checked(|| to_compilers(&ca, &own, &text));
    proxy.wait_for_members(&[
        "ca",
        "compilers",
        "files",
        "reports",
        "debug",
        "dashboard",
        "dashboard-next",
    ]);
    Split {
        proxy,
        ca,
        own,
        servers,
    }
}

/// Servers that trust the headers accept only certificates of the proxy's own CA; the others accept those of the
/// agents' CA.
fn server(ca: &Ca, proxies: &Ca, name: &str) -> StandIn {
    match name {
        "f1" | "f2" => StandIn::builder(name).ca(ca).start(),
        "ca" => member(ca, ca, name),
        "d1" | "d2" | "d3" => {
            let server = member(ca, ca, name);
            let name = name.to_owned();
            server.answer(move |_| Some(Reply::ok(&name)));
            server
        }
        _ => member(ca, proxies, name),
    }
}

impl Split {
    /// Sends a request of an agent; returns its status, and the requests that reached the servers.
    fn ask(
        &self,
        certname: &str,
        (method, target): (&str, &str),
        fields: &[(&str, &str)],
    ) -> (u16, Vec<Recorded>) {
        self.servers.iter().for_each(StandIn::forget);
        let client = self.proxy.client(Some(&self.ca.agent(certname)));
        let body: &[u8] = if method == "GET" { b"" } else { b"{}" };
        let answer = client.request(method, target, fields, body);
        let reached = self.servers.iter().flat_map(of_clients).collect();
        (answer.status, reached)
    }

    fn named(&self, name: &str) -> &StandIn {
        let mut servers = self.servers.iter();
        servers
            .find(|server| server.name() == name)
            .expect("one of them")
    }
}

#[test]
fn each_service_has_its_own_servers_and_each_gets_the_clients_identity() {
    let split = start();
    let agents_own = split.proxy.ssldir().join("certs/puppet.pem");
    let agents_own = std::fs::read_to_string(agents_own).expect("is there");
    let agents_own = TestCredential::from_pem("puppet", &agents_own, "");
    let debug = [("X-Puppet-Debug", "on")];
    for (certname, request, fields, status, at) in [
        ("web01", ("POST", CATALOG), &[][..], 200, "c"),
        (
            "web01",
            ("PUT", "/puppet/v3/report/web01"),
            &[],
            200,
            "reports",
        ),
        ("web01", ("PUT", "/puppet/v3/report/web02"), &[], 403, ""),
        ("web01", ("GET", METADATAS), &[], 200, "f"),
        (
            "web01",
            ("GET", "/puppet/v3/file_content/modules/a/b"),
            &[],
            200,
            "f",
        ),
        (
            "web01",
            ("GET", "/puppet-ca/v1/certificate/ca"),
            &[],
            200,
            "ca",
        ),
        (
            "web01",
            ("GET", "/puppet-ca/v1/certificate_statuses/all"),
            &[],
            403,
            "",
        ),
        (
            "admin.example.com",
            ("GET", "/puppet-ca/v1/certificate_statuses/all"),
            &[],
            0,
            "ca",
        ),
        // The debug header has an effect for developers' hosts only, and grants no access.
        (
            "a.dev.example.com",
            ("POST", "/puppet/v3/catalog/a.dev.example.com"),
            &debug,
            200,
            "debug",
        ),
        (
            "a.dev.example.com",
            ("GET", METADATAS),
            &debug,
            200,
            "debug",
        ),
        (
            "a.dev.example.com",
            ("POST", "/puppet/v3/catalog/a.dev.example.com"),
            &[],
            200,
            "c",
        ),
        ("a.dev.example.com", ("POST", CATALOG), &debug, 403, ""),
        (
            "a.dev.example.com",
            ("GET", "/puppet-ca/v1/certificate/ca"),
            &debug,
            200,
            "ca",
        ),
        ("web01", ("POST", CATALOG), &debug, 200, "c"),
    ] {
        let (answered, reached) = split.ask(certname, request, fields);
        assert!(
            status == 0 || answered == status,
            "{certname} {request:?}: {answered}"
        );
        assert_eq!(
            reached.len(),
            usize::from(!at.is_empty()),
            "{certname} {request:?}"
        );
        for request in reached {
            let member = request.member.as_str();
            assert!(member.starts_with(at), "{} at {member}", request.target);
            // Requests for the administration of the CA carry the identity of the client, whom the route admits.
            let is_administration = request.path().contains("certificate_status");
            match member {
                "ca" if !is_administration => assert_no_identity(&request),
                _ => assert_identity(&request, "SUCCESS", Some(&format!("CN={certname}"))),
            }
            let presented: Vec<_> = match member {
                "f1" | "f2" => vec![],
                "ca" => vec![&agents_own.cert_der],
                _ => vec![&split.own.cert_der],
            };
            let seen: Vec<_> = request.peer_certificates.iter().take(1).collect();
            assert_eq!(seen, presented, "what the proxy presented to {member}");
            let certificates = request.headers.all("x-client-cert").len();
            assert_eq!(certificates, usize::from(member != "ca"), "{member}");
        }
    }
}

#[test]
fn no_server_believes_a_client_about_its_name_or_address() {
    let split = start();
    let forged = [
        ("X-Client-DN", "CN=admin.example.com"),
        ("X-Client-Verify", "SUCCESS"),
        ("X_Client_DN", "CN=admin.example.com"),
        ("X-Client-Cert", "forged"),
        ("X-Forwarded-For", "192.0.2.1"),
        ("X-Real-IP", "192.0.2.1"),
    ];
    for target in [CATALOG, METADATAS, "/puppet-ca/v1/certificate/ca"] {
        let (status, reached) = split.ask("web01", ("GET", target), &forged);
        assert_eq!((status, reached.len()), (200, 1), "{target}");
        match reached[0].member.as_str() {
            "ca" => assert_no_identity(&reached[0]),
            _ => assert_identity(&reached[0], "SUCCESS", Some("CN=web01")),
        }
        assert_eq!(reached[0].only("x-forwarded-for"), "127.0.0.1");
        assert_eq!(reached[0].only("x-real-ip"), "127.0.0.1");
        let raw = reached[0].raw_text();
        assert!(
            !raw.contains("admin.example.com") && !raw.contains("forged"),
            "{raw}"
        );
    }
    // Without a certificate only enrolment is allowed, and only at the CA.
    split.servers.iter().for_each(StandIn::forget);
    let stranger = split.proxy.client(None);
    for target in [CATALOG, METADATAS] {
        let answer = stranger.request("GET", target, &forged, b"");
        assert_eq!(answer.status, 403, "{target}");
    }
    let answer = stranger.request("GET", "/puppet-ca/v1/certificate/ca", &forged, b"");
    assert_eq!(answer.status, 200);
    let reached: Vec<_> = split.servers.iter().flat_map(of_clients).collect();
    assert_eq!((reached.len(), reached[0].member.as_str()), (1, "ca"));
    assert_no_identity(&reached[0]);
}

#[test]
fn another_application_is_routed_by_host_and_keeps_its_sessions() {
    let split = start();
    let client = split.proxy.client(Some(&split.ca.agent("web01")));
    let ask = |cookie: &str| {
        let fields = [("Host", "dashboard.example.com"), ("Cookie", cookie)];
        let given = if cookie.is_empty() { 1 } else { 2 };
        let answer = client.request("GET", "/", &fields[..given], b"");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    };
    let first = ask("");
    let set = first.headers.only("set-cookie");
    assert!(set.starts_with("DASHBOARD_SERVER="), "{set}");
    let session = set.split(';').next().unwrap_or_default();
    assert!(["d1", "d2"].contains(&first.text().as_str()));
    for _ in 0..4 {
        assert_eq!(ask(session).text(), first.text());
    }
    assert_eq!(ask("dashboard=next").text(), "d3");
    assert_eq!(ask(&format!("{session}; dashboard=next")).text(), "d3");
    // On another host the same path has no route, and a client without a certificate gets nothing.
    assert_eq!(client.get("/").status, 404);
    let host = [("Host", "dashboard.example.com")];
    let stranger = split.proxy.client(None).request("GET", "/", &host, b"");
    assert_eq!(stranger.status, 403);
}

#[test]
fn a_catalog_goes_to_the_compiler_with_the_least_load() {
    let split = start();
    let [c1, c2] = ["c1", "c2"].map(|name| split.named(name));
    split.servers.iter().for_each(StandIn::hold);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (1..=6)
            .map(|n| {
                let certname = format!("web0{n}");
                let client = split.proxy.client(Some(&split.ca.agent(&certname)));
                let target = format!("/puppet/v3/catalog/{certname}");
                let asked = scope.spawn(move || client.request("POST", &target, &[], b"{}").status);
                let heads = || {
                    let heads = [c1, c2].map(|member| member.requests().len());
                    (heads.iter().sum::<usize>() == n).then_some(())
                };
                assert!(testkit::wait_until(LIMIT, heads).is_some(), "{n} arrived");
                asked
            })
            .collect();
        let shares = [c1, c2].map(|member| member.requests().len());
        assert_eq!(shares, [4, 2], "by weight");
        split.servers.iter().for_each(StandIn::release);
        for asked in asking {
            assert_eq!(asked.join().expect("asks"), 200);
        }
    });
}
