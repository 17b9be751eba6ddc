//! Whether requests wait while no member is available.

use super::super::*;
use super::support::*;
use crate::{
    agent_answer::AgentState,
    availability::Availability::{self, Available, Returning, Unavailable},
    share::{ClientKey, Holdings},
};

/// When the members of these tests fail.
const DOWN_AT: Duration = Duration::from_secs(1_000);
const WAIT_MAX: Duration = Duration::from_secs(90);
/// Until when a request waits for the member that went down first.
const UNTIL: Duration = Duration::from_secs(1_090);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Two probed members. The second one may be a backup.
fn two(role: Role, registry: &Registry) -> Pool {
    let mut settings = settings(Algorithm::LeastLoad, &[(1, None), (1, None)]);
    settings.members[1].role = role;
    settings.check = CheckSettings {
        fall: 1,
        rise: 1,
        ..CheckSettings::default()
    };
    Pool::new(&settings, CONNECTIONS_MAX, registry)
}

fn up(pool: &Pool) {
    for entry in pool.entries() {
        entry.member.probe_succeeded(pool.check());
    }
}

fn fail(pool: &Pool, index: usize, at: Duration) {
    pool.entries()[index].member.probe_failed(pool.check(), at);
}

fn at(pool: &Pool, now: Duration) -> Availability {
    pool.availability(EligibleMembers::Any, WAIT_MAX, now)
}

#[test]
fn a_member_that_went_down_is_awaited_for_a_while_and_one_that_was_never_up_is_not() {
    let pool = two(Role::Ordinary, &Registry::default());
    assert_eq!(at(&pool, DOWN_AT), Unavailable, "before the first probe");
    fail(&pool, 0, DOWN_AT);
    assert_eq!(at(&pool, DOWN_AT), Unavailable, "it was never up");
    up(&pool);
    assert_eq!(at(&pool, DOWN_AT), Available);
    fail(&pool, 0, DOWN_AT);
    assert_eq!(at(&pool, DOWN_AT), Available, "the other is up");
    fail(&pool, 1, DOWN_AT - seconds(10));
    for (now, expected) in [
        (DOWN_AT, Returning { until: UNTIL }),
        (UNTIL - Duration::from_millis(1), Returning { until: UNTIL }),
        (UNTIL, Unavailable),
        (UNTIL * 2, Unavailable),
    ] {
        assert_eq!(at(&pool, now), expected, "at {now:?}");
    }
    // Further failures belong to the same outage.
    fail(&pool, 0, DOWN_AT + seconds(50));
    pool.entries()[0]
        .member
        .connect_refused(DOWN_AT + seconds(60));
    assert_eq!(at(&pool, UNTIL), Unavailable);
    up(&pool);
    assert_eq!(at(&pool, UNTIL), Available);
    // The time of the next outage starts when that outage starts.
    fail(&pool, 0, UNTIL);
    pool.entries()[1].member.connect_refused(UNTIL + seconds(1));
    let until = UNTIL + seconds(1) + WAIT_MAX;
    assert_eq!(at(&pool, UNTIL + seconds(5)), Returning { until });
}

#[test]
fn a_member_that_was_taken_out_of_service_is_not_awaited() {
    use Administrative::{Drain, Maintenance, Ready};
    for (state, answer, awaited) in [
        (Ready, "ready", true),
        (Drain, "ready", false),
        (Maintenance, "ready", false),
        // `down` from an agent check counts like a failed probe.
        (Ready, "down", true),
        (Ready, "drain", false),
        (Ready, "maint", false),
        (Ready, "0%", false),
        (Ready, "50%", true),
        (Drain, "down", false),
    ] {
        for one_left in [false, true] {
            let pool = two(Role::Ordinary, &Registry::default());
            up(&pool);
            let taken_out = if one_left {
                &pool.entries()[..1]
            } else {
                pool.entries()
            };
            for entry in taken_out {
                entry.member.administer(state);
                let agent = AgentState::default().after(answer.as_bytes());
                entry
                    .member
                    .set_agent_state(agent.expect("readable"), DOWN_AT);
            }
            // If a member was not taken out, its failure counts as an outage.
            fail(&pool, 0, DOWN_AT);
            fail(&pool, 1, DOWN_AT);
            let expected = if awaited || one_left {
                Returning { until: UNTIL }
            } else {
                Unavailable
            };
            assert_eq!(
                at(&pool, DOWN_AT),
                expected,
                "{state}, {answer}, {one_left}"
            );
        }
    }
    // An agent check reports `down` before a probe fails.
    let pool = two(Role::Ordinary, &Registry::default());
    up(&pool);
    for entry in pool.entries() {
        let agent = AgentState::default().after(b"down").expect("readable");
        entry.member.set_agent_state(agent, DOWN_AT);
    }
    assert_eq!(at(&pool, DOWN_AT), Returning { until: UNTIL });
    // All members are drained while they are up.
    let pool = two(Role::Ordinary, &Registry::default());
    up(&pool);
    for entry in pool.entries() {
        entry.member.administer(Drain);
    }
    assert_eq!(at(&pool, DOWN_AT), Unavailable);
    pool.entries()[1].member.administer(Ready);
    assert_eq!(at(&pool, DOWN_AT), Available);
}

#[test]
fn a_write_awaits_the_members_that_may_get_it() {
    use EligibleMembers::{Any, WriterOnly, WriterOrBackup};
    for (role, down, eligible, expected) in [
        (Role::Ordinary, &[0][..], Any, Available),
        (
            Role::Ordinary,
            &[0],
            WriterOrBackup,
            Returning { until: UNTIL },
        ),
        (Role::Ordinary, &[0], WriterOnly, Returning { until: UNTIL }),
        (Role::Ordinary, &[1], WriterOrBackup, Available),
        (Role::Backup, &[0], WriterOrBackup, Available),
        (Role::Backup, &[0], WriterOnly, Returning { until: UNTIL }),
        (
            Role::Backup,
            &[0, 1],
            WriterOrBackup,
            Returning { until: UNTIL },
        ),
    ] {
        let pool = two(role, &Registry::default());
        up(&pool);
        down.iter().for_each(|index| fail(&pool, *index, DOWN_AT));
        let found = pool.availability(eligible, WAIT_MAX, DOWN_AT);
        assert_eq!(found, expected, "{role:?} {down:?} {eligible:?}");
    }
}

#[test]
fn a_busy_member_is_available_and_one_without_probes_that_may_be_tried_is_not() {
    let pool = pool(Algorithm::LeastLoad, &[(1, Some(1))]);
    let busy = picked(&pool);
    assert_eq!(at(&pool, DOWN_AT), Available);
    drop(busy);
    pool.entries()[0].member.connect_refused(DOWN_AT);
    for now in [DOWN_AT, DOWN_AT + seconds(1), DOWN_AT + seconds(30)] {
        assert_eq!(at(&pool, now), Returning { until: UNTIL }, "at {now:?}");
    }
    pool.entries()[0].member.answered();
    assert_eq!(at(&pool, DOWN_AT), Available);
}

#[test]
fn only_a_request_that_may_wait_learns_that_a_member_may_return() {
    let pool = two(Role::Ordinary, &Registry::default());
    up(&pool);
    let holdings = Arc::new(Holdings::default());
    let account = holdings.of(&"compilers".into(), ClientKey::Agent("web01".into()));
    let offer = |unavailable_wait_max, tried: &[u64]| Offer {
        account: Arc::clone(&account),
        eligible: EligibleMembers::Any,
        criteria: any(),
        tried: tried.to_vec(),
        after_reuse: false,
        comes_back: false,
        unavailable_wait_max,
    };
    let pick = |wait_max, tried: &[u64], now| {
        let picked = pool.pick_for(&offer(wait_max, tried), now);
        picked.map(|lease| lease.index())
    };
    fail(&pool, 0, DOWN_AT);
    assert_eq!(pick(WAIT_MAX, &[], DOWN_AT), Ok(1));
    // A request does not wait for a member that failed the request and is still up.
    assert_eq!(pick(WAIT_MAX, &[1], DOWN_AT), Err(PickError::AllTried));
    fail(&pool, 1, DOWN_AT);
    for (wait_max, now, expected) in [
        (WAIT_MAX, DOWN_AT, PickError::NoneYet),
        (Duration::ZERO, DOWN_AT, PickError::NoneAvailable),
        (WAIT_MAX, UNTIL, PickError::NoneAvailable),
        (seconds(10), DOWN_AT + seconds(9), PickError::NoneYet),
        (seconds(10), DOWN_AT + seconds(10), PickError::NoneAvailable),
    ] {
        assert_eq!(pick(wait_max, &[1], now), Err(expected), "at {now:?}");
    }
}

#[test]
fn a_reload_and_another_name_do_not_end_the_wait() {
    let registry = Registry::default();
    let pool = two(Role::Ordinary, &registry);
    up(&pool);
    fail(&pool, 0, DOWN_AT - seconds(500));
    fail(&pool, 1, DOWN_AT);
    let next = two(Role::Ordinary, &registry);
    next.adopt();
    assert_eq!(at(&next, DOWN_AT), Returning { until: UNTIL });
    let address = pool.entries()[1].member.address();
    registry.inherit(
        "compilers",
        address,
        &[("c2.example.com:8140@192.0.2.1", true)],
    );
    let mut renamed = settings(Algorithm::LeastLoad, &[(1, None)]);
    renamed.check = pool.check().clone();
    renamed.members[0].address = "c2.example.com:8140@192.0.2.1".to_owned();
    let renamed = Pool::new(&renamed, CONNECTIONS_MAX, &registry);
    assert_eq!(at(&renamed, DOWN_AT), Returning { until: UNTIL });
}
