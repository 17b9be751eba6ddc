//! Routes with persistence: which member a client stays with, and the cookie that identifies the member.

use std::net::IpAddr;

use balancing::{MemberPersistence, key_hash, source_hash};
use http::{HeaderValue, header::SET_COOKIE};
use http1::Fields;
use pki::PersistenceKey;
use routing::{ForwardPlan, RoutePersistence, cookie_value};

use crate::{
    context::RequestContext,
    pool_runtime::{PoolLease, PoolRuntime},
};

/// The member that the client of a request stays with. The client can influence only the choice among available members that
/// have room.
pub(crate) fn stay(
    context: &RequestContext,
    pool: &PoolRuntime,
    plan: &ForwardPlan<'_>,
    fields: &Fields,
) -> MemberPersistence {
    plan.persistence()
        .map_or(MemberPersistence::No, |persistence| {
            let client = context.conn.downstream.client.ip();
            let key = &context.worker.shared.persistence;
            pool.stay(persistence, (fields, Some(client)), Some(key))
        })
}

/// Logs that a client moved, and issues the cookie if the client has none for the member that responded. A client whose member
/// is only at its limit keeps its cookie and returns to that member. `tried_home`: whether this request may have been sent to
/// the client's member before.
pub(crate) fn note_answer(
    context: &RequestContext,
    plan: &ForwardPlan<'_>,
    stay: MemberPersistence,
    (lease, tried_home): (Option<&PoolLease>, bool),
    fields: &mut Fields,
) {
    let (Some(persistence), Some(lease)) = (plan.persistence(), lease) else {
        return;
    };
    let (runtime, index) = lease.pool_and_index();
    let here = lease.member().id();
    let home = match stay {
        MemberPersistence::No => None,
        MemberPersistence::Hash(hash) => runtime.pool.first_choice(hash),
        MemberPersistence::Member(id) => {
            let mut entries = runtime.pool.entries().iter();
            entries.position(|entry| entry.member.id() == id)
        }
    };
    let mut returns = false;
    if let Some(home) = home.filter(|home| *home != index) {
        // A client whose member has failed moves permanently. It returns only if its member merely had no room.
        let now = context.worker.shared.now();
        returns = !tried_home && runtime.pool.keeps_clients(home, now);
        let moved = ClientMove {
            from: home,
            to: index,
            returns,
        };
        log_move(context, &runtime, &moved);
    }
    if let RoutePersistence::Cookie(name) = persistence
        && stay != MemberPersistence::Member(here)
        && !returns
    {
        let value =
            runtime.members[index].cookie(runtime.pool.name(), &context.worker.shared.persistence);
        let cookie = format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax");
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            fields.append(SET_COOKIE, cookie);
        }
    }
}

struct ClientMove {
    from: usize,
    to: usize,
    /// Whether the client returns as soon as its member has room.
    returns: bool,
}

/// Counts a move and logs it. Log events are limited, because a client that repeats an old cookie could fill the log. The
/// metric counts all moves.
fn log_move(context: &RequestContext, runtime: &PoolRuntime, moved: &ClientMove) {
    runtime.metrics.persistence_moves.inc();
    let shared = &context.worker.shared;
    if !shared.persistence_events.admit(shared.now()) {
        return;
    }
    let address = |index: usize| &*runtime.members[index].connector.address;
    let client = context.conn.downstream.client.ip().to_canonical();
    let reason = if moved.returns {
        "at its limit"
    } else {
        "not available"
    };
    tracing::info!(
        pool = %runtime.pool.name(), from = address(moved.from), to = address(moved.to), %client,
        certname = context.verdict.certname.as_deref(),
        "persistent client moved: its member is {reason}"
    );
}

impl PoolRuntime {
    /// The member that a client with these headers and this address stays with, if it can be determined. Without the `key`, no
    /// cookie is valid.
    pub fn stay(
        &self,
        persistence: &RoutePersistence,
        (fields, client): (&Fields, Option<IpAddr>),
        key: Option<&PersistenceKey>,
    ) -> MemberPersistence {
        match persistence {
            RoutePersistence::Source => client.map_or(MemberPersistence::No, |client| {
                MemberPersistence::Hash(source_hash(client))
            }),
            RoutePersistence::Header(name) => {
                let mut values = fields.all(name.as_str());
                match (values.next(), values.next()) {
                    (Some(value), None) => MemberPersistence::Hash(key_hash(value)),
                    _ => MemberPersistence::No,
                }
            }
            RoutePersistence::Cookie(name) => {
                let value = cookie_value(fields, name);
                let issued = value.zip(key).and_then(|(value, key)| {
                    let mut members = self.members.iter();
                    members.position(|m| m.cookie(self.pool.name(), key).as_bytes() == value)
                });
                issued.map_or(MemberPersistence::No, |index| {
                    MemberPersistence::Member(self.pool.entries()[index].member.id())
                })
            }
        }
    }
}
