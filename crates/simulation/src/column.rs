//! The columns of the comparison.

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
}

/// What decides in a column.
#[derive(Clone, Debug)]
pub enum Kind {
    /// The code of this project.
    Ours(OurSettings),
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
                simulate(scenario, Ours::new(settings.clone(), &jrubies, seed), seed)
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
    let mut columns = vec![Column {
        name: OURS,
        kind: Kind::Ours(ours),
    }];
    for (name, text) in FILES {
        let kind = Kind::Haproxy(HaproxySettings::read(text)?);
        columns.push(Column { name, kind });
    }
    Ok(columns)
}

/// The name of our column.
pub const OURS: &str = "proscenium";

const FILES: [(&str, &str); 3] = [
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
];
