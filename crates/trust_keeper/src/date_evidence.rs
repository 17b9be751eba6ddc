//! The dates of certificates and CRLs, as evidence that the clock of this host is wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use identity::Reason;
use pki::TrustStore;
use proxy::{CLOCK_OFFSET_MAX, DateEvidence};
use rustls_pki_types::UnixTime;
use telemetry::RecentRefusals;

use crate::certificates::OwnCertificate;

/// Minimum number of refused agents. If fewer are refused, a new certificate of one agent is more likely the cause.
const AGENTS_MIN: usize = 2;
/// How recent a refusal must be. The clock may have been set since an earlier refusal.
const REFUSED_WITHIN: Duration = Duration::from_secs(3600);

/// The dates of the proxy's certificates, of the CAs of these bundles and of their newest CRLs. Each date is counted once.
pub(crate) fn of_files(
    own: &[OwnCertificate],
    stores: &[&TrustStore],
    now: UnixTime,
) -> DateEvidence {
    let own = own.iter().map(|own| {
        let name = format!("certificate {}", own.file.display());
        (name, (own.not_before, Some(own.not_after)))
    });
    let cas = stores.iter().flat_map(|store| store.cas_status(now));
    let cas = cas.filter(|ca| !ca.is_superseded).map(|ca| {
        let name = format!("CA {}", ca.subject);
        (name, (ca.not_before, Some(ca.not_after)))
    });
    let crls = stores.iter().flat_map(|store| store.status(now).crls);
    let crls = crls.filter(|crl| crl.is_newest).map(|crl| {
        let name = format!("the CRL of {}", crl.issuer);
        (name, (crl.this_update, crl.next_update))
    });
    let all: BTreeMap<_, _> = own.chain(cas).chain(crls).collect();
    let mut evidence = DateEvidence::default();
    let issued = all.values().map(|(begin, _)| begin.as_secs()).max();
    evidence.last_issued_ago = now.as_secs().saturating_sub(issued.unwrap_or_default());
    for (name, (begin, end)) in all {
        match end.is_some_and(|end| end < now) {
            true => evidence.expired += 1,
            false => evidence.unexpired += 1,
        }
        if begin > now {
            let until = begin.as_secs() - now.as_secs();
            evidence.future.insert(name, until);
        }
    }
    evidence
}

/// Adds the agents whose certificates were refused recently because they are not valid yet.
pub(crate) fn with_agents(
    mut evidence: DateEvidence,
    refusals: &RecentRefusals,
    now: SystemTime,
) -> DateEvidence {
    let early = refusals.latest_first(|refused| refused.reason == Reason::NotYetValid.as_str());
    let early = early.into_iter().filter(|entry| {
        let age = now.duration_since(entry.last_at);
        age.is_ok_and(|age| age < REFUSED_WITHIN)
    });
    let agents: BTreeSet<_> = early.filter_map(|entry| entry.refused.certname).collect();
    if agents.len() >= AGENTS_MIN {
        let name = format!("certificates of {} agents", agents.len());
        evidence.future.insert(name, CLOCK_OFFSET_MAX + 1);
    }
    evidence
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, sync::Arc};

    use telemetry::RefusedClient;

    use super::*;

    #[test]
    fn agents_that_are_refused_early_are_evidence_together_and_for_an_hour() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let ago = |seconds| now - Duration::from_secs(seconds);
        let early = Reason::NotYetValid.as_str();
        for (seen, expected) in [
            (&[("a", early, 0)][..], false),
            (&[("a", early, 0), ("a", early, 1)], false),
            (
                &[("a", early, 0), ("b", Reason::Expired.as_str(), 0)],
                false,
            ),
            (&[("a", early, 0), ("b", early, 4000)], false),
            (&[("a", early, 0), ("b", early, 3000)], true),
        ] {
            let refusals = RecentRefusals::default();
            for (certname, reason, seconds) in seen {
                let refused = RefusedClient {
                    client: Ipv4Addr::LOCALHOST.into(),
                    listener: "agents".into(),
                    certname: Some(Arc::from(*certname)),
                    is_verified: false,
                    reason,
                };
                refusals.note(refused, ago(*seconds));
            }
            let evidence = with_agents(DateEvidence::default(), &refusals, now);
            assert_eq!(evidence.future.len(), usize::from(expected), "{seen:?}");
        }
    }
}
