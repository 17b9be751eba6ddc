//! The trusted headers: made once a connection, stamped on each request.

use std::sync::{Arc, OnceLock};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::{Agent, CertFormat, ClientIdentity, HeaderForm, Verdict};

/// Always sent, exactly once, under this name unless the configuration has another.
pub const X_CLIENT_VERIFY: HeaderName = HeaderName::from_static("x-client-verify");
/// Sent beside `SUCCESS` only.
pub const X_CLIENT_DN: HeaderName = HeaderName::from_static("x-client-dn");
/// Sent beside `SUCCESS` only, where endpoint class and pool allow it; never empty.
pub const X_CLIENT_CERT: HeaderName = HeaderName::from_static("x-client-cert");

/// What members are told about one client, as ready header values in every form that some pool asks for.
#[derive(Clone, Debug)]
pub struct IdentityHeaders {
    verify: HeaderValue,
    verified: Option<VerifiedHeaders>,
}

#[derive(Clone, Debug)]
struct VerifiedHeaders {
    agent: Arc<Agent>,
    /// Whether the certificate that was presented is the one that was verified.
    certificate_told: bool,
    /// Made when a request first needs them: most pools need none.
    escaped: OnceLock<Option<HeaderValue>>,
    one_line: OnceLock<Option<HeaderValue>>,
}

impl IdentityHeaders {
    /// Makes the values for one connection.
    ///
    /// `leaf_der` is the certificate that the client presented. It is told on only if it is byte for byte the one
    /// that was verified; a Puppet server does not compare the two headers.
    pub fn new(identity: &ClientIdentity, leaf_der: Option<&[u8]>) -> Self {
        if identity.agent().is_some_and(Agent::is_supposed) {
            return Self::new(&ClientIdentity::Anonymous, None);
        }
        let verified = match identity {
            ClientIdentity::Verified(agent) => Some(VerifiedHeaders {
                agent: Arc::clone(agent),
                certificate_told: leaf_der.is_some_and(|der| der == agent.leaf()),
                escaped: OnceLock::new(),
                one_line: OnceLock::new(),
            }),
            ClientIdentity::Anonymous | ClientIdentity::Refused(_) => None,
        };
        let verify = match identity.verdict() {
            Verdict::Success => HeaderValue::from_static("SUCCESS"),
            Verdict::None => HeaderValue::from_static("NONE"),
            failed @ Verdict::Failed(_) => HeaderValue::try_from(failed.to_string())
                .unwrap_or(HeaderValue::from_static("FAILED:malformed")),
        };
        Self { verify, verified }
    }

    /// Sets the headers in the form that a pool's servers read, each exactly once, in the place of whatever stood
    /// there; to be called last.
    pub fn stamp(&self, form: &HeaderForm, headers: &mut HeaderMap, with_certificate: bool) {
        let told = self.verified.as_ref();
        let dn = told.and_then(|verified| verified.agent.told(form.dn_format));
        // Success without a subject would be nobody's: an agent that was judged before this form was in use.
        let verify = match (told, dn) {
            (Some(_), None) => HeaderValue::from_static("FAILED:subject"),
            _ => self.verify.clone(),
        };
        headers.insert(form.verify.header().clone(), verify);
        for name in &form.dn {
            set(headers, name.header(), dn);
        }
        let certificate = told
            .filter(|_| with_certificate && dn.is_some())
            .and_then(|verified| verified.certificate(form.cert_format));
        set(headers, form.cert.header(), certificate);
    }

    /// Whether the certificate is told in this form, where a request is to have it.
    pub fn tells_certificate(&self, form: &HeaderForm) -> bool {
        self.verified.as_ref().is_some_and(|verified| {
            verified.agent.told(form.dn_format).is_some()
                && verified.certificate(form.cert_format).is_some()
        })
    }

    /// Bytes of the certificate's header value in the form that a pool's servers read; 0 where there is none to tell.
    pub fn certificate_length(&self, form: &HeaderForm) -> usize {
        let told = self.verified.as_ref();
        let value = told.and_then(|verified| verified.certificate(form.cert_format));
        value.map_or(0, HeaderValue::len)
    }
}

impl VerifiedHeaders {
    fn certificate(&self, format: CertFormat) -> Option<&HeaderValue> {
        let der = Some(self.agent.leaf()).filter(|_| self.certificate_told)?;
        let value = match format {
            CertFormat::Escaped => self.escaped.get_or_init(|| escaped_pem(der)),
            CertFormat::OneLine => self.one_line.get_or_init(|| one_line_pem(der)),
        };
        value.as_ref()
    }
}

fn set(headers: &mut HeaderMap, name: &HeaderName, value: Option<&HeaderValue>) {
    match value {
        Some(value) => drop(headers.insert(name.clone(), value.clone())),
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

/// The certificate as Rack of Puppet 4.6 to 5 mends it: PEM with a blank for each newline but the last.
fn one_line_pem(der: &[u8]) -> Option<HeaderValue> {
    if der.is_empty() {
        return None;
    }
    HeaderValue::try_from(pem(der).trim_end().replace('\n', " ")).ok()
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
