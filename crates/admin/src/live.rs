//! What the API tells of values that are at work: pools, members and trust, read at the moment of asking.

use std::time::Duration;

use balancing::{Administrative, Entry, Pool, settings::Algorithm};

use crate::{
    AdministrativeState, CaStatus, CrlStatus, Health, MemberStateError, MemberStatus, PoolStatus,
    Timestamp, TrustStatus,
};

/// Sets what the operator wants of a member, and tells how it stands then: the body of
/// [`Control::set_member_state`](crate::Control::set_member_state) for the pools of the generation in force.
///
/// # Errors
/// No such pool or member, with the names there are.
pub fn set_member_state<'a>(
    pools: impl IntoIterator<Item = &'a Pool>,
    pool: &str,
    member: &str,
    state: AdministrativeState,
) -> Result<MemberStatus, MemberStateError> {
    let mut known = Vec::new();
    for candidate in pools {
        if &**candidate.name() == pool {
            return set_in(candidate, member, state);
        }
        known.push(candidate.name().to_string());
    }
    Err(MemberStateError::UnknownPool {
        pool: pool.to_owned(),
        known,
    })
}

fn set_in(
    pool: &Pool,
    member: &str,
    state: AdministrativeState,
) -> Result<MemberStatus, MemberStateError> {
    let address = |entry: &Entry| entry.member.address().to_string();
    match pool
        .entries()
        .iter()
        .find(|entry| &**entry.member.address() == member)
    {
        Some(entry) => {
            entry.member.administer(state.into());
            Ok(MemberStatus::of(entry))
        }
        None => Err(MemberStateError::UnknownMember {
            pool: pool.name().to_string(),
            member: member.to_owned(),
            known: pool.entries().iter().map(address).collect(),
        }),
    }
}

impl PoolStatus {
    /// How a pool stands now.
    pub fn of(pool: &Pool) -> Self {
        let algorithm = match pool.algorithm() {
            Algorithm::LeastConnections => "least-connections",
            Algorithm::RoundRobin => "round-robin",
        };
        Self {
            name: pool.name().to_string(),
            algorithm: algorithm.to_owned(),
            members: pool.entries().iter().map(MemberStatus::of).collect(),
        }
    }
}

impl MemberStatus {
    /// How a member stands now.
    pub fn of(entry: &Entry) -> Self {
        let member = &entry.member;
        Self {
            address: member.address().to_string(),
            health: member.health().into(),
            administrative_state: member.administrative().into(),
            in_flight: member.in_flight().into(),
            connections: member.connections().into(),
            weight: entry.weight,
        }
    }
}

impl TrustStatus {
    /// What a trust store says of itself; `agents_copy_age` where its CRLs are the agent's own copy.
    pub fn of(trust: &pki::TrustStatus, agents_copy_age: Option<Duration>) -> Self {
        Self {
            generation: trust.generation,
            cas: trust.cas.iter().map(CaStatus::of).collect(),
            crls: trust
                .crls
                .iter()
                .map(|crl| CrlStatus::of(crl, agents_copy_age))
                .collect(),
            crl_missing: trust.crl_missing.clone(),
            unchecked: trust.unchecked.clone(),
            alarms: trust.alarms.clone(),
        }
    }
}

impl CaStatus {
    fn of(ca: &pki::CaStatus) -> Self {
        Self {
            subject: ca.subject.clone(),
            not_after: timestamp(ca.not_after.as_secs()),
            source: ca.source.clone(),
        }
    }
}

impl CrlStatus {
    fn of(crl: &pki::CrlStatus, agents_copy_age: Option<Duration>) -> Self {
        Self {
            issuer: crl.issuer.clone(),
            number: crl.number.clone(),
            entries: crl.entries as u64,
            next_update: crl.next_update.map(|instant| timestamp(instant.as_secs())),
            expired: crl.expired,
            source: crl.source.clone(),
            agents_copy_age_seconds: agents_copy_age.map(|age| age.as_secs()),
        }
    }
}

impl From<balancing::Health> for Health {
    fn from(health: balancing::Health) -> Self {
        match health {
            balancing::Health::Unknown => Self::Unknown,
            balancing::Health::Up => Self::Up,
            balancing::Health::Down => Self::Down,
        }
    }
}

impl From<Administrative> for AdministrativeState {
    fn from(state: Administrative) -> Self {
        match state {
            Administrative::Ready => Self::Ready,
            Administrative::Drain => Self::Drain,
            Administrative::Maintenance => Self::Maintenance,
        }
    }
}

impl From<AdministrativeState> for Administrative {
    fn from(state: AdministrativeState) -> Self {
        match state {
            AdministrativeState::Ready => Self::Ready,
            AdministrativeState::Drain => Self::Drain,
            AdministrativeState::Maintenance => Self::Maintenance,
        }
    }
}

fn timestamp(seconds: u64) -> Timestamp {
    Timestamp::from_unix_seconds(i64::try_from(seconds).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use balancing::{
        Registry,
        settings::{CheckSettings, MemberSettings, PoolSettings},
    };

    use super::*;

    #[test]
    fn a_member_is_found_by_pool_and_address_and_keeps_the_state_it_is_given() {
        let registry = Registry::default();
        let pools = [
            pool("ca", &["ca:8140"], &registry),
            pool("compilers", &["c1:8140", "c2:8140"], &registry),
        ];
        for state in [
            AdministrativeState::Drain,
            AdministrativeState::Maintenance,
            AdministrativeState::Ready,
        ] {
            let told = set_member_state(&pools, "compilers", "c2:8140", state).unwrap();
            assert_eq!(told.administrative_state, state);
            let status = PoolStatus::of(&pools[1]);
            assert_eq!(status.members[1], told);
            assert_eq!(
                status.members[0].administrative_state,
                AdministrativeState::Ready
            );
        }
        let unknown = |pool, member| {
            set_member_state(&pools, pool, member, AdministrativeState::Drain)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            unknown("x", "c1:8140"),
            r#"no pool "x"; there are: ca, compilers"#
        );
        assert_eq!(
            unknown("compilers", "ca:8140"),
            r#"no member "ca:8140" in pool "compilers"; there are: c1:8140, c2:8140"#
        );
    }

    #[test]
    fn words_are_those_of_the_members_themselves() {
        use balancing::Health::{Down, Unknown, Up};
        for health in [Unknown, Up, Down] {
            assert_eq!(Health::from(health).to_string(), health.as_str());
        }
        for state in [
            Administrative::Ready,
            Administrative::Drain,
            Administrative::Maintenance,
        ] {
            assert_eq!(AdministrativeState::from(state).to_string(), state.as_str());
        }
    }

    fn pool(name: &str, members: &[&str], registry: &Registry) -> Pool {
        let member = |address: &&str| MemberSettings {
            address: (*address).to_owned(),
            weight: 1,
            in_flight_max: None,
            server_name: None,
        };
        let settings = PoolSettings {
            name: name.to_owned(),
            members: members.iter().map(member).collect(),
            algorithm: Algorithm::LeastConnections,
            check: CheckSettings::default(),
        };
        Pool::new(&settings, registry)
    }
}
