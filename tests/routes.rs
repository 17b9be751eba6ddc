//! The pool to which a request goes: the conditions of `[[routes]]`.

use std::thread;

use testkit::{HeldPort, Reply, StandIn};

use crate::support::{
    self, Estate, LIMIT, allowed_fields, assert_contains, assert_refused, http1_alone,
    paths::{CA_CERTIFICATE, CATALOG},
    routes::site,
};

#[test]
fn a_prefix_matches_whole_segments() {
    for prefix in ["/a", "/a/"] {
        let site = site(&[&format!(
            "name = \"n\"\npool = \"north\"\npath = {{ prefix = \"{prefix}\" }}"
        )]);
        for (path, matches) in [
            ("/a", true),
            ("/a/", true),
            ("/a/b/c?x=y", true),
            ("/a?x", true),
            ("/ab", false),
            ("/A", false),
            ("/b/a", false),
            ("/", false),
        ] {
            let response = site.agent().get(path);
            assert!(matches || response.status == 404, "{path}: {response:?}");
            site.assert_north(&response, matches, path);
        }
    }
}

#[test]
fn an_exact_path_matches_only_that_path() {
    let site = site(&["name = \"n\"\npool = \"north\"\npath = { exact = \"/a/b\" }"]);
    for (path, matches) in [
        ("/a/b", true),
        ("/a/b?x=y", true),
        ("/a/b/", false),
        ("/a/b/c", false),
        ("/a", false),
    ] {
        site.assert_north(&site.agent().get(path), matches, path);
    }
}

#[test]
fn a_regular_expression_is_anchored_at_both_ends() {
    let site = site(&["name = \"n\"\npool = \"north\"\npath = { regex = \"/a/[0-9]+|/b\" }"]);
    for (path, matches) in [
        ("/a/17", true),
        ("/b", true),
        ("/a/17?x", true),
        ("/a/17x", false),
        ("/x/a/1", false),
        ("/b/c", false),
        ("/a/", false),
    ] {
        site.assert_north(&site.agent().get(path), matches, path);
    }
}

#[test]
fn a_host_is_compared_without_case_and_port() {
    let site = site(&["name = \"n\"\npool = \"north\"\nhost = [\"forge\", \"forge.example.com\"]"]);
    for (host, matches) in [
        ("forge", true),
        ("FORGE:8140", true),
        ("forge.example.com:1", true),
        ("forge.example.org", false),
        ("a.forge", false),
        ("puppet", false),
    ] {
        let response = site.agent().request("GET", "/x", &[("Host", host)], b"");
        site.assert_north(&response, matches, host);
    }
}

#[test]
fn a_host_condition_with_an_asterisk_names_every_host_directly_below_a_domain() {
    let site = site(&["name = \"n\"\npool = \"north\"\nhost = [\"*.forge.example.com\"]"]);
    for (host, matches) in [
        ("a.forge.example.com", true),
        ("A.FORGE.example.com:8140", true),
        ("forge.example.com", false),
        ("b.a.forge.example.com", false),
        ("a.forge.example.org", false),
    ] {
        let response = site.agent().request("GET", "/x", &[("Host", host)], b"");
        site.assert_north(&response, matches, host);
    }
}

#[test]
fn a_route_of_one_listener_opens_nothing_on_another() {
    let port = HeldPort::take();
    let smart =
        format!("[listeners.smart]\naddress = \"127.0.0.1:{port}\"\nclient_cert = \"required\"");
    let site = site(&[
        &format!(
            "name = \"smart\"\npool = \"north\"\nlistener = [\"smart\"]\nunguarded = true\n{smart}"
        ),
        "name = \"ca\"\npool = \"north\"\nlistener = [\"agents\"]\npath = { prefix = \"/puppet-ca\" }\n\
         classes = [\"ca-administration\"]\nallow = [\"admin\"]",
    ]);
    let address = format!("127.0.0.1:{port}").parse().expect("an address");
    let admin = site.ca.agent("admin");
    let clean = ("PUT", "/puppet-ca/v1/clean");
    for (method, path, agents) in [
        ("GET", "/puppet/ca", 403),
        ("GET", "/app", 404),
        ("POST", "/puppet/v3/catalog/web02", 403),
        ("GET", "/metrics/v2", 403),
    ] {
        let response = site.agent().at(address).request(method, path, &[], b"");
        site.assert_north(&response, true, path);
        let response = site.agent().request(method, path, &[], b"");
        assert_eq!(response.status, agents, "{path}");
        site.assert_north(&response, false, path);
    }
    site.assert_north(
        &site.client(&admin).request(clean.0, clean.1, &[], b""),
        true,
        "by name",
    );
    let denied = site.agent().request(clean.0, clean.1, &[], b"");
    assert_eq!(denied.status, 403, "{denied:?}");
    // Without its listener the guarded route does not apply, and the class is closed to everyone.
    let config = site.proxy.config_text();
    site.proxy
        .write_config(&config.replace("listener = [\"agents\"]", "listener = [\"smart\"]"));
    site.proxy.reload_applied();
    let denied = site.client(&admin).request(clean.0, clean.1, &[], b"");
    assert_eq!(denied.status, 403, "{denied:?}");
    for (listener, problem) in [
        ("smrt", "no listener `smrt`"),
        ("plain", "redirects every request itself"),
        ("pcp", "passes every connection through"),
    ] {
        let more = "[listeners.plain]\naddress = \"127.0.0.1:0\"\nredirect_to_https = \"https://puppet\"\n\
                    [listeners.pcp]\naddress = \"127.0.0.1:0\"\npassthrough = \"brokers\"\n\
                    [pools.brokers]\nmembers = [\"broker.example.com:8142\"]\n";
        let config = config.replace(
            "listener = [\"agents\"]",
            &format!("listener = [\"{listener}\"]"),
        );
        site.proxy.write_config(&(config + more));
        let checked = site.proxy.command(&["check"], &[]);
        assert_contains(&checked.stderr, problem);
    }
}

#[test]
fn a_method_that_a_route_does_not_name_is_matched_against_the_next_route() {
    let site = site(&[
        "name = \"n\"\npool = \"north\"\npath = { prefix = \"/x\" }\nmethod = [\"POST\", \"PUT\"]",
        "name = \"rest\"\npool = \"compilers\"\npath = { prefix = \"/x\" }",
    ]);
    for (method, matches) in [
        ("POST", true),
        ("PUT", true),
        ("GET", false),
        ("DELETE", false),
        ("post", false),
    ] {
        let response = site.agent().request(method, "/x", &[], b"");
        site.assert_north(&response, matches, method);
    }
}

#[test]
fn all_header_conditions_must_match_exactly() {
    let site =
        site(&["name = \"n\"\npool = \"north\"\nheader = { X-Site = \"north\", X-Rack = \"7\" }"]);
    for (fields, matches) in [
        (&[("X-Site", "north"), ("X-Rack", "7")][..], true),
        (&[("x-rack", "7"), ("x-site", "north")], true),
        (
            &[("X-Site", "south"), ("X-Site", "north"), ("X-Rack", "7")],
            true,
        ),
        (&[("X-Site", "north")], false),
        (&[("X-Site", "North"), ("X-Rack", "7")], false),
        (&[("X-Site", "north2"), ("X-Rack", "7")], false),
        (&[], false),
    ] {
        let response = site.agent().request("GET", "/x", fields, b"");
        site.assert_north(&response, matches, &format!("{fields:?}"));
    }
}

#[test]
fn conditions_on_extension_and_issuer_match_only_verified_certificates() {
    /// `pp_role`
    const ROLE: &[u64] = &[1, 3, 6, 1, 4, 1, 34380, 1, 1, 13];
    let site = site(&[
        "name = \"batch\"\npool = \"north\"\nclient = \"any\"\nextension = { pp_role = \"batch*\" }\n\
         issuer = [\"CN=Puppet CA: test\"]\npath = { prefix = \"/x\" }",
        "name = \"other\"\npool = \"north\"\nextension = { pp_role = \"*\" }\nissuer = [\"CN=elsewhere\"]",
        "name = \"rest\"\npool = \"compilers\"\nclient = \"any\"\npath = { prefix = \"/x\" }",
    ]);
    let leaf = |name: &str| site.ca.leaf(name);
    let revoked = leaf("web05").extension(ROLE, "batch").issue();
    for (agent, matches) in [
        (leaf("web02").extension(ROLE, "batch-7").issue(), true),
        (leaf("web03").extension(ROLE, "web").issue(), false),
        (leaf("web04").raw_extension(ROLE, b"batch").issue(), false),
        (site.ca.agent("web01"), false),
        (revoked.clone(), true),
    ] {
        let response = site.client(&agent).get("/x");
        site.assert_north(&response, matches, "by its certificate");
    }
    site.ca.revoke(&revoked);
    site.proxy.swap_crl();
    let response = site.client(&revoked).get("/x");
    site.assert_north(
        &response,
        false,
        "what a revoked certificate says counts for nothing",
    );
    let response = site.anonymous().get("/x");
    site.assert_north(&response, false, "no certificate");
    let explain = |arguments: &[&str]| {
        let all = [&["/x", "--certname", "web09"], arguments].concat();
        site.proxy.command(&["explain"], &all).stdout
    };
    let batch = [
        "--issuer",
        "CN=Puppet CA: test",
        "--extension",
        "pp_role=batch",
    ];
    for (arguments, lines) in [
        (
            &[][..],
            "route batch: no match, by its condition \"issuer\" (--issuer is not set)",
        ),
        (
            &batch[..2],
            "route batch: no match, by its condition \"extension\" (--extension is not set)",
        ),
        (&batch, "with     pp_role = \"batch\""),
        (&batch, "route batch: matches"),
    ] {
        let shown = explain(arguments);
        assert!(shown.contains(lines), "{lines}: {shown}");
    }
    let checked = site.proxy.command(&["check"], &[]);
    let warning = "no CA of the bundle has the subject \"CN=elsewhere\"";
    assert!(checked.stderr.contains(warning), "{}", checked.stderr);
}

#[test]
fn an_agent_stays_on_its_side_of_a_share_when_the_share_grows() {
    let site = site(&[
        "name = \"canary\"\npool = \"north\"\npath = { prefix = \"/puppet\" }\nshare = \"20%\"",
    ]);
    let agents: Vec<_> = (0..30)
        .map(|n| {
            let name = format!("canary{n:02}");
            let catalog = format!("/puppet/v3/catalog/{name}?environment=production");
            (site.ca.agent(&name), catalog, name)
        })
        .collect();
    let sides = || -> Vec<bool> {
        let asked = agents.iter();
        asked
            .map(|(agent, catalog, _)| site.client(agent).get(catalog).text() == "north")
            .collect()
    };
    let before = sides();
    let inside = |sides: &[bool]| sides.iter().filter(|side| **side).count();
    assert!((1..30).contains(&inside(&before)), "{before:?}");
    assert_eq!(sides(), before, "on other connections");
    site.proxy.edit_config("share = \"20%\"", "share = \"60%\"");
    site.proxy.reload_applied();
    let after = sides();
    assert!(inside(&after) > inside(&before), "{after:?}");
    let kept = before
        .iter()
        .zip(&after)
        .all(|(before, after)| !before || *after);
    assert!(kept, "{before:?} {after:?}");
    for ((_, catalog, name), side) in agents.iter().zip(after) {
        let shown = site
            .proxy
            .command(&["explain"], &[catalog, "--certname", name]);
        let expected = if side {
            "route canary: matches"
        } else {
            "route canary: no match, by its condition \"share\""
        };
        assert!(shown.stdout.contains(expected), "{}", shown.stdout);
    }
    let unknown = site.proxy.command(&["explain"], &["/puppet/v3/x"]);
    let expected = "by its condition \"share\" (--source is not set)";
    assert!(unknown.stdout.contains(expected), "{}", unknown.stdout);
}

#[test]
fn a_field_that_connection_names_is_removed_before_routing() {
    http1_alone!("HTTP/2 has no Connection field");
    let site = site(&[
        "name = \"n\"\npool = \"north\"\nclient = \"any\"\nheader = { X-Site = \"north\" }",
    ]);
    let fields = [("X-Site", "north"), ("Connection", "keep-alive, x-site")];
    let response = site.anonymous().request("GET", "/x", &fields, b"");
    site.assert_north(
        &response,
        false,
        "what no member is sent matches no condition",
    );
    let response = site.anonymous().request("GET", "/x", &fields[..1], b"");
    site.assert_north(&response, true, "and without it does");
}

#[test]
fn a_query_parameter_is_compared_in_the_form_that_members_read() {
    let site = site(&[
        "name = \"n\"\npool = \"north\"\nquery = { environment = \"pro duction\", site = \"7\" }",
    ]);
    for (query, matches) in [
        ("?environment=pro+duction&site=7", true),
        ("?site=7&x&environment=pro%20duction", true),
        ("?%65nvironment=pro%20ductio%6e&site=%37", true),
        ("?environment=pro%20duction", false),
        ("?environment=pro%2520duction&site=7", false),
        ("?Environment=pro+duction&site=7", false),
        ("?environment=pro+Duction&site=7", false),
        ("?environment=pro+duction2&site=7", false),
        ("?xenvironment=pro+duction&site=7", false),
        ("?environment=pro+duction%zz&site=7", false),
        ("", false),
        ("?", false),
        // A query that servers parse in different ways does not match, whatever it contains.
        ("?environment=pro+duction&site=7&site=7", false),
        ("?environment=pro+duction&site=7&%73ite=8", false),
        ("?environment=pro+duction&site=7&site", false),
        ("?environment=pro+duction&site=7;x=y", false),
        ("?environment=pro+duction&x=1;site=7", false),
    ] {
        let target = format!("/x{query}");
        let response = site.agent().get(&target);
        if matches {
            let seen = site.north.last().target;
            assert_eq!(seen, target, "the bytes that came are those that go");
        }
        site.assert_north(&response, matches, query);
    }
}

#[test]
fn a_query_or_cookie_condition_grants_no_access() {
    let site = site(&[
        "name = \"n\"\npool = \"north\"\nquery = { who = \"admin\" }",
        "name = \"m\"\npool = \"north\"\ncookie = { who = \"admin\" }",
    ]);
    let cookie = [("Cookie", "who=admin")];
    for path in [CATALOG, "/puppet-ca/v1/certificate_status/web01", "/x"] {
        let joint = if path.contains('?') { '&' } else { '?' };
        let target = format!("{path}{joint}who=admin");
        assert_eq!(site.anonymous().get(&target).status, 403, "{target}");
        let response = site.anonymous().request("GET", path, &cookie, b"");
        assert_eq!(response.status, 403, "{path}");
    }
    assert!(site.north.requests().is_empty() && site.far_end().is_empty());
}

#[test]
fn a_cookie_is_compared_byte_for_byte_and_must_be_sent_once() {
    let site = site(&["name = \"n\"\npool = \"north\"\ncookie = { site = \"north\" }"]);
    for (fields, matches) in [
        (&[("Cookie", "site=north")][..], true),
        (&[("cookie", "a=b; site=north; c")], true),
        (&[("Cookie", "site=North")], false),
        (&[("Cookie", "Site=north")], false),
        (&[("Cookie", "site=\"north\"")], false),
        (&[("Cookie", "site=nort%68")], false),
        (&[("Cookie", "site=north2")], false),
        (&[("Cookie", "a=site=north")], false),
        (&[("Cookie", "site=north; site=north")], false),
        (&[("Cookie", "site=south; site=north")], false),
        (&[("Cookie", "site=north"), ("Cookie", "site=south")], false),
        (&[("Cookie", "site=north"), ("Connection", "cookie")], false),
        (&[("X-Cookie", "site=north")], false),
        (&[], false),
    ] {
        if allowed_fields(fields) != fields {
            continue;
        }
        let response = site.agent().request("GET", "/x", fields, b"");
        site.assert_north(&response, matches, &format!("{fields:?}"));
    }
}

#[test]
fn a_source_is_the_address_of_the_connection_and_not_of_a_header() {
    let site = site(&[
        "name = \"n\"\npool = \"north\"\nsource = [\"127.0.1.0/24\", \"127.0.0.9\", \"2001:db8::/32\"]",
    ]);
    for (address, matches) in [
        ("127.0.1.0", true),
        ("127.0.1.255", true),
        ("127.0.0.9", true),
        ("127.0.0.8", false),
        ("127.0.2.1", false),
        ("127.0.0.1", false),
    ] {
        let client = site.agent().source(address.parse().expect("an address"));
        for forged in [None, Some("127.0.1.7"), Some("2001:db8::1")] {
            let fields: Vec<_> = ["X-Forwarded-For", "X-Real-IP", "Forwarded"]
                .into_iter()
                .zip(forged.into_iter().cycle())
                .collect();
            let response = client.request("GET", "/x", &fields, b"");
            site.assert_north(&response, matches, &format!("{address} {forged:?}"));
        }
    }
}

#[test]
fn an_ipv4_client_on_an_ipv6_socket_matches_ipv4_networks() {
    if std::net::TcpListener::bind("[::]:0").is_err() {
        eprintln!("this machine has no IPv6: nothing to show");
        return;
    }
    let port = HeldPort::take();
    let north = StandIn::start("north");
    north.answer(|request| (!request.is_probe()).then(|| Reply::ok("north")));
    let tables = format!(
        "[listeners.both]\naddress = \"[::]:{port}\"\n\
         [pools.north]\nscheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ type = \"none\" }}\n\
         [[routes]]\nname = \"n\"\npool = \"north\"\nsource = [\"127.0.0.0/8\"]",
        north.address()
    );
    let estate = Estate::builder().with(&tables).start();
    let agent = estate.agent("web01");
    let at = |host: &str| {
        let address = format!("{host}:{port}").parse().expect("an address");
        agent.clone().at(address).get("/x").status
    };
    assert_eq!((at("127.0.0.1"), at("[::1]")), (200, 404));
}

#[test]
fn a_server_name_is_that_of_the_handshake_and_not_of_host() {
    let site = site(&["name = \"n\"\npool = \"north\"\nsni = [\"LOCALHOST\", \"forge.example\"]"]);
    for (name, matches) in [("localhost", true), ("puppet", false), ("127.0.0.1", false)] {
        let client = site.agent().server_name(name);
        for host in ["puppet", "localhost", "forge.example"] {
            for client in [client.clone(), client.clone().tls12()] {
                // The second connection resumes the session of the first, with its server name.
                for turn in ["first", "resumed"] {
                    let response = client.request("GET", "/x", &[("Host", host)], b"");
                    site.assert_north(&response, matches, &format!("{name} {host} {turn}"));
                }
            }
        }
    }
}

#[test]
fn a_certname_that_does_not_match_means_the_next_route() {
    let site = site(&[
        "name = \"n\"\npool = \"north\"\npath = { prefix = \"/puppet/v3/environments\" }\ncertname = [\"web*.example\", \"db01\"]",
    ]);
    for (name, matches) in [
        ("web01.example", true),
        ("db01", true),
        ("web01.example.com", false),
        ("db011", false),
        ("xdb01", false),
    ] {
        let response = site
            .client(&site.ca.agent(name))
            .get("/puppet/v3/environments");
        assert_eq!(response.status, 200, "the compilers serve the rest: {name}");
        site.assert_north(&response, matches, name);
    }
    let refused = site.ca.leaf("db01").expired().issue();
    let response = site.client(&refused).get("/puppet/v3/environments");
    assert_eq!(response.status, 403);
    site.assert_north(&response, false, "only a verified name is one");
}

#[test]
fn all_conditions_must_match_and_the_first_matching_route_wins() {
    let site = site(&[
        "name = \"both\"\npool = \"north\"\npath = { prefix = \"/x\" }\nmethod = [\"PUT\"]\nhost = [\"puppet\"]",
        "name = \"first\"\npool = \"compilers\"\npath = { prefix = \"/x\" }",
        "name = \"second\"\npool = \"north\"\npath = { prefix = \"/x\" }",
    ]);
    let agent = site.agent();
    site.assert_north(&agent.request("PUT", "/x", &[], b""), true, "both hold");
    site.assert_north(
        &agent.request("PUT", "/x", &[("Host", "other")], b""),
        false,
        "one does not",
    );
    site.assert_north(&agent.get("/x"), false, "the first of two");
    let mut routes: Vec<_> = site
        .proxy
        .wait_for_records(3)
        .iter()
        .map(|record| record["route"].to_string())
        .collect();
    // Each connection may be on another thread, and only records of one thread are in order.
    routes.sort();
    assert_eq!(routes, ["\"both\"", "\"first\"", "\"first\""]);
}

#[test]
fn configured_routes_take_precedence_over_the_built_in_ones() {
    let site =
        site(&["name = \"n\"\npool = \"north\"\npath = { prefix = \"/puppet/v3/catalog\" }"]);
    site.assert_north(&site.agent().get(CATALOG), true, "catalog");
    assert_refused(
        &site.client(&site.ca.agent("web02")).get(CATALOG),
        403,
        &["web02", "web01"],
    );
    assert!(
        site.north.requests().is_empty(),
        "the class holds on every route"
    );
    site.assert_north(
        &site.agent().get("/puppet/v3/environments"),
        false,
        "the rest",
    );
}

#[test]
fn without_built_in_routes_only_the_configured_ones_match() {
    let north = StandIn::start("north");
    north.answer(|request| (!request.is_probe()).then(|| Reply::ok("north")));
    let text = format!(
        "ssldir = \"{{dir}}/ssl\"\ncertname = \"puppet\"\nbuiltin_routes = false\n\
         [listeners.agents]\naddress = \"127.0.0.1:{{port}}\"\n[access_log]\npath = \"{{dir}}/access.json\"\nformat = \"json\"\n\
         [admin]\nsocket = \"{{dir}}/admin.sock\"\n\
         [pools.north]\nscheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ type = \"none\" }}\n\
         [[routes]]\nname = \"n\"\npool = \"north\"\npath = {{ prefix = \"/x\" }}\n",
        north.address()
    );
    let ca = testkit::Ca::new();
    let proxy = support::proxy(&ca).whole(&text).start();
    let agent = proxy.client(Some(&ca.agent("web01")));
    assert_eq!(agent.get("/x").text(), "north");
    for path in [
        CATALOG,
        CA_CERTIFICATE,
        "/puppet/v3/environments",
        "/status/v1/simple",
        "/metrics",
    ] {
        assert_eq!(agent.get(path).status, 404, "{path}");
    }
    assert_eq!(north.requests().len(), 1);
    proxy.assert_settled();
}

#[test]
fn a_route_table_serves_concurrent_requests() {
    let site = site(&["name = \"n\"\npool = \"north\"\npath = { prefix = \"/x\" }"]);
    let clients: Vec<_> = (0..8)
        .map(|n| {
            let client = site.client(&site.ca.agent(&format!("web{n:02}")));
            thread::spawn(move || {
                let mut connection = client.connect().expect("connects");
                let own = format!("/puppet/v3/catalog/web{n:02}");
                for _ in 0..10 {
                    assert_eq!(connection.get("/x").text(), "north");
                    assert_eq!(connection.get(&own).json()["name"], format!("web{n:02}"));
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("each gets its own");
    }
    site.north.wait_for_request(80, LIMIT);
    assert_eq!(site.compilers[0].requests().len(), 80);
}
