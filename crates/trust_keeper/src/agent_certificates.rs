//! Certificates of agents that were seen: whether they are refused now, when they end, and how many end soon.

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

/// How long before its end the certificate of an agent counts as expiring. An agent renews a certificate with a short life
/// in the second half of it, so the time is limited to that.
const AGENT_NOTICE: Duration = Duration::from_secs(14 * 86_400);
/// An agent that was not seen for longer counts as gone.
const SEEN_WITHIN: Duration = Duration::from_secs(86_400);

/// How many agents seen in the last day have a certificate that expires soon, and which of them is the first. The end of a
/// CA does not count, because it has an alarm of its own.
pub fn expiring_agents(
    agents: &Agents,
    trust: &TrustStore,
    now: SystemTime,
) -> (u64, Option<Arc<str>>) {
    agents.count(now - SEEN_WITHIN, |certname, certificate| {
        let (begin, end) = (certificate.not_before, certificate.not_after);
        let life = end.duration_since(begin).unwrap_or_default();
        let is_expiring = end < now + AGENT_NOTICE.min(life / 2);
        is_expiring && is_out(trust, certname, certificate, whole_seconds(now)).is_none()
    })
}

/// When an agent's certificate can no longer be verified: its own end, or that of the CAs above it.
pub fn end_of(trust: &TrustStore, certificate: &SeenCertificate) -> SystemTime {
    let own = certificate.not_after;
    let of_ca = trust.ca_end(&certificate.issuer);
    let of_ca = of_ca.map(|end| SystemTime::UNIX_EPOCH + Duration::from_secs(end.as_secs()));
    of_ca.map_or(own, |end| end.min(own))
}
