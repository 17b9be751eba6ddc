//! Agents: the requests that each sends, how long a JRuby needs for them, and how the agent reacts to a 503.

use balancing::Work;

use crate::random::Random;

/// Settings of a fleet. The defaults come from published installations.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSettings {
    /// Number of agents.
    pub agents: u32,
    /// Seconds from the start of an agent's run to the start of its next run.
    pub interval: f64,
    /// Median compile time of a catalog in seconds. The distribution is log-normal, limited to `catalog_min` and
    /// `catalog_max`.
    pub catalog_median: f64,
    /// The sigma of that distribution.
    pub catalog_sigma: f64,
    /// Minimum compile time in seconds.
    pub catalog_min: f64,
    /// Maximum compile time in seconds.
    pub catalog_max: f64,
    /// Share of agents whose code uses recursive file sources. They send 128 requests per run instead of 6.
    pub with_files: f64,
    /// Share of agents that honour `Retry-After`: versions 5.3.1 to 6.13, 7.26 and later, 8.2 and later.
    pub honour_retry_after: f64,
    /// Number of environments.
    pub environments: u16,
    /// Share of agents assigned to the first environment. All other agents are spread evenly over all environments.
    pub in_first_environment: f64,
    /// The requests of a run.
    pub requests: Requests,
}

/// The requests of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requests {
    /// The requests of a Puppet agent.
    Puppet,
    /// One catalog whose compile time is exponentially distributed with this mean. Used to compare the simulation with
    /// queueing theory.
    Exponential(f64),
    /// One catalog with this compile time, for the same comparison.
    Fixed(f64),
}

impl FleetSettings {
    /// A fleet of this many agents with the default interval.
    pub fn new(agents: u32) -> Self {
        Self {
            agents,
            interval: 1800.0,
            catalog_median: 2.4,
            catalog_sigma: 0.75,
            catalog_min: 1.0,
            catalog_max: 90.0,
            with_files: 0.03,
            honour_retry_after: 0.4,
            environments: 4,
            in_first_environment: 0.5,
            requests: Requests::Puppet,
        }
    }

    /// The agent with this number.
    pub fn agent(&self, seed: u64, number: u32) -> SimulatedAgent {
        let mut random = Random::keyed(&[seed, AGENT, number.into()]);
        let catalog = random.log_normal(self.catalog_median, self.catalog_sigma);
        let environment = if random.chance(self.in_first_environment) {
            0
        } else {
            (random.bits() % u64::from(self.environments.max(1))) as u16
        };
        SimulatedAgent {
            catalog: catalog.clamp(self.catalog_min, self.catalog_max) as f32,
            environment,
            files: random.chance(self.with_files),
            honours_retry_after: random.chance(self.honour_retry_after),
            phase: (random.unit() * self.interval) as f32,
            requests: self.requests,
        }
    }
}

/// One agent.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedAgent {
    /// Compile time of the agent's catalog in seconds.
    pub catalog: f32,
    /// The agent's environment.
    pub environment: u16,
    /// Whether the agent requests many files.
    pub files: bool,
    /// Whether the agent retries after a 503 with `Retry-After`. If not, its run fails.
    pub honours_retry_after: bool,
    /// When the agent's run starts within the interval, in seconds.
    pub phase: f32,
    /// The requests of the agent's runs.
    pub requests: Requests,
}

/// One request of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunRequest {
    /// Kind of work, as a proxy derives it from the path.
    pub work: Work,
    /// Whether the request is a GET for an endpoint at which a retry is safe.
    pub safe: bool,
    /// Seconds that a warm JRuby needs.
    pub jruby: f64,
    /// Seconds that the agent works before it sends the request.
    pub before: f64,
}

impl SimulatedAgent {
    /// Number of requests in a run: one for the node, three for file_metadatas, the catalog, files, and the report.
    pub fn steps(&self) -> u16 {
        match (self.requests, self.files) {
            (Requests::Puppet, true) => 128,
            (Requests::Puppet, false) => 6,
            (Requests::Exponential(_) | Requests::Fixed(_), _) => 1,
        }
    }

    /// A request of a run. It depends only on `key`, so all compared balancers get the same requests.
    pub fn step(&self, step: u16, key: &[u64]) -> RunRequest {
        let mut random = Random::keyed(key);
        let get = |work, jruby, before| RunRequest {
            work,
            safe: true,
            jruby,
            before,
        };
        let catalog = |jruby| RunRequest {
            work: Work::Catalog,
            safe: false,
            jruby,
            before: 0.0,
        };
        match self.requests {
            Requests::Puppet => {}
            Requests::Exponential(mean) => return catalog(random.exponential(mean)),
            Requests::Fixed(length) => return catalog(length),
        }
        match step {
            0 => get(Work::Other, random.exponential(0.05), 0.0),
            1..=3 => get(
                Work::File,
                random.exponential(0.015),
                random.between(0.05, 0.3),
            ),
            CATALOG => RunRequest {
                before: random.between(1.0, 4.0),
                ..catalog(f64::from(self.catalog) * random.between(0.9, 1.1))
            },
            last if last + 1 == self.steps() => RunRequest {
                work: Work::Report,
                safe: false,
                jruby: random.exponential(0.1),
                before: random.between(2.0, 14.0),
            },
            _ => get(
                Work::File,
                random.exponential(0.006),
                random.between(0.02, 0.1),
            ),
        }
    }
}

/// The step that requests the catalog.
pub const CATALOG: u16 = 4;
const AGENT: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_consist_of_the_requests_recorded_from_real_agents() {
        let agent = SimulatedAgent {
            catalog: 3.0,
            environment: 0,
            files: false,
            honours_retry_after: true,
            phase: 0.0,
            requests: Requests::Puppet,
        };
        let kinds = |agent: &SimulatedAgent| {
            let works = (0..agent.steps()).map(|step| agent.step(step, &[1, step.into()]).work);
            Work::ALL.map(|kind| works.clone().filter(|work| *work == kind).count())
        };
        assert_eq!(kinds(&agent), [1, 3, 1, 1]);
        assert_eq!(
            kinds(&SimulatedAgent {
                files: true,
                ..agent
            }),
            [1, 125, 1, 1]
        );
    }

    #[test]
    fn catalogs_take_1_to_90_seconds() {
        let fleet = FleetSettings::new(20_000);
        let catalogs = (0..fleet.agents).map(|number| fleet.agent(1, number).catalog);
        let (least, most) = catalogs
            .clone()
            .fold((f32::MAX, 0.0f32), |(least, most), catalog| {
                (least.min(catalog), most.max(catalog))
            });
        assert!(
            least >= 1.0 && most <= 90.0 && most > 20.0,
            "{least} to {most}"
        );
        let mean = catalogs.sum::<f32>() / fleet.agents as f32;
        assert!((3.0..3.6).contains(&mean), "{mean}");
    }
}
