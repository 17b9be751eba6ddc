//! Tests of every stage with every kind of request.

use super::*;

const POLICY: RetryPolicy = RetryPolicy { attempts_max: 3 };

const FRESH: Progress = Progress {
    attempts: 1,
    response_started: false,
    safe: false,
    body_replayable: true,
    single_member: false,
    late: false,
};

fn again(failure: AttemptFailure, progress: Progress) -> bool {
    POLICY.decide(&failure, &progress) == RetryVerdict::Again
}

fn failure(stage: AttemptStage) -> AttemptFailure {
    AttemptFailure {
        stage,
        reused: false,
        unsent: false,
        broken_off: false,
    }
}

const STAGES: [AttemptStage; 6] = [
    AttemptStage::Resolve,
    AttemptStage::Connect,
    AttemptStage::Handshake,
    AttemptStage::SendHead,
    AttemptStage::SendBody,
    AttemptStage::ReceiveHead,
];

#[test]
fn what_a_member_cannot_have_seen_goes_again_and_the_rest_only_if_safe() {
    for (stage, catalog, file, ca_write) in [
        (AttemptStage::Resolve, true, true, false),
        (AttemptStage::Connect, true, true, false),
        (AttemptStage::Handshake, true, true, false),
        (AttemptStage::SendHead, false, true, false),
        (AttemptStage::SendBody, false, true, false),
        (AttemptStage::ReceiveHead, false, true, false),
    ] {
        let safe = Progress {
            safe: true,
            ..FRESH
        };
        let write = Progress {
            single_member: true,
            ..FRESH
        };
        for reused in [false, true] {
            let failure = AttemptFailure {
                reused,
                ..failure(stage)
            };
            assert_eq!(again(failure, FRESH), catalog, "catalog, {failure:?}");
            assert_eq!(again(failure, safe), file, "file, {failure:?}");
            assert_eq!(again(failure, write), ca_write, "CA write, {failure:?}");
        }
    }
}

#[test]
fn a_message_that_came_back_unsent_goes_again_whatever_it_is() {
    for single_member in [false, true] {
        for stage in [
            AttemptStage::SendHead,
            AttemptStage::SendBody,
            AttemptStage::ReceiveHead,
        ] {
            let unsent = AttemptFailure {
                stage,
                reused: true,
                unsent: true,
                broken_off: true,
            };
            let progress = Progress {
                single_member,
                ..FRESH
            };
            assert!(again(unsent, progress), "{unsent:?}");
            assert!(!unsent.blames_member());
        }
    }
}

#[test]
fn nothing_goes_again_once_it_cannot_be_repeated_whole() {
    for stage in STAGES {
        for unsent in [false, true] {
            let failure = AttemptFailure {
                unsent,
                ..failure(stage)
            };
            let safe = Progress {
                safe: true,
                ..FRESH
            };
            for (why, progress) in [
                (
                    "body read",
                    Progress {
                        body_replayable: false,
                        ..safe
                    },
                ),
                (
                    "response begun",
                    Progress {
                        response_started: true,
                        ..safe
                    },
                ),
                (
                    "attempts used up",
                    Progress {
                        attempts: 3,
                        ..safe
                    },
                ),
                ("late", Progress { late: true, ..safe }),
            ] {
                assert!(!again(failure, progress), "{why}, {failure:?}");
            }
            assert!(again(
                failure,
                Progress {
                    attempts: 2,
                    ..safe
                }
            ));
        }
    }
}

#[test]
fn a_failed_dial_blames_the_member() {
    for stage in STAGES {
        assert!(failure(stage).blames_member());
    }
}

#[test]
fn a_reused_connection_that_breaks_off_before_an_answer_does_not_blame_the_member() {
    for (reused, broken_off, blames) in [
        (true, true, false),
        (false, true, true),
        (true, false, true),
        (false, false, true),
    ] {
        let failure = AttemptFailure {
            reused,
            broken_off,
            ..failure(AttemptStage::ReceiveHead)
        };
        assert_eq!(failure.blames_member(), blames, "{failure:?}");
        assert!(!again(failure, FRESH), "it may have acted on a report");
        let safe = Progress {
            safe: true,
            ..FRESH
        };
        assert!(again(failure, safe));
    }
}
