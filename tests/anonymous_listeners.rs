//! Listeners with `client_cert = "none"`: no client has an identity there, and no route that needs one applies.

use testkit::{Ca, HeldPort, Reply, StandIn};

use crate::support::{
    Estate, assert_contains, assert_identity,
    paths::CATALOG,
    proxy,
    routes::{Site, site},
};

/// A route for every request of the listener `web`.
const WEB: &str =
    "name = \"web\"\npool = \"north\"\nlistener = [\"web\"]\nunguarded = true\nclient = \"any\"";

/// A site with a listener `web` and its route, after these routes.
fn with_web(routes: &[&str], lines: &str) -> (Site, std::net::SocketAddr) {
    let port = HeldPort::take();
    let listener = format!("{WEB}\n[listeners.web]\naddress = \"127.0.0.1:{port}\"\n{lines}\n");
    let mut routes = routes.to_vec();
    routes.push(&listener);
    let address = format!("127.0.0.1:{port}").parse().expect("an address");
    (site(&routes), address)
}

#[test]
fn no_client_has_an_identity_on_a_listener_without_client_certificates() {
    let (site, web) = with_web(&[], "client_cert = \"none\"");
    let agent = site.agent();
    // A session of the other listener proves no identity here.
    assert_eq!(agent.get(CATALOG).status, 200);
    site.forget();
    let forged = [
        ("X-Client-Verify", "SUCCESS"),
        ("X-Client-DN", "CN=web01"),
        ("X-Client-Cert", "x"),
    ];
    for client in [
        site.agent().at(web),
        site.anonymous().at(web),
        agent.at(web),
    ] {
        for _ in 0..2 {
            let response = client.request("POST", CATALOG, &forged, b"facts");
            assert_eq!(response.text(), "north", "{response:?}");
            let request = site.north.last();
            assert_identity(&request, "NONE", None);
            assert!(
                request.headers.get("x-client-cert").is_none(),
                "{request:?}"
            );
        }
    }
    let record = site
        .proxy
        .wait_for_record(|record| record["listener"] == "web");
    assert_eq!(
        (&record["verdict"], &record["certname"]),
        (&"NONE".into(), &serde_json::Value::Null),
        "{record}"
    );
    // The other listener is unchanged: its clients authenticate with their certificates.
    assert_eq!(site.agent().get(CATALOG).status, 200);
    assert_identity(&site.compilers[0].last(), "SUCCESS", Some("CN=web01"));
    let explained = site.proxy.command(
        &["explain"],
        &[
            "--listener",
            "web",
            "--certname",
            "web01",
            "https://puppet/app",
        ],
    );
    assert!(
        explained.stdout.contains("no certificate") && explained.stdout.contains("route web"),
        "{}",
        explained.stdout
    );
}

#[test]
fn a_reload_to_no_client_certificates_ends_the_identity_of_open_connections() {
    let (site, web) = with_web(&[], "client_cert = \"optional\"");
    let mut open = site.agent().at(web).connect().expect("connects");
    assert_eq!(open.get("/app").text(), "north");
    assert_identity(&site.north.last(), "SUCCESS", Some("CN=web01"));
    site.proxy
        .edit_config("client_cert = \"optional\"", "client_cert = \"none\"");
    site.proxy.reload_applied();
    site.north.forget();
    // The connection drains. It may answer another request, but without an identity.
    if let Ok(response) = open.try_request("GET", "/app", &[], b"") {
        assert_eq!(response.text(), "north", "{response:?}");
        assert_identity(&site.north.last(), "NONE", None);
    }
    assert_eq!(site.agent().at(web).get("/app").text(), "north");
    assert_identity(&site.north.last(), "NONE", None);
}

#[test]
fn routes_that_need_an_identity_are_an_error_on_such_a_listener() {
    let port = HeldPort::take();
    let web = |lines: &str| {
        format!("[listeners.web]\naddress = \"127.0.0.1:{port}\"\nclient_cert = \"none\"\n{lines}")
    };
    let route = |lines: &str| format!("[[routes]]\nname = \"a\"\npool = \"compilers\"\n{lines}\n");
    let any = "unguarded = true\nclient = \"any\"";
    let rest = format!("[[routes]]\n{}\n", WEB.replace("north", "compilers"));
    for (what, tables, problem) in [
        (
            "built-in routes",
            web(""),
            Some("the built-in routes also apply"),
        ),
        (
            "built-in routes behind a condition",
            web("") + &route(&format!("{any}\npath = {{ prefix = \"/a\" }}")),
            Some("the built-in routes also apply"),
        ),
        (
            "a guarded route",
            route("") + &web("") + &rest,
            Some("guarded by the identity"),
        ),
        (
            "a guarded route for any client",
            route("client = \"any\"") + &web("") + &rest,
            Some("guarded by the identity"),
        ),
        (
            "verified clients",
            route("unguarded = true") + &web("") + &rest,
            Some("for verified clients only"),
        ),
        (
            "allow",
            route(&format!("{any}\nallow = [\"web*\"]")) + &web("") + &rest,
            Some("requires a certificate"),
        ),
        (
            "certname",
            route(&format!("{any}\ncertname = [\"web*\"]")) + &web("") + &rest,
            Some("requires a certificate"),
        ),
        (
            "a guarded route of the other listener",
            route("listener = [\"agents\"]") + &web("") + &rest,
            None,
        ),
        ("its own route", web("") + &rest, None),
        (
            "a guarded route behind its own",
            web("") + &rest + &route(""),
            None,
        ),
    ] {
        let estate = Estate::builder().compilers(1).with(&tables);
        match problem {
            Some(problem) => {
                let outcome = estate.try_start();
                assert_eq!(outcome.code, Some(78), "{what}: {}", outcome.stderr);
                assert_contains(&outcome.stderr, problem);
            }
            None => drop(estate.start()),
        }
    }
}

#[test]
fn listeners_without_client_certificates_need_no_trust_files() {
    let ca = Ca::new();
    let member = StandIn::start("north");
    member.answer(|request| (!request.is_probe()).then(|| Reply::ok("north")));
    let tables = format!(
        "ssldir = \"{{dir}}/absent\"\nbuiltin_routes = false\n\
         [listeners.web]\naddress = \"127.0.0.1:{{port}}\"\nclient_cert = \"none\"\n\
         [tls]\ncertificates = [{{ chain = \"{{dir}}/ssl/certs/puppet.pem\", key = \"{{dir}}/ssl/private_keys/puppet.pem\" }}]\n\
         [[routes]]\n{WEB}\n\
         [pools.north]\nscheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ type = \"none\" }}\n\
         [access_log]\npath = \"{{dir}}/access.json\"\nformat = \"json\"\n\
         [admin]\nsocket = \"{{dir}}/admin.sock\"\n",
        member.address()
    );
    let proxy = proxy(&ca).whole(&tables).start();
    let agent = ca.agent("web01");
    for client in [proxy.client(None), proxy.client(Some(&agent))] {
        assert_eq!(client.get("/app").text(), "north");
        assert_identity(&member.last(), "NONE", None);
    }
    // Other values of `client_cert` would require the listener to verify certificates.
    for policy in ["optional", "required"] {
        let text = proxy
            .config_text()
            .replace("\"none\"\n[tls]", &format!("\"{policy}\"\n[tls]"));
        proxy.write_config(&text);
        let checked = proxy.command(&["check"], &[]);
        assert_eq!(checked.code, Some(78), "{policy}: {}", checked.stderr);
        assert!(
            checked.stderr.contains("trust.ca") || checked.stderr.contains("ssldir"),
            "{}",
            checked.stderr
        );
    }
}
