//! What a configuration says about routes; built into a `RouteTable`.

use identity::HeaderRules;

use crate::Class;

/// How a route's path is compared; whole segments, anchored at both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    /// These segments and anything below them.
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

/// What keeps a client on one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// A cookie of this name, which the proxy issues.
    Cookie(String),
    /// The hash of this header's value.
    Header(String),
    /// The hash of the client's address.
    Source,
}

/// One `[[routes]]` table. All conditions must hold; the first route that matches wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSettings {
    /// Name in records, metrics and `explain`.
    pub name: String,
    /// Names of listeners, of which one must have accepted the connection; empty: any.
    pub listener: Vec<String>,
    /// Host names, port ignored, compared without case; `*.` and a domain is every name directly below it; empty: any.
    pub host: Vec<String>,
    /// Path condition; none: any path.
    pub path: Option<PathPattern>,
    /// Methods; empty: any. No match means the next route.
    pub method: Vec<String>,
    /// Header conditions: name and exact value, all must hold.
    pub header: Vec<(String, String)>,
    /// Query parameters: name and value, decoded; all must hold, each given exactly once.
    pub query: Vec<(String, String)>,
    /// Cookies: name and value, byte for byte; all must hold, each given exactly once.
    pub cookie: Vec<(String, String)>,
    /// Networks (CIDR form, or one address) of which the client's address must be in one; empty: any address.
    pub source: Vec<String>,
    /// Server names (SNI) that the client asked for in its handshake, compared without case; empty: any, or none.
    pub sni: Vec<String>,
    /// Certname patterns (`*` matches any run of characters) of a verified client; empty: any client.
    pub certname: Vec<String>,
    /// Issuers of a verified client's certificate by RFC 2253; empty: any.
    pub issuer: Vec<String>,
    /// Extensions of a verified client's certificate by name, and patterns that their values must match; all must hold.
    pub extension: Vec<(String, String)>,
    /// Share of clients in percent, by the hash of the certname, or of the address where that is not verified; none: all.
    pub share: Option<u32>,
    /// Pool that requests go to.
    pub pool: String,
    /// Who may use the route. Default: verified agents. Enrolment and status stay open to anyone whatever this says.
    pub client: ClientRule,
    /// Certname patterns that may use the route; empty: all that `client` admits. Matched and not allowed is 403.
    pub allow: Vec<String>,
    /// Guarded classes that this route opens. Own documents, services and CA administration open to those whom
    /// `allow` names, renewal, where it is configured, to verified agents, the rest to whom `client` admits; `never`
    /// opens nowhere.
    pub classes: Vec<Class>,
    /// Classes are ignored: for members that are no Puppet servers.
    pub unguarded: bool,
    /// Protocols that a request may switch to (`websocket`, `name/version`), compared without case; empty: none.
    pub upgrade: Vec<String>,
    /// What keeps a client on one member of the pool; none: nothing. Endpoints of a Puppet server ignore it.
    pub persistence: Option<Persistence>,
    /// Name that replaces those of the pool's members in responses; none: they stay. Endpoints of a Puppet server
    /// ignore it.
    pub rewrite_member_names: Option<String>,
    /// Headers of clients that are removed in addition to identity headers, and those that are kept. Only an unguarded
    /// route may keep any.
    pub headers: HeaderRules,
    /// Largest request body in bytes; none: the class's default.
    pub body_bytes_max: Option<u64>,
}

/// What a rule of `[[access]]` does with requests that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleAction {
    /// Later rules are skipped. The guards of the classes that the rule names are lifted.
    Allow,
    /// 403.
    #[default]
    Refuse,
}

/// One `[[access]]` table. All conditions must hold; the first rule whose conditions hold decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRuleSettings {
    /// Name in records, metrics, refusals and `explain`.
    pub name: String,
    /// What the rule does with requests that match.
    pub action: RuleAction,
    /// Classes of endpoints; empty: any.
    pub class: Vec<Class>,
    /// Names of routes, built-in ones too; empty: any.
    pub route: Vec<String>,
    /// Networks of which the client's address must be in one; empty: any address.
    pub source: Vec<String>,
    /// Certname patterns of a verified client; empty: any client.
    pub certname: Vec<String>,
    /// Issuers of a verified client's certificate by RFC 2253; empty: any.
    pub issuer: Vec<String>,
    /// Extensions of a verified client's certificate by name, and patterns that their values must match; all must hold.
    pub extension: Vec<(String, String)>,
    /// Whether the rule only logs what it would refuse. Default false.
    pub observe: bool,
}

/// `[[routes]]`, `builtin_routes`, `[[access]]`, `access_observe`, `[identity.extensions]`, and what `[ca]` opens.
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
    /// Whether the proxy answers requests for the CA certificate and the CRL, so that they are open in every layout.
    /// Default false.
    pub edge_answers: bool,
    /// Whether the URL layout of Puppet 0.25 to 3 is served too. Default false.
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
