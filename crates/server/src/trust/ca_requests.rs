//! Whom the proxy asks for the CA's documents: the members of the CA's pool, one after the other until one is of use.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use balancing::{Administrative, settings::Role};
use config::Fetch;
use proxy::{Generation, PoolRuntime};
use upstream::{FetchRequest, FetchedDocument};

use crate::{app::App, trust::conditional_request::Validator};

/// The pool that is asked.
const POOL: &str = routing::pool_names::CA;

/// An answer, and who gave it.
pub(crate) struct Answered {
    pub(crate) member: Arc<str>,
    /// Our clock before it was asked.
    pub(crate) asked: SystemTime,
    /// The same on the clock that is never set.
    pub(crate) asked_at: Instant,
    pub(crate) answer: FetchedDocument,
}

/// What is asked for, and how.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) path: &'static str,
    pub(crate) bytes_max: u64,
    pub(crate) fetch: Fetch,
}

/// The members to ask, in order.
pub(crate) struct Members {
    generation: Arc<Generation>,
    pool: usize,
    places: std::vec::IntoIter<usize>,
}

impl Members {
    /// Of the CA's pool, as it is now.
    ///
    /// # Errors
    /// There is nobody to ask.
    pub(crate) fn of(app: &App) -> Result<Self, String> {
        let generation = app.generation();
        let mut pools = generation.pools.iter();
        let Some(pool) = pools.position(|pool| &**pool.pool.name() == POOL) else {
            return Err(format!("there is no pool `{POOL}` to fetch from"));
        };
        let places: Vec<_> = in_order(&generation.pools[pool]).collect();
        if generation.pools[pool].members.is_empty() {
            return Err(format!("pool `{POOL}` has no member now"));
        }
        if places.is_empty() {
            return Err(format!("all members of pool `{POOL}` are in maintenance"));
        }
        Ok(Self {
            generation,
            pool,
            places: places.into_iter(),
        })
    }

    /// Asks the next member; none: all were asked.
    pub(crate) async fn ask_next(
        &mut self,
        wanted: Wanted,
        validator: &Validator,
    ) -> Option<Result<Answered, String>> {
        let place = self.places.next()?;
        let connector = &self.generation.pools[self.pool].members[place].connector;
        let member = &connector.address;
        let asked_at = Instant::now();
        let full_interval = wanted.fetch.full_interval;
        let wish = FetchRequest {
            path: wanted.path,
            accept: "text/plain",
            if_modified_since: validator.condition(member, asked_at, full_interval),
            timeout: wanted.fetch.timeout,
            body_bytes_max: wanted.bytes_max,
        };
        let asked = SystemTime::now();
        let answer = upstream::fetch(connector, &wish).await;
        let answered = answer.map(|answer| Answered {
            member: Arc::clone(member),
            asked,
            asked_at,
            answer,
        });
        Some(answered.map_err(|error| error.to_string()))
    }
}

/// Places of the members to ask, in order; a backup, whose list may be an older one, after the others.
fn in_order(pool: &PoolRuntime) -> impl Iterator<Item = usize> {
    let asked = |role: Role| {
        let entries = pool.pool.entries().iter().enumerate();
        entries
            .filter(move |(_, entry)| {
                entry.role == role && entry.member.operator_state() != Administrative::Maintenance
            })
            .map(|(index, _)| index)
    };
    asked(Role::Ordinary).chain(asked(Role::Backup))
}
