//! Responses: those that the proxy itself makes, by one map from errors to status codes, and those of members that it passes
//! on.

use std::{sync::Arc, time::Duration};

use balancing::RateScope;
use bytes::Bytes;
use http::{
    HeaderValue, StatusCode,
    header::{
        AGE, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED,
        RETRY_AFTER, UPGRADE,
    },
};
use http1::{FieldName, Fields};
use identity::{OwnNames, X_CLIENT_CERT, X_CLIENT_DN, X_CLIENT_VERIFY};
use routing::Class;
use upstream::{MemberHead, WireError};

use crate::{
    body_fault::BodyFault, client_response::ClientResponse, edge::EdgeAnswer, error::ProxyError,
    reason::LogReason, record::ActiveExchange, response_body::ResponseBody,
    retry_support::RetrySupport, sanitize::InvalidRequest, strangers::SlotsFull, upgrade::Upgrade,
    worker::Worker,
};

/// Seconds after which a client may try again. Random for each response, so that many clients do not return at once.
const RETRY_AFTER_SECONDS: std::ops::RangeInclusive<u64> = 10..=30;
/// The `Allow` field of a 405 for a method that no route accepts.
const METHODS: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH";

#[derive(Clone, Copy)]
enum RetryAdvice {
    /// Not at all, because the next attempt would fail in the same way.
    Never,
    /// Soon, at a random time. Agents that fail on the header do not get it.
    Soon,
    /// After this time, which already differs between clients.
    After(Duration),
}

/// The response to an error. This is the only map from errors to status codes.
pub(crate) fn to_response(
    worker: &Worker,
    error: &ProxyError,
    mut exchange: Box<ActiveExchange>,
) -> ClientResponse {
    let status = status_of(error);
    let support = exchange.retry_support();
    // Hitting a limit for clients without a certificate is not an outage, unless the CA has no available member.
    let is_outage = status == StatusCode::SERVICE_UNAVAILABLE
        && !(matches!(error, ProxyError::CaBusy(_)) && exchange.has_available_member());
    exchange.failed(status, error);
    let mut response = plain(status, Bytes::from(text_of(error) + "\n"), exchange);
    let fields = &mut response.fields;
    if let Some(allow) = allowed_methods(error) {
        fields.append(ALLOW, allow);
    }
    let seconds = match retry_advice(error) {
        RetryAdvice::Never => None,
        _ if is_outage && support == RetrySupport::Continues => None,
        RetryAdvice::Soon if support == RetrySupport::Fails => None,
        RetryAdvice::Soon => Some(spread(worker)),
        RetryAdvice::After(wait) => Some(HeaderValue::from(wait.as_secs().max(1))),
    };
    if let Some(seconds) = seconds {
        fields.append(RETRY_AFTER, seconds);
    }
    response
}

pub(crate) fn server_wide(mut exchange: Box<ActiveExchange>) -> ClientResponse {
    exchange.answered_here(StatusCode::OK);
    let mut response = plain(StatusCode::OK, Bytes::new(), exchange);
    let allow = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, OPTIONS");
    response.fields.append(ALLOW, allow);
    response
}

/// The built-in status response. Its text equals that of Puppet Server's own status service and has no line end, because agents
/// and checks compare it.
pub(crate) fn status(available: bool, mut exchange: Box<ActiveExchange>) -> ClientResponse {
    let (status, text) = if available {
        (StatusCode::OK, "running")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "error")
    };
    exchange.status_answered(status, available);
    plain(status, Bytes::from_static(text.as_bytes()), exchange)
}

fn plain(status: StatusCode, text: Bytes, exchange: Box<ActiveExchange>) -> ClientResponse {
    let head = exchange.is_head();
    let close = exchange.is_last();
    let length = text.len();
    let body = ResponseBody::local(if head { Bytes::new() } else { text }, exchange);
    let mut response = ClientResponse::new(status, body);
    let fields = &mut response.fields;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    fields.append(CONTENT_TYPE, kind);
    fields.append(CONTENT_LENGTH, HeaderValue::from(length));
    if close {
        fields.append(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A document of the CA from its copy, with its age.
pub(crate) fn from_copy(answer: &EdgeAnswer, mut exchange: Box<ActiveExchange>) -> ClientResponse {
    let copy = &answer.copy;
    let status = if answer.unchanged {
        StatusCode::NOT_MODIFIED
    } else {
        StatusCode::OK
    };
    exchange.answered_from_copy(status, answer);
    let close = exchange.is_last();
    let sent = if answer.unchanged || exchange.is_head() {
        Bytes::new()
    } else {
        copy.body.clone()
    };
    let mut response = ClientResponse::new(status, ResponseBody::local(sent, exchange));
    let fields = &mut response.fields;
    if !answer.unchanged {
        fields.append(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        fields.append(CONTENT_LENGTH, HeaderValue::from(copy.body.len()));
    }
    fields.append(ETAG, copy.etag.clone());
    if let Some(modified) = copy.modified.clone() {
        fields.append(LAST_MODIFIED, modified);
    }
    fields.append(AGE, HeaderValue::from(answer.age.as_secs()));
    if close {
        fields.append(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn status_of(error: &ProxyError) -> StatusCode {
    match error {
        ProxyError::NotRetried(failure) => status_of(failure),
        ProxyError::Refused(refusal) => {
            StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::FORBIDDEN)
        }
        ProxyError::InvalidRequest(InvalidRequest::Large(_))
        | ProxyError::OverlongCertificate { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        ProxyError::InvalidRequest(InvalidRequest::Method(_)) => StatusCode::METHOD_NOT_ALLOWED,
        ProxyError::InvalidRequest(_) | ProxyError::Body(BodyFault::Broken | BodyFault::Gone) => {
            StatusCode::BAD_REQUEST
        }
        ProxyError::Body(BodyFault::TooLarge(_)) => StatusCode::PAYLOAD_TOO_LARGE,
        ProxyError::Body(BodyFault::Idle(_) | BodyFault::Slow(_)) => StatusCode::REQUEST_TIMEOUT,
        ProxyError::LengthRequired => StatusCode::LENGTH_REQUIRED,
        // Never 400: an agent takes a 400 for "already submitted" and waits for a certificate that will never be
        // signed.
        ProxyError::Csr(_) => StatusCode::FORBIDDEN,
        // An agent reads a 404 as "this CA has no renewal", and continues its run.
        ProxyError::RenewalOff => StatusCode::NOT_FOUND,
        ProxyError::TooSoon(_)
        | ProxyError::Queue {
            reason: LogReason::AgentMax,
            ..
        } => StatusCode::TOO_MANY_REQUESTS,
        ProxyError::CaBusy(_)
        | ProxyError::Queue { .. }
        | ProxyError::Unavailable { .. }
        | ProxyError::UnknownCa { .. }
        | ProxyError::Answer {
            reason: LogReason::MemberStarting,
            ..
        } => StatusCode::SERVICE_UNAVAILABLE,
        ProxyError::RenewalWithoutCertificate
        | ProxyError::NotRenewed { .. }
        | ProxyError::Unreachable(_)
        | ProxyError::Broken { .. }
        | ProxyError::Answer { .. } => StatusCode::BAD_GATEWAY,
        ProxyError::Late { .. } | ProxyError::Stalled { .. } => StatusCode::GATEWAY_TIMEOUT,
    }
}

fn allowed_methods(error: &ProxyError) -> Option<HeaderValue> {
    match error {
        ProxyError::NotRetried(failure) => allowed_methods(failure),
        ProxyError::InvalidRequest(InvalidRequest::Method(_)) => {
            Some(HeaderValue::from_static(METHODS))
        }
        ProxyError::Refused(refusal) => {
            HeaderValue::try_from(refusal.allow.as_ref()?.to_string()).ok()
        }
        _ => None,
    }
}

fn retry_advice(error: &ProxyError) -> RetryAdvice {
    match error {
        ProxyError::NotRetried(failure) => retry_advice(failure),
        ProxyError::TooSoon(too_soon) => RetryAdvice::After(too_soon.retry_after),
        ProxyError::Queue {
            reason: LogReason::ClientShare | LogReason::DrainGrace,
            ..
        }
        | ProxyError::CaBusy(_)
        | ProxyError::Unavailable { .. }
        | ProxyError::UnknownCa { .. }
        | ProxyError::Answer {
            reason: LogReason::MemberStarting,
            ..
        } => RetryAdvice::Soon,
        ProxyError::Queue { retry_after, .. } => {
            retry_after.map_or(RetryAdvice::Soon, RetryAdvice::After)
        }
        _ => RetryAdvice::Never,
    }
}

fn text_of(error: &ProxyError) -> String {
    match error {
        ProxyError::NotRetried(failure) => text_of(failure),
        ProxyError::InvalidRequest(
            invalid @ (InvalidRequest::Large(_) | InvalidRequest::Method(_)),
        ) => format!("The request was refused: {invalid}."),
        ProxyError::InvalidRequest(invalid) => format!("Bad request: {invalid}."),
        ProxyError::Refused(refusal) => refusal.text.to_string(),
        ProxyError::OverlongCertificate { pool, bytes, max } => format!(
            "This agent's certificate is too large for the servers of the pool `{pool}`: {bytes} bytes as a header, \
             and the maximum is {max}. Most likely it has many alternative names. To get a smaller one, remove names \
             from dns_alt_names in the agent's puppet.conf; on the CA run puppetserver ca clean --certname NAME, on \
             the agent run puppet ssl clean, then puppet agent -t."
        ),
        ProxyError::Csr(refusal) => refusal.to_string(),
        ProxyError::TooSoon(too_soon) => too_often(too_soon.of).to_owned(),
        ProxyError::CaBusy(full) => too_many(*full),
        ProxyError::RenewalOff => "Certificate renewal is off at this proxy, because the CA server has renewed, or \
             might renew, a certificate of another node. The agent keeps its certificate and tries again later. If that \
             certificate expires soon, contact the operator of this proxy: `proscenium status` there shows the cause."
            .to_owned(),
        ProxyError::RenewalWithoutCertificate => "The proxy cannot forward this agent's certificate to the CA server, \
             which would renew another certificate in its place; nothing was sent. The agent keeps its certificate. \
             Contact the operator of this proxy."
            .to_owned(),
        ProxyError::NotRenewed { member, what } => format!(
            "The CA server {member} did not answer with a renewed certificate of this agent: {what}. The proxy did not \
             forward the response, and the agent keeps its certificate. Most likely the CA server renewed the \
             certificate of the proxy. Contact the operators of this proxy and of the CA server: renewal requires \
             Puppet Server 8.2.1 or later, with the proxy's certname in infra_inventory.txt."
        ),
        ProxyError::Body(fault @ BodyFault::TooLarge(_)) => {
            format!("The request was refused: {fault}.")
        }
        ProxyError::Body(fault @ (BodyFault::Idle(_) | BodyFault::Slow(_))) => {
            format!("The request timed out: {fault}.")
        }
        ProxyError::Body(fault @ (BodyFault::Broken | BodyFault::Gone)) => {
            format!("Bad request: {fault}.")
        }
        ProxyError::LengthRequired => "The servers behind this proxy need the length of the request body \
             (Content-Length), and this body is sent in chunks and is larger than the proxy buffers."
            .to_owned(),
        ProxyError::Queue { pool, reason, .. } => queue_text(pool, *reason),
        ProxyError::Unavailable { pool, .. } | ProxyError::UnknownCa { pool, .. } => format!(
            "No server of the pool `{pool}` is available for this request; nothing was sent. Try again later."
        ),
        ProxyError::Unreachable(error) => format!(
            "The server behind this proxy could not be reached; nothing was sent: {error}."
        ),
        ProxyError::Broken { member, source, .. } => broken_text(member, source),
        ProxyError::Late { member, limit } => {
            format!("The server {member} did not answer within {limit:?} (first_byte_timeout).")
        }
        ProxyError::Stalled { member, limit } => format!(
            "The server {member} did not read the request body for {limit:?} (idle_timeout)."
        ),
        ProxyError::Answer {
            reason: LogReason::MemberStarting,
            member,
        } => format!("The server {member} is starting or stopping. Try again later."),
        ProxyError::Answer { member, reason } => format!(
            "The server {member} sent a response that the proxy cannot forward ({}).",
            reason.as_str()
        ),
    }
}

fn queue_text(pool: &str, reason: LogReason) -> String {
    match reason {
        LogReason::AgentMax => format!(
            "This client already has too many requests at the pool `{pool}` (agent_max, agent_queue_max); nothing was \
             sent. Wait until they are answered."
        ),
        LogReason::ClientShare => format!(
            "This client already holds its share of the connections to the pool `{pool}` (client_share); nothing was \
             sent. Wait until its other requests are answered."
        ),
        LogReason::DrainGrace => format!(
            "The proxy is stopping, and no server of the pool `{pool}` was free until now; nothing was sent. Try again \
             later."
        ),
        _ => format!(
            "All servers of the pool `{pool}` are busy, and the request could not wait any longer; nothing was sent. \
             Try again later."
        ),
    }
}

fn broken_text(member: &str, source: &WireError) -> String {
    match source.malformed() {
        Some(what) => format!(
            "The server {member} sent a malformed response: {what}. It may have acted on this request."
        ),
        None if source.is_unanswered() => format!(
            "The server {member} no longer answers on this connection: its host acknowledged nothing, not even TCP \
             keep-alive, for the time of down_wait. It may have acted on this request, so the request was not sent to \
             another server."
        ),
        None => format!(
            "The server {member} closed the connection before it answered. It may have acted on this request, so the \
             request was not sent to another server."
        ),
    }
}

fn too_often(of: RateScope) -> &'static str {
    match of {
        RateScope::Address => {
            "Clients without a certificate at this address send too many requests to the CA. Try again later."
        }
        RateScope::Total => {
            "Clients without a certificate send too many requests to the CA. Try again later."
        }
    }
}

fn too_many(full: SlotsFull) -> String {
    let requests = match full.max {
        1 => "1 request".to_owned(),
        max => format!("{max} requests"),
    };
    let at = match full.of {
        RateScope::Address => " at this address",
        RateScope::Total => "",
    };
    format!(
        "The CA is serving {requests} from clients without a certificate{at}, which is the maximum. Try again later."
    )
}

/// Checks whether a member's response can be passed on.
pub(crate) fn check_response(
    head: &MemberHead,
    class: Class,
    unguarded: bool,
    asked: Option<&Upgrade>,
    member: &Arc<str>,
) -> Result<(), ProxyError> {
    let answer = |reason| {
        Err(ProxyError::Answer {
            member: Arc::clone(member),
            reason,
        })
    };
    if head.not_http10.is_some() {
        return answer(LogReason::NotHttp10);
    }
    if head.status == StatusCode::SWITCHING_PROTOCOLS
        && !asked.is_some_and(|upgrade| upgrade.is_answered_by(head))
    {
        return answer(LogReason::UnsolicitedUpgrade);
    }
    if is_unmounted(head, class, unguarded) {
        return answer(LogReason::MemberStarting);
    }
    Ok(())
}

/// Whether a member says that it is starting or stopping and did nothing. Such a member sends Jetty's own 404, or a 503 without
/// the `Retry-After` that its queue limit adds. A safe request may go to another member.
pub(crate) fn is_starting_or_stopping(head: &MemberHead, class: Class, unguarded: bool) -> bool {
    let unavailable =
        head.status == StatusCode::SERVICE_UNAVAILABLE && !head.fields.contains(&RETRY_AFTER);
    unavailable || is_unmounted(head, class, unguarded)
}

/// Whether a member refused a request because its own queue is full (`max-queued-requests` of Puppet Server). It then did
/// nothing.
pub(crate) fn is_overloaded(head: &MemberHead, class: Class, unguarded: bool) -> bool {
    head.status == StatusCode::SERVICE_UNAVAILABLE
        && head.fields.contains(&RETRY_AFTER)
        && is_puppets_own(&head.fields)
        && class != Class::Unknown
        && !unguarded
}

/// Whether a member says, with Jetty's own 404, that it is starting or stopping.
pub(crate) fn is_unmounted(head: &MemberHead, class: Class, unguarded: bool) -> bool {
    let puppet = class != Class::Unknown && !unguarded;
    puppet && head.status == StatusCode::NOT_FOUND && is_jettys_own(&head.fields)
}

/// Whether a response comes from Puppet Server's code and not from the web server around it. Every response of Puppet Server's
/// code has this field (docs/decisions/starting-server-404.md).
pub(crate) fn is_puppets_own(fields: &Fields) -> bool {
    fields.get(FieldName::XPuppetVersion).is_some()
}

/// Whether Jetty responded because no Puppet service is mounted there (not yet, or no longer). Agents would read that 404 as
/// "not signed yet" or "no such file" (docs/decisions/starting-server-404.md).
fn is_jettys_own(fields: &Fields) -> bool {
    let begins = |name, text: &str| {
        let begin = fields.value(name).and_then(|value| value.get(..text.len()));
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(text.as_bytes()))
    };
    !is_puppets_own(fields)
        && (begins(&CACHE_CONTROL, "must-revalidate,no-cache,no-store")
            || begins(&CONTENT_TYPE, "text/html"))
}

/// A member's response, prepared for the client.
pub(crate) fn from_member(
    worker: &Worker,
    own: &OwnNames,
    mut head: MemberHead,
    body: ResponseBody,
    close: bool,
    support: RetrySupport,
) -> ClientResponse {
    let found = NotPassedOn::of(&head.fields);
    if found.framing {
        frame_once(&mut head.fields);
    }
    if found.hop_by_hop {
        upstream::remove_hop_by_hop(&mut head.fields);
    }
    // Identity headers are for members, not for clients.
    if found.identity {
        for name in [&X_CLIENT_VERIFY, &X_CLIENT_DN, &X_CLIENT_CERT] {
            head.fields.remove(name);
        }
    }
    for name in own.renamed() {
        head.fields.remove(name);
    }
    if head.status == StatusCode::SERVICE_UNAVAILABLE {
        match support {
            // With the header, the client would wait first. Then it would fail with an error that hides the member's, or
            // continue without the response.
            RetrySupport::Fails | RetrySupport::Continues => head.fields.remove(&RETRY_AFTER),
            _ if head.fields.contains(&RETRY_AFTER) => {}
            _ => head.fields.append(RETRY_AFTER, spread(worker)),
        }
    }
    if close {
        let close = HeaderValue::from_static("close");
        head.fields.append(CONNECTION, close);
    }
    ClientResponse {
        status: head.status,
        fields: head.fields,
        body,
    }
}

/// Which kinds of fields must be changed or removed. Nearly every response has no such field, and one pass over the head costs
/// less than a lookup for each.
#[derive(Default)]
struct NotPassedOn {
    framing: bool,
    hop_by_hop: bool,
    identity: bool,
}

impl NotPassedOn {
    fn of(fields: &Fields) -> Self {
        let mut found = Self::default();
        let mut has_length = false;
        for field in fields.iter() {
            if field.known == FieldName::ContentLength {
                let is_number =
                    !field.value.is_empty() && field.value.iter().all(u8::is_ascii_digit);
                found.framing |= has_length || !is_number;
                has_length = true;
            } else {
                found.framing |= field.known == FieldName::TransferEncoding;
                found.hop_by_hop |= field.known.is_hop_by_hop();
                found.identity |= field.name.starts_with(b"x-client-");
            }
        }
        found
    }
}

/// A member's 101 that the client requested. It names the protocol and has no framing fields.
pub(crate) fn switching(
    worker: &Worker,
    own: &OwnNames,
    mut head: MemberHead,
    body: ResponseBody,
) -> ClientResponse {
    head.fields.remove(&CONTENT_LENGTH);
    let protocol = head.fields.value(&UPGRADE);
    let protocol = protocol.and_then(|protocol| HeaderValue::from_bytes(protocol).ok());
    let mut response = from_member(worker, own, head, body, false, RetrySupport::Unknown);
    let fields = &mut response.fields;
    fields.append(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        fields.append(UPGRADE, protocol);
    }
    response
}

/// Leaves at most one Content-Length, by which the body was read. Equal values become one field. The field is removed beside
/// chunks (RFC 9112, 6.3), and if its value is invalid on a response without a body (HEAD, 204, 304).
fn frame_once(fields: &mut Fields) {
    let mut lengths = fields
        .all("content-length")
        .flat_map(|line| line.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii);
    let Some(first) = lengths.next() else { return };
    let (more, same) = lengths.fold((false, true), |(_, same), length| {
        (true, same && length == first)
    });
    let number = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
    let legal = same && number && fields.get(FieldName::TransferEncoding).is_none();
    let length = HeaderValue::from_bytes(first).ok().filter(|_| legal);
    match length {
        Some(_) if !more => {}
        Some(length) => fields.insert(CONTENT_LENGTH, length),
        None => fields.remove(&CONTENT_LENGTH),
    }
}

fn spread(worker: &Worker) -> HeaderValue {
    HeaderValue::from(soon(worker).as_secs())
}

/// The time after which a client may try again, spread over a short interval.
pub(crate) fn soon(worker: &Worker) -> Duration {
    let width = RETRY_AFTER_SECONDS.end() - RETRY_AFTER_SECONDS.start() + 1;
    Duration::from_secs(RETRY_AFTER_SECONDS.start() + worker.random() % width)
}
