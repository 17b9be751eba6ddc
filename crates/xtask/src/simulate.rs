//! `cargo xtask simulate`: the balancing of a large estate, compared with other balancing methods.

use anyhow::Result;
use clap::Args;

use crate::workspace;

/// Scenarios and seeds.
#[derive(Args)]
pub(crate) struct Options {
    /// Seeds; each goal must be reached for every one of them
    #[arg(long, value_delimiter = ',', default_value = "1,2,3")]
    seeds: Vec<u64>,
    /// Scenarios, such as steady,herd-900; all if not given
    #[arg(long, value_delimiter = ',')]
    scenarios: Vec<String>,
}

/// Builds and runs the simulation with optimization, because a debug build is ten times slower.
pub(crate) fn run(options: &Options) -> Result<()> {
    let seeds: Vec<_> = options.seeds.iter().map(u64::to_string).collect();
    let (seeds, scenarios) = (seeds.join(","), options.scenarios.join(","));
    let arguments = [
        "run",
        "--quiet",
        "--release",
        "--package",
        "simulation",
        "--",
    ];
    workspace::run(
        workspace::cargo()
            .args(arguments)
            .args([&seeds, &scenarios]),
    )
}

#[cfg(test)]
mod tests {
    use simulation::proscenium::ProsceniumSettings;

    #[test]
    fn the_simulation_uses_the_defaults_of_the_program() {
        let (ours, upstream) = (
            ProsceniumSettings::default(),
            upstream::settings::UpstreamSettings::default(),
        );
        assert_eq!(ours.connections_max, upstream.connections_max);
        assert_eq!(ours.queue_max, upstream.queue_max);
        assert_eq!(ours.queue_wait_max, upstream.queue_wait_max);
        assert_eq!(ours.retry_after_max, upstream.retry_after_max);
        assert_eq!(ours.agent_max, upstream.agent_max);
        assert_eq!(ours.agent_queue_max, upstream.agent_queue_max);
        assert_eq!(
            ours.attempts_max,
            proxy::settings::ProxySettings::default().attempts_max
        );
    }
}
