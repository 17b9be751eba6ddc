//! What a reload keeps, and when a new check applies.

use super::super::*;
use super::support::*;

#[test]
fn a_reload_keeps_counts_and_health_and_does_not_alter_the_running_pool() {
    let registry = Registry::default();
    let mut settings = settings(Algorithm::LeastConnections, &[(1, Some(1)), (1, None)]);
    let old = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    let held = old.pick_for_write(&[], Task::default(), NOW).expect("free");
    old.entries()[1].member.connect_refused(NOW);
    settings.members[0].in_flight_max = Some(2);
    settings.members[0].weight = 7;
    let new = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    assert!(new.adopt().is_empty());
    assert_eq!(
        old.pick_for_write(&[], Task::default(), NOW).err(),
        Some(PickError::Full),
        "the old limit holds for the old generation"
    );
    let second = new
        .pick_for_write(&[], Task::default(), NOW)
        .expect("the new limit leaves a place");
    assert_eq!(second.member().in_flight(), 2);
    assert_eq!(new.entries()[1].member.health(), Health::Down);
    drop((held, second));
    assert_eq!(registry.members()[0].in_flight(), 0);
}

#[test]
fn a_changed_check_applies_when_the_pool_is_adopted_and_resets_only_health() {
    let registry = Registry::default();
    let mut settings = settings(Algorithm::LeastConnections, &[(1, None), (1, None)]);
    let old = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    old.entries()[0].member.connect_refused(NOW);
    old.entries()[1].member.administer(Administrative::Drain);
    settings.check = CheckSettings::default();
    let new = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    assert_eq!(
        old.entries()[0].member.health(),
        Health::Down,
        "building a pool changes nothing"
    );
    let changes = new.adopt();
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].0, changes[0].1.to), (0, Health::Unknown));
    assert_eq!(
        new.entries()[1].member.administrative(),
        Administrative::Drain
    );
}
