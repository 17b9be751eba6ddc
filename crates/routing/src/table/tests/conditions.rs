//! Conditions of routes.

use super::super::*;
use super::support::*;
use crate::CanonicalPath;
use crate::RouteCondition;
use crate::settings::ClientRule;
use crate::settings::PathPattern;
use crate::settings::RouteSettings;
use http::Method;
use http1::Fields;
use identity::Agent;
use identity::ClientIdentity;
use std::sync::Arc;

#[test]
fn a_request_that_fails_a_condition_goes_to_the_next_route() {
    let base = RouteSettings {
        client: ClientRule::Any,
        ..route("r", "/a")
    };
    let header = |value: &str| RouteSettings {
        header: vec![("X-Team".to_owned(), value.to_owned())],
        ..base.clone()
    };
    let path = |path| RouteSettings {
        path: Some(path),
        ..base.clone()
    };
    let cases: Vec<(RouteSettings, Vec<(&str, bool)>)> = vec![
        (
            base.clone(),
            vec![
                ("GET /a", true),
                ("GET /a/", true),
                ("GET /a/b", true),
                ("GET /ab", false),
                ("GET /A", false),
            ],
        ),
        (
            path(PathPattern::Prefix("/a/".to_owned())),
            vec![("GET /a", true), ("GET /a/b", true), ("GET /ab", false)],
        ),
        (
            path(PathPattern::Exact("/a".to_owned())),
            vec![("GET /a", true), ("GET /a/", false), ("GET /a/b", false)],
        ),
        (
            path(PathPattern::Regex("/a|/b/[0-9]+".to_owned())),
            vec![
                ("GET /a", true),
                ("GET /b/12", true),
                ("GET /b/12x", false),
                ("GET /x/a", false),
                ("GET /ab", false),
            ],
        ),
        (
            RouteSettings {
                method: strings(&["GET", "BREW"]),
                ..base.clone()
            },
            vec![
                ("GET /a", true),
                ("BREW /a", true),
                ("HEAD /a", false),
                ("get /a", false),
            ],
        ),
        (
            RouteSettings {
                host: strings(&["other", "Puppet"]),
                ..base.clone()
            },
            vec![("GET /a", true)],
        ),
        (
            RouteSettings {
                host: strings(&["puppet.example"]),
                ..base.clone()
            },
            vec![("GET /a", false)],
        ),
        (
            RouteSettings {
                certname: strings(&["web*"]),
                ..base.clone()
            },
            vec![("GET /a", false)],
        ),
        (header("a"), vec![("GET /a", true)]),
        (header("A"), vec![("GET /a", false)]),
    ];
    for (settings, requests) in cases {
        let table = table(vec![settings.clone()]);
        for (request, matches) in requests {
            let ask = TestRequest {
                header: Some(("x-team", "a")),
                ..TestRequest::of(&table)
            };
            let expected = if matches {
                "forge via r"
            } else {
                "404 no-route"
            };
            assert_eq!(
                ask.outcome(request, "anonymous"),
                expected,
                "{request} {settings:?}"
            );
        }
    }
}

#[test]
fn a_route_for_certnames_is_skipped_by_other_clients() {
    let table = table(vec![
        RouteSettings {
            certname: strings(&["web*"]),
            ..route("webs", "/a")
        },
        RouteSettings {
            pool: "compilers".to_owned(),
            ..route("rest", "/a")
        },
    ]);
    let ask = TestRequest {
        host: None,
        ..TestRequest::of(&table)
    };
    assert_eq!(ask.outcome("GET /a", "web01"), "forge via webs");
    assert_eq!(ask.outcome("GET /a", "db01"), "compilers via rest");
    assert_eq!(ask.outcome("GET /a", "anonymous"), "403 no-certificate");
}

#[test]
fn an_unknown_fact_about_a_request_matches_no_condition() {
    let base = RouteSettings {
        client: ClientRule::Any,
        ..route("r", "/a")
    };
    let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let table = table(vec![
        RouteSettings {
            name: "query".to_owned(),
            query: pair("site", "a b"),
            ..base.clone()
        },
        RouteSettings {
            name: "cookie".to_owned(),
            cookie: pair("site", "a"),
            ..base.clone()
        },
        RouteSettings {
            name: "source".to_owned(),
            source: strings(&["10.0.0.0/8", "2001:db8::/32"]),
            ..base.clone()
        },
        RouteSettings {
            name: "sni".to_owned(),
            sni: strings(&["Puppet.example"]),
            ..base
        },
    ]);
    let ask = || TestRequest::of(&table);
    let with = |ask: TestRequest<'_>| ask.outcome("GET /a", "anonymous");
    let query = |query| {
        with(TestRequest {
            query: Some(query),
            ..ask()
        })
    };
    let cookie = |cookie| {
        with(TestRequest {
            header: Some(("cookie", cookie)),
            ..ask()
        })
    };
    let source = |source| {
        with(TestRequest {
            source: Some(source),
            ..ask()
        })
    };
    let sni = |sni| {
        with(TestRequest {
            sni: Some(sni),
            ..ask()
        })
    };
    for (outcome, route) in [
        (query("site=a+b"), Some("query")),
        (query("site=a"), None),
        (cookie("b=c; site=a"), Some("cookie")),
        (cookie("site=b"), None),
        (source("10.1.2.3"), Some("source")),
        (source("::ffff:10.1.2.3"), Some("source")),
        (source("2001:db8::1"), Some("source")),
        (source("11.1.2.3"), None),
        (sni("puppet.EXAMPLE"), Some("sni")),
        (sni("a.puppet.example"), None),
        (with(ask()), None),
    ] {
        let expected = route.map_or_else(
            || "404 no-route".to_owned(),
            |route| format!("forge via {route}"),
        );
        assert_eq!(outcome, expected);
    }
}

#[test]
fn conditions_are_shown_by_their_keys() {
    use RouteCondition as C;
    let all = [
        (C::Listener, "listener"),
        (C::Host, "host"),
        (C::Path, "path"),
        (C::Method, "method"),
        (C::Header, "header"),
        (C::Query, "query"),
        (C::Cookie, "cookie"),
        (C::Source, "source"),
        (C::Sni, "sni"),
        (C::Certname, "certname"),
    ];
    for (condition, key) in all {
        assert_eq!(condition.to_string(), key);
    }
}

#[test]
fn extensions_and_issuer_of_a_verified_certificate_choose_a_route() {
    let batch = RouteSettings {
        client: ClientRule::Any,
        issuer: strings(&["CN=Puppet CA: a"]),
        extension: vec![("pp_role".to_owned(), "batch*".to_owned())],
        ..route("batch", "/a")
    };
    let table = table(vec![batch]);
    let role = |value: &str| {
        (
            identity::extension_oid("pp_role").unwrap(),
            value.to_owned(),
        )
    };
    let verified = |issuer, extensions: Vec<(String, String)>| {
        let certname = identity::Certname::parse("web01").unwrap();
        let agent = Agent::assumed(certname).assuming(Some(issuer), extensions);
        ClientIdentity::Verified(Arc::new(agent))
    };
    let ours = "CN=Puppet CA: a";
    for (identity, failed) in [
        (verified(ours, vec![role("batch-7")]), None),
        (
            verified(ours, vec![role("web")]),
            Some(RouteCondition::Extension),
        ),
        (verified(ours, vec![]), Some(RouteCondition::Extension)),
        // A value that occurs twice is ambiguous.
        (
            verified(ours, vec![role("batch"), role("batch")]),
            Some(RouteCondition::Extension),
        ),
        (
            verified("CN=b", vec![role("batch")]),
            Some(RouteCondition::Issuer),
        ),
        (identity("anonymous"), Some(RouteCondition::Issuer)),
        (identity("refused"), Some(RouteCondition::Issuer)),
    ] {
        let question = RoutingRequest {
            method: &Method::GET,
            path: CanonicalPath::check("/a").unwrap(),
            query: None,
            listener: None,
            host: None,
            fields: &Fields::default(),
            source: None,
            sni: None,
            identity: &identity,
            failed_is_forwarded: false,
        };
        let route = table.routes().next().expect("the route");
        assert_eq!(route.failed(&question), failed, "{identity:?}");
    }
}

#[test]
fn a_client_stays_inside_or_outside_a_share_and_a_larger_share_only_adds_clients() {
    let tables: Vec<_> = [1, 5, 30, 100]
        .into_iter()
        .map(|percent| {
            let canary = RouteSettings {
                client: ClientRule::Any,
                share: Some(percent),
                ..route("canary", "/a")
            };
            (percent, table(vec![canary]))
        })
        .collect();
    let inside = |table: &RouteTable, who: &str, source: Option<&str>| {
        let ask = TestRequest {
            source,
            ..TestRequest::of(table)
        };
        ask.outcome("GET /a", who) == "forge via canary"
    };
    const CLIENTS: u32 = 4_000;
    let mut counts = [0u32; 4];
    for n in 0..CLIENTS {
        let (name, address) = (
            format!("web{n}.example.com"),
            format!("10.1.{}.{}", n / 256, n % 256),
        );
        for (who, source) in [(&*name, None), ("anonymous", Some(&*address))] {
            let sides: Vec<_> = tables
                .iter()
                .map(|(_, table)| inside(table, who, source))
                .collect();
            assert!(sides.is_sorted(), "{who} {source:?}: {sides:?}");
            for (count, side) in counts.iter_mut().zip(sides) {
                *count += u32::from(side);
            }
        }
        // The certname decides, whatever the agent's address is.
        let at = inside(&tables[2].1, &name, Some(&address));
        assert_eq!(at, inside(&tables[2].1, &name, None));
    }
    for ((percent, table), count) in tables.iter().zip(counts) {
        let expected = f64::from(2 * CLIENTS * percent) / 100.0;
        let deviation = (f64::from(count) - expected).abs();
        assert!(deviation <= 4.0 * expected.sqrt(), "{percent}%: {count}");
        assert!(!inside(table, "anonymous", None), "an unknown client");
    }
    assert_eq!(counts[3], 2 * CLIENTS);
}

#[test]
fn the_index_of_a_large_table_finds_the_same_route_as_a_full_search() {
    const SEGMENTS: [&str; 4] = ["a", "b", "ab", "c"];
    let seed = std::process::id();
    eprintln!("seed {seed}");
    let mut random = u64::from(seed);
    let mut draw = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % below
    };
    let mut found = 0;
    for _ in 0..200 {
        let mut path = |segments_max: usize| {
            let count = draw(segments_max + 1);
            let segments: Vec<_> = (0..count).map(|_| SEGMENTS[draw(SEGMENTS.len())]).collect();
            let end = if count > 0 && draw(4) == 0 { "/" } else { "" };
            format!("/{}{end}", segments.join("/"))
        };
        let routes: Vec<_> = (0..40)
            .map(|number| {
                let text = path(if number % 10 == 0 { 20 } else { 4 });
                let path = match number % 5 {
                    0 => Some(PathPattern::Exact(text)),
                    1 => Some(PathPattern::Regex(format!("{text}.?"))),
                    2 if number > 30 => None,
                    _ => Some(PathPattern::Prefix(text)),
                };
                RouteSettings {
                    path,
                    host: strings(if number % 3 == 0 { &["other"] } else { &[] }),
                    unguarded: true,
                    ..route(&format!("r{number}"), "/")
                }
            })
            .collect();
        let table = table(routes);
        assert!(table.index.is_some());
        for _ in 0..50 {
            let path = path(18);
            if CanonicalPath::check(&path).is_ok() {
                // Compares the decision with the explanation, which tries every route.
                TestRequest::of(&table).decide(&format!("GET {path}"), "web01", |decision| {
                    found += u32::from(matches!(decision, RouteDecision::Forward(_)));
                });
            }
        }
    }
    assert!(found > 1000, "only {found}");
}

#[test]
fn a_host_condition_names_hosts_or_every_host_directly_below_a_domain() {
    let route = RouteSettings {
        client: ClientRule::Any,
        host: strings(&["*.Forge.example", "forge.test"]),
        ..route("a", "/a")
    };
    let table = table(vec![route]);
    for (host, holds) in [
        ("web.forge.example", true),
        ("WEB.FORGE.EXAMPLE:8140", true),
        ("forge.test", true),
        ("forge.example", false),
        (".forge.example", false),
        ("a.web.forge.example", false),
        ("webforge.example", false),
        ("web.forge.example.org", false),
        ("web.forge.example.", false),
        ("web.forge.test", false),
        ("*.forge.example", true),
    ] {
        let ask = TestRequest {
            host: Some(host),
            ..TestRequest::of(&table)
        };
        let expected = if holds { "forge via a" } else { "404 no-route" };
        assert_eq!(ask.outcome("GET /a", "web01"), expected, "{host}");
    }
    for host in ["*", "*.", "*.a:1", "a.*.b", "*.*.b", "*a.b", ""] {
        let settings = RoutingSettings {
            routes: vec![RouteSettings {
                host: strings(&[host]),
                ..self::route("a", "/a")
            }],
            ..RoutingSettings::default()
        };
        let names: Vec<_> = POOLS.iter().map(|name| Arc::from(*name)).collect();
        let problems = RouteTable::new(&settings, &names).expect_err(host);
        assert_eq!(problems[0].key, "host", "{host}");
    }
}

/// The listener depends on the connection. It selects a route and opens no class: the requirements of the other routes and of
/// the classes still apply to the requests of all other listeners.
#[test]
fn a_listener_condition_holds_for_requests_of_these_listeners_alone() {
    let of = |listeners: &[&str], route: RouteSettings| RouteSettings {
        listener: strings(listeners),
        ..route
    };
    let table = table(vec![
        of(
            &["smart", "other"],
            RouteSettings {
                unguarded: true,
                client: ClientRule::Any,
                path: None,
                ..route("smart", "/")
            },
        ),
        of(
            &["agents"],
            RouteSettings {
                allow: strings(&["ops"]),
                classes: vec![Class::CaAdministration],
                ..route("ops", "/puppet-ca")
            },
        ),
    ]);
    for (listener, request, who, expected) in [
        (
            Some("smart"),
            "GET /puppet/ca",
            "anonymous",
            "forge via smart",
        ),
        (
            Some("other"),
            "GET /puppet/ca",
            "anonymous",
            "forge via smart",
        ),
        (
            Some("agents"),
            "GET /puppet/ca",
            "web01",
            "403 class-closed",
        ),
        (Some("Smart"), "GET /app", "web01", "404 no-route"),
        (None, "GET /app", "web01", "404 no-route"),
        (
            Some("agents"),
            "PUT /puppet-ca/v1/clean",
            "ops",
            "forge via ops",
        ),
        (
            Some("agents"),
            "PUT /puppet-ca/v1/clean",
            "web01",
            "403 not-allowed",
        ),
        (
            Some("internal"),
            "PUT /puppet-ca/v1/clean",
            "ops",
            "403 class-closed",
        ),
        (None, "PUT /puppet-ca/v1/clean", "ops", "403 class-closed"),
    ] {
        let ask = TestRequest {
            listener,
            ..TestRequest::of(&table)
        };
        assert_eq!(
            ask.outcome(request, who),
            expected,
            "{listener:?} {request}"
        );
    }
}
