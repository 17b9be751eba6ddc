//! The form in which a pool's servers are told who the client is: names of headers, spelling of the subject, encoding
//! of the certificate.

use std::{borrow::Cow, fmt};

use http::header::HeaderName;

use crate::headers::{X_CLIENT_CERT, X_CLIENT_DN, X_CLIENT_VERIFY};
use crate::scrub::{same_for_readers, seems_identity};

/// How the subject is spelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DnFormat {
    /// RFC 2253, the last RDN first: the one form that every Puppet server since 3 accepts.
    #[default]
    Rfc2253,
    /// OpenSSL's old form, `/O=Example/CN=web01`, in the certificate's order.
    OpenSsl,
    /// The syntax of RFC 2253 with the CN moved to the end, where Mongrel and Rack of Puppet 0.23 to 2.7 need it: they
    /// take everything after the first `CN=` for the name.
    CnLast,
}

impl fmt::Display for DnFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rfc2253 => "rfc2253",
            Self::OpenSsl => "openssl",
            Self::CnLast => "cn-last",
        })
    }
}

/// How the certificate is written into one header line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CertFormat {
    /// PEM, percent-escaped: Puppet Server.
    #[default]
    Escaped,
    /// PEM with blanks for newlines: Rack of Puppet 4.6 to 5.
    OneLine,
}

/// A set of headers that tell a pool's servers who the client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeaderSet {
    /// Verdict, subject and certificate, as Puppet's servers read them.
    Puppet,
    /// RFC 9440's `Client-Cert`: the certificate.
    ClientCert,
    /// RFC 9440's `Client-Cert-Chain`: the intermediates of the path that was verified.
    ClientCertChain,
    /// Envoy's `X-Forwarded-Client-Cert`: digest, certificate, subject, alternative names.
    Xfcc,
}

impl HeaderSet {
    /// The name of its only header; none of Puppet's, which have names of their own in each form.
    pub fn name(self) -> Option<IdentityName> {
        match self {
            Self::Puppet => None,
            Self::ClientCert => Some(IdentityName::usual(CLIENT_CERT.clone(), "Client-Cert")),
            Self::ClientCertChain => Some(IdentityName::usual(
                CLIENT_CERT_CHAIN.clone(),
                "Client-Cert-Chain",
            )),
            Self::Xfcc => Some(IdentityName::usual(
                X_FORWARDED_CLIENT_CERT.clone(),
                "X-Forwarded-Client-Cert",
            )),
        }
    }
}

/// Subject formats that the servers behind us are told in; RFC 2253, which records use, is always among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DnFormats {
    openssl: bool,
    cn_last: bool,
}

impl DnFormats {
    /// Whether a subject has to be fit for `format`.
    pub fn contains(self, format: DnFormat) -> bool {
        match format {
            DnFormat::Rfc2253 => true,
            DnFormat::OpenSsl => self.openssl,
            DnFormat::CnLast => self.cn_last,
        }
    }
}

impl FromIterator<DnFormat> for DnFormats {
    fn from_iter<I: IntoIterator<Item = DnFormat>>(formats: I) -> Self {
        let mut set = Self::default();
        for format in formats {
            set.openssl |= format == DnFormat::OpenSsl;
            set.cn_last |= format == DnFormat::CnLast;
        }
        set
    }
}

/// What a header of ours tells.
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

/// The name of a header that tells who the client is.
///
/// A value in hand is made of letters, digits and `-`, and is no name that HTTP, a proxy or a Puppet agent uses for
/// something else: whatever a client sends under it is removed from every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityName {
    header: HeaderName,
    written: Cow<'static, str>,
}

/// Why a text cannot be the name of an identity header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, or more than a name.
    #[error("a header's name has 1 to {max} characters", max = IdentityName::BYTES_MAX)]
    Length,
    /// A character that readers fold, or that is none of a name.
    #[error("the name contains {0:?}, and servers differ in how they read that")]
    Character(char),
    /// HTTP or a Puppet agent uses it for something else.
    #[error("the header {0} has another purpose, and the proxy would remove it from every request")]
    Taken(String),
    /// It tells of the connection, never of the client's identity.
    #[error(
        "the header {0} describes how a request was forwarded, and other software relies on it"
    )]
    Forwarding(String),
}

impl IdentityName {
    /// Longer names are a mistake.
    pub const BYTES_MAX: usize = 64;

    /// # Errors
    /// If some reader could take the name for another one, or if it is in use for something else.
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

    const fn usual(header: HeaderName, written: &'static str) -> Self {
        let written = Cow::Borrowed(written);
        Self { header, written }
    }

    /// The name as it is compared, in lower case; shown as it was written.
    pub fn as_str(&self) -> &str {
        self.header.as_str()
    }

    /// What this name tells wherever it is known, if it is: no other work is given to it.
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

/// The form of the trusted headers: `[identity]`, overridden by `[pools.NAME.identity]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderForm {
    /// Which headers are sent. Default Puppet's alone.
    pub sets: Vec<HeaderSet>,
    /// Tells the verdict. Default `X-Client-Verify`.
    pub verify: IdentityName,
    /// Each tells the subject. Default `X-Client-DN` alone.
    pub dn: Vec<IdentityName>,
    /// Spelling of the subject. Default RFC 2253.
    pub dn_format: DnFormat,
    /// Tells the certificate, where that is told at all. Default `X-Client-Cert`.
    pub cert: IdentityName,
    /// Encoding of the certificate. Default percent-escaped.
    pub cert_format: CertFormat,
}

impl HeaderForm {
    /// Most names of the subject's header.
    pub const DN_NAMES_MAX: usize = 4;

    /// Whether the certificate is told as a CA of Puppet Server 8 reads it for a renewal, which has no setting for that.
    pub fn supports_renewal(&self) -> bool {
        self.sends(HeaderSet::Puppet)
            && *self.cert.header() == X_CLIENT_CERT
            && self.cert_format == CertFormat::Escaped
    }

    /// Whether this set of headers is sent.
    pub fn sends(&self, set: HeaderSet) -> bool {
        self.sets.contains(&set)
    }

    /// Names of the headers that are sent beside Puppet's, or in their place.
    pub fn other_names(&self) -> impl Iterator<Item = IdentityName> {
        self.sets.iter().filter_map(|set| set.name())
    }

    /// Every name of Puppet's headers with what it tells.
    pub fn names(&self) -> impl Iterator<Item = (&IdentityName, HeaderRole)> {
        let dn = self.dn.iter().map(|name| (name, HeaderRole::Dn));
        [
            (&self.verify, HeaderRole::Verify),
            (&self.cert, HeaderRole::Cert),
        ]
        .into_iter()
        .chain(dn)
    }
}

impl Default for HeaderForm {
    fn default() -> Self {
        Self {
            sets: vec![HeaderSet::Puppet],
            verify: IdentityName::usual(X_CLIENT_VERIFY, "X-Client-Verify"),
            dn: vec![IdentityName::usual(X_CLIENT_DN, "X-Client-DN")],
            dn_format: DnFormat::default(),
            cert: CertFormat::default().usual_name(),
            cert_format: CertFormat::default(),
        }
    }
}

impl CertFormat {
    /// The name under which Puppet reads this encoding.
    pub fn usual_name(self) -> IdentityName {
        match self {
            Self::Escaped => IdentityName::usual(X_CLIENT_CERT, "X-Client-Cert"),
            Self::OneLine => IdentityName::usual(X_SSL_CLIENT_CERT, "X-SSL-Client-Cert"),
        }
    }
}

/// The names that a configuration gives to our headers, of all its pools: a client may use none of them on any route,
/// since a request that reaches one pool is not kept from the next by anything else than its path.
#[derive(Clone, Debug, Default)]
pub struct OwnNames {
    /// Those that `scrub` does not know by itself.
    unknown: Vec<IdentityName>,
    /// All but the three of the default form.
    renamed: Vec<IdentityName>,
}

impl OwnNames {
    /// The names of all these forms.
    pub fn of<'f>(forms: impl IntoIterator<Item = &'f HeaderForm>) -> Self {
        let mut own = Self::default();
        let usual = HeaderForm::default();
        let names = |form: &HeaderForm| {
            let puppets: Vec<_> = form.names().map(|(name, _)| name.clone()).collect();
            puppets
                .into_iter()
                .chain(form.other_names().collect::<Vec<_>>())
        };
        for name in forms.into_iter().flat_map(names) {
            let same = |other: &IdentityName| other.header == name.header;
            if usual.names().any(|(usual, _)| same(usual)) || own.renamed.iter().any(same) {
                continue;
            }
            if !seems_identity(name.as_str()) {
                own.unknown.push(name.clone());
            }
            own.renamed.push(name);
        }
        own
    }

    /// Headers of a response that are nobody's business downstream, beside the three of the default form.
    pub fn renamed(&self) -> impl Iterator<Item = &HeaderName> {
        self.renamed.iter().map(IdentityName::header)
    }

    /// Whether some reader takes `name`, without a prefix of CGI's, for one of these.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        let same = |own: &IdentityName| same_for_readers(name, own.as_str().as_bytes());
        self.unknown.iter().any(same)
    }
}

pub(crate) static CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
pub(crate) static CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
pub(crate) static X_FORWARDED_CLIENT_CERT: HeaderName =
    HeaderName::from_static("x-forwarded-client-cert");
const X_SSL_CLIENT_CERT: HeaderName = HeaderName::from_static("x-ssl-client-cert");

/// Names that Puppet's servers or the front ends of its time read, each for one thing.
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

/// Framing, addressing, hop-by-hop and credentials; what agents and their HTTP libraries send; what we set ourselves.
const TAKEN: &[&str] = &[
    "age",
    "allow",
    "authorization",
    "baggage",
    "cache-control",
    "client-cert", // RFC 9440: a structured field, not what a Puppet server reads
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
    "x-authentication", // PE's token of a person
    "x-request-id",
    "x-rewrite-url",
    "x-uri",
];

const TAKEN_FAMILIES: &[&str] = &[
    "accept",
    "access-control-",
    "content-",
    "http-", // CGI's prefix: readers that take it off would see another name
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
