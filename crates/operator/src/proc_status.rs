//! What the kernel reports about this process (proc(5)), for `process_*` metrics.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use admin::ProcessStatus;

/// Reads `/proc`; a value that cannot be read is left out.
pub(crate) fn read() -> ProcessStatus {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let boot = fs::read_to_string("/proc/stat").ok();
    let kibibytes = |key| Some(number_after(&status, key)? << 10);
    ProcessStatus {
        pid: std::process::id(),
        cpu_milliseconds: ticks(field(&stat, 14), field(&stat, 15))
            .and_then(|cpu| u64::try_from(cpu.as_millis()).ok()),
        resident_bytes: kibibytes("VmRSS:"),
        virtual_bytes: kibibytes("VmSize:"),
        open_fds: fs::read_dir("/proc/self/fd")
            .ok()
            .map(|entries| entries.count() as u64),
        max_fds: number_after(&limits, "Max open files"),
        started: boot.and_then(|boot| {
            let boot = Duration::from_secs(number_after(&boot, "btime")?);
            let started = SystemTime::UNIX_EPOCH + boot + ticks(field(&stat, 22), Some(0))?;
            Some(started.into())
        }),
    }
}

/// A field of `/proc/self/stat` by its number in proc(5). The second field, the name of the program, may contain spaces.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 3)?.parse().ok()
}

fn ticks(first: Option<u64>, second: Option<u64>) -> Option<Duration> {
    let ticks = first?.saturating_add(second?);
    Some(Duration::from_millis(ticks.saturating_mul(1000 / USER_HZ)))
}

fn number_after(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Ticks per second in `/proc` (sysconf(_SC_CLK_TCK)), which is 100 on every common architecture.
const USER_HZ: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_after_a_name_with_spaces_and_brackets() {
        let stat = "1 (a ) b) S 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 900 0";
        assert_eq!(field(stat, 14), Some(250));
        assert_eq!(field(stat, 22), Some(900));
        assert_eq!(field("", 14), None);
        assert_eq!(
            ticks(field(stat, 14), field(stat, 15)),
            Some(Duration::from_secs(3))
        );
    }

    #[test]
    fn every_value_of_this_process_is_read() {
        let read = read();
        assert!(read.cpu_milliseconds.is_some() && read.max_fds.is_some());
        assert!(read.open_fds > Some(0) && read.resident_bytes > Some(1 << 16));
        assert!(read.virtual_bytes > read.resident_bytes);
        assert!(
            read.started
                .and_then(|at| at.instant())
                .is_some_and(|at| at < SystemTime::now())
        );
    }
}
