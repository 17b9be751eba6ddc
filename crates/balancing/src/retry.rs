//! Which requests are sent again after an attempt has failed.

/// The stage at which an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptStage {
    /// Resolving the member's name.
    Resolve,
    /// Connecting to the member.
    Connect,
    /// The TLS handshake.
    Handshake,
    /// Writing the request's head.
    SendHead,
    /// Writing the request's body.
    SendBody,
    /// Waiting for the response's head.
    ReceiveHead,
}

/// An attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptFailure {
    /// The stage at which it failed.
    pub stage: AttemptStage,
    /// Whether the connection was reused.
    pub reused: bool,
    /// Whether no byte of the request was written, so that it was returned unsent.
    pub unsent: bool,
    /// Whether the member closed or reset the connection before it sent a byte of its response.
    pub broken_off: bool,
}

/// The state of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Attempts so far, including the failed one.
    pub attempts: u32,
    /// Whether a byte of a response has arrived.
    pub response_started: bool,
    /// Whether the request is a GET or HEAD of an endpoint that is marked safe.
    pub safe: bool,
    /// Whether the request has no body, or nothing has been read from the body yet.
    pub body_replayable: bool,
    /// Whether only one member may get the request, such as a write to a CA without a backup.
    pub single_member: bool,
    /// Whether the time allowed for attempts has expired.
    pub late: bool,
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryVerdict {
    /// Send the request again.
    Again,
    /// Send an error response to the client.
    GiveUp,
}

/// The policy for sending a request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum attempts for one request, at least 1.
    pub attempts_max: u32,
}

impl RetryPolicy {
    /// Whether a request is sent again after `failure`.
    ///
    /// A request that the member cannot have received is sent again, whatever it is. A request that the member may have acted
    /// on is sent again only if repeating it does no harm.
    pub fn decide(&self, failure: &AttemptFailure, progress: &Progress) -> RetryVerdict {
        let possible = progress.attempts < self.attempts_max
            && !progress.late
            && !progress.response_started
            && progress.body_replayable;
        if !possible {
            return RetryVerdict::GiveUp;
        }
        match failure.certainty() {
            // The only possible member was unreachable just now, so another attempt would fail as well.
            Certainty::NotReached if progress.single_member => RetryVerdict::GiveUp,
            Certainty::NotReached | Certainty::NotSent => RetryVerdict::Again,
            Certainty::MayHaveActed if progress.safe => RetryVerdict::Again,
            Certainty::MayHaveActed => RetryVerdict::GiveUp,
        }
    }
}

impl AttemptFailure {
    /// Whether the failure counts against the member, so that the next attempt should go to another member.
    ///
    /// A member may close or reset an idle connection at any time, even while a request is being sent. If the request is sent
    /// again after that, it may go to the same member on a new connection, and it does not count towards the retry budget.
    pub fn blames_member(&self) -> bool {
        !(self.reused && (self.unsent || self.broken_off))
    }

    fn certainty(&self) -> Certainty {
        match self.stage {
            AttemptStage::Resolve | AttemptStage::Connect | AttemptStage::Handshake => {
                Certainty::NotReached
            }
            AttemptStage::SendHead | AttemptStage::SendBody | AttemptStage::ReceiveHead
                if self.unsent =>
            {
                Certainty::NotSent
            }
            AttemptStage::SendHead | AttemptStage::SendBody | AttemptStage::ReceiveHead => {
                Certainty::MayHaveActed
            }
        }
    }
}

/// How much of the request the member can have received.
enum Certainty {
    NotReached,
    NotSent,
    MayHaveActed,
}

#[cfg(test)]
mod tests;
