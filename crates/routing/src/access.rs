//! Which clients may use a route for an endpoint.
//!
//! The class of the endpoint decides, on every route. A route can restrict access further with `allow`, and open a class by
//! name. The rules of `[[access]]` can then refuse more requests, or open a class that they name to the clients that they
//! match.

use identity::{Agent, ClientIdentity};

use crate::access_step::AccessStep;
use crate::explain::RoutingStep;
use crate::request::RoutingRequest;
use crate::settings::{ClientRule, RuleAction};
use crate::{AccessRule, Class, Endpoint, RouteEntry, RuleCondition};

/// The result of access control, and the rules that decided it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ruling<'a> {
    pub(crate) step: AccessStep,
    /// The rule that refuses the request.
    pub(crate) rule: Option<&'a AccessRule>,
    /// The first rule that would refuse the request but only observes.
    pub(crate) observed: Option<&'a AccessRule>,
}

/// Checks whether one client may use one endpoint on one route.
pub(crate) fn check_access<'a>(
    rules: &'a [AccessRule],
    route: &RouteEntry,
    endpoint: &Endpoint<'_>,
    question: &RoutingRequest<'_>,
    trace: &mut impl FnMut(RoutingStep<'a>),
) -> Ruling<'a> {
    let step = by_guards(
        route,
        endpoint,
        question.identity,
        question.failed_is_forwarded,
    );
    let by_guards = Ruling {
        step,
        rule: None,
        observed: None,
    };
    if rules.is_empty() || step.is_beyond_rules() {
        return by_guards;
    }
    let (decisive, observed) =
        first_of(rules, trace, |rule| rule.failed(endpoint, route, question));
    let ruling = match decisive {
        None => by_guards,
        Some(rule) => match rule.action {
            RuleAction::Refuse => Ruling {
                step: AccessStep::RefusedByRule,
                rule: Some(rule),
                ..by_guards
            },
            RuleAction::Allow => Ruling {
                step: lifted(step, rule, route, endpoint, question.identity.agent()),
                ..by_guards
            },
        },
    };
    Ruling {
        observed: observed.filter(|_| ruling.step.is_granted()),
        ..ruling
    }
}

/// Returns the first rule that matches and decides. Also returns the first matching rule before it that only observes. Such a
/// rule has no other effect.
fn first_of<'a>(
    rules: &'a [AccessRule],
    trace: &mut impl FnMut(RoutingStep<'a>),
    failed: impl Fn(&AccessRule) -> Option<RuleCondition>,
) -> (Option<&'a AccessRule>, Option<&'a AccessRule>) {
    let mut observed = None;
    for rule in rules {
        let failed = failed(rule);
        trace(RoutingStep::Rule { rule, failed });
        match failed {
            Some(_) => {}
            None if rule.observe => observed = observed.or(Some(rule)),
            None => return (Some(rule), observed),
        }
    }
    (None, observed)
}

/// The result of a rule that allows, given the result of the guards. The rule opens the classes that it names, and only to
/// agents. The route's `client` and `allow` must also match.
fn lifted(
    step: AccessStep,
    rule: &AccessRule,
    route: &RouteEntry,
    endpoint: &Endpoint<'_>,
    agent: Option<&Agent>,
) -> AccessStep {
    let class = endpoint.class;
    if !matches!(step, AccessStep::NotOwn | AccessStep::ClassClosed)
        || !class.is_opened_by_rule()
        || !rule.names(class)
    {
        return step;
    }
    // If the route opens the class, its `allow` adds agents to those that the class allows anyway.
    match by_certificate(route, agent) {
        AccessStep::NotAllowed if !route.opens(class) => AccessStep::NotAllowed,
        AccessStep::NoCertificate => step,
        _ => AccessStep::AllowedByRule,
    }
}

/// The result of the classes and the route, without the rules.
fn by_guards(
    route: &RouteEntry,
    endpoint: &Endpoint<'_>,
    identity: &ClientIdentity,
    failed_is_forwarded: bool,
) -> AccessStep {
    // "Not configured" takes precedence over "refused": unless a route opens the class, renewal has no route. Only a table for
    // which renewal is configured has a route that opens it.
    if endpoint.class == Class::Renewal && !route.unguarded {
        if !route.opens(Class::Renewal) {
            return AccessStep::NotConfigured;
        }
        if !endpoint.exact {
            return AccessStep::NoEndpoint;
        }
    }
    match identity {
        ClientIdentity::Refused(_)
            if failed_is_forwarded && admits_failed_certificate(route, endpoint.class) =>
        {
            AccessStep::FailedForwarded
        }
        ClientIdentity::Refused(_) => AccessStep::RefusedCertificate,
        ClientIdentity::Verified(agent) => by_class(route, endpoint, Some(agent)),
        ClientIdentity::Anonymous => by_class(route, endpoint, None),
    }
}

/// With `on_invalid = "forward"`, a refused certificate may use enrolment and routes for any client. A route for named
/// agents does not match, because the name is not verified.
fn admits_failed_certificate(route: &RouteEntry, class: Class) -> bool {
    let anyone = route.client == ClientRule::Any;
    let by_class = match class {
        _ if route.unguarded => anyone,
        Class::Enrolment => true,
        Class::Unknown => anyone,
        Class::Renewal | Class::ServerAdministration | Class::Never => false,
        _ => anyone && route.opens(class),
    };
    by_class && route.allow.is_empty()
}

fn by_class(route: &RouteEntry, endpoint: &Endpoint<'_>, agent: Option<&Agent>) -> AccessStep {
    let class = endpoint.class;
    if route.unguarded {
        return by_route(route, agent);
    }
    match class {
        Class::Never => AccessStep::Never,
        Class::Enrolment | Class::Status if route.allow.is_empty() => AccessStep::OpenToAnyone,
        Class::Enrolment | Class::Status => by_route(route, agent),
        // A client without a certificate never gets this class: a CA that ignores the headers would renew the proxy's own
        // certificate (THREATS).
        Class::Renewal => by_certificate(route, agent),
        Class::OwnDocuments => own_documents(route, endpoint, agent),
        Class::ServerAdministration => AccessStep::ClassClosed,
        Class::CaAdministration | Class::Services if !route.opens(class) => AccessStep::ClassClosed,
        Class::Files | Class::Filebucket if !route.opens(class) => by_certificate(route, agent),
        Class::CaAdministration
        | Class::Services
        | Class::Files
        | Class::Filebucket
        | Class::Unknown => by_route(route, agent),
    }
}

/// Allows the agent with the certname in the path. If the route opens the class, it also allows the agents that the route
/// names.
fn own_documents(route: &RouteEntry, endpoint: &Endpoint<'_>, agent: Option<&Agent>) -> AccessStep {
    let Some(agent) = agent else {
        return AccessStep::NoCertificate;
    };
    let own = endpoint
        .certname
        .is_some_and(|name| agent.certname().is_path_name(name));
    if route.opens(Class::OwnDocuments) {
        match (own, named(route, agent)) {
            (true, _) => AccessStep::Own,
            (false, true) => AccessStep::Named,
            (false, false) => AccessStep::NotOwn,
        }
    } else if !own {
        AccessStep::NotOwn
    } else if route.allow.is_empty() || named(route, agent) {
        AccessStep::Own
    } else {
        AccessStep::NotAllowed
    }
}

/// Checks `client` and `allow` of the route.
fn by_route(route: &RouteEntry, agent: Option<&Agent>) -> AccessStep {
    if route.allow.is_empty() && route.client == ClientRule::Any {
        AccessStep::AnyClient
    } else {
        by_certificate(route, agent)
    }
}

/// Requires a verified certificate and, if `allow` is not empty, a match of `allow`.
fn by_certificate(route: &RouteEntry, agent: Option<&Agent>) -> AccessStep {
    match agent {
        None => AccessStep::NoCertificate,
        Some(_) if route.allow.is_empty() => AccessStep::Verified,
        Some(agent) if named(route, agent) => AccessStep::Named,
        Some(_) => AccessStep::NotAllowed,
    }
}

fn named(route: &RouteEntry, agent: &Agent) -> bool {
    route
        .allow
        .iter()
        .any(|pattern| pattern.matches(agent.certname().as_str()))
}

#[cfg(test)]
mod tests;
