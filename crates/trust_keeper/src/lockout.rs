//! Lockouts: a configuration with which the proxy would start and then refuse every agent. It is an error of `check` and an
//! alarm of a running proxy.

use std::collections::BTreeSet;

use config::{Config, ConfigReport};
use pki::TrustStore;
use rustls_pki_types::UnixTime;
use state::{Credentials, PreparedTls, times::timestamp, tls_of};

/// Why every agent is refused.
pub struct LockoutFault {
    key: &'static str,
    /// What is refused, and why.
    pub message: String,
    /// What to do.
    pub help: &'static str,
}

/// Adds an error for each certificate that no agent or member accepts, and an error if every agent would be refused. Returns
/// whether there is an error.
pub fn add(
    report: &mut ConfigReport,
    config: &Config,
    (credentials, member_tls): (&Credentials, &[PreparedTls]),
    trust: &TrustStore,
    now: UnixTime,
) -> bool {
    let certificates = certificates(config, credentials, member_tls, now);
    for (key, message) in &certificates {
        let help = "renew the certificate, or provide another".to_owned();
        report.fail(key, message, &[help]);
    }
    let fetches = config.trust.fetch.is_some();
    let of_agents = of_agents(trust, fetches, None, now);
    if let Some(fault) = &of_agents {
        let help = fault.help.to_owned();
        report.fail(fault.key, &fault.message, &[help]);
    }
    !certificates.is_empty() || of_agents.is_some()
}

fn certificates(
    config: &Config,
    credentials: &Credentials,
    member_tls: &[PreparedTls],
    now: UnixTime,
) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for listener in &config.listeners {
        for (key, files) in config.certificates_of(&listener.name) {
            let Some(credential) = credentials.get(files) else {
                continue;
            };
            let fault = match credential.names() {
                [] => Some("it has no subjectAltName".to_owned()),
                _ => date_fault(credential, now),
            };
            found.extend(fault.map(|fault| {
                let path = files.chain.display();
                (
                    key,
                    format!("agents refuse the certificate {path}: {fault}"),
                )
            }));
        }
    }
    for pool in &config.pools {
        let Some(tls) = tls_of(pool, member_tls) else {
            continue;
        };
        found.extend(date_fault(&tls.credential, now).map(|fault| {
            let path = tls.settings.credential.chain.display();
            let key = "upstream.tls.chain".to_owned();
            (
                key,
                format!("members refuse the client certificate {path}: {fault}"),
            )
        }));
    }
    found
}

fn date_fault(credential: &pki::Credential, now: UnixTime) -> Option<String> {
    let (begin, end) = (credential.not_before(), credential.not_after());
    if now > end {
        Some(match credential.ends_with() {
            None => format!("it expired at {}", timestamp(end)),
            Some(ca) => format!(
                "the intermediate CA {ca} of its chain expired at {}",
                timestamp(end)
            ),
        })
    } else if now < begin {
        Some(format!(
            "it is not valid before {}; compare this host's clock",
            timestamp(begin)
        ))
    } else {
        None
    }
}

/// Why a configuration would refuse every agent: the setting, a sentence, and the remedy. An expired CRL is not an error if it
/// is newer than the CRL of `active`.
///
/// If CRLs are fetched, a missing CRL is an error only if all CRLs in the configured files belong to other CAs.
pub fn of_agents(
    trust: &TrustStore,
    fetches: bool,
    active: Option<&TrustStore>,
    now: UnixTime,
) -> Option<LockoutFault> {
    let found = trust.lockout(active, now)?;
    let status = trust.status(now);
    let may_come = fetches && (status.strays.is_empty() || !status.crls.is_empty());
    if found.is_by_crls && may_come {
        return None;
    }
    let (key, help) = match found.is_by_crls {
        true => (
            "trust.crl",
            "provide the CRL of this CA, or name the CA in [trust] unchecked",
        ),
        false => ("trust.ca", "provide a CA certificate that is valid now"),
    };
    Some(LockoutFault {
        key,
        message: format!("every agent is refused: {}", found.why),
        help,
    })
}
