//! Backups, and the writes that go to one member.

use super::super::*;
use super::support::*;
use crate::agent_answer::AgentState;

#[test]
fn writes_go_to_the_first_member_only() {
    let pool = pool(Algorithm::RoundRobin, &[(1, Some(2)), (9, None)]);
    let leases = [
        pool.pick_for_write(&[], Task::default(), NOW),
        pool.pick_for_write(&[], Task::default(), NOW),
    ]
    .map(|lease| lease.expect("free"));
    assert!(leases.iter().all(|lease| lease.index() == 0));
    assert_eq!(
        pool.pick_for_write(&[], Task::default(), NOW).err(),
        Some(PickError::Full)
    );
    drop(leases);
    pool.entries()[0].member.connect_refused(NOW);
    assert_eq!(
        pool.pick_for_write(&[], Task::default(), NOW).err(),
        Some(PickError::NoneAvailable)
    );
}

/// Members of weight 1 with these limits. Those from the index `backups` on are backups.
fn with_backups(algorithm: Algorithm, max: &[Option<u32>], backups: usize) -> Pool {
    let members: Vec<_> = max.iter().map(|max| (1, *max)).collect();
    let mut settings = settings(algorithm, &members);
    for member in &mut settings.members[backups..] {
        member.role = Role::Backup;
    }
    Pool::new(&settings, CONNECTIONS_MAX, &Registry::default())
}

#[test]
fn a_backup_is_used_only_while_no_ordinary_member_is_available() {
    for algorithm in ALGORITHMS {
        for hash in [None, Some(1), Some(2), Some(3)] {
            let pool = with_backups(algorithm, &[Some(1), None, Some(1), None], 2);
            let pick = |tried: &[u64]| pool.pick(tried, keyed(hash), NOW);
            let seen = |picks: usize| {
                let picks: Vec<_> = (0..picks).map(|_| pick(&[]).expect("up").index()).collect();
                shares(&picks).into_keys().collect::<Vec<_>>()
            };
            assert!(seen(60).iter().all(|index| *index < 2), "{algorithm:?}");
            // A member that one request has tried is still available to other requests.
            assert_eq!(pick(&[0, 1]).err(), Some(PickError::AllTried));
            pool.entries()[1].member.connect_refused(NOW);
            assert_eq!(seen(20), [0]);
            // A full member is not available.
            let full = pick(&[]).expect("free");
            assert_eq!(full.index(), 0);
            let backup = seen(20);
            assert!(backup.iter().all(|index| *index >= 2), "{backup:?}");
            pool.entries()[3].member.administer(Administrative::Drain);
            let second = pick(&[]).expect("the other backup");
            assert_eq!(second.index(), 2);
            assert_eq!(pick(&[]).err(), Some(PickError::Full));
            drop(full);
            assert_eq!(seen(20), [0], "back at once");
            pool.entries()[0]
                .member
                .administer(Administrative::Maintenance);
            assert_eq!(pick(&[2]).err(), Some(PickError::AllTried));
            drop(second);
            assert_eq!(seen(20), [2]);
            assert!(pool.is_available(NOW));
            pool.entries()[2].member.connect_refused(NOW);
            assert_eq!(pick(&[]).err(), Some(PickError::NoneAvailable));
        }
    }
}

#[test]
fn order_puts_backups_after_all_others() {
    for algorithm in ALGORITHMS {
        let pool = with_backups(algorithm, &[None; 5], 3);
        let order: Vec<_> = pool
            .order(any(), NOW)
            .iter()
            .map(|place| place.index >= 3)
            .collect();
        assert_eq!(order, [false, false, false, true, true], "{algorithm:?}");
    }
}

#[test]
fn a_write_goes_to_a_backup_only_while_the_first_is_known_to_be_out() {
    let pool = with_backups(Algorithm::RoundRobin, &[Some(1), None, None, None], 2);
    let pick = |tried: &[u64]| {
        pool.pick_for_write(tried, Task::default(), NOW)
            .map(|lease| lease.index())
    };
    let first = &pool.entries()[0].member;
    assert_eq!(pick(&[]), Ok(0));
    assert_eq!(pick(&[0]), Err(PickError::AllTried), "tried and still up");
    let held = pool
        .pick_for_write(&[], Task::default(), NOW)
        .expect("free");
    assert_eq!(pick(&[]), Err(PickError::Full), "full is at work");
    drop(held);
    first.connect_refused(NOW);
    assert_eq!(pick(&[0]), Ok(2), "down: the first backup, no ordinary one");
    pool.entries()[2].member.connect_refused(NOW);
    assert_eq!(pick(&[0]), Ok(3));
    assert_eq!(pick(&[0, 3]), Err(PickError::NoneAvailable));
    first.answered();
    assert_eq!(pick(&[]), Ok(0), "back");
    first.administer(Administrative::Drain);
    assert_eq!(pick(&[]), Ok(3), "taken out by the operator");
}

#[test]
fn a_write_does_not_go_to_a_backup_before_the_first_member_was_probed() {
    let mut settings = settings(Algorithm::LeastConnections, &[(1, None), (1, None)]);
    settings.members[1].role = Role::Backup;
    settings.check = CheckSettings::default();
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
    pool.entries()[1].member.probe_succeeded(pool.check());
    let pick = || {
        pool.pick_for_write(&[], Task::default(), NOW)
            .map(|lease| lease.index())
    };
    assert_eq!(pick(), Err(PickError::NoneAvailable));
    pool.entries()[0].member.probe_failed(pool.check(), NOW);
    assert_eq!(pick(), Ok(1));
}

#[test]
fn neither_an_agent_check_nor_an_ejection_moves_the_writes_of_a_ca() {
    let mut settings = settings(
        Algorithm::LeastConnections,
        &[(1, None), (1, None), (1, None)],
    );
    settings.members[2].role = Role::Backup;
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
    let write = || pool.pick_for_write(&[], Task::default(), NOW);
    assert!(eject(&pool, 0, NOW));
    assert_eq!(write().expect("ejections do not concern it").index(), 0);
    for answer in ["drain", "maint", "down", "0%"] {
        let state = AgentState::default()
            .after(answer.as_bytes())
            .expect("readable");
        pool.entries()[0].member.set_agent_state(state, NOW);
        assert_eq!(write().err(), Some(PickError::NoneAvailable), "{answer}");
    }
    pool.entries()[0].member.administer(Administrative::Drain);
    assert_eq!(write().expect("the operator may move them").index(), 2);
}
