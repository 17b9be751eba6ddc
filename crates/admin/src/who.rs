//! What the proxy knows about an agent or a certificate, and how it would decide now.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::{ActiveCa, BlockStatus, ProxyCertificateStatus, Timestamp};

/// The subject of `who`: exactly one of a certname, a serial with its issuer, a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WhoRequest {
    /// An agent that was seen since the start, or the subject of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certname: Option<String>,
    /// Serial of a certificate of `issuer`, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Distinguished name (RFC 2253) of a CA of the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// PEM: a certificate, and the CAs between it and the bundle if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// What the proxy knows, and how it would decide now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoStatus {
    /// The subject, for people.
    pub about: String,
    /// The requested certificate, or the one that the agent showed last.
    pub certificate: Option<CertificateStatus>,
    /// `SUCCESS` or `FAILED:reason`. None: no certificate is known, or nothing excludes it and its path to a CA is not cached.
    pub verdict: Option<String>,
    /// The text of the 403 that its agent would get.
    pub refusal: Option<String>,
    /// What each CA's CRL says about the serial.
    pub crls: Vec<RevocationStatus>,
    /// Blocks that match it.
    pub blocks: Vec<BlockStatus>,
    /// The endpoints that it may use, one of each class; empty if the certificate is not available or is refused.
    pub access: Vec<AccessStatus>,
    /// The agent when it was last seen.
    pub seen: Option<SeenStatus>,
    /// Recent refusals of clients with this name, the latest first. A name that is not verified may belong to any client.
    pub refusals: Vec<RefusalStatus>,
    /// The CAs of the bundle that do not sign each other, of which each can issue the name (RFC 2253); empty if there is only
    /// one.
    #[serde(default)]
    pub separate_cas: Vec<String>,
}

/// Body of `GET /v1/refusals`: clients that were refused since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusalsStatus {
    /// The latest first.
    pub refusals: Vec<RefusalStatus>,
    /// How many entries were removed to make room for later ones.
    pub evicted: u64,
}

/// A refused client. Repeated refusals for one reason are one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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

/// The decision of routes and rules on one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessStatus {
    /// Class of the endpoint.
    pub class: String,
    /// Method and path that were evaluated.
    pub request: String,
    /// Whether the request would be passed on.
    pub allowed: bool,
    /// The route that would serve it, or why it would be refused, with the rule.
    pub decided_by: String,
}

/// A certificate, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateStatus {
    /// Certname, if the subject has one. Only the verdict `SUCCESS` proves it.
    pub certname: Option<String>,
    /// In hexadecimal.
    pub serial: String,
    /// RFC 2253.
    pub issuer: String,
    /// When it becomes valid.
    pub not_before: Timestamp,
    /// When it expires.
    pub not_after: Timestamp,
}

/// What one CA's CRL says about a serial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevocationStatus {
    /// RFC 2253.
    pub issuer: String,
    /// CRL number; none if the CA has no CRL.
    pub number: Option<String>,
    /// Where it was read from.
    pub source: Option<String>,
    /// Whether the serial is on it.
    pub revoked: bool,
    /// When it was revoked, if the CRL can be read again.
    pub revoked_at: Option<Timestamp>,
    /// The reason in the words of RFC 5280, if the CA gives one.
    pub reason: Option<String>,
}

/// An agent when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SeenStatus {
    /// When it last connected or sent a request.
    pub at: Timestamp,
    /// Its address.
    pub client: String,
    /// Its last requests, the newest first.
    pub requests: Vec<RequestStatus>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestStatus {
    /// When its head was complete.
    pub at: Timestamp,
    /// Method and the beginning of the target.
    pub line: String,
    /// Status code sent.
    pub status: Option<u16>,
    /// Why it was refused or failed.
    pub reason: Option<String>,
}

/// The inventory of agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentsStatus {
    /// How many agents were seen since the start and are in memory.
    pub seen: usize,
    /// Those whose certificates expire first, up to [`AGENTS_SHOWN_MAX`].
    pub agents: Vec<AgentStatus>,
}

/// Maximum number of agents in one response: about 6 MB.
pub const AGENTS_SHOWN_MAX: usize = 20_000;

/// One agent of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentStatus {
    /// The certificate it showed last.
    #[serde(flatten)]
    pub certificate: CertificateStatus,
    /// When it last connected or sent a request.
    pub at: Timestamp,
    /// Its address.
    pub client: String,
    /// Why its certificate is refused now, if a CRL or a block says so: `revoked`, `blocked`.
    pub refused: Option<String>,
}

/// Why `who` cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WhoError {
    /// The proxy failed while it worked on the request.
    #[error("the request failed because of an internal error; the events of the proxy show it")]
    Internal,
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
}

/// Answer to `GET /v1/certificates`: certificates that expire soon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificatesStatus {
    /// CAs of the bundle. One that a later certificate with the same key supersedes is not listed.
    #[serde(default)]
    pub cas: Vec<ActiveCa>,
    /// Certificates that the proxy presents.
    pub proxy: Vec<ProxyCertificateStatus>,
    /// Certificates of agents that were seen, the first expiry first.
    pub agents: Vec<AgentStatus>,
}
