//! What can be wrong with the body of a request, and whose fault it is.

use std::time::Duration;

/// What can be wrong with a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// It is larger than the route allows.
    #[error("the request body is larger than {0} bytes")]
    TooLarge(u64),
    /// The client sent nothing for too long.
    #[error("the client sent nothing of its body for {0:?}")]
    Idle(Duration),
    /// The client broke the framing.
    #[error("the request body is not framed as its head says")]
    Broken,
    /// The client went away.
    #[error("the client broke off its body")]
    Gone,
}
