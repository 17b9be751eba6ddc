//! Refuses requests that two parsers could read differently, and removes headers that clients must not send.

use http::{Method, Uri, Version, uri::PathAndQuery};
use http1::{FieldName, Fields, HeadFault, REQUEST_FIELDS_MAX, RequestHead};
use identity::{OwnNames, ScrubReport};
use routing::{PathProblem, RefusalReason};
use upstream::Scrubbed;

use crate::reason::LogReason;

/// A request that is refused before it is routed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidRequest {
    /// Host is missing, repeated or not a host.
    #[error("the Host header {0}")]
    Host(&'static str),
    /// The target in absolute form has another authority than Host.
    #[error("the request line has the host `{0}`, but the Host header has another")]
    Authority(String),
    /// The head has a fault that its parser accepted.
    #[error("{0}")]
    Head(HeadFault),
    /// TRACE would return the head, including fields that the proxy and other intermediaries have added (RFC 9110, 9.3.8).
    /// CONNECT requests a tunnel to any host (9.3.6), and the bytes after its response have another framing.
    #[error("the method {0} is not allowed")]
    Method(Method),
    /// The request target is neither a path nor an absolute URL.
    #[error("the request target is neither a path nor an http(s) URL")]
    Target,
    /// Two parsers could read the path differently.
    #[error("{0}")]
    Path(String),
    /// Two parsers could read the framing differently.
    #[error("{0}")]
    Framing(&'static str),
    /// The HTTP/2 head is larger than allowed.
    #[error("the request head has more {0}")]
    Large(&'static str),
    /// The value of a field begins or ends with white space, which HTTP/2 does not allow.
    #[error("a header value begins or ends with white space")]
    Field,
}

impl InvalidRequest {
    /// The error for a problem of the path, worded as a part of a sentence.
    pub(crate) fn path(problem: PathProblem) -> Self {
        Self::Path(problem.to_string().trim_end_matches('.').to_owned())
    }

    pub(crate) fn reason(&self) -> LogReason {
        match self {
            Self::Host(_) | Self::Authority(_) => LogReason::BadHost,
            Self::Target => LogReason::BadTarget,
            Self::Path(_) => LogReason::BadPath,
            Self::Framing(_) | Self::Head(HeadFault::TwoFramings | HeadFault::RepeatedLength) => {
                LogReason::BadFraming
            }
            Self::Head(HeadFault::BareLf) => LogReason::BadHead,
            Self::Head(HeadFault::Fragment) => LogReason::BadTarget,
            Self::Method(_) => LogReason::Route(RefusalReason::Method),
            Self::Large(_) => LogReason::HeadTooLarge,
            Self::Field => LogReason::BadHead,
        }
    }
}

/// A request that can be read in only one way.
#[derive(Debug)]
pub(crate) struct SanitizedRequest {
    pub(crate) method: Method,
    /// The target in origin form, with the bytes that the routes match.
    pub(crate) target: Uri,
    pub(crate) scrubbed: Scrubbed,
    pub(crate) scrubbing: ScrubReport,
}

/// Whether the request is `OPTIONS *`, which concerns the proxy and not a resource behind it (RFC 9110, 9.3.7).
pub(crate) fn is_server_wide(head: &RequestHead) -> bool {
    head.method == Method::OPTIONS && head.target.path() == "*"
}

/// Checks framing, Host and target, in this order, then scrubs. `routing` checks the path.
pub(crate) fn sanitize(
    head: RequestHead,
    own: &OwnNames,
) -> Result<SanitizedRequest, InvalidRequest> {
    let target = check(&head)?;
    let (scrubbed, scrubbing) = Scrubbed::new(head.fields, own);
    Ok(SanitizedRequest {
        method: head.method,
        target,
        scrubbed,
        scrubbing,
    })
}

/// Makes the checks of an HTTP/2 head that the parser makes of an HTTP/1.1 head: its size and number of fields. Also refuses
/// values that begin or end with white space (RFC 9113, 8.2.1), because a member would read another value.
pub(crate) fn check_http2_head(
    head: &RequestHead,
    head_bytes_max: usize,
) -> Result<(), InvalidRequest> {
    let lines = head.fields.iter();
    let fields: usize = lines
        .map(|field| field.name.len() + field.value.len() + ": \r\n".len())
        .sum();
    let target = head.target.path_and_query().map_or(0, |t| t.as_str().len());
    if fields + target + head.method.as_str().len() > head_bytes_max {
        return Err(InvalidRequest::Large("bytes than `head_max` allows"));
    }
    if head.fields.len() > REQUEST_FIELDS_MAX {
        return Err(InvalidRequest::Large("than 100 headers"));
    }
    if head
        .fields
        .iter()
        .any(|field| field.value != field.value.trim_ascii())
    {
        return Err(InvalidRequest::Field);
    }
    Ok(())
}

fn check(head: &RequestHead) -> Result<Uri, InvalidRequest> {
    if matches!(head.method, Method::TRACE | Method::CONNECT) {
        return Err(InvalidRequest::Method(head.method.clone()));
    }
    let fields = DecidingFields::of(&head.fields);
    framing(&fields)?;
    host(head, &fields)?;
    let target = origin_form(&head.target)?;
    Ok(target)
}

/// The fields that frame a request or name its host: the first field of each name, and whether there are more.
#[derive(Default)]
struct DecidingFields<'a> {
    coding: Option<(&'a [u8], bool)>,
    length: Option<(&'a [u8], bool)>,
    host: Option<(&'a [u8], bool)>,
}

impl<'a> DecidingFields<'a> {
    fn of(all: &'a Fields) -> Self {
        let mut fields = Self::default();
        for field in all.iter() {
            let deciding = match field.known {
                FieldName::TransferEncoding => &mut fields.coding,
                FieldName::ContentLength => &mut fields.length,
                FieldName::Host => &mut fields.host,
                _ => continue,
            };
            match deciding {
                Some((_, is_repeated)) => *is_repeated = true,
                None => *deciding = Some((field.value, false)),
            }
        }
        fields
    }
}

/// Refuses the framing faults that the parsers of HTTP/1 and HTTP/2 accept.
fn framing(fields: &DecidingFields<'_>) -> Result<(), InvalidRequest> {
    if let Some((coding, is_repeated)) = fields.coding {
        if is_repeated || !coding.eq_ignore_ascii_case(b"chunked") {
            return Err(InvalidRequest::Framing(
                "the Transfer-Encoding header is not `chunked`, or is repeated",
            ));
        }
        if fields.length.is_some() {
            return Err(InvalidRequest::Framing(
                "the request has both Content-Length and Transfer-Encoding",
            ));
        }
    }
    if let Some((length, is_repeated)) = fields.length
        && (is_repeated || !is_number(length))
    {
        return Err(InvalidRequest::Framing(
            "the Content-Length header is repeated or is not a number",
        ));
    }
    Ok(())
}

/// Whether the text has only digits, and at least one. h2 would read an empty value as 0.
fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// Checks that there is exactly one Host, that it is a host, and that the request line has no other authority.
fn host(head: &RequestHead, fields: &DecidingFields<'_>) -> Result<(), InvalidRequest> {
    if matches!(fields.host, Some((_, true))) {
        return Err(InvalidRequest::Host("is repeated"));
    }
    let Some((host, _)) = fields.host else {
        return if head.version == Version::HTTP_10 && head.target.authority().is_none() {
            Ok(())
        } else {
            Err(InvalidRequest::Host("is missing"))
        };
    };
    if !is_host(host) {
        return Err(InvalidRequest::Host("is not a host name or address"));
    }
    match head.target.authority() {
        Some(authority) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host) => Err(
            InvalidRequest::Authority(authority.as_str().escape_default().collect()),
        ),
        _ => Ok(()),
    }
}

/// Whether the value is a name or address, with an optional port (RFC 9110, 7.2).
fn is_host(host: &[u8]) -> bool {
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=%".contains(byte);
    let (name, port) = match host {
        [b'[', rest @ ..] => match rest.iter().position(|byte| *byte == b']') {
            Some(end) => {
                let literal = rest[..end]
                    .iter()
                    .all(|byte| byte.is_ascii_hexdigit() || b":.".contains(byte));
                return end > 0 && literal && is_port(&rest[end + 1..]);
            }
            None => return false,
        },
        _ => host.split_at(
            host.iter()
                .position(|byte| *byte == b':')
                .unwrap_or(host.len()),
        ),
    };
    !name.is_empty() && name.iter().all(legal) && is_port(port)
}

fn is_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The target that members get: path and query of the absolute form, otherwise the same bytes.
fn origin_form(uri: &Uri) -> Result<Uri, InvalidRequest> {
    let http = matches!(uri.scheme_str(), None | Some("http" | "https"));
    match uri.path_and_query() {
        Some(target) if http && target.as_str().starts_with('/') => {
            Ok(Uri::from(PathAndQuery::clone(target)))
        }
        _ => Err(InvalidRequest::Target),
    }
}

/// The Host of a request, for route conditions.
pub(crate) fn host_of(fields: &Fields) -> Option<&str> {
    let host = fields.get(FieldName::Host)?;
    std::str::from_utf8(host).ok()
}
