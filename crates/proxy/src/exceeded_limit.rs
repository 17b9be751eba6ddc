//! Why a connection is ended at once: its client went beyond a limit that is the connection's, not a request's.

use telemetry::Limit;

use crate::reason::LogReason;

/// What was too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExceededLimit {
    /// A head, or the first words of HTTP/2, took longer than `head_timeout`.
    HeadTimeout,
    /// More requests were taken back than were let be answered (HTTP/2).
    Resets,
    /// More frames came that carry nothing than an [`FrameAllowance`](crate::frame_allowance::FrameAllowance) has (HTTP/2).
    Frames,
}

impl ExceededLimit {
    pub(crate) fn limit(self) -> Limit {
        match self {
            Self::HeadTimeout => Limit::HeadTimeout,
            Self::Resets => Limit::Resets,
            Self::Frames => Limit::Frames,
        }
    }

    /// The short reason of records.
    pub(crate) fn reason(self) -> LogReason {
        match self {
            Self::HeadTimeout => LogReason::HeadTimeout,
            Self::Resets => LogReason::TooManyResets,
            Self::Frames => LogReason::TooManyFrames,
        }
    }

    /// The same in a sentence.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::HeadTimeout => "a request head was not complete within head_timeout",
            Self::Resets => "the client reset far more requests than it let complete",
            Self::Frames => "the client sent far too many frames without data",
        }
    }
}
