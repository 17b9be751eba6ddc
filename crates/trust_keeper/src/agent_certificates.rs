//! Certificates of agents that were seen: whether they are refused now, when they expire, and how many expire soon.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use identity::Reason;
use pki::{SerialNumber, TrustStore};
use rustls_pki_types::UnixTime;
use state::times::whole_seconds;
use telemetry::{Agents, SeenCertificate};

/// Why an agent's certificate is refused now, if its issuer has revoked it or an operator has blocked it.
pub fn is_out(
    trust: &TrustStore,
    certname: &str,
    certificate: &SeenCertificate,
    now: UnixTime,
) -> Option<Reason> {
    let serial = SerialNumber::parse(&certificate.serial).ok()?;
    let named = (&*certificate.issuer, &serial);
    trust.is_out(certname, named, &certificate.fingerprint, now)
}

/// How long before its expiry an agent's certificate counts as expiring. An agent renews a certificate with a short life in the
/// second half of that life, so the time is limited to half the life.
const AGENT_NOTICE: Duration = Duration::from_secs(14 * 86_400);
/// An agent that has not connected for this time counts as decommissioned.
const SEEN_WITHIN: Duration = Duration::from_secs(86_400);

/// How many agents seen in the last day have a certificate that expires soon, and the name of the agent whose certificate
/// expires first. The expiry of a CA is ignored here, because it has an alarm of its own.
pub fn expiring_agents(
    agents: &Agents,
    trust: &TrustStore,
    now: SystemTime,
) -> (u64, Option<Arc<str>>) {
    agents.count(now - SEEN_WITHIN, |certname, certificate| {
        is_expiring(trust, certname, certificate, now)
    })
}

/// The number of those agents whose certificate expires before its CA. The certificates of the others cannot be renewed for
/// longer than their CA.
pub(crate) fn expiring_before_their_ca(
    agents: &Agents,
    trust: &TrustStore,
    now: SystemTime,
) -> u64 {
    let before_ca = |certificate: &SeenCertificate| {
        let of_ca = trust.ca_end(&certificate.issuer);
        of_ca.is_none_or(|end| whole_seconds(certificate.not_after) < end)
    };
    let (count, _) = agents.count(now - SEEN_WITHIN, |certname, certificate| {
        is_expiring(trust, certname, certificate, now) && before_ca(certificate)
    });
    count
}

fn is_expiring(
    trust: &TrustStore,
    certname: &str,
    certificate: &SeenCertificate,
    now: SystemTime,
) -> bool {
    let (begin, end) = (certificate.not_before, certificate.not_after);
    let life = end.duration_since(begin).unwrap_or_default();
    let is_expiring = end < now + AGENT_NOTICE.min(life / 2);
    is_expiring && is_out(trust, certname, certificate, whole_seconds(now)).is_none()
}

/// When an agent's certificate can no longer be verified: when it expires itself, or when a CA above it expires.
pub fn end_of(trust: &TrustStore, certificate: &SeenCertificate) -> SystemTime {
    let own = certificate.not_after;
    let of_ca = trust.ca_end(&certificate.issuer);
    let of_ca = of_ca.map(|end| SystemTime::UNIX_EPOCH + Duration::from_secs(end.as_secs()));
    of_ca.map_or(own, |end| end.min(own))
}
