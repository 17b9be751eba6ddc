//! The status of the fleet.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use admin::{
    FleetDifference, FleetProxyStatus, FleetRefusedKey, FleetStatus, FleetTurn, FleetUnreached,
    FleetWithdrawnMember, Timestamp,
};
use fleet::{ProxyEntry, RecordKey, TurnRecord};

use super::{state::SharingStatus, view::RefusedBecause};
use crate::shared_state::App;

impl App {
    /// The fleet. `None` without `[fleet]`.
    pub fn fleet_status(&self) -> Option<FleetStatus> {
        let fleet = self.foundation().config.fleet.clone()?;
        let status = self.sharing.status();
        let endpoints = fleet.etcd.iter().map(|endpoint| endpoint.address());
        let entries = self.entries(&status);
        let mut records = BTreeMap::from([("block".to_owned(), 0), ("member".to_owned(), 0)]);
        self.records.read(|all| {
            for (key, _) in all.iter() {
                let kind = match key {
                    RecordKey::Member { .. } => "member",
                    RecordKey::Block(_) => "block",
                };
                *records.entry(kind.to_owned()).or_default() += 1;
            }
        });
        let unreached = status.unreached();
        let counted = |reason: &&'static str| status.rejected.get(reason).copied().unwrap_or(0);
        let rejected = RefusedBecause::REASONS.iter();
        let rejected = rejected.map(|reason| ((*reason).to_owned(), counted(reason)));
        let sync_age = status.unwatched_since().map_or(Duration::ZERO, |since| {
            SystemTime::now().duration_since(since).unwrap_or_default()
        });
        Some(FleetStatus {
            name: self.records.proxy().to_owned(),
            site: fleet.site.clone(),
            endpoints: endpoints.map(|address| address.to_string()).collect(),
            connected: status.first_list.is_some() && unreached.is_none(),
            unreached: unreached.map(|(since, why)| FleetUnreached {
                since: (*since).into(),
                why: why.clone(),
            }),
            no_space: status.no_space.clone(),
            first_list: status.first_list.map(Timestamp::from),
            records,
            differences: differences(&entries),
            proxies: entries.into_iter().map(proxy_status).collect(),
            refused: status
                .refused
                .iter()
                .map(|refused| FleetRefusedKey {
                    key: refused.key.clone(),
                    why: refused.why.to_string(),
                })
                .collect(),
            rejected_records: rejected.collect(),
            sync_age_seconds: status.first_list.map(|_| sync_age.as_secs()),
            is_starting: self.waits_for_fleet(),
            turn: status.turn.as_ref().map(turn_status),
            apply_delay_milliseconds: status.apply_delay,
        })
    }

    /// Whether a load balancer should wait because the proxy has just started and has no list of the records yet.
    pub(crate) fn waits_for_fleet(&self) -> bool {
        let fleet = self.foundation().config.fleet.clone();
        fleet.is_some_and(|fleet| {
            self.sharing.status.borrow().first_list.is_none()
                && !self.sharing.is_successor()
                && self.active.uptime() < fleet.ready_after
        })
    }

    /// The entries of all proxies, by name. The entry of this proxy is its current state.
    pub(crate) fn entries(&self, status: &SharingStatus) -> Vec<(ProxyEntry, u64)> {
        let own = self.proxy_entry(status.applied);
        let heard = status.proxies.iter();
        let heard = heard.map(|heard| (heard.entry.clone(), heard.heard_at));
        let mut entries: Vec<_> = heard.filter(|(entry, _)| entry.name != own.name).collect();
        let clock = own.clock;
        entries.push((own, clock));
        entries.sort_by(|one, other| one.0.name.cmp(&other.0.name));
        entries
    }
}

fn differences(entries: &[(ProxyEntry, u64)]) -> Vec<FleetDifference> {
    let found = fleet::differences(entries).into_iter();
    let found = found.map(|difference| FleetDifference {
        what: difference.what,
        values: difference.values,
    });
    found.collect()
}

fn turn_status(turn: &TurnRecord) -> FleetTurn {
    FleetTurn {
        proxy: turn.proxy.clone(),
        by: turn.by.clone(),
        command: turn.command.clone(),
        since: at(turn.since),
    }
}

fn proxy_status((entry, heard_at): (ProxyEntry, u64)) -> FleetProxyStatus {
    let crls = entry.crls.into_values().map(|crl| (crl.issuer, crl.number));
    let withdrawn = entry.withdrawn.into_iter();
    let withdrawn = withdrawn.map(|member| FleetWithdrawnMember {
        pool: member.pool,
        member: member.member,
        in_flight: member.in_flight,
    });
    FleetProxyStatus {
        name: entry.name,
        version: entry.version,
        phase: entry.phase,
        unready: entry.unready,
        started: at(entry.started),
        heard_at: at(heard_at),
        crls: crls.collect(),
        alarms: entry.alarms,
        withdrawn: withdrawn.collect(),
        withheld: entry.withheld,
        applied: entry.applied,
    }
}

/// A time of another proxy, which may be any number.
fn at(milliseconds: u64) -> Option<Timestamp> {
    let since = Duration::from_millis(milliseconds);
    SystemTime::UNIX_EPOCH
        .checked_add(since)
        .map(Timestamp::from)
}
