//! `cargo xtask bench table`: the documented costs, row by row, with the figures of other proxies and whether each bound
//! is met.

use std::{cell::RefCell, collections::HashMap, fs, iter, path::PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use tempfile::TempDir;

use super::{
    comparison::{self, Costs, SPREAD_MAX},
    cores::Cores,
    counts::Footprint,
    members::Members,
    overload,
    peers::Peer,
    pki::Pki,
    programs::Program,
    promises::{Bound, Certificates, ComparedValue, MORE_THAN_A_SIGNATURE, ROWS, Row, Setting},
    signature,
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
    /// Compare also with the programs in this folder, which `cargo xtask bench peers` fills: one root directory for each release
    #[arg(long)]
    peers: Option<PathBuf>,
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
    let programs = Program::all(options.peers.as_deref())?;
    let bench = Bench::prepare(programs)?;
    let mut table = String::from(
        "| row | what | ours (range) | peers, the best first: figure (range) | ours : best | must | aim | |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
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
        let signature = if row.aims_at_signature {
            Some(signature::cost(&bench.folder_of(row.certificates))?)
        } else {
            None
        };
        let line = row.line(&costs[0], &costs[1..], options.pgo, signature);
        print!("{line}");
        table += &line;
    }
    println!("\n{table}");
    match &options.out {
        Some(path) => fs::write(path, table).with_context(|| path.display().to_string()),
        None => Ok(()),
    }
}

/// The data that all rows share.
struct Bench {
    folder: TempDir,
    members: Members,
    cores: Cores,
    pkis: HashMap<Certificates, Pki>,
    programs: Vec<Program>,
    footprints: RefCell<HashMap<String, Footprint>>,
}

impl Bench {
    fn prepare(programs: Vec<Program>) -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder to work in")?;
        let mut bench = Self {
            members: Members::start()?,
            cores: Cores::here()?,
            pkis: HashMap::new(),
            programs,
            footprints: RefCell::default(),
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

    /// The costs of Proscenium and of its peers, in interleaved rounds. A peer that cannot do the work of a row is left out.
    fn measure(&self, row: &Row, rounds: usize) -> Result<Vec<Costs>> {
        let folder = self.folder_of(row.certificates);
        let programs = self.programs.iter();
        let programs: Vec<_> = programs
            .filter(|program| row.rivals.contains(&program.rival))
            .collect();
        let peers = Peer::compared(&folder, &self.members, &row.shape, &programs)?;
        let setting = Setting {
            folder: self.folder.path().to_owned(),
            pki: &self.pkis[&row.certificates],
            cores: &self.cores,
            footprints: &self.footprints,
        };
        let rounds = if row.varies { rounds } else { 1 };
        let mut all: Vec<_> = peers.into_iter().map(|peer| (peer, Vec::new())).collect();
        for round in 1..=rounds {
            let mut measured = Vec::with_capacity(all.len());
            for (peer, mut costs) in all {
                match (row.measure)(&setting, &peer) {
                    Ok(cost) => {
                        let (row, name, figure) = (row.name, peer.name(), cost.figure);
                        eprintln!("{row}: round {round} of {rounds}: {name} {figure:.2}");
                        costs.push(cost);
                        measured.push((peer, costs));
                    }
                    // Proscenium is measured first. Without its cost there is no row.
                    Err(error) if measured.is_empty() => return Err(error),
                    Err(error) => {
                        eprintln!("{}: {} is left out: {error:#}", row.name, peer.name());
                    }
                }
            }
            all = measured;
        }
        let costs = all.into_iter().map(|(peer, rounds)| Costs {
            name: peer.name().to_owned(),
            rounds,
        });
        Ok(costs.collect())
    }
}

impl Row {
    /// The line of the table. A row whose aim is a signature needs the signature's cost.
    fn line(&self, ours: &Costs, peers: &[Costs], pgo: bool, signature: Option<f64>) -> String {
        let best = comparison::best(peers);
        let ratio = best.map(|best| ours.median() / best.median());
        let of_build = |bound: &Bound| if pgo { bound.pgo } else { bound.plain };
        let must = of_build(&self.must);
        let aim = match (signature, best) {
            (Some(cost), Some(best)) => cost * (1.0 + MORE_THAN_A_SIGNATURE) / best.median(),
            _ => of_build(&self.aim),
        };
        let compared = match self.compared {
            ComparedValue::Figure => Some(ours.median()),
            ComparedValue::Ratio => ratio,
        };
        let (in_full, remark) = match best.and_then(|best| overload::remark(ours, best)) {
            Some((in_full, remark)) => (in_full, Some(remark)),
            None => (true, None),
        };
        let mark = match compared {
            Some(_) if !in_full => "missed",
            Some(figure) if figure <= aim => "aim met",
            Some(figure) if figure <= must => "met",
            Some(_) => "missed",
            None => "not compared",
        };
        let doubt =
            best.filter(|best| self.compared == ComparedValue::Ratio && best.spread() > SPREAD_MAX);
        let doubt = doubt.map(|best| {
            format!(
                "the spread of {} is {:.0} %: instructions and cache misses decide",
                best.name,
                100.0 * best.spread()
            )
        });
        let result: Vec<_> = iter::once(mark.to_owned())
            .chain(remark)
            .chain(doubt)
            .collect();
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        format!(
            "| {} | {} | {} | {} | {ratio} | {must} | {} | {} |\n",
            self.name,
            self.unit,
            ours.range(),
            list(peers),
            // Rounded, because a division yields too many digits.
            (1_000.0 * aim).round() / 1_000.0,
            result.join("; ")
        )
    }
}

/// The peers with their figures, the best first.
fn list(peers: &[Costs]) -> String {
    if peers.is_empty() {
        return "-".to_owned();
    }
    let mut sorted: Vec<_> = peers.iter().collect();
    sorted.sort_by(|one, other| one.median().total_cmp(&other.median()));
    let figures = sorted
        .into_iter()
        .map(|peer| format!("{} {}", peer.name, peer.range()));
    figures.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{comparison::Cost, overload::NewConnections};

    fn row(name: &str) -> &'static Row {
        ROWS.iter().find(|row| row.name == name).expect("a row")
    }

    fn costs(name: &str, figures: &[f64]) -> Costs {
        Costs {
            name: name.to_owned(),
            rounds: figures.iter().map(|figure| Cost::from(*figure)).collect(),
        }
    }

    #[test]
    fn a_promise_is_marked_by_its_ratio_to_the_best_peer_or_by_its_figure() {
        for (name, ours, peers, pgo, mark) in [
            ("w1", 95.0, [100.0, 120.0], false, "| met |"),
            ("w1", 95.0, [100.0, 94.0], false, "| missed |"),
            ("w1", 95.0, [120.0, 100.0], true, "| missed |"),
            ("w1", 78.0, [100.0, 120.0], true, "| aim met |"),
            ("w4", 22.5, [33.0, 40.0], false, "| missed |"),
            ("w4", 22.0, [33.0, 40.0], false, "| met |"),
        ] {
            let peers = peers.map(|figure| costs("peer", &[figure]));
            let line = row(name).line(&costs("ours", &[ours]), &peers, pgo, None);
            assert!(line.ends_with(&format!("{mark}\n")), "{line}");
        }
        let alone = row("w1").line(&costs("ours", &[1.0, 3.0, 2.0]), &[], false, None);
        assert!(alone.contains("| 2.00 (1.00–3.00) | - | - |"), "{alone}");
        assert!(alone.contains("not compared"), "{alone}");
    }

    #[test]
    fn each_peer_is_shown_and_a_ratio_to_a_best_peer_that_varies_is_doubted() {
        let ours = costs("ours", &[18.0]);
        let slow = || costs("haproxy-3.2.26", &[24.0, 30.0, 25.0]);
        let steady = row("w1").line(
            &ours,
            &[slow(), costs("nginx-1.30.6", &[20.0, 21.0, 20.5])],
            true,
            None,
        );
        assert!(
            steady.contains(
                "| nginx-1.30.6 20.50 (20.00–21.00), haproxy-3.2.26 25.00 (24.00–30.00) | 0.88 |"
            ),
            "{steady}"
        );
        assert!(!steady.contains("spread"), "{steady}");
        let varied = [slow(), costs("nginx-1.30.6", &[18.9, 19.0, 31.7])];
        let line = row("w1").line(&ours, &varied, true, None);
        assert!(
            line.contains("the spread of nginx-1.30.6 is 67 %"),
            "{line}"
        );
        let figure = row("w4").line(&ours, &varied, true, None);
        assert!(
            !figure.contains("spread"),
            "a figure has its own bound: {figure}"
        );
    }

    #[test]
    fn an_overload_is_also_held_to_its_new_connections() {
        let of = |name: &str, figure, served, failed| Costs {
            name: name.to_owned(),
            rounds: vec![Cost {
                figure,
                new_connections: Some(NewConnections { served, failed }),
            }],
        };
        let nginx = [of("nginx-1.30.6", 26.0, 2_000, 0)];
        for (ours, result) in [
            (
                of("ours", 12.0, 1_400, 0),
                "| aim met; new connections 0.70 of nginx-1.30.6's, none failed |",
            ),
            (
                of("ours", 12.0, 1_380, 0),
                "| missed; new connections 0.69 of nginx-1.30.6's",
            ),
            (
                of("ours", 12.0, 2_000, 1),
                "| missed; new connections 1.00 of nginx-1.30.6's, 1 failed |",
            ),
            (of("ours", 27.0, 2_000, 0), "| missed; new connections 1.00"),
        ] {
            let line = row("overload").line(&ours, &nginx, false, None);
            assert!(line.contains(result), "{line}");
        }
    }

    #[test]
    fn a_full_handshake_aims_at_its_signature() {
        let peers = [costs("nginx-1.30.6", &[3_600.0])];
        let line =
            |ours| row("w2-full").line(&costs("ours", &[ours]), &peers, false, Some(1_900.0));
        assert!(
            line(2_080.0).ends_with("| 0.58 | 0.735 | 0.581 | aim met |\n"),
            "{}",
            line(2_080.0)
        );
        assert!(line(2_100.0).ends_with("| met |\n"), "{}", line(2_100.0));
    }
}
