//! The members of a pool: those that the configuration names, and those that DNS names in the places of names.

use std::collections::BTreeSet;

use balancing::settings::{MemberSettings, Role};
use config::PoolConfig;
use discovery::{Discovered, discovered, question};
use proxy::PoolRuntime;
use routing::pool_names;

use crate::dns::Answers;

/// The members of a pool by what DNS answered last. A member that several names stand for counts once.
pub(super) fn members(pool: &PoolConfig, answers: &Answers) -> Vec<Discovered> {
    let mut seen = BTreeSet::new();
    let mut members = Vec::new();
    for settings in &pool.pool.members {
        let answer = question(settings).and_then(|name| answers.of(&pool.pool.name, &name));
        let mut named = discovered(settings, answer.as_ref());
        // Writes to a CA are not balanced, so DNS can add backups only.
        if pool.pool.name == pool_names::CA {
            named
                .iter_mut()
                .skip(1)
                .for_each(|member| member.settings.role = Role::Backup);
        }
        named.retain(|member| seen.insert(member.settings.address.clone()));
        members.extend(named);
    }
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
    if !entry.member.is_available()
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
