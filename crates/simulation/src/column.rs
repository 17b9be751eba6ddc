//! The columns of the comparison.

use balancing::settings::Algorithm;

use crate::{
    balancer::Balancer,
    haproxy::{Haproxy, HaproxyConfigError, HaproxySettings},
    outcome::SimulationOutcome,
    proscenium::{Proscenium, ProsceniumSettings},
    scenario::Scenario,
    several::SeveralProxies,
    world::simulate,
};

/// A column: a balancer with its settings.
#[derive(Clone, Debug)]
pub struct Column {
    /// The name in the table.
    pub name: &'static str,
    /// The kind of balancer.
    pub kind: ColumnKind,
    /// Whether Proscenium is compared with this column. Other columns are only shown.
    pub is_rival: bool,
}

/// The kind of balancer in a column.
#[derive(Clone, Debug)]
pub enum ColumnKind {
    /// The code of this project.
    Proscenium(Box<ProsceniumSettings>),
    /// The algorithms of HAProxy, with the settings of a file.
    Haproxy(HaproxySettings),
}

impl Column {
    /// Runs a scenario, with a balancer for each of its proxies.
    pub fn run(&self, scenario: &Scenario, seed: u64) -> SimulationOutcome {
        let jrubies: Vec<_> = scenario
            .compilers
            .iter()
            .map(|compiler| compiler.jrubies)
            .collect();
        match &self.kind {
            ColumnKind::Proscenium(settings) => {
                let settings = ProsceniumSettings {
                    counts: settings.counts && scenario.counts,
                    ..(**settings).clone()
                };
                run(scenario, seed, |seed| {
                    Proscenium::new(settings.clone(), &jrubies, seed)
                })
            }
            ColumnKind::Haproxy(settings) => run(scenario, seed, |seed| {
                Haproxy::new(settings.clone(), &jrubies, seed)
            }),
        }
    }
}

fn run<B: Balancer>(scenario: &Scenario, seed: u64, proxy: impl Fn(u64) -> B) -> SimulationOutcome {
    match &scenario.proxies[..] {
        [_] => simulate(scenario, proxy(seed), seed),
        shares => {
            let of_proxy = |index: usize| proxy(seed ^ (index as u64) << 32);
            simulate(scenario, SeveralProxies::new(shares, seed, of_proxy), seed)
        }
    }
}

/// The columns of a scenario with several proxies: one in which each proxy has the full JRuby limits, one in which each
/// has a part of them, and one in which all use another algorithm.
pub fn of_several_proxies(ours: &ProsceniumSettings, proxies: usize) -> Vec<Column> {
    let column = |name, is_rival, settings| Column {
        name,
        kind: ColumnKind::Proscenium(Box::new(settings)),
        is_rival,
    };
    let divided = ProsceniumSettings {
        jruby_load_max: ours.jruby_load_max / (proxies as u32).max(1),
        ..ours.clone()
    };
    let random = ProsceniumSettings {
        algorithm: Algorithm::Random,
        ..ours.clone()
    };
    vec![
        column(FULL, false, ours.clone()),
        column(DIVIDED, true, divided),
        column("random", false, random),
    ]
}

/// The name of the column in which each proxy sends a compiler as many requests as it has JRubies.
pub const FULL: &str = "full limits";
/// The name of the column in which the proxies divide the JRubies by `jruby_load_max`.
pub const DIVIDED: &str = "divided";

/// All columns, Proscenium's first.
///
/// # Errors
/// One of the files has an invalid setting.
pub fn all(ours: ProsceniumSettings) -> Result<Vec<Column>, HaproxyConfigError> {
    let by_certname = ProsceniumSettings {
        algorithm: Algorithm::CertnameHash,
        ..ours.clone()
    };
    let ours = Column {
        name: OURS,
        kind: ColumnKind::Proscenium(Box::new(ours)),
        is_rival: false,
    };
    let mut columns = vec![ours];
    for (name, text) in FILES {
        let settings = HaproxySettings::read(text)?;
        columns.push(Column {
            name,
            is_rival: !settings.files_first,
            kind: ColumnKind::Haproxy(settings),
        });
    }
    columns.push(Column {
        name: "certname-hash",
        kind: ColumnKind::Proscenium(Box::new(by_certname)),
        is_rival: false,
    });
    Ok(columns)
}

/// The name of Proscenium's column.
pub const OURS: &str = "proscenium";

const FILES: [(&str, &str); 4] = [
    (
        "round-robin",
        include_str!("../../../bench/simulate/round-robin.cfg"),
    ),
    (
        "least-connections",
        include_str!("../../../bench/simulate/least-connections.cfg"),
    ),
    (
        "random-two",
        include_str!("../../../bench/simulate/random-two.cfg"),
    ),
    (
        "files-first",
        include_str!("../../../bench/simulate/files-first.cfg"),
    ),
];
