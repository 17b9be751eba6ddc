//! `cargo xtask matrix`: checks, row by row, which client identity reaches the servers, from the bytes they receive.
//!
//! A row tests one certificate state, kind of connection, protocol, forged header or fault. With `--peers` the same
//! rows run against other front ends on this machine, configured as their manuals recommend. With `--crippled` the
//! program is built without its header scrub, and without verifying again on open connections. Some rows must then
//! fail, which shows that the rows can detect these defects.

mod crippled;
mod far_end;
mod front;
mod peers;
mod rows;
mod scene;

use anyhow::{Result, bail};
use clap::Args;
use testkit::Protocol;

use self::{
    crippled::{CRIPPLED, Crippled},
    front::Maker,
    rows::{Outcome, Row},
    scene::Scene,
};
use crate::workspace;

/// Options of the matrix.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Also run the rows against nginx, HAProxy and Apache, if installed
    #[arg(long)]
    peers: bool,
    /// Also run the rows against builds without a protection of identities; each must be detected
    #[arg(long)]
    crippled: bool,
    /// Only list the names of the rows
    #[arg(long)]
    list: bool,
    /// Run only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Prints one line per row. Fails if a row of Proscenium is wrong, or if no row detects a crippled build.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        rows::all().iter().for_each(|row| println!("{}", row.name));
        return Ok(());
    }
    let proscenium = Maker::Proscenium(workspace::build_proscenium(false)?);
    let peers = match options.peers {
        true => peers::installed(),
        false => Vec::new(),
    };
    let rows: Vec<_> = rows::all()
        .into_iter()
        .filter(|row| {
            options
                .only
                .as_deref()
                .is_none_or(|text| row.name.contains(text))
        })
        .collect();
    let makers: Vec<_> = std::iter::once(&proscenium).chain(&peers).collect();
    heading(&makers);
    let mut wrong = vec![0; makers.len()];
    for row in &rows {
        let outcomes: Vec<_> = makers.iter().map(|maker| put(row, maker)).collect();
        for (count, outcome) in wrong.iter_mut().zip(&outcomes) {
            *count += u32::from(matches!(outcome, Outcome::Wrong(_)));
        }
        print_row(row, &outcomes);
    }
    println!();
    for (maker, wrong) in makers.iter().zip(&wrong) {
        println!("{}: {wrong} of {} rows WRONG", maker.name(), rows.len());
    }
    if options.crippled {
        cripple(&rows)?;
    }
    match wrong[0] {
        0 => Ok(()),
        count => bail!("{count} rows of proscenium are wrong"),
    }
}

/// Each crippled build must fail at least one row.
fn cripple(rows: &[Row]) -> Result<()> {
    for crippled in CRIPPLED {
        let Crippled { name, shown_by, .. } = crippled;
        println!("\nbuilding without {name}");
        let maker = Maker::Proscenium(crippled.build()?);
        let rows = rows
            .iter()
            .filter(|row| shown_by.iter().any(|part| row.name.contains(part)));
        let mut wrong = 0;
        for row in rows {
            let outcome = put(row, &maker);
            wrong += u32::from(matches!(outcome, Outcome::Wrong(_)));
            print_row(row, &[outcome]);
        }
        println!("without {name}: {wrong} rows WRONG");
        if wrong == 0 {
            bail!("no row detects the build without {name}");
        }
    }
    Ok(())
}

fn put(row: &Row, maker: &Maker) -> Outcome {
    if row.protocol == Protocol::Http2 && !maker.speaks_http2() {
        return Outcome::NotHere;
    }
    match Scene::new(maker, row.protocol, row.shape) {
        Ok(scene) => (row.run)(&scene),
        Err(error) => Outcome::Wrong(format!("{} does not start: {error:#}", maker.name())),
    }
}

fn heading(makers: &[&Maker]) {
    let names: Vec<_> = makers
        .iter()
        .map(|maker| format!("{:<12}", maker.name()))
        .collect();
    println!("{:<84}{}", "", names.concat().trim_end());
}

fn print_row(row: &Row, outcomes: &[Outcome]) {
    let words: Vec<_> = outcomes
        .iter()
        .map(|outcome| format!("{:<12}", outcome.word()))
        .collect();
    println!("{:<84}{}", row.name, words.concat().trim_end());
    for outcome in outcomes {
        if let Outcome::Wrong(why) = outcome {
            println!("    {why}");
        }
    }
}
