//! Counts and the second chance of an unprobed member.

use super::*;
use crate::health::Cause;
use crate::settings::CheckKind;

const START: Duration = Duration::ZERO;

fn unprobed() -> Arc<Member> {
    let member = Arc::new(Member::new(0, "compilers", "c1:8140"));
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
    assert!(!member.may_be_asked(later(999)));
    assert!(!member.take(u32::MAX, later(999)));
    assert!(member.may_be_asked(later(1_000)));
    assert!(member.take(u32::MAX, later(1_000)));
    assert!(
        !member.take(u32::MAX, later(1_000)),
        "one tries, the others wait for what it finds"
    );
    assert!(!member.take(u32::MAX, later(1_999)));
    assert!(member.take(u32::MAX, later(2_000)));
    assert_eq!(member.in_flight(), 2, "a place not taken is not counted");
    assert_eq!(member.answered().map(|change| change.to), Some(Health::Up));
    assert!(member.take(u32::MAX, later(2_000)));
}

#[test]
fn a_probed_member_that_refused_waits_for_its_probe_however_long() {
    let member = Arc::new(Member::new(0, "compilers", "c1:8140"));
    let check = CheckSettings::default();
    member.begin_check(&check);
    member.probe_succeeded(&check);
    member.connect_refused(START);
    assert_eq!(member.answered(), None);
    assert!(!member.may_be_asked(Duration::from_secs(3_600)));
    assert!(member.probe_succeeded(&check).is_some());
    assert!(member.may_be_asked(START));
}

#[test]
fn a_check_put_on_a_refusing_member_ends_its_second_chances() {
    let member = unprobed();
    member.connect_refused(START);
    member.replace_check(&CheckSettings::default());
    assert!(!member.may_be_asked(Duration::from_secs(10)));
}

#[test]
fn a_member_that_leaves_maintenance_is_asked_after_rise_good_probes_only() {
    let check = CheckSettings {
        rise: 3,
        ..CheckSettings::default()
    };
    for leave in [Administrative::Ready, Administrative::Drain] {
        let member = Member::new(0, "compilers", "c1:8140");
        member.begin_check(&check);
        member.probe_succeeded(&check);
        assert!(member.may_be_asked(START));
        assert_eq!(member.administer(Administrative::Maintenance), None);
        member.probe_succeeded(&check);
        member.probe_succeeded(&check);
        let change = member.administer(leave);
        assert_eq!(
            change.map(|change| (change.to, change.cause)),
            Some((Health::Down, Cause::MaintenanceEnded))
        );
        // Neither a failure nor a refused connection makes it come back sooner.
        member.probe_failed(&check);
        member.connect_refused(START);
        for _ in 0..2 {
            assert_eq!(member.probe_succeeded(&check), None);
            assert!(!member.may_be_asked(START));
        }
        assert_eq!(
            member.probe_succeeded(&check).map(|change| change.to),
            Some(Health::Up)
        );
        assert!(member.may_be_asked(START));
    }
}

#[test]
fn only_the_end_of_maintenance_resets_health_and_only_of_a_probed_member() {
    let check = CheckSettings::default();
    let probed = Member::new(0, "compilers", "c1:8140");
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
    let member = Member::new(0, "compilers", "c1:8140");
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
        // Nor does a request that finds nobody listening.
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
    // From then on it is a member as any other.
    member.probe_failed(&changed);
    member.probe_failed(&changed);
    member.probe_failed(&changed);
    assert_eq!(member.health(), Health::Down);
    assert!(member.replace_check(&check).is_some());
    assert!(member.probe_succeeded(&check).is_some());
}
