//! Finds CRLs of other proxies of the fleet that are newer. They are only a reason to fetch CRLs from the CA at once.

use std::{collections::BTreeMap, future::pending, sync::Arc};

use fleet::{CrlHints, HINT_JITTER_MAX, HeardProxy, NewerCrls, ProxyEntry, newer_crls};
use state::random_part_of;
use tokio::time::sleep_until;

use crate::TrustKeeper;

impl TrustKeeper {
    /// Waits until a fetch is due because another proxy has a newer CRL.
    pub(crate) async fn hinted(&self, hints: &mut CrlHints) {
        let mut heard = self.heard.subscribe();
        let (start, _) = self.active.started();
        loop {
            let now = start.elapsed();
            let others = self.others();
            let newer = newer_crls(&self.own_numbers(), entries(&others));
            let due = hints.due(&newer, now, random_part_of(HINT_JITTER_MAX));
            if due.is_some_and(|due| due <= now) {
                hints.note_fetch(&newer, now);
                log(&newer);
                return;
            }
            let wait = async {
                match due {
                    Some(due) => sleep_until(start + due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = wait => {}
                // No error is possible: the sender lives as long as the process.
                _ = heard.changed() => {}
            }
        }
    }

    /// Notes a fetch that is due for another reason.
    pub(crate) fn note_regular_fetch(&self, hints: &mut CrlHints) {
        let others = self.others();
        hints.note_regular_fetch(&newer_crls(&self.own_numbers(), entries(&others)));
    }

    /// The other proxies of the fleet.
    fn others(&self) -> Vec<Arc<HeardProxy>> {
        let proxies = self.heard.borrow();
        let others = proxies.iter();
        let others = others.filter(|proxy| proxy.entry.name != self.records.proxy());
        others.cloned().collect()
    }

    /// The number of this proxy's CRL for each CA of the bundle.
    fn own_numbers(&self) -> BTreeMap<String, String> {
        let trust = self.active.trust();
        let issuers = trust.issuers().into_iter();
        let without = issuers.map(|(key, _)| (key.to_string(), "none".to_owned()));
        let crls = trust.newest_crls();
        without
            .chain(crls.map(|crl| (crl.key.to_string(), crl.number)))
            .collect()
    }
}

/// The entries of these proxies in the fleet's store.
fn entries(proxies: &[Arc<HeardProxy>]) -> impl Iterator<Item = &ProxyEntry> {
    proxies.iter().map(|proxy| &proxy.entry)
}

fn log(newer: &NewerCrls<'_>) {
    for (entry, crl) in newer.values() {
        tracing::info!(
            proxy = entry.name,
            issuer = crl.issuer,
            number = crl.number,
            digest = crl.digest,
            "another proxy of the fleet has a newer CRL: fetching it from the CA"
        );
    }
}
