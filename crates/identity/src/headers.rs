//! The trusted headers: made once a connection, stamped on each request.

use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::header_names::{CLIENT_CERT, CLIENT_CERT_CHAIN, X_FORWARDED_CLIENT_CERT};
use crate::{Agent, CertFormat, ClientIdentity, HeaderForm, HeaderSet, Verdict};

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
}

impl IdentityHeaders {
    /// Makes the values for one connection.
    ///
    /// `leaf_der` is the certificate that the client presented. It is told on only if it is byte for byte the one
    /// that was verified; a Puppet server does not compare the two headers.
    pub fn new(identity: &ClientIdentity, leaf_der: Option<&[u8]>) -> Self {
        if identity.agent().is_some_and(Agent::is_assumed) {
            return Self::new(&ClientIdentity::Anonymous, None);
        }
        let verified = match identity {
            ClientIdentity::Verified(agent) => Some(VerifiedHeaders {
                agent: Arc::clone(agent),
                certificate_told: leaf_der.is_some_and(|der| der == agent.leaf()),
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
        self.for_each(form, with_certificate, |name, value| match value {
            Some(value) => drop(headers.insert(name.clone(), value.clone())),
            None => drop(headers.remove(name)),
        });
    }

    /// Says each header of the form once, with its value; none: the request must have no header of this name.
    pub fn for_each<'a>(
        &'a self,
        form: &'a HeaderForm,
        with_certificate: bool,
        mut say: impl FnMut(&'a HeaderName, Option<&'a HeaderValue>),
    ) {
        for told in &form.sets {
            let name = match told {
                HeaderSet::Puppet => {
                    self.tell_puppets(form, with_certificate, &mut say);
                    continue;
                }
                HeaderSet::ClientCert => &CLIENT_CERT,
                HeaderSet::ClientCertChain => &CLIENT_CERT_CHAIN,
                HeaderSet::Xfcc => &X_FORWARDED_CLIENT_CERT,
            };
            say(name, self.other(*told, with_certificate));
        }
    }

    fn tell_puppets<'a>(
        &'a self,
        form: &'a HeaderForm,
        with_certificate: bool,
        say: &mut impl FnMut(&'a HeaderName, Option<&'a HeaderValue>),
    ) {
        let told = self.verified.as_ref();
        let dn = told.and_then(|verified| verified.agent.told(form.dn_format));
        // Success without a subject would be nobody's: an agent that was judged before this form was in use.
        let verify = match (told, dn) {
            (Some(_), None) => &FAILED_SUBJECT,
            _ => &self.verify,
        };
        say(form.verify.header(), Some(verify));
        for name in &form.dn {
            say(name.header(), dn);
        }
        let certificate = told
            .filter(|_| with_certificate && dn.is_some())
            .and_then(|verified| verified.certificate(form.cert_format));
        say(form.cert.header(), certificate);
    }

    /// Whether the certificate is told in this form, where a request is to have it.
    pub fn has_certificate(&self, form: &HeaderForm) -> bool {
        let verified = self
            .verified
            .as_ref()
            .filter(|_| form.sends(HeaderSet::Puppet));
        verified.is_some_and(|verified| {
            verified.agent.told(form.dn_format).is_some()
                && verified.certificate(form.cert_format).is_some()
        })
    }

    /// Bytes of the header values that the certificate is told in, of all sets of the form; 0 where there is none to tell.
    pub fn certificate_length(&self, form: &HeaderForm) -> usize {
        self.length(form, true)
    }

    /// Bytes of the values that tell of the certificate where it does not go along itself.
    pub fn digest_length(&self, form: &HeaderForm) -> usize {
        self.length(form, false)
    }

    fn length(&self, form: &HeaderForm, with_certificate: bool) -> usize {
        let told = self.verified.as_ref().filter(|_| with_certificate);
        let values = form.sets.iter().map(|set| match set {
            HeaderSet::Puppet => told.and_then(|verified| verified.certificate(form.cert_format)),
            other => self.other(*other, with_certificate),
        });
        values.map(|value| value.map_or(0, HeaderValue::len)).sum()
    }

    /// The value of a header that is none of Puppet's.
    fn other(&self, set: HeaderSet, with_certificate: bool) -> Option<&HeaderValue> {
        let verified = self
            .verified
            .as_ref()
            .filter(|verified| verified.certificate_told)?;
        let values = verified.agent.others()?;
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
        let told = Some(&self.agent).filter(|_| self.certificate_told)?;
        told.certificate(format)
    }
}

static FAILED_SUBJECT: HeaderValue = HeaderValue::from_static("FAILED:subject");

#[cfg(test)]
mod tests;
