//! Why a request got no member's answer.

use std::{sync::Arc, time::Duration};

use balancing::{RateExceeded, RateScope};
use pki::CsrRefusal;
use routing::RouteRefusal;
use upstream::{DialError, WireError, cause};

use crate::{
    body_fault::BodyFault, reason::LogReason, sanitize::InvalidRequest, strangers::SlotsFull,
};

/// Why a request got no member's answer. `respond::to_response` is the only map to status codes.
#[derive(Debug)]
pub(crate) enum ProxyError {
    /// It could be read two ways.
    InvalidRequest(InvalidRequest),
    /// No route, or no right.
    Refused(Box<RouteRefusal>),
    /// The client's certificate is larger, as a header, than the pool's servers take.
    OverlongCertificate {
        pool: Arc<str>,
        bytes: usize,
        max: usize,
    },
    /// Its certificate request breaks a rule.
    Csr(Box<CsrRefusal>),
    /// A client without a verified certificate asks the CA too often.
    TooSoon(RateExceeded),
    /// The CA works on as many requests of such clients as it may.
    CaBusy(SlotsFull),
    /// No renewal is passed on, since the CA has answered one with what is not the client's.
    RenewalOff,
    /// The CA would not be told whose certificate is to be renewed.
    RenewalWithoutCertificate,
    /// The CA answered a renewal with what is not the client's next certificate.
    NotRenewed { member: Arc<str>, what: String },
    /// The body is too large, stood still or broke off.
    Body(BodyFault),
    /// The members speak HTTP/1.0, and the body's length is not known.
    LengthRequired,
    /// The queue of a pool refuses it. `retry_after`: when an agent that it sends away is to come back.
    Queue {
        pool: Arc<str>,
        reason: LogReason,
        retry_after: Option<Duration>,
    },
    /// No member can be asked.
    Unavailable {
        pool: Arc<str>,
        reason: LogReason,
        source: Option<DialError>,
    },
    /// A member could not be spoken to.
    Unreachable(DialError),
    /// A member broke off; it may have acted on the request.
    Broken {
        member: Arc<str>,
        source: WireError,
        /// Whether a byte of its answer had come.
        begun: bool,
    },
    /// A member did not answer in time.
    Late { member: Arc<str>, limit: Duration },
    /// A member took nothing of the request's body for too long.
    Stalled { member: Arc<str>, limit: Duration },
    /// It failed so, and the pool has made as many retries as it may.
    NotRetried(Box<Self>),
    /// A member answered what cannot be passed on.
    Answer { member: Arc<str>, reason: LogReason },
}

impl ProxyError {
    /// The reason in records and metrics.
    pub(crate) fn reason(&self) -> LogReason {
        match self {
            Self::InvalidRequest(invalid) => invalid.reason(),
            Self::Refused(refusal) => LogReason::Route(refusal.reason),
            Self::OverlongCertificate { .. } => LogReason::CertificateTooLarge,
            Self::Csr(refusal) => LogReason::Csr(refusal.rule),
            Self::TooSoon(too_soon) => match too_soon.of {
                RateScope::Address => LogReason::CaRateAddress,
                RateScope::Total => LogReason::CaRateTotal,
            },
            Self::CaBusy(full) => match full.of {
                RateScope::Address => LogReason::CaBusyAddress,
                RateScope::Total => LogReason::CaBusy,
            },
            Self::RenewalOff => LogReason::RenewalOff,
            Self::RenewalWithoutCertificate => LogReason::RenewalWithoutCertificate,
            Self::NotRenewed { .. } => LogReason::NotRenewed,
            Self::Body(BodyFault::TooLarge(_)) => LogReason::BodyTooLarge,
            Self::Body(BodyFault::Idle(_)) | Self::Stalled { .. } => LogReason::BodyTimeout,
            Self::Body(BodyFault::Slow(_)) => LogReason::BodyTooSlow,
            Self::Body(BodyFault::Broken) => LogReason::BodyBroken,
            Self::Body(BodyFault::Gone) => LogReason::ClientGone,
            Self::LengthRequired => LogReason::LengthRequired,
            Self::Queue { reason, .. }
            | Self::Unavailable { reason, .. }
            | Self::Answer { reason, .. } => *reason,
            Self::Unreachable(error) => LogReason::Dial(error.reason()),
            Self::NotRetried(_) => LogReason::RetryBudget,
            Self::Broken { .. } => LogReason::MemberClosed,
            Self::Late { .. } => LogReason::FirstByteTimeout,
        }
    }

    /// The cause, for the record.
    pub(crate) fn cause(&self) -> Option<String> {
        match self {
            Self::Unavailable {
                source: Some(error),
                ..
            }
            | Self::Unreachable(error) => Some(error.to_string()),
            Self::NotRetried(failure) => {
                let reason = failure.reason().as_str();
                let cause = failure.cause();
                Some(format!(
                    "{reason}: {}",
                    cause.as_deref().unwrap_or("no cause")
                ))
            }
            Self::Broken { source, .. } => Some(cause(source)),
            Self::InvalidRequest(invalid) => Some(invalid.to_string()),
            Self::Csr(refusal) => Some(refusal.what.clone()),
            Self::NotRenewed { what, .. } => Some(what.clone()),
            _ => None,
        }
    }
}
