//! Who gets where: every row of the built-in table for every kind of client, and configured routes on top.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use identity::{Agent, ChainVerified, ClientIdentity, Reason, Refusal, SubjectRule};

use super::*;
use crate::settings::{ClientRule, PathPattern, RouteSettings};
use crate::{CanonicalPath, Layouts, RouteCondition};

const POOLS: &[&str] = &["compilers", "ca", "filebucket", "forge"];

/// One request to the table; who asks is one of "anonymous", "refused", or a certname.
struct Ask<'a> {
    table: &'a RouteTable,
    host: Option<&'a str>,
    header: Option<(&'a str, &'a str)>,
    query: Option<&'a str>,
    source: Option<&'a str>,
    sni: Option<&'a str>,
    forward: bool,
}

impl<'a> Ask<'a> {
    fn of(table: &'a RouteTable) -> Self {
        Self {
            table,
            host: Some("puppet:8140"),
            header: None,
            query: None,
            source: None,
            sni: None,
            forward: false,
        }
    }

    /// `GET /path` by `who`: "POOL via ROUTE", "status", or "CODE reason".
    fn outcome(&self, request: &str, who: &str) -> String {
        self.decide(request, who, |decision| match decision {
            RouteDecision::Forward(plan) => format!("{} via {}", POOLS[plan.pool], plan.route.name),
            RouteDecision::Status(_) => "status".to_owned(),
            RouteDecision::Refuse(refusal) => {
                assert!(
                    refusal
                        .text
                        .bytes()
                        .all(|byte| (0x20..0x7f).contains(&byte)),
                    "{}",
                    refusal.text
                );
                assert!(
                    refusal.text.ends_with('.')
                        && refusal.text.len() > 20
                        // How to open the proxy is for its operator alone.
                        && !["[[", "classes =", "allow ="].iter().any(|key| refusal.text.contains(key)),
                    "{}",
                    refusal.text
                );
                assert_eq!(refusal.allow.is_some(), refusal.status == 405);
                format!("{} {}", refusal.status, refusal.reason.as_str())
            }
        })
    }

    fn decide<T>(&self, request: &str, who: &str, look: impl FnOnce(RouteDecision<'_>) -> T) -> T {
        let (method, path) = request.split_once(' ').expect("method and path");
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = self.header {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).expect("name"),
                HeaderValue::from_static("other"),
            );
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).expect("name"),
                HeaderValue::from_str(value).expect("value"),
            );
        }
        let question = RoutingRequest {
            method: &method,
            path: CanonicalPath::check(path).expect("a path"),
            query: self.query,
            host: self.host,
            headers: &headers,
            source: self
                .source
                .map(|address| address.parse().expect("an address")),
            sni: self.sni,
            identity: &identity(who),
            failed_is_forwarded: self.forward,
        };
        let explained = self.table.explain(&question);
        let decision = self.table.find(&question);
        assert_eq!(format!("{:?}", explained.decision), format!("{decision:?}"));
        look(decision)
    }
}

fn identity(who: &str) -> ClientIdentity {
    match who {
        "anonymous" => ClientIdentity::Anonymous,
        "refused" => ClientIdentity::Refused(Refusal {
            reason: Reason::Revoked,
            certificate: "\"CN=gone\" (serial 0x05)".to_owned(),
            help: "Run \"puppet ssl clean\" on the agent.".to_owned(),
            claimed: None,
        }),
        certname => ClientIdentity::Verified(Arc::new(agent(certname))),
    }
}

/// An agent of this name, from a certificate that nobody signed.
fn agent(certname: &str) -> Agent {
    fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let header = if length < 0x80 {
            vec![tag, length as u8]
        } else {
            vec![tag, 0x82, (length >> 8) as u8, length as u8]
        };
        [header, content.to_vec()].concat()
    }
    let algorithm = tlv(0x30, &tlv(0x06, &[0x2b, 0x65, 0x70]));
    let name = |cn: &str| {
        let attribute = [tlv(0x06, &[0x55, 0x04, 0x03]), tlv(0x0c, cn.as_bytes())].concat();
        tlv(0x30, &tlv(0x31, &tlv(0x30, &attribute)))
    };
    let body = [
        tlv(0xa0, &tlv(0x02, &[2])),
        tlv(0x02, &[7]),
        algorithm.clone(),
        name("CA"),
        tlv(
            0x30,
            &[tlv(0x17, b"250101000000Z"), tlv(0x17, b"300101000000Z")].concat(),
        ),
        name(certname),
        tlv(0x30, &[algorithm.clone(), tlv(0x03, &[0; 33])].concat()),
    ];
    let der = tlv(
        0x30,
        &[tlv(0x30, &body.concat()), algorithm, tlv(0x03, &[0; 65])].concat(),
    );
    let settings = identity::IdentitySettings {
        subject: SubjectRule::SingleCn,
        ..identity::IdentitySettings::default()
    };
    Agent::from_leaf(&der, &settings, ChainVerified::assertion()).expect("an agent")
}

fn pools(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn table(routes: Vec<RouteSettings>) -> RouteTable {
    table_of(RoutingSettings {
        routes,
        ..RoutingSettings::default()
    })
}

fn renewing(routes: Vec<RouteSettings>) -> RouteTable {
    table_of(RoutingSettings {
        routes,
        renewal: true,
        ..RoutingSettings::default()
    })
}

fn table_of(settings: RoutingSettings) -> RouteTable {
    RouteTable::new(&settings, &pools(POOLS)).expect("a table")
}

fn route(name: &str, prefix: &str) -> RouteSettings {
    RouteSettings {
        name: name.to_owned(),
        path: Some(PathPattern::Prefix(prefix.to_owned())),
        pool: "forge".to_owned(),
        ..RouteSettings::default()
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Compares a table of lines `request | outcome for each of the four who ask`.
fn check_rows(table: &str, who: [&str; 4], outcome: impl Fn(&str, &str) -> String) {
    for line in table.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{line}");
        for (who, expected) in who.into_iter().zip(&cells[1..]) {
            assert_eq!(outcome(cells[0], who), *expected, "{} by {who}", cells[0]);
        }
    }
}

fn class_of(request: &str) -> Class {
    let (method, path) = request.split_once(' ').expect("method and path");
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    classify(
        &method,
        &CanonicalPath::check(path).expect("a path"),
        Layouts::Modern,
    )
    .class
}

/// By a client without a certificate, one whose certificate is refused, web01, and web02; a pool's name means that
/// the built-in route of the class took the request there.
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
DELETE /puppet-admin-api/v1/jruby-pool           | 403 never | 403 refused-certificate | 403 never | 403 never
GET /file-sync/v1/latest-commits                 | 403 never | 403 refused-certificate | 403 never | 403 never
GET /                                            | 404 no-route | 404 no-route | 404 no-route | 404 no-route
GET /packages/current/install.bash               | 404 no-route | 404 no-route | 404 no-route | 404 no-route
";

/// By a client without a certificate, two who are named, and one who is not.
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
fn the_built_in_routes_say_who_may_and_where_to() {
    let table = table(Vec::new());
    let ask = Ask::of(&table);
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
    let ask = Ask {
        forward: true,
        ..Ask::of(&table)
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
fn a_catch_all_for_any_client_opens_only_what_is_unknown() {
    let table = table(vec![RouteSettings {
        client: ClientRule::Any,
        ..route("all", "/")
    }]);
    let ask = Ask::of(&table);
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
fn classes_open_what_they_name_to_those_whom_the_route_names() {
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
    let ask = Ask::of(&table);
    // request, then: anonymous, admin.example, OPS-1, web01
    check_rows(
        OPENED,
        ["anonymous", "admin.example", "OPS-1", "web01"],
        |request, who| ask.outcome(request, who),
    );
}

#[test]
fn renewal_is_configured_in_one_place_and_led_by_a_route_or_the_built_in_one() {
    const RENEWAL: &str = "POST /puppet-ca/v1/certificate_renewal";
    let opens = RouteSettings {
        classes: vec![Class::Renewal],
        client: ClientRule::Any,
        ..route("renewal", "/puppet-ca/v1/certificate_renewal")
    };
    let outcome =
        |table: &RouteTable, request: &str, who: &str| Ask::of(table).outcome(request, who);
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
    // A route alone opens nothing: what has to hold of a renewal is said where it is configured.
    let settings = RoutingSettings {
        routes: vec![opens],
        ..RoutingSettings::default()
    };
    let problems = RouteTable::new(&settings, &pools(POOLS)).expect_err("refused");
    assert_eq!((problems[0].route, problems[0].key), (Some(0), "classes"));
}

#[test]
fn documents_of_the_ca_are_open_in_both_layouts_where_they_are_answered_here() {
    let edge = table_of(RoutingSettings {
        edge_answers: true,
        routes: vec![RouteSettings {
            unguarded: true,
            host: strings(&["other.example"]),
            ..route("other", "/")
        }],
        ..RoutingSettings::default()
    });
    let document = |ask: &Ask<'_>, request: &str| {
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
        assert_eq!(document(&Ask::of(&edge), request), expected, "{request}");
    }
    let closed = table(Vec::new());
    let legacy = "GET /production/certificate/ca";
    assert_eq!(document(&Ask::of(&closed), legacy), Err(403));
    let refused = Ask::of(&edge).outcome(legacy, "refused");
    assert_eq!(refused, "403 refused-certificate");
    let unguarded = Ask {
        host: Some("other.example"),
        ..Ask::of(&edge)
    };
    let modern = "GET /puppet-ca/v1/certificate/ca";
    let plan = unguarded.decide(modern, "web01", |decision| match decision {
        RouteDecision::Forward(plan) => plan.document(),
        other => panic!("{other:?}"),
    });
    assert_eq!(plan, None);
}

#[test]
fn a_certificate_goes_to_the_ca_with_a_renewal_alone() {
    let plan_of = |ask: &Ask<'_>, request: &str| {
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
    let ask = Ask::of(&table);
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
    let unguarded = Ask {
        host: Some("other.example"),
        ..Ask::of(&table)
    };
    let plan = plan_of(&unguarded, "POST /puppet-ca/v1/certificate_renewal");
    assert_eq!(plan, (false, false));
}

#[test]
fn an_unguarded_route_knows_no_classes() {
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
        let ask = Ask::of(&any_table);
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
            Ask {
                forward: true,
                ..Ask::of(&any_table)
            }
            .outcome(request, "refused"),
            "forge via any"
        );
        let ask = Ask::of(&named_table);
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
fn conditions_send_what_they_do_not_hold_for_to_the_next_route() {
    let base = RouteSettings {
        client: ClientRule::Any,
        ..route("r", "/a")
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
        (
            RouteSettings {
                header: vec![("X-Team".to_owned(), "a".to_owned())],
                ..base.clone()
            },
            vec![("GET /a", true)],
        ),
        (
            RouteSettings {
                header: vec![("X-Team".to_owned(), "A".to_owned())],
                ..base.clone()
            },
            vec![("GET /a", false)],
        ),
    ];
    for (settings, requests) in cases {
        let table = table(vec![settings.clone()]);
        for (request, matches) in requests {
            let ask = Ask {
                header: Some(("x-team", "a")),
                ..Ask::of(&table)
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
    let ask = Ask {
        host: None,
        ..Ask::of(&table)
    };
    assert_eq!(ask.outcome("GET /a", "web01"), "forge via webs");
    assert_eq!(ask.outcome("GET /a", "db01"), "compilers via rest");
    assert_eq!(ask.outcome("GET /a", "anonymous"), "403 no-certificate");
}

#[test]
fn the_plan_says_how_to_forward() {
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
        let ask = Ask {
            host: Some(host),
            ..Ask::of(&table)
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
fn what_is_not_known_of_a_request_holds_for_no_condition() {
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
    let ask = || Ask::of(&table);
    let with = |ask: Ask<'_>| ask.outcome("GET /a", "anonymous");
    let query = |query| {
        with(Ask {
            query: Some(query),
            ..ask()
        })
    };
    let cookie = |cookie| {
        with(Ask {
            header: Some(("cookie", cookie)),
            ..ask()
        })
    };
    let source = |source| {
        with(Ask {
            source: Some(source),
            ..ask()
        })
    };
    let sni = |sni| {
        with(Ask {
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
fn a_wrong_method_is_told_what_would_be_right() {
    let table = table(Vec::new());
    Ask::of(&table).decide(
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
            Ask::of(&table).outcome(request, "web01"),
            "404 no-route",
            "{request}"
        );
    }
}

#[test]
fn without_a_bucket_pool_buckets_go_to_the_compilers() {
    let table = RouteTable::new(&RoutingSettings::default(), &pools(&["compilers", "ca"]))
        .expect("a table");
    let outcome = Ask::of(&table).outcome("HEAD /puppet/v3/file_bucket_file/md5/a", "web01");
    assert_eq!(outcome, "compilers via builtin:filebucket");
}

#[test]
fn all_that_is_wrong_with_the_settings_is_said_at_once() {
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
        (Some(0), "path"),
        (Some(0), "method"),
        (Some(0), "header"),
        (Some(0), "header"),
        (Some(0), "host"),
        (Some(0), "query"),
        (Some(0), "cookie"),
        (Some(0), "source"),
        (Some(0), "source"),
        (Some(0), "sni"),
        (Some(0), "sni"),
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
fn explain_tells_each_step() {
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
    let (method, headers, identity) = (Method::POST, HeaderMap::new(), identity("web01"));
    let question = RoutingRequest {
        method: &method,
        path: CanonicalPath::check("/puppet/v3/catalog/web02").expect("a path"),
        query: None,
        host: Some("puppet"),
        headers: &headers,
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
fn every_route_is_listed_in_the_order_of_trying() {
    let table = table(vec![route("forge", "/forge"), route("rest", "/")]);
    let names: Vec<_> = table.routes().map(|route| &*route.name).collect();
    assert_eq!(names[..3], ["forge", "rest", "builtin:enrolment"]);
    assert_eq!(names.len(), 10);
}

#[test]
fn a_tunnel_is_for_what_no_puppet_server_serves() {
    let upgrade = |unguarded, request: &str| {
        let table = table(vec![RouteSettings {
            upgrade: strings(&["WebSocket", "acme/1"]),
            classes: vec![Class::Files],
            unguarded,
            ..route("tunnel", "/")
        }]);
        let ask = Ask::of(&table);
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
fn names_of_routes_are_present_and_their_own() {
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
fn own_documents_are_kept_even_from_their_owner_by_a_route_that_names_others() {
    let table = table(vec![RouteSettings {
        allow: strings(&["db*"]),
        pool: "compilers".to_owned(),
        ..route("databases", "/puppet/v3")
    }]);
    let ask = Ask::of(&table);
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
    let ask = Ask::of(&table);
    let request = "GET /puppet-ca/v1/certificate/ca";
    assert_eq!(ask.outcome(request, "web01"), "ca via own-ca");
    assert_eq!(ask.outcome(request, "db01"), "403 not-allowed");
    assert_eq!(ask.outcome(request, "anonymous"), "403 no-certificate");
}

#[test]
fn steps_are_told_by_the_names_that_records_have() {
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

#[test]
fn conditions_are_told_by_their_keys() {
    use RouteCondition as C;
    let all = [
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
        // Given twice, it cannot be read for certain.
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
            host: None,
            headers: &HeaderMap::new(),
            source: None,
            sni: None,
            identity: &identity,
            failed_is_forwarded: false,
        };
        let route = table.routes().next().expect("the route");
        assert_eq!(route.failed(&question), failed, "{identity:?}");
    }
    assert!(table.reads_certificates());
}

#[test]
fn a_client_keeps_its_side_of_a_share_and_a_larger_share_only_takes_clients_in() {
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
        let ask = Ask {
            source,
            ..Ask::of(table)
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
        // The certname decides, wherever the agent is.
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
fn a_share_of_none_or_of_more_than_all_is_refused() {
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

mod legacy;

#[test]
fn the_index_of_a_large_table_finds_what_trying_every_route_finds() {
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
                // Compares it with the explanation, which tries every route.
                Ask::of(&table).decide(&format!("GET {path}"), "web01", |decision| {
                    found += u32::from(matches!(decision, RouteDecision::Forward(_)));
                });
            }
        }
    }
    assert!(found > 1000, "only {found}");
}
