//! How the route table is asked about a request, and the second check of a request that has waited in a queue.

use std::time::SystemTime;

use http::{Method, StatusCode, Uri};
use http1::Fields;
use identity::ClientIdentity;
use listener::ClientVerdict;
use routing::{
    AccessStep, CanonicalPath, Class, RefusalReason, RouteDecision, RouteRefusal, RoutingRequest,
};
use upstream::Scrubbed;

use crate::{
    context::RequestContext,
    error::ProxyError,
    record::ActiveExchange,
    sanitize::{InvalidRequest, host_of},
    upgrade::Upgrade,
};

/// A request that passed all checks, in the form in which it is sent to members.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) target: &'a Uri,
    pub(crate) scrubbed: &'a Scrubbed,
    /// The protocols that the client requests and the route allows.
    pub(crate) upgrade: Option<&'a Upgrade>,
}

/// The request as the route table matches it.
///
/// # Errors
/// Two parsers could read its path differently.
pub(crate) fn question<'a>(
    context: &'a RequestContext,
    (method, target): (&'a Method, &'a Uri),
    fields: &'a Fields,
) -> Result<RoutingRequest<'a>, ProxyError> {
    let conn = &context.conn;
    let path = CanonicalPath::of_target(target.path(), target.query())
        .map_err(|problem| ProxyError::InvalidRequest(InvalidRequest::path(problem)))?;
    Ok(RoutingRequest {
        method,
        path,
        query: target.query(),
        listener: Some(&conn.downstream.listener),
        host: host_of(fields),
        fields,
        source: Some(conn.downstream.client.ip()),
        sni: conn.server_name(),
        identity: context.verdict.identity(),
        failed_is_forwarded: conn.failed_is_forwarded(),
    })
}

/// The 403 for a refused client, for requests that have no route, such as `OPTIONS *`.
pub(crate) fn refused_anywhere(verdict: &ClientVerdict) -> Option<ProxyError> {
    let ClientIdentity::Refused(refusal) = verdict.identity() else {
        return None;
    };
    Some(ProxyError::Refused(Box::new(RouteRefusal {
        status: StatusCode::FORBIDDEN.as_u16(),
        reason: RefusalReason::Access(AccessStep::RefusedCertificate),
        text: refusal.text(),
        allow: None,
        class: Class::Unknown,
        route: None,
        rule: None,
        needs_legacy_routes: false,
    })))
}

/// Checks a request again after it has waited, perhaps for minutes. Under a newer configuration the request still runs in the
/// pool in which it waited, even if that configuration sends such requests to another pool or has no route for them, because
/// the request was prepared for these servers.
///
/// # Errors
/// The client's certificate is no longer accepted (revoked, blocked or expired), or the client may no longer use the endpoint.
pub(crate) fn recheck_access(
    context: &RequestContext,
    request: &UpstreamRequest<'_>,
    exchange: &mut ActiveExchange,
) -> Result<(), ProxyError> {
    let RequestContext {
        worker,
        conn,
        generation,
        verdict,
        ..
    } = context;
    let current = worker.current();
    let now = conn.current_verdict(&current.trust, SystemTime::now());
    if !verdict.is_refused()
        && let Some(refused) = refused_anywhere(&now)
    {
        return Err(refused);
    }
    if current.number == generation.number {
        return Ok(());
    }
    let line = (request.method, request.target);
    // The check uses the identity that the member would read.
    let question = question(context, line, request.scrubbed.fields())?;
    match current.routes.find(&question) {
        RouteDecision::Refuse(refusal) if matches!(refusal.reason, RefusalReason::Access(_)) => {
            // The rule that refuses the request belongs to the newer configuration.
            exchange.decided_by(current);
            Err(ProxyError::Refused(Box::new(refusal)))
        }
        _ => Ok(()),
    }
}
