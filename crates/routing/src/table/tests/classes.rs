//! The effect of routes that open classes or renewal, name agents, or are unguarded.

use super::super::*;
use super::support::*;
use crate::Class;
use crate::settings::ClientRule;
use crate::settings::RouteSettings;

/// Outcomes for a client without a certificate, two agents that are named, and an agent that is not named.
const OPENED: &str = "\
POST /puppet-ca/v1/sign                | 403 no-certificate | forge via admin/puppet-ca | forge via admin/puppet-ca | 403 not-allowed
GET /puppet-ca/v1/sign                 | 403 no-certificate | 405 method | 405 method | 403 not-allowed
POST /puppet/v4/catalog                | 403 no-certificate | forge via admin/puppet | forge via admin/puppet | 403 not-allowed
GET /puppet/v3/node/web01              | 403 no-certificate | forge via admin/puppet | forge via admin/puppet | forge via admin/puppet
GET /puppet/v3/node/web02              | 403 no-certificate | forge via admin/puppet | forge via admin/puppet | 403 not-own
GET /puppet/v3/file_content/m/x        | 403 no-certificate | forge via admin/puppet | forge via admin/puppet | 403 not-allowed
POST /puppet-ca/v1/certificate_renewal | 403 no-certificate | forge via renewal | forge via renewal | forge via renewal
GET /status/v1/simple                  | forge via status | forge via status | forge via status | forge via status
GET /status/v1/services                | 403 never | 403 never | 403 never | 403 never
";

#[test]
fn a_catch_all_for_any_client_opens_only_what_is_unknown() {
    let table = table(vec![RouteSettings {
        client: ClientRule::Any,
        ..route("all", "/")
    }]);
    let ask = TestRequest::of(&table);
    for (request, expected) in [
        ("GET /", "forge via all"),
        ("GET /anything", "forge via all"),
        ("GET /Puppet-CA/v1/sign", "forge via all"),
        ("GET /puppet-ca/v1/certificate/ca", "forge via all"),
        (
            "POST /puppet-ca/v1/certificate_renewal",
            "404 not-configured",
        ),
        ("POST /puppet-ca/v1/sign", "403 class-closed"),
        ("GET /production/certificate/web01", "403 class-closed"),
        ("POST /RPC2", "403 class-closed"),
        ("POST /puppet/v3/catalog/web01", "403 no-certificate"),
        ("GET /puppet/v3/file_content/m/x", "403 no-certificate"),
        (
            "GET /puppet/v3/file_bucket_file/md5/x",
            "403 no-certificate",
        ),
        ("POST /puppet/v4/catalog", "403 class-closed"),
        ("POST /production/catalog/web01", "403 class-closed"),
        ("GET /puppet/v3/brand_new", "403 class-closed"),
        ("GET /status/v1/simple", "status"),
        ("GET /status/v1/services", "403 never"),
    ] {
        assert_eq!(ask.outcome(request, "anonymous"), expected, "{request}");
    }
    assert_eq!(
        ask.outcome("POST /puppet/v3/catalog/web01", "web01"),
        "forge via all"
    );
    assert_eq!(
        ask.outcome("POST /puppet/v3/catalog/web01", "web02"),
        "403 not-own"
    );
}

#[test]
fn a_route_opens_the_classes_it_names_to_the_agents_it_allows() {
    let admin = |classes: &[Class], prefix: &str| RouteSettings {
        classes: classes.to_vec(),
        allow: strings(&["admin.example", "ops-*"]),
        client: ClientRule::Any,
        ..route(&format!("admin{prefix}"), prefix)
    };
    let renewal = RouteSettings {
        classes: vec![Class::Renewal],
        client: ClientRule::Any,
        ..route("renewal", "/puppet-ca/v1/certificate_renewal")
    };
    let status = RouteSettings {
        classes: vec![Class::Status],
        ..route("status", "/status/v1/simple")
    };
    let table = renewing(vec![
        renewal,
        status,
        admin(&[Class::CaAdministration], "/puppet-ca"),
        admin(&[Class::OwnDocuments, Class::Services], "/puppet"),
    ]);
    let ask = TestRequest::of(&table);
    // request, then: anonymous, admin.example, OPS-1, web01
    check_rows(
        OPENED,
        ["anonymous", "admin.example", "OPS-1", "web01"],
        |request, who| ask.outcome(request, who),
    );
}

#[test]
fn renewal_is_configured_once_and_routed_by_a_configured_or_built_in_route() {
    const RENEWAL: &str = "POST /puppet-ca/v1/certificate_renewal";
    let opens = RouteSettings {
        classes: vec![Class::Renewal],
        client: ClientRule::Any,
        ..route("renewal", "/puppet-ca/v1/certificate_renewal")
    };
    let outcome =
        |table: &RouteTable, request: &str, who: &str| TestRequest::of(table).outcome(request, who);
    let built_in = renewing(Vec::new());
    let by_route = renewing(vec![opens.clone()]);
    let elsewhere = renewing(vec![route("all", "/")]);
    for (who, by, expected) in [
        ("web01", &built_in, "ca via builtin:renewal"),
        ("anonymous", &built_in, "403 no-certificate"),
        ("refused", &built_in, "403 refused-certificate"),
        ("web01", &by_route, "forge via renewal"),
        ("anonymous", &by_route, "403 no-certificate"),
        ("web01", &elsewhere, "404 not-configured"),
    ] {
        assert_eq!(outcome(by, RENEWAL, who), expected, "{who}");
    }
    for (request, expected) in [
        ("GET /puppet-ca/v1/certificate_renewal", "405 method"),
        ("POST /puppet-ca/v1/certificate_renewal/", "404 no-endpoint"),
        (
            "POST /puppet-ca/v1/certificate_renewal/web01",
            "404 no-endpoint",
        ),
    ] {
        for table in [&built_in, &by_route] {
            assert_eq!(outcome(table, request, "web01"), expected, "{request}");
        }
    }
    // A route alone does not open renewal, because `[ca] renewal` must allow it.
    let settings = RoutingSettings {
        routes: vec![opens],
        ..RoutingSettings::default()
    };
    let problems = RouteTable::new(&settings, &pools(POOLS)).expect_err("refused");
    assert_eq!((problems[0].route, problems[0].key), (Some(0), "classes"));
}

#[test]
fn the_client_certificate_goes_to_the_ca_only_with_a_renewal() {
    let plan_of = |ask: &TestRequest<'_>, request: &str| {
        ask.decide(request, "web01", |decision| match decision {
            RouteDecision::Forward(plan) => (plan.with_certificate_class, plan.is_renewal()),
            other => panic!("{request}: {other:?}"),
        })
    };
    let table = renewing(vec![RouteSettings {
        unguarded: true,
        host: strings(&["other.example"]),
        ..route("other", "/")
    }]);
    let ask = TestRequest::of(&table);
    for (request, with_certificate) in [
        ("POST /puppet-ca/v1/certificate_renewal", true),
        ("GET /puppet-ca/v1/certificate/web01", false),
        ("GET /puppet-ca/v1/certificate_revocation_list/ca", false),
        ("PUT /puppet-ca/v1/certificate_request/web01", false),
        ("GET /puppet/v3/node/web01", true),
    ] {
        let expected = (with_certificate, request.starts_with("POST"));
        assert_eq!(plan_of(&ask, request), expected, "{request}");
    }
    let unguarded = TestRequest {
        host: Some("other.example"),
        ..TestRequest::of(&table)
    };
    let plan = plan_of(&unguarded, "POST /puppet-ca/v1/certificate_renewal");
    assert_eq!(plan, (false, false));
}

#[test]
fn an_unguarded_route_ignores_classes() {
    let any = RouteSettings {
        unguarded: true,
        client: ClientRule::Any,
        ..route("any", "/")
    };
    let any_table = table(vec![any.clone()]);
    let named_table = table(vec![RouteSettings {
        allow: strings(&["web*"]),
        ..any
    }]);
    for request in [
        "POST /puppet-ca/v1/sign",
        "BREW /puppet-ca/v1/certificate/ca",
        "POST /puppet-ca/v1/certificate_renewal",
        "GET /puppet/v3/node/web02",
        "GET /status/v1/simple",
        "GET /metrics",
        "GET /",
    ] {
        let ask = TestRequest::of(&any_table);
        assert_eq!(
            ask.outcome(request, "anonymous"),
            "forge via any",
            "{request}"
        );
        assert_eq!(
            ask.outcome(request, "refused"),
            "403 refused-certificate",
            "{request}"
        );
        assert_eq!(
            TestRequest {
                forward: true,
                ..TestRequest::of(&any_table)
            }
            .outcome(request, "refused"),
            "forge via any"
        );
        let ask = TestRequest::of(&named_table);
        assert_eq!(
            ask.outcome(request, "anonymous"),
            "403 no-certificate",
            "{request}"
        );
        assert_eq!(ask.outcome(request, "web01"), "forge via any", "{request}");
        assert_eq!(ask.outcome(request, "db01"), "403 not-allowed", "{request}");
    }
}

#[test]
fn a_route_for_named_agents_refuses_own_documents_to_other_agents() {
    let table = table(vec![RouteSettings {
        allow: strings(&["db*"]),
        pool: "compilers".to_owned(),
        ..route("databases", "/puppet/v3")
    }]);
    let ask = TestRequest::of(&table);
    let request = "POST /puppet/v3/catalog/web01";
    assert_eq!(ask.outcome(request, "web01"), "403 not-allowed");
    assert_eq!(
        ask.outcome("POST /puppet/v3/catalog/db01", "db01"),
        "compilers via databases"
    );
}

#[test]
fn enrolment_through_a_route_with_names_is_for_those_names() {
    let table = table(vec![RouteSettings {
        allow: strings(&["web*"]),
        pool: "ca".to_owned(),
        ..route("own-ca", "/puppet-ca")
    }]);
    let ask = TestRequest::of(&table);
    let request = "GET /puppet-ca/v1/certificate/ca";
    assert_eq!(ask.outcome(request, "web01"), "ca via own-ca");
    assert_eq!(ask.outcome(request, "db01"), "403 not-allowed");
    assert_eq!(ask.outcome(request, "anonymous"), "403 no-certificate");
}
