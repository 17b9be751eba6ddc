//! One route: its conditions and what it allows.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use balancing::{key_hash, share_hash, source_hash};
use http::Method;
use http::header::{HeaderName, HeaderValue};
use http1::Fields;
use identity::{Agent, CertnamePattern, ClientIdentity, HeaderRules};
use regex::Regex;

use crate::certificate_conditions::{ExtensionCondition, extensions_hold, issuer_holds, patterns};
use crate::endpoint::legacy::Equivalent;
use crate::parameters::{cookie_is, parameter_is};
use crate::problem::{RouteProblem, or_report, valid};
use crate::request::RoutingRequest;
use crate::settings::{ClientRule, PathPattern, Persistence, RouteSettings};
use crate::{CanonicalPath, Class, Network, check_protocol, host_name};

/// A route of the table, configured or built in.
#[derive(Debug)]
pub struct RouteEntry {
    /// Name in records, metrics and `explain`. Names of built-in routes begin with `builtin:`.
    pub name: Arc<str>,
    /// Index of its pool among the names with which the table was built.
    pub pool: usize,
    /// Whether it is one of the built-in routes.
    pub builtin: bool,
    /// Whether the classes are ignored, because its members are not Puppet servers.
    pub unguarded: bool,
    pub(crate) client: ClientRule,
    pub(crate) allow: Vec<CertnamePattern>,
    pub(crate) body_bytes_max: Option<u64>,
    /// Protocols, in lower case.
    pub(crate) upgrade: Vec<String>,
    pub(crate) persistence: Option<RoutePersistence>,
    pub(crate) rewrite_member_names: Option<String>,
    pub(crate) headers: HeaderRules,
    classes: u16,
    listener: Vec<String>,
    host: Vec<String>,
    path: Option<PathMatch>,
    method: Vec<Method>,
    header: Vec<(HeaderName, HeaderValue)>,
    query: Vec<(String, String)>,
    cookie: Vec<(String, String)>,
    source: Vec<Network>,
    sni: Vec<String>,
    certname: Vec<CertnamePattern>,
    pub(crate) issuer: Vec<String>,
    pub(crate) extension: Vec<ExtensionCondition>,
    share: Option<u32>,
}

/// The property of a request by which its client stays on one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutePersistence {
    /// The cookie with this name.
    Cookie(String),
    /// The value of this header.
    Header(HeaderName),
    /// The client's address.
    Source,
}

#[derive(Debug)]
enum PathMatch {
    /// A path without a slash at the end. The root is empty.
    Prefix(String),
    Exact(String),
    Regex(Regex),
}

/// A condition of a route that did not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteCondition {
    /// `listener`
    Listener,
    /// `host`
    Host,
    /// `path`
    Path,
    /// `method`
    Method,
    /// `header`
    Header,
    /// `query`
    Query,
    /// `cookie`
    Cookie,
    /// `source`
    Source,
    /// `sni`
    Sni,
    /// `certname`
    Certname,
    /// `issuer`
    Issuer,
    /// `extension`
    Extension,
    /// `share`
    Share,
}

impl fmt::Display for RouteCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listener => "listener",
            Self::Host => "host",
            Self::Path => "path",
            Self::Method => "method",
            Self::Header => "header",
            Self::Query => "query",
            Self::Cookie => "cookie",
            Self::Source => "source",
            Self::Sni => "sni",
            Self::Certname => "certname",
            Self::Issuer => "issuer",
            Self::Extension => "extension",
            Self::Share => "share",
        })
    }
}

impl RouteEntry {
    pub(crate) fn builtin(class: Class, pool: usize) -> Self {
        Self {
            name: format!("{BUILTIN}{class}").into(),
            pool,
            builtin: true,
            unguarded: false,
            client: ClientRule::Verified,
            allow: Vec::new(),
            body_bytes_max: None,
            upgrade: Vec::new(),
            persistence: None,
            rewrite_member_names: None,
            headers: HeaderRules::default(),
            // The route exists only if renewal is configured.
            classes: match class {
                Class::Renewal => class.bit(),
                _ => 0,
            },
            listener: Vec::new(),
            host: Vec::new(),
            path: None,
            method: Vec::new(),
            header: Vec::new(),
            query: Vec::new(),
            cookie: Vec::new(),
            source: Vec::new(),
            sni: Vec::new(),
            certname: Vec::new(),
            issuer: Vec::new(),
            extension: Vec::new(),
            share: None,
        }
    }

    /// Builds a configured route. Adds every problem to `problems`.
    pub(crate) fn configured(
        index: usize,
        settings: &RouteSettings,
        extension_names: &[(String, String)],
        pools: &[Arc<str>],
        problems: &mut Vec<RouteProblem>,
    ) -> Option<Self> {
        let before = problems.len();
        let mut report = |key, message: String| {
            problems.push(RouteProblem::of_route(index, key, message));
        };
        let pool = pools.iter().position(|pool| **pool == *settings.pool);
        if pool.is_none() {
            report("pool", format!("there is no pool {:?}", settings.pool));
        }
        check_classes(settings, &mut report);
        check_conditions(settings, &mut report);
        let path = settings
            .path
            .as_ref()
            .and_then(|path| or_report(PathMatch::compile(path), "path", &mut report));
        let method = settings.method.iter().map(|text| {
            Method::from_bytes(text.as_bytes()).map_err(|_| format!("{text:?} is not a method"))
        });
        let method = valid(method, "method", &mut report);
        let header = settings.header.iter();
        let header = header.map(|(name, value)| header_condition(name, value));
        let header = valid(header, "header", &mut report);
        let source = Network::all(&settings.source, &mut report);
        let certname = patterns(&settings.certname, "certname", &mut report);
        let allow = patterns(&settings.allow, "allow", &mut report);
        let persistence = settings
            .persistence
            .as_ref()
            .and_then(|setting| or_report(compiled(setting), "persistence", &mut report));
        let extension = ExtensionCondition::all(&settings.extension, extension_names, &mut report);
        if problems.len() > before {
            return None;
        }
        Some(Self {
            name: settings.name.as_str().into(),
            pool: pool?,
            builtin: false,
            unguarded: settings.unguarded,
            client: settings.client,
            allow,
            body_bytes_max: settings.body_bytes_max,
            upgrade: settings
                .upgrade
                .iter()
                .map(|protocol| protocol.to_ascii_lowercase())
                .collect(),
            persistence,
            rewrite_member_names: settings.rewrite_member_names.clone(),
            headers: settings.headers.clone(),
            classes: settings
                .classes
                .iter()
                .fold(0, |bits, class| bits | class.bit()),
            listener: settings.listener.clone(),
            host: settings.host.clone(),
            path,
            method,
            header,
            query: settings.query.clone(),
            cookie: settings.cookie.clone(),
            source,
            sni: settings.sni.clone(),
            certname,
            issuer: settings.issuer.clone(),
            extension,
            share: settings.share,
        })
    }

    /// Whether the route opens `class` by name.
    pub fn opens(&self, class: Class) -> bool {
        self.classes & class.bit() != 0
    }

    /// Whether the path condition matches. The other conditions require a request.
    pub fn takes(&self, path: &str) -> bool {
        self.path_holds(path)
    }

    /// The same as `failed`, for a legacy path. The conditions of a guarded route apply to the modern equivalent. Otherwise a
    /// legacy path could bypass a route that restricts access to the endpoint: the client could choose the route by the
    /// environment in the path.
    pub(crate) fn failed_as(
        &self,
        question: &RoutingRequest<'_>,
        equivalent: &Equivalent,
    ) -> Option<RouteCondition> {
        if self.unguarded {
            return self.failed(question);
        }
        let Ok(path) = CanonicalPath::check(&equivalent.path) else {
            return Some(RouteCondition::Path);
        };
        self.failed(&RoutingRequest {
            path,
            query: equivalent.query.as_deref(),
            ..*question
        })
    }

    /// The first condition that does not match. An unknown fact about the request matches no condition.
    pub(crate) fn failed(&self, question: &RoutingRequest<'_>) -> Option<RouteCondition> {
        if !self.path_holds(question.path.as_str()) {
            Some(RouteCondition::Path)
        } else if !self.listener_holds(question.listener) {
            Some(RouteCondition::Listener)
        } else if !self.host_holds(question.host) {
            Some(RouteCondition::Host)
        } else if !(self.method.is_empty() || self.method.contains(question.method)) {
            Some(RouteCondition::Method)
        } else if !self.source_holds(question.source) {
            Some(RouteCondition::Source)
        } else if !self.sni_holds(question.sni) {
            Some(RouteCondition::Sni)
        } else if !self.header_holds(question.fields) {
            Some(RouteCondition::Header)
        } else if !self.query_holds(question.query) {
            Some(RouteCondition::Query)
        } else if !self.cookie_holds(question.fields) {
            Some(RouteCondition::Cookie)
        } else if !self.certname_holds(question.identity) {
            Some(RouteCondition::Certname)
        } else if !issuer_holds(&self.issuer, question.identity.agent()) {
            Some(RouteCondition::Issuer)
        } else if !extensions_hold(&self.extension, question.identity.agent(), false) {
            Some(RouteCondition::Extension)
        } else if !self.share_holds(question) {
            Some(RouteCondition::Share)
        } else {
            None
        }
    }

    /// Whether the client is in the route's share. The hash of a client does not change, so a larger share adds clients and
    /// removes none.
    fn share_holds(&self, question: &RoutingRequest<'_>) -> bool {
        let Some(percent) = self.share else {
            return true;
        };
        let by_name = |agent: &Agent| share_hash(key_hash(agent.certname().as_str().as_bytes()));
        let hash = match (question.identity.agent(), question.source) {
            (Some(agent), _) => Some(by_name(agent)),
            (None, source) => source.map(|client| share_hash(source_hash(client))),
        };
        hash.is_some_and(|hash| is_within(hash, percent))
    }

    /// The path in its condition, if the condition is a prefix or an exact path.
    pub(crate) fn literal_path(&self) -> Option<&str> {
        match self.path.as_ref()? {
            PathMatch::Prefix(path) | PathMatch::Exact(path) => Some(path),
            PathMatch::Regex(_) => None,
        }
    }

    fn path_holds(&self, path: &str) -> bool {
        self.path
            .as_ref()
            .is_none_or(|pattern| pattern.matches(path))
    }

    fn host_holds(&self, host: Option<&str>) -> bool {
        let named = |host| {
            let name = host_name(host);
            self.host.iter().any(|known| is_of(name, known))
        };
        self.host.is_empty() || host.is_some_and(named)
    }

    fn listener_holds(&self, listener: Option<&str>) -> bool {
        let named = |listener: &str| self.listener.iter().any(|known| known == listener);
        self.listener.is_empty() || listener.is_some_and(named)
    }

    fn header_holds(&self, fields: &Fields) -> bool {
        self.header.iter().all(|(name, value)| {
            fields
                .all(name.as_str())
                .any(|line| line == value.as_bytes())
        })
    }

    fn query_holds(&self, query: Option<&str>) -> bool {
        self.query
            .iter()
            .all(|(name, value)| query.is_some_and(|query| parameter_is(query, name, value)))
    }

    fn cookie_holds(&self, fields: &Fields) -> bool {
        self.cookie
            .iter()
            .all(|(name, value)| cookie_is(fields, name, value))
    }

    fn source_holds(&self, client: Option<IpAddr>) -> bool {
        let known = |client| self.source.iter().any(|network| network.contains(client));
        self.source.is_empty() || client.is_some_and(known)
    }

    fn sni_holds(&self, asked: Option<&str>) -> bool {
        let known = |asked: &str| self.sni.iter().any(|name| name.eq_ignore_ascii_case(asked));
        self.sni.is_empty() || asked.is_some_and(known)
    }

    /// Whether the condition on the certname matches. Only a verified name counts.
    fn certname_holds(&self, identity: &ClientIdentity) -> bool {
        let named = |name: &str| self.certname.iter().any(|pattern| pattern.matches(name));
        self.certname.is_empty()
            || identity
                .agent()
                .is_some_and(|agent| named(agent.certname().as_str()))
    }
}

/// Whether a host name equals `known`, or is directly below the domain in `known` after `*.`.
fn is_of(name: &str, known: &str) -> bool {
    let Some(domain) = known.strip_prefix("*.") else {
        return known.eq_ignore_ascii_case(name);
    };
    name.split_once('.')
        .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(domain))
}

impl PathMatch {
    fn compile(pattern: &PathPattern) -> Result<Self, String> {
        match pattern {
            PathPattern::Prefix(text) | PathPattern::Exact(text) if !text.starts_with('/') => {
                Err(format!("the path {text:?} does not begin with a slash"))
            }
            PathPattern::Prefix(text) => Ok(Self::Prefix(
                text.strip_suffix('/').unwrap_or(text).to_owned(),
            )),
            PathPattern::Exact(text) => Ok(Self::Exact(text.clone())),
            PathPattern::Regex(text) => anchored(text).map(Self::Regex),
        }
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Prefix(prefix) => {
                let rest = path.strip_prefix(prefix.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Self::Exact(exact) => path == exact,
            Self::Regex(regex) => regex.is_match(path),
        }
    }
}

/// Adds anchors to a regular expression. It is first compiled without them, because the parentheses of `a)|(?:b` would undo the
/// anchors around it.
fn anchored(text: &str) -> Result<Regex, String> {
    let compiled = Regex::new(text).and_then(|_| Regex::new(&format!(r"\A(?:{text})\z")));
    compiled.map_err(|error| format!("the regular expression {text:?} cannot be used: {error}"))
}

fn compiled(persistence: &Persistence) -> Result<RoutePersistence, String> {
    Ok(match persistence {
        Persistence::Source => RoutePersistence::Source,
        Persistence::Cookie(name) if name.is_empty() => return Err("a name is empty".to_owned()),
        Persistence::Cookie(name) => RoutePersistence::Cookie(name.clone()),
        Persistence::Header(name) => RoutePersistence::Header(header_condition(name, "")?.0),
    })
}

fn check_classes(settings: &RouteSettings, report: &mut impl FnMut(&'static str, String)) {
    for class in &settings.classes {
        match class {
            Class::Never => report(
                "classes",
                "the class \"never\" cannot be opened (unguarded = true is for members that are not Puppet servers)"
                    .to_owned(),
            ),
            Class::ServerAdministration => report(
                "classes",
                "no route opens the class \"server-administration\": use a rule of [[access]]".to_owned(),
            ),
            // Only named agents may get these classes. Otherwise any certificate of this CA would suffice, such as that of a
            // compromised web server.
            Class::CaAdministration | Class::Services | Class::OwnDocuments
                if settings.allow.is_empty() && !settings.unguarded =>
            {
                report("classes", format!("the class \"{class}\" can be opened only to named agents: name them in allow"));
            }
            _ => {}
        }
    }
    if !settings.headers.keep.is_empty() && !settings.unguarded {
        report("keep_headers", KEEP_IS_UNGUARDED.to_owned());
    }
}

/// Checks the conditions that are used exactly as written.
fn check_conditions(settings: &RouteSettings, report: &mut impl FnMut(&'static str, String)) {
    for host in &settings.host {
        let name = host.strip_prefix("*.").unwrap_or(host);
        if name.is_empty() || name.contains('*') || host_name(name) != name {
            report(
                "host",
                format!("{host:?} is neither a host name without a port nor `*.` and a domain"),
            );
        }
    }
    for (key, pairs) in [("query", &settings.query), ("cookie", &settings.cookie)] {
        if pairs.iter().any(|(name, _)| name.is_empty()) {
            report(key, "a name is empty".to_owned());
        }
    }
    for name in &settings.sni {
        if !is_server_name(name) {
            report(
                "sni",
                format!("{name:?} is not a server name that a client can send in a handshake"),
            );
        }
    }
    for protocol in &settings.upgrade {
        if let Err(message) = check_protocol(protocol) {
            report("upgrade", message);
        }
    }
    if settings
        .share
        .is_some_and(|share| !(1..=100).contains(&share))
    {
        report("share", "a share is 1% to 100%".to_owned());
    }
}

fn header_condition(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    if identity::is_removed(name.as_bytes(), &identity::OwnNames::default()) {
        return Err(format!(
            "the proxy removes the header {name:?} from every request, so a condition on it never matches"
        ));
    }
    let parsed_name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("{name:?} is not a header name"))?;
    let parsed_value =
        HeaderValue::from_str(value).map_err(|_| format!("{value:?} is not a header value"))?;
    Ok((parsed_name, parsed_value))
}

/// Whether a client can send this server name. Clients send names without a trailing dot, and never addresses (RFC 6066, 3).
fn is_server_name(name: &str) -> bool {
    !name.is_empty()
        && !name.ends_with('.')
        && name.parse::<IpAddr>().is_err()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// Whether a hash that is uniform over `u64` is within the lowest `percent` percent.
fn is_within(hash: u64, percent: u32) -> bool {
    u128::from(hash) * 100 < u128::from(percent) << 64
}

/// Why a guarded route cannot keep headers.
const KEEP_IS_UNGUARDED: &str = "servers behind this route trust identity headers (unguarded = true is for members that are not Puppet servers)";

/// The beginning of the names of built-in routes.
pub(crate) const BUILTIN: &str = "builtin:";
