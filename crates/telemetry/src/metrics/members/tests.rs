//! Numbers of members, and their windows.

use super::*;
use crate::Exposition;

const SECOND: Duration = Duration::from_secs(1);

fn text(metrics: &Metrics) -> String {
    metrics.encode([], Exposition::Text)
}

#[test]
fn a_window_has_what_was_counted_since_its_beginning() {
    let metrics = Metrics::default();
    let member = metrics.member("compilers", "c1:8140");
    let answer = |milliseconds| {
        member.attempt(AttemptResult::Ok);
        member.took(Work::Catalog, Duration::from_millis(milliseconds));
    };
    answer(100);
    let mut window = MemberWindow::new(member.counts(), SECOND);
    for period in 1..=5_u32 {
        answer(1_000);
        window.end_period(
            member.counts(),
            SECOND * (10 * period + 1),
            period > 2,
            SECOND * 40,
        );
    }
    answer(1_000);
    let recent = |seconds| {
        let (counts, length) = window.recent(&member.counts(), SECOND * 55, SECOND * seconds);
        (counts.requests(), counts.durations(Work::Catalog), length)
    };
    // The first period is older than the window's length.
    for (seconds, expected, length) in [(0, 1, 4), (14, 2, 14), (30, 3, 24), (600, 5, 44)] {
        assert_eq!(
            recent(seconds),
            (expected, expected, SECOND * length),
            "{seconds}"
        );
    }
    assert_eq!(window.warm().durations(Work::Catalog), 3);
    assert_eq!(window.warm().percentile_us(Work::Catalog, 95), 1_000_000);
    assert_eq!(window.warm().durations(Work::File), 0);
}

#[test]
fn a_window_is_bounded() {
    let mut window = MemberWindow::new(MemberCounts::default(), Duration::ZERO);
    for period in 1..=PERIODS_MAX as u32 + 10 {
        let counts = MemberCounts::default();
        window.end_period(counts, SECOND * period, true, Duration::MAX);
    }
    assert_eq!(window.periods.len(), PERIODS_MAX);
}

#[test]
fn requests_and_failures_of_a_member_are_counted_by_cause() {
    let member = Metrics::default().member("compilers", "c1:8140");
    for result in AttemptResult::ALL {
        member.attempt(result);
    }
    member.response_failed(ResponseFailure::ServerError);
    let counts = member.counts();
    assert_eq!(counts.requests(), AttemptResult::ALL.len() as u64 - 1);
    let failures: Vec<_> = counts.failures().collect();
    let expected = [
        "resolve",
        "connect",
        "handshake",
        "send",
        "receive",
        "timeout",
        "5xx",
    ];
    assert_eq!(failures, expected.map(|cause| (cause, 1)));
}

#[test]
fn durations_have_series_for_the_work_that_occurred_and_for_a_limited_number_of_members() {
    let metrics = Metrics::default();
    for member in 0..=ATTEMPT_DURATION_MEMBERS_MAX {
        let member = metrics.member("compilers", &format!("c{member:04}:8140"));
        member.took(Work::Catalog, SECOND * 2);
    }
    let text = text(&metrics);
    let bucket = |member, le, count| {
        let labels = format!("le=\"{le}\",pool=\"compilers\",member=\"{member}\",work=\"catalog\"");
        format!("proscenium_attempt_duration_seconds_bucket{{{labels}}} {count}")
    };
    for line in [
        bucket("c0000:8140", "1.0", 0),
        bucket("c0000:8140", "2.5", 1),
        bucket("c0255:8140", "+Inf", 1),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("work=\"file\""));
    let sums = text
        .matches("proscenium_attempt_duration_seconds_sum")
        .count();
    assert_eq!(sums, ATTEMPT_DURATION_MEMBERS_MAX);
}
