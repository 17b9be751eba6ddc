//! How a request is forwarded or refused, and the explanation of the decision.

use super::super::*;
use super::support::*;
use crate::CanonicalPath;
use crate::Class;
use crate::RetryClass;
use crate::RouteCondition;
use crate::settings::ClientRule;
use crate::settings::RouteSettings;
use http::Method;
use http1::Fields;

#[test]
fn the_plan_describes_how_to_forward() {
    let table = table(vec![
        RouteSettings {
            body_bytes_max: Some(5),
            ..route("small", "/puppet-ca/v1/certificate_request/small")
        },
        RouteSettings {
            unguarded: true,
            client: ClientRule::Any,
            host: strings(&["open"]),
            ..route("open", "/")
        },
    ]);
    // request, host, then: with certificate, retry, bucket key, body limit, CA write
    let rows = [
        (
            "GET /puppet-ca/v1/certificate/ca",
            "p",
            (false, RetryClass::Safe, None, Some(16384), false),
        ),
        (
            "PUT /puppet-ca/v1/certificate_request/web01",
            "p",
            (false, RetryClass::Never, None, Some(16384), true),
        ),
        (
            "PUT /puppet-ca/v1/certificate_request/small",
            "p",
            (false, RetryClass::Never, None, Some(5), true),
        ),
        (
            "PUT /puppet-ca/v1/certificate_request/web01",
            "open",
            (false, RetryClass::Never, None, None, true),
        ),
        (
            "POST /puppet/v3/catalog/web01",
            "p",
            (true, RetryClass::Never, None, None, false),
        ),
        (
            "GET /puppet/v3/file_content/m/a",
            "p",
            (true, RetryClass::Safe, None, None, false),
        ),
        (
            "GET /puppet/v3/file_bucket_file/md5/f00//x",
            "p",
            (true, RetryClass::Never, Some("f00"), None, false),
        ),
        (
            "GET /x",
            "open",
            (true, RetryClass::Never, None, None, false),
        ),
    ];
    for (request, host, expected) in rows {
        let ask = TestRequest {
            host: Some(host),
            ..TestRequest::of(&table)
        };
        ask.decide(request, "web01", |decision| match decision {
            RouteDecision::Forward(plan) => {
                let found = (
                    plan.with_certificate_class,
                    plan.retry,
                    plan.bucket_key,
                    plan.body_bytes_max,
                    plan.endpoint.ca_write,
                );
                assert_eq!(found, expected, "{request}");
            }
            other => panic!("{request}: {other:?}"),
        });
    }
}

#[test]
fn a_405_lists_the_allowed_methods() {
    let table = table(Vec::new());
    TestRequest::of(&table).decide(
        "OPTIONS /puppet-ca/v1/certificate_request/a",
        "anonymous",
        |decision| match decision {
            RouteDecision::Refuse(refusal) => {
                assert_eq!(
                    (refusal.status, refusal.allow),
                    (405, Some("GET, HEAD, PUT"))
                );
                assert_eq!(
                    (refusal.class, refusal.route.as_deref()),
                    (Class::Enrolment, Some("builtin:enrolment"))
                );
            }
            other => panic!("{other:?}"),
        },
    );
}

#[test]
fn explain_shows_each_step() {
    let table = table(vec![
        RouteSettings {
            host: strings(&["forge"]),
            ..route("forge", "/")
        },
        RouteSettings {
            certname: strings(&["db*"]),
            ..route("dbs", "/puppet")
        },
    ]);
    let (method, fields, identity) = (Method::POST, Fields::default(), identity("web01"));
    let question = RoutingRequest {
        method: &method,
        path: CanonicalPath::check("/puppet/v3/catalog/web02").expect("a path"),
        query: None,
        listener: None,
        host: Some("puppet"),
        fields: &fields,
        source: None,
        sni: None,
        identity: &identity,
        failed_is_forwarded: false,
    };
    let explanation = table.explain(&question);
    assert!(matches!(
        explanation.steps[1],
        RoutingStep::Tried {
            failed: Some(RouteCondition::Host),
            ..
        }
    ));
    assert_eq!(
        explanation.to_string(),
        "class: own-documents, of certname web02\n\
         route forge: no match, by its condition \"host\"\n\
         route dbs: no match, by its condition \"certname\"\n\
         route builtin:own-documents: matches\n\
         access: denied (not-own)\n"
    );
}

#[test]
fn upgrades_are_allowed_only_outside_the_endpoints_of_a_puppet_server() {
    let upgrade = |unguarded, request: &str| {
        let table = table(vec![RouteSettings {
            upgrade: strings(&["WebSocket", "acme/1"]),
            classes: vec![Class::Files],
            unguarded,
            ..route("tunnel", "/")
        }]);
        let ask = TestRequest::of(&table);
        ask.decide(request, "web01", |decision| match decision {
            RouteDecision::Forward(plan) => plan.upgrade().to_vec(),
            other => panic!("{other:?}"),
        })
    };
    let both = ["websocket", "acme/1"];
    assert_eq!(upgrade(false, "GET /chat"), both);
    assert_eq!(upgrade(true, "GET /puppet/v3/environments"), both);
    assert!(upgrade(false, "GET /puppet/v3/environments").is_empty());
    let settings = RoutingSettings {
        routes: vec![RouteSettings {
            upgrade: strings(&["h2c", "websocket"]),
            ..route("carries-requests", "/")
        }],
        ..RoutingSettings::default()
    };
    let problems = RouteTable::new(&settings, &pools(POOLS)).expect_err("h2c carries requests");
    let keys: Vec<_> = problems.iter().map(|problem| problem.key).collect();
    assert_eq!(keys, ["upgrade"]);
}

#[test]
fn steps_are_shown_with_the_names_used_in_records() {
    use AccessStep as A;
    for (step, name, granted) in [
        (A::OpenToAnyone, "open-to-anyone", true),
        (A::AnyClient, "any-client", true),
        (A::Verified, "verified", true),
        (A::Own, "own", true),
        (A::Named, "named", true),
        (A::FailedForwarded, "failed-forwarded", true),
        (A::NotConfigured, "not-configured", false),
        (A::RefusedCertificate, "refused-certificate", false),
        (A::NoCertificate, "no-certificate", false),
        (A::NotOwn, "not-own", false),
        (A::NotAllowed, "not-allowed", false),
        (A::ClassClosed, "class-closed", false),
        (A::Never, "never", false),
    ] {
        assert_eq!((step.as_str(), step.is_granted()), (name, granted));
        let word = if granted { "granted" } else { "denied" };
        assert_eq!(
            RoutingStep::Access(step).to_string(),
            format!("access: {word} ({name})")
        );
    }
    assert_eq!(RoutingStep::NoRoute.to_string(), "no route");
    assert_eq!(
        RoutingStep::Method { known: true }.to_string(),
        "method: known to the endpoint"
    );
    assert_eq!(
        RoutingStep::Method { known: false }.to_string(),
        "method: not known to the endpoint"
    );
}
