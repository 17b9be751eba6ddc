//! The time until a command applies to all proxies.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use testkit::wait_until;

use super::estate::{FleetEstate, OTHER_HOST, STORE_MEMBERS};

/// The goal for the 99th percentile, except during an election.
const GOAL: Duration = Duration::from_secs(1);
/// The exit code of a command that was not sent to the fleet.
pub(super) const NOT_SENT: i32 = 5;
/// Maximum time of an election.
const ELECTION_MAX: Duration = Duration::from_secs(30);

/// The delays of one kind of command.
pub(super) struct Delays {
    what: String,
    sorted: Vec<Duration>,
    /// Whether the goal applies, which it does except during elections.
    has_goal: bool,
}

impl Delays {
    pub(super) fn print_head() {
        println!(
            "{:<58} {:>4} {:>9} {:>9} {:>9}",
            "delay until the last proxy has it, in ms", "n", "p50", "p99", "max"
        );
    }

    fn new(what: &str, mut delays: Vec<Duration>) -> Self {
        delays.sort();
        let delays = Self {
            what: what.to_owned(),
            sorted: delays,
            has_goal: true,
        };
        println!(
            "{:<58} {:>4} {:>9.1} {:>9.1} {:>9.1}",
            delays.what,
            delays.sorted.len(),
            milliseconds(delays.percentile(0.5)),
            milliseconds(delays.percentile(0.99)),
            milliseconds(delays.percentile(1.0)),
        );
        delays
    }

    fn without_goal(mut self) -> Self {
        self.has_goal = false;
        self
    }

    /// The smallest delay that this share of all delays does not exceed.
    fn percentile(&self, share: f64) -> Duration {
        let rank = (share * self.sorted.len() as f64).ceil() as usize;
        let found = self.sorted.get(rank.max(1) - 1);
        found.copied().unwrap_or_default()
    }

    pub(super) fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The 99th percentile as text, if it misses the goal.
    pub(super) fn missed_goal(&self) -> Option<String> {
        let p99 = self.percentile(0.99);
        (self.has_goal && p99 >= GOAL).then(|| format!("{}: p99 {p99:.1?}", self.what))
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Runs commands one after the other, in turn on all proxies.
pub(super) fn healthy(estate: &FleetEstate, rounds: usize) -> Result<Vec<Delays>> {
    let (mut blocks, mut states) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let number = round % estate.proxies.len();
        blocks.push(block(estate, number)?);
        let state = ["drain", "ready"][round % 2];
        states.push(done(
            estate,
            number,
            &[state],
            &["compilers", &format!("{OTHER_HOST}:1")],
        )?);
    }
    Ok(vec![
        Delays::new("block", blocks),
        Delays::new("drain, ready", states),
    ])
}

/// Freezes a member of etcd that is not its leader. Runs commands directly afterwards, and some more while the member
/// stays frozen.
pub(super) fn frozen(estate: &FleetEstate, faults: usize, rounds: usize) -> Result<Vec<Delays>> {
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for fault in 0..faults {
        let member = (estate.store.leader() + 1) % STORE_MEMBERS;
        estate.store.freeze(member, true);
        let frozen = block(estate, fault % estate.proxies.len());
        estate.store.freeze(member, false);
        first.push(frozen?);
    }
    let member = (estate.store.leader() + 1) % STORE_MEMBERS;
    estate.store.freeze(member, true);
    for round in 0..rounds {
        later.push(block(estate, round % estate.proxies.len())?);
    }
    estate.store.freeze(member, false);
    estate.wait_until_equal()?;
    Ok(vec![
        Delays::new("block, directly after a member of etcd froze", first),
        Delays::new("block, while a member of etcd is frozen", later),
    ])
}

/// Kills the leader of etcd, and runs a command at once.
pub(super) fn leader_killed(estate: &FleetEstate, faults: usize) -> Result<Vec<Delays>> {
    let (mut delays, mut elections, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for fault in 0..faults {
        let leader = estate.store.leader();
        let others: Vec<_> = (0..STORE_MEMBERS)
            .filter(|member| *member != leader)
            .collect();
        let count = || -> usize {
            others
                .iter()
                .map(|member| estate.store.elections(*member))
                .sum()
        };
        let before = count();
        let began = Instant::now();
        estate.store.kill(leader);
        let (delay, election) = thread::scope(|scope| {
            let election = scope
                .spawn(|| wait_until(ELECTION_MAX, || (count() > before).then(|| began.elapsed())));
            let delay = block(estate, fault % estate.proxies.len());
            (delay, election.join())
        });
        let (delay, election) = (delay?, election.ok().flatten().context("no election")?);
        delays.push(delay);
        elections.push(election);
        rest.push(delay.saturating_sub(election));
        estate.store.restart(leader);
        estate.wait_until_equal()?;
    }
    Ok(vec![
        Delays::new(
            "block, directly after the leader of etcd was killed",
            delays,
        )
        .without_goal(),
        Delays::new("  of this, the election", elections).without_goal(),
        Delays::new("  of this, after the election", rest),
    ])
}

/// Kills all members of etcd and starts them again.
pub(super) fn restarted(estate: &FleetEstate) -> Result<Vec<Delays>> {
    (0..STORE_MEMBERS).for_each(|member| estate.store.kill(member));
    let proxy = &estate.proxies[0];
    let alone = proxy.command(&["block"], &["restarted", "--why", "measured"]);
    ensure!(alone.code == Some(NOT_SENT), "{}", alone.stderr);
    let began = Instant::now();
    thread::scope(|scope| {
        for member in 0..STORE_MEMBERS {
            scope.spawn(move || estate.store.restart(member));
        }
    });
    estate.wait_until_equal()?;
    Ok(vec![
        Delays::new(
            "all equal after all members of etcd were started again",
            vec![began.elapsed()],
        )
        .without_goal(),
    ])
}

fn block(estate: &FleetEstate, number: usize) -> Result<Duration> {
    let name = format!("web{}", estate.next_number());
    done(estate, number, &["block"], &[&name, "--why", "measured"])
}

/// Runs a command that changes one record. During an election the command may report that the change was not sent; it
/// applies nevertheless.
fn done(
    estate: &FleetEstate,
    number: usize,
    words: &[&str],
    arguments: &[&str],
) -> Result<Duration> {
    let (took, outcome) = estate.measure(number, words, arguments, 1)?;
    ensure!(
        matches!(outcome.code, Some(0 | NOT_SENT)),
        "{words:?} {arguments:?}: {}",
        outcome.stderr
    );
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_delay_that_was_measured() {
        let delays = |count: u64| {
            Delays::new(
                "test",
                (1..=count).rev().map(Duration::from_millis).collect(),
            )
        };
        let percentile = |count, share| delays(count).percentile(share).as_millis();
        assert_eq!(
            [0.5, 0.99, 1.0].map(|share| percentile(100, share)),
            [50, 99, 100]
        );
        assert_eq!(
            [0.5, 0.99, 1.0].map(|share| percentile(3, share)),
            [2, 3, 3]
        );
        assert_eq!(percentile(0, 0.99), 0);
    }

    #[test]
    fn only_delays_with_a_goal_miss_it() {
        let slow = || Delays::new("slow", vec![GOAL]);
        assert!(slow().missed_goal().is_some());
        assert!(slow().without_goal().missed_goal().is_none());
        assert!(Delays::new("fast", vec![GOAL / 2]).missed_goal().is_none());
    }
}
