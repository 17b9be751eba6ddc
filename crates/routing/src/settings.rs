//! The settings of routes and access rules, from which a `RouteTable` is built.

use identity::HeaderRules;

use crate::Class;

/// How a route's path is compared: by whole segments, anchored at both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    /// These segments and all paths below them.
    Prefix(String),
    /// This path and no other.
    Exact(String),
    /// A regular expression, anchored at both ends.
    Regex(String),
}

/// Which clients may use a route, before `allow` and the endpoint's class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientRule {
    /// Verified agents only.
    #[default]
    Verified,
    /// Any client, if the class of the endpoint allows it.
    Any,
}

/// How a client stays on one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// A cookie of this name, which the proxy issues.
    Cookie(String),
    /// The hash of this header's value.
    Header(String),
    /// The hash of the client's address.
    Source,
}

/// One `[[routes]]` table. All conditions must match; the first route that matches applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSettings {
    /// Name in records, metrics and `explain`.
    pub name: String,
    /// Names of listeners. One of them must have accepted the connection. Empty: any.
    pub listener: Vec<String>,
    /// Host names, compared without port and case. `*.` and a domain matches every name directly below it. Empty: any.
    pub host: Vec<String>,
    /// Path condition. `None`: any path.
    pub path: Option<PathPattern>,
    /// Methods. Empty: any.
    pub method: Vec<String>,
    /// Header conditions: name and exact value. All must match.
    pub header: Vec<(String, String)>,
    /// Query parameters: name and value, decoded. All must match, and each must occur exactly once.
    pub query: Vec<(String, String)>,
    /// Cookies: name and value, byte for byte. All must match, and each must occur exactly once.
    pub cookie: Vec<(String, String)>,
    /// Networks in CIDR form, or addresses. One must contain the client's address. Empty: any address.
    pub source: Vec<String>,
    /// Server names (SNI) in the client's handshake, compared without case. Empty: any, or none.
    pub sni: Vec<String>,
    /// Certname patterns (`*` matches any run of characters) for a verified client. Empty: any client.
    pub certname: Vec<String>,
    /// Issuers (RFC 2253) of a verified client's certificate. Empty: any.
    pub issuer: Vec<String>,
    /// Extensions of a verified client's certificate by name, with patterns for their values. All must match.
    pub extension: Vec<(String, String)>,
    /// Share of clients in percent, determined by the hash of the certname, or of the address if there is no verified certname.
    /// `None`: all clients.
    pub share: Option<u32>,
    /// Pool that requests go to.
    pub pool: String,
    /// Which clients may use the route. Default: verified agents. Enrolment and status stay open to any client.
    pub client: ClientRule,
    /// Certname patterns of clients that may use the route. Other clients get 403. Empty: all clients that `client` allows.
    pub allow: Vec<String>,
    /// Guarded classes that this route opens. Own documents, services and CA administration are opened to the agents that
    /// `allow` names, renewal (if configured) to verified agents, and the other classes to the clients that `client` allows. No
    /// route opens `never`.
    pub classes: Vec<Class>,
    /// Whether the classes are ignored, for members that are not Puppet servers.
    pub unguarded: bool,
    /// Protocols that a request may switch to (`websocket`, `name/version`), compared without case. Empty: none.
    pub upgrade: Vec<String>,
    /// How a client stays on one member of the pool. Default: it does not. Endpoints of a Puppet server ignore this setting.
    pub persistence: Option<Persistence>,
    /// Name that replaces the names of the pool's members in responses. Default: names stay unchanged. Endpoints of a Puppet
    /// server ignore this setting.
    pub rewrite_member_names: Option<String>,
    /// Headers of clients that are removed in addition to identity headers, and those that are kept. Only an unguarded
    /// route may keep any.
    pub headers: HeaderRules,
    /// Maximum size of a request body in bytes. `None`: the default of the class.
    pub body_bytes_max: Option<u64>,
}

/// What a rule of `[[access]]` does with requests that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleAction {
    /// Skips later rules, and opens the classes that the rule names.
    Allow,
    /// Answers 403.
    #[default]
    Refuse,
}

/// One `[[access]]` table. All conditions must match; the first rule that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRuleSettings {
    /// Name in records, metrics, refusals and `explain`.
    pub name: String,
    /// What the rule does with requests that match.
    pub action: RuleAction,
    /// Classes of endpoints. Empty: any.
    pub class: Vec<Class>,
    /// Names of routes, including built-in ones. Empty: any.
    pub route: Vec<String>,
    /// Networks. One of them must contain the client's address. Empty: any address.
    pub source: Vec<String>,
    /// Certname patterns of a verified client. Empty: any client.
    pub certname: Vec<String>,
    /// Issuers (RFC 2253) of a verified client's certificate. Empty: any.
    pub issuer: Vec<String>,
    /// Extensions of a verified client's certificate by name, with patterns for their values. All must match.
    pub extension: Vec<(String, String)>,
    /// Whether the rule only logs what it would refuse. Default false.
    pub observe: bool,
}

/// `[[routes]]`, `builtin_routes`, `[[access]]`, `access_observe`, `[identity.extensions]`, and the settings of `[ca]`
/// that open endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingSettings {
    /// Configured routes, in order.
    pub routes: Vec<RouteSettings>,
    /// Whether the built-in routes of a Puppet estate follow. Default true.
    pub builtin_routes: bool,
    /// Access rules, in order.
    pub access: Vec<AccessRuleSettings>,
    /// Whether every rule only logs what it would refuse. Default false.
    pub access_observe: bool,
    /// Names of extensions in addition to Puppet's, and their OIDs.
    pub extension_names: Vec<(String, String)>,
    /// Whether the proxy itself answers requests for the CA certificate and the CRL. They are then open in every
    /// layout. Default false.
    pub edge_answers: bool,
    /// Whether the URL layout of Puppet 0.25 to 3 is also served. Default false.
    pub legacy_routes: bool,
    /// Whether agents may renew their certificates through the proxy. Default false: a CA that ignores the proxy's
    /// headers would renew the proxy's own certificate.
    pub renewal: bool,
}

impl Default for RoutingSettings {
    fn default() -> Self {
        Self {
            routes: Vec::new(),
            builtin_routes: true,
            access: Vec::new(),
            access_observe: false,
            extension_names: Vec::new(),
            edge_answers: false,
            legacy_routes: false,
            renewal: false,
        }
    }
}
