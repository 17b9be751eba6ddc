//! The identity headers. They are made once per connection, and stamped on each request.

use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::header_names::{CLIENT_CERT, CLIENT_CERT_CHAIN, X_FORWARDED_CLIENT_CERT};
use crate::{Agent, CertFormat, ClientIdentity, HeaderForm, HeaderSet, Verdict};

/// The identity of one client as header values, in every form that the pools use.
#[derive(Clone, Debug)]
pub struct IdentityHeaders {
    verify: HeaderValue,
    verified: Option<VerifiedHeaders>,
}

#[derive(Clone, Debug)]
struct VerifiedHeaders {
    agent: Arc<Agent>,
    /// Whether the certificate that the client presented is the one that was verified.
    is_verified_certificate: bool,
}

impl IdentityHeaders {
    /// Makes the values for one connection.
    ///
    /// `leaf_der` is the certificate that the client presented. The certificate is sent only if it equals the verified
    /// certificate byte for byte, because a Puppet server does not compare the headers of the subject and of the certificate.
    pub fn new(identity: &ClientIdentity, leaf_der: Option<&[u8]>) -> Self {
        if identity.agent().is_some_and(Agent::is_assumed) {
            return Self::new(&ClientIdentity::Anonymous, None);
        }
        let verified = match identity {
            ClientIdentity::Verified(agent) => Some(VerifiedHeaders {
                agent: Arc::clone(agent),
                is_verified_certificate: leaf_der.is_some_and(|der| der == agent.leaf()),
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

    /// Sets each header of the form exactly once, and replaces existing values. Call this after all other changes.
    pub fn stamp(&self, form: &HeaderForm, headers: &mut HeaderMap, with_certificate: bool) {
        self.for_each(form, with_certificate, |name, value| match value {
            Some(value) => drop(headers.insert(name.clone(), value.clone())),
            None => drop(headers.remove(name)),
        });
    }

    /// Calls `set_header` once for each header of the form, with its value. If there is no value, the request must not have
    /// this header.
    pub fn for_each<'a>(
        &'a self,
        form: &'a HeaderForm,
        with_certificate: bool,
        mut set_header: impl FnMut(&'a HeaderName, Option<&'a HeaderValue>),
    ) {
        for set in &form.sets {
            let name = match set {
                HeaderSet::Puppet => {
                    self.for_each_of_puppet(form, with_certificate, &mut set_header);
                    continue;
                }
                HeaderSet::ClientCert => &CLIENT_CERT,
                HeaderSet::ClientCertChain => &CLIENT_CERT_CHAIN,
                HeaderSet::Xfcc => &X_FORWARDED_CLIENT_CERT,
            };
            set_header(name, self.other(*set, with_certificate));
        }
    }

    /// Calls `set_header` only for the header of the certificate, for a CA that reads no other header.
    pub fn certificate_alone<'a>(
        &'a self,
        form: &'a HeaderForm,
        mut set_header: impl FnMut(&'a HeaderName, Option<&'a HeaderValue>),
    ) {
        let name = form.cert.header();
        self.for_each_of_puppet(form, true, &mut |of, value| {
            if of == name {
                set_header(of, value);
            }
        });
    }

    fn for_each_of_puppet<'a>(
        &'a self,
        form: &'a HeaderForm,
        with_certificate: bool,
        set_header: &mut impl FnMut(&'a HeaderName, Option<&'a HeaderValue>),
    ) {
        let verified = self.verified.as_ref();
        let dn = verified.and_then(|verified| verified.agent.dn_header(form.dn_format));
        // The agent was created before this form was active. `SUCCESS` without a subject would prove no name.
        let verify = match (verified, dn) {
            (Some(_), None) => &FAILED_SUBJECT,
            _ => &self.verify,
        };
        set_header(form.verify.header(), Some(verify));
        for name in &form.dn {
            set_header(name.header(), dn);
        }
        let certificate = verified
            .filter(|_| with_certificate && dn.is_some())
            .and_then(|verified| verified.certificate(form.cert_format));
        set_header(form.cert.header(), certificate);
    }

    /// Whether requests that may carry the certificate do carry it in this form.
    pub fn has_certificate(&self, form: &HeaderForm) -> bool {
        let verified = self
            .verified
            .as_ref()
            .filter(|_| form.sends(HeaderSet::Puppet));
        verified.is_some_and(|verified| {
            verified.agent.dn_header(form.dn_format).is_some()
                && verified.certificate(form.cert_format).is_some()
        })
    }

    /// Bytes of the header values that contain the certificate, for all sets of the form. 0 without a certificate.
    pub fn certificate_length(&self, form: &HeaderForm) -> usize {
        self.length(form, true)
    }

    /// Bytes of the header values that are sent without the certificate itself.
    pub fn digest_length(&self, form: &HeaderForm) -> usize {
        self.length(form, false)
    }

    fn length(&self, form: &HeaderForm, with_certificate: bool) -> usize {
        let verified = self.verified.as_ref().filter(|_| with_certificate);
        let values = form.sets.iter().map(|set| match set {
            HeaderSet::Puppet => {
                verified.and_then(|verified| verified.certificate(form.cert_format))
            }
            other => self.other(*other, with_certificate),
        });
        values.map(|value| value.map_or(0, HeaderValue::len)).sum()
    }

    /// The value for the only header of a set other than Puppet's.
    fn other(&self, set: HeaderSet, with_certificate: bool) -> Option<&HeaderValue> {
        let verified = self
            .verified
            .as_ref()
            .filter(|verified| verified.is_verified_certificate)?;
        let values = verified.agent.certificate_headers()?;
        match set {
            HeaderSet::Puppet => None,
            HeaderSet::ClientCert => values.client_cert.as_ref().filter(|_| with_certificate),
            HeaderSet::ClientCertChain => values
                .client_cert_chain
                .as_ref()
                .filter(|_| with_certificate),
            HeaderSet::Xfcc if with_certificate => values.xfcc_with_certificate.as_ref(),
            HeaderSet::Xfcc => values.xfcc.as_ref(),
        }
    }
}

impl VerifiedHeaders {
    fn certificate(&self, format: CertFormat) -> Option<&HeaderValue> {
        let agent = Some(&self.agent).filter(|_| self.is_verified_certificate)?;
        agent.certificate(format)
    }
}

static FAILED_SUBJECT: HeaderValue = HeaderValue::from_static("FAILED:subject");

#[cfg(test)]
mod tests;
