//! Members that an operator takes out of service: for now or for a time, and stored for the next start.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use admin::{
    AdministrativeState, AdministrativeStatus, Caller, MemberSelection, MemberStateChange,
    MemberStateError, MemberStateOutcome, MemberStateRequest, MemberStatus, PoolMemberStatus,
    Timestamp,
};
use balancing::{Administrative, HealthChange, Instruction, MemberAddress, MemberName, Registry};
use proxy::PoolRuntime;
use serde::{Deserialize, Serialize};
use telemetry::{Alarm, Alarms};
use tokio::{sync::Notify, task::spawn_blocking, time::sleep};

use crate::{app::App, control::member_status, state_directory::StateDirectory};

/// Name of the file in the state directory.
pub(crate) const FILE: &str = "members.json";
/// Largest file: 10,000 members with the longest reasons.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Longest reason.
const WHY_BYTES_MAX: usize = 500;
/// How often the clock is read, because it may be set, and how often members that are no longer configured are looked for.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// What changes of administrative states share.
#[derive(Debug, Default)]
pub(crate) struct MemberStates {
    /// One change at a time: of two concurrent drains the second must see that the first left one member.
    changing: Mutex<()>,
    /// One writer of the file at a time.
    writing: tokio::sync::Mutex<()>,
    /// Notified after each change: another member may be the next to become ready.
    changed: Notify,
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    members: Vec<StoredMember>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredMember {
    pool: String,
    member: String,
    state: AdministrativeState,
    since: Timestamp,
    by: String,
    why: Option<String>,
    until: Option<Timestamp>,
    absent_since: Option<Timestamp>,
}

/// Restores the states at a start. If the file cannot be read, all members are ready: a proxy that does not start would be
/// worse. The alarm lasts until an operator sets a state again.
pub(crate) fn restore(directory: &StateDirectory, registry: &Registry, alarms: &Alarms) {
    match stored(directory) {
        Ok(members) => {
            for ((pool, member), instruction) in &members {
                let Instruction { state, by, why, .. } = instruction;
                tracing::warn!(pool, member, %state, by, why, "restored an administrative state");
            }
            registry.restore(members);
        }
        Err(why) => {
            let path = directory.path().join(FILE);
            let message = format!(
                "cannot read {}, which stores the members in drain and maintenance, so that all members are ready: {why}; \
                 drain those members again, or restore the file and restart the proxy",
                path.display()
            );
            alarms.raise(Alarm::MemberStates, "", message, SystemTime::now());
        }
    }
}

/// The states that are stored.
///
/// # Errors
/// Why the file cannot be read.
pub(crate) fn stored(directory: &StateDirectory) -> Result<Vec<(MemberName, Instruction)>, String> {
    let bytes = match directory.read(FILE, FILE_BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(Vec::new()),
        Err(_) if directory.is_absent(FILE) => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if stored.version != 1 {
        return Err(format!("its format is version {}", stored.version));
    }
    let members = stored.members.into_iter();
    members.map(StoredMember::instruction).collect()
}

impl StoredMember {
    fn new(((pool, member), instruction): (MemberName, Instruction)) -> Self {
        Self {
            pool,
            member,
            state: word(instruction.state),
            since: instruction.since.into(),
            by: instruction.by,
            why: instruction.why,
            until: instruction.until.map(Timestamp::from),
            absent_since: instruction.absent_since.map(Timestamp::from),
        }
    }

    fn instruction(self) -> Result<(MemberName, Instruction), String> {
        let instruction = Instruction {
            state: administrative(self.state),
            by: self.by,
            why: self.why,
            since: instant(&self.since)?,
            until: self.until.as_ref().map(instant).transpose()?,
            absent_since: self.absent_since.as_ref().map(instant).transpose()?,
        };
        match instruction.state {
            Administrative::Ready => Err(format!("{} is ready", self.member)),
            _ => Ok(((self.pool, self.member), instruction)),
        }
    }
}

impl App {
    /// Sets the state of all members that are selected, or of none; then stores it.
    pub(crate) async fn set_member_states(
        self: Arc<Self>,
        request: MemberStateRequest,
        by: Caller,
    ) -> Result<MemberStateOutcome, MemberStateError> {
        let names = self.change_states(&request, by)?;
        self.member_states.changed.notify_one();
        let not_persisted = self.store_member_states().await;
        if not_persisted.is_none() {
            self.lasting.metrics.alarms.clear(Alarm::MemberStates, "");
        }
        let members = names.into_iter().filter_map(|(pool, address)| {
            let member = self.member(&pool, &address).ok()?;
            Some(PoolMemberStatus { pool, member })
        });
        Ok(MemberStateOutcome {
            members: members.collect(),
            not_persisted,
        })
    }

    fn change_states(
        &self,
        request: &MemberStateRequest,
        by: Caller,
    ) -> Result<Vec<MemberName>, MemberStateError> {
        let change = &request.change;
        let _one_at_a_time = self.member_states.change();
        let generation = self.generation();
        let selected = select(&generation.pools, &request.members)?;
        let instruction = instruction(change, by)?;
        let names: Vec<_> = selected
            .iter()
            .map(|(runtime, index)| {
                let address = &runtime.members[*index].connector.address;
                (runtime.pool.name().to_string(), address.to_string())
            })
            .collect();
        let registry = &self.lasting.registry;
        let changes = match instruction {
            None => {
                let released = names.iter();
                released
                    .map(|(pool, address)| registry.release(pool, address))
                    .collect()
            }
            Some(instruction) => {
                if !change.force {
                    refuse_last(&selected)?;
                }
                let names = names.iter();
                let names: Vec<_> = names.map(|(pool, member)| (&**pool, &**member)).collect();
                registry
                    .instruct(&names, &instruction)
                    .map_err(|error| MemberStateError::Invalid(error.to_string()))?
            }
        };
        let (why, until) = (&change.why, change.until.as_ref().map(ToString::to_string));
        for ((pool, member), changed) in names.iter().zip(changes) {
            let state = change.state;
            tracing::info!(pool, member, %state, %by, why, until, force = change.force, "administrative state changed");
            self.state_changed(pool, member, changed);
        }
        Ok(names)
    }

    fn state_changed(&self, pool: &str, member: &str, change: Option<HealthChange>) {
        match change {
            Some(change) => self.shared.health_changed(pool, member, &change),
            None => self.shared.assess_pool(pool),
        }
        let generation = self.generation();
        let mut pools = generation.pools.iter();
        if pools.any(|known| **known.pool.name() == *pool && known.rules.passthrough.is_used) {
            // Tunnels to a member in maintenance end in their turn.
            self.shared.signals.send_modify(|_| ());
        }
    }

    /// One member of the active configuration.
    pub(crate) fn member(
        &self,
        pool: &str,
        member: &str,
    ) -> Result<MemberStatus, MemberStateError> {
        let generation = self.generation();
        let selection = MemberSelection {
            pool: Some(pool.to_owned()),
            member: Some(member.to_owned()),
            host: None,
        };
        let selected = select(&generation.pools, &selection)?;
        let (runtime, index) = selected[0];
        Ok(member_status(self, runtime, index))
    }

    /// Stores the states that are active; why they are not stored, if so.
    pub(crate) async fn store_member_states(self: &Arc<Self>) -> Option<String> {
        let _one_at_a_time = self.member_states.writing.lock().await;
        let app = Arc::clone(self);
        // Read in there: of two changes the one that is written last writes both.
        let written = spawn_blocking(move || {
            let members = app.lasting.registry.instructions().into_iter();
            let stored = Stored {
                version: 1,
                members: members.map(StoredMember::new).collect(),
            };
            let text = serde_json::to_vec_pretty(&stored).map_err(|error| error.to_string())?;
            let written = app.state_directory.write(FILE, &text);
            written.map_err(|error| error.to_string())
        });
        written
            .await
            .unwrap_or_else(|error| Err(error.to_string()))
            .err()
    }

    /// Makes the members ready whose time has come, and forgets those that have not been configured for long.
    async fn end_instructions(self: &Arc<Self>) {
        let now = SystemTime::now();
        let registry = &self.lasting.registry;
        let ended = {
            let _one_at_a_time = self.member_states.change();
            registry.end_due(now)
        };
        for ((pool, member), instruction, change) in &ended {
            let Instruction { state, by, why, .. } = instruction;
            tracing::warn!(pool, member, %state, by, why, "the time of an administrative state is over: the member is ready");
            self.state_changed(pool, member, *change);
        }
        let generation = self.generation();
        let named = |pool: &str, member: &str| {
            let mut pools = generation.pools.iter();
            let runtime = pools.find(|runtime| &**runtime.pool.name() == pool);
            runtime.is_some_and(|runtime| runtime.connectors().any(|c| &*c.address == member))
        };
        let (changed, forgotten) = registry.note_absent(named, now);
        for ((pool, member), Instruction { state, .. }) in &forgotten {
            tracing::info!(pool, member, %state, "forgot the administrative state of a member that has not been configured for 30 days");
        }
        if changed || !ended.is_empty() {
            self.store_member_states().await;
        }
    }
}

impl MemberStates {
    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends states in time, until it is dropped.
pub(crate) async fn end_in_time(app: Arc<App>) {
    loop {
        app.end_instructions().await;
        let next = app.lasting.registry.next_end();
        let wait = next.map_or(LOOK_INTERVAL_MAX, |end| {
            let left = end.duration_since(SystemTime::now()).unwrap_or_default();
            left.min(LOOK_INTERVAL_MAX)
        });
        tokio::select! {
            () = sleep(wait) => {}
            () = app.member_states.changed.notified() => {}
        }
    }
}

/// The instruction on a member as the status has it.
pub(crate) fn shown(instruction: Instruction) -> AdministrativeStatus {
    AdministrativeStatus {
        since: instruction.since.into(),
        by: instruction.by,
        why: instruction.why,
        until: instruction.until.map(Timestamp::from),
    }
}

type Selected<'a> = (&'a Arc<PoolRuntime>, usize);

fn select<'a>(
    pools: &'a [Arc<PoolRuntime>],
    selection: &MemberSelection,
) -> Result<Vec<Selected<'a>>, MemberStateError> {
    match (&selection.pool, &selection.member, &selection.host) {
        (Some(pool), Some(member), None) => in_pool(pools, pool, member).map(|one| vec![one]),
        (None, Some(member), None) => anywhere(pools, member).map(|one| vec![one]),
        (None, None, Some(host)) => on_host(pools, host),
        _ => Err(MemberStateError::Invalid(
            "specify either a member, with or without its pool, or a host".to_owned(),
        )),
    }
}

fn in_pool<'a>(
    pools: &'a [Arc<PoolRuntime>],
    pool: &str,
    member: &str,
) -> Result<Selected<'a>, MemberStateError> {
    let named = pools.iter().find(|runtime| &**runtime.pool.name() == pool);
    let runtime = named.ok_or_else(|| MemberStateError::UnknownPool {
        pool: pool.to_owned(),
        known: pools.iter().map(|r| r.pool.name().to_string()).collect(),
    })?;
    let mut found = matching(std::slice::from_ref(runtime), |address| address == member);
    found.pop().ok_or_else(|| MemberStateError::UnknownMember {
        pool: pool.to_owned(),
        member: member.to_owned(),
        known: addresses(std::slice::from_ref(runtime)),
    })
}

fn anywhere<'a>(
    pools: &'a [Arc<PoolRuntime>],
    member: &str,
) -> Result<Selected<'a>, MemberStateError> {
    match matching(pools, |address| address == member).as_slice() {
        [one] => Ok(*one),
        [] => Err(MemberStateError::UnknownAnywhere {
            member: member.to_owned(),
            known: addresses(pools),
        }),
        several => Err(MemberStateError::Ambiguous {
            member: member.to_owned(),
            pools: names(several),
        }),
    }
}

fn on_host<'a>(
    pools: &'a [Arc<PoolRuntime>],
    host: &str,
) -> Result<Vec<Selected<'a>>, MemberStateError> {
    let wanted = without_brackets(host);
    let is_there =
        |address: &str| host_of(address).is_some_and(|host| host.eq_ignore_ascii_case(wanted));
    match matching(pools, is_there) {
        found if !found.is_empty() => Ok(found),
        _ => Err(MemberStateError::UnknownHost {
            host: host.to_owned(),
            known: addresses(pools),
        }),
    }
}

fn matching(pools: &[Arc<PoolRuntime>], wanted: impl Fn(&str) -> bool) -> Vec<Selected<'_>> {
    let members = pools.iter().flat_map(|runtime| {
        let connectors = runtime.connectors().enumerate();
        connectors.map(move |(index, connector)| (runtime, index, &*connector.address))
    });
    members
        .filter(|(_, _, address)| wanted(address))
        .map(|(runtime, index, _)| (runtime, index))
        .collect()
}

/// The host of a member's address; `None` for a Unix socket.
fn host_of(address: &str) -> Option<String> {
    match MemberAddress::parse(address) {
        Ok(MemberAddress::Tcp { host, .. }) => Some(host),
        _ => None,
    }
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

fn addresses(pools: &[Arc<PoolRuntime>]) -> Vec<String> {
    let connectors = pools.iter().flat_map(|runtime| runtime.connectors());
    let addresses: BTreeSet<_> = connectors.map(|c| c.address.to_string()).collect();
    addresses.into_iter().collect()
}

/// Names of pools, each once.
fn names(selected: &[Selected<'_>]) -> Vec<String> {
    let names = selected.iter().map(|(runtime, _)| runtime.pool.name());
    let names: BTreeSet<_> = names.map(ToString::to_string).collect();
    names.into_iter().collect()
}

/// Refuses to leave a pool without an available member. A pool that has none already is no obstacle.
fn refuse_last(selected: &[Selected<'_>]) -> Result<(), MemberStateError> {
    let of = |runtime: &Arc<PoolRuntime>| -> Vec<usize> {
        let same = selected.iter().filter(|(of, _)| Arc::ptr_eq(of, runtime));
        same.map(|(_, index)| *index).collect()
    };
    let emptied = selected.iter().copied();
    let emptied: Vec<_> = emptied
        .filter(|(runtime, _)| runtime.pool.depends_on(&of(runtime)))
        .collect();
    match emptied.is_empty() {
        true => Ok(()),
        false => Err(MemberStateError::LastAvailable {
            pools: names(&emptied),
        }),
    }
}

/// The instruction that a change is; none where it makes members ready.
fn instruction(
    change: &MemberStateChange,
    by: Caller,
) -> Result<Option<Instruction>, MemberStateError> {
    let invalid = |why: String| Err(MemberStateError::Invalid(why));
    let is_line = |why: &String| {
        (1..=WHY_BYTES_MAX).contains(&why.len()) && !why.chars().any(char::is_control)
    };
    if !change.why.as_ref().is_none_or(is_line) {
        return invalid(format!(
            "the reason must be one line of 1 to {WHY_BYTES_MAX} bytes"
        ));
    }
    let now = SystemTime::now();
    let until = change.until.as_ref().map(instant).transpose();
    let until = until.map_err(MemberStateError::Invalid)?;
    match (change.state, until) {
        (AdministrativeState::Ready, Some(_)) => {
            invalid("a member that is ready has no end of its state".to_owned())
        }
        (AdministrativeState::Ready, None) => Ok(None),
        (_, Some(end)) if end <= now => invalid(format!("{} is in the past", Timestamp::from(end))),
        (state, until) => Ok(Some(Instruction {
            state: administrative(state),
            by: by.to_string(),
            why: change.why.clone(),
            since: now,
            until,
            absent_since: None,
        })),
    }
}

fn instant(stamp: &Timestamp) -> Result<SystemTime, String> {
    let seconds = stamp.unix_seconds().and_then(|s| u64::try_from(s).ok());
    let instant = seconds.and_then(|s| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(s)));
    instant.ok_or_else(|| format!("\"{stamp}\" is not a time"))
}

/// The state as the API has it.
pub(crate) fn word(state: Administrative) -> AdministrativeState {
    match state {
        Administrative::Ready => AdministrativeState::Ready,
        Administrative::Drain => AdministrativeState::Drain,
        Administrative::Maintenance => AdministrativeState::Maintenance,
    }
}

fn administrative(state: AdministrativeState) -> Administrative {
    match state {
        AdministrativeState::Ready => Administrative::Ready,
        AdministrativeState::Drain => Administrative::Drain,
        AdministrativeState::Maintenance => Administrative::Maintenance,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_that_of_the_address() {
        for (address, host) in [
            ("c1.example.com:8140", Some("c1.example.com")),
            ("[::1]:8140", Some("::1")),
            ("c1.example.com:8140@192.0.2.1", Some("c1.example.com")),
            ("c1.example.com:8140@2001:db8::1", Some("c1.example.com")),
            ("unix:/run/c1:8140", None),
        ] {
            assert_eq!(host_of(address).as_deref(), host, "{address}");
        }
        assert_eq!(without_brackets("[::1]"), "::1");
    }

    #[test]
    fn what_is_stored_is_restored_and_what_cannot_be_read_is_an_alarm() {
        let place = tempfile::tempdir().unwrap();
        let alarms = Arc::new(Alarms::default());
        let directory = StateDirectory::open(place.path(), &alarms);
        let write = |text: &str| directory.write(FILE, text.as_bytes()).unwrap();
        let restored = || {
            let registry = Registry::default();
            restore(&directory, &registry, &alarms);
            registry.instructions()
        };
        assert!(restored().is_empty());
        assert!(alarms.active().is_empty(), "no file is no fault");
        let one = r#"{"pool":"p","member":"c1:8140","state":"drain","since":"2026-01-01T00:00:00Z","by":"uid 0","why":"disk","until":null,"absent_since":null}"#;
        write(&format!("{{\"version\":1,\"members\":[{one}]}}"));
        let known = restored();
        assert_eq!(known[0].0, ("p".to_owned(), "c1:8140".to_owned()));
        assert_eq!(known[0].1.why.as_deref(), Some("disk"));
        let again = known.into_iter().map(StoredMember::new).next().unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), one);
        assert!(alarms.active().is_empty());
        for wrong in [
            "{".to_owned(),
            "{\"version\":2,\"members\":[]}".to_owned(),
            format!(
                "{{\"version\":1,\"members\":[{}]}}",
                one.replace("drain", "ready")
            ),
            format!(
                "{{\"version\":1,\"members\":[{}]}}",
                one.replace("2026", "then")
            ),
        ] {
            write(&wrong);
            assert!(restored().is_empty(), "{wrong}");
            assert!(alarms.get(Alarm::MemberStates, "").is_some(), "{wrong}");
            alarms.clear(Alarm::MemberStates, "");
        }
    }
}
