//! The members of a pool: those that the configuration names by address, and those that DNS names.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use balancing::{
    Administrative, Health, MEMBERS_MAX, Member, MemberAddress, Registry,
    settings::{MemberSettings, Role},
    without_ip,
};
use config::PoolConfig;
use discovery::{DiscoveredMember, discovered, is_covered, question};
use proxy::PoolRuntime;
use routing::pool_names;

use crate::dns::{Answers, CaWriter, configured, rules};

/// The members of a pool according to the last DNS answers. A member to which several names resolve counts once.
pub(crate) fn members(pool: &PoolConfig, answers: &Answers) -> Vec<DiscoveredMember> {
    let mut seen = BTreeSet::new();
    let mut members = Vec::new();
    for settings in &pool.pool.members {
        let answer = question(settings).and_then(|name| answers.of(pool, &name));
        let mut named = discovered(settings, answer.as_ref());
        // Writes to a CA are not balanced, so DNS can only add backups.
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

/// Gives members the state that they had under another name: a name with several addresses is a member for each address, and
/// a name with one address is one member. Returns whether instructions of an operator have moved to other members.
pub(crate) fn inherit<'a>(
    registry: &Registry,
    pool: &str,
    members: impl Iterator<Item = (&'a str, &'a [IpAddr])>,
    before: Option<&PoolRuntime>,
) -> bool {
    let mut heirs: BTreeMap<String, Vec<(&str, bool)>> = BTreeMap::new();
    let mut named = BTreeSet::new();
    for (address, addresses) in members {
        named.insert(address);
        match address.split_once('@') {
            Some((name, one)) => {
                let before = before.into_iter().flat_map(|before| before.connectors());
                let mut before = before.filter(|connector| *connector.address == *name);
                let known = before.next().map_or(&[][..], |known| known.addresses());
                let is_known = one.parse().is_ok_and(|one| known.contains(&one));
                let heirs = heirs.entry(name.to_owned()).or_default();
                heirs.push((address, is_known));
            }
            None => heirs.extend(
                addresses
                    .iter()
                    .map(|one| (format!("{address}@{one}"), vec![(address, true)])),
            ),
        }
    }
    heirs.retain(|from, _| !named.contains(&**from));
    let moved = heirs
        .iter()
        .map(|(from, heirs)| registry.inherit(pool, from, heirs));
    moved.fold(false, |any, moved| any | moved)
}

/// Limits the members to the maximum of a pool.
pub(crate) fn bounded(
    pool: &PoolConfig,
    mut members: Vec<DiscoveredMember>,
) -> Vec<DiscoveredMember> {
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

/// The member that gets the writes to the CA and must keep them. `None` for other pools, and if the member may lose the writes.
pub(crate) fn writer_of(pool: &PoolConfig, before: &PoolRuntime) -> Option<CaWriter> {
    let writer = before.pool.writer()?;
    let is_kept =
        pool.pool.name == pool_names::CA && !may_lose_writes(&before.pool.entries()[writer].member);
    let connector = &before.members[writer].connector;
    is_kept.then(|| CaWriter {
        member: connector.address.to_string(),
        addresses: connector.addresses().to_vec(),
        configured: configured(pool),
    })
}

/// Keeps the member that gets the writes to the CA while it answers, even if DNS names another one first. If two CA servers
/// signed, each would issue certificates that the other one does not know.
pub(crate) fn with_writer(
    mut members: Vec<DiscoveredMember>,
    pool: &PoolConfig,
    writer: Option<CaWriter>,
) -> Vec<DiscoveredMember> {
    let Some(writer) = writer.filter(|writer| is_allowed(pool, &writer.member)) else {
        return members;
    };
    let named = members.iter().position(|member| is_at(member, &writer));
    let first = members
        .iter()
        .position(|member| member.settings.role == Role::Ordinary);
    if first.is_some() && named == first {
        return members;
    }
    let mut kept = match named {
        Some(index) => members.remove(index),
        None => {
            // The member gets the settings of the first entry that DNS resolves.
            let mut entries = pool.pool.members.iter();
            let entry = entries.find(|entry| question(entry).is_some());
            let Some(entry) = entry else { return members };
            DiscoveredMember {
                settings: MemberSettings {
                    address: writer.member,
                    ..entry.clone()
                },
                addresses: writer.addresses,
            }
        }
    };
    kept.settings.role = Role::Ordinary;
    members
        .iter_mut()
        .for_each(|member| member.settings.role = Role::Backup);
    members.insert(0, kept);
    members
}

/// Whether a member is the one that gets the writes, even under another name.
fn is_at(member: &DiscoveredMember, writer: &CaWriter) -> bool {
    let address = &member.settings.address;
    let mut addresses = member.addresses.iter();
    *address == writer.member
        || without_ip(address) == without_ip(&writer.member)
            && addresses.any(|address| writer.addresses.contains(address))
}

/// Whether the configuration still allows a member that DNS may no longer name.
fn is_allowed(pool: &PoolConfig, address: &str) -> bool {
    let parsed = MemberAddress::parse(address);
    let host = parsed.as_ref().map_or(address, MemberAddress::host);
    let covers = |names: &[String]| names.iter().any(|name| is_covered(host, name));
    let mut members = pool.pool.members.iter();
    let named = without_ip(address);
    rules(pool).server_names.is_none_or(covers) || members.any(|member| member.address == named)
}

/// Whether DNS may move the writes of a CA away from this member: it is down, or the operator took it out of service. An agent
/// check does not count, because its response is plain text that anyone on the network can forge.
pub(crate) fn may_lose_writes(member: &Member) -> bool {
    member.health() == Health::Down || member.operator_state() != Administrative::Ready
}
