//! What the status shows of the names of members.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use admin::NameStatus;
use config::Config;
use discovery::{LookupError, Resolved, settings::DnsSettings};
use tokio::time::Instant;

use super::answers::{Answers, asking, questions};

/// What came of asking a question last.
#[derive(Debug)]
pub(super) struct LastLookup {
    /// When it is asked again.
    pub(super) due: Instant,
    answered_at: Option<SystemTime>,
    ttl: Option<Duration>,
    servers: Arc<[SocketAddr]>,
    failure: Option<String>,
}

impl LastLookup {
    /// `refused`: why a pool does not use the answer.
    pub(super) fn new(
        settings: &DnsSettings,
        before: Option<&Self>,
        (result, servers): (&Result<Resolved, LookupError>, Arc<[SocketAddr]>),
        refused: Option<String>,
    ) -> Self {
        let after = match result {
            Ok(resolved) if refused.is_none() => settings.refresh_after(resolved.ttl),
            _ => settings.ttl_min,
        };
        let answered = result.as_ref().ok();
        let doubt = answered.and_then(|resolved| {
            let (host, doubt) = resolved.doubts.first_key_value()?;
            Some(format!("{host}: {doubt}"))
        });
        let failed = result.as_ref().err().map(ToString::to_string);
        Self {
            due: Instant::now() + after,
            answered_at: match answered {
                Some(_) => Some(SystemTime::now()),
                None => before.and_then(|before| before.answered_at),
            },
            ttl: match answered {
                Some(resolved) => Some(resolved.ttl),
                None => before.and_then(|before| before.ttl),
            },
            servers,
            failure: failed.or(refused).or(doubt),
        }
    }
}

impl Answers {
    /// The names that the pools of a configuration ask DNS about.
    pub(crate) fn status(&self, config: &Config) -> Vec<NameStatus> {
        let known = self.known();
        let now = (Instant::now(), SystemTime::now());
        let names = questions(config).into_iter().map(|question| {
            let lookup = known.lookups.get(&question);
            let pools = asking(config, &question).into_iter();
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
