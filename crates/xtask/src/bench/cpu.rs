//! CPU time and memory of a process and its descendants.

use std::{fs, time::Duration};

/// CPU time of every running thread in the process tree. Threads that have ended are not included.
pub(crate) fn run_time(root: u32) -> Duration {
    tree(root).into_iter().map(process_time).sum()
}

/// Resident memory of the process tree, in KiB.
pub(super) fn resident_kib(root: u32) -> u64 {
    let of = |process: u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    tree(root).into_iter().filter_map(of).sum()
}

fn process_time(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse().ok())
        .map(Duration::from_nanos)
        .sum()
}

/// The process and its descendants.
fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        found.extend(children(process));
        next += 1;
    }
    found
}

fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}
