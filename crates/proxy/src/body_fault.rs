//! What can be wrong with the body of a request, and whose fault it is.

use std::time::Duration;

/// What can be wrong with a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// It is larger than the route allows.
    #[error("the request body is larger than {0} bytes")]
    TooLarge(u64),
    /// The client sent nothing for too long.
    #[error("the client sent no data of the request body for {0:?}")]
    Idle(Duration),
    /// The client sent too slowly for longer than the grace period: less than so many bytes a second.
    #[error("the client sent its body at less than {0} bytes per second (body_rate_min)")]
    Slow(u64),
    /// The client broke the framing.
    #[error("the framing of the request body is invalid")]
    Broken,
    /// The client went away.
    #[error("the client closed the connection within the request body")]
    Gone,
}
