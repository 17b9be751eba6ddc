//! How live connections react when the process stops, a listener is removed, or a client is no longer trusted.

use std::sync::Arc;

use proxy::LifecyclePhase;
use tokio::time::Instant;

use crate::support::{FILE, InMemoryEstate, assert_took, pass, run, settle, trusted};

#[test]
fn a_drain_closes_an_idle_connection_after_five_seconds_of_silence() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        pass(1).await;
        let began = Instant::now();
        estate.enter(LifecyclePhase::Draining);
        assert!(client.is_ended().await);
        assert_took(began, 4);
    });
}

#[test]
fn a_request_on_an_idle_connection_is_answered_during_a_drain_with_connection_close() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        estate.enter(LifecyclePhase::Draining);
        pass(2).await;
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, "last").await;
        let answer = client.response().await;
        assert_eq!(answer.body, "last");
        assert!(answer.head.contains("connection: close"), "{}", answer.head);
        assert!(client.is_ended().await);
    });
}

#[test]
fn a_drain_waits_for_an_answer_however_long_its_member_takes() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        estate.enter(LifecyclePhase::Draining);
        pass(400).await;
        member.answer(200, "slow").await;
        assert_eq!(client.response().await.body, "slow");
        assert!(client.is_ended().await);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["status"], 200);
    });
}

#[test]
fn the_end_of_the_grace_period_cuts_a_request_off_and_is_its_recorded_reason() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        estate.enter(LifecyclePhase::Draining);
        pass(10).await;
        let began = Instant::now();
        estate.enter(LifecyclePhase::Cutting);
        assert!(client.is_ended().await);
        assert_took(began, 0);
        assert!(member.is_ended().await);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["reason"], "drain-grace");
    });
}

#[test]
fn the_end_of_the_grace_period_cuts_off_a_client_that_takes_nothing() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.client_buffer = 64);
        let (mut client, serving) = estate.connect_web01();
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, &"x".repeat(20_000)).await;
        settle().await;
        let began = Instant::now();
        estate.enter(LifecyclePhase::Cutting);
        serving.await.expect("no panic");
        assert_took(began, 0);
        drop(client);
        estate.assert_at_rest().await;
    });
}

#[test]
fn a_connection_whose_listener_was_removed_is_drained() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        settle().await;
        estate.apply(|generation| generation.listeners.clear());
        let began = Instant::now();
        assert!(client.is_ended().await);
        assert_took(began, 4);
    });
}

#[test]
fn a_revoked_client_that_is_idle_is_closed_at_once_and_another_stays() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut revoked, _) = estate.connect_as(Some(&trusted().web02));
        let mut stays = estate.connect();
        settle().await;
        let began = Instant::now();
        estate.apply(|generation| generation.trust = Arc::clone(&trusted().without_web02));
        assert!(revoked.is_ended().await);
        assert_took(began, 0);
        stays.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, "x").await;
        assert_eq!(stays.response().await.status, 200);
    });
}

#[test]
fn a_client_revoked_during_a_request_gets_its_answer_and_then_one_403() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut revoked, _) = estate.connect_as(Some(&trusted().web02));
        revoked.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        estate.apply(|generation| generation.trust = Arc::clone(&trusted().without_web02));
        settle().await;
        member.answer(200, "begun before").await;
        assert_eq!(revoked.response().await.body, "begun before");
        revoked.get(FILE).await;
        let answer = revoked.response().await;
        assert_eq!(answer.status, 403);
        assert!(answer.head.contains("connection: close"), "{}", answer.head);
        assert!(revoked.is_ended().await);
        let records = estate.records().await;
        assert_eq!(records[1]["reason"], "refused-certificate");
    });
}

#[test]
fn a_request_keeps_the_configuration_that_it_began_with() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
        let (mut client, member) = estate.ask_first().await;
        estate.apply(|generation| {
            generation.settings.attempts_max = 1;
        });
        settle().await;
        drop(member);
        let mut second = estate.compilers[1].accept().await;
        second.request().await;
        second.answer(200, "tried again").await;
        assert_eq!(client.response().await.body, "tried again");
    });
}
