//! How a request would be handled: the answer to `POST /v1/explain`, which `proscenium explain` shows.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

/// Body of `POST /v1/explain`: a request, and the client that sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// Method of the request.
    pub method: String,
    /// Its URL, or its path.
    pub url: String,
    /// Its header fields.
    #[serde(default)]
    pub headers: Vec<NamedValue>,
    /// Certname of an agent that is assumed to be verified; none: a client without a certificate.
    #[serde(default)]
    pub certname: Option<String>,
    /// Subject of the CA that signed its certificate (RFC 2253).
    #[serde(default)]
    pub issuer: Option<String>,
    /// Extensions of its certificate. An extension has Puppet's name, a name from the configuration, or an OID.
    #[serde(default)]
    pub extensions: Vec<NamedValue>,
    /// Address of the client.
    #[serde(default)]
    pub source: Option<String>,
    /// Server name that the client indicates in its handshake (SNI).
    #[serde(default)]
    pub sni: Option<String>,
    /// Name of the listener that accepts its connection. If not given, the only listener that terminates TLS.
    #[serde(default)]
    pub listener: Option<String>,
}

/// A header field, or an extension of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedValue {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// How the proxy would handle a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestExplanation {
    /// Whether the proxy would refuse the request, or every listener the handshake.
    pub is_refused: bool,
    /// Why the stored blocks are not applied.
    pub blocks_not_applied: Option<String>,
    /// The client.
    pub client: ExplainedClient,
    /// The listeners that treat this client in another way.
    pub listeners: Vec<ListenerDifference>,
    /// How many header fields are removed before routing, because they would claim an identity.
    pub headers_removed: u32,
    /// The path of the request.
    pub path: String,
    /// The steps of the decision, in order. Empty if the path is refused.
    pub steps: Vec<ExplainedStep>,
    /// The access rule that would refuse the request, but only observes.
    pub observed_rule: Option<String>,
    /// What happens to the request.
    pub outcome: ExplainedOutcome,
}

/// The client of an explained request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedClient {
    /// `NONE`, `SUCCESS` or `FAILED:` and the reason.
    pub verdict: String,
    /// Certname of a verified agent.
    pub certname: Option<String>,
    /// Why its certificate is refused.
    pub refusal: Option<String>,
    /// The CA that signed the certificate of a verified agent (RFC 2253).
    pub issuer: Option<String>,
    /// The CAs that can issue a certificate with this name and do not sign each other.
    pub possible_issuers: Vec<String>,
    /// The extensions of its certificate that rules can match.
    pub extensions: Vec<ExplainedExtension>,
}

/// An extension of the client's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedExtension {
    /// Its name.
    pub name: String,
    /// Its value. `null`: the value is ambiguous, so it matches no route and no rule that allows, and every rule that
    /// refuses.
    pub value: Option<String>,
}

/// A listener that treats a client in another way than explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListenerDifference {
    /// Its name.
    pub listener: String,
    /// How it treats the client.
    pub difference: String,
}

/// A step of the decision about a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedStep {
    /// What was decided, for example `route a: no match, by its condition "source"`.
    pub text: String,
    /// The route that was tried.
    pub route: Option<String>,
    /// The access rule that was tried.
    pub rule: Option<String>,
    /// The condition that excluded the route or the rule. `null`: it matches.
    pub failed_condition: Option<String>,
    /// The option of `proscenium explain` that the condition needs and that is not set.
    pub missing_option: Option<String>,
}

/// What happens to an explained request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ExplainedOutcome {
    /// The proxy answers with the state of its compilers.
    Status,
    /// The proxy refuses it.
    Refused(ExplainedRefusal),
    /// A member of a pool gets it.
    Forwarded(Box<ExplainedForward>),
}

/// A refusal by the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedRefusal {
    /// Its status code.
    pub status: u16,
    /// The reason in records and metrics.
    pub reason: String,
    /// The text of the response.
    pub text: String,
    /// Whether the modern equivalent of the path would decide with `legacy_routes = true`.
    pub needs_legacy_routes: bool,
}

/// How a request is forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedForward {
    /// The route that it takes.
    pub route: String,
    /// The pool that gets it.
    pub pool: String,
    /// The copy of a CA document that answers in place of the pool.
    pub copy: Option<ExplainedCopy>,
    /// Header fields that identify a client elsewhere and are kept by `keep_headers`.
    pub headers_kept: Vec<String>,
    /// Header fields that are removed by `remove_headers`.
    pub headers_removed: Vec<String>,
    /// The identity headers that the member gets, in words.
    pub identity: String,
    /// The protocols that the request may switch to.
    pub upgrade: Vec<String>,
    /// The name that replaces the names of members in texts and redirects.
    pub member_name: Option<String>,
    /// The certname whose certificate request the body must be.
    pub certificate_request: Option<String>,
    /// Why the client stays with one member, or why not.
    pub persistence: Option<String>,
    /// What the algorithm of the pool needs and the request does not have.
    pub order_lacks: Option<String>,
    /// The members that may get it, in the order in which they would be tried.
    pub members: Vec<ExplainedMember>,
    /// Whether every member is assumed up and idle, because no proxy probes it for this explanation.
    pub members_assumed_up: bool,
    /// Whether the request waits for a member.
    pub queue: ExplainedQueue,
}

/// A copy of a CA document that the proxy answers with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedCopy {
    /// The document.
    pub document: String,
    /// How long ago the CA may have confirmed it, in seconds.
    pub age_seconds_max: u64,
}

/// A member that may get an explained request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedMember {
    /// Its address.
    pub address: String,
    /// Whether it is a backup.
    pub is_backup: bool,
    /// Its priority: 0 is tried first.
    pub priority: u32,
    /// Whether it would get the request if the members before it failed.
    pub is_used: bool,
    /// The reason for its position, or why it is not used.
    pub why: String,
}

/// Whether an explained request waits for a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ExplainedQueue {
    /// A member has room for it now.
    DoesNotWait,
    /// It waits in the queue of the pool, and is refused with 503 if no member gets room.
    Waits {
        /// How long it waits at most, in seconds.
        seconds_max: u64,
        /// Why it waits.
        why: String,
    },
    /// It is refused with 503 at once.
    Refused {
        /// The reason in records and metrics.
        reason: String,
        /// What is missing.
        why: String,
    },
}

/// Why a request cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExplainError {
    /// Its method is invalid.
    #[error("`{0}` is not a method")]
    Method(String),
    /// The address of its client is invalid.
    #[error("`{0}` is not an IP address")]
    Source(String),
    /// The authority of its URL is invalid.
    #[error("`{0}` is not a host")]
    Host(String),
    /// The name of a header field is invalid.
    #[error("`{0}` is not a header name")]
    HeaderName(String),
    /// The value of a header field is invalid.
    #[error("`{0}` is not a header value")]
    HeaderValue(String),
    /// No listener that terminates TLS has this name.
    #[error("`{0}` is not a listener that terminates TLS")]
    Listener(String),
    /// The certname is invalid.
    #[error("certname `{0}`: {1}")]
    Certname(String, String),
    /// No extension has this name.
    #[error("unknown extension `{0}`")]
    Extension(String),
    /// The file has no certificate that can be read.
    #[error("certificate {0}: {1}")]
    Certificate(String, String),
    /// The proxy failed while it worked on the request.
    #[error("the request failed because of an internal error; the events of the proxy show it")]
    Internal,
}
