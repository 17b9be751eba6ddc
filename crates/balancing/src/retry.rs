//! What goes to a member again after an attempt has failed, and what never does.

/// How far an attempt had come when it failed.
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
    /// How far it had come.
    pub stage: AttemptStage,
    /// Whether the connection had carried a request before.
    pub reused: bool,
    /// Whether the client connection handed the message back, none of it written.
    pub unsent: bool,
}

/// Where the request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Attempts made, the failed one among them.
    pub attempts: u32,
    /// Whether a byte of a response has come.
    pub response_started: bool,
    /// Whether it is a GET or HEAD of an endpoint marked safe.
    pub safe: bool,
    /// Whether there is no body, or nothing has been read from it yet.
    pub body_replayable: bool,
    /// Whether there is only one member that it may be sent to, as with the writes of a CA that has no backup.
    pub single_member: bool,
    /// Whether the time allowed for attempts has run out.
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

/// When a request may go again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Most attempts for one request, at least 1.
    pub attempts_max: u32,
}

impl RetryPolicy {
    /// Whether a request may be sent again after `failure`.
    ///
    /// What a member cannot have seen goes again, whatever it is. What it may have acted on goes again only if acting
    /// twice does no harm.
    pub fn decide(&self, failure: &AttemptFailure, progress: &Progress) -> RetryVerdict {
        let possible = progress.attempts < self.attempts_max
            && !progress.late
            && !progress.response_started
            && progress.body_replayable;
        if !possible {
            return RetryVerdict::GiveUp;
        }
        match failure.certainty() {
            // The only member that may be asked has just failed to be reached: asking again at once finds the same.
            Certainty::NotReached if progress.single_member => RetryVerdict::GiveUp,
            Certainty::NotReached | Certainty::NotSent => RetryVerdict::Again,
            Certainty::MayHaveActed if progress.safe => RetryVerdict::Again,
            Certainty::MayHaveActed => RetryVerdict::GiveUp,
        }
    }
}

impl AttemptFailure {
    /// Whether the member is to blame, so that the next attempt should go to another one.
    ///
    /// A message that came back unsent met a kept connection that the member was closing, which is its right: the same
    /// member may be asked again on a fresh one.
    pub fn blames_member(&self) -> bool {
        !(self.unsent && self.reused)
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

/// What the member can know of the request.
enum Certainty {
    NotReached,
    NotSent,
    MayHaveActed,
}

#[cfg(test)]
mod tests;
