//! Counts of a member, and the retry of a member without probes.

use std::sync::{Barrier, atomic::AtomicBool};

use super::*;
use crate::health::HealthCause;
use crate::settings::CheckKind;

fn need(task: Task) -> Need {
    Need {
        task,
        expected_ms: 1,
    }
}

fn limits(in_flight_max: u32) -> SlotLimits {
    SlotLimits::new(in_flight_max, u32::MAX)
}

const START: Duration = Duration::ZERO;

fn unprobed() -> Arc<Member> {
    let member = Arc::new(Member::new(0, "compilers", "c1:8140", &Arc::default()));
    member.begin_check(&CheckSettings {
        kind: CheckKind::None,
        ..CheckSettings::default()
    });
    member
}

#[test]
fn an_unprobed_member_that_refused_is_tried_by_one_request_a_second() {
    let member = unprobed();
    let later = |millis| Duration::from_millis(millis);
    member.connect_refused(START);
    assert!(!member.may_get_requests(later(999)));
    assert!(!member.take(need(Task::default()), limits(u32::MAX), later(999)));
    assert!(member.may_get_requests(later(1_000)));
    assert!(member.take(need(Task::default()), limits(u32::MAX), later(1_000)));
    assert!(
        !member.take(need(Task::default()), limits(u32::MAX), later(1_000)),
        "one tries, the others wait for what it finds"
    );
    assert!(!member.take(need(Task::default()), limits(u32::MAX), later(1_999)));
    assert!(member.take(need(Task::default()), limits(u32::MAX), later(2_000)));
    assert_eq!(member.in_flight(), 2, "a place not taken is not counted");
    assert_eq!(member.answered().map(|change| change.to), Some(Health::Up));
    assert!(member.take(need(Task::default()), limits(u32::MAX), later(2_000)));
}

#[test]
fn a_probed_member_that_refused_waits_for_its_probe_however_long() {
    let member = Arc::new(Member::new(0, "compilers", "c1:8140", &Arc::default()));
    let check = CheckSettings::default();
    member.begin_check(&check);
    member.probe_succeeded(&check);
    member.connect_refused(START);
    assert_eq!(member.answered(), None);
    assert!(!member.may_get_requests(Duration::from_secs(3_600)));
    assert!(member.probe_succeeded(&check).is_some());
    assert!(member.may_get_requests(START));
}

#[test]
fn a_check_put_on_a_refusing_member_ends_its_second_chances() {
    let member = unprobed();
    member.connect_refused(START);
    member.replace_check(&CheckSettings::default());
    assert!(!member.may_get_requests(Duration::from_secs(10)));
}

#[test]
fn a_member_that_leaves_maintenance_is_asked_after_rise_good_probes_only() {
    let check = CheckSettings {
        rise: 3,
        ..CheckSettings::default()
    };
    for leave in [Administrative::Ready, Administrative::Drain] {
        let member = Member::new(0, "compilers", "c1:8140", &Arc::default());
        member.begin_check(&check);
        member.probe_succeeded(&check);
        assert!(member.may_get_requests(START));
        assert_eq!(member.administer(Administrative::Maintenance), None);
        member.probe_succeeded(&check);
        member.probe_succeeded(&check);
        let change = member.administer(leave);
        assert_eq!(
            change.map(|change| (change.to, change.cause)),
            Some((Health::Down, HealthCause::MaintenanceEnded))
        );
        // Neither a failed probe nor a refused connection makes the member return earlier.
        member.probe_failed(&check, START);
        member.connect_refused(START);
        for _ in 0..2 {
            assert_eq!(member.probe_succeeded(&check), None);
            assert!(!member.may_get_requests(START));
        }
        assert_eq!(
            member.probe_succeeded(&check).map(|change| change.to),
            Some(Health::Up)
        );
        assert!(member.may_get_requests(START));
    }
}

#[test]
fn only_the_end_of_maintenance_resets_health_and_only_of_a_probed_member() {
    let check = CheckSettings::default();
    let probed = Member::new(0, "compilers", "c1:8140", &Arc::default());
    probed.begin_check(&check);
    probed.probe_succeeded(&check);
    for state in [
        Administrative::Drain,
        Administrative::Ready,
        Administrative::Maintenance,
        Administrative::Maintenance,
    ] {
        assert_eq!(probed.administer(state), None, "{state}");
        assert_eq!(probed.health(), Health::Up);
    }
    let unprobed = unprobed();
    unprobed.administer(Administrative::Maintenance);
    assert_eq!(unprobed.administer(Administrative::Ready), None);
    assert_eq!(unprobed.health(), Health::Up);
}

#[test]
fn a_changed_check_does_not_shorten_the_way_back_from_maintenance() {
    let check = CheckSettings {
        rise: 2,
        ..CheckSettings::default()
    };
    let member = Member::new(0, "compilers", "c1:8140", &Arc::default());
    member.begin_check(&check);
    member.probe_succeeded(&check);
    member.administer(Administrative::Maintenance);
    member.administer(Administrative::Ready);
    for assume_up in [false, true] {
        let changed = CheckSettings {
            rise: 3,
            assume_up,
            ..CheckSettings::default()
        };
        // A request whose connection is refused does not shorten it either.
        member.connect_refused(START);
        assert_eq!(member.replace_check(&changed), None);
        for _ in 0..2 {
            assert_eq!(member.probe_succeeded(&changed), None);
            assert_eq!(member.health(), Health::Down);
        }
    }
    let changed = CheckSettings {
        rise: 3,
        assume_up: true,
        ..CheckSettings::default()
    };
    let change = member.probe_succeeded(&changed);
    assert_eq!(change.map(|change| change.to), Some(Health::Up));
    // From now on, the member is treated like any other.
    member.probe_failed(&changed, START);
    member.probe_failed(&changed, START);
    member.probe_failed(&changed, START);
    assert_eq!(member.health(), Health::Down);
    assert!(member.replace_check(&check).is_some());
    assert!(member.probe_succeeded(&check).is_some());
}

#[test]
fn requests_in_flight_are_counted_by_kind_of_work_with_and_without_a_jruby() {
    let member = unprobed();
    let catalog = Task::of(Work::Catalog);
    let file = Task::of(Work::File);
    let static_file = Task {
        without_jruby: true,
        ..file
    };
    for task in [catalog, file, static_file] {
        assert!(member.take(need(task), limits(u32::MAX), START));
    }
    assert!(!member.take(need(file), limits(3), START));
    assert_eq!(member.in_flight_by_work(), [1, 2, 0, 0]);
    member.give_back(need(file));
    member.give_back(need(static_file));
    assert_eq!(member.in_flight_by_work(), [1, 0, 0, 0]);
    assert_eq!(member.in_flight(), 1);
}

#[test]
fn a_count_of_jrubies_outside_its_bounds_is_not_believed() {
    let member = unprobed();
    assert_eq!(member.jrubies(), None);
    for (count, learned) in [(1, Some(1)), (1_000, Some(1_000)), (0, None), (1_001, None)] {
        assert_eq!(member.learn_jrubies(Some(count)), learned.is_some());
        assert_eq!(member.jrubies(), learned);
    }
    assert!(member.learn_jrubies(None));
}

#[test]
fn a_place_is_not_taken_on_a_member_that_has_just_been_drained() {
    let member = unprobed();
    member.answered();
    assert!(member.take(need(Task::default()), limits(u32::MAX), START));
    for state in [Administrative::Drain, Administrative::Maintenance] {
        member.administer(state);
        assert!(
            !member.take(need(Task::default()), limits(u32::MAX), START),
            "{state}"
        );
        assert_eq!(member.in_flight(), 1, "{state}: the place is given back");
    }
    member.administer(Administrative::Ready);
    assert!(member.take(need(Task::default()), limits(u32::MAX), START));
}

#[test]
fn the_stricter_of_operator_and_agent_check_applies() {
    use Administrative::{Drain, Maintenance, Ready};
    let member = Member::new(0, "compilers", "c1:8140", &Arc::default());
    for (operator, agent, expected) in [
        (Ready, Ready, Ready),
        (Drain, Ready, Drain),
        (Ready, Drain, Drain),
        (Drain, Maintenance, Maintenance),
        (Maintenance, Drain, Maintenance),
    ] {
        member.administer(operator);
        let state = AgentState {
            administrative: agent,
            ..AgentState::default()
        };
        member.set_agent_state(state, Duration::ZERO);
        assert_eq!(member.administrative(), expected, "{operator}, {agent}");
        assert_eq!(member.operator_state(), operator);
    }
}

/// Four threads take and give back slots while a fifth drains the member. Once the drain has seen no request, no slot is taken.
#[test]
fn a_drain_that_has_seen_no_request_left_sees_none_afterwards() {
    for _ in 0..50 {
        let member = unprobed();
        let seen_empty = AtomicBool::new(false);
        let barrier = Barrier::new(5);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    for _ in 0..2_000 {
                        let was_empty = seen_empty.load(Ordering::SeqCst);
                        if member.take(need(Task::default()), limits(9), START) {
                            assert!(!was_empty, "taken after the drain had seen none");
                            member.give_back(need(Task::default()));
                        }
                    }
                });
            }
            barrier.wait();
            member.administer(Administrative::Drain);
            while member.in_flight() > 0 {
                std::hint::spin_loop();
            }
            seen_empty.store(true, Ordering::SeqCst);
        });
        assert_eq!((member.in_flight(), member.working()), (0, 0));
    }
}
