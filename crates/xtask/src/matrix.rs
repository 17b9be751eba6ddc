//! `cargo xtask matrix`: what becomes of an identity, row by row, judged by the bytes at the far end.
//!
//! A row is one certificate, one entry to come in, one protocol, one lie or one fault. With `--peers` the same rows are
//! put to other front ends of this machine, set up as their documents say. With `--crippled` the program is built without
//! its scrub, and without asking again on live connections: rows that then fail show that they can.

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

/// What is put to whom.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Also nginx, HAProxy and Apache, those of them that are installed
    #[arg(long)]
    peers: bool,
    /// Also the program without parts that keep identities right: each must be found out
    #[arg(long)]
    crippled: bool,
    /// Only tell the rows' names
    #[arg(long)]
    list: bool,
    /// Only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Prints a line a row; fails if a row of ours is wrong, or a crippled program gets by.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        rows::all().iter().for_each(|row| println!("{}", row.name));
        return Ok(());
    }
    let ours = Maker::Ours(workspace::build_proscenium(false)?);
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
    let makers: Vec<_> = std::iter::once(&ours).chain(&peers).collect();
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
        count => bail!("{count} rows of ours are wrong"),
    }
}

/// Each crippled program must show at least one row wrong.
fn cripple(rows: &[Row]) -> Result<()> {
    for crippled in CRIPPLED {
        let Crippled { name, shown_by, .. } = crippled;
        println!("\nbuilding without {name}");
        let maker = Maker::Ours(crippled.build()?);
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
            bail!("the rows do not notice that {name} is gone");
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
