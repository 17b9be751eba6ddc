//! Counts the instructions of one pick among 10 and 100 members, for each algorithm: a member is found, and its slot is taken
//! and given back. `cargo xtask bench pick` runs it. It counts with valgrind, as the difference of two runs.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for the terminal; one that cannot go on should stop"
)]

use std::{env, hint::black_box, process::Command, process::ExitCode, time::Duration};

use balancing::{
    PickCriteria, Pool, Registry, Task, Work, key_hash,
    settings::{Algorithm, CheckKind, MemberSettings, PoolSettings},
};

const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::LeastLoad,
    Algorithm::LeastConnections,
    Algorithm::RoundRobin,
    Algorithm::Random,
    Algorithm::SourceHash,
    Algorithm::CertnameHash,
    Algorithm::First,
];
/// Number of members, and the maximum number of instructions of a pick among them.
const BOUNDS: [(usize, u64); 2] = [(10, 500), (100, 2_500)];
const PICKS: u64 = 200;
/// Number of different requests.
const LEADS: u64 = 512;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "run") {
        let number = |n: usize| -> usize { arguments[at + n].parse().expect("a number") };
        run(
            ALGORITHMS[number(1)],
            number(2),
            number(3) == 1,
            number(4) as u64,
        );
        return ExitCode::SUCCESS;
    }
    let mut over = 0;
    println!("algorithm            members   idle   busy   at most");
    for (index, algorithm) in ALGORITHMS.iter().enumerate() {
        for (members, most) in BOUNDS {
            let [idle, busy] = [0, 1].map(|busy| cost(index, members, busy));
            let name = algorithm.as_str();
            println!("{name:<20} {members:>7} {idle:>6} {busy:>6} {most:>9}");
            over += u32::from(idle.max(busy) >= most);
        }
    }
    println!(
        "{over} of {} over their bound",
        ALGORITHMS.len() * BOUNDS.len()
    );
    match over {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Instructions of one pick. The two runs differ only in the number of picks.
fn cost(algorithm: usize, members: usize, busy: usize) -> u64 {
    let of = |picks: u64| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(env::current_exe().expect("this program"))
            .arg("run")
            .args([algorithm, members, busy].map(|number| number.to_string()))
            .arg(picks.to_string())
            .output()
            .expect("valgrind is installed");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let collected = text
            .lines()
            .find_map(|line| line.split("Collected : ").nth(1));
        let count = collected.and_then(|count| count.trim().parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("no count: {text}"))
    };
    of(3 * PICKS).saturating_sub(of(PICKS)) / (2 * PICKS)
}

fn run(algorithm: Algorithm, members: usize, busy: bool, picks: u64) {
    let mut settings = PoolSettings::new("compilers");
    settings.algorithm = algorithm;
    settings.jrubies = Some(8);
    settings.check.kind = CheckKind::None;
    settings.members = (0..members)
        .map(|n| MemberSettings {
            weight: 1 + (n % 3) as u32,
            ..MemberSettings::new(&format!("c{n}.example.com:8140"))
        })
        .collect();
    let pool = Pool::new(&settings, 128, &Registry::default());
    // Created before any pick is counted, because a request already has its hashes then.
    let leads: Vec<PickCriteria> = (0..LEADS).map(criteria).collect();
    let pick = |n: u64| pool.pick(&[], leads[(n % LEADS) as usize], Duration::from_secs(1));
    let held_before = if busy { members as u64 * 3 } else { 0 };
    let held: Vec<_> = (0..held_before).map(pick).collect();
    for n in 0..picks {
        drop(black_box(pick(black_box(n))));
    }
    drop(held);
}

fn criteria(n: u64) -> PickCriteria {
    PickCriteria {
        source: Some(key_hash(&n.to_le_bytes())),
        certname: Some(key_hash(&n.to_le_bytes())),
        random: key_hash(&n.to_be_bytes()),
        task: Task::of(Work::ALL[(n % 4) as usize]),
        ..PickCriteria::default()
    }
}
