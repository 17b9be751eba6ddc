//! Scenarios: an estate of agents and compilers, and the events during its simulation.

use crate::{compiler::CompilerSettings, fleet::FleetSettings};

/// One scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The name on the command line.
    pub name: &'static str,
    /// A short description.
    pub what: &'static str,
    /// The agents.
    pub fleet: FleetSettings,
    /// The compilers.
    pub compilers: Vec<CompilerSettings>,
    /// The event that the scenario simulates in addition to the agents' runs.
    pub event: ScenarioEvent,
    /// Time from which new runs are measured, in seconds.
    pub from: f64,
    /// Time from which new runs are no longer measured, in seconds.
    pub until: f64,
    /// The part of the agents that each proxy serves; the parts add up to 1.
    pub proxies: Vec<f64>,
    /// Whether the proxy can read the number of JRubies from the compilers' status services.
    pub counts: bool,
    /// The goals for Proscenium's column.
    pub goals: Goals,
}

/// An event in addition to the agents' runs. Times are in seconds since the start of the simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScenarioEvent {
    /// No event.
    Nothing,
    /// Many agents run at the same time.
    Herd {
        /// When the first runs start.
        at: f64,
        /// Seconds over which the starts are spread.
        within: f64,
        /// Number of agents.
        agents: u32,
    },
    /// The first compiler is slower than the other ones.
    Slow {
        /// Factor by which it is slower.
        times: f64,
    },
    /// The first compiler is killed and returns cold.
    Death {
        /// When it is killed.
        at: f64,
    },
    /// The first proxy dies, and its agents use the next one.
    ProxyDeath {
        /// When it dies.
        at: f64,
    },
    /// The compilers are drained, restarted and made ready again, one after the other.
    RollingRestart {
        /// When the first compiler is drained.
        at: f64,
    },
    /// A code deployment empties all environment caches.
    Deploy {
        /// When the caches are emptied.
        at: f64,
    },
    /// One certname requests catalogs in a loop, over several streams at once.
    Loop {
        /// When the loop starts.
        at: f64,
        /// Number of concurrent streams.
        streams: u32,
    },
}

/// The goals for Proscenium's column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goals {
    /// No run may fail, provided that the queued work can be finished before the agents time out.
    pub no_failed_runs: bool,
    /// How the 99th percentile of the time to the catalog must compare with that of the best other column.
    pub p99: P99,
}

/// The goal for the 99th percentile of the time to the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum P99 {
    /// The percentile must be better than in every other column.
    Better,
    /// The percentile may exceed that of the best other column by at most this many percent.
    Within(u32),
    /// No goal; the value is only shown.
    Shown,
}

impl Goals {
    const NEARLY_BEST: Self = Self {
        no_failed_runs: true,
        p99: P99::Within(2),
    };
    const BETTER: Self = Self {
        no_failed_runs: false,
        p99: P99::Better,
    };
    const LOSSLESS: Self = Self {
        no_failed_runs: true,
        p99: P99::Better,
    };
    const RUNS_ALONE: Self = Self {
        no_failed_runs: true,
        p99: P99::Shown,
    };
}

/// How long an agent waits for a response, in seconds.
pub const READ_TIMEOUT: f64 = 600.0;
/// Seconds from SIGTERM until a compiler exits.
pub const STOP: f64 = 5.0;
/// Seconds from the start of a compiler until it accepts requests.
pub const START: f64 = 19.0;

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    let even = || vec![7; 40];
    let mut scenarios = vec![Scenario {
        goals: Goals::NEARLY_BEST,
        ..estate(
            "steady",
            "runs spread evenly",
            even(),
            ScenarioEvent::Nothing,
        )
    }];
    scenarios.extend(herds());
    scenarios.extend([
        estate(
            "slow",
            "one compiler is 5 times slower",
            even(),
            ScenarioEvent::Slow { times: 5.0 },
        ),
        estate(
            "death",
            "one compiler dies under load and returns cold",
            even(),
            ScenarioEvent::Death { at: 240.0 },
        ),
        Scenario {
            until: 1_800.0,
            goals: Goals::LOSSLESS,
            ..estate(
                "rolling-restart",
                "20 compilers are drained and restarted in turn",
                vec![14; 20],
                ScenarioEvent::RollingRestart { at: 180.0 },
            )
        },
        // The compilers have hardly any spare capacity. With more, every balancer finds a free JRuby, and all columns
        // look the same.
        estate(
            "unequal",
            "compilers with 3, 7 and 15 JRubies and hardly room to spare",
            [vec![3; 16], vec![7; 9], vec![15; 6]].concat(),
            ScenarioEvent::Nothing,
        ),
        estate(
            "deploy",
            "a deploy empties all environment caches",
            even(),
            ScenarioEvent::Deploy { at: 240.0 },
        ),
        estate(
            "loop",
            "one certname asks for 200 catalogs at once, again and again",
            even(),
            ScenarioEvent::Loop {
                at: 180.0,
                streams: 200,
            },
        ),
        // Each of the 20 compilers serves 500 agents, and almost every agent has its own environment.
        Scenario {
            fleet: FleetSettings {
                environments: 2_500,
                in_first_environment: 0.0,
                ..FleetSettings::new(10_000)
            },
            compilers: vec![
                CompilerSettings {
                    environments_max: 600,
                    ..CompilerSettings::new(4)
                };
                20
            ],
            from: 9_000.0,
            until: 10_800.0,
            goals: Goals::NEARLY_BEST,
            ..estate(
                "environments",
                "2,500 environments, of which a JRuby keeps 600",
                Vec::new(),
                ScenarioEvent::Nothing,
            )
        },
    ]);
    scenarios
}

/// Scenarios of agents that run at once.
fn herds() -> Vec<Scenario> {
    let herd = |within, agents| ScenarioEvent::Herd {
        at: 180.0,
        within,
        agents,
    };
    vec![
        Scenario {
            fleet: FleetSettings::new(1_800),
            goals: Goals::LOSSLESS,
            ..estate(
                "herd-900",
                "900 of 1,800 agents run at once, on 4 compilers",
                vec![4; 4],
                herd(5.0, 900),
            )
        },
        Scenario {
            goals: Goals::LOSSLESS,
            ..estate(
                "herd-10%",
                "a tenth of the fleet runs at once",
                vec![5; 60],
                herd(10.0, 10_000),
            )
        },
        Scenario {
            fleet: FleetSettings::new(4_400),
            goals: Goals::RUNS_ALONE,
            ..estate(
                "herd-overload",
                "4,000 of 4,400 agents run at once, more than 4 compilers can serve in 10 minutes",
                vec![4; 4],
                herd(5.0, 4_000),
            )
        },
        Scenario {
            fleet: FleetSettings::new(1_800),
            counts: false,
            goals: Goals::RUNS_ALONE,
            ..estate(
                "herd-uncounted",
                "as herd-900, but the proxy cannot read JRuby counts and has no `max`",
                vec![4; 4],
                herd(5.0, 900),
            )
        },
    ]
}

fn estate(
    name: &'static str,
    what: &'static str,
    jrubies: Vec<u32>,
    event: ScenarioEvent,
) -> Scenario {
    Scenario {
        name,
        what,
        fleet: FleetSettings::new(100_000),
        compilers: jrubies.into_iter().map(CompilerSettings::new).collect(),
        event,
        from: 120.0,
        until: 720.0,
        proxies: vec![1.0],
        counts: true,
        goals: Goals::BETTER,
    }
}

/// Scenarios of several proxies in front of 4 compilers.
pub fn several_proxies() -> Vec<Scenario> {
    let estate = |name, what, agents, proxies, event, p99| Scenario {
        name,
        what,
        fleet: FleetSettings::new(agents),
        compilers: vec![CompilerSettings::new(4); 4],
        event,
        from: 120.0,
        until: 1_320.0,
        proxies,
        counts: true,
        goals: Goals {
            no_failed_runs: false,
            p99,
        },
    };
    let (at_60, at_85) = (5_000, 7_100);
    let (halves, nothing) = (vec![0.5, 0.5], ScenarioEvent::Nothing);
    let herd = ScenarioEvent::Herd {
        at: 180.0,
        within: 5.0,
        agents: 300,
    };
    vec![
        estate(
            "proxies-equal",
            "two proxies serve half of the agents each",
            at_85,
            halves.clone(),
            nothing,
            P99::Shown,
        ),
        estate(
            "proxies-vrrp",
            "one of two proxies serves all agents",
            at_85,
            vec![1.0, 0.0],
            nothing,
            P99::Better,
        ),
        estate(
            "proxies-80-20",
            "one of two proxies serves 80 % of the agents",
            at_85,
            vec![0.8, 0.2],
            nothing,
            P99::Better,
        ),
        estate(
            "proxies-herd",
            "300 agents run at once, by two proxies",
            at_60,
            halves.clone(),
            herd,
            P99::Shown,
        ),
        estate(
            DEATH,
            "one of two proxies dies",
            at_60,
            halves,
            ScenarioEvent::ProxyDeath { at: 240.0 },
            P99::Better,
        ),
        estate(
            "proxies-10",
            "ten proxies serve a tenth of the agents each",
            at_85,
            vec![0.1; 10],
            nothing,
            P99::Shown,
        ),
    ]
}

/// The scenario in which a proxy dies.
pub const DEATH: &str = "proxies-death";

/// A small version of a scenario for tests: two compilers with two JRubies each.
pub fn small(scenario: &Scenario) -> Scenario {
    let compilers = vec![CompilerSettings::new(2); 2];
    let part = 4.0 / f64::from(scenario.jrubies());
    let agents = |agents: u32| (f64::from(agents) * part * 0.9) as u32;
    let event = match scenario.event {
        ScenarioEvent::Herd {
            at,
            within,
            agents: herd,
        } => ScenarioEvent::Herd {
            at,
            within,
            agents: agents(herd),
        },
        ScenarioEvent::Loop { at, .. } => ScenarioEvent::Loop { at, streams: 10 },
        other => other,
    };
    Scenario {
        fleet: FleetSettings {
            agents: agents(scenario.fleet.agents),
            ..scenario.fleet.clone()
        },
        compilers,
        event,
        until: scenario.from + 240.0,
        ..scenario.clone()
    }
}

impl Scenario {
    /// Number of JRubies of all compilers.
    pub fn jrubies(&self) -> u32 {
        self.compilers.iter().map(|compiler| compiler.jrubies).sum()
    }

    /// The share of the JRubies that is busy on average.
    pub fn load(&self) -> f64 {
        self.work_of(self.fleet.agents) / self.fleet.interval / f64::from(self.jrubies())
    }

    /// Seconds that the last queued request waits if all JRubies are used. `None` if the event itself does not build up a
    /// queue.
    pub fn longest_wait(&self) -> Option<f64> {
        let jrubies = f64::from(self.jrubies());
        match self.event {
            ScenarioEvent::Herd { agents, .. } => {
                let others = self.work_of(self.fleet.agents - agents) / self.fleet.interval;
                Some(self.work_of(agents) / (jrubies - others).max(f64::MIN_POSITIVE))
            }
            ScenarioEvent::RollingRestart { .. } => {
                let largest = self.compilers.iter().map(|compiler| compiler.jrubies).max();
                let left = jrubies - f64::from(largest.unwrap_or_default());
                let fits = self.load() * jrubies < left;
                Some(if fits { 0.0 } else { f64::INFINITY })
            }
            _ => None,
        }
    }

    /// JRuby seconds that one run of each of this many agents takes.
    fn work_of(&self, agents: u32) -> f64 {
        let sample = agents.min(2_000);
        let of_sample: f64 = (0..sample)
            .map(|number| {
                let agent = self.fleet.agent(0, number);
                let files = f64::from(agent.steps().saturating_sub(6)) * 0.006;
                f64::from(agent.catalog) + 0.05 + 3.0 * 0.015 + 0.1 + files
            })
            .sum();
        of_sample / f64::from(sample.max(1)) * f64::from(agents)
    }
}
