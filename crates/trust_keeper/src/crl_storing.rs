//! Writes revocations, and the CRLs that operators have accepted, to the state directory while the process runs.

use std::{collections::BTreeMap, sync::Arc};

use pki::{FetchedCrl, TrustStore};
use state::supervise::{PANICKED, blocking};

use crate::{TrustKeeper, stored_crls};

impl TrustKeeper {
    /// Stores the CRLs that could not be stored before, and the other active revocations.
    pub async fn store_unstored_crls(&self) {
        self.store_crls(Vec::new()).await;
    }

    /// Stores these CRLs unless they are stored already, the CRLs that could not be stored before, and the other active
    /// revocations. Returns the reason if something cannot be stored.
    pub(crate) async fn store_crls(&self, crls: Vec<FetchedCrl>) -> Option<String> {
        let is_fetched = !crls.is_empty();
        let crls = self.with_presence(crls).await;
        let is_damaged = {
            let mut record = self.crl_fetch.record();
            for (crl, is_present) in crls {
                let is_same = record.stored.get(&crl.key()) == Some(&crl.fingerprint());
                match is_same && is_present {
                    true => record.unstored.remove(&crl.key()),
                    false => record.unstored.insert(crl.key(), crl),
                };
            }
            let is_accepted = |why: &String| why.contains(stored_crls::ACCEPTED_ASIDE);
            !record.unusable_files.is_empty()
                || record.damaged_files.iter().any(is_accepted)
                    && self.directory.is_absent(stored_crls::ACCEPTED_ASIDE)
        };
        // The accepted CRLs are recorded first: without that record, the next start would refuse an accepted CRL.
        let is_acceptance_unstored = is_damaged || self.directory.lacks(stored_crls::ACCEPTED_FILE);
        let mut not_persisted = match is_acceptance_unstored {
            true => self.store_accepted_crls().await,
            false => None,
        };
        let _one_at_a_time = self.crl_fetch.storing.lock().await;
        // Read under this lock, so that of two concurrent writes the later one stores the latest CRLs.
        let unstored: Vec<_> = self.crl_fetch.record().unstored.values().cloned().collect();
        // Written before the CRLs, so that after a crash between the two writes each revocation is in one of the files.
        let not_retained = self.store_retained(&unstored).await;
        not_persisted = not_persisted.or(not_retained);
        let directory = Arc::clone(&self.directory);
        let written = blocking("store-crls", move || {
            let write = |crl: FetchedCrl| {
                let written =
                    stored_crls::write(&directory, &crl).map_err(|error| error.to_string());
                (crl.key(), crl.fingerprint(), written)
            };
            unstored.into_iter().map(write).collect::<Vec<_>>()
        });
        let Some(written) = written.await else {
            return Some(PANICKED.to_owned());
        };
        {
            let mut record = self.crl_fetch.record();
            for (key, crl, written) in written {
                if let Err(why) = written {
                    record.stored.remove(&key);
                    not_persisted.get_or_insert(why);
                    continue;
                }
                record.stored.insert(key, crl);
                let latest = record.unstored.get(&key);
                if latest.is_some_and(|latest| latest.fingerprint() == crl) {
                    record.unstored.remove(&key);
                }
            }
            if not_persisted.is_none() && is_fetched {
                record.unusable_files.clear();
            }
        }
        if not_persisted.is_none() {
            not_persisted = self.store_retained(&[]).await;
        }
        self.update_crl_alarms();
        not_persisted
    }

    /// Stores the revocations of each CA that its stored CRL will not list once `unstored` is written. Until then, the serials
    /// that are stored already stay too: an unstored CRL may list them, and the proxy may fail to write that CRL.
    async fn store_retained(&self, unstored: &[FetchedCrl]) -> Option<String> {
        let trust = Arc::clone(&self.active.generation().trust);
        self.set_damaged_aside(&trust).await;
        let (mut stored, known) = {
            let record = self.crl_fetch.record();
            if unstored.is_empty() && record.retained_from == Some(trust.generation()) {
                return None;
            }
            (record.stored.clone(), record.retained.clone())
        };
        let next: BTreeMap<_, _> = unstored
            .iter()
            .map(|crl| (crl.key(), crl.fingerprint()))
            .collect();
        stored.extend(&next);
        let (directory, generation) = (Arc::clone(&self.directory), trust.generation());
        let written = blocking("store-revocations", move || {
            let mut written = BTreeMap::new();
            let mut failure = None;
            let mut is_exact = true;
            for (key, _) in trust.issuers() {
                // If a CA has no CRL now, its stored serials stay: they count again with its next CRL.
                let Some(mut retained) = trust.retained(key, stored.get(&key).copied()) else {
                    continue;
                };
                let known = known.get(&key);
                let mut digest = retained.fingerprint();
                if next.contains_key(&key) && known.is_some_and(|known| *known != digest) {
                    let before = stored_crls::read_retained(&directory, key);
                    if let Some(before) = before.ok().flatten() {
                        let exact = digest;
                        retained = trust.retained_with(key, &retained, &before);
                        digest = retained.fingerprint();
                        is_exact &= digest == exact;
                    }
                }
                let is_stored = known == Some(&digest) || known.is_none() && retained.is_empty();
                let name = stored_crls::retained_file_of(key);
                let is_deleted = !retained.is_empty() && directory.is_absent(&name);
                if is_stored && !directory.lacks(&name) && !is_deleted {
                    continue;
                }
                match stored_crls::write_retained(&directory, key, &retained) {
                    Ok(()) => {
                        written.insert(key, digest);
                    }
                    Err(error) => failure = Some(error.to_string()),
                }
            }
            (written, failure, is_exact)
        });
        let Some((written, failure, is_exact)) = written.await else {
            return Some(PANICKED.to_owned());
        };
        let mut record = self.crl_fetch.record();
        record.retained.extend(written);
        record.retained_from = (failure.is_none() && is_exact).then_some(generation);
        failure
    }

    /// Each CRL, and whether its issuer has a stored file, which may have been deleted while the process runs.
    async fn with_presence(&self, crls: Vec<FetchedCrl>) -> Vec<(FetchedCrl, bool)> {
        let directory = Arc::clone(&self.directory);
        let checked = crls.clone();
        let present = blocking("find-stored-crls", move || {
            let is_present = |crl: &FetchedCrl| stored_crls::is_present(&directory, crl);
            checked.iter().map(is_present).collect::<Vec<_>>()
        });
        let present = present.await.unwrap_or_else(|| vec![true; crls.len()]);
        crls.into_iter().zip(present).collect()
    }

    /// Prevents damaged files from being overwritten, and updates the messages about them.
    async fn set_damaged_aside(&self, trust: &Arc<TrustStore>) {
        let (directory, trust) = (Arc::clone(&self.directory), Arc::clone(trust));
        let (intact, known) = {
            let record = self.crl_fetch.record();
            (record.retained.clone(), record.damaged_files.clone())
        };
        let damaged = blocking("set-damaged-aside", move || {
            stored_crls::set_damaged_aside(&directory, &trust, &intact, &known)
        });
        if let Some(damaged) = damaged.await {
            self.crl_fetch.record().damaged_files = damaged;
        }
    }

    /// Stores which CRLs operators have accepted. Returns the reason if they cannot be stored.
    pub(crate) async fn store_accepted_crls(&self) -> Option<String> {
        let _one_at_a_time = self.crl_fetch.storing.lock().await;
        let accepted = self.crl_fetch.record().accepted.clone();
        let directory = Arc::clone(&self.directory);
        let write = move || stored_crls::write_accepted(&directory, &accepted);
        match blocking("store-accepted-crls", write).await {
            Some(written) => written.err().map(|error| error.to_string()),
            None => Some(PANICKED.to_owned()),
        }
    }
}
