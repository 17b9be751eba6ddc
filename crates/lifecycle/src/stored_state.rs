//! Restoring what earlier processes stored in the state directory: one function for `run`, `check`, `explain`, `doctor` and
//! reload.

use std::{mem, sync::Arc};

use fleet::Records;
use membership::persistence_key;
use pki::{DenyList, PersistenceKey};
use rustls_pki_types::UnixTime;
use state::{
    StateDirectory,
    operator_records::blocks_in_effect,
    state_directory::StateError,
    stored_blocks::{self, StoredBlocksError},
    stored_states::{self, StoredStates},
};
use trust_keeper::{
    cas_seen,
    stored_crls::{self, RestoredCrls},
};

use crate::prepare::Prepared;

/// What was restored to a prepared generation, and what could not be read.
pub(crate) struct RestoredState {
    /// The records of blocks. An error is a reason not to start, because blocked clients would be accepted.
    pub(crate) blocks: Result<Records, StoredBlocksError>,
    pub(crate) crls: RestoredCrls,
    /// Why it is not known which CAs agents used before the restart.
    pub(crate) cas_seen: Option<StateError>,
    /// Administrative states of members, which only the running proxy applies.
    pub(crate) member_states: Result<StoredStates, String>,
    /// The key of persistence cookies. `None` if no key is stored.
    pub(crate) persistence_key: Result<Option<PersistenceKey>, String>,
}

/// Restores the state to the first generation of a process, before it is used.
pub(crate) fn restore(prepared: &mut Prepared, directory: &StateDirectory) -> RestoredState {
    let proxy = prepared.config.proxy_name();
    let blocks = stored_blocks::read(directory, &proxy).inspect(|records| {
        // Expired blocks are restored too, because the clock of a machine that starts may be ahead.
        let blocks = blocks_in_effect(&proxy, records, |_| true);
        if !blocks.is_empty() {
            let trust = &mut prepared.generation.trust;
            *trust = Arc::new(trust.with_deny_list(DenyList::new(blocks)));
        }
    });
    let trust = &prepared.generation.trust;
    let cas_seen = cas_seen::read(directory)
        .map(|text| trust.restore_cas_seen(&text, UnixTime::now()))
        .err();
    RestoredState {
        blocks,
        crls: restore_crls(prepared, directory),
        cas_seen,
        member_states: stored_states::read(directory),
        persistence_key: persistence_key::read(directory),
    }
}

/// Restores the stored revocations to a prepared generation. A reload needs only these, and only if the bundle has other CAs
/// than before. Everything else is in memory.
pub(crate) fn restore_crls(prepared: &mut Prepared, directory: &StateDirectory) -> RestoredCrls {
    let fetch = prepared.config.trust.fetch;
    let trust = &mut prepared.generation.trust;
    let mut restored = stored_crls::restore(trust, directory, fetch);
    restored.is_applied = match restored.trust.take() {
        Some(with_crls) => {
            let without = mem::replace(trust, Arc::new(with_crls));
            // The report has the warnings of the trust store without these CRLs.
            let ended = |message: &String| {
                without.warnings().contains(message) && !trust.warnings().contains(message)
            };
            prepared
                .report
                .problems
                .retain(|problem| !ended(&problem.message));
            true
        }
        None => false,
    };
    restored
}
