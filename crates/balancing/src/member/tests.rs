//! Counts and the second chance of an unprobed member.

use super::*;
use crate::settings::CheckKind;

const START: Duration = Duration::ZERO;

fn unprobed() -> Arc<Member> {
    let member = Arc::new(Member::new("compilers", "c1:8140"));
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
    assert!(!member.take(None, later(999)));
    assert!(member.may_be_asked(later(1_000)));
    assert!(member.take(None, later(1_000)));
    assert!(
        !member.take(None, later(1_000)),
        "one tries, the others wait for what it finds"
    );
    assert!(!member.take(None, later(1_999)));
    assert!(member.take(None, later(2_000)));
    assert_eq!(member.in_flight(), 2, "a place not taken is not counted");
    assert_eq!(member.answered().map(|change| change.to), Some(Health::Up));
    assert!(member.take(None, later(2_000)));
}

#[test]
fn a_probed_member_that_refused_waits_for_its_probe_however_long() {
    let member = Arc::new(Member::new("compilers", "c1:8140"));
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
