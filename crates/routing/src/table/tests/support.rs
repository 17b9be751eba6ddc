//! Route tables for tests, and requests to them.

use super::super::*;
use crate::CanonicalPath;
use crate::Class;
use crate::Layouts;
use crate::settings::PathPattern;
use crate::settings::RouteSettings;
use http::HeaderMap;
use http::Method;
use http::header::HeaderName;
use http::header::HeaderValue;
use http1::Fields;
use identity::Agent;
use identity::ChainVerified;
use identity::ClientIdentity;
use identity::Reason;
use identity::Refusal;
use identity::SubjectRule;
use std::sync::Arc;

pub(super) const POOLS: &[&str] = &["compilers", "ca", "filebucket", "forge"];

/// A request to the table. The client is "anonymous", "refused", or a certname.
pub(super) struct TestRequest<'a> {
    pub(super) table: &'a RouteTable,
    pub(super) listener: Option<&'a str>,
    pub(super) host: Option<&'a str>,
    pub(super) header: Option<(&'a str, &'a str)>,
    pub(super) query: Option<&'a str>,
    pub(super) source: Option<&'a str>,
    pub(super) sni: Option<&'a str>,
    pub(super) forward: bool,
}

impl<'a> TestRequest<'a> {
    pub(super) fn of(table: &'a RouteTable) -> Self {
        Self {
            table,
            listener: None,
            host: Some("puppet:8140"),
            header: None,
            query: None,
            source: None,
            sni: None,
            forward: false,
        }
    }

    /// The outcome of `GET /path` by `who`: "POOL via ROUTE", "status", or "CODE reason".
    pub(super) fn outcome(&self, request: &str, who: &str) -> String {
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
                        // A client must not learn how to open the proxy.
                        && !["[[", "classes =", "allow ="].iter().any(|key| refusal.text.contains(key)),
                    "{}",
                    refusal.text
                );
                assert_eq!(refusal.allow.is_some(), refusal.status == 405);
                format!("{} {}", refusal.status, refusal.reason.as_str())
            }
        })
    }

    pub(super) fn decide<T>(
        &self,
        request: &str,
        who: &str,
        look: impl FnOnce(RouteDecision<'_>) -> T,
    ) -> T {
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
            listener: self.listener,
            host: self.host,
            fields: &Fields::from(&headers),
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

pub(super) fn identity(who: &str) -> ClientIdentity {
    match who {
        "anonymous" => ClientIdentity::Anonymous,
        "refused" => ClientIdentity::Refused(Refusal {
            reason: Reason::Revoked,
            certificate: "\"CN=gone\" (serial 0x05)".to_owned(),
            help: "Run \"puppet ssl clean\" on the agent.".to_owned(),
            claimed: None,
            is_issued: true,
        }),
        certname => ClientIdentity::Verified(Arc::new(agent(certname))),
    }
}

/// An agent with this name, read from an unsigned certificate.
pub(super) fn agent(certname: &str) -> Agent {
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

pub(super) fn pools(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

pub(super) fn table(routes: Vec<RouteSettings>) -> RouteTable {
    table_of(RoutingSettings {
        routes,
        ..RoutingSettings::default()
    })
}

pub(super) fn renewing(routes: Vec<RouteSettings>) -> RouteTable {
    table_of(RoutingSettings {
        routes,
        renewal: true,
        ..RoutingSettings::default()
    })
}

pub(super) fn table_of(settings: RoutingSettings) -> RouteTable {
    RouteTable::new(&settings, &pools(POOLS)).expect("a table")
}

pub(super) fn route(name: &str, prefix: &str) -> RouteSettings {
    RouteSettings {
        name: name.to_owned(),
        path: Some(PathPattern::Prefix(prefix.to_owned())),
        pool: "forge".to_owned(),
        ..RouteSettings::default()
    }
}

pub(super) fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Checks a table with lines of the form `request | outcome for each of the four clients`.
pub(super) fn check_rows(table: &str, who: [&str; 4], outcome: impl Fn(&str, &str) -> String) {
    for line in table.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{line}");
        for (who, expected) in who.into_iter().zip(&cells[1..]) {
            assert_eq!(outcome(cells[0], who), *expected, "{} by {who}", cells[0]);
        }
    }
}

pub(super) fn class_of(request: &str) -> Class {
    let (method, path) = request.split_once(' ').expect("method and path");
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    classify(
        &method,
        &CanonicalPath::check(path).expect("a path"),
        Layouts::Modern,
    )
    .class
}
