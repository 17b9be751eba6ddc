//! The running configuration, what a reload would change, and how a request would be handled now.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::{ReloadOutcome, Timestamp};

/// Answer to `GET /v1/configuration`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigurationStatus {
    /// Number of the active generation.
    pub generation: u64,
    /// When it became active.
    pub loaded_at: Timestamp,
    /// Path of the configuration file.
    pub file: String,
    /// The active configuration as TOML, without values that are defaults.
    pub active: String,
    /// What a reload would do: `unchanged` if the files are those that are active.
    pub reload: ReloadOutcome,
}

/// Body of `POST /v1/explain`: a request, and the client that sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LiveExplainRequest {
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
    /// Extensions of its certificate.
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

/// How the running proxy would handle the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveExplanation {
    /// Each step and the result, one line each.
    pub text: String,
    /// Whether the proxy would refuse the request.
    pub is_refused: bool,
}

/// Why a request cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LiveExplainError(pub String);
