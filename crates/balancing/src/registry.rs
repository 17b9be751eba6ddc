//! Every member and pool in any generation, and the operator's instructions on members. They outlast reloads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::administrative::Administrative;
use crate::health::HealthChange;
use crate::member::Member;
use crate::pool_state::PoolState;

/// Members by pool name and address, and the state of each pool.
#[derive(Debug, Default)]
pub struct Registry(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Sorted by pool and address.
    members: Vec<Arc<Member>>,
    pools: BTreeMap<String, Arc<PoolState>>,
    next_id: u64,
    /// Instructions on members that are not ready, whether the members are configured or not. A member that is configured again
    /// gets its state back.
    instructions: BTreeMap<MemberName, Instruction>,
}

/// The pool and the address of a member.
pub type MemberName = (String, String);

/// The operator's instruction that takes a member out of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Drain or maintenance.
    pub state: Administrative,
    /// The account that gave the instruction.
    pub by: String,
    /// The reason, if one was given.
    pub why: Option<String>,
    /// When the member got this state.
    pub since: SystemTime,
    /// When the member becomes ready without another instruction. None: never.
    pub until: Option<SystemTime>,
    /// Since when no configuration contains the member. None: the active configuration contains it.
    pub absent_since: Option<SystemTime>,
}

/// An expired instruction, and how its expiry changed the member's health.
pub type EndedInstruction = (MemberName, Instruction, Option<HealthChange>);

/// The number of instructions has reached [`INSTRUCTIONS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{INSTRUCTIONS_MAX} members are drained or in maintenance, which is the maximum")]
pub struct TooManyInstructions;

/// Maximum number of members out of service, over all pools, including members that are no longer configured.
pub const INSTRUCTIONS_MAX: usize = 10_000;

impl Registry {
    /// The member of that pool at that address. It is created if it does not exist.
    pub fn member(&self, pool: &str, address: &str) -> Arc<Member> {
        self.lock().member(pool, address)
    }

    /// Takes members out of service: all of them or none. A member that already has this state keeps the time at which it got
    /// it.
    pub fn instruct(
        &self,
        members: &[(&str, &str)],
        instruction: &Instruction,
    ) -> Result<Vec<Option<HealthChange>>, TooManyInstructions> {
        let mut known = self.lock();
        let names = members.iter();
        let names: Vec<_> = names
            .map(|(pool, address)| ((*pool).to_owned(), (*address).to_owned()))
            .collect();
        let is_new = |name: &&MemberName| !known.instructions.contains_key(*name);
        if known.instructions.len() + names.iter().filter(is_new).count() > INSTRUCTIONS_MAX {
            return Err(TooManyInstructions);
        }
        let changes = names.into_iter().map(|name| {
            let change = known.member(&name.0, &name.1).administer(instruction.state);
            let before = known.instructions.get(&name);
            let before = before.filter(|before| before.state == instruction.state);
            let instruction = Instruction {
                since: before.map_or(instruction.since, |before| before.since),
                ..instruction.clone()
            };
            known.instructions.insert(name, instruction);
            change
        });
        Ok(changes.collect())
    }

    /// Puts a member back into service.
    pub fn release(&self, pool: &str, address: &str) -> Option<HealthChange> {
        let mut known = self.lock();
        let name = (pool.to_owned(), address.to_owned());
        known.instructions.remove(&name);
        known
            .member(pool, address)
            .administer(Administrative::Ready)
    }

    /// Gives `heirs` the state of the member that they replace, because DNS now has another name for the same server. All heirs
    /// get its administrative state. Heirs at the same address (true) also get its health, unless the registry knows them
    /// already. Returns whether the member had an instruction.
    pub fn inherit(&self, pool: &str, from: &str, heirs: &[(&str, bool)]) -> bool {
        let mut known = self.lock();
        let found = known.find(pool, from);
        let before = found.ok().map(|index| Arc::clone(&known.members[index]));
        let name = (pool.to_owned(), from.to_owned());
        let instruction = known.instructions.remove(&name);
        for (heir, is_there) in heirs {
            let is_new = known.find(pool, heir).is_err();
            let member = known.member(pool, heir);
            if let Some(before) = before.as_ref().filter(|_| is_new && *is_there) {
                member.take_over(before);
            }
            let name = (pool.to_owned(), (*heir).to_owned());
            if let Some(instruction) = &instruction
                && !known.instructions.contains_key(&name)
                && known.instructions.len() < INSTRUCTIONS_MAX
            {
                member.administer(instruction.state);
                known.instructions.insert(name, instruction.clone());
            }
        }
        instruction.is_some()
    }

    /// The instruction on a member, if it is not ready.
    pub fn instruction(&self, pool: &str, address: &str) -> Option<Instruction> {
        let name = (pool.to_owned(), address.to_owned());
        self.lock().instructions.get(&name).cloned()
    }

    /// All instructions, by pool and address.
    pub fn instructions(&self) -> Vec<(MemberName, Instruction)> {
        let known = self.lock();
        let instructions = known.instructions.iter();
        instructions
            .map(|(name, instruction)| (name.clone(), instruction.clone()))
            .collect()
    }

    /// Restores the instructions of an earlier process, at most [`INSTRUCTIONS_MAX`]. They apply to existing and future
    /// members.
    pub fn restore(&self, instructions: Vec<(MemberName, Instruction)>) {
        let mut known = self.lock();
        known.instructions = instructions.into_iter().take(INSTRUCTIONS_MAX).collect();
        for member in &known.members {
            if let Some(instruction) = known.instruction_on(member) {
                member.administer(instruction.state);
            }
        }
    }

    /// The state of the pool with that name.
    pub fn pool(&self, name: &str) -> Arc<PoolState> {
        let mut known = self.lock();
        match known.pools.get(name) {
            Some(state) => Arc::clone(state),
            None => Arc::clone(known.pools.entry(name.to_owned()).or_default()),
        }
    }

    /// When the next instruction expires.
    pub fn next_end(&self) -> Option<SystemTime> {
        let known = self.lock();
        known.instructions.values().filter_map(|i| i.until).min()
    }

    /// Removes expired instructions and makes their members ready.
    pub fn end_due(&self, now: SystemTime) -> Vec<EndedInstruction> {
        let mut known = self.lock();
        let is_due = |instruction: &Instruction| instruction.until.is_some_and(|end| end <= now);
        let due = known
            .instructions
            .extract_if(.., |_, instruction| is_due(instruction))
            .collect::<Vec<_>>();
        let ended = due.into_iter().map(|(name, instruction)| {
            let change = known
                .find(&name.0, &name.1)
                .ok()
                .and_then(|index| known.members[index].administer(Administrative::Ready));
            (name, instruction, change)
        });
        ended.collect()
    }

    /// Records which members are configured, and removes the instructions on members that have been absent for
    /// [`ABSENCE_MAX`]. Returns whether anything changed, and what was removed.
    pub fn note_absent(
        &self,
        named: impl Fn(&str, &str) -> bool,
        now: SystemTime,
    ) -> (bool, Vec<(MemberName, Instruction)>) {
        let mut known = self.lock();
        let mut changed = false;
        for ((pool, address), instruction) in &mut known.instructions {
            let absent_since = if named(pool, address) {
                None
            } else {
                instruction.absent_since.or(Some(now))
            };
            changed |= absent_since != instruction.absent_since;
            instruction.absent_since = absent_since;
        }
        let is_forgotten = |instruction: &Instruction| {
            let absence = |since| now.duration_since(since).unwrap_or_default();
            instruction
                .absent_since
                .is_some_and(|since| absence(since) > ABSENCE_MAX)
        };
        let forgotten = known
            .instructions
            .extract_if(.., |_, instruction| is_forgotten(instruction))
            .collect::<Vec<_>>();
        (changed || !forgotten.is_empty(), forgotten)
    }

    /// Removes the members that `named(pool, address)` rejects and that nothing else holds, and the pools that have no member
    /// left.
    ///
    /// A member that an older generation or a request still holds stays, with its counters, until a later call.
    pub fn retain(&self, mut named: impl FnMut(&str, &str) -> bool) {
        // A member is cloned only under this lock or by code that already holds it. A count of one therefore means that nothing
        // else holds the member.
        let mut known = self.lock();
        known.members.retain(|member| {
            named(member.pool(), member.address()) || Arc::strong_count(member) > 1
        });
        let Known { members, pools, .. } = &mut *known;
        pools.retain(|name, state| {
            Arc::strong_count(state) > 1 || members.iter().any(|member| **member.pool() == **name)
        });
    }

    /// All known members, by pool and address.
    pub fn members(&self) -> Vec<Arc<Member>> {
        self.lock().members.clone()
    }

    /// A panic leaves the contents consistent: every change to them is one call.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn member(&mut self, pool: &str, address: &str) -> Arc<Member> {
        match self.find(pool, address) {
            Ok(index) => Arc::clone(&self.members[index]),
            Err(index) => {
                let state = self.pools.entry(pool.to_owned()).or_default();
                let member = Member::new(self.next_id, pool, address, &state.tally);
                let member = Arc::new(member);
                self.next_id += 1;
                if let Some(instruction) = self.instruction_on(&member) {
                    member.administer(instruction.state);
                }
                self.members.insert(index, Arc::clone(&member));
                member
            }
        }
    }

    /// The index of the member, or the index at which to insert it.
    fn find(&self, pool: &str, address: &str) -> Result<usize, usize> {
        self.members
            .binary_search_by(|member| key(member).cmp(&(pool, address)))
    }

    fn instruction_on(&self, member: &Member) -> Option<&Instruction> {
        let (pool, address) = key(member);
        self.instructions
            .get(&(pool.to_owned(), address.to_owned()))
    }
}

fn key(member: &Member) -> (&str, &str) {
    (member.pool(), member.address())
}

/// How long an instruction is stored for a member that no configuration contains.
pub const ABSENCE_MAX: Duration = Duration::from_secs(30 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Health;
    use crate::settings::{CheckKind, CheckSettings};

    #[test]
    fn lookups_return_the_same_member_and_pools_do_not_share_members() {
        let registry = Registry::default();
        let first = registry.member("compilers", "c1:8140");
        assert!(Arc::ptr_eq(
            &first,
            &registry.member("compilers", "c1:8140")
        ));
        assert!(!Arc::ptr_eq(&first, &registry.member("ca", "c1:8140")));
        assert_eq!(registry.members().len(), 2);
    }

    #[test]
    fn an_unnamed_member_stays_while_it_is_held() {
        let registry = Registry::default();
        let held = registry.member("compilers", "c1:8140");
        registry.member("compilers", "c2:8140");
        registry.retain(|_, _| false);
        assert_eq!(registry.members().len(), 1);
        assert!(Arc::ptr_eq(&held, &registry.member("compilers", "c1:8140")));
        drop(held);
        registry.retain(|_, _| false);
        assert!(registry.members().is_empty());
    }

    #[test]
    fn the_state_of_a_pool_lasts_as_long_as_it_has_members() {
        let registry = Registry::default();
        registry.member("compilers", "c1:8140");
        registry.pool("compilers").ties.next();
        registry.retain(|_, _| true);
        assert_eq!(registry.pool("compilers").ties.peek(), 1);
        registry.retain(|_, _| false);
        assert_eq!(registry.pool("compilers").ties.peek(), 0);
    }

    #[test]
    fn a_named_member_stays_without_a_holder() {
        let registry = Registry::default();
        registry.member("compilers", "c1:8140");
        registry.retain(|pool, address| pool == "compilers" && address == "c1:8140");
        assert_eq!(registry.members().len(), 1);
    }

    const C1: (&str, &str) = ("compilers", "c1:8140");

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn instruction(state: Administrative, since: u64) -> Instruction {
        Instruction {
            state,
            by: "uid 0".to_owned(),
            why: None,
            since: at(since),
            until: None,
            absent_since: None,
        }
    }

    fn since(registry: &Registry) -> SystemTime {
        let instruction = registry.instruction(C1.0, C1.1);
        instruction.expect("an instruction").since
    }

    #[test]
    fn an_instruction_outlasts_the_member_and_the_process() {
        let registry = Registry::default();
        let drain = instruction(Administrative::Drain, 1);
        assert_eq!(registry.instruct(&[C1], &drain), Ok(vec![None]));
        registry.retain(|_, _| false);
        assert!(registry.members().is_empty());
        let again = registry.member(C1.0, C1.1);
        assert_eq!(again.administrative(), Administrative::Drain);
        let next = Registry::default();
        let before = next.member(C1.0, C1.1);
        next.restore(registry.instructions());
        assert_eq!(before.administrative(), Administrative::Drain);
        next.release(C1.0, C1.1);
        assert_eq!(before.administrative(), Administrative::Ready);
        assert!(next.instructions().is_empty());
    }

    #[test]
    fn the_same_state_again_keeps_the_time_since_when() {
        let registry = Registry::default();
        for (state, given, expected) in [
            (Administrative::Drain, 1, 1),
            (Administrative::Drain, 2, 1),
            (Administrative::Maintenance, 3, 3),
            (Administrative::Drain, 4, 4),
        ] {
            registry
                .instruct(&[C1], &instruction(state, given))
                .unwrap();
            assert_eq!(since(&registry), at(expected), "{state} at {given}");
        }
    }

    /// Probes continue while a member is drained, but its server may have been stopped since the last probe.
    #[test]
    fn a_member_that_is_ready_after_a_drain_awaits_a_probe() {
        let registry = Registry::default();
        let check = CheckSettings::default();
        let member = registry.member(C1.0, C1.1);
        member.begin_check(&check);
        member.probe_succeeded(&check);
        let set = |state| registry.instruct(&[C1], &instruction(state, 1)).unwrap();
        let release = || registry.release(C1.0, C1.1);
        release();
        assert_eq!(member.awaited_probe(), None, "it was ready");
        set(Administrative::Drain);
        assert_eq!(member.awaited_probe(), None, "it gets no requests");
        assert_eq!(release(), None, "requests do not wait for the probe");
        let first = member.awaited_probe();
        assert!(first.is_some());
        assert_eq!(member.health(), Health::Up);
        // A probe that started before the end of the drain does not count.
        member.probe_succeeded(&check);
        assert_eq!(member.awaited_probe(), first);
        set(Administrative::Drain);
        assert_eq!(member.awaited_probe(), None);
        release();
        let second = member.awaited_probe();
        assert_ne!(second, first);
        member.confirmed(first.unwrap());
        assert_eq!(member.awaited_probe(), second, "of the drain before");
        member.confirmed(second.unwrap());
        assert_eq!(member.awaited_probe(), None);
        // The drain ends when its time expires, without a command.
        let until = Instruction {
            until: Some(at(10)),
            ..instruction(Administrative::Drain, 1)
        };
        registry.instruct(&[C1], &until).unwrap();
        registry.end_due(at(10));
        assert!(member.awaited_probe().is_some());
        // After maintenance, the member is down until probes succeed.
        set(Administrative::Maintenance);
        release();
        assert_eq!(member.health(), Health::Down);
        // Without probes, there is nothing to wait for.
        let unprobed = registry.member("other", "c1:8140");
        unprobed.begin_check(&CheckSettings {
            kind: CheckKind::None,
            ..CheckSettings::default()
        });
        let other = [("other", "c1:8140")];
        registry
            .instruct(&other, &instruction(Administrative::Drain, 1))
            .unwrap();
        registry.release("other", "c1:8140");
        assert_eq!(unprobed.awaited_probe(), None);
    }

    #[test]
    fn a_server_with_another_name_keeps_its_state() {
        let registry = Registry::default();
        let check = CheckSettings::default();
        let name = registry.member(C1.0, C1.1);
        name.begin_check(&check);
        name.probe_succeeded(&check);
        name.learn_jrubies(Some(4));
        name.restarted();
        name.overloaded(Duration::from_secs(1));
        registry
            .instruct(&[C1], &instruction(Administrative::Drain, 1))
            .unwrap();
        let (one, other) = ("c1:8140@192.0.2.1", "c1:8140@192.0.2.2");
        assert!(registry.inherit(C1.0, C1.1, &[(one, true), (other, false)]));
        let of = |address| {
            let member = registry.member(C1.0, address);
            (member.health(), member.jrubies(), member.operator_state())
        };
        let drain = Administrative::Drain;
        assert_eq!(of(one), (Health::Up, Some(4), drain));
        assert_eq!(of(other), (Health::Unknown, None, drain));
        assert!(registry.instruction(C1.0, C1.1).is_none());
        let learned = |address| {
            let member = registry.member(C1.0, address);
            let cold = member.warm_up(Duration::from_secs(2));
            (cold, member.learned_limit())
        };
        assert_eq!(learned(one), (Some(0), Some(1)));
        assert_eq!(learned(other), (None, None));

        // DNS returns to the first name: the operator's last instruction applies.
        registry.release(C1.0, one);
        registry.retain(|_, address| address != C1.1);
        drop(name);
        registry.retain(|_, address| address != C1.1);
        assert!(!registry.inherit(C1.0, one, &[(C1.1, true)]));
        assert_eq!(of(C1.1), (Health::Up, Some(4), Administrative::Ready));
        assert!(registry.instruction(C1.0, other).is_some());
    }

    #[test]
    fn a_server_without_probes_that_gets_another_name_while_it_is_down_is_tried_again() {
        let registry = Registry::default();
        let check = CheckSettings {
            kind: CheckKind::None,
            ..CheckSettings::default()
        };
        let name = registry.member(C1.0, C1.1);
        name.begin_check(&check);
        name.connect_refused(Duration::from_secs(1));
        let one = "c1:8140@192.0.2.1";
        registry.inherit(C1.0, C1.1, &[(one, true)]);
        let heir = registry.member(C1.0, one);
        assert_eq!(heir.health(), Health::Down);
        assert!(!heir.may_get_requests(Duration::from_secs(1)));
        assert!(heir.may_get_requests(Duration::from_secs(3600)));
    }

    #[test]
    fn a_member_becomes_ready_when_its_instruction_expires() {
        let registry = Registry::default();
        let member = registry.member(C1.0, C1.1);
        let until = |end| Instruction {
            until: Some(at(end)),
            ..instruction(Administrative::Drain, 1)
        };
        registry.instruct(&[C1], &until(10)).unwrap();
        let second = [("compilers", "c2:8140")];
        registry.instruct(&second, &until(20)).unwrap();
        assert_eq!(registry.next_end(), Some(at(10)));
        assert!(registry.end_due(at(9)).is_empty());
        let ended = registry.end_due(at(10));
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].0.1, "c1:8140");
        assert_eq!(member.administrative(), Administrative::Ready);
        assert_eq!(registry.next_end(), Some(at(20)));
    }

    #[test]
    fn an_instruction_is_removed_thirty_days_after_its_member_was_last_configured() {
        let registry = Registry::default();
        let drain = instruction(Administrative::Drain, 1);
        registry.instruct(&[C1], &drain).unwrap();
        let month = ABSENCE_MAX.as_secs();
        for (named, now, changed, left) in [
            (true, month * 3, false, 1),
            (false, month * 4, true, 1),
            (false, month * 5, false, 1),
            (true, month * 5 + 1, true, 1),
            (false, month * 6, true, 1),
            (false, month * 7 + 1, true, 0),
        ] {
            let (found, forgotten) = registry.note_absent(|_, _| named, at(now));
            assert_eq!((found, registry.instructions().len()), (changed, left));
            assert_eq!(forgotten.len(), 1 - left);
        }
    }

    #[test]
    fn instructions_are_bounded_and_known_ones_can_be_changed() {
        let registry = Registry::default();
        let drain = instruction(Administrative::Drain, 1);
        for n in 0..INSTRUCTIONS_MAX {
            let address = format!("c{n}:8140");
            let member = [("compilers", &*address)];
            registry.instruct(&member, &drain).unwrap();
        }
        let one_more = [C1, ("compilers", "one:8140")];
        let maintenance = instruction(Administrative::Maintenance, 2);
        let refused = registry.instruct(&one_more, &maintenance);
        assert_eq!(refused, Err(TooManyInstructions));
        assert_eq!(since(&registry), at(1), "none is changed");
        assert!(registry.instruct(&[C1], &maintenance).is_ok());
        assert_eq!(since(&registry), at(2));
    }
}
