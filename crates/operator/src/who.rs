//! `who`: what the proxy knows about an agent or a certificate, and how it would decide now.

use std::{net::IpAddr, sync::Arc};

use admin::{
    AGENTS_SHOWN_MAX, AccessStatus, AgentStatus, AgentsStatus, CertificateStatus, RefusalStatus,
    RefusalsStatus, RequestStatus, RevocationStatus, SeenStatus, WhoError, WhoRequest, WhoStatus,
};
use http::Method;
use http1::Fields;
use identity::{Agent, Certname, ClientIdentity, Reason};
use lifecycle::App;
use pki::{Named, RecalledVerdict, SerialNumber, TrustStore, crl_entry_in_der, crl_entry_in_pem};
use routing::{CanonicalPath, RouteDecision, RouteTable, RoutingRequest, classify};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};
use state::{
    stored_blocks,
    times::{timestamp, whole_seconds},
};
use telemetry::{RefusalEntry, RefusedClient, SeenAgent, SeenCertificate};
use trust_keeper::{
    agent_certificates::{end_of, is_out},
    stored_crls,
};

/// Maximum number of refusals for one name in an answer; `GET /v1/refusals` has all of them.
const REFUSALS_OF_A_NAME_MAX: usize = 20;

/// Agents seen since the start, ordered by the expiry of their certificates.
pub(crate) fn agents(app: &App) -> AgentsStatus {
    let (seen, agents) = app.active().shared().agents.ending_first(AGENTS_SHOWN_MAX);
    let (trust, now) = (&app.active().generation().trust, UnixTime::now());
    let status = |agent: &SeenAgent| AgentStatus {
        refused: is_out(trust, &agent.certname, &agent.certificate, now)
            .map(|reason| reason.to_string()),
        ..agent_status(agent, trust)
    };
    AgentsStatus {
        seen,
        agents: agents.iter().map(status).collect(),
    }
}

/// Clients that were refused since the start, the latest refusal first.
pub(crate) fn refusals(app: &App) -> RefusalsStatus {
    let refusals = &app.active().shared().refusals;
    let all = refusals.latest_first(|_| true);
    RefusalsStatus {
        refusals: all.iter().map(refusal_status).collect(),
        evicted: refusals.forgotten(),
    }
}

/// Recent refusals of clients with this name, verified or not, the latest first.
pub(crate) fn refusals_of(app: &App, certname: &str) -> Vec<RefusalStatus> {
    let named = |refused: &RefusedClient| {
        let name = refused.certname.as_deref();
        name.is_some_and(|name| name.eq_ignore_ascii_case(certname))
    };
    let found = app.active().shared().refusals.latest_first(named);
    let latest = found.iter().take(REFUSALS_OF_A_NAME_MAX);
    latest.map(refusal_status).collect()
}

/// Answers `who`. It blocks, because it reads CRLs again if one of them lists the serial number.
pub(crate) fn who(app: &App, request: &WhoRequest) -> Result<WhoStatus, WhoError> {
    let generation = app.active().generation();
    let lookup = WhoLookup {
        app,
        trust: &generation.trust,
        routes: &generation.routes,
        now: UnixTime::now(),
    };
    match request {
        WhoRequest {
            certname: Some(name),
            serial: None,
            issuer: None,
            certificate: None,
        } => lookup.certname(name),
        WhoRequest {
            certname: None,
            serial: Some(serial),
            issuer: Some(issuer),
            certificate: None,
        } => lookup.serial(serial, issuer),
        WhoRequest {
            certname: None,
            serial: None,
            issuer: None,
            certificate: Some(pem),
        } => lookup.certificate(pem),
        _ => Err(WhoError::Invalid(
            "specify exactly one of a certname, a serial number with its issuer, or a certificate"
                .to_owned(),
        )),
    }
}

/// One lookup, with the trust store and the time that all its answers are based on.
struct WhoLookup<'a> {
    app: &'a App,
    trust: &'a TrustStore,
    routes: &'a RouteTable,
    now: UnixTime,
}

impl WhoLookup<'_> {
    fn certname(&self, name: &str) -> Result<WhoStatus, WhoError> {
        let certname = Certname::parse(name).map_err(|error| {
            WhoError::Invalid(format!(
                "\"{name}\" is neither a file nor a certname: {error}"
            ))
        })?;
        let about = format!("certname {certname}");
        match self.app.active().shared().agents.of(certname.as_str()) {
            Some(seen) => self.seen(about, &seen),
            None => Ok(WhoStatus {
                about,
                certificate: None,
                verdict: None,
                refusal: None,
                crls: Vec::new(),
                blocks: self.blocks(Some(name), None, None),
                access: Vec::new(),
                seen: None,
                refusals: self.refusals(Some(certname.as_str())),
                separate_cas: self.separate_cas(),
            }),
        }
    }

    fn serial(&self, serial: &str, issuer: &str) -> Result<WhoStatus, WhoError> {
        let serial = read(serial)?;
        if !self.trust.knows_issuer(issuer) {
            return Err(WhoError::Invalid(format!(
                "\"{issuer}\" is not a CA of the bundle; proscenium status --json lists the CAs"
            )));
        }
        let about = format!("serial {serial} of {issuer}");
        let shown = |_: &str, certificate: &SeenCertificate| {
            *certificate.issuer == *issuer
                && read(&certificate.serial).ok().as_ref() == Some(&serial)
        };
        if let Some(seen) = self.app.active().shared().agents.find(shown) {
            return self.seen(about, &seen);
        }
        let crls = self.crls(issuer, &serial);
        let blocks = self.blocks(None, Some((issuer, &serial)), None);
        Ok(WhoStatus {
            about,
            certificate: None,
            verdict: failed_by(&crls, &blocks).map(failed_verdict),
            refusal: None,
            crls,
            blocks,
            access: Vec::new(),
            seen: None,
            refusals: Vec::new(),
            separate_cas: Vec::new(),
        })
    }

    /// Describes an agent by the certificate that it presented last. The proxy does not keep the certificate. The answer is
    /// therefore based on the certificate's dates and, while the proxy remembers it, on its path to a CA. Without the path, the
    /// verdict is never `SUCCESS`.
    fn seen(&self, about: String, seen: &SeenAgent) -> Result<WhoStatus, WhoError> {
        let certificate = &seen.certificate;
        let serial = read(&certificate.serial)?;
        let recalled = self.trust.recall(&certificate.fingerprint, self.now);
        let crls = match &recalled {
            Some(recalled) => self.crls_of_path(&recalled.path),
            None => self.crls(&certificate.issuer, &serial),
        };
        let mut blocks = self.blocks(
            Some(&seen.certname),
            Some((&certificate.issuer, &serial)),
            Some(&certificate.fingerprint),
        );
        self.add_block(&mut blocks, recalled.as_ref());
        let failed = match () {
            () if whole_seconds(certificate.not_after) < self.now => Some(Reason::Expired),
            () if whole_seconds(certificate.not_before) > self.now => Some(Reason::NotYetValid),
            () => match &recalled {
                Some(recalled) => recalled.refused,
                None => failed_by(&crls, &blocks),
            },
        };
        let accepted = recalled
            .filter(|_| failed.is_none())
            .map(|recalled| recalled.agent);
        let verdict = match (failed, &accepted) {
            (Some(reason), _) => Some(failed_verdict(reason)),
            (None, Some(_)) => Some("SUCCESS".to_owned()),
            // A CA above the certificate may have been revoked or removed from the bundle. Only the agent's next connection
            // shows that.
            (None, None) => None,
        };
        Ok(WhoStatus {
            about,
            access: accepted.map_or_else(Vec::new, |agent| self.access(agent, Some(seen.client))),
            certificate: Some(status_of(&seen.certname, certificate, self.trust)),
            verdict,
            refusal: None,
            crls,
            blocks,
            seen: Some(seen_status(seen)),
            refusals: self.refusals(Some(&seen.certname)),
            separate_cas: self.separate_cas(),
        })
    }

    /// Verifies a certificate as in a handshake.
    fn certificate(&self, pem: &str) -> Result<WhoStatus, WhoError> {
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let chain =
            chain.map_err(|error| WhoError::Invalid(format!("invalid certificate: {error}")))?;
        let Some(leaf) = chain.first() else {
            let empty = "the file contains no PEM certificate".to_owned();
            return Err(WhoError::Invalid(empty));
        };
        let facts = pki::facts_of(leaf).ok_or_else(|| {
            WhoError::Invalid("the file does not contain a valid certificate".to_owned())
        })?;
        let verification = self.trust.verify(&chain, self.now);
        let agent = verification.identity.agent();
        let certname = agent.map(|agent| agent.certname().to_string());
        let fingerprint = pki::fingerprint_of(leaf);
        let seen = match &certname {
            Some(certname) => self.app.active().shared().agents.of(certname),
            // The name is not verified, but the same certificate may have been accepted before.
            None => {
                let shown = |_: &str, seen: &SeenCertificate| seen.fingerprint == fingerprint;
                self.app.active().shared().agents.find(shown)
            }
        };
        let certname = certname.or(facts.certname);
        let recalled = self.trust.recall(&fingerprint, self.now);
        // A serial number that is too long to parse is on no CRL and in no block.
        let serial = SerialNumber::parse(&facts.serial).ok();
        let named = serial.as_ref().map(|serial| (&*facts.issuer, serial));
        let crls = match (&recalled, named) {
            (Some(recalled), _) => self.crls_of_path(&recalled.path),
            (None, Some((issuer, serial))) => self.crls(issuer, serial),
            (None, None) => Vec::new(),
        };
        let mut blocks = self.blocks(certname.as_deref(), named, Some(&fingerprint));
        self.add_block(&mut blocks, recalled.as_ref());
        let source = seen.as_ref().map(|seen| seen.client);
        let of_ca = self.trust.ca_end(&facts.issuer);
        Ok(WhoStatus {
            about: format!("the certificate of {}", facts.subject),
            access: match &verification.identity {
                ClientIdentity::Verified(agent) => self.access(Arc::clone(agent), source),
                _ => Vec::new(),
            },
            verdict: Some(verification.identity.verdict().to_string()),
            refusal: match &verification.identity {
                ClientIdentity::Refused(refusal) => Some(refusal.text()),
                _ => None,
            },
            crls,
            blocks,
            seen: seen.as_ref().map(seen_status),
            refusals: self.refusals(certname.as_deref()),
            separate_cas: self.separate_cas(),
            certificate: Some(CertificateStatus {
                certname,
                serial: facts.serial,
                issuer: facts.issuer,
                not_before: timestamp(facts.not_before),
                not_after: timestamp(of_ca.map_or(facts.not_after, |end| end.min(facts.not_after))),
            }),
        })
    }

    fn separate_cas(&self) -> Vec<String> {
        let roots = self.trust.separate_roots(self.now).into_iter();
        roots.map(str::to_owned).collect()
    }

    fn refusals(&self, certname: Option<&str>) -> Vec<RefusalStatus> {
        certname.map_or_else(Vec::new, |certname| refusals_of(self.app, certname))
    }

    /// What an agent may request, with one endpoint for each class that agents or services use.
    fn access(&self, agent: Arc<Agent>, source: Option<IpAddr>) -> Vec<AccessStatus> {
        let own = format!("/puppet/v3/node/{}", agent.certname());
        let identity = ClientIdentity::Verified(agent);
        let fields = Fields::default();
        let decided = |(method, target): &(Method, &str)| {
            let path = CanonicalPath::of_target(target, None).ok()?;
            let class = classify(method, &path, self.routes.layouts()).class;
            let decision = self.routes.find(&RoutingRequest {
                method,
                path,
                query: None,
                listener: None,
                host: None,
                fields: &fields,
                source,
                sni: None,
                identity: &identity,
                failed_is_forwarded: false,
            });
            let (allowed, by) = match decision {
                // If renewal is off, every agent gets 404, whatever the rules allow.
                RouteDecision::Forward(plan)
                    if plan.is_renewal()
                        && let Some(off) = self.app.active().shared().renewal.off() =>
                {
                    let since = admin::Timestamp::from(off.since);
                    let by = format!("off since {since}, until `proscenium reload`: {}", off.why);
                    (false, by)
                }
                RouteDecision::Forward(plan) => (true, format!("route {}", plan.route.name)),
                RouteDecision::Status(_) => (true, "answered by the proxy".to_owned()),
                RouteDecision::Refuse(refusal) => (false, refusal.text),
            };
            Some(AccessStatus {
                class: class.as_str().to_owned(),
                request: format!("{method} {target}"),
                allowed,
                decided_by: by,
            })
        };
        let endpoints = [
            (Method::GET, own.as_str()),
            (Method::GET, "/puppet/v3/file_metadata/modules/example/file"),
            (Method::POST, "/puppet/v4/catalog"),
            (Method::GET, "/puppet-ca/v1/certificate/ca"),
            (Method::POST, "/puppet-ca/v1/certificate_renewal"),
            (Method::GET, "/puppet-ca/v1/certificate_statuses/all"),
        ];
        endpoints.iter().filter_map(decided).collect()
    }

    /// The CRL entries of every certificate on a path.
    fn crls_of_path(&self, path: &[(String, SerialNumber)]) -> Vec<RevocationStatus> {
        path.iter()
            .flat_map(|(issuer, serial)| self.crls(issuer, serial))
            .collect()
    }

    /// Adds the block that matches a path, which may be about a CA above the certificate.
    fn add_block(&self, known: &mut Vec<admin::BlockStatus>, recalled: Option<&RecalledVerdict>) {
        let Some(block) = recalled.and_then(|recalled| recalled.block.as_ref()) else {
            return;
        };
        let block = stored_blocks::status_of(block);
        if !known.contains(&block) {
            known.push(block);
        }
    }

    /// What the CRL of each CA with this name says about a serial number.
    fn crls(&self, issuer: &str, serial: &SerialNumber) -> Vec<RevocationStatus> {
        let listings = self.trust.listings(issuer, serial, self.now);
        let is_listed = listings.iter().any(|listing| listing.is_listed);
        let entry = is_listed.then(|| self.entry(issuer, serial)).flatten();
        listings
            .into_iter()
            .map(|listing| {
                let entry = entry.as_ref().filter(|_| listing.is_listed);
                RevocationStatus {
                    issuer: issuer.to_owned(),
                    number: listing.crl.as_ref().map(|crl| crl.number.clone()),
                    source: listing.crl.map(|crl| crl.source),
                    revoked: listing.is_listed,
                    revoked_at: entry.map(|entry| timestamp(entry.revoked_at)),
                    reason: entry.and_then(|entry| entry.reason).map(str::to_owned),
                }
            })
            .collect()
    }

    /// Date and reason of a revocation, from the configured and fetched CRLs on disk. The index of the trust store has serial
    /// numbers only.
    fn entry(&self, issuer: &str, serial: &SerialNumber) -> Option<pki::CrlEntry> {
        let foundation = self.app.active().foundation();
        let files: Vec<Named<Vec<u8>>> = lifecycle::crl_files(&foundation.draft);
        let of_a_file = files
            .iter()
            .find_map(|list| crl_entry_in_pem(list, issuer, serial));
        of_a_file.or_else(|| {
            let bytes_max = foundation.config.trust.fetch?.body_bytes_max;
            let directory = self.app.directory();
            let fetched = stored_crls::read_of(self.trust, directory, issuer, bytes_max);
            let mut fetched = fetched.iter();
            fetched.find_map(|list| crl_entry_in_der(list, issuer, serial))
        })
    }

    fn blocks(
        &self,
        certname: Option<&str>,
        serial: Option<(&str, &SerialNumber)>,
        fingerprint: Option<&[u8; 32]>,
    ) -> Vec<admin::BlockStatus> {
        let about = |block: &admin::BlockStatus| {
            let by_name = block
                .blocked
                .certname
                .as_deref()
                .zip(certname)
                .is_some_and(|(blocked, name)| blocked.eq_ignore_ascii_case(name));
            let by_serial = serial.is_some_and(|(issuer, serial)| {
                block.blocked.issuer.as_deref() == Some(issuer)
                    && block.blocked.serial.as_deref() == Some(&serial.to_string())
            });
            let blocked = block.blocked.fingerprint.as_deref();
            let by_fingerprint = fingerprint
                .zip(blocked.and_then(|text| pki::BlockTarget::fingerprint(text).ok()))
                .is_some_and(|(bytes, blocked)| blocked == pki::BlockTarget::Fingerprint(*bytes));
            by_name || by_serial || by_fingerprint
        };
        self.app
            .trust()
            .blocks()
            .into_iter()
            .filter(about)
            .collect()
    }
}

/// Why a certificate is refused, as far as its own serial number and fingerprint decide.
fn failed_by(crls: &[RevocationStatus], blocks: &[admin::BlockStatus]) -> Option<Reason> {
    match () {
        // CAs of the same name may have several keys. The number alone does not show which of them issued the certificate.
        () if !crls.is_empty() && crls.iter().all(|crl| crl.revoked) => Some(Reason::Revoked),
        () if !blocks.is_empty() => Some(Reason::Blocked),
        () => None,
    }
}

fn failed_verdict(reason: Reason) -> String {
    format!("FAILED:{reason}")
}

fn read(serial: &str) -> Result<SerialNumber, WhoError> {
    SerialNumber::parse(serial).map_err(|error| WhoError::Invalid(error.to_string()))
}

fn agent_status(seen: &SeenAgent, trust: &TrustStore) -> AgentStatus {
    AgentStatus {
        certificate: status_of(&seen.certname, &seen.certificate, trust),
        at: seen.at.into(),
        client: seen.client.to_string(),
        refused: None,
    }
}

fn status_of(
    certname: &str,
    certificate: &SeenCertificate,
    trust: &TrustStore,
) -> CertificateStatus {
    CertificateStatus {
        certname: Some(certname.to_owned()),
        serial: format!("0x{}", certificate.serial),
        issuer: certificate.issuer.to_string(),
        not_before: certificate.not_before.into(),
        not_after: end_of(trust, certificate).into(),
    }
}

fn seen_status(seen: &SeenAgent) -> SeenStatus {
    SeenStatus {
        at: seen.at.into(),
        client: seen.client.to_string(),
        requests: seen
            .requests
            .iter()
            .map(|request| RequestStatus {
                at: request.at.into(),
                line: request.line.clone(),
                status: request.status,
                reason: request.reason.map(str::to_owned),
            })
            .collect(),
    }
}

fn refusal_status(entry: &RefusalEntry) -> RefusalStatus {
    let refused = &entry.refused;
    RefusalStatus {
        first_at: entry.first_at.into(),
        last_at: entry.last_at.into(),
        count: entry.count,
        client: refused.client.to_string(),
        listener: refused.listener.to_string(),
        certname: refused.certname.as_deref().map(str::to_owned),
        verified: refused.is_verified,
        reason: refused.reason.to_owned(),
    }
}
