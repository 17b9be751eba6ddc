//! The names that members are looked up by, as the status shows them.

use std::time::SystemTime;

use admin::NameStatus;
use config::Config;
use tokio::time::Instant;

use super::answers::{Answers, pools_with, questions};

impl Answers {
    /// The status of each name that the pools of a configuration look up.
    pub fn status(&self, config: &Config) -> Vec<NameStatus> {
        let known = self.known();
        let now = (Instant::now(), SystemTime::now());
        let names = questions(config).into_iter().map(|question| {
            let lookup = known.lookups.get(&question);
            let pools = pools_with(config, &question).into_iter();
            let pools: Vec<_> = pools.map(|(pool, _)| pool.to_owned()).collect();
            let is_stored = pools.iter().any(|pool| {
                let accepted = known.accepted.get(&(pool.clone(), question.clone()));
                accepted.is_some_and(|accepted| accepted.is_stored)
            });
            NameStatus {
                name: question.to_string(),
                pools,
                servers: lookup.map_or_else(Vec::new, |lookup| {
                    lookup.servers.iter().map(ToString::to_string).collect()
                }),
                answered_at: lookup.and_then(|lookup| lookup.answered_at).map(Into::into),
                ttl_seconds: lookup
                    .and_then(|lookup| lookup.ttl)
                    .map(|ttl| ttl.as_secs()),
                next_lookup: lookup
                    .map(|lookup| (now.1 + lookup.due.saturating_duration_since(now.0)).into()),
                failure: lookup.and_then(|lookup| lookup.failure.clone()),
                is_stored,
            }
        });
        names.collect()
    }
}
