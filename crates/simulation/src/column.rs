//! The columns of the comparison.

use balancing::settings::Algorithm;

use crate::{
    haproxy::{Haproxy, HaproxySettings, ReadError},
    ours::{OurSettings, Ours},
    outcome::Outcome,
    scenario::Scenario,
    world::simulate,
};

/// A column: a balancer with its settings.
#[derive(Clone, Debug)]
pub struct Column {
    /// What the table calls it.
    pub name: &'static str,
    /// What decides.
    pub kind: Kind,
    /// Whether our column is held against it; others are shown beside.
    pub is_rival: bool,
}

/// What decides in a column.
#[derive(Clone, Debug)]
pub enum Kind {
    /// The code of this project.
    Ours(Box<OurSettings>),
    /// HAProxy's, with the settings of a file.
    Haproxy(HaproxySettings),
}

impl Column {
    /// Runs a scenario.
    pub fn run(&self, scenario: &Scenario, seed: u64) -> Outcome {
        let jrubies: Vec<_> = scenario
            .compilers
            .iter()
            .map(|compiler| compiler.jrubies)
            .collect();
        match &self.kind {
            Kind::Ours(settings) => {
                let settings = OurSettings {
                    counts: settings.counts && scenario.counts,
                    ..(**settings).clone()
                };
                simulate(scenario, Ours::new(settings, &jrubies, seed), seed)
            }
            Kind::Haproxy(settings) => simulate(
                scenario,
                Haproxy::new(settings.clone(), &jrubies, seed),
                seed,
            ),
        }
    }
}

/// All columns, ours first.
///
/// # Errors
/// Says what is wrong with one of the files.
pub fn all(ours: OurSettings) -> Result<Vec<Column>, ReadError> {
    let by_certname = OurSettings {
        algorithm: Algorithm::CertnameHash,
        ..ours.clone()
    };
    let ours = Column {
        name: OURS,
        kind: Kind::Ours(Box::new(ours)),
        is_rival: false,
    };
    let mut columns = vec![ours];
    for (name, text) in FILES {
        let settings = HaproxySettings::read(text)?;
        columns.push(Column {
            name,
            is_rival: !settings.files_first,
            kind: Kind::Haproxy(settings),
        });
    }
    columns.push(Column {
        name: "certname-hash",
        kind: Kind::Ours(Box::new(by_certname)),
        is_rival: false,
    });
    Ok(columns)
}

/// The name of our column.
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
