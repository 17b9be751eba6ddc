//! The whole comparison: every scenario with every column and seed, and the table of the results.

use std::{
    fmt::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    column::Column,
    goals::{Goal, evaluate},
    outcome::{SimulationOutcome, percentile},
    scenario::{READ_TIMEOUT, Scenario},
};

/// The table and the goals.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonReport {
    /// The table as text.
    pub table: String,
    /// Every goal.
    pub goals: Vec<Goal>,
}

/// Runs the whole comparison on this number of threads. The result does not depend on the number.
pub fn compare(
    scenarios: &[Scenario],
    columns: &[Column],
    seeds: &[u64],
    threads: usize,
) -> ComparisonReport {
    let cells = scenarios.len() * columns.len() * seeds.len();
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<SimulationOutcome>>> =
        (0..cells).map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let cell = next.fetch_add(1, Ordering::Relaxed);
            let Some(result) = results.get(cell) else {
                return;
            };
            let (rest, seed) = (cell / seeds.len(), seeds[cell % seeds.len()]);
            let (scenario, column) = (rest / columns.len(), rest % columns.len());
            let outcome = columns[column].run(&scenarios[scenario], seed);
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        }
    };
    thread::scope(|scope| {
        (0..threads.max(1)).for_each(|_| _ = scope.spawn(work));
    });
    let mut outcomes = results.into_iter().map(|result| {
        let outcome = result.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.expect("every cell was run")
    });
    let names: Vec<_> = columns.iter().map(|column| column.name).collect();
    let mut report = ComparisonReport {
        table: String::new(),
        goals: Vec::new(),
    };
    for scenario in scenarios {
        let by_column: Vec<Vec<SimulationOutcome>> = columns
            .iter()
            .map(|_| outcomes.by_ref().take(seeds.len()).collect())
            .collect();
        describe(scenario, &names, &by_column, &mut report.table);
        report.goals.extend(evaluate(scenario, columns, &by_column));
    }
    report
}

fn describe(
    scenario: &Scenario,
    names: &[&str],
    outcomes: &[Vec<SimulationOutcome>],
    table: &mut String,
) {
    // Writing to a string does not fail.
    let _ = writeln!(
        table,
        "{}: {}; {} agents, {} compilers with {} JRubies, load {:.0} %",
        scenario.name,
        scenario.what,
        scenario.fleet.agents,
        scenario.compilers.len(),
        scenario.jrubies(),
        100.0 * scenario.load(),
    );
    if let Some(wait) = scenario.longest_wait() {
        let _ = writeln!(
            table,
            "  bound: at full capacity the last waits {wait:.0} s of the agent's {READ_TIMEOUT:.0} s"
        );
    }
    let several = scenario.proxies.len() > 1;
    let _ = writeln!(
        table,
        "  {:<20} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>8} {:>9}{}",
        "",
        "runs",
        "failed",
        "late",
        "refused",
        "broken",
        "p50 s",
        "p99 s",
        "end p99",
        "queue",
        "refusals",
        if several { "    inside" } else { "" },
    );
    for (name, outcomes) in names.iter().zip(outcomes) {
        let all = SimulationOutcome::merged(outcomes);
        let inside = if several {
            format!(" {:>9}", all.longest_inside)
        } else {
            String::new()
        };
        let _ = writeln!(
            table,
            "  {name:<20} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9.2} {:>9.2} {:>9.2} {:>8} {:>9}{inside}",
            all.runs,
            all.failed(),
            all.timed_out,
            all.refused,
            all.broken,
            all.percentile(0.5),
            all.percentile(0.99),
            percentile(&all.to_end, 0.99),
            all.longest_queue,
            all.refusals,
        );
    }
    table.push('\n');
}
