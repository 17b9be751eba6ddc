//! A client with a certificate: whether the certificate is revoked, which failures that explains, and how it enrols
//! again.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use testkit::{Client, ClientError, Enrolment, Protocol, Response, TestCredential};

use super::{
    estate::SoakEstate,
    tally::{Count, Tally},
};

/// A client's certificate, and whether the certificate is revoked.
pub(super) struct EnrolledClient {
    pub(super) certname: String,
    protocol: Protocol,
    patience: Duration,
    state: Mutex<State>,
}

struct State {
    credential: TestCredential,
    revoked: Option<Instant>,
}

/// Why an exchange or a tunnel failed.
pub(super) enum Trouble {
    /// The proxy answered 403 because the certificate is revoked.
    Refused,
    /// The connection was closed without an answer, as idle connections of a revoked client are.
    Ended(String),
    /// Any other failure. It is always a lost request.
    Lost(String),
}

impl EnrolledClient {
    /// A client with a certificate.
    pub(super) fn new(
        certname: &str,
        estate: &SoakEstate,
        protocol: Protocol,
        patience: Duration,
    ) -> Self {
        let state = State {
            credential: estate.ca.agent(certname),
            revoked: None,
        };
        Self {
            certname: certname.to_owned(),
            protocol,
            patience,
            state: Mutex::new(state),
        }
    }

    /// A raw client with the current certificate.
    pub(super) fn client(&self, estate: &SoakEstate) -> Client {
        client(estate, Some(&self.state().credential)).protocol(self.protocol)
    }

    /// Marks the client as revoked, and returns the certificate to revoke.
    pub(super) fn revoke(&self) -> TestCredential {
        let mut state = self.state();
        state.revoked = Some(Instant::now());
        state.credential.clone()
    }

    /// Since when the client is revoked and has no new certificate.
    pub(super) fn revoked(&self) -> Option<Instant> {
        self.state().revoked
    }

    /// Handles a failure. A revoked client must be refused soon and then enrols again. Any other failure is a miss.
    pub(super) fn handle_failure(
        &self,
        trouble: &Trouble,
        refused: &'static str,
        estate: &SoakEstate,
        tally: &Tally,
    ) {
        match (trouble, self.revoked()) {
            (Trouble::Refused | Trouble::Ended(_), Some(since)) => {
                tally.took(refused, since.elapsed(), self.patience);
                tally.count(Count::Revoked);
                let enrolled = self
                    .see_refusal(estate, tally)
                    .and_then(|()| self.enrol_again(estate, tally));
                if let Err(trouble) = enrolled {
                    tally.miss(format!("{} cannot enrol again: {trouble}", self.certname));
                }
            }
            _ => tally.miss(format!("{}: {trouble}", self.certname)),
        }
    }

    /// Checks that a revoked client gets the refusal on a new connection.
    fn see_refusal(&self, estate: &SoakEstate, tally: &Tally) -> Result<(), Trouble> {
        tally.count(Count::Sent);
        let target = format!("/puppet/v3/node/{}?environment=production", self.certname);
        let answer = self
            .client(estate)
            .try_request("GET", &target, HEADERS, b"")
            .map_err(|error| Trouble::of("the 403 to a revoked client", &error))?;
        tally.count(Count::Answered);
        match Trouble::refusal(&answer) {
            Some(_) => Ok(()),
            None => Err(Trouble::Lost(format!(
                "revoked, but answered {} {}",
                answer.status,
                beginning(&answer)
            ))),
        }
    }

    fn enrol_again(&self, estate: &SoakEstate, tally: &Tally) -> Result<(), Trouble> {
        let name = &self.certname;
        let anonymous = client(estate, None);
        let enrolment = Enrolment::new(name);
        let request = |method: &str, path: &str, body: &str| {
            let target = format!("/puppet-ca/v1/{path}/{name}");
            tally.count(Count::Sent);
            let fields = [("Accept", "text/plain"), ("Content-Type", "text/plain")];
            let answer = anonymous
                .try_request(method, &target, &fields, body.as_bytes())
                .map_err(|error| Trouble::of(&target, &error))?;
            tally.count(Count::Answered);
            match answer.status {
                200 => Ok(answer),
                status => Err(Trouble::Lost(format!(
                    "{method} {target}: {status} {}",
                    beginning(&answer)
                ))),
            }
        };
        request("PUT", "certificate_request", enrolment.request_pem())?;
        let certificate = request("GET", "certificate", "")?.text();
        let credential = enrolment
            .accept(&certificate)
            .ok_or_else(|| Trouble::Lost(format!("no certificate of {name}: {certificate}")))?;
        *self.state() = State {
            credential,
            revoked: None,
        };
        tally.count(Count::Enrolled);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trouble {
    /// Classifies a client error.
    pub(super) fn of(place: &str, error: &ClientError) -> Self {
        let message = format!("{place}: {error}");
        if error.is_closed() || matches!(error, ClientError::Reset(REFUSED_STREAM)) {
            Self::Ended(message)
        } else {
            Self::Lost(message)
        }
    }

    /// Returns `Refused` if this is the answer to a revoked client.
    pub(super) fn refusal(answer: &Response) -> Option<Self> {
        (answer.status == 403 && answer.text().contains("revoked")).then_some(Self::Refused)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("refused as a revoked client"),
            Self::Ended(message) => write!(f, "the connection was closed: {message}"),
            Self::Lost(message) => f.write_str(message),
        }
    }
}

/// The beginning of an answer's body, for messages.
pub(super) fn beginning(answer: &Response) -> String {
    answer.text().chars().take(200).collect()
}

fn client(estate: &SoakEstate, credential: Option<&TestCredential>) -> Client {
    estate.proxy.client(credential).timeout(ANSWER_WITHIN)
}

/// Headers of all requests.
pub(super) const HEADERS: &[(&str, &str)] = &[(
    "User-Agent",
    "Puppet/7.23.0 Ruby/3.1.2-p20 (x86_64-linux-gnu)",
)];
/// `REFUSED_STREAM` (RFC 9113, section 7): the stream was opened after a GOAWAY and was not processed.
const REFUSED_STREAM: u32 = 7;
/// A request without an answer for this long is lost, even on a machine under load.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
