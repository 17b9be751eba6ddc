//! Access to a legacy path: exactly the clients that may use its modern equivalent.

use proptest::prelude::*;

use super::super::*;
use super::support::*;
use crate::CanonicalPath;
use crate::settings::{AccessRuleSettings, ClientRule, RuleAction};

fn with_legacy(routes: Vec<RouteSettings>, access: Vec<AccessRuleSettings>) -> RouteTable {
    table_of(RoutingSettings {
        routes,
        access,
        legacy_routes: true,
        ..RoutingSettings::default()
    })
}

/// Outcomes for a client without a certificate, a client whose certificate is refused, web01 and web02.
const LEGACY: &str = "\
GET /production/certificate/web01              | ca | 403 refused-certificate | ca | ca
GET /production/certificate/ca                 | ca | 403 refused-certificate | ca | ca
GET /production/certificate_revocation_list/ca | ca | 403 refused-certificate | ca | ca
PUT /production/certificate_request/web01      | ca | 403 refused-certificate | ca | ca
GET /production/certificate_request/web01      | ca | 403 refused-certificate | ca | ca
POST /production/certificate/web01             | 405 method | 403 refused-certificate | 405 method | 405 method
DELETE /production/certificate_request/web01   | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /production/certificate_status/web01       | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /production/certificate_statuses/all       | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /production/certificate_requests/all       | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
PUT /production/certificate_revocation_list/ca | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /production/keys/all                       | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
POST /RPC2                                     | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
POST /production/catalog/web01                 | 403 no-certificate | 403 refused-certificate | compilers | 403 not-own
GET /production/catalog/web01                  | 403 no-certificate | 403 refused-certificate | compilers | 403 not-own
GET /production/node/web01                     | 403 no-certificate | 403 refused-certificate | compilers | 403 not-own
PUT /production/facts/web01                    | 403 no-certificate | 403 refused-certificate | compilers | 403 not-own
PUT /production/report/web01                   | 403 no-certificate | 403 refused-certificate | compilers | 403 not-own
PUT /production/report/WEB01                   | 403 no-certificate | 403 refused-certificate | 403 not-own | 403 not-own
DELETE /production/report/web01                | 403 no-certificate | 403 refused-certificate | 405 method | 403 not-own
GET /production/file_metadata/modules/a/b      | 403 no-certificate | 403 refused-certificate | compilers | compilers
GET /production/file_metadatas/plugins         | 403 no-certificate | 403 refused-certificate | compilers | compilers
GET /production/file_content/certificate/ca    | 403 no-certificate | 403 refused-certificate | compilers | compilers
GET /v2.0/environments                         | 403 no-certificate | 403 refused-certificate | compilers | compilers
PUT /production/file_content/modules/a/b       | 403 no-certificate | 403 refused-certificate | 405 method | 405 method
PUT /production/file_bucket_file/md5/abc//x    | 403 no-certificate | 403 refused-certificate | filebucket | filebucket
PUT /production/run/web01                      | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /production/resource/user/root             | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /production/inventory/x                    | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /production/facts_search/x                 | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /production/status/no_key                  | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /production/anything/x                     | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /production/catalog                        | 404 no-route | 404 no-route | 404 no-route | 404 no-route
";

#[test]
fn the_built_in_routes_serve_legacy_paths_by_the_same_classes() {
    let table = with_legacy(Vec::new(), Vec::new());
    let ask = TestRequest::of(&table);
    check_rows(
        LEGACY,
        ["anonymous", "refused", "web01", "web02"],
        |request, who| {
            let outcome = ask.outcome(request, who);
            match outcome.split_once(" via builtin:") {
                Some((pool, _)) => pool.to_owned(),
                None => outcome,
            }
        },
    );
}

#[test]
fn a_catch_all_for_any_client_opens_no_legacy_path() {
    let any = RouteSettings {
        client: ClientRule::Any,
        ..route("any", "/")
    };
    let table = with_legacy(vec![any], Vec::new());
    for (request, expected) in [
        ("GET /production/anything/x", "403 class-closed"),
        ("GET /production/catalog/web01", "403 no-certificate"),
        ("POST /RPC2", "403 class-closed"),
        (
            "GET /production/certificate_statuses/all",
            "403 class-closed",
        ),
        ("GET /index.html", "forge via any"),
    ] {
        assert_eq!(
            TestRequest::of(&table).outcome(request, "anonymous"),
            expected,
            "{request}"
        );
    }
}

#[test]
fn conditions_on_path_and_query_are_about_the_modern_equivalent() {
    let files = RouteSettings {
        allow: strings(&["web01"]),
        ..route("files", "/puppet/v3/file_content")
    };
    let by_environment = RouteSettings {
        path: None,
        query: vec![("environment".to_owned(), "dev".to_owned())],
        ..route("dev", "/")
    };
    let raw = route("raw", "/production");
    let other = RouteSettings {
        unguarded: true,
        ..route("other", "/app")
    };
    let table = with_legacy(vec![other, raw, files, by_environment], Vec::new());
    let ask = TestRequest::of(&table);
    for (request, who, expected) in [
        (
            "GET /production/file_content/m/x",
            "web01",
            "forge via files",
        ),
        (
            "GET /production/file_content/m/x",
            "web02",
            "403 not-allowed",
        ),
        ("GET /dev/node/web01", "web01", "forge via dev"),
        (
            "GET /production/node/web01",
            "web01",
            "compilers via builtin:own-documents",
        ),
        ("GET /app/file_content/m/x", "web02", "forge via other"),
    ] {
        assert_eq!(ask.outcome(request, who), expected, "{request} by {who}");
    }
}

#[test]
fn a_query_that_names_another_environment_is_refused() {
    let unguarded = RouteSettings {
        unguarded: true,
        ..route("other", "/app")
    };
    let table = with_legacy(vec![unguarded], Vec::new());
    for (query, request, expected) in [
        (
            "environment=dev",
            "GET /production/catalog/web01",
            "400 environment-mismatch",
        ),
        (
            "environment=dev",
            "GET /production/certificate/ca",
            "400 environment-mismatch",
        ),
        (
            "environment=dev",
            "GET /app/catalog/web01",
            "forge via other",
        ),
        (
            "environment=production",
            "GET /production/catalog/web01",
            "compilers via builtin:own-documents",
        ),
        (
            "environment=dev",
            "GET /v2.0/environments",
            "compilers via builtin:files",
        ),
    ] {
        let ask = TestRequest {
            query: Some(query),
            ..TestRequest::of(&table)
        };
        assert_eq!(ask.outcome(request, "web01"), expected, "{request}?{query}");
    }
}

#[test]
fn a_refusal_says_whether_legacy_routes_would_serve_the_request() {
    let off = table(Vec::new());
    let on = with_legacy(Vec::new(), Vec::new());
    let needed = |table: &RouteTable, request: &str, who: &str| {
        TestRequest::of(table).decide(request, who, |decision| match decision {
            RouteDecision::Refuse(refusal) => refusal.needs_legacy_routes,
            _ => false,
        })
    };
    for (request, expected) in [
        ("GET /production/catalog/web01", true),
        ("GET /production/certificate/ca", true),
        ("GET /production/file_content/m/x", true),
        ("GET /v2.0/environments", true),
        ("POST /RPC2", false),
        ("GET /production/certificate_statuses/all", false),
        ("GET /production/run/web01", false),
        ("POST /puppet/v4/catalog", false),
        ("GET /puppet-ca/v1/certificate_statuses/all", false),
        ("GET /index.html", false),
    ] {
        assert_eq!(needed(&off, request, "web01"), expected, "{request}");
        assert!(!needed(&on, request, "web02"), "{request}");
    }
}

/// A legacy request and its modern equivalent.
fn request() -> impl Strategy<Value = (String, String)> {
    let environments = [
        "production",
        "dev",
        "puppet",
        "certificate",
        "catalog",
        "v1",
        "A_1",
    ];
    let ca = [
        "certificate",
        "certificate_request",
        "certificate_revocation_list",
        "certificate_status",
        "certificate_statuses",
        "certificates",
        "key",
        "keys",
    ];
    let compiler = [
        "catalog",
        "node",
        "facts",
        "report",
        "file_metadata",
        "file_metadatas",
        "file_content",
        "file_bucket_file",
        "run",
        "resource",
        "resource_types",
        "status",
        "inventory",
        "facts_search",
        "nodes",
    ];
    let rests = [
        "web01",
        "web02",
        "ca",
        "all",
        "modules/a/b",
        "md5/0123",
        "md5/0123//etc/motd",
        "web01/",
        "",
        "certificate/ca",
    ];
    let verbs = ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"];
    let indirections: Vec<(&'static str, &'static str)> = ca
        .into_iter()
        .map(|name| ("/puppet-ca/v1", name))
        .chain(compiler.into_iter().map(|name| ("/puppet/v3", name)))
        .collect();
    (
        proptest::sample::select(verbs.to_vec()),
        proptest::sample::select(environments.to_vec()),
        proptest::sample::select(indirections),
        proptest::sample::select(rests.to_vec()),
    )
        .prop_map(|(verb, environment, (base, indirection), rest)| {
            (
                format!("{verb} /{environment}/{indirection}/{rest}"),
                format!("{verb} {base}/{indirection}/{rest}"),
            )
        })
}

/// Tables with some of several routes and rules. The routes and rules restrict or open access.
fn tables() -> impl Strategy<Value = RouteTable> {
    let narrowed = RouteSettings {
        allow: strings(&["web01"]),
        ..route("narrowed", "/puppet/v3/file_content")
    };
    let open_files = RouteSettings {
        client: ClientRule::Any,
        classes: vec![Class::Files],
        ..route("open", "/puppet/v3/file_metadata")
    };
    let administration = RouteSettings {
        allow: strings(&["web02"]),
        classes: vec![
            Class::CaAdministration,
            Class::Services,
            Class::OwnDocuments,
        ],
        ..route("administration", "/")
    };
    let no_reports = AccessRuleSettings {
        name: "no-reports".to_owned(),
        action: RuleAction::Refuse,
        class: vec![Class::OwnDocuments],
        certname: strings(&["web01"]),
        ..AccessRuleSettings::default()
    };
    let administrators = AccessRuleSettings {
        name: "administrators".to_owned(),
        action: RuleAction::Allow,
        class: vec![Class::CaAdministration, Class::Services],
        certname: strings(&["web02"]),
        ..AccessRuleSettings::default()
    };
    let no_enrolment = AccessRuleSettings {
        name: "no-enrolment".to_owned(),
        action: RuleAction::Refuse,
        class: vec![Class::Enrolment],
        source: strings(&["10.0.0.0/8"]),
        ..AccessRuleSettings::default()
    };
    let routes = vec![narrowed, open_files, administration];
    let rules = vec![no_reports, administrators, no_enrolment];
    (
        proptest::sample::subsequence(routes, 0..=3),
        proptest::sample::subsequence(rules, 0..=3),
        any::<bool>(),
    )
        .prop_map(|(routes, access, edge_answers)| {
            table_of(RoutingSettings {
                routes,
                access,
                edge_answers,
                legacy_routes: true,
                ..RoutingSettings::default()
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn who_may_use_a_legacy_path_is_who_may_use_its_modern_equivalent(
        (legacy, modern) in request(),
        table in tables(),
        source in proptest::sample::select(vec![None, Some("10.1.2.3"), Some("192.0.2.1")]),
        forward in any::<bool>(),
    ) {
        let valid = |request: &str| CanonicalPath::check(request.split_once(' ').unwrap().1).is_ok();
        prop_assume!(valid(&legacy) && valid(&modern));
        let ask = TestRequest { source, forward, ..TestRequest::of(&table) };
        for who in ["anonymous", "refused", "web01", "web02"] {
            let facts = |request: &str| ask.decide(request, who, |decision| match decision {
                RouteDecision::Forward(plan) => Ok((
                    plan.pool, plan.route.name.to_string(), plan.endpoint.class,
                    plan.endpoint.task, plan.endpoint.ca_write, plan.retry,
                    plan.with_certificate_class, plan.document(), plan.body_bytes_max,
                    plan.certificate_request().map(str::to_owned), plan.bucket_key.map(str::to_owned),
                )),
                RouteDecision::Refuse(refusal) => Err((refusal.status, refusal.reason, refusal.allow)),
                RouteDecision::Status(_) => panic!("{request}"),
            });
            prop_assert_eq!(facts(&legacy), facts(&modern), "{} and {} by {}", legacy, modern, who);
        }
    }
}
