//! The smaller weight of a restarted member.

use super::super::*;
use super::support::*;

#[test]
fn slow_start_gives_a_restarted_member_its_share_back_by_time_and_by_requests() {
    let mut settings = settings(Algorithm::RoundRobin, &[(1, None), (1, None)]);
    settings.slow_start = SlowStartSettings {
        duration: Duration::from_secs(60),
        requests: 50,
    };
    settings.jrubies = Some(4);
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
    pool.adopt();
    let member = &pool.entries()[0].member;
    let at = |seconds| Duration::from_secs(seconds);
    let share = |times: usize| {
        let picks = sequence(&pool, times * 100);
        picks.iter().filter(|index| **index == 0).count()
    };
    assert_eq!(
        member.warm_up(at(1)),
        None,
        "the first start does not count as a restart"
    );
    assert_eq!(share(1), 50);
    member.connect_refused(NOW);
    member.answered();
    assert_eq!(member.warm_up(at(100)), Some(0));
    assert!(
        share(11).abs_diff(100) <= 10,
        "a tenth of the other's share"
    );
    assert_eq!(member.warm_up(at(130)), Some(50));
    assert!(share(31).abs_diff(1_100) <= 20, "55 of 155");
    for _ in 0..200 {
        let lease = pool.lease(0, Task::of(Work::Catalog), NOW).expect("room");
        pool.learn(&lease, at(1), false, at(130));
    }
    assert_eq!(member.warm_up(at(130)), None, "50 requests of each JRuby");
    assert_eq!(share(1), 50);
}

#[test]
fn a_pool_whose_only_available_member_is_warming_uses_all_of_it() {
    for algorithm in [
        Algorithm::LeastLoad,
        Algorithm::CertnameHash,
        Algorithm::RoundRobin,
        Algorithm::Random,
    ] {
        let mut settings = settings(algorithm, &[(1, None), (1, None)]);
        settings.slow_start.duration = Duration::from_secs(60);
        settings.jrubies = Some(4);
        let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
        pool.adopt();
        pool.entries()[0].member.restarted();
        pool.entries()[1].member.connect_refused(NOW);
        let leases: Vec<_> = (0..4).map(|_| picked(&pool)).collect();
        assert!(
            leases.iter().all(|lease| lease.index() == 0),
            "{algorithm:?}"
        );
        assert_eq!(pool.pick(&[], any(), NOW).err(), Some(PickError::Full));
    }
}

#[test]
fn the_end_of_maintenance_begins_slow_start_with_and_without_probes() {
    for kind in [CheckKind::None, CheckKind::Http] {
        let mut settings = settings(Algorithm::LeastLoad, &[(1, None)]);
        settings.check.kind = kind;
        let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
        pool.adopt();
        let member = &pool.entries()[0].member;
        let probes = || {
            for _ in 0..pool.check().rise {
                member.probe_succeeded(pool.check());
            }
        };
        probes();
        assert!(member.is_available());
        member.administer(Administrative::Maintenance);
        member.administer(Administrative::Ready);
        probes();
        assert!(member.is_available());
        assert_eq!(member.warm_up(NOW), Some(0), "{kind:?}");
    }
}

#[test]
fn time_in_drain_does_not_make_a_member_warm() {
    let pool = weights(Algorithm::LeastLoad, &[1, 1]);
    let member = &pool.entries()[0].member;
    let at = |seconds| Duration::from_secs(seconds);
    member.restarted();
    assert_eq!(member.warm_up(at(1)), Some(0));
    member.administer(Administrative::Drain);
    assert_eq!(member.warm_up(at(10_000)), Some(0));
    member.administer(Administrative::Ready);
    assert_eq!(member.warm_up(at(10_150)), Some(50));
    assert_eq!(member.warm_up(at(10_300)), None);
}
