//! The allocator of the built program (docs/decisions/allocator.md). `cargo xtask bench table --only w4`
//! measures its effect.

use std::{fs, process::Command, time::Duration};

use testkit::wait_until;

use crate::support::Estate;

const BINARY: &str = env!("CARGO_BIN_EXE_proscenium");

/// jemalloc prints its settings when the program ends.
#[test]
#[cfg(target_env = "gnu")]
fn all_memory_comes_from_jemalloc_which_returns_it_after_a_second() {
    let ended = Command::new(BINARY)
        .arg("--version")
        // Without a prefix, jemalloc reads this variable, and also serves the C libraries of the program.
        .env("MALLOC_CONF", "stats_print:true")
        .output()
        .expect("the program starts");
    let shown = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{shown}");
    for expected in [
        "opt.background_thread: true",
        "opt.dirty_decay_ms: 1000",
        "opt.muzzy_decay_ms: 0",
        "opt.tcache_nslots_small_max: 32",
        "opt.tcache_gc_incr_bytes: 2097152",
    ] {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
}

#[test]
#[cfg(target_env = "gnu")]
fn a_running_proxy_has_the_thread_that_returns_memory() {
    let estate = Estate::builder().start();
    let tasks = format!("/proc/{}/task", estate.proxy.pid());
    let is_there = || {
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
        let mut names = fs::read_dir(&tasks).ok()?.flatten().filter_map(name);
        names.find(|name| name.starts_with("jemalloc_bg_thd"))
    };
    assert!(wait_until(Duration::from_secs(30), is_there).is_some());
}
