//! For tests: the head that a member is sent for a client's request, without a worker.

use http::{HeaderName, HeaderValue, Version, request::Parts};
use http1::{Framing, HeadFault, RequestLine, write_head};
use identity::{HeaderForm, IdentityHeaders, OwnNames};
use routing::CanonicalPath;
use upstream::OwnFields;

use crate::{
    attempts::tell_of_host,
    sanitize::{Insane, sanitize},
    settings::HostRule,
    worker::RequestId,
};

/// What a request is sent with beside what its client said.
#[derive(Clone, Copy, Debug)]
pub struct RequestStamp<'a> {
    /// Who the client is.
    pub identity: &'a IdentityHeaders,
    /// In which headers the pool's servers read that.
    pub form: &'a HeaderForm,
    /// Names that some pool has for them.
    pub own_names: &'a OwnNames,
    /// The client's address.
    pub address: &'a str,
    /// The request's id.
    pub request_id: &'a str,
}

/// The bytes of the head that a member is sent, or why the request is refused before it is routed.
///
/// # Errors
/// What the client is told.
pub fn member_head(
    head: Parts,
    fault: Option<HeadFault>,
    framing: Framing,
    stamp: RequestStamp<'_>,
) -> Result<Vec<u8>, String> {
    if let Some(fault) = fault {
        return Err(Insane::Head(fault).to_string());
    }
    let sane = sanitize(head, stamp.own_names).map_err(|insane| insane.to_string())?;
    CanonicalPath::of_target(sane.target.path(), sane.target.query())
        .map_err(|problem| problem.to_string())?;
    let mut own = OwnFields::new();
    let member = HeaderValue::from_static("member:8140");
    tell_of_host(&mut own, &sane.scrubbed, HostRule::Keep, &member);
    own.set(&X_FORWARDED_FOR, stamp.address.as_bytes());
    own.set(&X_REAL_IP, stamp.address.as_bytes());
    own.remove(&X_FORWARDED_PORT);
    own.set(&X_FORWARDED_PROTO, b"https");
    own.set(&X_REQUEST_ID, stamp.request_id.as_bytes());
    let stamped = sane.scrubbed.stamp(own, stamp.identity, stamp.form, true);
    let line = RequestLine {
        method: &sane.method,
        target: &sane.target,
        version: Version::HTTP_11,
    };
    let mut bytes = Vec::new();
    write_head(&mut bytes, line, stamped.fields(), framing).map_err(|error| error.to_string())?;
    Ok(bytes)
}

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
static X_REQUEST_ID: HeaderName = RequestId::HEADER;
