//! Counts of JRubies, service times and capacity.

use super::super::*;
use super::support::*;
use std::collections::BTreeMap;

#[test]
fn capacity_is_that_of_available_members_within_both_limits() {
    let members = [(1, None), (1, Some(10)), (1, Some(500))];
    let settings = settings(Algorithm::LeastConnections, &members);
    let pool = Pool::new(&settings, 128, &Registry::default());
    assert_eq!(pool.capacity(Task::default(), NOW), 128 + 10 + 128);
    let first = &pool.entries()[0].member;
    first.administer(Administrative::Drain);
    assert_eq!(pool.capacity(Task::default(), NOW), 10 + 128);
    for entry in pool.entries() {
        entry.member.administer(Administrative::Maintenance);
    }
    assert_eq!(
        pool.capacity(Task::default(), NOW),
        128 + 10 + 128,
        "none is available"
    );
    let boundless = Pool::new(&settings, u32::MAX, &Registry::default());
    assert_eq!(boundless.capacity(Task::default(), NOW), u32::MAX);
}

#[test]
fn capacity_for_work_that_holds_jrubies_is_what_these_can_run() {
    let mut settings = settings(Algorithm::LeastLoad, &[(1, None), (1, Some(5)), (1, None)]);
    settings.members[0].jrubies = Some(4);
    settings.members[1].jrubies = Some(8);
    settings.jruby_load_max = 150;
    let pool = Pool::new(&settings, 100, &Registry::default());
    let catalogs = Task::of(Work::Catalog);
    assert_eq!(pool.capacity(catalogs, NOW), 6 + 5 + 100);
    assert_eq!(pool.capacity(STATIC_FILE.task, NOW), 100 + 5 + 100);
    pool.entries()[2].member.learn_jrubies(Some(2));
    assert_eq!(pool.capacity(catalogs, NOW), 6 + 5 + 3);
}

/// A server with this number of JRubies accepts this number of requests, of which some wait, and refuses others.
#[test]
fn a_herd_on_a_member_of_unknown_size_ends_as_soon_as_its_jrubies_allow() {
    let (jrubies, inside_max, herd) = (4, 14, 400);
    for algorithm in [Algorithm::LeastLoad, Algorithm::LeastConnections] {
        let pool = pool(algorithm, &[(1, Some(128))]);
        let mut inside: Vec<Lease> = Vec::new();
        let (mut waiting, mut refused, mut second) = (herd, 0, 0);
        while waiting > 0 || !inside.is_empty() {
            let now = Duration::from_secs(second);
            let mut sent = Vec::new();
            while waiting > 0
                && let Ok(lease) = pool.pick(&[], any(), now)
            {
                waiting -= 1;
                sent.push(lease);
            }
            for lease in sent {
                if inside.len() < inside_max {
                    inside.push(lease);
                    continue;
                }
                lease.member().overloaded(now);
                (refused, waiting) = (refused + 1, waiting + 1);
            }
            for lease in inside.drain(..jrubies.min(inside.len())) {
                lease.member().has_room();
            }
            second += 1;
        }
        assert_eq!(
            second, 100,
            "{algorithm:?}: 400 requests of a second each on 4 JRubies"
        );
        assert!((114..=120).contains(&refused), "{algorithm:?}: {refused}");
    }
}

#[test]
fn a_restarted_member_gets_requests_at_once_however_full_its_queue_was() {
    let pool = weights(Algorithm::LeastLoad, &[1]);
    let member = &pool.entries()[0].member;
    let at = |seconds| Duration::from_secs(seconds);
    let lease = || pool.pick(&[], any(), at(10));
    drop((lease(), member.overloaded(at(10))));
    assert_eq!(lease().err(), Some(PickError::Full), "for a second");
    member.restarted();
    let leases: Vec<_> = (0..3).map(|_| lease().expect("room")).collect();
    member.overloaded(at(10));
    assert_eq!(
        lease().err(),
        Some(PickError::Full),
        "two of three accepted"
    );
    member.restarted();
    assert!(lease().is_ok());
    drop(leases);
}

#[test]
fn least_load_spreads_catalogs_over_jrubies_and_keeps_files_away_from_catalogs() {
    let pool = jrubies(Algorithm::LeastLoad, &[(2, 1), (6, 1)]);
    let pick = |work| pool.pick(&[], of_work(work), NOW).expect("up");
    let catalogs: Vec<Lease> = (0..4).map(|_| pick(Work::Catalog)).collect();
    let indexes: Vec<usize> = catalogs.iter().map(Lease::index).collect();
    assert_eq!(shares(&indexes), BTreeMap::from([(0, 1), (1, 3)]));
    // Ten files on the first member are less work than two further catalogs on the second.
    drop(catalogs);
    let held = pool
        .pick(&[1], of_work(Work::Catalog), NOW)
        .expect("the first is free");
    let files: Vec<Lease> = (0..3).map(|_| pick(Work::File)).collect();
    assert!(files.iter().all(|lease| lease.index() == 1));
    drop((held, files));
    assert!(
        pool.entries()
            .iter()
            .all(|entry| entry.member.expected_ms() == 0)
    );
}

#[test]
fn without_all_counts_least_load_decides_as_least_connections() {
    let registry = Registry::default();
    let members = [(1, None), (3, None), (2, None)];
    let pool = |algorithm| {
        let pool = Pool::new(&settings(algorithm, &members), CONNECTIONS_MAX, &registry);
        pool.entries()[0].member.learn_jrubies(Some(1_000));
        pool
    };
    let (by_load, by_connections) = (
        pool(Algorithm::LeastLoad),
        self::pool(Algorithm::LeastConnections, &members),
    );
    let mut random = Random(7);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..2_000 {
        if random.below(3) > 0 || ours.is_empty() {
            ours.push(by_load.pick(&[], of_work(Work::Catalog), NOW).expect("up"));
            theirs.push(picked(&by_connections));
            let last = |leases: &[Lease]| leases.last().map(Lease::index);
            assert_eq!(last(&ours), last(&theirs));
        } else {
            let ended = random.below(ours.len() as u64) as usize;
            drop((ours.swap_remove(ended), theirs.swap_remove(ended)));
        }
    }
}

#[test]
fn a_slow_member_gets_less_until_it_has_been_left_alone_for_a_while() {
    let pool = jrubies(Algorithm::LeastLoad, &[(4, 1); 4]);
    let mut got = [0; 4];
    for _ in 0..400 {
        let lease = pool.pick(&[], of_work(Work::Catalog), NOW).expect("up");
        got[lease.index()] += 1;
        let took = if lease.index() == 0 { 20 } else { 4 };
        pool.learn(&lease, Duration::from_secs(took), false, NOW);
    }
    assert!(got[0] < 40, "{got:?}");
    let later = |minutes: u64| Duration::from_secs(60 * minutes);
    let back = (1..600).find(|seconds| {
        let now = later(1) + Duration::from_secs(*seconds);
        pool.pick(&[], of_work(Work::Catalog), now)
            .expect("up")
            .index()
            == 0
    });
    assert!(back.is_some(), "it is asked again within ten minutes");
}

#[test]
fn quick_errors_attract_no_requests() {
    let pool = jrubies(Algorithm::LeastLoad, &[(4, 1); 2]);
    let mut got = [0; 2];
    for _ in 0..1_000 {
        let lease = pool.pick(&[], of_work(Work::Catalog), NOW).expect("up");
        got[lease.index()] += 1;
        let failing = lease.index() == 0;
        let took = if failing { 1 } else { 4_000 };
        pool.learn(&lease, Duration::from_millis(took), failing, NOW);
    }
    assert!(got[0] <= 510, "{got:?}");
}

#[test]
fn busy_jrubies_make_requests_wait_and_those_without_a_jruby_run() {
    let mut settings = settings(Algorithm::LeastLoad, &[(1, None), (1, Some(3))]);
    settings.jrubies = Some(2);
    settings.jruby_load_max = 150;
    settings.members[1].jrubies = Some(4);
    settings.members[1].priority = 1;
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
    assert_eq!(pool.entries()[0].working_max(), 3);
    assert_eq!(pool.entries()[1].working_max(), 3, "never above `max`");
    let held: Vec<Lease> = (0..3).map(|_| picked(&pool)).collect();
    assert!(held.iter().all(|lease| lease.index() == 0));
    assert_eq!(
        pool.pick(&[], any(), NOW).err(),
        Some(PickError::Full),
        "busy JRubies are no reason to ask the next priority"
    );
    let file = pool.pick(&[], STATIC_FILE, NOW).expect("it needs no JRuby");
    assert_eq!((file.index(), file.member().working()), (0, 3));
    let why = pool.order(any(), NOW)[1].why;
    assert_eq!(why, RankReason::Working { working: 3, max: 3 });
    drop((held, file));
    assert_eq!(pool.entries()[0].member.working(), 0);
}

#[test]
fn learned_jrubies_count_until_configured_ones_override_them() {
    let registry = Registry::default();
    let mut settings = settings(Algorithm::LeastLoad, &[(1, None)]);
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    assert_eq!(pool.entries()[0].working_max(), CONNECTIONS_MAX);
    pool.entries()[0].member.learn_jrubies(Some(6));
    assert_eq!(pool.entries()[0].working_max(), 6);
    settings.jrubies = Some(4);
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    assert_eq!(pool.entries()[0].working_max(), 4);
    settings.members[0].jrubies = Some(5);
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    assert_eq!(pool.entries()[0].working_max(), 5);
}
