//! The CA server that gets the writes: whether it is still the one that DNS names first, and which one it is after a restart.

use std::{sync::Arc, time::SystemTime};

use config::Config;
use discovery::question;
use proxy::{Generation, PoolRuntime};
use routing::pool_names;
use state::Foundation;
use telemetry::Alarm;

use crate::{
    Membership,
    dns::{CaWriter, HELD_WRITES, configured},
    pool_members::may_lose_writes,
};

impl Membership {
    /// Whether writes to the CA can now move to the member that DNS names first, because the current one no longer answers.
    pub(crate) fn may_move_ca_writes(&self) -> bool {
        let alarms = self.active.alarms();
        let generation = self.active.generation();
        let mut pools = generation.pools.iter();
        let pool = pools.find(|pool| **pool.pool.name() == *pool_names::CA);
        let entry = pool.and_then(|pool| pool.pool.entries().get(pool.pool.writer()?));
        alarms.get(Alarm::DnsAnswer, HELD_WRITES).is_some()
            && entry.is_some_and(|entry| may_lose_writes(&entry.member))
    }

    /// Raises or clears the alarm about writes to the CA that stay at a member that DNS no longer names first.
    pub(crate) fn assess_ca_writer(&self, generation: &Generation, foundation: &Foundation) {
        let first = self.members.first_ca(&foundation.config);
        let mut pools = generation.pools.iter();
        let pool = pools.find(|pool| **pool.pool.name() == *pool_names::CA);
        let writer =
            pool.and_then(|pool| Some(&pool.members[pool.pool.writer()?].connector.address));
        self.note_ca_writer(pool, &foundation.config);
        let alarms = self.active.alarms();
        match (first, writer) {
            (Some(first), Some(writer)) if **writer != *first => {
                let message = format!(
                    "DNS names {first} first for the CA, but {writer} answers and keeps the writes; to move them, put {writer} into maintenance"
                );
                alarms.raise(Alarm::DnsAnswer, HELD_WRITES, message, SystemTime::now());
            }
            _ => alarms.clear(Alarm::DnsAnswer, HELD_WRITES),
        }
    }

    /// Notes where writes to the CA go, for the next start: DNS may name another member first by then.
    fn note_ca_writer(&self, pool: Option<&Arc<PoolRuntime>>, config: &Config) {
        let named = config.pools.iter().find(|p| p.pool.name == pool_names::CA);
        let writer = pool.and_then(|pool| Some(&pool.members.get(pool.pool.writer()?)?.connector));
        let (Some(named), Some(writer)) = (named, writer) else {
            return;
        };
        if named.pool.members.iter().any(|m| question(m).is_some()) {
            self.members.answers.note_ca_writer(CaWriter {
                member: writer.address.to_string(),
                addresses: writer.addresses().to_vec(),
                configured: configured(named),
            });
        }
    }
}
