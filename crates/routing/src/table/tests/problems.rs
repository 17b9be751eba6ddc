//! Settings for which no table can be built.

use super::super::*;
use super::support::*;
use crate::Class;
use crate::settings::PathPattern;
use crate::settings::RouteSettings;

#[test]
fn all_problems_of_the_settings_are_reported_at_once() {
    let bad = RouteSettings {
        name: "r".to_owned(),
        path: Some(PathPattern::Regex("a)|(?:b".to_owned())),
        pool: "nowhere".to_owned(),
        method: strings(&["G T"]),
        host: strings(&["puppet:8140"]),
        header: vec![
            ("X-Client-DN".to_owned(), "x".to_owned()),
            ("a b".to_owned(), "x".to_owned()),
        ],
        query: vec![(String::new(), "x".to_owned())],
        cookie: vec![(String::new(), "x".to_owned())],
        source: strings(&["10.0.0.1/8", "puppet"]),
        sni: strings(&["127.0.0.1", "puppet."]),
        certname: strings(&["a,b"]),
        allow: strings(&[""]),
        classes: vec![Class::Never],
        ..RouteSettings::default()
    };
    let unnamed = RouteSettings {
        classes: vec![Class::CaAdministration],
        ..route("r", "/a")
    };
    let relative = route("builtin:x", "a");
    let settings = RoutingSettings {
        routes: vec![bad, unnamed, relative],
        ..RoutingSettings::default()
    };
    let problems =
        RouteTable::new(&settings, &pools(&["compilers", "forge"])).expect_err("all wrong");
    let found: Vec<_> = problems
        .iter()
        .map(|problem| (problem.route, problem.key))
        .collect();
    let expected = [
        (Some(0), "pool"),
        (Some(0), "classes"),
        (Some(0), "host"),
        (Some(0), "query"),
        (Some(0), "cookie"),
        (Some(0), "sni"),
        (Some(0), "sni"),
        (Some(0), "path"),
        (Some(0), "method"),
        (Some(0), "header"),
        (Some(0), "header"),
        (Some(0), "source"),
        (Some(0), "source"),
        (Some(0), "certname"),
        (Some(0), "allow"),
        (Some(1), "name"),
        (Some(1), "classes"),
        (Some(2), "name"),
        (Some(2), "path"),
        (None, "builtin_routes"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn routes_have_unique_names() {
    let problems = |names: [&str; 2]| {
        let settings = RoutingSettings {
            routes: names.map(|name| route(name, "/a")).to_vec(),
            ..RoutingSettings::default()
        };
        let problems = RouteTable::new(&settings, &pools(POOLS))
            .err()
            .unwrap_or_default();
        problems
            .into_iter()
            .map(|problem| (problem.route, problem.message))
            .collect::<Vec<_>>()
    };
    assert!(problems(["a", "b"]).is_empty());
    assert_eq!(
        problems(["", "b"]),
        [(Some(0), "the route has no name".to_owned())]
    );
    assert_eq!(
        problems(["a", "a"]),
        [(Some(1), "two routes have the name \"a\"".to_owned())]
    );
}

#[test]
fn a_share_outside_1_to_100_percent_is_refused() {
    for share in [0, 101] {
        let settings = RoutingSettings {
            routes: vec![RouteSettings {
                share: Some(share),
                ..route("r", "/a")
            }],
            ..RoutingSettings::default()
        };
        let problems = RouteTable::new(&settings, &pools(POOLS)).expect_err("a problem");
        assert_eq!(problems[0].key, "share");
    }
}
