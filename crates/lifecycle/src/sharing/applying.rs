//! Applies the records of other proxies: their blocks, and their states of members.

use std::sync::Arc;

use ::state::foreign_changes::of_block;
use admin::AuditEntry;
use fleet::{Record, RecordKey};

use crate::shared_state::App;

impl App {
    /// Applies records of other proxies, and stores them.
    pub(super) async fn take_over(self: &Arc<Self>, records: Vec<Record>) {
        if records.is_empty() {
            return;
        }
        let mut audit: Vec<AuditEntry>;
        let is_of_members;
        {
            // Waits for an operator's change that is being compared with the state it replaces.
            let _blocks = self.locks.blocks.lock().await;
            let _members = self.locks.members.lock().await;
            let Some(writer) = self.active.writer_of_owner().await else {
                return;
            };
            let changed = self.trust.take_over(&writer, records);
            if changed.is_empty() {
                return;
            }
            audit = changed.iter().filter_map(of_block).collect();
            let members = changed.iter().filter_map(|record| match record.key() {
                RecordKey::Member { pool, member } => Some((pool, member)),
                RecordKey::Block(_) => None,
            });
            let members: Vec<_> = members.collect();
            is_of_members = !members.is_empty();
            audit.extend(self.membership.apply_records(members));
        }
        // Nothing is written if no block has changed.
        self.trust.store_blocks().await;
        if is_of_members {
            self.membership.store_states().await;
        }
        if !audit.is_empty() {
            self.audit.write(audit).await;
        }
        // This proxy reports the records as applied only after its former process has applied them.
        self.hand_over
            .former
            .follow(self.state_directory.path())
            .await;
    }
}
