//! Who may use a route for an endpoint.
//!
//! The class of the endpoint decides, on every route; a route can narrow that by `allow`, and open a class by name.

use identity::{Agent, ClientIdentity};

use crate::explain::AccessStep;
use crate::settings::ClientRule;
use crate::{Class, Endpoint, RouteEntry};

/// Judges one client at one endpoint on one route.
pub(crate) fn judge(
    route: &RouteEntry,
    endpoint: &Endpoint<'_>,
    identity: &ClientIdentity,
    failed_is_forwarded: bool,
) -> AccessStep {
    // To say "not configured" before "refused": without the class opened there is no such route.
    if endpoint.class == Class::Renewal && !route.unguarded && !route.opens(Class::Renewal) {
        return AccessStep::NotConfigured;
    }
    match identity {
        ClientIdentity::Refused(_)
            if failed_is_forwarded && lets_failed_pass(route, endpoint.class) =>
        {
            AccessStep::FailedForwarded
        }
        ClientIdentity::Refused(_) => AccessStep::RefusedCertificate,
        ClientIdentity::Verified(agent) => by_class(route, endpoint, Some(agent)),
        ClientIdentity::Anonymous => by_class(route, endpoint, None),
    }
}

/// With `on_invalid = "forward"`: enrolment, and routes for any client. Who must be named cannot be, unverified.
fn lets_failed_pass(route: &RouteEntry, class: Class) -> bool {
    let anyone = route.client == ClientRule::Any;
    let by_class = match class {
        _ if route.unguarded => anyone,
        Class::Enrolment => true,
        Class::Unknown => anyone,
        Class::Renewal | Class::Never => false,
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
        // Never for a client without a certificate: a CA that trusts no headers would renew ours (THREATS).
        Class::Renewal => by_certificate(route, agent),
        Class::OwnDocuments => own_documents(route, endpoint, agent),
        Class::CaAdministration | Class::Services if !route.opens(class) => AccessStep::ClassClosed,
        Class::Files | Class::Filebucket if !route.opens(class) => by_certificate(route, agent),
        Class::CaAdministration
        | Class::Services
        | Class::Files
        | Class::Filebucket
        | Class::Unknown => by_route(route, agent),
    }
}

/// The agent of that name; where the route opens the class, those whom it names too.
fn own_documents(route: &RouteEntry, endpoint: &Endpoint<'_>, agent: Option<&Agent>) -> AccessStep {
    let Some(agent) = agent else {
        return AccessStep::NoCertificate;
    };
    let own = endpoint
        .certname
        .is_some_and(|name| agent.certname().is(name));
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

/// `client` and `allow` as they stand.
fn by_route(route: &RouteEntry, agent: Option<&Agent>) -> AccessStep {
    if route.allow.is_empty() && route.client == ClientRule::Any {
        AccessStep::AnyClient
    } else {
        by_certificate(route, agent)
    }
}

/// A verified certificate, of one whom `allow` names where it names anyone.
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
