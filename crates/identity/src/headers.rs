//! The trusted headers: made once a connection, stamped on each request.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::{ClientIdentity, Verdict};

/// Always sent, exactly once.
pub const X_CLIENT_VERIFY: HeaderName = HeaderName::from_static("x-client-verify");
/// Sent beside `SUCCESS` only.
pub const X_CLIENT_DN: HeaderName = HeaderName::from_static("x-client-dn");
/// Sent beside `SUCCESS` only, where endpoint class and pool allow it; never empty.
pub const X_CLIENT_CERT: HeaderName = HeaderName::from_static("x-client-cert");

/// What a member is told about one client, as ready header values.
#[derive(Clone, Debug)]
pub struct IdentityHeaders {
    verify: HeaderValue,
    verified: Option<VerifiedHeaders>,
}

#[derive(Clone, Debug)]
struct VerifiedHeaders {
    dn: HeaderValue,
    certificate: Option<HeaderValue>,
}

impl IdentityHeaders {
    /// Makes the values for one connection.
    ///
    /// `leaf_der` is the certificate that the client presented. It is told on only if it is byte for byte the one
    /// that was verified; a Puppet server does not compare the two headers.
    pub fn new(identity: &ClientIdentity, leaf_der: Option<&[u8]>) -> Self {
        if identity.agent().is_some_and(crate::Agent::is_supposed) {
            return Self::new(&ClientIdentity::Anonymous, None);
        }
        let verified = identity.agent().map(|agent| VerifiedHeaders {
            dn: agent.dn_value().clone(),
            certificate: leaf_der
                .filter(|der| *der == agent.leaf())
                .and_then(escaped_pem),
        });
        let verify = match identity.verdict() {
            Verdict::Success => HeaderValue::from_static("SUCCESS"),
            Verdict::None => HeaderValue::from_static("NONE"),
            failed @ Verdict::Failed(_) => HeaderValue::try_from(failed.to_string())
                .unwrap_or(HeaderValue::from_static("FAILED:malformed")),
        };
        Self { verify, verified }
    }

    /// Sets the headers, each exactly once, in the place of whatever stood there; to be called last.
    pub fn stamp(&self, headers: &mut HeaderMap, with_certificate: bool) {
        headers.insert(X_CLIENT_VERIFY, self.verify.clone());
        let dn = self.verified.as_ref().map(|verified| &verified.dn);
        set(headers, X_CLIENT_DN, dn);
        let certificate = self
            .verified
            .as_ref()
            .and_then(|verified| verified.certificate.as_ref());
        set(
            headers,
            X_CLIENT_CERT,
            certificate.filter(|_| with_certificate),
        );
    }

    /// Bytes that [`Self::stamp`] adds to a head, names and separators included: Jetty's limit is 8 KiB for all.
    pub fn bytes(&self) -> usize {
        let line = |name: &HeaderName, value: &HeaderValue| {
            name.as_str().len() + value.len() + ": \r\n".len()
        };
        let mut bytes = line(&X_CLIENT_VERIFY, &self.verify);
        if let Some(verified) = &self.verified {
            bytes += line(&X_CLIENT_DN, &verified.dn);
            bytes += verified
                .certificate
                .as_ref()
                .map_or(0, |value| line(&X_CLIENT_CERT, value));
        }
        bytes
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<&HeaderValue>) {
    match value {
        Some(value) => drop(headers.insert(name, value.clone())),
        None => drop(headers.remove(name)),
    }
}

/// The certificate as Puppet servers decode it: PEM, everything but unreserved characters percent-escaped.
fn escaped_pem(der: &[u8]) -> Option<HeaderValue> {
    if der.is_empty() {
        return None;
    }
    let text: String = percent_encode(pem(der).as_bytes(), ESCAPED).collect();
    HeaderValue::try_from(text).ok()
}

fn pem(der: &[u8]) -> String {
    let mut out = String::with_capacity(der.len() * 3 / 2 + 64);
    out.push_str("-----BEGIN CERTIFICATE-----\n");
    for line in der.chunks(BYTES_A_LINE) {
        for group in line.chunks(3) {
            push_base64(&mut out, group);
        }
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

fn push_base64(out: &mut String, group: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    for index in 0..4 {
        if index > group.len() {
            out.push('=');
        } else {
            out.push(char::from(
                ALPHABET[(bits >> (18 - 6 * index)) as usize & 63],
            ));
        }
    }
}

/// 48 bytes make the 64 columns of PEM.
const BYTES_A_LINE: usize = 48;

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

#[cfg(test)]
mod tests;
