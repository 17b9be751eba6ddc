//! The built-in routes, and the remaining routes of a table without them.

use super::super::*;
use super::support::*;
use crate::Class;
use crate::Document;
use crate::settings::ClientRule;
use crate::settings::RouteSettings;

/// Outcomes for a client without a certificate, a client whose certificate is refused, web01 and web02. The name of a pool
/// means that the built-in route of the class sends the request to that pool.
const BUILT_IN: &str = "\
GET /puppet-ca/v1/certificate/web01              | ca | 403 refused-certificate | ca | ca
GET /puppet-ca/v1/certificate/ca                 | ca | 403 refused-certificate | ca | ca
GET /puppet-ca/v1/certificate_revocation_list/ca | ca | 403 refused-certificate | ca | ca
PUT /puppet-ca/v1/certificate_request/web01      | ca | 403 refused-certificate | ca | ca
POST /puppet-ca/v1/certificate/web01             | 405 method | 403 refused-certificate | 405 method | 405 method
POST /puppet-ca/v1/certificate_renewal           | 404 not-configured | 404 not-configured | 404 not-configured | 404 not-configured
DELETE /puppet-ca/v1/certificate_request/web01   | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /puppet-ca/v1/certificate_status/web01       | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /puppet-ca/v1/certificate_statuses/all       | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
PUT /puppet-ca/v1/certificate_revocation_list    | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
PUT /puppet-ca/v1/clean                          | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
POST /puppet-ca/v1/sign/all                      | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /puppet-ca/v1/expirations                    | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /production/certificate/web01                | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
POST /puppet/v3/catalog/web01                    | 403 no-certificate | 403 refused-certificate | compilers | 403 not-own
GET /puppet/v3/node/web01                        | 403 no-certificate | 403 refused-certificate | compilers | 403 not-own
PUT /puppet/v3/facts/web01                       | 403 no-certificate | 403 refused-certificate | compilers | 403 not-own
PUT /puppet/v3/report/web01                      | 403 no-certificate | 403 refused-certificate | compilers | 403 not-own
PUT /puppet/v3/report/WEB01                      | 403 no-certificate | 403 refused-certificate | 403 not-own | 403 not-own
DELETE /puppet/v3/report/web01                   | 403 no-certificate | 403 refused-certificate | 405 method | 403 not-own
GET /puppet/v3/file_metadatas/plugins            | 403 no-certificate | 403 refused-certificate | compilers | compilers
GET /puppet/v3/file_content/modules/a/b          | 403 no-certificate | 403 refused-certificate | compilers | compilers
GET /puppet/v3/static_file_content/a             | 403 no-certificate | 403 refused-certificate | compilers | compilers
GET /puppet/v3/environments                      | 403 no-certificate | 403 refused-certificate | compilers | compilers
GET /puppet/v3/tasks/a/b                         | 403 no-certificate | 403 refused-certificate | compilers | compilers
PUT /puppet/v3/file_content/modules/a/b          | 403 no-certificate | 403 refused-certificate | 405 method | 405 method
PUT /puppet/v3/file_bucket_file/sha256/abc//x    | 403 no-certificate | 403 refused-certificate | filebucket | filebucket
POST /puppet/v4/catalog                          | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
POST /puppet/v3/compile                          | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /puppet/v3/environment_classes               | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /puppet/v3/plans                             | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /status/v1/simple                            | status | 403 refused-certificate | status | status
HEAD /status/v1/simple/server                    | status | 403 refused-certificate | status | status
GET /status/v1/simple/master                     | status | 403 refused-certificate | status | status
POST /status/v1/simple                           | 405 method | 403 refused-certificate | 405 method | 405 method
GET /status/v1/services                          | 403 never | 403 refused-certificate | 403 never | 403 never
GET /metrics/v2/list                             | 403 never | 403 refused-certificate | 403 never | 403 never
DELETE /puppet-admin-api/v1/jruby-pool           | 403 class-closed | 403 refused-certificate | 403 class-closed | 403 class-closed
GET /puppet-admin-api/v1/jruby-pool              | 403 never | 403 refused-certificate | 403 never | 403 never
GET /file-sync/v1/latest-commits                 | 403 never | 403 refused-certificate | 403 never | 403 never
GET /                                            | 404 no-route | 404 no-route | 404 no-route | 404 no-route
GET /packages/current/install.bash               | 404 no-route | 404 no-route | 404 no-route | 404 no-route
";

#[test]
fn the_built_in_routes_say_who_may_and_where_to() {
    let table = table(Vec::new());
    let ask = TestRequest::of(&table);
    check_rows(
        BUILT_IN,
        ["anonymous", "refused", "web01", "web02"],
        |request, who| {
            let outcome = ask.outcome(request, who);
            let class = class_of(request);
            outcome
                .strip_suffix(&format!(" via builtin:{class}"))
                .unwrap_or(&outcome)
                .to_owned()
        },
    );
}

#[test]
fn a_failed_verdict_is_forwarded_on_enrolment_and_any_routes_only() {
    let any = RouteSettings {
        client: ClientRule::Any,
        ..route("any", "/pub")
    };
    let opened = RouteSettings {
        client: ClientRule::Any,
        classes: vec![Class::Files],
        ..route("files", "/puppet/v3/file_content")
    };
    let named = RouteSettings {
        client: ClientRule::Any,
        allow: strings(&["web*"]),
        ..route("named", "/named")
    };
    let table = table(vec![any, opened, named, route("verified", "/priv")]);
    let ask = TestRequest {
        forward: true,
        ..TestRequest::of(&table)
    };
    for (request, expected) in [
        (
            "PUT /puppet-ca/v1/certificate_request/web01",
            "ca via builtin:enrolment",
        ),
        ("GET /pub/x", "forge via any"),
        ("GET /puppet/v3/file_content/m/x", "forge via files"),
        ("GET /named/x", "403 refused-certificate"),
        ("GET /priv/x", "403 refused-certificate"),
        ("GET /status/v1/simple", "403 refused-certificate"),
        (
            "GET /puppet/v3/file_metadatas/plugins",
            "403 refused-certificate",
        ),
        ("POST /puppet/v3/catalog/web01", "403 refused-certificate"),
        ("GET /metrics", "403 refused-certificate"),
        ("GET /nowhere", "404 no-route"),
    ] {
        assert_eq!(ask.outcome(request, "refused"), expected, "{request}");
    }
    let text = ask.decide("GET /priv/x", "refused", |decision| match decision {
        RouteDecision::Refuse(refusal) => refusal.text,
        _ => String::new(),
    });
    assert!(
        text.contains("is revoked") && text.contains("puppet ssl clean"),
        "{text}"
    );
}

#[test]
fn documents_of_the_ca_are_open_in_both_layouts_if_the_proxy_answers_them() {
    let edge = table_of(RoutingSettings {
        edge_answers: true,
        routes: vec![RouteSettings {
            unguarded: true,
            host: strings(&["other.example"]),
            ..route("other", "/")
        }],
        ..RoutingSettings::default()
    });
    let document = |ask: &TestRequest<'_>, request: &str| {
        ask.decide(request, "anonymous", |decision| match decision {
            RouteDecision::Forward(plan) => Ok(plan.document()),
            RouteDecision::Refuse(refusal) => Err(refusal.status),
            RouteDecision::Status(_) => panic!("{request}"),
        })
    };
    let (ca, crl) = (Ok(Some(Document::Ca)), Ok(Some(Document::Crl)));
    for (request, expected) in [
        ("GET /puppet-ca/v1/certificate/ca", ca),
        ("HEAD /puppet-ca/v1/certificate_revocation_list/ca", crl),
        ("GET /production/certificate/ca", ca),
        ("HEAD /a_1/certificate_revocation_list/ca", crl),
        ("GET /puppet/certificate/ca", ca),
        ("GET /puppet-ca/v1/certificate/web01", Ok(None)),
        ("POST /puppet-ca/v1/certificate/ca", Err(405)),
        ("PUT /puppet-ca/v1/certificate_revocation_list/ca", Err(403)),
        ("GET /puppet-ca/v2/certificate/ca", Err(403)),
        ("GET /puppet-ca/v1/certificate/ca/", Err(403)),
        ("PUT /production/certificate/ca", Err(403)),
        ("GET /production/certificate/web01", Err(403)),
        ("GET /production/certificate/ca/x", Err(403)),
        ("GET /production/certificates/ca", Err(403)),
        ("GET /pro-duction/certificate/ca", Err(403)),
        ("GET /RPC2/certificate/ca", Err(403)),
    ] {
        assert_eq!(
            document(&TestRequest::of(&edge), request),
            expected,
            "{request}"
        );
    }
    let closed = table(Vec::new());
    let legacy = "GET /production/certificate/ca";
    assert_eq!(document(&TestRequest::of(&closed), legacy), Err(403));
    let refused = TestRequest::of(&edge).outcome(legacy, "refused");
    assert_eq!(refused, "403 refused-certificate");
    let unguarded = TestRequest {
        host: Some("other.example"),
        ..TestRequest::of(&edge)
    };
    let modern = "GET /puppet-ca/v1/certificate/ca";
    let plan = unguarded.decide(modern, "web01", |decision| match decision {
        RouteDecision::Forward(plan) => plan.document(),
        other => panic!("{other:?}"),
    });
    assert_eq!(plan, None);
}

#[test]
fn without_built_in_routes_only_the_configured_ones_are_there() {
    let settings = RoutingSettings {
        routes: vec![route("a", "/a")],
        builtin_routes: false,
        ..RoutingSettings::default()
    };
    let table = RouteTable::new(&settings, &pools(&["forge", "x", "y", "forge"]))
        .expect("no ca pool is needed");
    for request in [
        "GET /puppet-ca/v1/certificate/ca",
        "GET /status/v1/simple",
        "GET /metrics",
        "GET /b",
    ] {
        assert_eq!(
            TestRequest::of(&table).outcome(request, "web01"),
            "404 no-route",
            "{request}"
        );
    }
}

#[test]
fn without_a_bucket_pool_buckets_go_to_the_compilers() {
    let table = RouteTable::new(&RoutingSettings::default(), &pools(&["compilers", "ca"]))
        .expect("a table");
    let outcome =
        TestRequest::of(&table).outcome("HEAD /puppet/v3/file_bucket_file/md5/a", "web01");
    assert_eq!(outcome, "compilers via builtin:filebucket");
}

#[test]
fn every_route_is_listed_in_the_order_of_evaluation() {
    let table = table(vec![route("forge", "/forge"), route("rest", "/")]);
    let names: Vec<_> = table.routes().map(|route| &*route.name).collect();
    assert_eq!(names[..3], ["forge", "rest", "builtin:enrolment"]);
    assert_eq!(names.len(), 11);
}
