//! The outcome of an exchange: a complete and correct answer, a failure that an injected fault explains, or a lost
//! request.

use std::{io::ErrorKind, time::Instant};

use testkit::{ClientError, Response, StandIn, TestConnection};

use super::{
    enrolled_client::{Trouble, beginning},
    estate::{SERVED_BY, SoakEstate},
    explanation::{Circumstances, RequestFailure},
    faults::BUSY,
    request_plan::PlannedRequest,
    tally::{Count, Tally},
};

/// An exchange that was not lost.
pub(super) enum Received {
    /// The right answer, whole.
    Whole(Response),
    /// An error that an injected fault explains.
    Failed(Response),
    /// An answer that was recognisably truncated, as an injected fault explains.
    Cut,
}

/// A request and its agent.
pub(super) struct Exchange<'a> {
    pub(super) request: &'a PlannedRequest,
    pub(super) certname: &'a str,
    /// When the request was sent.
    pub(super) since: Instant,
    pub(super) estate: &'a SoakEstate,
    /// The `Retry-After` expected on a busy member's 503. The proxy removes it for agents that would only wait and then
    /// fail.
    pub(super) retry_after: Option<&'static str>,
}

impl Exchange<'_> {
    /// Reads the answer and checks it.
    pub(super) fn receive(
        &self,
        connection: &mut TestConnection,
        tally: &Tally,
    ) -> Result<Received, Trouble> {
        let mut answer = match connection.read_head() {
            Ok(head) => head,
            Err(error) => return self.without_head(&error, tally),
        };
        tally.count(Count::Answered);
        let read = connection.read_body_into(&mut answer);
        if let Some(other) = other_agent(&answer.text(), self.certname) {
            tally.count(Count::Crossed);
            let what = format!("not the answer to this agent's request: it contains {other}");
            return Err(self.lost(&what));
        }
        let failure = match read {
            Ok(()) => self.check_whole(&answer)?,
            Err(error) => Some(self.check_cut(&answer, &error)?),
        };
        let circumstances = self.circumstances(self.failed_member(&answer).as_deref());
        let Some(failure) = failure else {
            return Ok(Received::Whole(answer));
        };
        let Some(cause) = failure.explained_by(&circumstances) else {
            let failure = failure.as_str();
            let text = beginning(&answer);
            let what = format!("{failure} without a fault: {circumstances:?}: {text}");
            return Err(self.lost(&what));
        };
        tally.failed(failure, cause);
        Ok(match failure {
            RequestFailure::Cut => Received::Cut,
            _ => Received::Failed(answer),
        })
    }

    /// A short answer may be cut off before the proxy has sent its first byte.
    fn without_head(&self, error: &ClientError, tally: &Tally) -> Result<Received, Trouble> {
        let trouble = Trouble::of(&self.request.target, error);
        let is_cut = is_recognisable(error) || error.is_closed();
        if !is_cut {
            return Err(trouble);
        }
        let cause = RequestFailure::Cut.explained_by(&self.circumstances(None));
        let cause = cause.ok_or(trouble)?;
        tally.count(Count::Answered);
        tally.failed(RequestFailure::Cut, cause);
        Ok(Received::Cut)
    }

    /// Checks a complete answer. Returns `None` if it is the right one. A complete 200 must never be a different
    /// answer.
    fn check_whole(&self, answer: &Response) -> Result<Option<RequestFailure>, Trouble> {
        let is_busy =
            answer.body.kept == BUSY && answer.headers.get("Retry-After") == self.retry_after;
        let bundle = self.estate.ca.bundle_pem();
        match answer.status {
            200 if self.request.is_answered_by(answer, self.certname, &bundle) => Ok(None),
            200 => Err(self.lost(&format!(
                "not the answer to this agent's request, {} bytes: {}",
                answer.body.length,
                beginning(answer)
            ))),
            403 if Trouble::refusal(answer).is_some() => Err(Trouble::Refused),
            502 => Ok(Some(RequestFailure::BadGateway)),
            503 if is_busy => Ok(Some(RequestFailure::Busy)),
            503 => Ok(Some(RequestFailure::Unavailable)),
            status => Err(self.lost(&format!("{status} {}", beginning(answer)))),
        }
    }

    /// Checks a truncated answer. The truncation must be recognisable, and the bytes must begin the right answer.
    fn check_cut(&self, answer: &Response, error: &ClientError) -> Result<RequestFailure, Trouble> {
        let bundle = self.estate.ca.bundle_pem();
        let is_beginning = self
            .request
            .begins_with(&answer.body.kept, self.certname, &bundle);
        if is_recognisable(error) && is_beginning && answer.status == 200 {
            Ok(RequestFailure::Cut)
        } else {
            Err(self.lost(&format!(
                "the answer {} was truncated after {} bytes: {error}",
                answer.status, answer.body.length
            )))
        }
    }

    /// The events at the members during the request. `member` is the one that failed, if known.
    fn circumstances(&self, member: Option<&str>) -> Circumstances {
        let ledger = &self.estate.ledger;
        let met = ledger.settle(self.certname, self.request.number);
        Circumstances {
            is_safe: self.request.is_safe(),
            arrived: met.arrivals > 0,
            faults: met.faults,
            was_killed: ledger.was_killed(member, self.since),
            kills: ledger.kills(self.since),
            was_unavailable: ledger.was_unavailable(self.since),
            closed_kept: member.is_some_and(|member| ledger.closed_kept(member, self.since)),
        }
    }

    /// The member that began the answer, or that the proxy's error names.
    fn failed_member(&self, answer: &Response) -> Option<String> {
        if let Some(member) = answer.headers.get(SERVED_BY) {
            return Some(member.to_owned());
        }
        let text = answer.text();
        let compilers = self.estate.compilers.iter();
        let mut addresses = compilers.map(StandIn::address);
        addresses.find(|address| text.contains(address))
    }

    fn lost(&self, what: &str) -> Trouble {
        Trouble::Lost(format!(
            "{} {}: {what}",
            self.request.method, self.request.target
        ))
    }
}

/// Whether the error shows that an answer or a tunnel is incomplete: the connection was closed, or the stream reset.
pub(super) fn is_recognisable(error: &ClientError) -> bool {
    match error {
        ClientError::Closed | ClientError::Reset(_) => true,
        ClientError::Broken(error) => matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
        ),
        _ => false,
    }
}

/// The certname in an answer that a member made for another agent, whole or not.
fn other_agent(text: &str, certname: &str) -> Option<String> {
    let mut names = text.split("SUCCESS CN=").skip(1).map(|rest| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        (&rest[..end], end == rest.len())
    });
    // The end of an answer may truncate a name.
    let is_other = |(name, is_end): &(&str, bool)| {
        if *is_end {
            !certname.starts_with(name)
        } else {
            *name != certname
        }
    };
    names.find(is_other).map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(text: &str) -> Option<String> {
        other_agent(text, "web01")
    }

    #[test]
    fn another_agents_name_is_noticed_and_a_truncated_own_name_is_accepted() {
        assert_eq!(other("SUCCESS CN=web01\n12 bytes"), None);
        assert_eq!(other("GET /\nSUCCESS CN=we"), None);
        assert_eq!(other("issued by CN=Puppet CA"), None);
        assert_eq!(other("SUCCESS CN=web02\n"), Some("web02".to_owned()));
        assert_eq!(
            other("SUCCESS CN=web01\n12 bytes SUCCESS CN=web011"),
            Some("web011".to_owned())
        );
    }
}
