//! Administrative states: an operator takes members out of service, with or without an end, and the state is stored.

use std::{
    collections::BTreeSet,
    sync::{Arc, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use admin::{
    AdministrativeState, AuditEntry, MemberSelection, MemberStateError, MemberStateRequest,
    OperatorAccount, SetMemberState, Timestamp,
};
use balancing::{Health, HealthChange, Instruction, MemberAddress, MemberName};
use fleet::RecordKey;
use proxy::PoolRuntime;
use rustls_pki_types::UnixTime;
use state::{
    StateDirectory,
    foreign_changes::of_member,
    operator_records::instruction_of,
    stored_states::{self, StoredStates, administrative},
    supervise::{PANICKED, blocking},
    times::system_time,
};
use telemetry::Alarm;
use tokio::time::sleep;
use upstream::Connector;

use crate::{Members, Membership};

/// Maximum length of a reason, in bytes.
const WHY_BYTES_MAX: usize = 500;
/// How often the clock is read, because an operator may set it, and how often the proxy looks for members that are no longer
/// configured.
const CLOCK_INTERVAL_MAX: Duration = Duration::from_secs(60);

impl Members {
    /// Applies the stored states at a start. If they cannot be read, all members are ready: a proxy that does not start would be
    /// worse. The alarm stays until an operator sets a state again.
    pub fn restore_states(&self, stored: Result<StoredStates, String>, directory: &StateDirectory) {
        match stored {
            Ok(StoredStates {
                instructions: members,
                records: _,
            }) => {
                for ((pool, member), instruction) in &members {
                    let Instruction { state, by, why, .. } = instruction;
                    tracing::warn!(pool, member, %state, by, why, "restored an administrative state");
                }
                self.registry.restore(members);
            }
            Err(why) => {
                let path = directory.path().join(stored_states::FILE);
                let message = format!(
                    "cannot read {}, which stores the members in drain and maintenance, so that all members are ready: {why}; \
                     drain those members again, or restore the file and restart the proxy",
                    path.display()
                );
                let alarms = &self.metrics.alarms;
                alarms.raise(Alarm::MemberStates, "", message, SystemTime::now());
            }
        }
    }
}

/// What a request has changed.
pub struct ChangedStates {
    /// The members, by pool and address.
    pub names: Vec<MemberName>,
    /// The states that they had, and who had set them.
    pub replaced: Vec<SetMemberState>,
    /// Why the states are not stored, if so.
    pub not_persisted: Option<String>,
}

impl Membership {
    /// Sets the state of all selected members, or of none, and then stores it.
    ///
    /// # Errors
    /// Why no state has changed.
    pub async fn set_states(
        &self,
        request: &MemberStateRequest,
        by: OperatorAccount,
    ) -> Result<ChangedStates, MemberStateError> {
        let (names, replaced) = {
            // A process that has handed over must not confirm a state that the other one does not know.
            let writer = self.active.writer_of_owner().await;
            let _writer = writer.ok_or(MemberStateError::HandedOver)?;
            self.change_states(request, &by)?
        };
        self.changes.changed.notify_one();
        let not_persisted = self.store_states().await;
        if not_persisted.is_none() {
            self.active.alarms().clear(Alarm::MemberStates, "");
        }
        Ok(ChangedStates {
            names,
            replaced,
            not_persisted,
        })
    }

    fn change_states(
        &self,
        request: &MemberStateRequest,
        by: &OperatorAccount,
    ) -> Result<(Vec<MemberName>, Vec<SetMemberState>), MemberStateError> {
        let change = request;
        let _one_at_a_time = self.changes.lock();
        let generation = self.active.generation();
        let selected = select(&generation.pools, &request.members)?;
        let instruction = instruction(change, by)?;
        let names: Vec<_> = selected
            .iter()
            .map(|(runtime, index)| {
                let address = &runtime.members[*index].connector.address;
                (runtime.pool.name().to_string(), address.to_string())
            })
            .collect();
        let replaced = names.iter().filter_map(|(pool, member)| {
            let record = self.records.of_member(pool, member)?;
            Some(self.records.state_of(record))
        });
        let replaced = replaced.collect();
        let registry = &self.members.registry;
        let recorded = instruction.clone();
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
        self.records
            .set_states(&names, recorded.as_ref(), &by.name, change.force);
        self.records.act();
        let (why, until) = (&change.why, change.until.as_ref().map(ToString::to_string));
        for ((pool, member), changed) in names.iter().zip(changes) {
            let state = change.state;
            tracing::info!(
                history.kind = "member",
                pool, member, %state, %by, why, until, force = change.force,
                "administrative state changed"
            );
            self.state_changed(pool, member, changed);
        }
        Ok((names, replaced))
    }

    /// Applies the records of members that another proxy has changed. A drain without `force` never takes the last available
    /// member of a pool: it is withheld until another member is available.
    ///
    /// Returns the lines for the audit log.
    pub fn apply_records(&self, names: impl IntoIterator<Item = MemberName>) -> Vec<AuditEntry> {
        let mut audit = Vec::new();
        let _one_at_a_time = self.changes.lock();
        let generation = self.active.generation();
        let registry = &self.members.registry;
        for (pool, member) in names {
            let Some(record) = self.records.of_member(&pool, &member) else {
                continue;
            };
            let selected = in_pool(&generation.pools, &pool, &member).ok();
            let instruction = instruction_of(&record, SystemTime::now());
            let known = registry.instruction(&pool, &member);
            // After a start, no member has been probed yet, and this one may still be the last one. A withheld member that goes
            // down stays withheld, because its pool has no other member when it returns.
            let is_held = self.is_withheld(&(pool.clone(), member.clone()));
            let is_last = |(runtime, index): Selected<'_>| {
                let health = runtime.pool.entries()[index].member.health();
                (is_held || health != Health::Down) && !runtime.pool.has_another_available(index)
            };
            let is_withheld = !record.force
                && instruction.is_some()
                && known.is_none()
                && selected.is_some_and(is_last);
            let is_new = self.withhold((pool.clone(), member.clone()), is_withheld);
            if is_withheld {
                if !is_new {
                    continue;
                }
                audit.push(of_member(&record, None, None, true));
                tracing::warn!(
                    history.kind = "member",
                    pool,
                    member,
                    proxy = record.stamp.by,
                    "withheld a drain of another proxy: no other member of the pool is available here"
                );
                continue;
            }
            if known != instruction {
                let (before, after) = (known.as_ref(), instruction.as_ref());
                audit.push(of_member(&record, before, after, false));
            }
            let change = match &instruction {
                None => registry.release(&pool, &member),
                Some(instruction) => registry
                    .instruct(&[(&pool, &member)], instruction)
                    .ok()
                    .and_then(|mut changes| changes.pop().flatten()),
            };
            let (state, by) = (record.state, &record.by);
            tracing::info!(
                history.kind = "member",
                pool,
                member,
                %state,
                by,
                proxy = record.stamp.by,
                why = record.why,
                "administrative state changed on another proxy"
            );
            self.state_changed(&pool, &member, change);
        }
        self.changes.changed.notify_one();
        audit
    }

    /// Withholds the drains by other proxies that an earlier process withheld. Their records have no instruction.
    pub fn withhold_again(&self) {
        let _one_at_a_time = self.changes.lock();
        let generation = self.active.generation();
        let registry = &self.members.registry;
        let now = SystemTime::now();
        for (key, _) in self.records.all().iter() {
            let RecordKey::Member { pool, member } = key else {
                continue;
            };
            let record = self.records.of_member(pool, member);
            let is_withheld = record.is_some_and(|record| instruction_of(&record, now).is_some())
                && registry.instruction(pool, member).is_none()
                && in_pool(&generation.pools, pool, member).is_ok();
            if is_withheld {
                self.withhold((pool.clone(), member.clone()), true);
            }
        }
    }

    fn state_changed(&self, pool: &str, member: &str, change: Option<HealthChange>) {
        match change {
            Some(change) => self.active.shared().health_changed(pool, member, &change),
            None => self.active.shared().assess_pool(pool),
        }
        self.probes().probe_now(pool, member);
        let generation = self.active.generation();
        let mut pools = generation.pools.iter();
        if pools.any(|known| **known.pool.name() == *pool && known.rules.passthrough.is_used) {
            // Tunnels to a member in maintenance are closed one after the other.
            self.active.shared().signals.send_modify(|_| ());
        }
    }

    /// Stores the active states. Returns why they are not stored, if so.
    pub async fn store_states(&self) -> Option<String> {
        let _one_at_a_time = self.changes.storing.lock().await;
        let (members, records) = (Arc::clone(&self.members), Arc::clone(&self.records));
        let directory = Arc::clone(&self.directory);
        // Read under this lock, so that the second of two concurrent writes contains both changes.
        let written = blocking("store-member-states", move || {
            let instructions = members.registry.instructions();
            records.adopt(&instructions);
            stored_states::write(&directory, instructions, &records.all())
        });
        written
            .await
            .unwrap_or_else(|| Err(PANICKED.to_owned()))
            .err()
    }

    /// Applies the states that were stored by the process that has taken over. Returns false if they cannot be read.
    pub async fn apply_stored_states(&self) -> bool {
        let directory = Arc::clone(&self.directory);
        let read = blocking("read-member-states", move || {
            stored_states::read(&directory)
        })
        .await;
        let stored = match read.unwrap_or_else(|| Err(PANICKED.to_owned())) {
            Ok(stored) => stored,
            // The known states stay active.
            Err(why) => {
                tracing::error!("cannot read the states of members: {why}");
                return false;
            }
        };
        let _one_at_a_time = self.changes.lock();
        let registry = &self.members.registry;
        let known = registry.instructions();
        let StoredStates {
            instructions: stored,
            records,
        } = stored;
        self.records.take_over(records, UnixTime::now());
        if known == stored {
            return true;
        }
        for ((pool, member), _) in &known {
            if !stored.iter().any(|((p, m), _)| (p, m) == (pool, member)) {
                let change = registry.release(pool, member);
                self.state_changed(pool, member, change);
            }
        }
        let members = stored.len();
        registry.restore(stored);
        // Tunnels to a member in maintenance are closed.
        self.active.shared().signals.send_modify(|_| ());
        tracing::info!(members, "applied stored states of members");
        true
    }

    /// Makes members ready whose state has ended, and forgets states of members that have not been configured for long.
    async fn end_due_states(&self) {
        let now = SystemTime::now();
        let registry = &self.members.registry;
        let Some(_writer) = self.active.writer_of_owner().await else {
            return;
        };
        let ended = {
            let _one_at_a_time = self.changes.lock();
            registry.end_due(now)
        };
        for ((pool, member), instruction, change) in &ended {
            let Instruction { state, by, why, .. } = instruction;
            tracing::warn!(
                history.kind = "member", pool, member, %state, by, why,
                "the time of an administrative state is over: the member is ready"
            );
            self.state_changed(pool, member, *change);
        }
        let generation = self.active.generation();
        let named = |pool: &str, member: &str| {
            let mut pools = generation.pools.iter();
            let runtime = pools.find(|runtime| &**runtime.pool.name() == pool);
            runtime.is_some_and(|runtime| runtime.connectors().any(|c| &*c.address == member))
        };
        let (changed, forgotten) = registry.note_absent(named, now);
        // In a fleet, the record stays, because the store would bring it back.
        let is_shared = self.active.foundation().config.fleet.is_some();
        for ((pool, member), Instruction { state, .. }) in &forgotten {
            if !is_shared {
                self.records.forget_member(pool, member);
            }
            tracing::info!(pool, member, %state, "forgot the administrative state of a member that has not been configured for 30 days");
        }
        if changed || !ended.is_empty() {
            self.store_states().await;
        }
    }

    /// Ends states when they are due, until this future is dropped.
    pub async fn end_when_due(&self) {
        loop {
            self.end_due_states().await;
            let next = self.members.registry.next_end();
            let wait = next.map_or(CLOCK_INTERVAL_MAX, |end| {
                let left = end.duration_since(SystemTime::now()).unwrap_or_default();
                left.min(CLOCK_INTERVAL_MAX)
            });
            tokio::select! {
                () = sleep(wait) => {}
                () = self.changes.changed.notified() => {}
            }
        }
    }

    /// The members whose drain by another proxy is withheld.
    pub fn withheld(&self) -> BTreeSet<MemberName> {
        self.withheld_names().clone()
    }

    /// Notes whether the drain of a member by another proxy is withheld. Returns whether this is new.
    fn withhold(&self, member: MemberName, is_withheld: bool) -> bool {
        let mut withheld = self.withheld_names();
        match is_withheld {
            true => withheld.insert(member),
            false => withheld.remove(&member),
        }
    }

    fn is_withheld(&self, member: &MemberName) -> bool {
        self.withheld_names().contains(member)
    }

    fn withheld_names(&self) -> MutexGuard<'_, BTreeSet<MemberName>> {
        self.withheld.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool, and the index of a member in it.
pub type Selected<'a> = (&'a Arc<PoolRuntime>, usize);

fn select<'a>(
    pools: &'a [Arc<PoolRuntime>],
    selection: &MemberSelection,
) -> Result<Vec<Selected<'a>>, MemberStateError> {
    match (&selection.pool, &selection.member, &selection.host) {
        (Some(pool), Some(member), None) => {
            let runtime = pool_named(pools, pool)?;
            let one = find_one(std::slice::from_ref(runtime), member)?;
            one.map(|one| vec![one])
                .ok_or_else(|| unknown_member(runtime, member))
        }
        (None, Some(member), None) => {
            find_one(pools, member)?
                .map(|one| vec![one])
                .ok_or_else(|| MemberStateError::UnknownAnywhere {
                    member: member.clone(),
                    known: addresses(pools),
                })
        }
        (None, None, Some(host)) => on_host(pools, host),
        _ => Err(MemberStateError::Invalid(
            "specify either a member, with or without its pool, or a host".to_owned(),
        )),
    }
}

/// A member of a pool of the active configuration.
///
/// # Errors
/// There is no such pool or member.
pub fn in_pool<'a>(
    pools: &'a [Arc<PoolRuntime>],
    pool: &str,
    member: &str,
) -> Result<Selected<'a>, MemberStateError> {
    let runtime = pool_named(pools, pool)?;
    let mut found = matching(std::slice::from_ref(runtime), |connector| {
        *connector.address == *member
    });
    found.pop().ok_or_else(|| unknown_member(runtime, member))
}

fn pool_named<'a>(
    pools: &'a [Arc<PoolRuntime>],
    pool: &str,
) -> Result<&'a Arc<PoolRuntime>, MemberStateError> {
    let mut named = pools.iter();
    named
        .find(|runtime| &**runtime.pool.name() == pool)
        .ok_or_else(|| MemberStateError::UnknownPool {
            pool: pool.to_owned(),
            known: pools.iter().map(|r| r.pool.name().to_string()).collect(),
        })
}

fn unknown_member(runtime: &Arc<PoolRuntime>, member: &str) -> MemberStateError {
    MemberStateError::UnknownMember {
        pool: runtime.pool.name().to_string(),
        member: member.to_owned(),
        known: addresses(std::slice::from_ref(runtime)),
    }
}

/// The only member with this address, or the only member on this host.
fn find_one<'a>(
    pools: &'a [Arc<PoolRuntime>],
    member: &str,
) -> Result<Option<Selected<'a>>, MemberStateError> {
    let mut found = matching(pools, |connector| *connector.address == *member);
    if found.is_empty() {
        found = matching(pools, is_on(member));
    }
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        several => Err(MemberStateError::Ambiguous {
            member: member.to_owned(),
            members: described(several),
        }),
    }
}

fn on_host<'a>(
    pools: &'a [Arc<PoolRuntime>],
    host: &str,
) -> Result<Vec<Selected<'a>>, MemberStateError> {
    match matching(pools, is_on(host)) {
        found if !found.is_empty() => Ok(found),
        _ => Err(MemberStateError::UnknownHost {
            host: host.to_owned(),
            known: addresses(pools),
        }),
    }
}

/// Whether a member is on this host.
fn is_on(host: &str) -> impl Fn(&Connector) -> bool {
    let wanted = without_brackets(host);
    move |connector| match &connector.target {
        MemberAddress::Tcp { host, .. } => host.eq_ignore_ascii_case(wanted),
        MemberAddress::Unix(_) => false,
    }
}

fn matching(pools: &[Arc<PoolRuntime>], wanted: impl Fn(&Connector) -> bool) -> Vec<Selected<'_>> {
    let members = pools.iter().flat_map(|runtime| {
        let connectors = runtime.connectors().enumerate();
        connectors.map(move |(index, connector)| (runtime, index, connector))
    });
    members
        .filter(|(_, _, connector)| wanted(connector))
        .map(|(runtime, index, _)| (runtime, index))
        .collect()
}

/// A host as it is written in a URL, without the brackets of an IPv6 address.
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

/// Each member with its pool.
fn described(selected: &[Selected<'_>]) -> Vec<String> {
    let members = selected.iter().map(|(runtime, index)| {
        let address = &runtime.members[*index].connector.address;
        format!("{address} in {}", runtime.pool.name())
    });
    members.collect()
}

/// The names of the pools, each once.
fn names(selected: &[Selected<'_>]) -> Vec<String> {
    let names = selected.iter().map(|(runtime, _)| runtime.pool.name());
    let names: BTreeSet<_> = names.map(ToString::to_string).collect();
    names.into_iter().collect()
}

/// Refuses to leave a pool without an available member. A pool that already has none does not count.
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
            unconfirmed: unconfirmed(&emptied, selected),
        }),
    }
}

/// The other members of these pools that are ready after a drain and not known to be up.
fn unconfirmed(emptied: &[Selected<'_>], selected: &[Selected<'_>]) -> Vec<String> {
    let is_selected = |runtime: &Arc<PoolRuntime>, index: usize| {
        let mut same = selected.iter();
        same.any(|(of, at)| Arc::ptr_eq(of, runtime) && *at == index)
    };
    let others = emptied.iter().flat_map(|(runtime, _)| {
        let entries = runtime.pool.entries().iter().enumerate();
        entries
            .filter(|(index, _)| !is_selected(runtime, *index))
            .map(|(_, entry)| &entry.member)
    });
    let others = others.filter(|member| member.awaited_probe().is_some());
    let addresses: BTreeSet<_> = others.map(|member| member.address().to_string()).collect();
    addresses.into_iter().collect()
}

/// The instruction for the registry. `None` if the change makes members ready.
fn instruction(
    change: &MemberStateRequest,
    by: &OperatorAccount,
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
    let time =
        |time: &Timestamp| system_time(time).ok_or_else(|| format!("\"{time}\" is not a time"));
    let until = change.until.as_ref().map(time).transpose();
    let until = until.map_err(MemberStateError::Invalid)?;
    match (change.state, until) {
        (AdministrativeState::Ready, Some(_)) => {
            invalid("a member that is ready has no end of its state".to_owned())
        }
        (AdministrativeState::Ready, None) => Ok(None),
        (_, Some(end)) if end <= now => invalid(format!("{} is in the past", Timestamp::from(end))),
        (state, until) => Ok(Some(Instruction {
            state: administrative(state),
            by: by.name.clone(),
            why: change.why.clone(),
            since: now,
            until,
            absent_since: None,
        })),
    }
}

#[cfg(test)]
mod tests {
    use telemetry::Metrics;

    use super::*;

    #[test]
    fn stored_states_are_restored_and_a_damaged_file_is_an_alarm() {
        let place = tempfile::tempdir().unwrap();
        let metrics = Arc::new(Metrics::default());
        let alarms = &metrics.alarms;
        let directory = StateDirectory::open(place.path(), alarms);
        let members = Members::new(Arc::clone(&metrics), Arc::default());
        let drain = Instruction {
            state: administrative(AdministrativeState::Drain),
            by: "uid 0".to_owned(),
            why: Some("disk".to_owned()),
            since: SystemTime::UNIX_EPOCH,
            until: None,
            absent_since: None,
        };
        let stored = vec![(("p".to_owned(), "c1:8140".to_owned()), drain)];
        let states = StoredStates {
            instructions: stored.clone(),
            records: Vec::new(),
        };
        members.restore_states(Ok(states), &directory);
        assert_eq!(members.registry.instructions(), stored);
        assert!(alarms.active().is_empty());
        let members = Members::new(Arc::clone(&metrics), Arc::default());
        members.restore_states(Err("damaged".to_owned()), &directory);
        assert!(members.registry.instructions().is_empty());
        assert!(alarms.get(Alarm::MemberStates, "").is_some());
    }
}
