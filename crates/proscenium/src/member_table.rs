//! Members with their numbers of the last minute: the table of `status --members`, and the cells that `top` shows too.

use admin::{AdministrativeState, MemberHealth, MemberStatus, Status, shown_milliseconds};

use crate::columns::columns;

/// The work that keeps a JRuby busy for long, which has columns of its own.
const CATALOG: &str = "catalog";

/// One line for each member.
pub(crate) fn member_table(status: &Status) -> String {
    let members = status.pools.iter().flat_map(|pool| {
        let members = pool.members.iter();
        members.map(|member| (pool.name.as_str(), member))
    });
    columns(
        HEADER,
        members.map(|(pool, member)| {
            [
                pool.to_owned(),
                member.address.clone(),
                state(member),
                requests(member),
                catalogs(member),
                other_work(member),
                failures(member),
                member.connections.to_string(),
                share(member),
                jrubies(member),
                marks(member).join(", "),
            ]
        }),
    )
}

const HEADER: [&str; 11] = [
    "POOL",
    "MEMBER",
    "STATE",
    "REQUESTS/S",
    "CATALOGS P50/P95",
    "OTHER WORK P95",
    "FAILURES/MIN",
    "CONNECTIONS",
    "SHARE",
    "JRUBIES FREE",
    "MARKS",
];

/// Its health, and its administrative state if that is not `ready`.
pub(crate) fn state(member: &MemberStatus) -> String {
    match member.administrative_state {
        AdministrativeState::Ready => member.health.to_string(),
        state => format!("{}, {state}", member.health),
    }
}

/// A rate with one digit; a rate that is not zero does not look like zero.
pub(crate) fn per_second(rate: f64) -> String {
    if rate > 0.0 && rate < 0.05 {
        "<0.1".to_owned()
    } else {
        format!("{rate:.1}")
    }
}

/// Requests per second.
pub(crate) fn requests(member: &MemberStatus) -> String {
    let rate = member.traffic.as_ref().and_then(|traffic| {
        let window = traffic.window_milliseconds;
        (window > 0).then(|| traffic.requests as f64 * 1e3 / window as f64)
    });
    rate.map_or_else(none, per_second)
}

/// How long catalogs took: p50 and p95.
pub(crate) fn catalogs(member: &MemberStatus) -> String {
    let work = member
        .traffic
        .as_ref()
        .and_then(|traffic| traffic.work.get(CATALOG));
    work.map_or_else(none, |work| {
        let (p50, p95) = (work.p50_milliseconds, work.p95_milliseconds);
        format!("{} / {}", shown_milliseconds(p50), shown_milliseconds(p95))
    })
}

/// The p95 of each other kind of work.
pub(crate) fn other_work(member: &MemberStatus) -> String {
    let traffic = member.traffic.iter();
    let work = traffic.flat_map(|traffic| traffic.work.iter().filter(|(work, _)| *work != CATALOG));
    let work: Vec<_> = work
        .map(|(work, numbers)| format!("{work} {}", shown_milliseconds(numbers.p95_milliseconds)))
        .collect();
    if work.is_empty() {
        none()
    } else {
        work.join(", ")
    }
}

/// Failures per minute, with their causes, the most frequent first.
pub(crate) fn failures(member: &MemberStatus) -> String {
    let Some(traffic) = &member.traffic else {
        return none();
    };
    let mut causes: Vec<_> = traffic.failures.iter().collect();
    causes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let all: u64 = traffic.failures.values().sum();
    if all == 0 {
        return "0".to_owned();
    }
    let causes: Vec<_> = causes
        .into_iter()
        .map(|(cause, _)| cause.as_str())
        .collect();
    let rate = all as f64 * 6e4 / traffic.window_milliseconds.max(1) as f64;
    format!("{rate:.1} ({})", causes.join(", "))
}

/// Its part of the requests to the pool.
fn share(member: &MemberStatus) -> String {
    let share = member.traffic.as_ref().map(|traffic| traffic.share_percent);
    share.map_or_else(none, |share| format!("{share} %"))
}

/// Idle JRubies, of how many. What a member showed before it went down is not known to be true any more.
pub(crate) fn jrubies(member: &MemberStatus) -> String {
    let known = member
        .jrubies
        .as_ref()
        .map(|jrubies| jrubies.free.zip(jrubies.count));
    match known {
        Some(Some((free, count))) => format!("{free} of {count}"),
        Some(None) => "unknown".to_owned(),
        None if member.health == MemberHealth::Down => "unknown".to_owned(),
        None => none(),
    }
}

/// What is unusual about the member.
pub(crate) fn marks(member: &MemberStatus) -> Vec<&'static str> {
    let slow = member
        .traffic
        .as_ref()
        .is_some_and(|traffic| traffic.slow.is_some());
    let marks = [
        ("slow", slow),
        ("overloaded", member.overloaded.is_some()),
        ("ejected", member.ejected_seconds.is_some()),
        ("warming", member.warming.is_some()),
        ("backup", member.backup),
    ];
    let marks = marks.into_iter().filter(|(_, is_set)| *is_set);
    marks.map(|(mark, _)| mark).collect()
}

fn none() -> String {
    "-".to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::status::tests::status;

    /// A status whose first member is slow, and whose second is down and fails.
    pub(crate) fn busy_status() -> Status {
        let mut status = status();
        let [slow, down] = &mut status.pools[0].members[..] else {
            panic!("the sample has two members");
        };
        let traffic = |traffic| serde_json::from_value(traffic).expect("traffic of a member");
        slow.traffic = traffic(json!({
            "window_milliseconds": 60_000, "requests": 750, "share_percent": 98, "failures": {},
            "work": {
                "catalog": {"requests": 30, "p50_milliseconds": 4_200, "p95_milliseconds": 12_400},
                "file": {"requests": 700, "p50_milliseconds": 3, "p95_milliseconds": 12},
                "report": {"requests": 20, "p50_milliseconds": 90, "p95_milliseconds": 300},
            },
            "slow": {"p95_milliseconds": 12_400, "median_milliseconds": 3_000},
        }));
        down.traffic = traffic(json!({
            "window_milliseconds": 60_000, "requests": 15, "share_percent": 2,
            "failures": {"5xx": 3, "connect": 12}, "work": {}, "slow": null,
        }));
        down.jrubies = None;
        status
    }

    #[test]
    fn each_member_has_a_line_with_its_numbers() {
        let expected = "\
compilers  c1:8140              up           12.5  4.2 s / 12 s  file 12 ms, report 300 ms  0                    4  98 %  0 of 4   slow, overloaded
compilers  c2.example.com:8140  down, drain  0.2   -             -                          15.0 (connect, 5xx)  0  2 %   unknown  ejected, warming, backup";
        assert_eq!(member_table(&busy_status()), expected);
    }

    #[test]
    fn a_member_without_numbers_has_none() {
        let mut status = status();
        status.pools[0].members.truncate(1);
        let member = &mut status.pools[0].members[0];
        (member.jrubies, member.overloaded) = (None, None);
        let expected = "compilers  c1:8140  up  -  -  -  -  4  -  -";
        assert_eq!(member_table(&status), expected);
    }
}
