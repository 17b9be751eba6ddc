//! For tests: the head that a member receives for a client's request, without a worker.

use std::net::IpAddr;

use http::{HeaderValue, Version};
use http1::{Framing, RequestHead, RequestLine, write_head};
use identity::{HeaderForm, IdentityHeaders, OwnNames};
use routing::CanonicalPath;
use upstream::OwnFields;

use crate::{
    forwarding::{forwarded, names, set_host_fields},
    sanitize::{InvalidRequest, sanitize},
    settings::HostRule,
};

/// What the proxy adds to a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestStamp<'a> {
    /// The client's identity headers.
    pub identity: &'a IdentityHeaders,
    /// The header names and formats of the pool.
    pub form: &'a HeaderForm,
    /// Names of identity headers in any pool.
    pub own_names: &'a OwnNames,
    /// The client's address.
    pub address: IpAddr,
    /// The request's id.
    pub request_id: &'a str,
}

/// The bytes of the head that a member receives.
///
/// # Errors
/// The text of the response, if the request is refused before it is routed.
pub fn member_head(
    head: RequestHead,
    framing: Framing,
    stamp: RequestStamp<'_>,
) -> Result<Vec<u8>, String> {
    if let Some(fault) = head.fault {
        return Err(InvalidRequest::Head(fault).to_string());
    }
    let sane = sanitize(head, stamp.own_names).map_err(|invalid| invalid.to_string())?;
    CanonicalPath::of_target(sane.target.path(), sane.target.query())
        .map_err(|problem| problem.to_string())?;
    let lines = forwarded(stamp.address, 0);
    let mut own = OwnFields::with_lines(&lines);
    own.set(&names::X_REQUEST_ID, stamp.request_id.as_bytes());
    let member = HeaderValue::from_static("member:8140");
    set_host_fields(&mut own, &sane.scrubbed, HostRule::Keep, &member);
    let stamped = sane.scrubbed.stamp(own, stamp.identity, stamp.form, true);
    let line = RequestLine {
        method: &sane.method,
        target: &sane.target,
        version: Version::HTTP_11,
    };
    let mut bytes = Vec::new();
    write_head(&mut bytes, line, stamped.fields(), stamped.lines(), framing)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}
