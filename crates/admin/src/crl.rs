//! CRLs as the operator sees them: the results of fetches, and accepted CRLs.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::Timestamp;

/// The state of fetching CRLs from the CA.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CrlFetchStatus {
    /// The last attempt.
    pub last_attempt: Option<Timestamp>,
    /// The last time that the CA answered with a CRL, or that its CRL is unchanged.
    pub last_answer: Option<Timestamp>,
    /// The member that answered.
    pub member: Option<String>,
    /// Why there has been no answer since; none: there was one.
    pub failing: Option<FailingFetch>,
    /// CRLs that drop revocations, which stay active until an operator accepts that.
    pub shrunk: Vec<ShrunkCrlStatus>,
}

/// A failing fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailingFetch {
    /// Since when it fails.
    pub since: Timestamp,
    /// The reason, for people.
    pub why: String,
}

/// A CRL that drops revocations, or is empty although its CA has issued many certificates (`missing` is then 0).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShrunkCrlStatus {
    /// Issuer (RFC 2253); the argument of `accept`.
    pub issuer: String,
    /// CRL number.
    pub number: String,
    /// Number of revoked certificates.
    pub entries: u64,
    /// CRL number of the newest CRL when this one was compared with it.
    pub active_number: String,
    /// Whether its number is lower.
    pub is_older: bool,
    /// Revoked certificates that are missing from it. They stay revoked.
    pub missing: u64,
    /// How many of them `accept` would accept again. CRL files list the others.
    pub accepted_again: u64,
    /// Since when revocations are missing.
    pub since: Timestamp,
}

/// The result of a fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CrlFetchOutcome {
    /// The result in one word.
    pub result: CrlFetchResult,
    /// For people: what is active now, which CRLs drop revocations, and what was unusable and why.
    pub report: String,
}

/// The result of a fetch, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CrlFetchResult {
    /// A CRL became active.
    Applied,
    /// The active CRLs are those of the CA.
    Unchanged,
    /// A CRL drops revocations, which stay active. The revocations that it adds, and other CRLs, may have become active.
    Shrunk,
    /// There was no usable answer.
    Failed,
    /// The proxy does not fetch: `[trust.fetch]` says so, or the process is stopping.
    Off,
}

/// Body of `POST /v1/crl/accept`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CrlAcceptRequest {
    /// Issuer (RFC 2253) of the CRL that drops revocations.
    pub issuer: String,
    /// The CRL's `number` in `shrunk`, as the operator saw it. The request fails if it is another one now; none: any.
    #[serde(default)]
    pub number: Option<String>,
    /// Its `missing` in `shrunk`, in the same way.
    #[serde(default, deserialize_with = "count")]
    #[schema(maximum = 4294967295_u64)]
    pub missing: Option<u64>,
    /// The reason, for the log. Up to 500 bytes.
    pub why: String,
}

/// A count. In JSON Schema, every number without a fraction is an integer, `2.0` too.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = Option::<f64>::deserialize(deserializer)?;
    let whole = number.map(|number| number as u64);
    if whole.map(|whole| whole as f64) == number {
        Ok(whole)
    } else {
        Err(serde::de::Error::custom("not a whole number from 0 on"))
    }
}

/// The result of accepting that a CRL drops revocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CrlAccepted {
    /// The CRLs that are active now.
    pub accepted: Vec<ShrunkCrlStatus>,
    /// Why a restart would undo this; none: it would not.
    pub not_persisted: Option<String>,
}

/// Why no CRL was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CrlAcceptError {
    /// The proxy failed while it worked on the request.
    #[error("the request failed because of an internal error; the events of the proxy show it")]
    Internal,
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// No CRL of that issuer drops revocations.
    #[error("no CRL of \"{issuer}\" drops revocations; {}", other_issuers(.shrunk))]
    NotShrunk {
        /// The requested issuer.
        issuer: String,
        /// Issuers with a CRL that drops revocations.
        shrunk: Vec<String>,
    },
    /// The CRLs have changed since the missing revocations were reported.
    #[error(
        "the CRLs have changed since the missing revocations were reported, so nothing was accepted: {0}"
    )]
    Changed(String),
    /// The process is stopping.
    #[error("the process is stopping")]
    Stopping,
}

fn other_issuers(shrunk: &[String]) -> String {
    match shrunk {
        [] => "neither does one of another CA".to_owned(),
        _ => format!("those of {} do", shrunk.join("; ")),
    }
}

impl ShrunkCrlStatus {
    /// The command that accepts this CRL, and no other that the CA may have sent meanwhile.
    pub fn command(&self) -> String {
        format!(
            "proscenium crl accept \"{}\" --number {} --missing {} --why TEXT",
            self.issuer, self.number, self.missing
        )
    }

    /// What `accept` does, as the end of a sentence.
    pub fn consequence(&self) -> String {
        let again = match self.accepted_again {
            0 => "no certificate becomes valid again".to_owned(),
            1 => "1 certificate becomes valid again if it has not expired".to_owned(),
            count => format!("{count} certificates become valid again if they have not expired"),
        };
        match self.missing.saturating_sub(self.accepted_again) {
            0 => again,
            1 => format!("{again}, and 1 that a CRL file lists stays revoked"),
            count => format!("{again}, and {count} that CRL files list stay revoked"),
        }
    }
}

impl CrlFetchResult {
    /// As in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Shrunk => "shrunk",
            Self::Failed => "failed",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for CrlFetchResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for ShrunkCrlStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            issuer,
            number,
            entries,
            active_number,
            missing,
            ..
        } = self;
        let lacks = match missing {
            0 => "is empty, although the CA has issued many certificates".to_owned(),
            1 => "lacks 1 revoked certificate, which stays revoked".to_owned(),
            count => format!("lacks {count} revoked certificates, which stay revoked"),
        };
        write!(f, "{issuer}: number {number} with {entries} entries ")?;
        match (self.is_older, missing) {
            (true, 0) => write!(f, "is older than number {active_number}"),
            (true, _) => write!(f, "is older than number {active_number}, and {lacks}"),
            (false, _) => f.write_str(&lacks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_every_number_without_a_fraction() {
        for (text, count) in [
            ("null", Some(None)),
            ("0", Some(Some(0))),
            ("2", Some(Some(2))),
            ("2.0", Some(Some(2))),
            ("2.5", None),
            ("-1", None),
            ("1e300", None),
            ("\"2\"", None),
        ] {
            let body = format!(r#"{{"issuer": "CN=a", "why": "b", "missing": {text}}}"#);
            let request = serde_json::from_str::<CrlAcceptRequest>(&body);
            assert_eq!(request.ok().map(|request| request.missing), count, "{text}");
        }
    }
}
