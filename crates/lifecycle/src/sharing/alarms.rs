//! The alarms of a fleet.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use fleet::{HeardProxy, ProxyEntry, RecordKey};
use telemetry::{Alarm, FoundAlarm};
use tokio::time::Instant;

use super::{registry::place, state::SharingStatus, view::View};
use crate::shared_state::App;

/// How long the store may be unreachable before the alarm: an election in etcd takes seconds.
const UNREACHED_MAX: Duration = Duration::from_secs(60);
/// How long proxies may differ before the alarm, because an operator changes one after the other.
const DIFFERS_MAX: Duration = Duration::from_secs(600);
/// Minimum time for which the alarm about an older store is shown, because the records are put back within seconds.
const OLDER_SHOWN_FOR: Duration = Duration::from_secs(15);
/// How far the clock may be from those of the other proxies, in milliseconds.
const CLOCK_MAX: i64 = 5_000;
/// Maximum number of ignored keys that have alarms.
const REFUSED_MAX: usize = 16;

const ALL: [Alarm; 7] = [
    Alarm::FleetUnreachable,
    Alarm::FleetRecord,
    Alarm::FleetStoreOlder,
    Alarm::FleetNoSpace,
    Alarm::FleetClock,
    Alarm::FleetLastMember,
    Alarm::FleetDiffers,
];

/// What the alarms remember.
#[derive(Debug, Default)]
pub(super) struct FleetAlarms {
    differs_since: BTreeMap<String, Instant>,
    older_at: Option<Instant>,
}

impl FleetAlarms {
    /// Raises and clears the alarms.
    pub(super) fn update(&mut self, app: &App, view: &View) {
        let status = app.sharing.status();
        let (alarms, now) = (&app.lasting.metrics.alarms, SystemTime::now());
        let unreached = unreached(&status, now);
        alarms.assess(Alarm::FleetUnreachable, "", now, || unreached);
        let refused = status.refused.iter().take(REFUSED_MAX);
        let refused: Vec<_> = refused
            .map(|refused| FoundAlarm::new(Alarm::FleetRecord, &refused.key, format!("the key {} of the fleet's store is ignored: {}; it was written by a proxy with another key file or a newer version, or by another client of etcd (operating/fleet.md)", refused.key, refused.why)))
            .collect();
        let unknown = app.records.unknown_blocks().into_iter().take(REFUSED_MAX);
        let unknown = unknown.map(|id| {
            let key = RecordKey::Block(id).to_string();
            let message = format!("the block {key} of the fleet is not enforced here, because this version does not know what it blocks: upgrade this proxy (operating/fleet.md)");
            FoundAlarm::new(Alarm::FleetRecord, key, message)
        });
        let own = app.records.proxy();
        let same_name = view.same_name_until.filter(|until| *until > Instant::now());
        let same_name = same_name.map(|_| {
            let message = format!("another proxy of the fleet has the certname {own} too: their entries replace each other, and drain --wait and fleet turn see one of them only; give each proxy a certificate and a certname of its own (operating/fleet.md)");
            FoundAlarm::new(Alarm::FleetRecord, ProxyEntry::key_of(own), message)
        });
        let refused: Vec<_> = refused
            .into_iter()
            .chain(unknown)
            .chain(same_name)
            .collect();
        alarms.replace(Alarm::FleetRecord, &refused, now);
        let older = self.older(app, view);
        match older {
            Some(message) => alarms.raise(Alarm::FleetStoreOlder, "", message, now),
            None if self.older_at.is_none() => alarms.clear(Alarm::FleetStoreOlder, ""),
            None => {}
        }
        let no_space = status.no_space.clone();
        alarms.assess(Alarm::FleetNoSpace, "", now, || {
            Some(format!(
                "{}; drains and blocks do not reach the other proxies (operating/fleet.md)",
                no_space?
            ))
        });
        let clock = wrong_clock(&status.proxies, app.records.proxy());
        alarms.assess(Alarm::FleetClock, "", now, || clock);
        let withheld = app.membership.withheld();
        let withheld: Vec<_> = withheld
            .iter()
            .map(|member| FoundAlarm::new(Alarm::FleetLastMember, place(member), format!("{} in pool {} was drained on another proxy, and this one still uses it, because no other member of the pool is available here: make another member available, or repeat the drain with --force", member.1, member.0)))
            .collect();
        alarms.replace(Alarm::FleetLastMember, &withheld, now);
        let differs = self.differs(app, &status);
        alarms.replace(Alarm::FleetDiffers, &differs, now);
        // Records reach the other proxies through the store only.
        for cause in [Alarm::FleetUnreachable, Alarm::FleetNoSpace] {
            alarms.note_cause(Alarm::FleetDiffers, (cause, ""), |what| what == "records");
        }
    }

    fn older(&mut self, app: &App, view: &View) -> Option<String> {
        // A block that ended long ago may be deleted.
        let lost = app.records.read(|records| {
            let keys = view.lost().iter().filter_map(|key| RecordKey::parse(key));
            keys.filter(|key| records.get(key).is_some()).count()
        });
        if lost > 0 {
            self.older_at = Some(Instant::now());
            return Some(format!(
                "the fleet's store lost {lost} records that it had, or has older ones: it was emptied or restored from a backup; the proxies put them back, and no block or drain is lost (operating/fleet.md)"
            ));
        }
        if self
            .older_at
            .is_some_and(|at| at.elapsed() >= OLDER_SHOWN_FOR)
            && app.sharing.status().unreached().is_none()
        {
            self.older_at = None;
        }
        None
    }

    /// The differences between proxies that have lasted longer than a change of all proxies takes.
    fn differs(&mut self, app: &App, status: &SharingStatus) -> Vec<FoundAlarm> {
        let found = fleet::differences(&app.entries(status));
        // The clock has an alarm of its own.
        let found = found
            .into_iter()
            .filter(|difference| difference.what != "clock");
        let found: BTreeMap<_, _> = found
            .map(|difference| (difference.what, difference.values))
            .collect();
        self.differs_since
            .retain(|what, _| found.contains_key(what));
        let mut late = Vec::new();
        for (what, values) in found {
            let since = self
                .differs_since
                .entry(what.clone())
                .or_insert_with(Instant::now);
            if since.elapsed() >= DIFFERS_MAX {
                let values = values.iter();
                let values: Vec<_> = values
                    .map(|(value, proxies)| format!("{value} ({})", proxies.join(", ")))
                    .collect();
                let minutes = DIFFERS_MAX.as_secs() / 60;
                let message = format!(
                    "the proxies of the fleet differ in their {what} for more than {minutes} minutes: {}; `proscenium fleet` shows all differences",
                    values.join("; ")
                );
                late.push(FoundAlarm::new(Alarm::FleetDiffers, what, message));
            }
        }
        late
    }
}

/// Clears all alarms, because the proxy is no longer part of a fleet.
pub(super) fn clear(app: &App) {
    for alarm in ALL {
        app.lasting
            .metrics
            .alarms
            .replace(alarm, &[], SystemTime::now());
    }
}

fn unreached(status: &SharingStatus, now: SystemTime) -> Option<String> {
    let (since, why) = status.unreached()?;
    let lasts = now
        .duration_since(*since)
        .is_ok_and(|age| age >= UNREACHED_MAX);
    lasts.then(|| format!("the fleet's store is not reached: {why}; drains and blocks of this proxy do not reach the others, and theirs do not reach this one: run each command on every proxy until it is back (operating/fleet.md)"))
}

/// Whether the clocks of most other proxies differ from that of this one.
fn wrong_clock(proxies: &[Arc<HeardProxy>], own: &str) -> Option<String> {
    let others = proxies.iter().filter(|proxy| proxy.entry.name != own);
    let offsets = others.map(|proxy| {
        let offset = i128::from(proxy.entry.clock) - i128::from(proxy.heard_at);
        i64::try_from(offset).unwrap_or(i64::MAX)
    });
    let mut offsets: Vec<_> = offsets.collect();
    offsets.sort_unstable();
    let differing = offsets.iter().filter(|offset| offset.abs() > CLOCK_MAX);
    let median = *offsets.get(offsets.len() / 2)?;
    (differing.count() * 2 > offsets.len()).then(|| {
        format!("the clock of this host differs by {} s from those of most other proxies of the fleet: correct it (`timedatectl`), or the end of blocks and drains with --until differs", median / 1000)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_clock_is_wrong_if_those_of_most_others_differ() {
        let heard = |name: &str, offset: i64| {
            Arc::new(HeardProxy {
                entry: ProxyEntry {
                    name: name.to_owned(),
                    clock: 1_000_000_u64.saturating_add_signed(offset),
                    ..ProxyEntry::default()
                },
                heard_at: 1_000_000,
            })
        };
        for (offsets, expected) in [
            (vec![], false),
            (vec![5_000], false),
            (vec![5_001], true),
            (vec![-5_001], true),
            (vec![60_000, 0], false),
            (vec![60_000, 60_000, 0], true),
            (vec![i64::MIN, i64::MAX], true),
        ] {
            let mut proxies: Vec<_> = offsets.iter().map(|offset| heard("p2", *offset)).collect();
            proxies.push(heard("p1", 90_000));
            let is_wrong = wrong_clock(&proxies, "p1").is_some();
            assert_eq!(is_wrong, expected, "{offsets:?}");
        }
    }

    #[test]
    fn the_store_may_be_unreached_for_a_minute() {
        let since = SystemTime::UNIX_EPOCH;
        let status = SharingStatus {
            watch_failure: Some((since, "no route".to_owned())),
            ..SharingStatus::default()
        };
        for (seconds, expected) in [(59, false), (60, true)] {
            let now = since + Duration::from_secs(seconds);
            assert_eq!(unreached(&status, now).is_some(), expected, "{seconds} s");
        }
        assert_eq!(unreached(&SharingStatus::default(), since), None);
    }
}
