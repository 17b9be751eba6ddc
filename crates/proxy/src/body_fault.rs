//! Faults in the body of a request.

use std::time::Duration;

/// A fault in the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// The body is larger than the route allows.
    #[error("the request body is larger than {0} bytes")]
    TooLarge(u64),
    /// The client sent nothing for too long.
    #[error("the client sent no data of the request body for {0:?}")]
    Idle(Duration),
    /// The client sent less than this many bytes per second for longer than the grace period.
    #[error("the client sent its body at less than {0} bytes per second (body_rate_min)")]
    Slow(u64),
    /// The client sent invalid framing.
    #[error("the framing of the request body is invalid")]
    Broken,
    /// The client closed the connection or the stream.
    #[error("the client closed the connection within the request body")]
    Gone,
}
