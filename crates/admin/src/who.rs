//! What is known of an agent or a certificate, and what would be decided of it now.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{BlockStatus, Timestamp};

/// Whom `who` asks about: exactly one of a certname, a serial with its issuer, a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhoRequest {
    /// An agent that was seen since the start, or that a block may be about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certname: Option<String>,
    /// Serial in hexadecimal, of `issuer`'s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Distinguished name (RFC 2253) of a CA of the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// PEM: a certificate, and those between it and the CA if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// What is known, and what would be decided now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoStatus {
    /// Whom it is about, for people.
    pub about: String,
    /// The certificate: the one asked about, or the one that the agent showed last.
    pub certificate: Option<CertificateStatus>,
    /// `SUCCESS`, `FAILED:reason`; none where no certificate is known, or nothing speaks against it and its path to a CA is
    /// not remembered.
    pub verdict: Option<String>,
    /// The text that its agent would get with a 403.
    pub refusal: Option<String>,
    /// What each CA's list says of the serial.
    pub crls: Vec<RevocationStatus>,
    /// Blocks that are about it.
    pub blocks: Vec<BlockStatus>,
    /// What it may ask for, an endpoint of each class; empty where the certificate is not at hand or is refused.
    pub access: Vec<AccessStatus>,
    /// The agent as it was seen last.
    pub seen: Option<SeenStatus>,
    /// Recent refusals of clients with this name, the latest first; a name that is not verified may be anybody's.
    pub refusals: Vec<RefusalStatus>,
}

/// Body of `GET /v1/refusals`: clients that were refused since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalsStatus {
    /// The latest refusal first.
    pub refusals: Vec<RefusalStatus>,
    /// How many entries were removed to make room for later ones.
    pub evicted: u64,
}

/// A refused client. Repeated refusals for one reason are one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalStatus {
    /// The first of these refusals.
    pub first_at: Timestamp,
    /// The latest of them.
    pub last_at: Timestamp,
    /// How many there were.
    pub count: u64,
    /// Address of the client.
    pub client: String,
    /// The listener that it connected to.
    pub listener: String,
    /// The name in its certificate, if it is known.
    pub certname: Option<String>,
    /// Whether a trusted certificate proves that name.
    pub verified: bool,
    /// Why: the reason of the verdict on its certificate (`revoked`), or that of the access record (`not-own`).
    pub reason: String,
}

/// What routes and rules say of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessStatus {
    /// Class of the endpoint.
    pub class: String,
    /// Method and path that were tried.
    pub request: String,
    /// Whether it would be passed on.
    pub allowed: bool,
    /// The route that would serve it; or why it would be refused, with the rule.
    pub decided_by: String,
}

/// A certificate, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// Name of the agent, where the subject is one; nothing proves it but the verdict `SUCCESS`.
    pub certname: Option<String>,
    /// In hexadecimal.
    pub serial: String,
    /// RFC 2253.
    pub issuer: String,
    /// When its time begins.
    pub not_before: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
}

/// What one CA's list says of a serial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationStatus {
    /// RFC 2253.
    pub issuer: String,
    /// Number of the list; none where that CA has none.
    pub number: Option<String>,
    /// Where it was read from.
    pub source: Option<String>,
    /// Whether the serial is on it.
    pub revoked: bool,
    /// Since when, as far as the list can be read again.
    pub revoked_at: Option<Timestamp>,
    /// Why, in the words of RFC 5280, if the CA says.
    pub reason: Option<String>,
}

/// An agent as it was seen last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenStatus {
    /// When it connected or asked last.
    pub at: Timestamp,
    /// From where.
    pub client: String,
    /// What it asked for last, the newest first.
    pub requests: Vec<RequestStatus>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestStatus {
    /// When its head was whole.
    pub at: Timestamp,
    /// Method and the beginning of the target.
    pub line: String,
    /// Status code sent.
    pub status: Option<u16>,
    /// Why it was refused or failed.
    pub reason: Option<String>,
}

/// The inventory of agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentsStatus {
    /// How many agents were seen since the start and are kept.
    pub seen: usize,
    /// Those whose certificates end first, up to [`AGENTS_SHOWN_MAX`].
    pub agents: Vec<AgentStatus>,
}

/// Most agents in one answer: about 6 MB.
pub const AGENTS_SHOWN_MAX: usize = 20_000;

/// One agent of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The certificate it showed last.
    #[serde(flatten)]
    pub certificate: CertificateStatus,
    /// When it connected or asked last.
    pub at: Timestamp,
    /// From where.
    pub client: String,
    /// Why its certificate is refused by now, where its issuer's list or a block says so: `revoked`, `blocked`.
    pub refused: Option<String>,
}

/// Why `who` has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WhoError {
    /// The question makes no sense.
    #[error("{0}")]
    Senseless(String),
}
