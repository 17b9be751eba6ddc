//! The client's certificate in standard headers: `Client-Cert` and `Client-Cert-Chain` of RFC 9440, and Envoy's
//! `X-Forwarded-Client-Cert`.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::certificate_value::escaped_text;
use crate::subject::Subject;

/// How a certificate was verified. The header values are computed from that when a request first needs them.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedPath {
    sha256: [u8; 32],
    /// The intermediate certificates: the agent's issuer comes first, and the trust anchor is left out.
    intermediates: Arc<[Arc<[u8]>]>,
    values: OnceLock<Box<CertificateHeaders>>,
}

/// The header values. `None`: the header is not sent.
#[derive(Clone, Debug)]
pub(crate) struct CertificateHeaders {
    pub(crate) client_cert: Option<HeaderValue>,
    pub(crate) client_cert_chain: Option<HeaderValue>,
    pub(crate) xfcc: Option<HeaderValue>,
    pub(crate) xfcc_with_certificate: Option<HeaderValue>,
}

impl VerifiedPath {
    pub(crate) fn new(sha256: [u8; 32], intermediates: Arc<[Arc<[u8]>]>) -> Self {
        Self {
            sha256,
            intermediates,
            values: OnceLock::new(),
        }
    }

    /// The header values for the certificate. The certificate must be the same on each call.
    pub(crate) fn values(&self, leaf: &[u8]) -> &CertificateHeaders {
        self.values.get_or_init(|| {
            Box::new(CertificateHeaders {
                client_cert: value(byte_sequence(leaf)),
                client_cert_chain: value(self.chain()),
                xfcc: value(self.xfcc(leaf, false)),
                xfcc_with_certificate: value(self.xfcc(leaf, true)),
            })
        })
    }

    /// A list of RFC 8941. For an empty list the header is left out.
    fn chain(&self) -> Option<String> {
        let items: Option<Vec<_>> = self
            .intermediates
            .iter()
            .map(|der| byte_sequence(der))
            .collect();
        items
            .filter(|items| !items.is_empty())
            .map(|items| items.join(", "))
    }

    /// One element, with its keys in the order that Envoy uses. `By` is left out, because it is the URI of a proxy in a service
    /// mesh.
    fn xfcc(&self, leaf: &[u8], with_certificate: bool) -> Option<String> {
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        let subject = Subject::of(certificate.subject()).quotable()?;
        let mut out = String::from("Hash=");
        for byte in self.sha256 {
            let _ = write!(out, "{byte:02x}");
        }
        if with_certificate {
            let _ = write!(out, ";Cert=\"{}\"", escaped_text(leaf)?);
        }
        let _ = write!(out, ";Subject=\"{subject}\"");
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        let uris = names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Some(("URI", *uri)),
            _ => None,
        });
        let hosts = names.iter().filter_map(|name| match name {
            GeneralName::DNSName(host) => Some(("DNS", *host)),
            _ => None,
        });
        for (key, text) in uris.chain(hosts).filter(|(_, text)| is_unambiguous(text)) {
            let quote = if text.contains([',', ';', '=']) {
                "\""
            } else {
                ""
            };
            let _ = write!(out, ";{key}={quote}{text}{quote}");
        }
        Some(out)
    }
}

fn value(text: Option<String>) -> Option<HeaderValue> {
    HeaderValue::try_from(text?).ok()
}

/// A byte sequence of RFC 8941, section 3.3.5: base64 between colons. `None` if `der` is empty.
fn byte_sequence(der: &[u8]) -> Option<String> {
    (!der.is_empty()).then(|| format!(":{}:", STANDARD.encode(der)))
}

/// Whether all readers read a name in the same way: it is printable ASCII without spaces, quotes and backslashes. Other names
/// are left out, because a reader could find a second key in them.
fn is_unambiguous(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

#[cfg(test)]
mod tests;
