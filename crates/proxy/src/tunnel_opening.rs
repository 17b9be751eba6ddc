//! A tunnel between the member's 101 and the end of HTTP on the client's connection.

use std::time::Duration;

use bytes::Bytes;
use telemetry::OpenTunnel;
use upstream::MemberIo;

use crate::record::ActiveExchange;

/// A tunnel whose 101 is on its way to the client.
#[derive(Debug)]
pub(crate) struct TunnelOpening {
    pub(crate) exchange: Box<ActiveExchange>,
    pub(crate) member: (MemberIo, Bytes),
    pub(crate) idle_timeout: Duration,
    pub(crate) open: OpenTunnel,
}
