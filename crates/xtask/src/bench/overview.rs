//! `cargo xtask bench table`: the documented costs, row by row, with the figures of another proxy and whether each
//! bound is met.

use std::{collections::HashMap, fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use tempfile::TempDir;

use super::{
    cores::Cores,
    members::Members,
    peers::Peer,
    pki::Pki,
    promises::{Certificates, ComparedValue, ROWS, Row, Setting},
    table::median,
};
use crate::workspace;

/// The rows to measure, the number of rounds, and the output file.
#[derive(Args)]
pub(crate) struct Options {
    /// Rows whose names contain this
    #[arg(long)]
    only: Option<String>,
    /// Interleaved rounds of the rows that are times
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Hold it to what the build by a profile has to reach (`cargo xtask pgo`; PROSCENIUM names the program)
    #[arg(long)]
    pgo: bool,
    /// Write the table to this file as well
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Measures the rows and prints the table.
pub(super) fn run(options: &Options) -> Result<()> {
    if cfg!(debug_assertions) {
        return workspace::run_optimised();
    }
    let bench = Bench::prepare()?;
    let mut table = String::from(
        "| row | what | ours (range) | peer | its figure (range) | ours : peer | must | aim | |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let wanted = |row: &&Row| {
        options
            .only
            .as_ref()
            .is_none_or(|only| row.name.contains(only))
    };
    let mut rows = ROWS.iter().filter(wanted).peekable();
    ensure!(rows.peek().is_some(), "no row has such a name");
    for row in rows {
        let missing = row
            .needs
            .filter(|(program, _)| !workspace::is_installed(program));
        if let Some((program, package)) = missing {
            println!(
                "{} is skipped: {program} is not installed (Debian: {package})",
                row.name
            );
            continue;
        }
        let costs = bench.measure(row, options.rounds)?;
        let line = row.line(&costs, options.pgo);
        print!("{line}");
        table += &line;
    }
    println!("\n{table}");
    match &options.out {
        Some(path) => fs::write(path, table).with_context(|| path.display().to_string()),
        None => Ok(()),
    }
}

/// What all rows share.
struct Bench {
    folder: TempDir,
    members: Members,
    cores: Cores,
    pkis: HashMap<Certificates, Pki>,
}

impl Bench {
    fn prepare() -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder to work in")?;
        let mut bench = Self {
            members: Members::start()?,
            cores: Cores::here()?,
            pkis: HashMap::new(),
            folder,
        };
        for certificates in [
            Certificates::Quick,
            Certificates::Puppet,
            Certificates::PuppetEc,
        ] {
            let folder = bench.folder_of(certificates);
            fs::create_dir(&folder)?;
            let pki = match certificates {
                Certificates::Quick => Pki::make(&folder),
                Certificates::Puppet => Pki::of_puppet(&folder, "server", "puppet"),
                Certificates::PuppetEc => Pki::of_puppet(&folder, "ec256", "ec256.lab.test"),
            };
            bench.pkis.insert(certificates, pki?);
        }
        Ok(bench)
    }

    fn folder_of(&self, certificates: Certificates) -> PathBuf {
        self.folder.path().join(format!("{certificates:?}"))
    }

    /// The figures of Proscenium and of the other proxy, in interleaved rounds.
    fn measure(&self, row: &Row, rounds: usize) -> Result<Vec<Vec<f64>>> {
        let folder = self.folder_of(row.certificates);
        let peers = Peer::pair(&folder, &self.members, &row.shape, row.rival)?;
        let setting = Setting {
            folder: self.folder.path().to_owned(),
            pki: &self.pkis[&row.certificates],
            cores: &self.cores,
        };
        let mut costs = vec![Vec::new(); peers.len()];
        let rounds = if row.varies { rounds } else { 1 };
        for round in 1..=rounds {
            eprintln!("{}: round {round} of {rounds}", row.name);
            for (peer, costs) in peers.iter().zip(&mut costs) {
                costs.push((row.measure)(&setting, peer)?);
            }
        }
        Ok(costs)
    }
}

impl Row {
    fn line(&self, costs: &[Vec<f64>], pgo: bool) -> String {
        let ours = median(&costs[0]);
        let theirs = costs.get(1);
        let ratio = theirs.map(|theirs| ours / median(theirs));
        let must = if pgo { self.must.pgo } else { self.must.plain };
        let compared = match self.compared {
            ComparedValue::Figure => Some(ours),
            ComparedValue::Ratio => ratio,
        };
        let mark = match compared {
            Some(figure) if figure <= self.aim => "aim met",
            Some(figure) if figure <= must => "met",
            Some(_) => "missed",
            None => "not compared",
        };
        let theirs = theirs.map_or_else(|| "-".to_owned(), |costs| range(costs));
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        format!(
            "| {} | {} | {} | {} | {theirs} | {ratio} | {must} | {} | {mark} |\n",
            self.name,
            self.unit,
            range(&costs[0]),
            self.rival.name(),
            self.aim
        )
    }
}

/// The median, with the minimum and maximum if there are several values.
fn range(costs: &[f64]) -> String {
    let middle = median(costs);
    let decimals = if middle < 1_000.0 { 2 } else { 0 };
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = costs.iter().copied().fold(0.0, f64::max);
    match costs.len() {
        1 => format!("{middle:.decimals$}"),
        _ => format!("{middle:.decimals$} ({least:.decimals$}–{most:.decimals$})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_marked_by_its_ratio_or_its_figure() {
        let row = |name| ROWS.iter().find(|row| row.name == name).expect("a row");
        for (name, costs, pgo, mark) in [
            ("w1", [80.0, 100.0], false, "| met |"),
            ("w1", [85.0, 100.0], true, "| missed |"),
            ("w1", [70.0, 100.0], true, "| aim met |"),
            ("w4", [27.5, 33.0], false, "| missed |"),
            ("w4", [27.0, 33.0], false, "| met |"),
        ] {
            let line = row(name).line(&costs.map(|cost| vec![cost]), pgo);
            assert!(line.ends_with(&format!("{mark}\n")), "{line}");
        }
        let alone = row("w1").line(&[vec![1.0, 3.0, 2.0]], false);
        assert!(
            alone.contains("| 2.00 (1.00–3.00) | nginx | - | - |"),
            "{alone}"
        );
        assert!(alone.contains("not compared"), "{alone}");
    }
}
