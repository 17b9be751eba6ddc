//! Which pool a request goes to and who may ask: the conditions and the access of `[[routes]]`, one claim each.

use std::{ops::Deref, thread};

use testkit::{Client, Credential, Reply, Response, StandIn};

use crate::support::{self, Estate, LIMIT, assert_refused, assert_told, http1_alone, sayable};

const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
const CA_CERTIFICATE: &str = "/puppet-ca/v1/certificate/ca";

/// An estate with one more pool, `north`, whose server answers everything with its name.
struct Site {
    estate: Estate,
    north: StandIn,
    web01: Credential,
}

impl Deref for Site {
    type Target = Estate;

    fn deref(&self) -> &Estate {
        &self.estate
    }
}

/// A site with these routes, each a few lines of TOML.
fn site(routes: &[&str]) -> Site {
    configured(routes, "")
}

fn configured(routes: &[&str], top: &'static str) -> Site {
    let north = StandIn::start("north");
    north.answer(|request| (!request.is_probe()).then(|| Reply::ok("north")));
    let pool = format!(
        "[pools.north]\nscheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ type = \"none\" }}\n",
        north.address()
    );
    let routes: String = routes
        .iter()
        .map(|route| format!("[[routes]]\n{route}\n"))
        .collect();
    let estate = Estate::builder()
        .compilers(1)
        .proxy(move |proxy| proxy.top(top).with(&pool).with(&routes))
        .start();
    let web01 = estate.ca.agent("web01");
    Site {
        estate,
        north,
        web01,
    }
}

impl Site {
    fn agent(&self) -> Client {
        self.client(&self.web01)
    }

    /// Whether this answer is that of `north`, and nobody else was asked for it.
    #[track_caller]
    fn assert_north(&self, response: &Response, expected: bool, context: &str) {
        assert_eq!(
            response.text() == "north",
            expected,
            "{context}: {response:?}"
        );
        assert_eq!(
            self.north.requests().len(),
            usize::from(expected),
            "{context}"
        );
        self.north.forget();
        self.forget();
    }
}

// Conditions.

#[test]
fn a_prefix_is_one_of_whole_segments() {
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
fn an_exact_path_is_that_path_and_no_other() {
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
fn a_method_that_a_route_does_not_name_takes_the_next() {
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
fn all_header_conditions_must_hold_exactly() {
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
fn a_pool_for_agents_by_extension_and_issuer_takes_only_verified_certificates() {
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
fn an_agent_stays_on_its_side_of_a_share_and_a_larger_share_keeps_those_it_had() {
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
        let expected = match side {
            true => "route canary: matches",
            false => "route canary: no match, by its condition \"share\"",
        };
        assert!(shown.stdout.contains(expected), "{}", shown.stdout);
    }
    let unknown = site.proxy.command(&["explain"], &["/puppet/v3/x"]);
    let expected = "by its condition \"share\" (--source is not set)";
    assert!(unknown.stdout.contains(expected), "{}", unknown.stdout);
}

#[test]
fn a_field_that_connection_names_is_gone_before_a_route_is_sought() {
    http1_alone!("HTTP/2 has no Connection field");
    let site = site(&[
        "name = \"n\"\npool = \"north\"\nclient = \"any\"\nheader = { X-Site = \"north\" }",
    ]);
    let fields = [("X-Site", "north"), ("Connection", "keep-alive, x-site")];
    let response = site.anonymous().request("GET", "/x", &fields, b"");
    site.assert_north(
        &response,
        false,
        "what no member is sent meets no condition",
    );
    let response = site.anonymous().request("GET", "/x", &fields[..1], b"");
    site.assert_north(&response, true, "and without it does");
}

#[test]
fn a_query_parameter_is_compared_as_a_member_reads_it() {
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
        // What servers read in different ways is no match, whatever stands in it.
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
fn a_query_or_a_cookie_opens_nothing_to_nobody() {
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
fn a_cookie_is_compared_byte_for_byte_and_must_be_given_once() {
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
        if sayable(fields) != fields {
            continue;
        }
        let response = site.agent().request("GET", "/x", fields, b"");
        site.assert_north(&response, matches, &format!("{fields:?}"));
    }
}

#[test]
fn a_source_is_the_address_of_the_other_end_and_nothing_that_a_request_says() {
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
fn a_client_over_ipv4_is_one_on_an_ipv6_socket_too() {
    if std::net::TcpListener::bind("[::]:0").is_err() {
        eprintln!("this machine has no IPv6: nothing to show");
        return;
    }
    let port = testkit::HeldPort::take();
    let north = StandIn::start("north");
    north.answer(|request| (!request.is_probe()).then(|| Reply::ok("north")));
    let tables = format!(
        "[listeners.both]\naddress = \"[::]:{port}\"\n\
         [pools.north]\nscheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ type = \"none\" }}\n\
         [[routes]]\nname = \"n\"\npool = \"north\"\nsource = [\"127.0.0.0/8\"]",
        north.address()
    );
    let estate = Estate::builder()
        .proxy(move |proxy| proxy.with(&tables))
        .start();
    let agent = estate.client(&estate.ca.agent("web01"));
    let at = |host: &str| {
        let address = format!("{host}:{port}").parse().expect("an address");
        agent.clone().at(address).get("/x").status
    };
    assert_eq!((at("127.0.0.1"), at("[::1]")), (200, 404));
}

#[test]
fn a_server_name_is_what_the_handshake_asked_for_and_not_host() {
    let site = site(&["name = \"n\"\npool = \"north\"\nsni = [\"LOCALHOST\", \"forge.example\"]"]);
    for (name, matches) in [("localhost", true), ("puppet", false), ("127.0.0.1", false)] {
        let client = site.agent().server_name(name);
        for host in ["puppet", "localhost", "forge.example"] {
            for client in [client.clone(), client.clone().tls12()] {
                // The second connection resumes the session of the first, and the name with it.
                for turn in ["first", "resumed"] {
                    let response = client.request("GET", "/x", &[("Host", host)], b"");
                    site.assert_north(&response, matches, &format!("{name} {host} {turn}"));
                }
            }
        }
    }
}

#[test]
fn a_certname_is_a_condition_and_no_match_means_the_next_route() {
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
fn all_conditions_must_hold_and_the_first_route_that_matches_wins() {
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
    // Each connection may have been another thread's, and only those of one thread keep their order.
    routes.sort();
    assert_eq!(routes, ["\"both\"", "\"first\"", "\"first\""]);
}

#[test]
fn configured_routes_come_before_the_built_in_ones() {
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
fn without_built_in_routes_there_are_no_others() {
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

// Access.

#[test]
fn who_matches_and_is_not_allowed_gets_a_403_and_not_the_next_route() {
    let site = site(&[
        "name = \"n\"\npool = \"north\"\npath = { prefix = \"/x\" }\nallow = [\"admin*\", \"ops.example\"]",
        "name = \"open\"\npool = \"compilers\"\npath = { prefix = \"/x\" }",
    ]);
    for (name, allowed) in [
        ("admin01", true),
        ("ops.example", true),
        ("web01", false),
        ("ops.example.com", false),
    ] {
        let response = site.client(&site.ca.agent(name)).get("/x");
        if !allowed {
            assert_refused(&response, 403, &[name, "n"]);
        }
        site.assert_north(&response, allowed, name);
    }
    assert_refused(&site.anonymous().get("/x"), 403, &["certificate"]);
    let record = site
        .proxy
        .wait_for_record(|record| record["certname"] == "web01");
    assert_eq!(
        (&record["reason"], &record["route"]),
        (&"not-allowed".into(), &"n".into()),
        "{record}"
    );
    assert!(site.far_end().is_empty());
}

#[test]
fn a_route_is_for_verified_clients_unless_it_says_any() {
    let site = site(&[
        "name = \"v\"\npool = \"north\"\npath = { prefix = \"/v\" }\nclient = \"verified\"",
        "name = \"a\"\npool = \"north\"\npath = { prefix = \"/a\" }\nclient = \"any\"",
        "name = \"d\"\npool = \"north\"\npath = { prefix = \"/d\" }",
    ]);
    for (path, passes) in [("/v", false), ("/a", true), ("/d", false)] {
        let response = site.anonymous().get(path);
        if passes {
            assert_told(&site.north.last(), "NONE", None);
        } else {
            assert_refused(&response, 403, &["certificate"]);
        }
        site.assert_north(&response, passes, path);
        assert_eq!(site.agent().get(path).text(), "north");
        assert_told(&site.north.last(), "SUCCESS", Some("CN=web01"));
        site.north.forget();
    }
}

#[test]
fn any_client_and_a_catch_all_open_no_guarded_class() {
    let site = site(&["name = \"all\"\npool = \"north\"\nclient = \"any\""]);
    for (method, path, status) in [
        ("GET", "/", 200),
        ("GET", "/elsewhere", 200),
        ("POST", "/puppet/v3/catalog/web01", 403),
        ("GET", "/puppet/v3/file_content/modules/a/b", 403),
        ("GET", "/puppet/v3/file_bucket_file/md5/abc/x", 403),
        ("POST", "/puppet/v4/catalog", 403),
        ("PUT", "/puppet-ca/v1/certificate_status/web01", 403),
        ("POST", "/puppet-ca/v1/certificate_renewal", 404),
        ("GET", "/puppet-admin-api/v1/jruby-pool", 403),
        ("GET", "/metrics/v2", 403),
        ("GET", "/production/certificate_status/web01", 403),
        // What Puppet 3 takes for the plural of a name, its own or not.
        ("GET", "/production/certificate_search/all", 403),
        ("GET", "/production/certificate_request_search/all", 403),
        ("GET", "/production/certificate_statuss/all", 403),
        ("GET", "/production/certificatees/all", 403),
        ("GET", "/production/node_search/web01", 403),
        ("GET", "/production/nodees/web01", 403),
    ] {
        let response = site.anonymous().request(method, path, &[], b"");
        assert_eq!(response.status, status, "{method} {path}: {response:?}");
        site.assert_north(&response, status == 200, path);
    }
}

#[test]
fn a_guarded_class_is_opened_by_name_to_those_who_are_named() {
    let site = site(&[
        "name = \"ca\"\npool = \"north\"\npath = { prefix = \"/puppet-ca\" }\nclasses = [\"ca-administration\"]\nallow = [\"admin\"]",
        "name = \"services\"\npool = \"north\"\npath = { prefix = \"/puppet/v4\" }\nclasses = [\"services\"]\nallow = [\"admin\"]",
        "name = \"own\"\npool = \"north\"\npath = { prefix = \"/puppet/v3/node\" }\nclasses = [\"own-documents\"]\nallow = [\"admin\"]",
    ]);
    let admin = site.client(&site.ca.agent("admin"));
    for (method, path) in [
        ("GET", "/puppet-ca/v1/certificate_status/web01"),
        ("DELETE", "/puppet-ca/v1/certificate_request/web01"),
        ("POST", "/puppet/v4/catalog"),
        ("GET", "/puppet/v3/node/web01"),
    ] {
        site.assert_north(&admin.request(method, path, &[], b""), true, path);
        let own = path.ends_with("node/web01");
        let response = site.agent().request(method, path, &[], b"");
        site.assert_north(&response, own, path);
        assert_eq!(response.status, if own { 200 } else { 403 }, "{path}");
        assert_eq!(
            site.anonymous().request(method, path, &[], b"").status,
            403,
            "{path}"
        );
    }
    assert_eq!(
        admin.request("POST", "/puppet/v3/compile", &[], b"").status,
        403,
        "on that route alone"
    );
}

#[test]
fn files_are_open_to_anyone_where_a_route_says_both() {
    let file = "/puppet/v3/file_content/public/installer";
    let site = site(&[
        "name = \"public\"\npool = \"north\"\npath = { prefix = \"/puppet/v3/file_content/public\" }\nclient = \"any\"\nclasses = [\"files\"]",
    ]);
    site.assert_north(&site.anonymous().get(file), true, "opened");
    assert_eq!(
        site.anonymous()
            .get("/puppet/v3/file_content/modules/a")
            .status,
        403
    );
}

#[test]
fn an_unguarded_route_knows_no_classes() {
    let site = site(&[
        "name = \"u\"\npool = \"north\"\nclient = \"any\"\nunguarded = true\nhost = [\"other\"]",
    ]);
    let other = [("Host", "other")];
    for (method, path) in [
        ("POST", "/puppet/v3/catalog/web01"),
        ("DELETE", "/puppet-ca/v1/certificate/ca"),
        ("GET", "/metrics/v2"),
        ("PATCH", "/puppet/v3/report/web01"),
    ] {
        site.assert_north(
            &site.anonymous().request(method, path, &other, b""),
            true,
            path,
        );
    }
    assert_eq!(
        site.anonymous().get("/metrics/v2").status,
        403,
        "elsewhere they hold"
    );
    assert_eq!(
        site.anonymous()
            .request("GET", "/a/../b", &other, b"")
            .status,
        400,
        "the path rule holds everywhere"
    );
    let check = site.proxy.command(&["check"], &[]);
    assert!(
        (check.stdout + &check.stderr)
            .contains("ignores what Puppet's endpoints require of a client")
    );
}

#[test]
fn enrolment_can_be_kept_to_some() {
    let site = site(&[
        "name = \"ca\"\npool = \"ca\"\npath = { prefix = \"/puppet-ca\" }\nallow = [\"web*\"]",
    ]);
    assert_eq!(site.agent().get(CA_CERTIFICATE).status, 200);
    assert_eq!(site.anonymous().get(CA_CERTIFICATE).status, 403);
}

// The order, and what is told.

#[test]
fn a_wrong_method_is_405_and_says_the_right_ones() {
    let site = site(&[]);
    for (method, path, allow) in [
        ("DELETE", CATALOG, "GET, POST"),
        ("GET", "/puppet/v3/report/web01", "PUT"),
        ("PUT", "/puppet/v3/environments", "GET, HEAD"),
        (
            "POST",
            "/puppet-ca/v1/certificate_request/web01",
            "GET, HEAD, PUT",
        ),
        ("PUT", CA_CERTIFICATE, "GET, HEAD"),
        ("POST", "/status/v1/simple", "GET, HEAD"),
        ("PURGE", "/puppet/v3/file_content/modules/a/b", "GET, HEAD"),
    ] {
        let response = site.agent().request(method, path, &[], b"");
        assert_refused(&response, 405, &[method]);
        assert_eq!(response.headers.only("allow"), allow, "{method} {path}");
    }
    assert!(site.far_end().is_empty());
}

#[test]
fn refusals_come_in_their_order() {
    let site = site(&[
        "name = \"few\"\npool = \"north\"\npath = { prefix = \"/puppet/v3/environments\" }\nallow = [\"admin\"]",
    ]);
    let refused = site.client(&site.ca.leaf("web01").expired().issue());
    let (agent, admin) = (site.agent(), site.client(&site.ca.agent("admin")));
    for (client, method, path, status, reason) in [
        // The path rule goes before all else,
        (
            &refused,
            "DELETE",
            "/puppet/v3/environments/../x",
            400,
            "bad-path",
        ),
        // no route before a refused identity,
        (&refused, "DELETE", "/nowhere", 404, "no-route"),
        // a refused identity before access and method,
        (
            &refused,
            "DELETE",
            "/puppet/v3/environments",
            403,
            "refused-certificate",
        ),
        // access before method,
        (
            &agent,
            "DELETE",
            "/puppet/v3/environments",
            403,
            "not-allowed",
        ),
        // and then the method.
        (&admin, "DELETE", "/puppet/v3/environments", 405, "method"),
    ] {
        let before = site.proxy.records().len();
        let response = client.request(method, path, &[], b"");
        assert_eq!(response.status, status, "{path}: {response:?}");
        let record = site.proxy.wait_for_records(before + 1).remove(before);
        assert_eq!(record["reason"], reason, "{record}");
    }
    assert_eq!(admin.get("/puppet/v3/environments").text(), "north");
    assert!(site.far_end().is_empty());
}

#[test]
fn a_record_tells_route_class_pool_and_member() {
    let site = site(&["name = \"n\"\npool = \"north\"\npath = { prefix = \"/x\" }"]);
    let agent = site.agent();
    for (path, route, class, pool, member) in [
        ("/x", "n", "unknown", "north", site.north.address()),
        (
            CATALOG,
            "builtin:own-documents",
            "own-documents",
            "compilers",
            site.compilers[0].address(),
        ),
        (
            CA_CERTIFICATE,
            "builtin:enrolment",
            "enrolment",
            "ca",
            site.ca_server.address(),
        ),
    ] {
        let before = site.proxy.records().len();
        assert_eq!(agent.get(path).status, 200, "{path}");
        let record = site.proxy.wait_for_records(before + 1).remove(before);
        for (key, expected) in [
            ("route", route),
            ("class", class),
            ("pool", pool),
            ("member", &member),
        ] {
            assert_eq!(record[key], expected, "{path}: {record}");
        }
    }
}

#[test]
fn t14_the_path_rule_holds_on_every_route() {
    let site = configured(
        &["name = \"all\"\npool = \"north\"\nclient = \"any\"\nunguarded = true"],
        "workers = 2",
    );
    let client = site.anonymous();
    for path in [
        "/a/./b",
        "/a/b/..",
        "/a/%2e%2e/b",
        "/a/b/c/%2F/d",
        "/a/b/c/%5c",
        "/a/b/c/%00",
        "/a/b/c/%zz",
        "/a/b/c/%",
        "/a/b/c\\d",
        "/a/b/c/%ff",
        "/%61/b",
        "//a/b",
        "/a//b",
        "/a;x/b",
        "/puppet/v3/catalog/web%301",
        "/puppet/v3/catalog/web01;x",
    ] {
        let response = client.get(path);
        assert_eq!(response.status, 400, "{path}: {response:?}");
        site.assert_north(&response, false, path);
    }
    for path in ["/a/b/c/d//e", "/a/b/c/d%20e", "/a/b/c/d;e"] {
        let response = client.get(path);
        assert_eq!(site.north.last().target, path);
        site.assert_north(&response, true, path);
    }
}

#[test]
fn a_route_table_serves_many_at_once() {
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
