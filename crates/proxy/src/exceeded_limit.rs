//! Limits that apply to a connection and not to a request. A client that exceeds one is disconnected at once.

use telemetry::Limit;

use crate::reason::LogReason;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExceededLimit {
    /// A head, or the HTTP/2 preface, took longer than `head_timeout`.
    HeadTimeout,
    /// The client cancelled far more requests than it let complete (HTTP/2).
    Resets,
    /// The client sent more frames without content than its [`FrameAllowance`](crate::frame_allowance::FrameAllowance) has
    /// (HTTP/2).
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

    pub(crate) fn reason(self) -> LogReason {
        match self {
            Self::HeadTimeout => LogReason::HeadTimeout,
            Self::Resets => LogReason::TooManyResets,
            Self::Frames => LogReason::TooManyFrames,
        }
    }

    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::HeadTimeout => "a request head was not complete within head_timeout",
            Self::Resets => "the client reset far more requests than it let complete",
            Self::Frames => "the client sent far too many frames without data",
        }
    }
}
