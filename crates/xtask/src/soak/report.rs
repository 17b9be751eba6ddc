//! The report: a line every half minute, the table at the end, and after a failure a directory with the run's files.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use testkit::ScrapedMetrics;

use super::{
    Options,
    agent::REFUSED,
    chat::CUT,
    counters::{self, RecordSums},
    estate::SoakEstate,
    faults::MemberFault,
    materials::{CRL_ACTIVE, SHOWN},
    process::Sample,
    reloads::APPLIED,
    restarts::USED_AGAIN,
    tally::{Count, Tally},
};
use crate::workspace;

/// The lines printed so far, and the measurements.
pub(super) struct Report<'a> {
    estate: &'a SoakEstate,
    options: &'a Options,
    lines: Vec<String>,
    due: Duration,
    interval: Duration,
    measured: Option<(Sample, Sample)>,
}

impl<'a> Report<'a> {
    pub(super) fn new(estate: &'a SoakEstate, options: &'a Options) -> Self {
        let interval = PROGRESS_INTERVAL.min(options.length() / 4);
        Self {
            estate,
            options,
            lines: Vec::new(),
            due: interval,
            interval,
            measured: None,
        }
    }

    /// Prints a progress line when one is due.
    pub(super) fn progress(&mut self, elapsed: Duration, tally: &Tally) {
        if elapsed < self.due {
            return;
        }
        self.due += self.interval;
        let Ok(sample) = Sample::of(&self.estate.proxy) else {
            tally.miss("the proxy has gone".to_owned());
            return;
        };
        self.print(format!(
            "{:>5.0} s {:>8} requests, {} missed, {} failed by faults, {:>4} CRLs, {:>3} certificates, {:>4} enrolled; \
             {:>6} KiB, {:>4} descriptors, {:>3} threads",
            elapsed.as_secs_f64(),
            tally.answered(),
            tally.missed(),
            tally.failures().values().sum::<u64>(),
            tally.counted(Count::Crls),
            tally.counted(Count::Certificates),
            tally.counted(Count::Enrolled),
            sample.memory_kib,
            sample.descriptors,
            sample.threads,
        ));
    }

    /// Stores the proxy's resources at rest, when warm and at the end.
    pub(super) fn measured(&mut self, warm: Sample, end: Sample) {
        self.measured = Some((warm, end));
    }

    /// Stops the proxy and prints the table.
    ///
    /// # Errors
    /// If anything was missed.
    pub(super) fn end(mut self, tally: &Tally) -> Result<()> {
        let proxy = &self.estate.proxy;
        let sums = counters::check(proxy, &proxy.directory().join(ACCESS_LOG), tally);
        self.table(tally, &sums);
        self.faults(tally);
        self.held(tally);
        let words = self.stop(tally);
        if tally.missed() == 0 {
            println!("\nNo request was lost.");
            return Ok(());
        }
        let directory = self.save(tally, &words)?;
        bail!(
            "{} misses; files of the run: {}",
            tally.missed(),
            directory.display()
        );
    }

    /// Stops the proxy. Returns its last status, metrics and messages, each with a file name.
    fn stop(&self, tally: &Tally) -> Vec<(&'static str, String)> {
        let proxy = &self.estate.proxy;
        // A proxy that is stopping may exit between the two queries.
        let query = |target| proxy.try_admin("GET", target).map(|answer| answer.text());
        let (Ok(status), Ok(metrics)) = (query("/v1/status"), query("/metrics")) else {
            tally.miss("the proxy has gone".to_owned());
            return vec![("stderr.txt", proxy.stderr())];
        };
        if ScrapedMetrics::parse(&metrics).sum("proscenium_materials_refused", &[]) > 0.0 {
            tally.miss("materials are refused at the end".to_owned());
        }
        if proxy.is_running() {
            proxy.terminate();
        }
        let outcome = proxy.wait_for_end(STOP_WITHIN);
        if outcome.code != Some(0) {
            tally.miss(format!("the proxy ended with {:?}", outcome.code));
        }
        vec![
            ("status.json", status),
            ("metrics.txt", metrics),
            ("stderr.txt", outcome.stderr),
        ]
    }

    fn table(&mut self, tally: &Tally, sums: &RecordSums) {
        let count = |what| tally.counted(what);
        let slowest = |what| format!("after {:.1} s at most", tally.slowest(what).as_secs_f64());
        let minutes = self.options.minutes;
        let (agents, tunnels) = (self.options.agents, self.options.tunnels);
        let seed = self.estate.seed;
        self.print(format!(
            "\n{agents} agents and {tunnels} tunnels for {minutes} minutes, PROSCENIUM_SEED={seed}\n"
        ));
        let mut row = |what, number, more: String| self.row(what, number, &more);
        let plain = String::new;
        row("requests over HTTP/1.1", count(Count::Http1), plain());
        row("requests over HTTP/2", count(Count::Http2), plain());
        let sent = format!("of {} requests sent", count(Count::Sent));
        row("access records", sums.requests, sent);
        let retries = format!("{} of them retries", sums.retries);
        row("attempts", sums.attempts, retries);
        let streamed = format!("{} of them streamed", count(Count::LargeUploads));
        row("uploads", count(Count::Uploads), streamed);
        let [resumed, slow] = [Count::Resumed, Count::SlowConnections].map(count);
        let kinds = format!("{resumed} of them resumed, {slow} slow");
        row("connections of agents", count(Count::Connections), kinds);
        let opened = format!("{} tunnels opened", count(Count::Tunnels));
        row("messages in tunnels", count(Count::Messages), opened);
        row("CRLs swapped", count(Count::Crls), slowest(CRL_ACTIVE));
        let refused = format!("{}, tunnels cut {}", slowest(REFUSED), slowest(CUT));
        row("agents revoked", count(Count::Revoked), refused);
        row("agents enrolled again", count(Count::Enrolled), plain());
        row(
            "certificates replaced",
            count(Count::Certificates),
            slowest(SHOWN),
        );
        row("reloads", count(Count::Reloads), slowest(APPLIED));
        row(
            "members restarted",
            count(Count::Restarts),
            slowest(USED_AGAIN),
        );
        row("identities crossed", count(Count::Crossed), plain());
        row("lost, late or wrong", tally.missed(), plain());
    }

    /// Injected faults by kind, and the failures that they explain.
    fn faults(&mut self, tally: &Tally) {
        let injected = MemberFault::ALL.map(|fault| self.estate.ledger.injected(fault));
        let failures = tally.failures();
        self.print(String::new());
        self.row("faults of members", injected.iter().sum(), "");
        for (fault, times) in MemberFault::ALL.iter().zip(injected) {
            self.row("", times, fault.as_str());
        }
        self.row("failures explained", failures.values().sum(), "");
        for ((failure, cause), times) in failures {
            self.row("", times, &format!("{failure}: {cause}"));
        }
    }

    fn row(&mut self, what: &str, number: u64, more: &str) {
        let line = format!("{what:<24} {number:>10}  {more}");
        self.print(line.trim_end().to_owned());
    }

    /// Memory, descriptors and threads at rest, against their bounds.
    fn held(&mut self, tally: &Tally) {
        let Some((warm, end)) = self.measured else {
            return;
        };
        self.print(format!(
            "\n{:<24} {:>10} {:>10} {:>10} {:>8}",
            "at rest", "warm", "end", "more", "bound"
        ));
        for (what, warm, end, bound) in [
            (
                "memory, KiB (VmRSS)",
                warm.memory_kib,
                end.memory_kib,
                self.options.growth_kib_max,
            ),
            ("descriptors", warm.descriptors, end.descriptors, 0),
            ("threads", warm.threads, end.threads, THREADS_MORE_MAX),
        ] {
            let more = end.cast_signed() - warm.cast_signed();
            self.print(format!(
                "{what:<24} {warm:>10} {end:>10} {more:>+10} {bound:>8}"
            ));
            if more > bound.cast_signed() {
                tally.miss(format!(
                    "{what}: {more} more than when it was warm, {bound} allowed"
                ));
            }
        }
    }

    /// Saves everything that may explain the misses.
    fn save(&self, tally: &Tally, words: &[(&str, String)]) -> Result<PathBuf> {
        let proxy = &self.estate.proxy;
        let directory = workspace::target()
            .join("soak")
            .join(proxy.pid().to_string());
        fs::create_dir_all(&directory)?;
        let files = [
            ("misses.txt", tally.first_misses().join("\n")),
            ("progress.txt", self.lines.join("\n")),
            ("proscenium.toml", proxy.config_text()),
        ];
        for (name, text) in files.iter().chain(words) {
            fs::write(directory.join(name), text)?;
        }
        let records = proxy.directory().join(ACCESS_LOG);
        fs::copy(records, directory.join(ACCESS_LOG))?;
        Ok(directory)
    }

    fn print(&mut self, line: String) {
        println!("{line}");
        self.lines.push(line);
    }
}

/// Threads for blocking work, such as reading files, exit after ten idle seconds. Some may exist at one of the two
/// measurements.
const THREADS_MORE_MAX: u64 = 2;
const ACCESS_LOG: &str = "access.json";
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);
const STOP_WITHIN: Duration = Duration::from_secs(30);
