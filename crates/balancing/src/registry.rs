//! Every member and pool that any generation names, kept across reloads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::member::Member;
use crate::moves::MoveLimiter;
use crate::rotation::{Ties, Wheel};

/// Members by pool name and address, and what each pool keeps.
#[derive(Debug, Default)]
pub struct Registry(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Sorted by pool and address.
    members: Vec<Arc<Member>>,
    pools: BTreeMap<String, Arc<PoolState>>,
    next_id: u64,
}

/// What a pool keeps over generations: whose turn it is, and how many requests may leave a failed member.
#[derive(Debug, Default)]
pub struct PoolState {
    pub(crate) ties: Ties,
    pub(crate) wheel: Wheel,
    pub(crate) moves: MoveLimiter,
}

impl Registry {
    /// The member of that pool at that address: the one already known, else a new one.
    pub fn member(&self, pool: &str, address: &str) -> Arc<Member> {
        let mut known = self.lock();
        let members = &known.members;
        match members.binary_search_by(|member| key(member).cmp(&(pool, address))) {
            Ok(place) => Arc::clone(&members[place]),
            Err(place) => {
                let member = Arc::new(Member::new(known.next_id, pool, address));
                known.next_id += 1;
                known.members.insert(place, Arc::clone(&member));
                member
            }
        }
    }

    /// What the pool of that name keeps.
    pub fn pool(&self, name: &str) -> Arc<PoolState> {
        let mut known = self.lock();
        match known.pools.get(name) {
            Some(state) => Arc::clone(state),
            None => Arc::clone(known.pools.entry(name.to_owned()).or_default()),
        }
    }

    /// Forgets the members that `named(pool, address)` does not want and that nobody holds, and the pools
    /// that have no member left.
    ///
    /// One that an older generation or a request still holds stays, with its counts, until a later call.
    pub fn retain(&self, mut named: impl FnMut(&str, &str) -> bool) {
        // A member is only ever cloned from the registry, under this lock, or by a holder: alone means unheld.
        let mut known = self.lock();
        known.members.retain(|member| {
            named(member.pool(), member.address()) || Arc::strong_count(member) > 1
        });
        let Known { members, pools, .. } = &mut *known;
        pools.retain(|name, state| {
            Arc::strong_count(state) > 1 || members.iter().any(|member| **member.pool() == **name)
        });
    }

    /// All members known, by pool and address.
    pub fn members(&self) -> Vec<Arc<Member>> {
        self.lock().members.clone()
    }

    /// The list is whole after any panic: every change to it is one call.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(member: &Member) -> (&str, &str) {
    (member.pool(), member.address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_one_across_lookups_and_apart_between_pools() {
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
    fn an_unnamed_member_stays_until_nobody_holds_it() {
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
    fn what_a_pool_keeps_lasts_as_long_as_it_has_members() {
        let registry = Registry::default();
        registry.member("compilers", "c1:8140");
        registry.pool("compilers").ties.next();
        registry.retain(|_, _| true);
        assert_eq!(registry.pool("compilers").ties.peek(), 1);
        registry.retain(|_, _| false);
        assert_eq!(registry.pool("compilers").ties.peek(), 0);
    }

    #[test]
    fn a_named_member_stays_though_nobody_holds_it() {
        let registry = Registry::default();
        registry.member("compilers", "c1:8140");
        registry.retain(|pool, address| pool == "compilers" && address == "c1:8140");
        assert_eq!(registry.members().len(), 1);
    }
}
