//! Builds pools of the members that configuration and DNS name.

use std::sync::Arc;

use balancing::{
    Pool,
    settings::{PoolSettings, Role},
};
use config::{Config, PoolConfig};
use discovery::DiscoveredMember;
use proxy::{Generation, MemberRuntime, PoolRuntime};
use routing::pool_names;
use state::{Foundation, PreparedTls, tls_of};
use upstream::{Connector, ConnectorError, ConnectorSpec};

use crate::{
    members::Members,
    pool_members::{bounded, inherit, members, with_writer, writer_of},
};

impl Members {
    /// A pool with the members that DNS names now. Connectors of `before` that have not changed keep their connections.
    /// `is_same`: whether the configuration still names the members that `before` was made from.
    ///
    /// # Errors
    /// The address of a member that cannot be reached as configured, and why.
    pub fn pool(
        &self,
        settings: &PoolConfig,
        tls: Option<&PreparedTls>,
        before: Option<&PoolRuntime>,
        is_same: bool,
    ) -> Result<PoolRuntime, (String, ConnectorError)> {
        let members = members(settings, &self.answers);
        let writer = match before {
            Some(before) => writer_of(settings, before).filter(|_| is_same),
            None if settings.pool.name == pool_names::CA => self.answers.ca_writer(settings),
            None => None,
        };
        let members = with_writer(members, settings, writer);
        pool_runtime(settings, members, tls, self, before)
    }

    /// The member that configuration and DNS name first for the CA, whichever member gets the writes now.
    pub(crate) fn first_ca(&self, config: &Config) -> Option<String> {
        let mut pools = config.pools.iter();
        let pool = pools.find(|pool| pool.pool.name == pool_names::CA)?;
        let mut members = members(pool, &self.answers).into_iter();
        let first = members.find(|member| member.settings.role == Role::Ordinary)?;
        Some(first.settings.address)
    }

    /// A pool with the members that DNS names now, to replace `before`, and whether instructions of an operator have moved to
    /// other members. `None` if no such pool is configured.
    ///
    /// # Errors
    /// As for [`pool`](Self::pool).
    pub(crate) fn replaced_pool(
        &self,
        before: &PoolRuntime,
        foundation: &Foundation,
    ) -> Option<Result<(PoolRuntime, bool), (String, ConnectorError)>> {
        let mut pools = foundation.config.pools.iter();
        let settings = pools.find(|pool| *pool.pool.name == **before.pool.name())?;
        let members = members(settings, &self.answers);
        let members = with_writer(members, settings, writer_of(settings, before));
        let listed = members.iter();
        let listed = listed.map(|m| (&*m.settings.address, &*m.addresses));
        let moved = inherit(&self.registry, &settings.pool.name, listed, Some(before));
        let tls = tls_of(settings, &foundation.member_tls);
        let replaced = pool_runtime(settings, members, tls, self, Some(before));
        Some(replaced.map(|runtime| (runtime, moved)))
    }

    /// Gives the members of a generation the administrative states that they had under another name. Returns whether
    /// instructions have moved to other members.
    pub(crate) fn inherit_states(&self, generation: &Generation) -> bool {
        let moved = generation.pools.iter().map(|pool| {
            let members = pool.connectors();
            let members = members.map(|connector| (&*connector.address, connector.addresses()));
            inherit(&self.registry, pool.pool.name(), members, None)
        });
        moved.fold(false, |any, moved| any | moved)
    }
}

/// A pool of these members. Connectors of `before` that have not changed keep their connections.
///
/// # Errors
/// The address of a member that cannot be reached as configured, and why.
fn pool_runtime(
    settings: &PoolConfig,
    members: Vec<DiscoveredMember>,
    tls: Option<&PreparedTls>,
    known: &Members,
    before: Option<&PoolRuntime>,
) -> Result<PoolRuntime, (String, ConnectorError)> {
    let name = &settings.pool.name;
    let members = &bounded(settings, members);
    let mut runtimes = Vec::new();
    for DiscoveredMember {
        settings: member,
        addresses,
    } in members
    {
        let spec = ConnectorSpec {
            address: &member.address,
            addresses,
            server_name: member.server_name.as_deref(),
            tls: tls.map(|tls| Arc::clone(tls.config())),
            check: tls.map(|_| known.member_check()),
            settings: settings.upstream,
            slots: known.slots(name, &member.address),
        };
        let mut connectors = before.into_iter().flat_map(|before| before.connectors());
        let same = connectors.find(|connector| connector.is(&spec));
        let connector = match same {
            Some(same) => Arc::clone(same),
            None => {
                let new = Connector::new(spec).map_err(|error| (member.address.clone(), error))?;
                Arc::new(new)
            }
        };
        let passthrough = settings.rules.passthrough.is_used;
        runtimes.push(MemberRuntime::new(
            connector,
            known.metrics.member(name, &member.address),
            passthrough.then(|| known.metrics.passthrough(name, &member.address)),
        ));
    }
    let pool = PoolSettings {
        members: members
            .iter()
            .map(|member| member.settings.clone())
            .collect(),
        ..settings.pool.clone()
    };
    // The headers of a waiting request were scrubbed by the rules of its pool, so it must not be sent to members with other
    // rules.
    let same_rules = before.filter(|before| before.rules == settings.rules);
    Ok(PoolRuntime {
        presented: tls.map(|tls| tls.credential.subject().to_owned()),
        pool: Pool::new(&pool, settings.upstream.connections_max, &known.registry),
        admission: same_rules.map_or_else(Arc::default, |before| Arc::clone(&before.admission)),
        members: runtimes,
        rules: settings.rules.clone(),
        agent_max_except: settings.agent_max_except.as_slice().into(),
        settings: settings.upstream,
        metrics: known.metrics.pool(name),
    })
}
