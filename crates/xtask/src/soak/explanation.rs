//! The failures of a request that an injected fault explains. Every other failure is a lost request.

use super::faults::MemberFault;

/// How an exchange failed, as its agent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestFailure {
    /// The member's own 503, which the proxy forwarded unchanged.
    Busy,
    /// The proxy's own 502.
    BadGateway,
    /// The proxy's own 503: no member was available.
    Unavailable,
    /// The answer was recognisably truncated.
    Cut,
}

/// The events at the members during the request.
#[derive(Clone, Debug, Default)]
pub(super) struct Circumstances {
    /// Whether the proxy may send the request to another member after a failure.
    pub(super) is_safe: bool,
    /// Whether the request arrived at a member.
    pub(super) arrived: bool,
    /// The faults that members injected into the request.
    pub(super) faults: Vec<MemberFault>,
    /// The connections of the member that failed were reset.
    pub(super) was_killed: bool,
    /// How often connections of any member were reset.
    pub(super) kills: usize,
    /// A member was restarting, so there was no other member to try.
    pub(super) was_unavailable: bool,
    /// The member that failed had closed a kept-alive connection.
    pub(super) closed_kept: bool,
}

impl RequestFailure {
    /// The name in reports.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "503 of the member",
            Self::BadGateway => "502",
            Self::Unavailable => "503",
            Self::Cut => "answer cut",
        }
    }

    /// The fault that explains the failure. `None` means that the request is lost.
    pub(super) fn explained_by(self, met: &Circumstances) -> Option<&'static str> {
        let first_of = |kinds: &[MemberFault]| {
            let found = met.faults.iter().find(|fault| kinds.contains(fault));
            found.map(|fault| fault.as_str())
        };
        match self {
            Self::Busy => first_of(&[MemberFault::Busy]),
            Self::Cut => first_of(&[MemberFault::ResetInBody, MemberFault::BadChunk])
                .or_else(|| met.was_killed.then_some(KILLED)),
            Self::BadGateway => met.unanswered(),
            // The proxy sends this only to a request that has no other member to try.
            Self::Unavailable => met.was_unavailable.then(|| met.unanswered()).flatten(),
        }
    }
}

impl Circumstances {
    /// Why an attempt got no answer. One such attempt fails a request that must not be retried. Any other request goes
    /// to another member, so it fails only if that member also fails.
    fn unanswered(&self) -> Option<&'static str> {
        // The proxy sends a safe request again after a malformed head.
        let silent = [
            MemberFault::HangUp,
            MemberFault::ResetInBody,
            MemberFault::BadHead,
        ];
        let faults = self.faults.iter().filter(|fault| silent.contains(fault));
        let mut causes: Vec<_> = faults.map(|fault| fault.as_str()).collect();
        causes.extend(self.was_killed.then_some(KILLED));
        // If the request reached a member, it cannot have failed on a connection that the member had closed before.
        let is_unseen = self.closed_kept && (self.is_safe || !self.arrived);
        causes.extend(is_unseen.then_some(MemberFault::CloseKept.as_str()));
        // A killed member is also unavailable: count it once.
        let other_is_down = self.was_unavailable && !self.was_killed;
        let other_kills = self.kills.saturating_sub(usize::from(self.was_killed));
        let enough = if self.is_safe {
            causes.len() + usize::from(other_is_down) + other_kills >= 2
        } else {
            !causes.is_empty()
        };
        causes.first().copied().filter(|_| enough)
    }
}

/// The explanation of a failure during a restart.
pub(super) const KILLED: &str = "member restarted";

#[cfg(test)]
mod tests {
    use super::*;

    fn met(faults: &[MemberFault]) -> Circumstances {
        Circumstances {
            arrived: !faults.is_empty(),
            faults: faults.to_vec(),
            ..Circumstances::default()
        }
    }

    fn safe(faults: &[MemberFault]) -> Circumstances {
        Circumstances {
            is_safe: true,
            ..met(faults)
        }
    }

    #[test]
    fn a_failure_without_a_fault_is_lost() {
        for failure in [
            RequestFailure::Busy,
            RequestFailure::BadGateway,
            RequestFailure::Unavailable,
            RequestFailure::Cut,
        ] {
            assert_eq!(failure.explained_by(&met(&[])), None, "{failure:?}");
            assert_eq!(
                failure.explained_by(&met(&[MemberFault::Slow])),
                None,
                "{failure:?}"
            );
        }
    }

    #[test]
    fn a_fault_explains_its_own_failures_only() {
        let table = [
            (MemberFault::Busy, RequestFailure::Busy),
            (MemberFault::BadHead, RequestFailure::BadGateway),
            (MemberFault::HangUp, RequestFailure::BadGateway),
            (MemberFault::BadChunk, RequestFailure::Cut),
        ];
        for (fault, explained) in table {
            for failure in [
                RequestFailure::Busy,
                RequestFailure::BadGateway,
                RequestFailure::Cut,
            ] {
                let cause = failure.explained_by(&met(&[fault]));
                let expected = (failure == explained).then_some(fault.as_str());
                assert_eq!(cause, expected, "{fault:?} and {failure:?}");
            }
        }
    }

    #[test]
    fn a_request_that_may_be_sent_again_survives_one_unanswered_attempt() {
        for fault in [MemberFault::HangUp, MemberFault::BadHead] {
            let once = safe(&[fault]);
            let twice = safe(&[fault, fault]);
            let alone = Circumstances {
                was_unavailable: true,
                ..once.clone()
            };
            assert_eq!(RequestFailure::BadGateway.explained_by(&once), None);
            assert!(RequestFailure::BadGateway.explained_by(&twice).is_some());
            for failure in [RequestFailure::BadGateway, RequestFailure::Unavailable] {
                assert!(failure.explained_by(&alone).is_some(), "{fault:?}");
            }
        }
    }

    #[test]
    fn a_closed_kept_connection_explains_no_failure_of_a_request_that_arrived() {
        let unseen = Circumstances {
            closed_kept: true,
            ..Circumstances::default()
        };
        let seen = Circumstances {
            arrived: true,
            ..unseen.clone()
        };
        assert!(RequestFailure::BadGateway.explained_by(&unseen).is_some());
        assert_eq!(RequestFailure::BadGateway.explained_by(&seen), None);
    }
}
