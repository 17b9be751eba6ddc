//! Which requests are sent again after an attempt has failed.

/// The stage at which an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptStage {
    /// The member's name has no address.
    Resolve,
    /// No connection.
    Connect,
    /// No TLS.
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
    /// Whether the message came back with no byte of it written.
    pub unsent: bool,
    /// Whether the member closed or reset the connection before a byte of its response.
    pub broken_off: bool,
}

/// The state of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Attempts so far, including the failed one.
    pub attempts: u32,
    /// Whether a byte of a response has arrived.
    pub response_started: bool,
    /// Whether it is a GET or HEAD of an endpoint marked safe.
    pub safe: bool,
    /// Whether there is no body, or nothing has been read from it yet.
    pub body_replayable: bool,
    /// Whether only one member may get it, as with writes to a CA that has no backup.
    pub single_member: bool,
    /// Whether the time allowed for attempts has expired.
    pub late: bool,
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryVerdict {
    /// Send it again.
    Again,
    /// Answer the client.
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
    /// A request that the member cannot have seen is sent again, whatever it is. A request that the member may have
    /// acted on is sent again only if repeating it does no harm.
    pub fn decide(&self, failure: &AttemptFailure, progress: &Progress) -> RetryVerdict {
        let possible = progress.attempts < self.attempts_max
            && !progress.late
            && !progress.response_started
            && progress.body_replayable;
        if !possible {
            return RetryVerdict::GiveUp;
        }
        match failure.certainty() {
            // The only possible member was just unreachable, so another attempt would fail as well.
            Certainty::NotReached if progress.single_member => RetryVerdict::GiveUp,
            Certainty::NotReached | Certainty::NotSent => RetryVerdict::Again,
            Certainty::MayHaveActed if progress.safe => RetryVerdict::Again,
            Certainty::MayHaveActed => RetryVerdict::GiveUp,
        }
    }
}

impl AttemptFailure {
    /// Whether the member is at fault, so that the next attempt should go to another one.
    ///
    /// A member may close or reset an idle connection at any time, also while a request is on its way. A request that is
    /// sent again after that may go to the same member on a new connection, and does not count towards the retry budget.
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

/// What the member can have received of the request.
enum Certainty {
    NotReached,
    NotSent,
    MayHaveActed,
}

#[cfg(test)]
mod tests;
