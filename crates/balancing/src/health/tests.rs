//! Tests of the state machine, step by step.

use super::*;

/// Events that happen to a member, for the tables of the tests.
#[derive(Clone, Copy, Debug)]
enum Step {
    Good,
    Bad,
    Refused,
    Answered,
}

use Step::{Answered, Bad, Good, Refused};

fn check(kind: CheckKind, assume_up: bool) -> CheckSettings {
    CheckSettings {
        kind,
        assume_up,
        rise: 2,
        fall: 3,
        ..CheckSettings::default()
    }
}

fn walk(evidence: &mut Evidence, check: &CheckSettings, steps: &[Step]) -> Vec<Health> {
    let mut healths = Vec::new();
    for step in steps {
        let before = evidence.health();
        let change = match step {
            Good => evidence.probe_succeeded(check),
            Bad => evidence.probe_failed(check),
            Refused => evidence.connect_refused(),
            Answered => evidence.answered(),
        };
        let reported = change.map_or((before, before), |change| (change.from, change.to));
        assert_eq!(
            reported,
            (before, evidence.health()),
            "{step:?}: a change is reported exactly when there is one"
        );
        healths.push(evidence.health());
    }
    healths
}

fn expect(kind: CheckKind, assume_up: bool, steps: &[Step], expected: &str) {
    let check = check(kind, assume_up);
    let mut evidence = Evidence::default();
    evidence.begin(&check);
    let letters: String = walk(&mut evidence, &check, steps)
        .into_iter()
        .map(letter)
        .collect();
    assert_eq!(letters, expected, "{steps:?}");
}

fn letter(health: Health) -> char {
    match health {
        Health::Unknown => '?',
        Health::Up => 'u',
        Health::Down => 'd',
    }
}

#[test]
fn a_member_never_probed_comes_up_on_its_first_good_probe() {
    expect(CheckKind::Http, false, &[Good], "u");
    expect(CheckKind::Tcp, false, &[Bad, Bad, Bad, Bad, Good], "ddddu");
}

#[test]
fn fall_bad_probes_in_a_row_take_it_down_and_rise_good_ones_bring_it_back() {
    expect(
        CheckKind::Http,
        false,
        &[Good, Bad, Bad, Bad, Good, Good],
        "uuuddu",
    );
    expect(
        CheckKind::Http,
        false,
        &[Good, Bad, Bad, Good, Bad, Bad, Bad],
        "uuuuuud",
    );
    expect(
        CheckKind::Http,
        false,
        &[Good, Bad, Bad, Bad, Good, Bad, Good, Good],
        "uuuddddu",
    );
}

#[test]
fn a_refused_connect_takes_it_down_until_its_next_good_probe() {
    expect(CheckKind::Http, false, &[Good, Refused, Good], "udu");
    expect(
        CheckKind::Http,
        false,
        &[Good, Refused, Bad, Bad, Bad, Bad, Good],
        "udddddu",
    );
    expect(
        CheckKind::Http,
        false,
        &[Good, Refused, Answered, Good],
        "uddu",
    );
}

#[test]
fn an_assumed_member_is_up_before_its_first_probe() {
    expect(CheckKind::Http, true, &[Bad, Bad, Bad], "uud");
}

#[test]
fn an_unprobed_member_comes_up_again_by_answering() {
    expect(
        CheckKind::None,
        false,
        &[Answered, Refused, Refused, Answered],
        "uddu",
    );
}

#[test]
fn a_changed_check_keeps_an_up_member_up_and_probes_a_down_one_again() {
    let (old, new) = (check(CheckKind::Http, false), check(CheckKind::Tcp, false));
    let mut evidence = Evidence::default();
    evidence.begin(&old);
    walk(&mut evidence, &old, &[Good, Bad, Bad]);
    assert_eq!(evidence.replace(&new), None);
    assert_eq!(evidence.health(), Health::Up);
    assert_eq!(
        walk(&mut evidence, &new, &[Bad, Bad, Bad]).last(),
        Some(&Health::Down),
        "failed probes are counted from zero"
    );
    let change = evidence.replace(&old).expect("health is reset");
    assert_eq!(
        (change.to, change.cause),
        (Health::Unknown, HealthCause::CheckChanged)
    );
    assert_eq!(walk(&mut evidence, &old, &[Good]), [Health::Up]);
}

#[test]
fn a_check_taken_away_brings_a_down_member_up() {
    let (old, new) = (check(CheckKind::Http, false), check(CheckKind::None, false));
    let mut evidence = Evidence::default();
    evidence.begin(&old);
    walk(&mut evidence, &old, &[Bad]);
    assert_eq!(
        evidence.replace(&new).map(|change| change.to),
        Some(Health::Up)
    );
}

#[test]
fn probes_of_a_replaced_check_are_ignored() {
    let (old, new) = (check(CheckKind::Http, false), check(CheckKind::Tcp, false));
    let mut evidence = Evidence::default();
    evidence.begin(&old);
    evidence.replace(&new);
    assert_eq!(
        walk(&mut evidence, &old, &[Good, Bad]),
        [Health::Unknown; 2]
    );
}

#[test]
fn a_check_that_already_applies_keeps_its_results() {
    let check = check(CheckKind::Http, false);
    let mut evidence = Evidence::default();
    evidence.begin(&check);
    walk(&mut evidence, &check, &[Good]);
    assert_eq!(evidence.begin(&self::check(CheckKind::Tcp, false)), None);
    assert_eq!(evidence.replace(&check), None);
    assert_eq!(evidence.health(), Health::Up);
}
