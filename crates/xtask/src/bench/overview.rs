//! `cargo xtask bench table`: what we promise to cost, row by row, beside nginx and with the mark of each promise.

use std::{fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustls::version;

use super::{
    cores::Cores,
    counts, cpu,
    load::{Errand, Load},
    members::Members,
    peers::Peer,
    pki::Pki,
    resume::{self, Series},
    table::median,
    w1,
};
use crate::workspace;

/// Which rows, how often, and where to.
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

/// One promise.
struct Row {
    name: &'static str,
    unit: &'static str,
    /// Bounds of the figure; of ours : theirs where `of_nginx`.
    must: Bound,
    aim: f64,
    of_nginx: bool,
    /// Whether a figure varies from round to round.
    varies: bool,
    measure: fn(&Setting, &Peer) -> Result<f64>,
}

/// What must be reached by a plain build and by one with a profile.
struct Bound {
    plain: f64,
    pgo: f64,
}

impl Bound {
    const fn both(bound: f64) -> Self {
        Self {
            plain: bound,
            pgo: bound,
        }
    }
}

/// The rows; where they come from is in docs/performance.md.
const ROWS: &[Row] = &[
    Row {
        name: "instructions",
        unit: "user instructions a request",
        must: Bound {
            plain: 47_000.0,
            pgo: 39_500.0,
        },
        aim: 40_000.0,
        of_nginx: false,
        varies: false,
        measure: |setting, peer| {
            counts::instructions_of(&setting.counts(32), peer).map(|sum| sum.0)
        },
    },
    Row {
        name: "syscalls-1",
        unit: "system calls a request, 1 connection",
        must: Bound::both(6.06),
        aim: 6.06,
        of_nginx: false,
        varies: false,
        measure: |setting, peer| counts::syscalls_of(&setting.counts(1), peer),
    },
    Row {
        name: "syscalls-32",
        unit: "system calls a request, 32 connections",
        must: Bound::both(4.27),
        aim: 4.27,
        of_nginx: false,
        varies: false,
        measure: |setting, peer| counts::syscalls_of(&setting.counts(32), peer),
    },
    Row {
        name: "w1",
        unit: "us of CPU a request",
        must: Bound {
            plain: 0.88,
            pgo: 0.80,
        },
        aim: 0.70,
        of_nginx: true,
        varies: true,
        measure: |setting, peer| w1::measure(peer, &setting.pki, &setting.cores, &W1),
    },
    Row {
        name: "w2-full",
        unit: "us of CPU a full handshake, RSA-4096, TLS 1.3",
        must: Bound::both(0.35),
        aim: 0.30,
        of_nginx: true,
        varies: true,
        measure: |setting, peer| setting.handshakes(peer, &FULL),
    },
    Row {
        name: "w2-resumed-1.3",
        unit: "us of CPU a resumed connection, TLS 1.3",
        must: Bound::both(0.25),
        aim: 0.15,
        of_nginx: true,
        varies: true,
        measure: |setting, peer| setting.handshakes(peer, &RESUMED13),
    },
    Row {
        name: "w2-resumed-1.2",
        unit: "us of CPU a resumed connection, TLS 1.2",
        must: Bound::both(0.34),
        aim: 0.15,
        of_nginx: true,
        varies: true,
        measure: |setting, peer| setting.handshakes(peer, &RESUMED12),
    },
    Row {
        name: "w4",
        unit: "KiB an idle connection after a request",
        must: Bound::both(27.0),
        aim: 16.0,
        of_nginx: false,
        varies: false,
        measure: |setting, peer| idle_memory(setting, peer),
    },
];

const W1: w1::Options = w1::Options {
    rounds: 1,
    requests: 50_000,
    connections: 32,
};
const FULL: Series = Series::full(&version::TLS13);
const RESUMED13: Series = Series::resumed("TLS 1.3", &version::TLS13, Errand::Connect);
const RESUMED12: Series = Series::resumed("TLS 1.2", &version::TLS12, Errand::Connect);

/// What all rows share. Handshakes are measured with the certificates of a Puppet CA, the rest with ones that cost the load
/// little.
struct Setting {
    folder: PathBuf,
    pki: Pki,
    fixtures: Pki,
    cores: Cores,
}

impl Setting {
    fn counts(&self, connections: usize) -> counts::Setting<'_> {
        counts::Setting {
            folder: &self.folder,
            pki: &self.pki,
            cores: &self.cores,
            requests: 2_000,
            connections,
        }
    }

    fn handshakes(&self, peer: &Peer, series: &Series) -> Result<f64> {
        let options = resume::Options {
            rounds: 1,
            connections: if series.is_full() { 800 } else { 3_000 },
            clients: 8,
        };
        resume::measure(peer, &self.fixtures, series, &self.cores, &options)
    }
}

/// Measures and prints.
pub(super) fn run(options: &Options) -> Result<()> {
    if cfg!(debug_assertions) {
        return workspace::run_optimised();
    }
    let folder = tempfile::tempdir().context("no folder to work in")?;
    let (quick, of_puppet) = (folder.path().join("quick"), folder.path().join("puppet"));
    for folder in [&quick, &of_puppet] {
        fs::create_dir(folder)?;
    }
    let members = Members::start()?;
    let setting = Setting {
        pki: Pki::make(&quick)?,
        fixtures: resume::fixtures(&of_puppet)?,
        cores: Cores::here()?,
        folder: folder.path().to_owned(),
    };
    let quick = Peer::all(&quick, &members)?;
    let of_puppet = Peer::all(&of_puppet, &members)?;
    setting.cores.keep_us_off_the_last()?;
    let mut table = String::from(
        "| row | what | ours (range) | nginx (range) | ours : nginx | must | aim | |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let wanted = |row: &&Row| {
        options
            .only
            .as_ref()
            .is_none_or(|only| row.name.contains(only))
    };
    let mut rows = 0;
    for row in ROWS.iter().filter(wanted) {
        let peers = match row.name.starts_with("w2") {
            true => &of_puppet,
            false => &quick,
        };
        let mut costs = vec![Vec::new(); peers.len()];
        let rounds = if row.varies { options.rounds } else { 1 };
        for round in 1..=rounds {
            eprintln!("{}: round {round} of {rounds}", row.name);
            for (peer, costs) in peers.iter().zip(&mut costs) {
                costs.push((row.measure)(&setting, peer)?);
            }
        }
        let line = row.line(&costs, options.pgo);
        print!("{line}");
        table += &line;
        rows += 1;
    }
    ensure!(rows > 0, "no row has such a name");
    println!("\n{table}");
    match &options.out {
        Some(path) => fs::write(path, table).with_context(|| path.display().to_string()),
        None => Ok(()),
    }
}

impl Row {
    fn line(&self, costs: &[Vec<f64>], pgo: bool) -> String {
        let ours = median(&costs[0]);
        let theirs = costs.get(1).map(|costs| median(costs));
        let ratio = theirs.map(|theirs| ours / theirs);
        let must = if pgo { self.must.pgo } else { self.must.plain };
        let judged = if self.of_nginx { ratio } else { Some(ours) };
        let mark = match judged {
            Some(figure) if figure <= self.aim => "aim met",
            Some(figure) if figure <= must => "met",
            Some(_) => "missed",
            None => "not judged",
        };
        let mut line = format!("| {} | {} | {} ", self.name, self.unit, range(&costs[0]));
        let nginx = costs
            .get(1)
            .map_or_else(|| "-".to_owned(), |costs| range(costs));
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        // Writing to a text cannot fail.
        let _ = writeln!(
            line,
            "| {nginx} | {ratio} | {must} | {} | {mark} |",
            self.aim
        );
        line
    }
}

/// Median, and least and most where there are several.
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

/// How much memory a connection takes that has had one request and is kept.
fn idle_memory(setting: &Setting, peer: &Peer) -> Result<f64> {
    const FEW: usize = 100;
    const MANY: usize = 1_000;
    let proxy = peer.start(setting.cores.last)?;
    let stand = |count| {
        let mut load = Load::connect(proxy.address(), &setting.pki, count)?;
        load.run(count as u64)?;
        anyhow::Ok(load)
    };
    let _first = stand(FEW)?;
    let before = cpu::resident_kib(proxy.id());
    let _more = stand(MANY)?;
    Ok(cpu::resident_kib(proxy.id()).saturating_sub(before) as f64 / MANY as f64)
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
        assert!(alone.contains("| 2.00 (1.00–3.00) | - | - |"), "{alone}");
        assert!(alone.contains("not judged"), "{alone}");
    }
}
