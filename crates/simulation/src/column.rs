//! The columns of the comparison.

use balancing::settings::Algorithm;

use crate::{
    haproxy::{Haproxy, HaproxyConfigError, HaproxySettings},
    outcome::SimulationOutcome,
    proscenium::{Proscenium, ProsceniumSettings},
    scenario::Scenario,
    world::simulate,
};

/// A column: a balancer with its settings.
#[derive(Clone, Debug)]
pub struct Column {
    /// What the table calls it.
    pub name: &'static str,
    /// What decides.
    pub kind: ColumnKind,
    /// Whether Proscenium is compared with it. Other columns are only shown.
    pub is_rival: bool,
}

/// What decides in a column.
#[derive(Clone, Debug)]
pub enum ColumnKind {
    /// The code of this project.
    Proscenium(Box<ProsceniumSettings>),
    /// HAProxy's, with the settings of a file.
    Haproxy(HaproxySettings),
}

impl Column {
    /// Runs a scenario.
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
                simulate(scenario, Proscenium::new(settings, &jrubies, seed), seed)
            }
            ColumnKind::Haproxy(settings) => simulate(
                scenario,
                Haproxy::new(settings.clone(), &jrubies, seed),
                seed,
            ),
        }
    }
}

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
