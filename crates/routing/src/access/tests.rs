//! Access rules: every condition, the first match, which restrictions a rule can lift and which it cannot, and rules in
//! observe mode.

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use http1::Fields;
use identity::{Agent, Certname, ClientIdentity, Reason, Refusal, extension_oid};

use crate::settings::{
    AccessRuleSettings, ClientRule, PathPattern, RouteSettings, RoutingSettings, RuleAction,
};
use crate::{CanonicalPath, Class, RouteDecision, RouteTable, RoutingRequest};

const POOLS: &[&str] = &["compilers", "ca", "forge"];
const CATALOG: &str = "POST /puppet/v3/catalog/web01";
const FILE: &str = "GET /puppet/v3/file_content/modules/a/b";
const SIGN: &str = "PUT /puppet-ca/v1/certificate_status/web01";
const COMPILE: &str = "POST /puppet/v3/compile";
const ENROL: &str = "PUT /puppet-ca/v1/certificate_request/new";
const STATUS: &str = "GET /status/v1/simple";
const OWN_OID: &str = "1.3.6.1.4.1.99999.7";

#[derive(Clone)]
struct TestClient {
    identity: ClientIdentity,
    source: Option<IpAddr>,
}

fn agent(name: &str) -> TestClient {
    agent_with(name, &[])
}

/// An agent with extensions, each given by its Puppet name or OID. An extension that is given twice is unreadable.
fn agent_with(name: &str, extensions: &[(&str, &str)]) -> TestClient {
    let extensions = extensions.iter().map(|(name, value)| {
        let oid = extension_oid(name).unwrap_or_else(|| (*name).to_owned());
        (oid, (*value).to_owned())
    });
    let certname = Certname::parse(name).expect("a certname");
    let agent = Agent::assumed(certname).assuming(Some("CN=Puppet CA: a"), extensions.collect());
    TestClient {
        identity: ClientIdentity::Verified(Arc::new(agent)),
        source: Some([192, 0, 2, 7].into()),
    }
}

fn anonymous() -> TestClient {
    TestClient {
        identity: ClientIdentity::Anonymous,
        ..agent("x")
    }
}

fn refused() -> TestClient {
    TestClient {
        identity: ClientIdentity::Refused(Refusal {
            reason: Reason::Revoked,
            certificate: "\"CN=gone\" (serial 0x05)".to_owned(),
            help: "Run \"puppet ssl clean\" on the agent.".to_owned(),
            claimed: None,
            is_issued: true,
        }),
        ..agent("x")
    }
}

fn rule(name: &str, action: RuleAction) -> AccessRuleSettings {
    AccessRuleSettings {
        name: name.to_owned(),
        action,
        ..AccessRuleSettings::default()
    }
}

fn refuse(name: &str) -> AccessRuleSettings {
    rule(name, RuleAction::Refuse)
}

fn allow(name: &str) -> AccessRuleSettings {
    rule(name, RuleAction::Allow)
}

fn settings(access: Vec<AccessRuleSettings>) -> RoutingSettings {
    RoutingSettings {
        access,
        extension_names: vec![("site".to_owned(), OWN_OID.to_owned())],
        ..RoutingSettings::default()
    }
}

fn build(settings: &RoutingSettings) -> Result<RouteTable, Vec<String>> {
    let pools: Vec<Arc<str>> = POOLS.iter().map(|name| Arc::from(*name)).collect();
    RouteTable::new(settings, &pools)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// Checks the outcome of a request. `expected` is "passes", "passes, observed by RULE", or the refusal reason followed by the
/// rule that refuses.
#[track_caller]
fn check(settings: &RoutingSettings, request: &str, client: &TestClient, expected: &str) {
    let table = build(settings).expect("a table");
    let (method, path) = request.split_once(' ').expect("method and path");
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let question = RoutingRequest {
        method: &method,
        path: CanonicalPath::check(path).expect("a path"),
        query: None,
        listener: None,
        host: None,
        fields: &Fields::default(),
        source: client.source,
        sni: None,
        identity: &client.identity,
        failed_is_forwarded: false,
    };
    let passes = |observed: Option<&crate::AccessRule>| match observed {
        None => "passes".to_owned(),
        Some(rule) => format!("passes, observed by {}", rule.name),
    };
    let outcome = match table.find(&question) {
        RouteDecision::Forward(plan) => passes(plan.observed),
        RouteDecision::Status(observed) => passes(observed),
        RouteDecision::Refuse(refusal) => match refusal.rule {
            None => refusal.reason.as_str().to_owned(),
            Some(index) => {
                let name = &table.rules()[index].name;
                let named = format!("the access rule \"{name}\"");
                assert!(refusal.text.contains(&named), "{}", refusal.text);
                assert_eq!(refusal.status, 403);
                format!("{} {name}", refusal.reason.as_str())
            }
        },
    };
    assert_eq!(outcome, expected, "{request}");
}

#[test]
fn without_rules_the_class_decides() {
    for (request, client, expected) in [
        (CATALOG, agent("web01"), "passes"),
        (CATALOG, agent("web02"), "not-own"),
        (SIGN, agent("web01"), "class-closed"),
        (FILE, anonymous(), "no-certificate"),
        (ENROL, anonymous(), "passes"),
        (ENROL, refused(), "refused-certificate"),
    ] {
        check(&settings(Vec::new()), request, &client, expected);
    }
}

#[test]
fn a_rule_matches_only_if_all_its_conditions_match() {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let rule = settings(vec![AccessRuleSettings {
        certname: texts(&["db*"]),
        issuer: texts(&["CN=Puppet CA: a"]),
        source: texts(&["192.0.2.0/24"]),
        route: texts(&["builtin:files"]),
        class: vec![Class::Files],
        extension: vec![("pp_role".to_owned(), "data*".to_owned())],
        ..refuse("no-db")
    }]);
    let db = agent_with("DB01", &[("pp_role", "database")]);
    check(&rule, FILE, &db, "access-rule no-db");
    let elsewhere = TestClient {
        source: Some([198, 51, 100, 1].into()),
        ..db.clone()
    };
    check(&rule, FILE, &elsewhere, "passes");
    check(&rule, "POST /puppet/v3/catalog/db01", &db, "passes");
    for other in [
        agent_with("web01", &[("pp_role", "database")]),
        agent_with("db01", &[("pp_role", "Database")]),
        agent_with("db01", &[("pp_role", "adatabase")]),
        agent_with("db01", &[("pp_auth_role", "database")]),
        agent("db01"),
    ] {
        check(&rule, FILE, &other, "passes");
    }
    let other_issuer = settings(vec![AccessRuleSettings {
        issuer: texts(&["CN=Puppet CA: b"]),
        ..refuse("b")
    }]);
    check(&other_issuer, FILE, &db, "passes");
}

#[test]
fn the_first_matching_rule_decides() {
    let some = |name: &str| AccessRuleSettings {
        extension: vec![("pp_environment".to_owned(), "production".to_owned())],
        ..allow(name)
    };
    let rest = || AccessRuleSettings {
        class: vec![Class::Files, Class::OwnDocuments],
        ..refuse("rest")
    };
    let production = agent_with("web01", &[("pp_environment", "production")]);
    let rules = settings(vec![some("some"), rest()]);
    check(&rules, FILE, &production, "passes");
    check(&rules, FILE, &agent("web01"), "access-rule rest");
    check(&rules, CATALOG, &agent("web01"), "access-rule rest");
    check(&rules, ENROL, &anonymous(), "passes");
    let rules = settings(vec![rest(), some("some")]);
    check(&rules, FILE, &production, "access-rule rest");
}

#[test]
fn conditions_may_use_configured_extension_names_and_dotted_oids() {
    for name in ["site", OWN_OID] {
        let rules = settings(vec![AccessRuleSettings {
            extension: vec![(name.to_owned(), "north".to_owned())],
            ..refuse("north")
        }]);
        let north = agent_with("web01", &[(OWN_OID, "north")]);
        check(&rules, FILE, &north, "access-rule north");
        check(&rules, FILE, &agent("web01"), "passes");
    }
}

#[test]
fn an_unreadable_extension_matches_refuse_rules_but_not_allow_rules() {
    let unreadable = agent_with("web01", &[("pp_role", "a"), ("pp_role", "a")]);
    let condition = || vec![("pp_role".to_owned(), "b".to_owned())];
    let refusing = settings(vec![AccessRuleSettings {
        extension: condition(),
        ..refuse("b")
    }]);
    check(&refusing, FILE, &unreadable, "access-rule b");
    check(&refusing, FILE, &agent("web01"), "passes");
    let allowing = settings(vec![
        AccessRuleSettings {
            extension: vec![("pp_role".to_owned(), "*".to_owned())],
            ..allow("a")
        },
        refuse("rest"),
    ]);
    check(&allowing, FILE, &unreadable, "access-rule rest");
    // With two conditions, an unreadable value in one does not satisfy the other.
    let both = settings(vec![AccessRuleSettings {
        extension: [condition(), vec![("pp_zone".to_owned(), "x".to_owned())]].concat(),
        ..refuse("both")
    }]);
    check(&both, FILE, &unreadable, "passes");
}

#[test]
fn conditions_on_the_certificate_match_only_verified_clients() {
    let texts = |text: &str| vec![text.to_owned()];
    for rule in [
        AccessRuleSettings {
            certname: texts("*"),
            ..refuse("r")
        },
        AccessRuleSettings {
            issuer: texts("CN=Puppet CA: a"),
            ..refuse("r")
        },
        AccessRuleSettings {
            extension: vec![("pp_role".to_owned(), "*".to_owned())],
            ..refuse("r")
        },
    ] {
        check(&settings(vec![rule]), ENROL, &anonymous(), "passes");
    }
    let anyone = settings(vec![refuse("r")]);
    check(&anyone, ENROL, &anonymous(), "access-rule r");
    check(&anyone, STATUS, &anonymous(), "access-rule r");
    // The client gets the more helpful reason, not that of the access rule.
    check(&anyone, FILE, &anonymous(), "no-certificate");
    check(&anyone, FILE, &refused(), "refused-certificate");
}

#[test]
fn an_allow_rule_opens_its_classes_only_to_the_clients_it_matches() {
    let rules = settings(vec![AccessRuleSettings {
        class: vec![Class::CaAdministration, Class::OwnDocuments],
        extension: vec![("pp_cli_auth".to_owned(), "true".to_owned())],
        ..allow("admins")
    }]);
    let admin = agent_with("ops", &[("pp_cli_auth", "true")]);
    for (request, client, expected) in [
        (SIGN, &admin, "passes"),
        (CATALOG, &admin, "passes"),
        (COMPILE, &admin, "class-closed"),
        (SIGN, &agent("ops"), "class-closed"),
        (CATALOG, &agent("ops"), "not-own"),
        (SIGN, &anonymous(), "class-closed"),
        (CATALOG, &anonymous(), "no-certificate"),
        (SIGN, &refused(), "refused-certificate"),
    ] {
        check(&rules, request, client, expected);
    }
}

#[test]
fn no_rule_opens_the_never_class_or_renewal_or_admits_unverified_clients() {
    let all = || AccessRuleSettings {
        class: Class::ALL
            .into_iter()
            .filter(|class| *class != Class::ServerAdministration)
            .collect(),
        certname: vec!["*".to_owned()],
        ..allow("all")
    };
    let observing = AccessRuleSettings {
        observe: true,
        ..refuse("observing")
    };
    for rules in [settings(vec![all()]), settings(vec![observing, all()])] {
        for (request, client, expected) in [
            ("GET /puppet-admin-api/v1/jruby-pool", agent("ops"), "never"),
            ("GET /metrics/v2", agent("ops"), "never"),
            (
                "POST /puppet-ca/v1/certificate_renewal",
                agent("ops"),
                "not-configured",
            ),
            ("GET /nowhere", agent("ops"), "no-route"),
            (SIGN, anonymous(), "class-closed"),
            (FILE, anonymous(), "no-certificate"),
            (FILE, refused(), "refused-certificate"),
        ] {
            check(&rules, request, &client, expected);
        }
    }
}

#[test]
fn conditions_of_a_route_apply_in_addition_to_an_allow_rule() {
    let mut rules = settings(vec![AccessRuleSettings {
        class: vec![Class::OwnDocuments, Class::Services],
        certname: vec!["ops".to_owned(), "boss".to_owned()],
        ..allow("ops")
    }]);
    rules.routes = vec![RouteSettings {
        name: "compilers".to_owned(),
        path: Some(PathPattern::Prefix("/puppet".to_owned())),
        pool: "compilers".to_owned(),
        client: ClientRule::Verified,
        allow: vec!["ops".to_owned(), "web01".to_owned()],
        ..RouteSettings::default()
    }];
    for (request, client, expected) in [
        (CATALOG, "ops", "passes"),
        (COMPILE, "ops", "passes"),
        (CATALOG, "boss", "not-allowed"),
        (COMPILE, "boss", "not-allowed"),
        (COMPILE, "web01", "class-closed"),
    ] {
        check(&rules, request, &agent(client), expected);
    }
}

#[test]
fn t16_agents_get_only_their_own_documents_whatever_the_spelling_of_the_path() {
    let rules = settings(vec![AccessRuleSettings {
        class: vec![Class::OwnDocuments],
        certname: vec!["deploy".to_owned()],
        ..allow("deploy")
    }]);
    for rules in [settings(Vec::new()), rules] {
        for document in ["catalog", "node", "facts", "report"] {
            let request = |name: &str| {
                let method = match document {
                    "catalog" => "POST",
                    "node" => "GET",
                    _ => "PUT",
                };
                format!("{method} /puppet/v3/{document}/{name}")
            };
            check(&rules, &request("web01"), &agent("web01"), "passes");
            // A server stores documents under a different spelling separately, as those of another node.
            check(&rules, &request("WEB01"), &agent("web01"), "not-own");
            check(&rules, &request("Web01"), &agent("web01"), "not-own");
            check(&rules, &request("web02"), &agent("web01"), "not-own");
            check(&rules, &request("web0"), &agent("web01"), "not-own");
            check(
                &rules,
                &request("web01.example"),
                &agent("web01"),
                "not-own",
            );
            // A path with more segments than one name, or without a name, is not a document of an agent.
            check(&rules, &request("web01/x"), &agent("web01"), "class-closed");
            check(&rules, &request(""), &agent("web01"), "class-closed");
            // The layout of Puppet 3, which a server may still accept.
            let legacy = format!("GET /production/{document}/web01");
            check(&rules, &legacy, &agent("web01"), "class-closed");
            let legacy = format!("GET /puppet/{document}/web01");
            check(&rules, &legacy, &agent("web01"), "class-closed");
        }
    }
    for path in [
        "/puppet/v3/catalog/web%30%31",
        "/puppet/v3/catalog/web01;x",
        "/puppet/v3/catalog//web01",
        "/puppet/v3//catalog/web01",
        "//puppet/v3/catalog/web01",
        "/puppet/v3/catalog/web02/../web01",
        "/puppet/v3/catalog/web02%2f..%2fweb01",
        "/production/catalog/web%30%31/..",
    ] {
        assert!(CanonicalPath::check(path).is_err(), "{path}");
    }
}

#[test]
fn an_observing_rule_changes_no_decision_and_reports_what_it_would_refuse() {
    let observing = |name: &str| AccessRuleSettings {
        observe: true,
        ..refuse(name)
    };
    let exceptions = || AccessRuleSettings {
        class: vec![Class::OwnDocuments],
        certname: vec!["ops".to_owned()],
        ..allow("ops")
    };
    let rules = settings(vec![observing("one"), observing("two"), exceptions()]);
    check(&rules, FILE, &agent("web01"), "passes, observed by one");
    check(&rules, STATUS, &anonymous(), "passes, observed by one");
    // Later rules decide as if the observing rule did not exist, and the guards of the classes still apply.
    check(&rules, CATALOG, &agent("ops"), "passes, observed by one");
    check(&rules, CATALOG, &agent("web02"), "not-own");
    check(&rules, SIGN, &agent("web01"), "class-closed");
    let rules = settings(vec![observing("one"), refuse("two")]);
    check(&rules, FILE, &agent("web01"), "access-rule two");
    // An earlier rule allows the request, so the observing rule would not refuse it.
    let rules = settings(vec![exceptions(), observing("one")]);
    check(&rules, CATALOG, &agent("ops"), "passes");
}

#[test]
fn access_observe_puts_all_rules_into_observe_mode() {
    let rules = RoutingSettings {
        access_observe: true,
        ..settings(vec![
            refuse("one"),
            AccessRuleSettings {
                class: vec![Class::OwnDocuments],
                certname: vec!["ops".to_owned()],
                ..allow("ops")
            },
        ])
    };
    check(&rules, FILE, &agent("web01"), "passes, observed by one");
    check(&rules, CATALOG, &agent("ops"), "passes, observed by one");
    for (request, expected) in [
        (SIGN, "class-closed"),
        (CATALOG, "not-own"),
        ("GET /metrics", "never"),
    ] {
        check(&rules, request, &agent("web02"), expected);
    }
}

#[test]
fn every_problem_of_a_rule_is_reported() {
    let texts = |text: &str| vec![text.to_owned()];
    let wrong = RoutingSettings {
        extension_names: vec![
            ("site".to_owned(), OWN_OID.to_owned()),
            ("pp_role".to_owned(), OWN_OID.to_owned()),
            ("alt".to_owned(), "2.5.29.17".to_owned()),
        ],
        ..RoutingSettings::default()
    };
    let problems = build(&wrong).expect_err("refused");
    assert_eq!(problems.len(), 2, "{problems:?}");
    for (rule, key, words) in [
        (
            AccessRuleSettings {
                class: vec![Class::CaAdministration],
                source: texts("10.0.0.0/8"),
                ..allow("a")
            },
            "class",
            "only to named agents",
        ),
        (
            AccessRuleSettings {
                observe: true,
                ..allow("a")
            },
            "observe",
            "refuses no client",
        ),
        (
            AccessRuleSettings {
                route: texts("builtin:renewal"),
                ..refuse("a")
            },
            "route",
            "there is no route \"builtin:renewal\"",
        ),
        (
            AccessRuleSettings {
                extension: vec![("pp_rolle".to_owned(), "x".to_owned())],
                ..refuse("a")
            },
            "extension",
            "there is no extension \"pp_rolle\"",
        ),
        (
            AccessRuleSettings {
                source: texts("10.0.0.1/8"),
                ..refuse("a")
            },
            "source",
            "10.0.0.0/8",
        ),
        (
            AccessRuleSettings {
                certname: texts("a,b"),
                ..refuse("a")
            },
            "certname",
            "','",
        ),
        (refuse(""), "name", "no name"),
    ] {
        let problems = build(&settings(vec![rule])).expect_err(words);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with(key) && problems[0].contains(words),
            "{problems:?}"
        );
    }
    let twice = build(&settings(vec![refuse("a"), refuse("a")])).expect_err("refused");
    assert_eq!(twice, ["name: two rules have the name \"a\""]);
}

#[test]
fn a_rule_opens_the_flushes_of_a_server_to_complete_certnames_and_nothing_else_does() {
    const FLUSH: &str = "DELETE /puppet-admin-api/v1/environment-cache";
    const JRUBIES: &str = "DELETE /puppet-admin-api/v1/jruby-pool";
    let opening = |certname: &[&str]| AccessRuleSettings {
        class: vec![Class::ServerAdministration],
        certname: certname.iter().map(|name| (*name).to_owned()).collect(),
        ..allow("flush")
    };
    for rules in [Vec::new(), vec![allow("all")]] {
        check(&settings(rules), FLUSH, &agent("ops"), "class-closed");
    }
    let rules = settings(vec![opening(&["ops"])]);
    for (request, client, expected) in [
        (FLUSH, agent("ops"), "passes"),
        (JRUBIES, agent("ops"), "passes"),
        (FLUSH, agent("web01"), "class-closed"),
        (FLUSH, anonymous(), "class-closed"),
        (FLUSH, refused(), "refused-certificate"),
        (
            "GET /puppet-admin-api/v1/environment-cache",
            agent("ops"),
            "never",
        ),
        (
            "DELETE /puppet-admin-api/v1/jruby-pool/thread-dump",
            agent("ops"),
            "never",
        ),
    ] {
        check(&rules, request, &client, expected);
    }
    for certname in [&[][..], &["op*"], &["ops", "*"]] {
        let rule = AccessRuleSettings {
            extension: vec![("pp_cli_auth".to_owned(), "true".to_owned())],
            ..opening(certname)
        };
        let problems = build(&settings(vec![rule])).expect_err("a pattern, or no name");
        assert!(problems[0].contains("complete certnames"), "{problems:?}");
    }
    let mut by_route = settings(Vec::new());
    by_route.routes = vec![RouteSettings {
        name: "flush".to_owned(),
        pool: "compilers".to_owned(),
        allow: vec!["ops".to_owned()],
        classes: vec![Class::ServerAdministration],
        ..RouteSettings::default()
    }];
    let problems = build(&by_route).expect_err("no route opens it");
    assert!(problems[0].contains("no route opens"), "{problems:?}");
}
