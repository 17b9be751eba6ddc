//! The decision of the route table: forward a request, answer it, or refuse it.

use std::sync::Arc;

use http::Method;
use identity::{ClientIdentity, HeaderRules};

use crate::access_step::AccessStep;
use crate::{AccessRule, Class, Document, Endpoint, RetryClass, RouteEntry, RoutePersistence};

/// Body limit of an enrolment request. A certificate request has 1 to 4 kB, and anyone may send one.
pub const ENROLMENT_BODY_BYTES_MAX: u64 = 16 * 1024;

/// The decision on a request.
#[derive(Clone, Debug)]
pub enum RouteDecision<'a> {
    /// The proxy forwards the request to a pool.
    Forward(ForwardPlan<'a>),
    /// The proxy answers with the status of the estate. The rule, if there is one, would refuse the request but only observes.
    Status(Option<&'a AccessRule>),
    /// The proxy refuses the request.
    Refuse(RouteRefusal),
}

/// How a request is forwarded.
#[derive(Clone, Copy, Debug)]
pub struct ForwardPlan<'a> {
    /// The route that serves it.
    pub route: &'a RouteEntry,
    /// Index of the pool.
    pub pool: usize,
    /// The endpoint: class, certname, whether the request may change the CA.
    pub endpoint: Endpoint<'a>,
    /// Whether the class allows the proxy to send `X-Client-Cert`. The pool must allow it as well. At the CA's endpoints only a
    /// renewal carries the header.
    pub with_certificate_class: bool,
    /// Whether it may be sent a second time.
    pub retry: RetryClass,
    /// The key by which the member of a filebucket request is picked.
    pub bucket_key: Option<&'a str>,
    /// Maximum body in bytes. `None`: no limit.
    pub body_bytes_max: Option<u64>,
    /// The first rule that would refuse the request but only observes.
    pub observed: Option<&'a AccessRule>,
}

/// The reason for a refusal, and the response to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRefusal {
    /// 400, 403, 404 or 405.
    pub status: u16,
    /// The reason in records and metrics.
    pub reason: RefusalReason,
    /// Message for the client: sentences in printable ASCII.
    pub text: String,
    /// The value of `Allow` in a 405 response.
    pub allow: Option<&'static str>,
    /// Class of the endpoint.
    pub class: Class,
    /// The route, if one matched.
    pub route: Option<Arc<str>>,
    /// Index of the rule that refuses the request, if a rule refuses it.
    pub rule: Option<usize>,
    /// Whether an agent of Puppet 0.25 to 3 sent the request, and it would have a route with `legacy_routes`.
    pub needs_legacy_routes: bool,
}

/// The reason why the route table refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// No route serves the path.
    NoRoute,
    /// The endpoint does not support the method.
    Method,
    /// The path and the query of a legacy request name different environments.
    Environment,
    /// The client may not use the endpoint.
    Access(AccessStep),
}

impl RefusalReason {
    /// The label in records and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoRoute => "no-route",
            Self::Method => "method",
            Self::Environment => "environment-mismatch",
            Self::Access(step) => step.as_str(),
        }
    }
}

impl<'a> ForwardPlan<'a> {
    /// The certname of the certificate request in the body. `None` if the endpoint's class does not apply.
    pub fn certificate_request(&self) -> Option<&'a str> {
        let applies = !self.route.unguarded;
        self.endpoint.certificate_request.filter(|_| applies)
    }

    /// Whether the request is for an endpoint of a Puppet server, and the endpoint's class applies.
    pub fn is_puppets(&self) -> bool {
        let class = self.endpoint.class;
        let unknown = matches!(class, Class::Unknown | Class::Status | Class::Never);
        !unknown && !self.route.unguarded
    }

    /// Whether the request is a renewal, and the endpoint's class applies. The client's certificate must then be sent, whatever
    /// the pool's settings, and the response must be the successor of that certificate.
    pub fn is_renewal(&self) -> bool {
        self.endpoint.class == Class::Renewal && !self.route.unguarded
    }

    /// Whether a client without a certificate may send the request to the CA, and the endpoint's class applies.
    pub fn is_enrolment(&self) -> bool {
        self.endpoint.class == Class::Enrolment && !self.route.unguarded
    }

    /// The CA document that the request reads, if the endpoint's class applies.
    pub fn document(&self) -> Option<Document> {
        let applies = !self.route.unguarded;
        self.endpoint.document.filter(|_| applies)
    }

    /// Protocols that the request may switch to, in lower case. There are none at the endpoints of a Puppet server: such a
    /// server has no upgrades, and the path rule and the classes cannot check requests in a tunnel.
    pub fn upgrade(&self) -> &'a [String] {
        if self.route.unguarded || self.endpoint.class == Class::Unknown {
            &self.route.upgrade
        } else {
            &[]
        }
    }

    /// How the client stays on one member. `None` at the endpoints of a Puppet server, where the pool's algorithm decides.
    pub fn persistence(&self) -> Option<&'a RoutePersistence> {
        let applies = self.route.unguarded || self.endpoint.class == Class::Unknown;
        self.route.persistence.as_ref().filter(|_| applies)
    }

    /// The name that replaces the names of the pool's members in responses. `None` at the endpoints of a Puppet server.
    pub fn rewrite_member_names(&self) -> Option<&'a str> {
        let applies = self.route.unguarded || self.endpoint.class == Class::Unknown;
        self.route
            .rewrite_member_names
            .as_deref()
            .filter(|_| applies)
    }

    /// Which headers of clients the route removes, and which it keeps.
    pub fn headers(&self) -> &'a HeaderRules {
        &self.route.headers
    }

    pub(crate) fn new(
        route: &'a RouteEntry,
        endpoint: Endpoint<'a>,
        observed: Option<&'a AccessRule>,
    ) -> Self {
        Self {
            route,
            pool: route.pool,
            endpoint,
            with_certificate_class: !endpoint.class.is_ca()
                || endpoint.class == Class::Renewal && !route.unguarded,
            retry: endpoint.retry,
            bucket_key: endpoint.bucket_key,
            body_bytes_max: body_bytes_max(route, &endpoint),
            observed,
        }
    }
}

/// The limit on the body. For a certificate request, which is read completely before it is forwarded, the enrolment limit
/// applies in addition to the route's.
fn body_bytes_max(route: &RouteEntry, endpoint: &Endpoint<'_>) -> Option<u64> {
    let max = ENROLMENT_BODY_BYTES_MAX;
    if route.unguarded {
        return route.body_bytes_max;
    }
    match (endpoint.certificate_request, endpoint.class) {
        (Some(_), _) => Some(route.body_bytes_max.map_or(max, |own| own.min(max))),
        (None, Class::Enrolment | Class::Renewal) => Some(route.body_bytes_max.unwrap_or(max)),
        (None, _) => route.body_bytes_max,
    }
}

impl RouteRefusal {
    pub(crate) fn no_route(class: Class) -> Self {
        let text = match class {
            Class::Renewal => RENEWAL_TEXT,
            _ => "This proxy has no route for this path. Puppet agents do not use it.",
        };
        let reason = if class == Class::Renewal {
            RefusalReason::Access(AccessStep::NotConfigured)
        } else {
            RefusalReason::NoRoute
        };
        Self {
            status: 404,
            reason,
            text: text.to_owned(),
            allow: None,
            class,
            route: None,
            rule: None,
            needs_legacy_routes: false,
        }
    }

    pub(crate) fn two_environments(route: &RouteEntry, class: Class) -> Self {
        Self {
            status: 400,
            reason: RefusalReason::Environment,
            text: "The path and the query of this request name different environments.".to_owned(),
            allow: None,
            class,
            route: Some(Arc::clone(&route.name)),
            rule: None,
            needs_legacy_routes: false,
        }
    }

    pub(crate) fn wrong_method(
        route: &RouteEntry,
        endpoint: &Endpoint<'_>,
        method: &Method,
    ) -> Self {
        let allow = endpoint.methods.allow().unwrap_or_default();
        Self {
            status: 405,
            reason: RefusalReason::Method,
            text: format!("This endpoint does not support the method {method}, only {allow}."),
            allow: Some(allow),
            class: endpoint.class,
            route: Some(Arc::clone(&route.name)),
            rule: None,
            needs_legacy_routes: false,
        }
    }

    pub(crate) fn denied(
        step: AccessStep,
        route: &RouteEntry,
        rule: Option<&AccessRule>,
        endpoint: &Endpoint<'_>,
        identity: &ClientIdentity,
    ) -> Self {
        Self {
            status: match step {
                AccessStep::NotConfigured | AccessStep::NoEndpoint => 404,
                _ => 403,
            },
            reason: RefusalReason::Access(step),
            text: denial(step, route, rule, endpoint, identity),
            allow: None,
            class: endpoint.class,
            route: Some(Arc::clone(&route.name)),
            rule: rule.map(|rule| rule.index),
            needs_legacy_routes: false,
        }
    }
}

/// The message for the client. It names the remedy for the agent's administrator, and never describes how to relax the rules of
/// the proxy. Names in it are escaped to printable ASCII.
fn denial(
    step: AccessStep,
    route: &RouteEntry,
    rule: Option<&AccessRule>,
    endpoint: &Endpoint<'_>,
    identity: &ClientIdentity,
) -> String {
    let client = identity.agent().map_or_else(
        || "A client without a certificate".to_owned(),
        |agent| format!("Agent {}", agent.certname().as_str().escape_default()),
    );
    let (class, route) = (endpoint.class, route.name.escape_default());
    if let Some(rule) = rule {
        let rule = rule.name.escape_default();
        return format!(
            "{client} is refused by the access rule \"{rule}\" of this proxy (class \"{class}\", route \"{route}\"). \
             If the agent needs this endpoint, contact the operator of this proxy and quote this message."
        );
    }
    match (step, identity) {
        (AccessStep::RefusedCertificate, ClientIdentity::Refused(refusal)) => refusal.text(),
        (AccessStep::NotConfigured, _) => RENEWAL_TEXT.to_owned(),
        (AccessStep::NoEndpoint, _) => {
            "There is nothing below this path. Certificates are renewed with POST /puppet-ca/v1/certificate_renewal."
                .to_owned()
        }
        (AccessStep::NoCertificate, _) => {
            "This request requires a certificate from this site's Puppet CA, and the client sent none. \
             Run \"puppet ssl bootstrap\" on the agent, and sign its certificate request on the CA server."
                .to_owned()
        }
        (AccessStep::NotOwn, _) => {
            let owner = endpoint.certname.unwrap_or_default().escape_default();
            format!(
                "{client} may not use the catalog, node, facts or report of \"{owner}\", only its own. The name in the \
                 path must be the certname in lower case. Check certname in the agent's puppet.conf."
            )
        }
        (AccessStep::NotAllowed, _) => {
            format!(
                "{client} is not allowed to use the route \"{route}\" of this proxy. \
                 If the agent needs it, contact the operator of this proxy."
            )
        }
        (AccessStep::ClassClosed, _) => {
            format!(
                "{client} may not use this endpoint (class \"{class}\") through this proxy. \
                 Agents of Puppet 4 and later do not need it for a run. If another program on this host needs it, \
                 send the request to the Puppet server itself, or contact the operator of this proxy."
            )
        }
        (AccessStep::Never, _) => "This proxy never forwards requests to this endpoint. Send the request to the server itself.".to_owned(),
        (other, _) => format!("{client} may not use this endpoint ({}).", other.as_str()),
    }
}

const RENEWAL_TEXT: &str =
    "Certificate renewal is not configured on this proxy. The agent keeps its certificate.";
