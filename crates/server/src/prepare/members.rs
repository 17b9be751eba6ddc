//! The members of a pool: those that the configuration names, and those that DNS names in the places of names.

use std::collections::BTreeSet;

use balancing::{
    Administrative, Health, MEMBERS_MAX, Member,
    settings::{MemberSettings, Role},
};
use config::PoolConfig;
use discovery::{Discovered, discovered, is_covered, question};
use proxy::PoolRuntime;
use routing::pool_names;

use crate::dns::{Answers, rules};

/// The members of a pool by what DNS answered last. A member that several names stand for counts once.
pub(super) fn members(pool: &PoolConfig, answers: &Answers) -> Vec<Discovered> {
    let mut seen = BTreeSet::new();
    let mut members = Vec::new();
    for settings in &pool.pool.members {
        let answer = question(settings).and_then(|name| answers.of(pool, &name));
        let mut named = discovered(settings, answer.as_ref());
        // Writes to a CA are not balanced, so DNS can add backups only.
        if pool.pool.name == pool_names::CA {
            named
                .iter_mut()
                .skip(1)
                .for_each(|member| member.settings.role = Role::Backup);
        }
        named.retain(|member| seen.insert(member.settings.address.to_lowercase()));
        members.extend(named);
    }
    members
}

/// At most as many members as a pool may have, whatever several names in DNS stand for.
pub(super) fn bounded(pool: &PoolConfig, mut members: Vec<Discovered>) -> Vec<Discovered> {
    if members.len() > MEMBERS_MAX {
        let (pool, members) = (&pool.pool.name, members.len());
        tracing::warn!(
            pool,
            members,
            "DNS names more members than a pool may have: only the first {MEMBERS_MAX} are used"
        );
    }
    members.truncate(MEMBERS_MAX);
    members
}

/// Keeps the member that gets the writes to the CA while it answers, whatever DNS says now: two CAs that both sign
/// would issue certificates that the other does not know.
pub(super) fn with_writer(
    mut members: Vec<Discovered>,
    pool: &PoolConfig,
    before: &PoolRuntime,
) -> Vec<Discovered> {
    let Some(writer) = before
        .pool
        .writer()
        .filter(|_| pool.pool.name == pool_names::CA)
    else {
        return members;
    };
    let entry = &before.pool.entries()[writer];
    let first = members
        .iter()
        .find(|member| member.settings.role == Role::Ordinary);
    let is_allowed = |address: &str| {
        // Names that the configuration allows no longer are no members.
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let rules = rules(pool);
        let mut names = rules.server_names.into_iter().flatten();
        rules.server_names.is_none()
            || pool
                .pool
                .members
                .iter()
                .any(|named| named.address == address)
            || names.any(|name| is_covered(host, name))
    };
    if may_lose_writes(&entry.member)
        || !is_allowed(entry.member.address())
        || first.is_some_and(|first| *first.settings.address == **entry.member.address())
    {
        return members;
    }
    let address = entry.member.address();
    let named = members
        .iter()
        .position(|member| *member.settings.address == **address);
    let mut kept = match named {
        Some(index) => members.remove(index),
        None => Discovered {
            settings: MemberSettings {
                weight: entry.weight,
                in_flight_max: Some(entry.in_flight_max),
                server_name: entry.server_name.as_deref().map(str::to_owned),
                ..MemberSettings::new(address)
            },
            addresses: before.connectors[writer].addresses().to_vec(),
        },
    };
    kept.settings.role = Role::Ordinary;
    members
        .iter_mut()
        .for_each(|member| member.settings.role = Role::Backup);
    members.insert(0, kept);
    members
}

/// Whether DNS may move the writes of a CA away from this member: it is known to be down, or the operator took it out. What
/// an agent check says does not count, because it comes in plain text.
pub(crate) fn may_lose_writes(member: &Member) -> bool {
    member.health() == Health::Down || member.operator_state() != Administrative::Ready
}
