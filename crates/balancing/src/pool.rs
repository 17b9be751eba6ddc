//! A set of members that do the same work, and the choice of the member for an attempt.

use std::sync::Arc;
use std::time::Duration;

use crate::administrative::Administrative;
use crate::availability::Availability;
use crate::choice::Candidates;
use crate::health::{Health, HealthChange};
use crate::member::{Member, Need};
use crate::offer::{EligibleMembers, Offer, PickError};
use crate::pick_criteria::{MemberPersistence, PickCriteria};
use crate::pool_entry::{MEMBERS_MAX, PickRule, PoolEntry};
use crate::pool_factors::PoolFactors;
use crate::pool_state::PoolState;
use crate::pool_sums::{PoolSums, TierSums};
use crate::rank::{RankReason, RankedMember};
use crate::registry::Registry;
use crate::rendezvous::most_wanted;
use crate::settings::{
    Algorithm, CheckKind, CheckSettings, EjectionSettings, MemberSettings, PoolSettings, Role,
    SlowStartSettings,
};
use crate::share::ClientKey;
use crate::turns::{Rehearsal, Turns};
use crate::work::{Task, Work};

/// One generation's view of a pool.
#[derive(Debug)]
pub struct Pool {
    name: Arc<str>,
    entries: Box<[PoolEntry]>,
    /// Number of priorities. The backups count as one.
    tiers: u32,
    has_backup: bool,
    algorithm: Algorithm,
    check: CheckSettings,
    slow_start: SlowStartSettings,
    weight_max: u64,
    factors: PoolFactors,
    sums: PoolSums,
    state: Arc<PoolState>,
}

/// A slot on a member for one attempt. Dropping the lease gives the slot back.
#[derive(Debug)]
pub struct Lease {
    member: Arc<Member>,
    index: usize,
    need: Need,
}

impl Pool {
    /// Builds a pool. Members that the registry already knows keep their counters, health and administrative state.
    ///
    /// A running generation sees no change before [`adopt`](Self::adopt), so a caller may build a pool and drop it again. The
    /// settings must not contain the same address twice.
    ///
    /// `connections_max`: maximum connections to one member. Each request in flight uses one.
    pub fn new(settings: &PoolSettings, connections_max: u32, registry: &Registry) -> Self {
        let tiers = tiers(settings);
        let members = settings.members.iter().take(MEMBERS_MAX);
        let entries: Box<[PoolEntry]> = members
            .zip(0..)
            .map(|(member, index)| PoolEntry {
                index,
                tier: tiers.partition_point(|tier| *tier < tier_of(member)) as u32,
                ..PoolEntry::new(member, settings, connections_max, registry)
            })
            .collect();
        for entry in &entries {
            entry.member.begin_check(&settings.check);
        }
        Self {
            name: settings.name.as_str().into(),
            algorithm: settings.algorithm,
            check: settings.check.clone(),
            slow_start: settings.slow_start,
            state: registry.pool(&settings.name),
            weight_max: entries
                .iter()
                .map(PoolEntry::lasting_weight)
                .max()
                .unwrap_or(1),
            factors: PoolFactors::default(),
            sums: PoolSums::default(),
            tiers: tiers.len() as u32,
            has_backup: entries.iter().any(|entry| entry.role == Role::Backup),
            entries,
        }
    }

    /// Applies this pool's check and slow start to its members, when its generation is committed.
    ///
    /// A changed check resets the members' probe results and nothing else.
    pub fn adopt(&self) -> Vec<(usize, HealthChange)> {
        for entry in &self.entries {
            let member = &entry.member;
            member.configure_slow_start(&self.slow_start, entry.jrubies);
        }
        let adopted = |(index, entry): (usize, &PoolEntry)| {
            Some((index, entry.member.replace_check(&self.check)?))
        };
        self.entries
            .iter()
            .enumerate()
            .filter_map(adopted)
            .collect()
    }

    /// Picks a member for a request and takes a slot on it.
    ///
    /// # Errors
    /// No member can get the request.
    pub fn pick_for(&self, request: &Offer, now: Duration) -> Result<Lease, PickError> {
        let task = request.criteria.task;
        let pick = |tried: &[u64]| match request.eligible {
            EligibleMembers::Any => self.pick_led(tried, &request.criteria, now),
            EligibleMembers::WriterOrBackup => self.pick_for_write(tried, task, now),
            EligibleMembers::WriterOnly => self.pick_writer(task, now),
        };
        let tried = match request.tried.split_last() {
            // A client with persistence tries its member again on a new connection before another member.
            Some((_, before))
                if request.after_reuse && request.criteria.persistence != MemberPersistence::No =>
            {
                before
            }
            _ => &request.tried,
        };
        let picked = match pick(tried) {
            // A broken reused connection says little about its member. If no other member can be used now, the same member is
            // tried on a new connection.
            Err(PickError::AllTried | PickError::Full) if request.after_reuse => pick(&[]),
            picked => picked,
        };
        match picked {
            Err(PickError::NoneAvailable) if self.waits_for_return(request, now) => {
                Err(PickError::NoneYet)
            }
            picked => picked,
        }
    }

    /// Whether a request may wait although no member is available.
    #[cold]
    fn waits_for_return(&self, request: &Offer, now: Duration) -> bool {
        let wait_max = request.unavailable_wait_max;
        let availability = self.availability(request.eligible, wait_max, now);
        !wait_max.is_zero() && matches!(availability, Availability::Returning { .. })
    }

    /// Picks a member that is available and not among `tried` (by [`Member::id`]), and takes a slot on it.
    ///
    /// If a hash leads the pick (see [`key_hash`](crate::key_hash)), the next best member is picked while the best
    /// one is not available. `now` is the time since start.
    ///
    /// # Errors
    /// No member can be picked.
    pub fn pick(
        &self,
        tried: &[u64],
        criteria: PickCriteria,
        now: Duration,
    ) -> Result<Lease, PickError> {
        self.pick_led(tried, &criteria, now)
    }

    fn pick_led(
        &self,
        tried: &[u64],
        criteria: &PickCriteria,
        now: Duration,
    ) -> Result<Lease, PickError> {
        for _ in 0..RACES_MAX {
            if let Some(outcome) = self.pick_once(tried, criteria, now) {
                return outcome;
            }
        }
        Err(PickError::Full)
    }

    /// Picks once. None: the caller must try again. This is a separate function, so that the compiler does not prepare the loop
    /// for what a pick seldom needs. The same applies to [`choose`](Self::choose).
    #[inline(never)]
    fn pick_once(
        &self,
        tried: &[u64],
        criteria: &PickCriteria,
        now: Duration,
    ) -> Option<Result<Lease, PickError>> {
        let tier = self.active_tier(now);
        let among = self.candidates(tier, tried, criteria.task, now);
        let home = self.home(tried, criteria, now);
        let others = || self.choose(&among, criteria, &mut Turns::Shared(&self.state));
        let Some(index) = home.or_else(|| Some(others()?.0)) else {
            return match self.refusal(tier, tried, now) {
                // A member whose requests failed is better than no member at all.
                PickError::NoneAvailable if self.end_ejections(tier, now) => None,
                refusal => Some(Err(refusal)),
            };
        };
        self.lease(index, criteria.task, now).map(Ok)
    }

    /// The member that a client stays with, if that member can get the request now. The client does not wait for it: while the
    /// member is at its limit, another member gets the request.
    fn home(&self, tried: &[u64], criteria: &PickCriteria, now: Duration) -> Option<usize> {
        let MemberPersistence::Member(id) = criteria.persistence else {
            return None;
        };
        let mut entries = self.entries.iter();
        let index = entries.position(|entry| entry.member.id() == id)?;
        let entry = &self.entries[index];
        (!entry.is_among(tried) && entry.is_open(criteria.task, now)).then_some(index)
    }

    /// Whether clients stay with this member: it is up, ready and not ejected. It may be at its limit.
    pub fn keeps_clients(&self, index: usize, now: Duration) -> bool {
        let entry = &self.entries[index];
        entry.is_up_and_ready(now) && !entry.member.ejection.is_active(now)
    }

    /// The member that a client with this hash stays with while all members are up, ready and below their limits.
    pub fn first_choice(&self, hash: u64) -> Option<usize> {
        let weight = (self.weight_max, PoolEntry::lasting_weight);
        most_wanted(&self.entries, hash, weight, |entry| entry.tier == 0)
    }

    /// Takes a slot for a write that must not be sent twice, such as a write to a CA. Such writes are never balanced: they go
    /// only to the first ordinary member. A backup gets them only while that member is known to be down or has been taken out
    /// by the operator. A member that is at its limit or was never probed may still be working.
    ///
    /// # Errors
    /// No member can get the write.
    pub fn pick_for_write(
        &self,
        tried: &[u64],
        task: Task,
        now: Duration,
    ) -> Result<Lease, PickError> {
        let index = self.writer().ok_or(PickError::NoneAvailable)?;
        let first = &self.entries[index];
        if first.obstacle(task, now).is_none() {
            if first.is_among(tried) {
                return Err(PickError::AllTried);
            }
            if let Some(lease) = self.lease(index, task, now) {
                return Ok(lease);
            }
        }
        // Another worker may have taken the slot meanwhile, so the reason is looked up only now.
        let obstacle = first.obstacle(task, now).ok_or(PickError::Full)?;
        first.may_be_replaced(obstacle)?;
        self.backups(tried, task, now)
            .find_map(|index| self.lease(index, task, now))
            .ok_or(PickError::NoneAvailable)
    }

    /// Takes a slot on the member that gets the writes, and on no other member. It is used for a write that must not go to a
    /// backup.
    ///
    /// # Errors
    /// That member cannot get the write.
    pub fn pick_writer(&self, task: Task, now: Duration) -> Result<Lease, PickError> {
        let index = self.writer().ok_or(PickError::NoneAvailable)?;
        match self.entries[index].obstacle(task, now) {
            None => self.lease(index, task, now).ok_or(PickError::Full),
            Some(obstacle) => Err(obstacle.refusal()),
        }
    }

    /// Whether a request that has tried no member would get one now, or why not. It takes neither slots nor turns, and leaves
    /// ejections.
    ///
    /// # Errors
    /// No member would be picked.
    pub fn would_pick(
        &self,
        eligible: EligibleMembers,
        criteria: &PickCriteria,
        now: Duration,
    ) -> Result<(), PickError> {
        let task = criteria.task;
        if eligible == EligibleMembers::Any {
            let tier = self.active_tier(now);
            let among = self.candidates(tier, &[], task, now);
            let mut rehearsal = Rehearsal::new(&self.state, &self.entries);
            let mut turns = Turns::Rehearsed(&mut rehearsal);
            if self.home(&[], criteria, now).is_some()
                || self.choose(&among, criteria, &mut turns).is_some()
            {
                return Ok(());
            }
            // A pick ends the ejections where no other member is available.
            let mut ejected = self.ejected(tier, now).peekable();
            return match self.refusal(tier, &[], now) {
                PickError::NoneAvailable if ejected.peek().is_some() => ejected
                    .any(|entry| entry.obstacle(task, now).is_none())
                    .then_some(())
                    .ok_or(PickError::Full),
                refusal => Err(refusal),
            };
        }
        let first = &self.entries[self.writer().ok_or(PickError::NoneAvailable)?];
        let Some(obstacle) = first.obstacle(task, now) else {
            return Ok(());
        };
        if eligible == EligibleMembers::WriterOnly {
            return Err(obstacle.refusal());
        }
        first.may_be_replaced(obstacle)?;
        let backup = self.backups(&[], task, now).next();
        backup.map(|_| ()).ok_or(PickError::NoneAvailable)
    }

    /// Records that an attempt failed through the member's fault: no connection, no TLS, or no response. Returns for
    /// how long the member is ejected, if it is ejected now. `client`: the client whose request got no response.
    /// None: the request was not sent.
    ///
    /// Ejections leave at least one member of the same priority available. They do not affect writes to a CA.
    pub fn attempt_failed(
        &self,
        index: usize,
        client: Option<ClientKey>,
        settings: &EjectionSettings,
        now: Duration,
    ) -> Option<Duration> {
        let entry = &self.entries[index];
        if !settings.enabled || !entry.member.ejection.failed(client, settings, now) {
            return None;
        }
        let _one_at_a_time = self.state.ejecting.lock();
        let peers = || self.entries.iter().filter(|peer| peer.tier == entry.tier);
        let is_ejected = |peer: &&PoolEntry| peer.member.ejection.is_active(now);
        let ejected = peers().filter(is_ejected).count();
        let allowed = peers().count() * settings.ejected_max as usize / 100;
        let is_left = |peer: &&PoolEntry| {
            peer.member.id() != entry.member.id() && !is_ejected(peer) && peer.is_up_and_ready(now)
        };
        let left = peers().filter(is_left).count();
        let enough = left > 0 && !is_panic(settings, left, peers().count());
        (ejected < allowed && enough).then(|| entry.member.eject(settings, now))
    }

    /// Ends the ejections in each priority in which the percentage of available members is below `panic_threshold`. Call it
    /// when members have changed. True: it ended an ejection.
    pub fn end_ejections_in_panic(&self, settings: &EjectionSettings, now: Duration) -> bool {
        let _one_at_a_time = self.state.ejecting.lock();
        let mut any = false;
        for tier in 0..self.tiers {
            let peers = || self.entries.iter().filter(|peer| peer.tier == tier);
            let is_left = |peer: &&PoolEntry| {
                !peer.member.ejection.is_active(now) && peer.is_up_and_ready(now)
            };
            let left = peers().filter(is_left).count();
            if is_panic(settings, left, peers().count()) {
                any |= self.end_ejections(tier, now);
            }
        }
        any
    }

    /// How many catalogs the members that are up and ready are expected to compile in this time.
    pub fn catalogs_in(&self, time: Duration, now: Duration) -> u32 {
        let sums = self.sums.at(&self.entries, &self.state.tally, now);
        let jrubies = u64::from(sums.jrubies);
        let each = u64::from(self.state.times.expected_ms(Task::of(Work::Catalog)));
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let catalogs = jrubies.saturating_mul(time) / each.max(1);
        u32::try_from(catalogs).unwrap_or(u32::MAX)
    }

    /// Counts a request, which adds `retry_budget` percent of a retry to the budget.
    pub fn count_request(&self, retry_budget: u32) {
        self.state.retries.save(retry_budget);
    }

    /// Counts a search for a filebucket file on a further member. False: the pool's limit is reached. Searches have their own
    /// limit, so that a client that requests missing files cannot use up the retries of all clients.
    pub fn admit_search(&self, now: Duration) -> bool {
        self.state.searches.admit(now)
    }

    /// Counts a retry. False: the pool's retry budget is used up.
    pub fn admit_retry(&self, now: Duration) -> bool {
        self.state.retries.admit(now)
    }

    /// Ends the ejections of members that are up and ready. False: there were none.
    fn end_ejections(&self, tier: u32, now: Duration) -> bool {
        let mut any = false;
        for entry in self.ejected(tier, now) {
            entry.member.end_ejection();
            any = true;
        }
        any
    }

    /// Ejected members that are up and ready.
    fn ejected(&self, tier: u32, now: Duration) -> impl Iterator<Item = &PoolEntry> {
        self.entries.iter().filter(move |entry| {
            entry.tier == tier && entry.member.ejection.is_active(now) && entry.is_up_and_ready(now)
        })
    }

    /// Picks another member for a safe request that waits at the member `from`, if that member has failed: its probes
    /// have failed, or the operator has put it into maintenance. None: the request keeps waiting, because the member
    /// has not failed, no other member is available, the limit on moves ([`MOVE_RATE`]) is reached, or the retry
    /// budget is used up.
    ///
    /// A member that is down and has no probes is tried by one request at a time. Such a request stays where it is.
    ///
    /// [`MOVE_RATE`]: crate::moves::MOVE_RATE
    pub fn pick_elsewhere(
        &self,
        from: usize,
        tried: &[u64],
        criteria: PickCriteria,
        now: Duration,
    ) -> Option<Lease> {
        let member = &self.entries[from].member;
        let down = self.check.kind != CheckKind::None && member.health() == Health::Down;
        if !down && member.administrative() != Administrative::Maintenance {
            return None;
        }
        let tried: Vec<_> = tried.iter().copied().chain([member.id()]).collect();
        let lease = self.pick(&tried, criteria, now).ok()?;
        let admitted = self.state.moves.admit(now) && self.admit_retry(now);
        admitted.then_some(lease)
    }

    /// The member that gets the writes: the first ordinary one.
    pub fn writer(&self) -> Option<usize> {
        let mut entries = self.entries.iter();
        entries.position(|entry| entry.role == Role::Ordinary)
    }

    /// Whether any member is a backup.
    pub fn has_backup(&self) -> bool {
        self.has_backup
    }

    /// The order in which members would get a request if one after the other failed, with the reason for each position. Members
    /// that would not get it come last.
    ///
    /// It uses the same code as [`pick`](Self::pick), and takes neither slots nor turns.
    pub fn order(&self, criteria: PickCriteria, now: Duration) -> Vec<RankedMember> {
        let mut rehearsal = Rehearsal::new(&self.state, &self.entries);
        let mut asked: Vec<u64> = Vec::with_capacity(self.entries.len());
        let mut places = Vec::with_capacity(self.entries.len());
        if let Some(index) = self.home(&asked, &criteria, now) {
            asked.push(self.entries[index].member.id());
            let why = RankReason::Persistence;
            places.push(RankedMember { index, why });
        }
        for tier in 0..self.tiers {
            loop {
                let among = self.candidates(tier, &asked, criteria.task, now);
                let Some((index, rule)) =
                    self.choose(&among, &criteria, &mut Turns::Rehearsed(&mut rehearsal))
                else {
                    break;
                };
                asked.push(self.entries[index].member.id());
                let why = self.entries[index].reason(rule);
                places.push(RankedMember { index, why });
            }
        }
        let left_out = |(index, entry): (usize, &PoolEntry)| {
            Some(RankedMember {
                index,
                why: entry.obstacle(criteria.task, now).or_else(|| {
                    let ejected = entry.member.ejection.is_active(now);
                    ejected.then_some(RankReason::Ejected)
                })?,
            })
        };
        let rest = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| !entry.is_among(&asked));
        places.extend(rest.filter_map(left_out));
        places
    }

    /// How many members are available: up and ready. They may be at their limits.
    pub fn available(&self) -> usize {
        let entries = self.entries.iter();
        entries.filter(|entry| entry.member.is_available()).count()
    }

    /// Whether a member other than this one is available, and known to be up.
    pub fn has_another_available(&self, member: usize) -> bool {
        let others = self.entries.iter().enumerate();
        let mut others = others.filter(|(index, _)| *index != member);
        others
            .any(|(_, entry)| entry.member.is_available() && entry.member.awaited_probe().is_none())
    }

    /// Whether members are available now, but none would be available without these members. Other members count only if they
    /// are known to be up: a member that is ready again after a drain may have been stopped meanwhile.
    pub fn depends_on(&self, members: &[usize]) -> bool {
        let (mut asked, mut others) = (0, 0);
        for (index, entry) in self.entries.iter().enumerate() {
            let member = &entry.member;
            if members.contains(&index) {
                asked += usize::from(member.is_available());
            } else {
                others += usize::from(member.is_available() && member.awaited_probe().is_none());
            }
        }
        asked > 0 && others == 0
    }

    /// Whether a request may be sent now: a member is [`available`](Self::available), or a member without probes may be tried.
    pub fn is_available(&self, now: Duration) -> bool {
        self.entries.iter().any(|entry| entry.is_up_and_ready(now))
    }

    /// Name in records, metrics and routes.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Members in the configured order. The index of a lease refers to this order.
    pub fn entries(&self) -> &[PoolEntry] {
        &self.entries
    }

    /// How members are probed.
    pub fn check(&self) -> &CheckSettings {
        &self.check
    }

    /// How members are picked.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Records a member's response: how long such work takes, and a request for slow start. `doubtful`: whether a short time is
    /// ignored, as for an error. `now` is the time since start.
    pub fn learn(&self, lease: &Lease, took: Duration, doubtful: bool, now: Duration) {
        let task = lease.need.task;
        if !task.without_jruby && !doubtful {
            lease.member.served(now);
        }
        if self.goes_by_load() && !task.without_jruby {
            let pace = &lease.member.pace;
            let before = pace.slowness();
            self.state.times.learn(task.work, took, doubtful, pace);
            if pace.slowness() != before {
                self.state.tally.pace_changed();
            }
        }
    }

    fn goes_by_load(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::LeastLoad | Algorithm::CertnameHash
        )
    }

    /// The priority whose members get requests now. Backups get requests only while no ordinary member is available, whether
    /// the request has tried it or not: an ordinary member that failed one request may serve the next, and a backup may have
    /// less data. Within the role, it is the lowest priority with a member that is up and ready. Members that are merely full
    /// keep their priority: requests wait for them and do not go to another site. Members whose JRubies are all busy are
    /// available.
    pub fn active_tier(&self, now: Duration) -> u32 {
        match self.tiers {
            1 => 0,
            _ => self.tier_sums(now).tier,
        }
    }

    /// How many requests for such work the pool's members may have in flight now. The members that count are those of
    /// the active priority that are up and ready, or all members while there are none. For work that holds JRubies,
    /// the JRubies limit the number.
    pub fn capacity(&self, task: Task, now: Duration) -> u32 {
        self.tier_sums(now).slots[usize::from(task.without_jruby)]
    }

    /// Whether the members that count for [`capacity`](Self::capacity) may have more than `number` further requests in flight
    /// now, whatever their work. If they may not have even one more, a request waits for a connection, and not for a JRuby.
    pub fn has_free_connections(&self, number: u32, now: Duration) -> bool {
        let sums = self.tier_sums(now);
        // The number of requests in flight on all members is at least that on the members that count. It may lack a request
        // that another worker is just counting, and then a request may wait a moment too long. The slots themselves decide what
        // is admitted.
        let free_min = sums
            .connections
            .saturating_sub(self.state.tally.in_flight());
        free_min > number || self.free_connections(sums.tier, now) > number
    }

    /// Counts exactly, by a visit to every member. It is called only while most connections are busy.
    #[cold]
    fn free_connections(&self, tier: u32, now: Duration) -> u32 {
        let entries = self.entries.iter();
        let usable = entries.filter(|entry| entry.tier == tier && entry.is_up_and_ready(now));
        let free = |entry: &PoolEntry| entry.in_flight_max.saturating_sub(entry.member.in_flight());
        usable.fold(0, |sum, entry| sum.saturating_add(free(entry)))
    }

    /// The sums of the members that get requests now.
    fn tier_sums(&self, now: Duration) -> TierSums {
        let sums = self.sums.at(&self.entries, &self.state.tally, now);
        let backups = self.tiers > 1
            && self.has_backup
            // The number of requests in flight on all members is at least that on the ordinary members.
            && sums.open_connections <= self.state.tally.in_flight()
            && (sums.open_connections == 0 || !self.has_ordinary_available(now));
        if backups { sums.backup } else { sums.ordinary }
    }

    #[cold]
    fn has_ordinary_available(&self, now: Duration) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.role == Role::Ordinary && entry.is_available(now))
    }

    fn candidates<'a>(
        &'a self,
        tier: u32,
        tried: &'a [u64],
        task: Task,
        now: Duration,
    ) -> Candidates<'a> {
        self.refresh();
        Candidates {
            entries: &self.entries,
            factors: &self.factors,
            tally: &self.state.tally,
            any: self.tiers == 1 && tried.is_empty(),
            tier,
            tried,
            task,
            now,
        }
    }

    #[cfg(test)]
    pub(crate) fn inverse_min(&self) -> u64 {
        self.refresh();
        self.factors.inverse_min()
    }

    fn refresh(&self) {
        let by_load = self.goes_by_load();
        self.factors
            .refresh(&self.entries, &self.state.tally, by_load);
    }

    #[inline(never)]
    fn choose(
        &self,
        among: &Candidates<'_>,
        criteria: &PickCriteria,
        turns: &mut Turns<'_>,
    ) -> Option<(usize, PickRule)> {
        use Algorithm::{
            CertnameHash, First, LeastConnections, LeastLoad, Random, RoundRobin, SourceHash,
        };
        if let MemberPersistence::Hash(hash) = criteria.persistence {
            return Some((among.stays(hash, self.weight_max)?, PickRule::Persistence));
        }
        let (index, rule) = match (criteria.key, self.algorithm) {
            (Some(key), _) => (among.most_wanted(key, self.weight_max), PickRule::Key),
            (None, SourceHash) if let Some(source) = criteria.source => {
                (among.most_wanted(source, self.weight_max), PickRule::Source)
            }
            (None, CertnameHash) if let Some(certname) = criteria.certname => {
                let index = among.most_wanted_within_bound(certname);
                (index, PickRule::Certname)
            }
            (None, LeastLoad | CertnameHash) if self.factors.by_load(among.tier) => {
                (self.least_load(among, turns), PickRule::LeastLoad)
            }
            (None, LeastLoad | CertnameHash | LeastConnections | SourceHash) => {
                (among.least_connections(turns), PickRule::LeastConnections)
            }
            (None, RoundRobin) => (among.in_rotation(turns), PickRule::Rotation),
            (None, Random) => (among.drawn(criteria.random), PickRule::Drawn),
            (None, First) => (among.first(), PickRule::First),
        };
        Some((index?, rule))
    }

    fn least_load(&self, among: &Candidates<'_>, turns: &mut Turns<'_>) -> Option<usize> {
        let times = &self.state.times;
        if times.ease_is_due(among.now) {
            for entry in &self.entries {
                entry.member.pace.ease();
            }
            self.state.tally.pace_changed();
        }
        among.least_load(times.expected_ms(among.task).into(), turns)
    }

    fn lease(&self, index: usize, task: Task, now: Duration) -> Option<Lease> {
        let entry = &self.entries[index];
        let need = Need {
            task,
            expected_ms: self.state.times.expected_ms(task),
        };
        self.refresh();
        let limits = entry.factors.limits(task);
        entry.member.take(need, limits, now).then(|| Lease {
            member: Arc::clone(&entry.member),
            index,
            need,
        })
    }

    fn backups(&self, tried: &[u64], task: Task, now: Duration) -> impl Iterator<Item = usize> {
        let free = move |(_, entry): &(usize, &PoolEntry)| {
            entry.role == Role::Backup && !entry.is_among(tried) && entry.is_open(task, now)
        };
        let backups = self.entries.iter().enumerate().filter(free);
        backups.map(|(index, _)| index)
    }

    fn refusal(&self, tier: u32, tried: &[u64], now: Duration) -> PickError {
        let mut refusal = PickError::NoneAvailable;
        // Members of a better priority are counted too, because they may be full.
        for entry in self.entries.iter().filter(|entry| entry.tier <= tier) {
            if entry.is_up_and_ready(now) && !entry.member.ejection.is_active(now) {
                if !entry.is_among(tried) {
                    return PickError::Full;
                }
                refusal = PickError::AllTried;
            }
        }
        refusal
    }
}

/// Whether so few members are available that ejected ones are better than none.
fn is_panic(settings: &EjectionSettings, available: usize, members: usize) -> bool {
    available * 100 < members * settings.panic_threshold as usize
}

/// The priorities of a pool's members in the order in which they get requests. Backups come last.
fn tiers(settings: &PoolSettings) -> Vec<(bool, u16)> {
    let mut tiers: Vec<_> = settings.members.iter().map(tier_of).collect();
    tiers.sort_unstable();
    tiers.dedup();
    tiers
}

fn tier_of(member: &MemberSettings) -> (bool, u16) {
    (member.role == Role::Backup, member.priority)
}

impl Lease {
    /// The member.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// The index of its entry in the pool.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.member.give_back(self.need);
    }
}

/// How often a pick may lose a slot to another worker before it reports the pool as full. Each time, the other worker's request
/// got a slot.
const RACES_MAX: usize = 64;

#[cfg(test)]
mod tests;
