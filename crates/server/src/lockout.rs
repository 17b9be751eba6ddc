//! What a start would serve with although it locks agents out: an error of `check`, an alarm of a running proxy.

use std::collections::BTreeSet;

use rustls_pki_types::UnixTime;

use crate::{checked::instant, prepare::Prepared};

/// Adds an error for each certificate that no agent or member accepts, and one where every CRL is of another CA. Returns
/// whether there is an error.
pub(crate) fn add(prepared: &mut Prepared, now: UnixTime) -> bool {
    let mut found = certificates(prepared, now);
    found.extend(crls(prepared, now));
    for (key, message) in &found {
        let help = match key.as_str() {
            "trust.crl" => "provide the CRL of this CA, or name the CA in [trust] unchecked",
            _ => "renew the certificate, or provide another",
        };
        prepared.report.fail(key, message, &[help.to_owned()]);
    }
    !found.is_empty()
}

fn certificates(prepared: &Prepared, now: UnixTime) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let config = &prepared.config;
    for listener in &config.listeners {
        for (key, files) in config.certificates_of(&listener.name) {
            let Some(credential) = prepared.credentials.get(files) else {
                continue;
            };
            let fault = match credential.names() {
                [] => Some("it has no subjectAltName".to_owned()),
                _ => out_of_time(credential, now),
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
        let Some(tls) = prepared.tls_of(pool) else {
            continue;
        };
        found.extend(out_of_time(&tls.credential, now).map(|fault| {
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

fn out_of_time(credential: &pki::Credential, now: UnixTime) -> Option<String> {
    let (begin, end) = (credential.not_before(), credential.not_after());
    if now > end {
        Some(format!("it expired at {}", instant(end)))
    } else if now < begin {
        Some(format!(
            "it is not valid before {}; compare this host's clock",
            instant(begin)
        ))
    } else {
        None
    }
}

/// Without any CRL that can be used no agent is accepted. Where none is provided, a start fetches them from the CA; where
/// some are, they are the wrong ones.
fn crls(prepared: &Prepared, now: UnixTime) -> Option<(String, String)> {
    let status = prepared.generation.trust.status(now);
    if !status.crls.is_empty() || status.crl_missing.is_empty() || status.strays.is_empty() {
        return None;
    }
    Some((
        "trust.crl".to_owned(),
        format!(
            "every agent is refused: no CRL of {} is provided, and {} cannot be used",
            status.crl_missing.join(" or "),
            status.strays.join(", ")
        ),
    ))
}
