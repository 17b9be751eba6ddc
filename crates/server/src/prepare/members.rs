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
use config::{Config, PoolConfig};
use discovery::{DiscoveredMember, discovered, is_covered, question};
use proxy::{Generation, PoolRuntime};
use routing::pool_names;
use state::{Foundation, tls_of};

use super::{lasting::Lasting, parts::pool_runtime};
use crate::dns::{Answers, CaWriter, configured, rules};

/// The members of a pool by the last answers of DNS. A member that several names lead to counts once.
pub(super) fn members(pool: &PoolConfig, answers: &Answers) -> Vec<DiscoveredMember> {
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
pub(super) fn inherit<'a>(
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

impl Lasting {
    /// The member that configuration and DNS name first for the CA, whichever gets the writes now.
    pub(crate) fn first_ca(&self, config: &Config) -> Option<String> {
        let mut pools = config.pools.iter();
        let pool = pools.find(|pool| pool.pool.name == pool_names::CA)?;
        let mut members = members(pool, &self.answers).into_iter();
        let first = members.find(|member| member.settings.role == Role::Ordinary)?;
        Some(first.settings.address)
    }

    /// A pool with the members that DNS names now, to replace `before`, and whether instructions of an operator have moved to
    /// other members.
    ///
    /// # Errors
    /// Names the member that cannot be reached as configured.
    pub(crate) fn replaced_pool(
        &self,
        before: &PoolRuntime,
        foundation: &Foundation,
    ) -> Result<(PoolRuntime, bool), String> {
        let mut pools = foundation.config.pools.iter();
        let settings = pools
            .find(|pool| *pool.pool.name == **before.pool.name())
            .ok_or("no such pool")?;
        let members = members(settings, &self.answers);
        let members = with_writer(members, settings, writer_of(settings, before));
        let listed = members.iter();
        let listed = listed.map(|m| (&*m.settings.address, &*m.addresses));
        let moved = inherit(&self.registry, &settings.pool.name, listed, Some(before));
        let tls = tls_of(settings, &foundation.member_tls);
        pool_runtime(settings, members, tls, self, Some(before))
            .map(|runtime| (runtime, moved))
            .map_err(|(member, error)| format!("{member}: {error}"))
    }
}

/// Gives the members of a generation the administrative states that they had under another name. Returns whether
/// instructions have moved to other members.
pub(crate) fn inherit_states(registry: &Registry, generation: &Generation) -> bool {
    let moved = generation.pools.iter().map(|pool| {
        let members = pool.connectors();
        let members = members.map(|connector| (&*connector.address, connector.addresses()));
        inherit(registry, pool.pool.name(), members, None)
    });
    moved.fold(false, |any, moved| any | moved)
}

/// Limits the members to the maximum of a pool.
pub(super) fn bounded(
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

/// The member that gets the writes to the CA and must keep them. `None` for other pools, and if it may lose the writes.
pub(super) fn writer_of(pool: &PoolConfig, before: &PoolRuntime) -> Option<CaWriter> {
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

/// Keeps the member that gets the writes to the CA while it answers, even if DNS names another one first: each of two CAs
/// that sign would issue certificates that the other does not know.
pub(super) fn with_writer(
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
            // It gets the settings of the entry that DNS resolves.
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
