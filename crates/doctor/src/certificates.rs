//! The proxy's certificates and trusted CAs: their dates, their purposes, and the verdict of the proxy's own verifier.

use std::{iter, path::Path, time::Duration};

use admin::Timestamp;
use identity::{ClientIdentity, Reason};
use pki::Credential;
use rustls_pki_types::UnixTime;

use crate::{Check, DoctorReport, FindingSeverity};
use lifecycle::{PreparedStart, RENEWED_LIFE_MAX, expiry_notice_seconds};

/// A certificate that expires within this time is reported.
const CERTIFICATE_NOTICE: Duration = Duration::from_secs(30 * 86_400);
/// A CA that expires within this time is reported. Renewing a CA takes longer.
pub(crate) const CA_NOTICE: Duration = Duration::from_secs(90 * 86_400);

pub(crate) fn examine(prepared: &PreparedStart, now: UnixTime, report: &mut DoctorReport) {
    for (files, credential) in prepared.listener_credentials() {
        credentials_time(&files.chain, credential, now, report);
        rights(&files.chain, credential, report);
        own(prepared, &files.chain, credential, now, report);
    }
    for tls in prepared.member_tls() {
        let files = &tls.settings.credential;
        if prepared.listener_credentials().contains_key(files) {
            continue;
        }
        credentials_time(&files.chain, &tls.credential, now, report);
        rights(&files.chain, &tls.credential, report);
        own(prepared, &files.chain, &tls.credential, now, report);
    }
    cas(prepared, now, report);
    renewal(prepared, report);
}

/// Reports whether agents can renew their certificates, if the lifetimes of certificates show that the CA server renews
/// them. A renewal would show this too, but would use up a serial number of the CA.
fn renewal(prepared: &PreparedStart, report: &mut DoctorReport) {
    if prepared.config().ca.renewal {
        return;
    }
    let of_listeners = prepared.listener_credentials().iter();
    let of_pools = prepared.member_tls().iter();
    let of_pools = of_pools.map(|tls| (&tls.settings.credential, &tls.credential));
    let mut all = of_listeners.chain(of_pools);
    let is_short = all.find_map(|(files, credential)| {
        let life = credential.not_after().as_secs() - credential.not_before().as_secs();
        let is_issued = prepared.trust().end_above(credential.chain()).is_some();
        let is_short = is_issued && life < RENEWED_LIFE_MAX.as_secs();
        is_short.then_some((files.chain.display().to_string(), life))
    });
    if let Some((about, life)) = is_short {
        report.found(
            Check::CertificateDates,
            FindingSeverity::Warning,
            &about,
            format!(
                "it is valid for {} in total, so the CA server renews certificates; agents that ask this proxy for a renewal get 404",
                span(life)
            ),
            "add the certname of the proxy's certificate to infra_inventory.txt on the CA server, and set `renewal = true` in [ca]",
        );
    }
}

/// Describes what is wrong with the dates of a certificate; `None` if it stays valid for a while.
pub(crate) fn time(
    not_before: UnixTime,
    not_after: UnixTime,
    now: UnixTime,
) -> Option<(FindingSeverity, String)> {
    within(not_before, not_after, now, CERTIFICATE_NOTICE)
}

/// Like `time`, with another time before the expiry.
pub(crate) fn within(
    not_before: UnixTime,
    not_after: UnixTime,
    now: UnixTime,
    notice: Duration,
) -> Option<(FindingSeverity, String)> {
    let left = not_after.as_secs().saturating_sub(now.as_secs());
    let life = not_after.as_secs().saturating_sub(not_before.as_secs());
    let end = instant(not_after);
    if now > not_after {
        Some((FindingSeverity::Failure, format!("it expired on {end}")))
    } else if now < not_before {
        let begin = instant(not_before);
        Some((
            FindingSeverity::Failure,
            format!("it is not valid before {begin}"),
        ))
    } else if left < expiry_notice_seconds(life, notice) {
        Some((
            FindingSeverity::Warning,
            format!("it expires on {end}, in {}", span(left)),
        ))
    } else {
        None
    }
}

/// Formats seconds in a readable unit.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        ..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

pub(crate) fn instant(time: UnixTime) -> Timestamp {
    Timestamp::from_unix_seconds(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

fn credentials_time(
    chain: &Path,
    credential: &Credential,
    now: UnixTime,
    report: &mut DoctorReport,
) {
    let about = chain.display().to_string();
    match time(credential.not_before(), credential.not_after(), now) {
        None => report.passed(Check::CertificateDates, &about),
        Some((grade, found)) => report.found(
            Check::CertificateDates,
            grade,
            &about,
            found,
            "renew it and replace both files; the proxy reloads them without a restart",
        ),
    }
}

fn rights(chain: &Path, credential: &Credential, report: &mut DoctorReport) {
    let about = chain.display().to_string();
    match credential.authorization_extensions() {
        [] => report.passed(Check::CredentialRights, &about),
        // A start refuses a certificate with such rights towards TLS members. This certificate is presented to clients
        // only.
        extensions => report.found(
            Check::CredentialRights,
            FindingSeverity::Warning,
            &about,
            format!("it has an authorization extension: {}", extensions.join(", ")),
            "anyone who steals its key gets these rights: use a separate certificate without such extensions for the proxy",
        ),
    }
}

/// Reports how an agent, or a member that trusts the same CA, verifies the proxy's certificate.
fn own(
    prepared: &PreparedStart,
    chain: &Path,
    credential: &Credential,
    now: UnixTime,
    report: &mut DoctorReport,
) {
    let about = chain.display().to_string();
    let shown_to_clients = prepared
        .listener_credentials()
        .keys()
        .any(|files| files.chain == chain);
    let verdict = prepared.trust().verify(credential.chain(), now);
    // The serial number shows how many certificates the CA has issued.
    prepared.trust().note_in_use(&verdict, now);
    let ClientIdentity::Refused(refusal) = verdict.identity else {
        return report.passed(Check::OwnCertificate, &about);
    };
    let (grade, remedy) = match refusal.reason {
        Reason::Revoked => (
            FindingSeverity::Failure,
            "peers that check revocation refuse it: create a new key, get a certificate for it, and replace both files",
        ),
        Reason::Blocked => (
            FindingSeverity::Failure,
            "remove the block, or use another certificate for the proxy",
        ),
        Reason::UnknownIssuer | Reason::BadSignature if shown_to_clients => (
            FindingSeverity::Warning,
            "agents trust the Puppet CA only: use a certificate that this CA signed",
        ),
        // A CA that is used only for connections to compilers is correctly not among the CAs that agents are verified
        // against. Another check tests the dates, and a purpose other than client authentication does no harm here.
        _ => return report.passed(Check::OwnCertificate, &about),
    };
    report.found(Check::OwnCertificate, grade, &about, refusal.text(), remedy);
}

fn cas(prepared: &PreparedStart, now: UnixTime, report: &mut DoctorReport) {
    let members = prepared.member_tls().iter().map(|tls| &tls.trust);
    let mut shown = Vec::new();
    for trust in iter::once(prepared.trust()).chain(members) {
        let cas = trust.status(now).cas;
        for ca in &cas {
            if shown.contains(ca) {
                continue;
            }
            shown.push(ca.clone());
            let found = within(ca.not_before, ca.not_after, now, CA_NOTICE);
            let Some((grade, found)) = found else {
                report.passed(Check::CaDates, &ca.subject);
                continue;
            };
            let mut others = cas.iter().filter(|other| other.subject == ca.subject);
            // If the newer CA has the same key, nothing depends on this certificate. Keys are not compared here.
            match others.find(|other| other.not_after > ca.not_after && other.in_time) {
                Some(next) => report.found(
                    Check::CaDates,
                    grade.min(FindingSeverity::Warning),
                    &ca.subject,
                    format!(
                        "{found} ({}); another CA certificate with that name ({}) is valid until {}",
                        ca.source,
                        next.source,
                        instant(next.not_after)
                    ),
                    "if both have the same key, remove the old one from the bundle after it expires; otherwise, enrol the agents below it again",
                ),
                None => report.found(
                    Check::CaDates,
                    grade,
                    &ca.subject,
                    format!("{found} ({})", ca.source),
                    "renew the CA certificate with the same key, and list both in the bundle until the old one expires",
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_lived_certificate_is_reported_in_its_last_quarter() {
        const DAY: u64 = 86_400;
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        for (life, left, expected) in [
            (5 * 365 * DAY, 31 * DAY, None),
            (5 * 365 * DAY, 29 * DAY, Some("in 29 days")),
            (90 * DAY, 29 * DAY, None),
            (90 * DAY, 20 * DAY, Some("in 20 days")),
            (DAY, DAY / 2, None),
            (DAY, DAY / 5, Some("in 4 hours")),
        ] {
            let now = 1_700_000_000;
            let found = time(at(now + left - life), at(now + left), at(now));
            let shown = found.map(|(grade, shown)| {
                assert_eq!(grade, FindingSeverity::Warning);
                shown
            });
            match (expected, shown) {
                (None, None) => {}
                (Some(words), Some(shown)) => assert!(shown.ends_with(words), "{shown}"),
                other => panic!("{life} {left}: {other:?}"),
            }
        }
    }
}
