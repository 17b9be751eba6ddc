//! The client of an explained request: its identity, and how the listeners treat it.

use std::{path::Path, sync::Arc};

use admin::{
    ExplainError, ExplainRequest, ExplainedClient, ExplainedExtension, ListenerDifference,
    NamedValue,
};
use identity::{Agent, Certname, ClientIdentity, ExtensionValue, Reason, Refusal};
use listener::{ClientCertPolicy, InvalidCertPolicy, ListenerSettings};
use routing::oid_of;
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};

use super::{Explained, Explainer};

impl Explainer {
    pub(super) fn identity(
        &self,
        request: &ExplainRequest,
        certificate: Option<&Path>,
    ) -> Result<ClientIdentity, ExplainError> {
        let trust = &self.generation.trust;
        if let Some(file) = certificate {
            return Ok(trust.verify(&read_chain(file)?, UnixTime::now()).identity);
        }
        let Some(certname) = &request.certname else {
            return Ok(ClientIdentity::Anonymous);
        };
        let agent = Certname::parse(certname)
            .map(Agent::assumed)
            .map_err(|error| ExplainError::Certname(certname.clone(), error.to_string()))?;
        let extensions = self.extensions_by_oid(&request.extensions)?;
        let blocks = trust.deny_list();
        if blocks
            .of_certname(agent.certname(), UnixTime::now())
            .is_some()
        {
            return Ok(ClientIdentity::Refused(Refusal {
                reason: Reason::Blocked,
                certificate: format!("of {certname}"),
                help: "proscenium blocks shows why.".to_owned(),
                claimed: Some(agent.certname().clone()),
                is_issued: true,
            }));
        }
        let agent = agent.assuming(request.issuer.as_deref(), extensions);
        Ok(ClientIdentity::Verified(Arc::new(agent)))
    }

    /// The given extensions by OID.
    fn extensions_by_oid(
        &self,
        extensions: &[NamedValue],
    ) -> Result<Vec<(String, String)>, ExplainError> {
        let own = self.generation.routes.extension_names();
        let by_oid = |extension: &NamedValue| {
            let oid = oid_of(&extension.name, own)
                .ok_or_else(|| ExplainError::Extension(extension.name.clone()))?;
            Ok((oid, extension.value.clone()))
        };
        extensions.iter().map(by_oid).collect()
    }

    /// What is known about the client.
    pub(super) fn client(&self, identity: &ClientIdentity) -> ExplainedClient {
        let agent = identity.agent();
        let separate_roots = || {
            let roots = self.generation.trust.separate_roots(UnixTime::now());
            roots.into_iter().map(str::to_owned).collect()
        };
        let issuer = agent.map(Agent::issuer).filter(|issuer| !issuer.is_empty());
        ExplainedClient {
            verdict: identity.verdict().to_string(),
            certname: agent.map(|agent| agent.certname().to_string()),
            refusal: match identity {
                ClientIdentity::Refused(refusal) => Some(refusal.text()),
                _ => None,
            },
            issuer: issuer.map(str::to_owned),
            possible_issuers: agent.map_or_else(Vec::new, |_| separate_roots()),
            extensions: agent.map_or_else(Vec::new, |agent| self.extensions(agent)),
        }
    }

    /// The extensions of a certificate that rules can match.
    fn extensions(&self, agent: &Agent) -> Vec<ExplainedExtension> {
        let own = self.generation.routes.extension_names();
        let known = agent.extensions().iter().map(|(name, _)| name);
        let names = known.chain(own.iter().map(|(name, _)| name.as_str()));
        let explained = names.filter_map(|name| {
            let value = match agent.extensions().value(&oid_of(name, own)?) {
                ExtensionValue::Text(value) => Some(value.to_owned()),
                ExtensionValue::Unreadable => None,
                ExtensionValue::Absent => return None,
            };
            let name = name.to_owned();
            Some(ExplainedExtension { name, value })
        });
        explained.collect()
    }

    /// Whether every listener fails the handshake of this client.
    pub(super) fn no_listener_accepts(&self, identity: &ClientIdentity) -> bool {
        self.tls_listeners()
            .all(|tls| handshake_failure(identity, &tls.settings).is_some())
    }

    /// Whether every listener forwards this client's requests although its certificate is refused.
    pub(super) fn forwards(&self, identity: &ClientIdentity) -> bool {
        matches!(identity, ClientIdentity::Refused(_))
            && self
                .tls_listeners()
                .all(|tls| tls.settings.on_invalid == InvalidCertPolicy::Forward)
    }

    /// The listeners whose treatment of the client differs from the explained one, sorted by name.
    pub(super) fn differing_listeners(&self, explained: &Explained<'_>) -> Vec<ListenerDifference> {
        let mut listeners: Vec<_> = self
            .tls_listeners()
            .filter_map(|tls| {
                Some(ListenerDifference {
                    listener: tls.settings.name.to_string(),
                    difference: explained.difference(&tls.settings)?.to_owned(),
                })
            })
            .collect();
        listeners.sort_by(|one, other| one.listener.cmp(&other.listener));
        listeners
    }
}

impl Explained<'_> {
    fn difference(&self, settings: &ListenerSettings) -> Option<&'static str> {
        match (&self.identity, settings.on_invalid) {
            (ClientIdentity::Refused(_), InvalidCertPolicy::Forward)
                if !self.failed_is_forwarded =>
            {
                Some(
                    "enrolment and routes with client = \"any\" are forwarded as FAILED (on_invalid = \"forward\")",
                )
            }
            (ClientIdentity::Verified(_) | ClientIdentity::Refused(_), _)
                if settings.client_cert == ClientCertPolicy::None =>
            {
                Some("clients have no certificate there (client_cert = \"none\")")
            }
            _ => handshake_failure(&self.identity, settings),
        }
    }
}

fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, ExplainError> {
    let unusable = |problem| ExplainError::Certificate(file.display().to_string(), problem);
    let chain: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(error.to_string()))?;
    match chain.is_empty() {
        true => Err(unusable("the file contains no certificate".to_owned())),
        false => Ok(chain),
    }
}

/// Why a listener fails the handshake of this client, if it does.
fn handshake_failure(
    identity: &ClientIdentity,
    settings: &ListenerSettings,
) -> Option<&'static str> {
    match identity {
        ClientIdentity::Anonymous if settings.client_cert == ClientCertPolicy::Required => {
            Some("the handshake fails with an alert (client_cert = \"required\")")
        }
        ClientIdentity::Refused(_) if settings.on_invalid == InvalidCertPolicy::Abort => {
            Some("the handshake fails with an alert (on_invalid = \"abort\")")
        }
        _ => None,
    }
}
