//! The header fields that the proxy adds to a request: the client's address and port, and the host.

use std::net::IpAddr;

use http::HeaderValue;
use http1::FieldName;
use upstream::{OwnFields, OwnLines, Scrubbed};

use crate::settings::HostRule;

/// Sets the Host that the member reads, and the host that the client requested.
pub(crate) fn set_host_fields<'a>(
    own: &mut OwnFields<'a>,
    scrubbed: &'a Scrubbed,
    rule: HostRule,
    member: &'a HeaderValue,
) {
    let asked = scrubbed.fields().get(FieldName::Host);
    if rule == HostRule::Member || asked.is_none() {
        own.set(&names::HOST, member.as_bytes());
    }
    match asked {
        Some(host) => own.set(&names::X_FORWARDED_HOST, host),
        None => own.remove(&names::X_FORWARDED_HOST),
    }
}

/// The `X-Forwarded-*` fields of a connection, with one value each. For a Unix socket, no port is sent.
pub(crate) fn forwarded(client: IpAddr, port: u16) -> OwnLines {
    let text =
        |text: String| HeaderValue::try_from(text).expect("addresses and ports are plain ASCII");
    let client = text(client.to_canonical().to_string());
    let port = (port > 0).then(|| text(port.to_string()));
    OwnLines::new(vec![
        (&names::X_FORWARDED_FOR, Some(client.clone())),
        (&names::X_REAL_IP, Some(client)),
        (&names::X_FORWARDED_PORT, port),
        (
            &names::X_FORWARDED_PROTO,
            Some(HeaderValue::from_static("https")),
        ),
    ])
}

/// Names of the fields that the proxy sets on requests to members.
pub(crate) mod names {
    use upstream::OwnName;

    pub(crate) static ACCEPT_ENCODING: OwnName = OwnName::new("accept-encoding");
    pub(crate) static CONNECTION: OwnName = OwnName::new("connection");
    pub(crate) static HOST: OwnName = OwnName::new("host");
    pub(crate) static IF_RANGE: OwnName = OwnName::new("if-range");
    pub(crate) static RANGE: OwnName = OwnName::new("range");
    pub(crate) static UPGRADE: OwnName = OwnName::new("upgrade");
    pub(crate) static X_FORWARDED_FOR: OwnName = OwnName::new("x-forwarded-for");
    pub(crate) static X_FORWARDED_HOST: OwnName = OwnName::new("x-forwarded-host");
    pub(crate) static X_FORWARDED_PORT: OwnName = OwnName::new("x-forwarded-port");
    pub(crate) static X_FORWARDED_PROTO: OwnName = OwnName::new("x-forwarded-proto");
    pub(crate) static X_REAL_IP: OwnName = OwnName::new("x-real-ip");
    pub(crate) static X_REQUEST_ID: OwnName = OwnName::new("x-request-id");
}
