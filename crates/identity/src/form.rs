//! The form in which a pool's servers are told who the client is: names of headers, spelling of the subject, encoding
//! of the certificate.

use std::fmt;

use crate::header_names::{
    CLIENT_CERT, CLIENT_CERT_CHAIN, X_CLIENT_CERT, X_CLIENT_DN, X_CLIENT_VERIFY,
    X_FORWARDED_CLIENT_CERT, X_SSL_CLIENT_CERT,
};
use crate::identity_name::{HeaderRole, IdentityName};

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

#[cfg(test)]
mod tests;
