//! Names that a configuration may give to the identity headers.

use std::{borrow::Cow, fmt};

use http::header::HeaderName;

/// The name of an identity header.
///
/// It consists of letters, digits and `-`. HTTP, proxies and Puppet agents do not use it for another purpose. The proxy removes
/// headers with this name from every client request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityName {
    header: HeaderName,
    written: Cow<'static, str>,
}

/// Why a string cannot be the name of an identity header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty or too long.
    #[error("a header's name has 1 to {max} characters", max = IdentityName::BYTES_MAX)]
    Length,
    /// A character that some servers fold, or that header names cannot contain.
    #[error("the name contains {0:?}, and servers differ in how they read that")]
    Character(char),
    /// HTTP or a Puppet agent uses the header for another purpose.
    #[error("the header {0} has another purpose, and the proxy would remove it from every request")]
    Taken(String),
    /// The header describes the connection, not the client's identity.
    #[error(
        "the header {0} describes how a request was forwarded, and other software relies on it"
    )]
    Forwarding(String),
}

impl IdentityName {
    /// Maximum bytes of a name. A longer name is probably a mistake.
    pub const BYTES_MAX: usize = 64;

    /// Parses a name.
    ///
    /// # Errors
    /// Some server could read the name as another one, or the header has another purpose.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > Self::BYTES_MAX {
            return Err(NameError::Length);
        }
        let odd = |c: &char| !c.is_ascii_alphanumeric() && *c != '-';
        if let Some(odd) = text.chars().find(odd) {
            return Err(NameError::Character(odd));
        }
        let lower = text.to_ascii_lowercase();
        if text.starts_with('-') || text.ends_with('-') {
            return Err(NameError::Character('-'));
        }
        let begins = |families: &[&str]| families.iter().any(|family| lower.starts_with(family));
        if FORWARDING.contains(&&*lower) || begins(FORWARDING_FAMILIES) {
            return Err(NameError::Forwarding(text.to_owned()));
        }
        if TAKEN.contains(&&*lower) || begins(TAKEN_FAMILIES) {
            return Err(NameError::Taken(text.to_owned()));
        }
        let header = HeaderName::from_bytes(lower.as_bytes()).map_err(|_| NameError::Length)?;
        let written = text.to_owned().into();
        Ok(Self { header, written })
    }

    pub(crate) const fn usual(header: HeaderName, written: &'static str) -> Self {
        let written = Cow::Borrowed(written);
        Self { header, written }
    }

    /// The name in lower case, for comparisons. `Display` shows the configured spelling.
    pub fn as_str(&self) -> &str {
        self.header.as_str()
    }

    /// The role of a well-known name. Such a name must not be used for a different role.
    pub fn known_role(&self) -> Option<HeaderRole> {
        let known = KNOWN.iter().find(|(name, _)| *name == self.as_str());
        known.map(|(_, role)| *role)
    }

    pub(crate) fn header(&self) -> &HeaderName {
        &self.header
    }
}

impl fmt::Display for IdentityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// The content of an identity header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeaderRole {
    /// The verdict.
    Verify,
    /// The subject.
    Dn,
    /// The certificate.
    Cert,
}

impl fmt::Display for HeaderRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Verify => "the verdict",
            Self::Dn => "the subject",
            Self::Cert => "the certificate",
        })
    }
}

/// Well-known names. Puppet's servers, or the front ends used with them, read each name for one role.
const KNOWN: &[(&str, HeaderRole)] = &[
    ("x-client-verify", HeaderRole::Verify),
    ("x-client-dn", HeaderRole::Dn),
    ("x-client-cert", HeaderRole::Cert),
    ("x-ssl-client-verify", HeaderRole::Verify),
    ("x-ssl-client-dn", HeaderRole::Dn),
    ("x-ssl-subject", HeaderRole::Dn),
    ("x-ssl-client-cert", HeaderRole::Cert),
    ("x-ssl-certificate", HeaderRole::Cert),
    ("ssl-client-verify", HeaderRole::Verify),
    ("ssl-client-s-dn", HeaderRole::Dn),
    ("ssl-client-cert", HeaderRole::Cert),
];

const FORWARDING: &[&str] = &["forwarded", "x-real-ip", "via", "x-client-ip"];
const FORWARDING_FAMILIES: &[&str] = &["x-forwarded", "forwarded-", "x-original-", "x-proxy"];

/// Framing, addressing, hop-by-hop headers and credentials; headers of agents and their HTTP libraries; headers that
/// the proxy sets itself.
const TAKEN: &[&str] = &[
    "age",
    "allow",
    "authorization",
    "baggage",
    "cache-control",
    "client-cert", // RFC 9440: a structured field, which Puppet servers cannot read
    "client-cert-chain",
    "connection",
    "cookie",
    "cookie2",
    "date",
    "dnt",
    "early-data",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "keep-alive",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "prefer",
    "priority",
    "range",
    "referer",
    "retry-after",
    "server",
    "set-cookie",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "upgrade-insecure-requests",
    "user-agent",
    "vary",
    "warning",
    "www-authenticate",
    "x-authentication", // a user's token of Puppet Enterprise
    "x-request-id",
    "x-rewrite-url",
    "x-uri",
];

const TAKEN_FAMILIES: &[&str] = &[
    "accept",
    "access-control-",
    "content-",
    "http-", // the prefix of CGI: servers that remove it read another name
    "http2-",
    "if-",
    "proxy",
    "sec-",
    "x-auth-",
    "x-http-",
    "x-puppet-",
];

#[cfg(test)]
mod tests;
