//! The goals for the column of Proscenium, and whether each was met.

use crate::{
    column::Column,
    outcome::SimulationOutcome,
    scenario::{P99, READ_TIMEOUT, Scenario},
};

/// One goal in one scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The goal and the result, in words.
    pub what: String,
    /// Whether the goal was met.
    pub met: bool,
}

/// Evaluates the goals of a scenario. `outcomes` has the outcomes of each column by seed; Proscenium's column is the
/// first.
pub fn evaluate(
    scenario: &Scenario,
    columns: &[Column],
    outcomes: &[Vec<SimulationOutcome>],
) -> Vec<Goal> {
    let mut goals = Vec::new();
    let (ours, others) = outcomes.split_first().expect("our column is the first");
    if scenario.goals.no_failed_runs {
        let unavoidable = unavoidable(scenario);
        let most = ours
            .iter()
            .map(SimulationOutcome::failed)
            .max()
            .unwrap_or_default();
        goals.push(Goal {
            what: format!(
                "{}: {most} failed runs, at most {unavoidable}",
                scenario.name
            ),
            met: most <= unavoidable,
        });
    }
    let factor = match scenario.goals.p99 {
        P99::Better => None,
        P99::Within(percent) => Some(1.0 + f64::from(percent) / 100.0),
        P99::Shown => return goals,
    };
    let mut what = format!("{}: p99 to catalog", scenario.name);
    let mut met = true;
    for seed in 0..ours.len() {
        let percentile = ours[seed].percentile(0.99);
        let rivals = columns[1..]
            .iter()
            .zip(others)
            .filter(|(column, _)| column.is_rival);
        let rivals =
            rivals.map(|(column, outcomes)| (column.name, outcomes[seed].percentile(0.99)));
        let Some((name, best)) = rivals.min_by(|(_, a), (_, b)| a.total_cmp(b)) else {
            continue;
        };
        met &= match factor {
            Some(factor) => percentile <= best * factor,
            None => percentile < best,
        };
        what += &format!(", {percentile:.2} s (best other {best:.2} s, {name})");
    }
    goals.push(Goal { what, met });
    goals
}

/// The number of runs that fail with every proxy, because their agents time out before a JRuby is free for them.
fn unavoidable(scenario: &Scenario) -> u64 {
    match (scenario.longest_wait(), scenario.event) {
        (Some(wait), crate::scenario::ScenarioEvent::Herd { agents, .. })
            if wait > READ_TIMEOUT =>
        {
            (f64::from(agents) * (wait - READ_TIMEOUT) / wait).ceil() as u64
        }
        _ => 0,
    }
}
