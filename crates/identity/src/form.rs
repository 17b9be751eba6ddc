//! The form of the identity headers of a pool: header names, the spelling of the subject, and the encoding of the certificate.

use std::fmt;

use crate::header_names::{
    CLIENT_CERT, CLIENT_CERT_CHAIN, X_CLIENT_CERT, X_CLIENT_DN, X_CLIENT_VERIFY,
    X_FORWARDED_CLIENT_CERT, X_SSL_CLIENT_CERT,
};
use crate::identity_name::{HeaderRole, IdentityName};

/// The spelling of the subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DnFormat {
    /// RFC 2253, with the last RDN first. Only this form is accepted by every Puppet server since version 3.
    #[default]
    Rfc2253,
    /// OpenSSL's old form in the certificate's order: `/O=Example/CN=web01`.
    OpenSsl,
    /// The syntax of RFC 2253 with the CN at the end. Mongrel and Rack of Puppet 0.23 to 2.7 need it, because they use
    /// everything after the first `CN=` as the name.
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

/// The encoding of the certificate in one header line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CertFormat {
    /// PEM, percent-escaped: for Puppet Server.
    #[default]
    Escaped,
    /// PEM with a space for each newline: for Rack of Puppet 4.6 to 5.
    OneLine,
}

/// A set of headers with a client's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeaderSet {
    /// Verdict, subject and certificate, as Puppet's servers read them.
    Puppet,
    /// RFC 9440's `Client-Cert`: the certificate.
    ClientCert,
    /// RFC 9440's `Client-Cert-Chain`: the intermediates of the verified path.
    ClientCertChain,
    /// Envoy's `X-Forwarded-Client-Cert`: digest, certificate, subject and alternative names.
    Xfcc,
}

impl HeaderSet {
    /// The name of the only header of the set. `None` for Puppet's headers, which each form names.
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

/// The subject formats of a configuration. RFC 2253 is always one of them, because access records use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DnFormats {
    openssl: bool,
    cn_last: bool,
}

impl DnFormats {
    /// Whether the configuration uses `format`, so that subjects must be unambiguous in it.
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

/// The form of the identity headers: `[identity]`. `[pools.NAME.identity]` overrides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderForm {
    /// Which sets of headers are sent. Default Puppet's alone.
    pub sets: Vec<HeaderSet>,
    /// The header with the verdict. Default `X-Client-Verify`.
    pub verify: IdentityName,
    /// The headers with the subject. Default `X-Client-DN` alone.
    pub dn: Vec<IdentityName>,
    /// Spelling of the subject. Default RFC 2253.
    pub dn_format: DnFormat,
    /// The header with the certificate, if it is sent. Default `X-Client-Cert`.
    pub cert: IdentityName,
    /// Encoding of the certificate. Default percent-escaped.
    pub cert_format: CertFormat,
}

impl HeaderForm {
    /// Maximum number of names for the subject's header.
    pub const DN_NAMES_MAX: usize = 4;

    /// Whether a CA of Puppet Server 8 can read the certificate in a renewal. The header name and the encoding that it reads
    /// are fixed.
    pub fn supports_renewal(&self) -> bool {
        self.sends(HeaderSet::Puppet)
            && *self.cert.header() == X_CLIENT_CERT
            && self.cert_format == CertFormat::Escaped
    }

    /// Whether this set of headers is sent.
    pub fn sends(&self, set: HeaderSet) -> bool {
        self.sets.contains(&set)
    }

    /// Names of the headers that are sent in addition to Puppet's headers, or instead of them.
    pub fn other_names(&self) -> impl Iterator<Item = IdentityName> {
        self.sets.iter().filter_map(|set| set.name())
    }

    /// The names of Puppet's headers, each with its role.
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
    /// Puppet's name for the header with this encoding.
    pub fn usual_name(self) -> IdentityName {
        match self {
            Self::Escaped => IdentityName::usual(X_CLIENT_CERT, "X-Client-Cert"),
            Self::OneLine => IdentityName::usual(X_SSL_CLIENT_CERT, "X-SSL-Client-Cert"),
        }
    }
}

#[cfg(test)]
mod tests;
