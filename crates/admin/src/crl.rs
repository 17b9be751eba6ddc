//! Revocation lists as the operator speaks of them: what a fetch has brought, and what was accepted all the same.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Timestamp;

/// How lists are fetched from the CA, and what came of it last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrlFetchStatus {
    /// The last time that the CA was asked.
    pub last_attempt: Option<Timestamp>,
    /// The last time that it has answered with a list, or that there is no other.
    pub last_answer: Option<Timestamp>,
    /// The member that did.
    pub member: Option<String>,
    /// Why there is no answer since; none: there is.
    pub failing: Option<FailingFetch>,
    /// Lists that it gives and that are not put in force, since they take something back.
    pub refused: Vec<RefusedCrl>,
}

/// A fetch that does not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingFetch {
    /// Since when.
    pub since: Timestamp,
    /// Why, for people.
    pub why: String,
}

/// A list that takes something back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCrl {
    /// Issuer as RFC 2253 spells it; what `accept` takes.
    pub issuer: String,
    /// CRL number.
    pub number: String,
    /// Revoked certificates on it.
    pub entries: u64,
    /// CRL number of the one in force.
    pub active_number: String,
    /// Whether its number is lower than that.
    pub is_older: bool,
    /// Revoked certificates that it does not name.
    pub missing: u64,
    /// Since when it is refused.
    pub since: Timestamp,
}

/// What came of a fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrlFetchOutcome {
    /// In one word.
    pub result: CrlFetchResult,
    /// For people: what is in force now, what is refused and why.
    pub report: String,
}

/// What came of a fetch, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CrlFetchResult {
    /// A list was put in force.
    Applied,
    /// What is in force is what the CA has.
    Unchanged,
    /// A list takes something back and is refused; others may have been put in force.
    Refused,
    /// There was no answer, or none to be used.
    Failed,
    /// Nothing is fetched: `[trust.fetch]` says so, or the process is stopping.
    Off,
}

/// Body of `POST /v1/crl/accept`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrlAcceptRequest {
    /// Issuer of the refused list, as RFC 2253 spells it.
    pub issuer: String,
    /// Why: it stands in the log. Up to 500 bytes.
    pub why: String,
}

/// What was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrlAccepted {
    /// The lists that are in force now.
    pub accepted: Vec<RefusedCrl>,
    /// Why a restart would undo this; none: it would not.
    pub not_persisted: Option<String>,
}

/// Why nothing was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CrlAcceptError {
    /// It makes no sense.
    #[error("{0}")]
    Senseless(String),
    /// No list of that issuer is refused.
    #[error("no CRL of \"{issuer}\" is refused; {}", refused_crls(.refused))]
    NotRefused {
        /// Whose was asked for.
        issuer: String,
        /// Whose are.
        refused: Vec<String>,
    },
    /// Another list has come into force since that one was refused.
    #[error(
        "the active CRL has changed since that CRL was refused, so nothing was accepted: {0}; to accept it anyway, run the command again"
    )]
    Changed(String),
    /// The process is stopping.
    #[error("the process is stopping")]
    Stopping,
}

fn refused_crls(refused: &[String]) -> String {
    match refused {
        [] => "the proxy refuses no CRL".to_owned(),
        _ => format!("the refused CRLs are those of {}", refused.join("; ")),
    }
}

impl CrlFetchResult {
    /// As JSON and metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
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

impl fmt::Display for RefusedCrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            issuer,
            number,
            entries,
            active_number,
            missing,
            ..
        } = self;
        let certificates = |count: u64| match count {
            1 => "1 revoked certificate".to_owned(),
            count => format!("{count} revoked certificates"),
        };
        write!(f, "{issuer}: number {number} with {entries} entries ")?;
        match (self.is_older, missing) {
            (true, 0) => write!(f, "is older than the active one, number {active_number}"),
            (true, _) => write!(
                f,
                "is older than the active one, number {active_number}, and lacks {} of it",
                certificates(*missing)
            ),
            (false, _) => write!(
                f,
                "lacks {} of the active one, number {active_number}",
                certificates(*missing)
            ),
        }
    }
}
