//! Lookups in DNS, several at once, and what is known about the last lookup of each name.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use discovery::{DnsQuestion, LookupError, Resolved, Resolver, settings::DnsSettings};
use state::supervise::joined;
use tokio::{task::JoinSet, time::Instant};

/// Maximum number of lookups at the same time.
const LOOKUPS_AT_ONCE: usize = 16;

/// A finished lookup.
#[derive(Debug)]
pub struct Lookup {
    pub(super) question: DnsQuestion,
    pub(super) result: Result<Resolved, LookupError>,
    pub(super) servers: Arc<[SocketAddr]>,
}

/// Looks up several names. Each result is pushed to `finished` as it arrives, so that a caller that stops waiting has the
/// results that have arrived.
pub(crate) async fn resolve(
    settings: &DnsSettings,
    questions: BTreeSet<DnsQuestion>,
    finished: &mut Vec<Lookup>,
) {
    let resolver = Resolver::new(settings);
    let mut questions = questions.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < LOOKUPS_AT_ONCE
            && let Some(question) = questions.next()
        {
            let resolver = resolver.clone();
            running.spawn(async move {
                let result = resolver.resolve(&question).await;
                Lookup {
                    question,
                    result,
                    servers: Arc::clone(resolver.servers()),
                }
            });
        }
        match running.join_next().await {
            Some(lookup) => finished.extend(joined("dns-lookup", lookup)),
            None => return,
        }
    }
}

/// The last lookup of a name.
#[derive(Clone, Debug)]
pub(super) struct LastLookup {
    /// When the next lookup is due.
    pub(super) due: Instant,
    pub(super) answered_at: Option<SystemTime>,
    pub(super) ttl: Option<Duration>,
    pub(super) servers: Arc<[SocketAddr]>,
    pub(super) failure: Option<String>,
    /// Whether a server answered, even if the answer is that there is no such record.
    pub(super) is_answered: bool,
}

impl LastLookup {
    /// `refused`: why a pool does not use the answer.
    pub(super) fn new(
        settings: &DnsSettings,
        before: Option<&Self>,
        (result, servers): (&Result<Resolved, LookupError>, &Arc<[SocketAddr]>),
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
            servers: Arc::clone(servers),
            failure: failed.or(refused).or(doubt),
            is_answered: result.as_ref().err().is_none_or(LookupError::is_definite),
        }
    }
}
