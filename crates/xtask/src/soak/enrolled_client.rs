//! How a client stands with the CA: its certificate, whether a CRL names it, and what may then happen to it.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use testkit::{Client, ClientError, Credential, Enrolment, Protocol, Response};

use super::{
    estate::SoakEstate,
    tally::{Count, Tally},
};

/// A client's certificate, and whether a CRL names it.
pub(super) struct EnrolledClient {
    pub(super) certname: String,
    protocol: Protocol,
    patience: Duration,
    state: Mutex<State>,
}

struct State {
    credential: Credential,
    revoked: Option<Instant>,
}

/// Why something broke off.
pub(super) enum Trouble {
    /// Answered 403, as whoever is revoked.
    Refused,
    /// The connection was ended without an answer, as idle ones of whoever is revoked.
    Ended(String),
    /// Anything else: nobody may be treated so.
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

    /// Who connects with the present certificate.
    pub(super) fn client(&self, estate: &SoakEstate) -> Client {
        client(estate, Some(&self.state().credential)).protocol(self.protocol)
    }

    /// From now on a CRL is to name it; the certificate to name there.
    pub(super) fn revoke(&self) -> Credential {
        let mut state = self.state();
        state.revoked = Some(Instant::now());
        state.credential.clone()
    }

    /// Since when it is revoked and has no other certificate.
    pub(super) fn revoked(&self) -> Option<Instant> {
        self.state().revoked
    }

    /// Whoever is revoked has to be refused, soon, and enrols anew; whoever is not, never.
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
                    tally.miss(format!("{} cannot enrol anew: {trouble}", self.certname));
                }
            }
            _ => tally.miss(format!("{}: {trouble}", self.certname)),
        }
    }

    /// On a connection of its own, what is revoked is told so.
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
                "revoked, and told {} {}",
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
    /// What a failure means.
    pub(super) fn of(place: &str, error: &ClientError) -> Self {
        let message = format!("{place}: {error}");
        match error.is_closed() || matches!(error, ClientError::Reset(REFUSED_STREAM)) {
            true => Self::Ended(message),
            false => Self::Lost(message),
        }
    }

    /// Whether an answer is the one to whoever is revoked.
    pub(super) fn refusal(answer: &Response) -> Option<Self> {
        (answer.status == 403 && answer.text().contains("revoked")).then_some(Self::Refused)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("refused as a revoked one is"),
            Self::Ended(message) => write!(f, "the connection was ended: {message}"),
            Self::Lost(message) => f.write_str(message),
        }
    }
}

/// The beginning of an answer's body, to be told.
pub(super) fn beginning(answer: &Response) -> String {
    answer.text().chars().take(200).collect()
}

fn client(estate: &SoakEstate, credential: Option<&Credential>) -> Client {
    estate.proxy.client(credential).timeout(ANSWER_WITHIN)
}

/// What all requests say besides.
pub(super) const HEADERS: &[(&str, &str)] = &[(
    "User-Agent",
    "Puppet/7.23.0 Ruby/3.1.2-p20 (x86_64-linux-gnu)",
)];
/// Not looked at (RFC 9113, 7), as a stream that was opened behind a GOAWAY.
const REFUSED_STREAM: u32 = 7;
/// No answer for so long is a lost request, on a loaded machine too.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
