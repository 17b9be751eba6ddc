//! The measurements of a simulated estate.

/// Counts and times of the runs that began within the measured time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulationOutcome {
    /// Runs that began.
    pub runs: u64,
    /// Runs that succeeded.
    pub succeeded: u64,
    /// Runs that failed because an answer took longer than the agent waits.
    pub timed_out: u64,
    /// Runs that failed because of a refusal: 503 or 429.
    pub refused: u64,
    /// Runs that failed because a member died while it had a request that must not be sent again.
    pub broken: u64,
    /// Seconds from the beginning of each run to its catalog; infinite if the run failed before.
    pub to_catalog: Vec<f32>,
    /// Seconds from the beginning of each run to its end; infinite if the run failed.
    pub to_end: Vec<f32>,
    /// Maximum number of requests that waited at the same time, in the proxy and in the compilers.
    pub longest_queue: usize,
    /// Maximum number of requests that waited at the same time in one compiler.
    pub longest_inside: usize,
    /// Refusals that agents received, whether or not their runs failed.
    pub refusals: u64,
    /// Requests that agents sent in all runs.
    pub requests: u64,
    /// Seconds until the last measured run had ended.
    pub length: f64,
}

impl SimulationOutcome {
    /// Runs that failed.
    pub fn failed(&self) -> u64 {
        self.timed_out + self.refused + self.broken
    }

    /// The seconds within which this part of the runs, such as 0.99, received their catalogs.
    pub fn percentile(&self, part: f64) -> f64 {
        percentile(&self.to_catalog, part)
    }

    /// Combines several outcomes into one.
    pub fn merged(outcomes: &[Self]) -> Self {
        let mut all = Self::default();
        for outcome in outcomes {
            all.runs += outcome.runs;
            all.succeeded += outcome.succeeded;
            all.timed_out += outcome.timed_out;
            all.refused += outcome.refused;
            all.broken += outcome.broken;
            all.to_catalog.extend(&outcome.to_catalog);
            all.to_end.extend(&outcome.to_end);
            all.longest_queue = all.longest_queue.max(outcome.longest_queue);
            all.longest_inside = all.longest_inside.max(outcome.longest_inside);
            all.refusals += outcome.refusals;
            all.requests += outcome.requests;
            all.length = all.length.max(outcome.length);
        }
        all
    }
}

/// The smallest value that this part of the values, such as 0.99, does not exceed.
pub fn percentile(values: &[f32], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f32::total_cmp);
    let rank = (values.len() as f64 * part).ceil() as usize;
    let at = rank.saturating_sub(1).min(values.len().saturating_sub(1));
    values.get(at).copied().map_or(f64::NAN, f64::from)
}
