//! `simulation [SEED,...] [SCENARIO,...]`: prints the table of the comparison. `cargo xtask simulate` builds and runs
//! this program.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal"
)]

use std::{process::ExitCode, thread, time::Instant};

use simulation::{
    column,
    proscenium::ProsceniumSettings,
    report,
    scenario::{self, Scenario},
};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let seeds = arguments.next().unwrap_or_else(|| "1,2,3".to_owned());
    let wanted = arguments.next().unwrap_or_default();
    let seeds: Result<Vec<u64>, _> = seeds.split(',').map(str::parse).collect();
    let Ok(seeds) = seeds else {
        eprintln!("seeds are integers, separated by commas");
        return ExitCode::from(2);
    };
    let settings = ProsceniumSettings::default();
    let columns = match column::all(settings.clone()) {
        Ok(columns) => columns,
        Err(error) => {
            eprintln!("bench/simulate: {error}");
            return ExitCode::from(2);
        }
    };
    let is_wanted = |scenario: &Scenario| {
        wanted.is_empty() || wanted.split(',').any(|name| name == scenario.name)
    };
    let scenarios: Vec<_> = scenario::all().into_iter().filter(is_wanted).collect();
    let began = Instant::now();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut report = report::compare(&scenarios, &columns, &seeds, threads);
    for scenario in scenario::several_proxies().into_iter().filter(is_wanted) {
        let columns = column::of_several_proxies(&settings, scenario.proxies.len());
        let one = report::compare(&[scenario], &columns, &seeds, threads);
        report.table += &one.table;
        report.goals.extend(one.goals);
    }
    print!("{}", report.table);
    let met = report.goals.iter().filter(|goal| goal.met).count();
    for goal in &report.goals {
        println!(
            "{} {}",
            if goal.met { "met    " } else { "NOT MET" },
            goal.what
        );
    }
    // Printed to standard error, because standard output is the same for the same seeds.
    eprintln!(
        "{:.0} s on {threads} threads",
        began.elapsed().as_secs_f64()
    );
    println!("{met} of {} goals are met", report.goals.len());
    if met == report.goals.len() && met > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
