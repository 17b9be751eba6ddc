//! `cargo xtask matrix`: checks, row by row, which client identity reaches the servers, from the bytes they receive.
//!
//! A row tests one certificate state, kind of connection, protocol, forged header or fault. With `--crippled`, the
//! program is also built without its header scrub, and without re-verification on open connections. Some rows must then
//! fail, which shows that the rows can detect these defects.

mod crippled;
mod far_end;
mod rows;
mod scene;

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;

use self::{
    crippled::{CRIPPLED, Crippled},
    rows::{Outcome, Row},
    scene::Scene,
};
use crate::workspace;

/// Options of the matrix.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
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
    let binary = workspace::build_proscenium(false)?;
    let rows: Vec<_> = rows::all()
        .into_iter()
        .filter(|row| {
            options
                .only
                .as_deref()
                .is_none_or(|text| row.name.contains(text))
        })
        .collect();
    let wrong = run_rows(&rows, &binary);
    println!("\n{wrong} of {} rows WRONG", rows.len());
    if options.crippled {
        cripple(&rows)?;
    }
    match wrong {
        0 => Ok(()),
        count => bail!("{count} rows are wrong"),
    }
}

/// Prints the outcome of each row with this program, and returns how many are wrong.
fn run_rows<'a>(rows: impl IntoIterator<Item = &'a Row>, binary: &Path) -> usize {
    let wrong = |row: &&Row| {
        let outcome = match Scene::new(binary, row.protocol, row.shape) {
            Ok(scene) => (row.run)(&scene),
            Err(error) => Outcome::Wrong(format!("the proxy does not start: {error:#}")),
        };
        println!("{:<84}{}", row.name, outcome.word());
        if let Outcome::Wrong(why) = &outcome {
            println!("    {why}");
        }
        matches!(outcome, Outcome::Wrong(_))
    };
    rows.into_iter().filter(wrong).count()
}

/// Builds each crippled program. Each must fail at least one row.
fn cripple(rows: &[Row]) -> Result<()> {
    for crippled in CRIPPLED {
        let Crippled { name, shown_by, .. } = crippled;
        println!("\nbuilding without {name}");
        let binary = crippled.build()?;
        let is_shown_by = |row: &&Row| shown_by.iter().any(|part| row.name.contains(part));
        let wrong = run_rows(rows.iter().filter(is_shown_by), &binary);
        println!("without {name}: {wrong} rows WRONG");
        if wrong == 0 {
            bail!("no row detects the build without {name}");
        }
    }
    Ok(())
}
