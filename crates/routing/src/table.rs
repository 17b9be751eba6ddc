//! The route table: which route serves a request, and whether the client may use it.
//!
//! The order is law: path rule (the caller's 400), endpoint class, first configured route that matches, else the
//! built-in one, else 404, refused identity 403, rules and access 403, method 405.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Method};
use identity::ClientIdentity;

use crate::access::Ruling;
use crate::endpoint::legacy;
use crate::explain::{AccessStep, RouteExplanation, RoutingStep};
use crate::path_index::PathIndex;
use crate::route::BUILTIN;
use crate::rule::check_names;
use crate::settings::{RouteSettings, RoutingSettings};
use crate::{
    AccessRule, CanonicalPath, Class, Document, Endpoint, Layout, Layouts, RetryClass, RouteEntry,
    RoutePersistence, access, classify, pool_names,
};

/// Body limit of an enrolment request: a certificate request has 1 to 4 kB, and anyone may send one.
pub const ENROLMENT_BODY_BYTES_MAX: u64 = 16 * 1024;

/// All routes of one configuration.
#[derive(Debug)]
pub struct RouteTable {
    configured: Vec<RouteEntry>,
    index: Option<PathIndex>,
    builtin: Vec<(Class, RouteEntry)>,
    layouts: Layouts,
    edge_answers: bool,
    rules: Vec<AccessRule>,
    /// Names of extensions beside Puppet's, with their OIDs.
    extension_names: Vec<(String, String)>,
}

/// What is asked of the table.
#[derive(Clone, Copy, Debug)]
pub struct RoutingRequest<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Its path, judged by the path rule.
    pub path: CanonicalPath<'a>,
    /// Its query, without the question mark.
    pub query: Option<&'a str>,
    /// Its host, with or without a port.
    pub host: Option<&'a str>,
    /// Its headers, scrubbed.
    pub headers: &'a HeaderMap,
    /// The client's address; unknown to `explain` unless it is told.
    pub source: Option<IpAddr>,
    /// The server name that the client asked for in its handshake.
    pub sni: Option<&'a str>,
    /// Who sent it.
    pub identity: &'a ClientIdentity,
    /// Whether the listener says `on_invalid = "forward"`.
    pub failed_is_forwarded: bool,
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum RouteDecision<'a> {
    /// It goes to a pool.
    Forward(ForwardPlan<'a>),
    /// The status of the estate is answered here, though a rule that observes would refuse it.
    Status(Option<&'a AccessRule>),
    /// It ends here.
    Refuse(RouteRefusal),
}

/// How a request is forwarded.
#[derive(Clone, Copy, Debug)]
pub struct ForwardPlan<'a> {
    /// The route that serves it.
    pub route: &'a RouteEntry,
    /// Index of the pool.
    pub pool: usize,
    /// The endpoint: class, certname, whether the CA may be changed.
    pub endpoint: Endpoint<'a>,
    /// Whether the class lets `X-Client-Cert` go along; the pool has its say too. At the CA's endpoints for a renewal
    /// alone.
    pub with_certificate_class: bool,
    /// Whether it may be sent a second time.
    pub retry: RetryClass,
    /// What picks the member of a filebucket request.
    pub bucket_key: Option<&'a str>,
    /// Largest body in bytes.
    pub body_bytes_max: Option<u64>,
    /// The first rule that would refuse the request and only observes.
    pub observed: Option<&'a AccessRule>,
}

/// Why a request ends here, and what its client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRefusal {
    /// 400, 403, 404 or 405.
    pub status: u16,
    /// Why, as records and metrics name it.
    pub reason: RefusalReason,
    /// One sentence or more of printable ASCII for the client.
    pub text: String,
    /// The value of `Allow` beside 405.
    pub allow: Option<&'static str>,
    /// Class of the endpoint.
    pub class: Class,
    /// The route, where one matched.
    pub route: Option<Arc<str>>,
    /// Index of the rule that refuses it, where one does.
    pub rule: Option<usize>,
    /// Whether it is a request of an agent of Puppet 0.25 to 3 that would have a route with `legacy_routes`.
    pub needs_legacy_routes: bool,
}

/// Why a request ends at the route table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// No route serves the path.
    NoRoute,
    /// The endpoint does not have the method.
    Method,
    /// The path and the query of a legacy request name two environments.
    Environment,
    /// The client may not use the endpoint.
    Access(AccessStep),
}

impl RefusalReason {
    /// The word in records and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoRoute => "no-route",
            Self::Method => "method",
            Self::Environment => "environment-mismatch",
            Self::Access(step) => step.as_str(),
        }
    }
}

/// Something in the settings that no table can be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct RouteProblem {
    /// Index of the route among the configured ones; none where another is concerned.
    pub route: Option<usize>,
    /// Index of the rule of access; none where another is concerned.
    pub rule: Option<usize>,
    /// The setting, as it is called in the table of the route or the rule; of the whole file where there is neither.
    pub key: &'static str,
    /// What is wrong with it.
    pub message: String,
}

impl RouteProblem {
    pub(crate) fn of_route(index: usize, key: &'static str, message: String) -> Self {
        Self {
            route: Some(index),
            rule: None,
            key,
            message,
        }
    }

    pub(crate) fn of_rule(index: usize, key: &'static str, message: String) -> Self {
        Self {
            route: None,
            rule: Some(index),
            key,
            message,
        }
    }
}

impl RouteTable {
    /// Builds the table; `pool_names` are the pools, in the order of the indices that plans name.
    ///
    /// # Errors
    /// Every problem at once.
    pub fn new(
        settings: &RoutingSettings,
        pool_names: &[Arc<str>],
    ) -> Result<Self, Vec<RouteProblem>> {
        let mut problems = Vec::new();
        let mut configured = Vec::new();
        for (index, route) in settings.routes.iter().enumerate() {
            check_name(index, &settings.routes, &mut problems);
            if !settings.renewal {
                check_renewal(index, route, &mut problems);
            }
            configured.extend(RouteEntry::configured(
                index,
                route,
                &settings.extension_names,
                pool_names,
                &mut problems,
            ));
        }
        let builtin = if settings.builtin_routes {
            builtin(pool_names, settings.renewal, &mut problems)
        } else {
            Vec::new()
        };
        check_names(&settings.extension_names, &mut problems);
        // Routes that could not be made would be missed by rules that name them.
        let routes = configured
            .iter()
            .chain(builtin.iter().map(|(_, route)| route));
        let rules = match problems.is_empty() {
            true => AccessRule::all(settings, routes, &mut problems),
            false => Vec::new(),
        };
        if problems.is_empty() {
            Ok(Self {
                index: PathIndex::new(&configured),
                configured,
                builtin,
                layouts: match settings.legacy_routes {
                    true => Layouts::ModernAndLegacy,
                    false => Layouts::Modern,
                },
                edge_answers: settings.edge_answers,
                rules,
                extension_names: settings.extension_names.clone(),
            })
        } else {
            Err(problems)
        }
    }

    /// Every route, in the order in which they are tried.
    pub fn routes(&self) -> impl Iterator<Item = &RouteEntry> {
        self.configured
            .iter()
            .chain(self.builtin.iter().map(|(_, route)| route))
    }

    /// Every rule of access, in the order in which they are tried.
    pub fn rules(&self) -> &[AccessRule] {
        &self.rules
    }

    /// Whether a rule or a route may look at the issuer or the extensions of a certificate.
    pub fn reads_certificates(&self) -> bool {
        let reads = |route: &RouteEntry| !(route.issuer.is_empty() && route.extension.is_empty());
        !self.rules.is_empty() || self.configured.iter().any(reads)
    }

    /// Names of extensions beside Puppet's, with their OIDs.
    pub fn extension_names(&self) -> &[(String, String)] {
        &self.extension_names
    }

    /// Which URL layouts are served.
    pub fn layouts(&self) -> Layouts {
        self.layouts
    }

    /// Decides about one request. Allocates only where it refuses, and for a legacy path.
    pub fn find<'a>(&'a self, question: &RoutingRequest<'a>) -> RouteDecision<'a> {
        self.find_traced(question, self.index.as_ref(), &mut |_| {})
    }

    /// The same decision with its steps.
    pub fn explain<'a>(&'a self, question: &RoutingRequest<'a>) -> RouteExplanation<'a> {
        let mut steps = Vec::new();
        // Without the index: every route that was not taken is a step.
        let decision = self.find_traced(question, None, &mut |step| steps.push(step));
        RouteExplanation { steps, decision }
    }

    fn find_traced<'a>(
        &'a self,
        question: &RoutingRequest<'a>,
        index: Option<&PathIndex>,
        trace: &mut impl FnMut(RoutingStep<'a>),
    ) -> RouteDecision<'a> {
        let mut endpoint = classify(question.method, &question.path, self.layouts);
        if self.edge_answers {
            endpoint = endpoint.with_documents(question.method);
        }
        trace(RoutingStep::Endpoint(endpoint));
        let Some(route) = self.route(question, &endpoint, index, trace) else {
            trace(RoutingStep::NoRoute);
            return RouteDecision::Refuse(RouteRefusal::no_route(endpoint.class));
        };
        if self.serves_legacy(&endpoint)
            && !route.unguarded
            && !legacy::environment_agrees(&question.path, question.query)
        {
            trace(RoutingStep::EnvironmentMismatch);
            return RouteDecision::Refuse(RouteRefusal::two_environments(route, endpoint.class));
        }
        let Ruling {
            step: access,
            rule,
            observed,
        } = access::check_access(&self.rules, route, &endpoint, question, trace);
        trace(RoutingStep::Access(access));
        if !access.is_granted() {
            let refusal = RouteRefusal::denied(access, route, rule, &endpoint, question.identity);
            let needs_legacy_routes = self.needs_legacy_routes(access, question);
            return RouteDecision::Refuse(RouteRefusal {
                needs_legacy_routes,
                ..refusal
            });
        }
        let known = route.unguarded || endpoint.methods.allows(question.method);
        trace(RoutingStep::Method { known });
        if !known {
            return RouteDecision::Refuse(RouteRefusal::wrong_method(
                route,
                &endpoint,
                question.method,
            ));
        }
        // Ours to answer on every route: a member could only speak for itself.
        if endpoint.class == Class::Status && !route.unguarded && !route.opens(Class::Status) {
            return RouteDecision::Status(observed);
        }
        RouteDecision::Forward(ForwardPlan::new(route, endpoint, observed))
    }

    /// Whether it is the endpoint of a legacy path, in a table that serves these.
    fn serves_legacy(&self, endpoint: &Endpoint<'_>) -> bool {
        endpoint.layout == Layout::Legacy && self.layouts == Layouts::ModernAndLegacy
    }

    /// Whether a request was refused only because legacy paths are not served. For the log, which tells the operator.
    fn needs_legacy_routes(&self, access: AccessStep, question: &RoutingRequest<'_>) -> bool {
        let guarded = [Class::CaAdministration, Class::Services];
        access == AccessStep::ClassClosed && self.layouts == Layouts::Modern && {
            let served = classify(question.method, &question.path, Layouts::ModernAndLegacy);
            served.layout == Layout::Legacy && !guarded.contains(&served.class)
        }
    }

    fn route<'a>(
        &'a self,
        question: &RoutingRequest<'a>,
        endpoint: &Endpoint<'a>,
        index: Option<&PathIndex>,
        trace: &mut impl FnMut(RoutingStep<'a>),
    ) -> Option<&'a RouteEntry> {
        let equivalent = match self.serves_legacy(endpoint) {
            true => legacy::equivalent(&question.path, question.query),
            false => None,
        };
        let mut holds = |route: &'a RouteEntry| {
            let failed = match &equivalent {
                Some(equivalent) => route.failed_as(question, equivalent),
                None => route.failed(question),
            };
            trace(RoutingStep::Tried { route, failed });
            failed.is_none()
        };
        // The conditions of some routes are about the modern path of a legacy request, which the index does not know.
        let index = index.filter(|_| equivalent.is_none());
        let found = match index {
            Some(index) => {
                let mut numbers = index.candidates(question.path.as_str());
                numbers
                    .find_map(|number| Some(&self.configured[number]).filter(|route| holds(route)))
            }
            None => self.configured.iter().find(|route| holds(route)),
        };
        if found.is_some() {
            return found;
        }
        let (_, route) = self
            .builtin
            .iter()
            .find(|(class, _)| *class == endpoint.class)?;
        trace(RoutingStep::Tried {
            route,
            failed: None,
        });
        Some(route)
    }
}

/// A name is told in records and metrics: present, one route's only, and not that of a built-in one.
fn check_name(index: usize, routes: &[RouteSettings], problems: &mut Vec<RouteProblem>) {
    let name = &routes[index].name;
    let message = if name.is_empty() {
        "the route has no name".to_owned()
    } else if name.starts_with(BUILTIN) {
        format!("{name:?} begins like the names of built-in routes")
    } else if routes[..index].iter().any(|earlier| earlier.name == *name) {
        format!("two routes have the name {name:?}")
    } else {
        return;
    };
    problems.push(RouteProblem::of_route(index, "name", message));
}

/// A route chooses where renewals go; that they go anywhere is said in one place, with all that has to hold then.
fn check_renewal(index: usize, route: &RouteSettings, problems: &mut Vec<RouteProblem>) {
    if route.classes.contains(&Class::Renewal) && !route.unguarded {
        let message = "the class \"renewal\" cannot be opened while [ca] renewal is off".to_owned();
        problems.push(RouteProblem::of_route(index, "classes", message));
    }
}

/// One route for each class that has one; renewal has none until it is configured.
fn builtin(
    pools: &[Arc<str>],
    renewal: bool,
    problems: &mut Vec<RouteProblem>,
) -> Vec<(Class, RouteEntry)> {
    let mut index = |name: &str| {
        let found = pools.iter().position(|pool| **pool == *name);
        if found.is_none() {
            let message = format!("the built-in routes need a pool {name:?}");
            problems.push(RouteProblem {
                route: None,
                rule: None,
                key: "builtin_routes",
                message,
            });
        }
        found.unwrap_or(0)
    };
    let (ca, compilers) = (index(pool_names::CA), index(pool_names::COMPILERS));
    let filebucket = pools
        .iter()
        .position(|pool| &**pool == pool_names::FILEBUCKET)
        .unwrap_or(compilers);
    let entry = |class, pool| (class, RouteEntry::builtin(class, pool));
    let mut routes = vec![
        entry(Class::Enrolment, ca),
        entry(Class::CaAdministration, ca),
        entry(Class::OwnDocuments, compilers),
        entry(Class::Files, compilers),
        entry(Class::Filebucket, filebucket),
        entry(Class::Services, compilers),
        entry(Class::Status, compilers),
        entry(Class::Never, compilers),
    ];
    if renewal {
        routes.push(entry(Class::Renewal, ca));
    }
    routes
}

impl<'a> ForwardPlan<'a> {
    /// Whose certificate request the body is, where the endpoint's class counts.
    pub fn certificate_request(&self) -> Option<&'a str> {
        match self.route.unguarded {
            true => None,
            false => self.endpoint.certificate_request,
        }
    }

    /// Whether it is a renewal, where the endpoint's class counts: the client's certificate has to go along, whatever the
    /// pool says, and the answer has to be that certificate's successor.
    pub fn is_renewal(&self) -> bool {
        self.endpoint.class == Class::Renewal && !self.route.unguarded
    }

    /// The document of the CA's that it reads, where the endpoint's class counts.
    pub fn document(&self) -> Option<Document> {
        match self.route.unguarded {
            true => None,
            false => self.endpoint.document,
        }
    }

    /// Protocols that the request may switch to, in lower case. None at the endpoints of a Puppet server, which has no
    /// upgrades: what is said in a tunnel is heard by no path rule and no class.
    pub fn upgrade(&self) -> &'a [String] {
        if self.route.unguarded || self.endpoint.class == Class::Unknown {
            &self.route.upgrade
        } else {
            &[]
        }
    }

    /// What keeps its client on one member. Nothing at the endpoints of a Puppet server: there the algorithm of the pool
    /// decides.
    pub fn persistence(&self) -> Option<&'a RoutePersistence> {
        let applies = self.route.unguarded || self.endpoint.class == Class::Unknown;
        self.route.persistence.as_ref().filter(|_| applies)
    }

    /// What replaces the names of the pool's members in responses. Nothing at the endpoints of a Puppet server.
    pub fn rewrite_member_names(&self) -> Option<&'a str> {
        let applies = self.route.unguarded || self.endpoint.class == Class::Unknown;
        self.route
            .rewrite_member_names
            .as_deref()
            .filter(|_| applies)
    }

    fn new(
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

/// What the route says; a certificate request is read whole before it is passed on, and no larger anywhere.
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
    fn no_route(class: Class) -> Self {
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

    fn two_environments(route: &RouteEntry, class: Class) -> Self {
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

    fn wrong_method(route: &RouteEntry, endpoint: &Endpoint<'_>, method: &Method) -> Self {
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

    fn denied(
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

/// The text that the client reads. It says what the agent's administrator can do, and never how to relax the rules of the
/// proxy. Names in it are printable ASCII by `escape_ascii`.
fn denial(
    step: AccessStep,
    route: &RouteEntry,
    rule: Option<&AccessRule>,
    endpoint: &Endpoint<'_>,
    identity: &ClientIdentity,
) -> String {
    let who = identity.agent().map_or_else(
        || "A client without a certificate".to_owned(),
        |agent| format!("Agent {}", agent.certname().as_str().escape_default()),
    );
    let (class, route) = (endpoint.class, route.name.escape_default());
    if let Some(rule) = rule {
        let rule = rule.name.escape_default();
        return format!(
            "{who} is refused by the access rule \"{rule}\" of this proxy (class \"{class}\", route \"{route}\"). \
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
                "{who} may not use the catalog, node, facts or report of \"{owner}\", only its own. The name in the \
                 path must be the certname in lower case. Check certname in the agent's puppet.conf."
            )
        }
        (AccessStep::NotAllowed, _) => {
            format!(
                "{who} is not allowed to use the route \"{route}\" of this proxy. \
                 If the agent needs it, contact the operator of this proxy."
            )
        }
        (AccessStep::ClassClosed, _) => {
            format!(
                "{who} may not use this endpoint (class \"{class}\") through this proxy. \
                 Agents of Puppet 4 and later do not need it for a run. If another program on this host needs it, \
                 send the request to the Puppet server itself, or contact the operator of this proxy."
            )
        }
        (AccessStep::Never, _) => "This proxy never forwards requests to this endpoint. Send the request to the server itself.".to_owned(),
        (other, _) => format!("{who} may not use this endpoint ({}).", other.as_str()),
    }
}

const RENEWAL_TEXT: &str =
    "Certificate renewal is not configured on this proxy. The agent keeps its certificate.";

#[cfg(test)]
mod tests;
