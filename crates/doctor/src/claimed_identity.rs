//! The identity that doctor claims: the proxy's own, from a certificate whose key is available, or none.

use std::{fs, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use identity::{Agent, Certname, ClientIdentity, HeaderForm, IdentityHeaders};
use pki::{Credential, Named, TrustStore};
use rustls_pki_types::UnixTime;

use crate::{Check, DoctorOptions, DoctorReport, FindingSeverity};
use lifecycle::PreparedStart;

/// A name that no host and no agent has (RFC 2606), so no client can get documents of that name.
pub(crate) const UNKNOWN_NAME: &str = "proscenium-doctor.invalid";
/// A value that a server fails to decode if it reads certificates from headers.
const BROKEN_CERTIFICATE: HeaderValue = HeaderValue::from_static("%zz");

/// The proxy's identity as members see it. It comes from an available credential, which is verified as agents'
/// certificates are.
#[derive(Clone, Debug)]
pub(crate) struct ProxyIdentity {
    agent: Arc<Agent>,
    headers: IdentityHeaders,
}

impl ProxyIdentity {
    /// The proxy's identity with this credential, if the active trust store accepts it and it grants no rights that
    /// must not be used.
    pub(crate) fn proven(
        trust: &TrustStore,
        credential: &Credential,
        now: UnixTime,
    ) -> Option<Self> {
        let leaf = credential.chain().first()?;
        let verdict = trust.verify(credential.chain(), now);
        let ClientIdentity::Verified(agent) = &verdict.identity else {
            return None;
        };
        // A server would read a path with `web01?x` as one with another name.
        let stands_as_it_is = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let is_plain = agent.certname().as_str().chars().all(stands_as_it_is);
        let harmless = !agent.has_authorization_extension() && is_plain;
        harmless.then(|| Self {
            agent: Arc::clone(agent),
            headers: IdentityHeaders::new(&verdict.identity, Some(leaf)),
        })
    }

    pub(crate) fn certname(&self) -> &str {
        self.agent.certname().as_str()
    }

    /// The trusted headers that a pool's members get for this identity.
    pub(crate) fn fields(&self, form: &HeaderForm, with_certificate: bool) -> HeaderMap {
        let mut fields = HeaderMap::new();
        self.headers.stamp(form, &mut fields, with_certificate);
        fields
    }

    /// Length of the certificate's header value in bytes.
    pub(crate) fn certificate_length(&self, form: &HeaderForm) -> usize {
        self.headers.certificate_length(form)
    }
}

/// The fields that the proxy sends for an unknown client.
pub(crate) fn unknown_client(form: &HeaderForm) -> HeaderMap {
    let mut fields = HeaderMap::new();
    IdentityHeaders::new(&ClientIdentity::Anonymous, None).stamp(form, &mut fields, false);
    fields
}

/// The fields that a forger would send from outside: the proxy's name, or a name that no agent has.
pub(crate) fn forgery(form: &HeaderForm, proxy_identity: Option<&ProxyIdentity>) -> HeaderMap {
    if let Some(proxy_identity) = proxy_identity {
        return proxy_identity.fields(form, false);
    }
    let mut fields = unknown_client(form);
    let dn = HeaderValue::from_str(&format!("CN={UNKNOWN_NAME}"));
    let dn = dn.unwrap_or(HeaderValue::from_static(""));
    for (name, role) in form.names() {
        let Ok(name) = HeaderName::from_bytes(name.as_str().as_bytes()) else {
            continue;
        };
        match role {
            identity::HeaderRole::Verify => {
                drop(fields.insert(name, HeaderValue::from_static("SUCCESS")))
            }
            identity::HeaderRole::Dn => drop(fields.insert(name, dn.clone())),
            identity::HeaderRole::Cert => {}
        }
    }
    fields
}

/// Puts a certificate that cannot be decoded into these fields. A server that reads the header then answers 400.
pub(crate) fn broken(mut fields: HeaderMap, form: &HeaderForm) -> HeaderMap {
    if let Ok(name) = HeaderName::from_bytes(form.cert.as_str().as_bytes()) {
        fields.insert(name, BROKEN_CERTIFICATE);
    }
    fields
}

/// The credential of an ordinary agent, if one was provided and it belongs to an ordinary agent.
pub(crate) fn ordinary_agent(
    examination: &DoctorOptions,
    prepared: &PreparedStart,
    now: UnixTime,
    report: &mut DoctorReport,
) -> Option<Credential> {
    let Some((chain, key)) = &examination.agent else {
        report.found(
            Check::OutsideAgent,
            FindingSeverity::Note,
            "all members",
            "not tested: no agent certificate was provided",
            "provide one with --agent-cert and --agent-key, for example that of a machine that will be removed",
        );
        return None;
    };
    let about = chain.display().to_string();
    let mut wrong = |found: String| {
        let remedy = "provide the certificate and key of an agent of this CA; the certificate must be valid, not revoked, and not that of this proxy";
        report.found(
            Check::AgentCertificate,
            FindingSeverity::Warning,
            &about,
            found,
            remedy,
        );
    };
    let read = |path: &std::path::Path| {
        let bytes = fs::read(path)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        Ok::<_, String>(Named::new(path.display().to_string(), bytes))
    };
    let parsed = read(chain).and_then(|chain| Ok((chain, read(key)?)));
    let parsed = parsed.and_then(|(chain, key)| {
        Credential::parse(&chain, &key).map_err(|problem| problem.to_string())
    });
    let credential = match parsed {
        Ok(credential) => credential,
        Err(found) => {
            wrong(found);
            return None;
        }
    };
    match prepared.trust().verify(credential.chain(), now).identity {
        ClientIdentity::Verified(agent) => {
            let own = is_ours(prepared, agent.certname(), now);
            let found = match (agent.has_authorization_extension(), own) {
                (true, _) => Some(
                    "it has an authorization extension, so it is not that of an ordinary agent",
                ),
                (_, true) => {
                    Some("it has the name of this proxy, so a member would accept it for the proxy")
                }
                _ => None,
            };
            if let Some(found) = found {
                wrong(found.to_owned());
                return None;
            }
        }
        ClientIdentity::Refused(refusal) => {
            wrong(refusal.text());
            return None;
        }
        ClientIdentity::Anonymous => return None,
    }
    report.passed(Check::AgentCertificate, &about);
    Some(credential)
}

fn is_ours(prepared: &PreparedStart, certname: &Certname, now: UnixTime) -> bool {
    let members = prepared.member_tls().iter().map(|tls| &tls.credential);
    let mut ours = prepared.listener_credentials().values().chain(members);
    ours.any(|credential| {
        let verdict = prepared.trust().verify(credential.chain(), now);
        verdict
            .identity
            .agent()
            .is_some_and(|agent| agent.certname() == certname)
    })
}
