//! Responses: ours, by one map from causes to status codes, and a member's on its way through.

use std::{sync::Arc, time::Duration};

use balancing::RateOf;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version,
    header::{
        AGE, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED,
        RETRY_AFTER, TRANSFER_ENCODING, UPGRADE,
    },
    response::Parts,
};
use identity::{OwnNames, X_CLIENT_CERT, X_CLIENT_DN, X_CLIENT_VERIFY};
use routing::Class;

use crate::{
    body_fault::BodyFault, edge::EdgeAnswer, error::ProxyError, places::Full, record::Exchanged,
    response_body::ResponseBody, sanitize::Insane, upgrade::Upgrade, worker::Worker,
};

/// Seconds after which a client may try again, drawn anew each time so that a herd spreads.
const RETRY_AFTER_SECONDS: std::ops::RangeInclusive<u64> = 10..=30;
/// Every answer of a Puppet server's own code carries it (docs/decisions/starting-server-404.md).
const X_PUPPET_VERSION: &str = "x-puppet-version";

/// What is answered in the place of a member.
struct Text {
    status: StatusCode,
    text: String,
    allow: Option<String>,
    retry_after: Again,
}

/// What is said of when to come again.
#[derive(Clone, Copy)]
enum Again {
    /// Nothing: it would end the same.
    Never,
    /// Soon, spread.
    Soon,
    /// After this, which spreads by itself.
    After(Duration),
}

/// The only map from causes to status codes.
pub(crate) fn to_response(
    worker: &Worker,
    error: &ProxyError,
    mut exchanged: Box<Exchanged>,
) -> Response<ResponseBody> {
    let Text {
        status,
        text,
        allow,
        retry_after,
    } = describe(error);
    let text = Bytes::from(text);
    exchanged.answered_here(status, error);
    let head = exchanged.is_head();
    let close = exchanged.is_last();
    let length = text.len();
    let body = ResponseBody::local(if head { Bytes::new() } else { text }, exchanged);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    if let Some(allow) = allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
        headers.insert(ALLOW, allow);
    }
    let seconds = match retry_after {
        Again::Never => None,
        Again::Soon => Some(spread(worker)),
        Again::After(wait) => Some(HeaderValue::from(wait.as_secs().max(1))),
    };
    headers.extend(seconds.map(|seconds| (RETRY_AFTER, seconds)));
    if close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A document of the CA from its copy, with the time since the CA was asked.
pub(crate) fn from_copy(
    answer: &EdgeAnswer,
    mut exchanged: Box<Exchanged>,
) -> Response<ResponseBody> {
    let copy = &answer.copy;
    let status = match answer.unchanged {
        true => StatusCode::NOT_MODIFIED,
        false => StatusCode::OK,
    };
    exchanged.answered_from_copy(status, answer);
    let close = exchanged.is_last();
    let sent = match answer.unchanged || exchanged.is_head() {
        true => Bytes::new(),
        false => copy.body.clone(),
    };
    let mut response = Response::new(ResponseBody::local(sent, exchanged));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if !answer.unchanged {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(copy.body.len()));
    }
    headers.insert(ETAG, copy.etag.clone());
    let modified = copy.modified.clone();
    headers.extend(modified.map(|modified| (LAST_MODIFIED, modified)));
    headers.insert(AGE, HeaderValue::from(answer.age.as_secs()));
    if close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn describe(error: &ProxyError) -> Text {
    let plain = |status, text: String| Text {
        status,
        text: text + "\n",
        allow: None,
        retry_after: Again::Never,
    };
    let later = |status, text: String| Text {
        retry_after: Again::Soon,
        ..plain(status, text)
    };
    match error {
        // Answered by `from_copy`, whose body is no text of ours.
        ProxyError::Edge(_) => plain(StatusCode::OK, String::new()),
        ProxyError::ServerWide => Text {
            allow: Some("GET, HEAD, POST, PUT, DELETE, OPTIONS".to_owned()),
            text: String::new(),
            ..plain(StatusCode::OK, String::new())
        },
        // The words of Puppet Server's own status service, without a line's end: agents and checks compare them.
        ProxyError::Status { available: true } => Text {
            text: "running".to_owned(),
            ..plain(StatusCode::OK, String::new())
        },
        ProxyError::Status { available: false } => Text {
            text: "error".to_owned(),
            ..plain(StatusCode::SERVICE_UNAVAILABLE, String::new())
        },
        ProxyError::Insane(insane @ Insane::Large(_)) => plain(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            format!("Refused: {insane}."),
        ),
        ProxyError::Insane(insane) => {
            plain(StatusCode::BAD_REQUEST, format!("Bad request: {insane}."))
        }
        ProxyError::Refused(refusal) => Text {
            allow: refusal.allow.as_ref().map(ToString::to_string),
            ..plain(
                StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::FORBIDDEN),
                refusal.text.to_string(),
            )
        },
        ProxyError::OverlongCertificate { pool, bytes, max } => plain(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            format!(
                "Refused: this agent's certificate takes {bytes} bytes as a header, and the servers of the pool `{pool}` \
                 are sent {max} at most (forward_cert_max). It most likely has many alternative names: to get a smaller \
                 one, sign the agent's request with fewer, or let the servers read larger heads (request-header-max-size \
                 in webserver.conf) and raise forward_cert_max."
            ),
        ),
        // Never 400: an agent takes that for "already submitted" and waits for a certificate that nobody will sign.
        ProxyError::Csr(refusal) => plain(StatusCode::FORBIDDEN, refusal.to_string()),
        ProxyError::TooSoon(too_soon) => Text {
            retry_after: Again::After(too_soon.retry_after),
            ..plain(
                StatusCode::TOO_MANY_REQUESTS,
                too_often(too_soon.of).to_owned(),
            )
        },
        ProxyError::CaBusy(full) => later(StatusCode::SERVICE_UNAVAILABLE, too_many(*full)),
        // An agent takes it for a CA that renews nothing, and goes on with its run.
        ProxyError::RenewalOff => plain(
            StatusCode::NOT_FOUND,
            "Certificate renewal is off at this proxy, since the CA server has answered with a certificate that was not \
             the agent's. `proscenium status` there says what it was; `proscenium reload` allows it again once the CA \
             server is mended."
                .to_owned(),
        ),
        ProxyError::RenewalUntold => plain(
            StatusCode::BAD_GATEWAY,
            "This agent's certificate cannot be told to the CA server, which would renew another; nothing was sent."
                .to_owned(),
        ),
        ProxyError::NotRenewed { member, what } => plain(
            StatusCode::BAD_GATEWAY,
            format!(
                "The CA server {member} answered with what is not this agent's next certificate: {what}. It was not \
                 passed on, and renewal is off at this proxy until `proscenium reload`. Most likely the CA server \
                 renews the certificate of the proxy itself: it has to be Puppet Server 8.2.1 or later, with the \
                 proxy's certname in infra_inventory.txt."
            ),
        ),
        ProxyError::Body(fault @ BodyFault::TooLarge(_)) => {
            plain(StatusCode::PAYLOAD_TOO_LARGE, format!("Refused: {fault}."))
        }
        ProxyError::Body(fault @ BodyFault::Idle(_)) => {
            plain(StatusCode::REQUEST_TIMEOUT, format!("Given up: {fault}."))
        }
        ProxyError::Body(fault @ (BodyFault::Broken | BodyFault::Gone)) => {
            plain(StatusCode::BAD_REQUEST, format!("Bad request: {fault}."))
        }
        ProxyError::Unavailable { pool, .. } => later(
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "No server of the pool `{pool}` can take this request now; nothing was sent. Try again later."
            ),
        ),
        ProxyError::Unreachable(error) => plain(
            StatusCode::BAD_GATEWAY,
            format!(
                "The server behind this proxy could not be reached; nothing was sent: {error}."
            ),
        ),
        ProxyError::Broken { member, .. } => plain(
            StatusCode::BAD_GATEWAY,
            format!(
                "The server {member} broke off before it answered. It may have acted on this request, so it was not sent to another."
            ),
        ),
        ProxyError::Late { member, limit } => plain(
            StatusCode::GATEWAY_TIMEOUT,
            format!("The server {member} did not answer within {limit:?} (first_byte_timeout)."),
        ),
        ProxyError::Stalled { member, limit } => plain(
            StatusCode::GATEWAY_TIMEOUT,
            format!(
                "The server {member} took nothing of the request's body for {limit:?} (idle_timeout)."
            ),
        ),
        ProxyError::Answer {
            reason: "member-starting",
            member,
        } => later(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("The server {member} is starting or stopping. Try again later."),
        ),
        ProxyError::Answer { member, reason } => plain(
            StatusCode::BAD_GATEWAY,
            format!("The server {member} answered what cannot be passed on ({reason})."),
        ),
    }
}

fn too_often(of: RateOf) -> &'static str {
    match of {
        RateOf::Address => {
            "Clients without a certificate at this address ask the CA too often. Try again later."
        }
        RateOf::Total => "Clients without a certificate ask the CA too often. Try again later.",
    }
}

fn too_many(full: Full) -> String {
    let requests = match full.max {
        1 => "1 request".to_owned(),
        max => format!("{max} requests"),
    };
    let at = match full.of {
        RateOf::Address => " at this address",
        RateOf::Total => "",
    };
    format!(
        "The CA works on {requests} of clients without a certificate{at}, which is as many as it may; the rest of its \
         time is for others, most of all for agents that have one. Try again later."
    )
}

/// Whether a member's answer can be passed on at all.
pub(crate) fn judge_answer(
    head: &Parts,
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
    if head.status == StatusCode::SWITCHING_PROTOCOLS
        && !asked.is_some_and(|upgrade| upgrade.is_answered_by(head))
    {
        return answer("unasked-upgrade");
    }
    if is_unmounted(head, class, unguarded) {
        return answer("member-starting");
    }
    Ok(())
}

/// Whether a member says that it is starting or stopping and did nothing: Jetty's own 404, or a 503 without the
/// `Retry-After` that its queue limit sends. Another member may answer what is safe to ask.
pub(crate) fn is_starting_or_stopping(head: &Parts, class: Class, unguarded: bool) -> bool {
    let unavailable =
        head.status == StatusCode::SERVICE_UNAVAILABLE && !head.headers.contains_key(RETRY_AFTER);
    unavailable || is_unmounted(head, class, unguarded)
}

fn is_unmounted(head: &Parts, class: Class, unguarded: bool) -> bool {
    let puppet = class != Class::Unknown && !unguarded;
    puppet && head.status == StatusCode::NOT_FOUND && is_jettys_own(&head.headers)
}

/// Whether Jetty answered because no Puppet service is mounted there (yet, or any more). Agents would take that 404
/// for "not signed yet" or "no such file" (docs/decisions/starting-server-404.md).
fn is_jettys_own(headers: &HeaderMap) -> bool {
    let begins = |name, text: &str| {
        headers.get(name).is_some_and(|value| {
            value
                .as_bytes()
                .get(..text.len())
                .is_some_and(|v| v.eq_ignore_ascii_case(text.as_bytes()))
        })
    };
    !headers.contains_key(X_PUPPET_VERSION)
        && (begins(CACHE_CONTROL, "must-revalidate,no-cache,no-store")
            || begins(CONTENT_TYPE, "text/html"))
}

/// A member's response on its way to the client.
pub(crate) fn from_member(
    worker: &Worker,
    own: &OwnNames,
    mut head: Parts,
    body: ResponseBody,
    close: bool,
) -> Response<ResponseBody> {
    frame_once(&mut head.headers);
    upstream::hop_by_hop(&mut head.headers);
    // What is said upstream of a client is nobody's business downstream.
    let told = |name: &HeaderName| name.as_str().starts_with("x-client-");
    if head.headers.keys().any(told) {
        for name in [&X_CLIENT_VERIFY, &X_CLIENT_DN, &X_CLIENT_CERT] {
            head.headers.remove(name);
        }
    }
    for name in own.renamed() {
        head.headers.remove(name);
    }
    if head.status == StatusCode::SERVICE_UNAVAILABLE && !head.headers.contains_key(RETRY_AFTER) {
        head.headers.insert(RETRY_AFTER, spread(worker));
    }
    if close {
        head.headers
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    head.version = Version::HTTP_11;
    Response::from_parts(head, body)
}

/// A member's 101, which was asked for: the protocol that it names, and nothing that frames a body.
pub(crate) fn switching(
    worker: &Worker,
    own: &OwnNames,
    mut head: Parts,
) -> Response<ResponseBody> {
    head.headers.remove(CONTENT_LENGTH);
    let protocol = head.headers.get(UPGRADE).cloned();
    let mut response = from_member(worker, own, head, ResponseBody::none(), false);
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.extend(protocol.map(|protocol| (UPGRADE, protocol)));
    response
}

/// Leaves the one length that the body was read by: none beside chunks (RFC 9112 §6.3), one where the same is said
/// several times, and none where hyper read no body and so compared no lengths (HEAD, 204, 304).
fn frame_once(headers: &mut HeaderMap) {
    let mut lengths = headers
        .get_all(CONTENT_LENGTH)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii);
    let Some(first) = lengths.next() else { return };
    let (more, same) = lengths.fold((false, true), |(_, same), length| {
        (true, same && length == first)
    });
    let number = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
    let legal = same && number && !headers.contains_key(TRANSFER_ENCODING);
    if !legal {
        headers.remove(CONTENT_LENGTH);
    } else if more && let Ok(length) = HeaderValue::from_bytes(first) {
        headers.insert(CONTENT_LENGTH, length);
    }
}

fn spread(worker: &Worker) -> HeaderValue {
    let width = RETRY_AFTER_SECONDS.end() - RETRY_AFTER_SECONDS.start() + 1;
    HeaderValue::from(RETRY_AFTER_SECONDS.start() + worker.random() % width)
}
