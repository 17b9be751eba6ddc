//! `cargo xtask bench memory`: the growth of the proxy's peak memory while large bodies go to slow readers.
//!
//! TLS is mutual on both sides. First, several responses go to agents that read slowly. Then, through a new proxy, the
//! same number of request bodies goes to a member that reads slowly. After a while all readers read as fast as
//! possible, so that the bodies pass completely. The result is the growth of `VmHWM` compared with a proxy that has
//! answered one small request.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use testkit::{Client, ClientError, Estate, EstateBuilder, Proxy, Reply, TestCredential};

use crate::workspace;

/// The size of the run.
#[derive(Args)]
pub(crate) struct Options {
    /// Bodies on their way at once
    #[arg(long, default_value_t = 8)]
    transfers: u64,
    /// Size of each
    #[arg(long, default_value = "1GiB", value_parser = bytes)]
    bytes: u64,
    /// What a slow reader takes in a second
    #[arg(long, default_value = "1MB/s", value_parser = bytes)]
    rate: u64,
    /// Seconds for which readers are slow; afterwards they take what comes
    #[arg(long, default_value_t = 20)]
    slow_seconds: u64,
}

/// Measures both directions and prints them. Fails if the growth exceeds the bound.
pub(super) fn run(options: &Options) -> Result<()> {
    ensure!(
        options.transfers > 0 && options.rate > 0,
        "no transfer, no growth"
    );
    let binary = workspace::build_proscenium(true)?;
    let mut growths = Vec::new();
    for direction in [Direction::Down, Direction::Up] {
        let growth = workspace::without_panic(|| measure(direction, &binary, options))?;
        growths.push((direction, growth));
    }
    print_table(&growths, options);
    let most = growths.iter().map(|(_, growth)| growth.each_kib(options));
    if most.max().is_some_and(|each| each >= GROWTH_KIB_MAX) {
        bail!("a transfer takes {GROWTH_KIB_MAX} KiB or more");
    }
    Ok(())
}

/// The direction of the bodies.
#[derive(Clone, Copy)]
enum Direction {
    /// To agents that read slowly.
    Down,
    /// To a member that reads slowly.
    Up,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// Peak memory before and after the transfers, in KiB.
struct Growth {
    baseline: u64,
    slow: u64,
    peak: u64,
}

impl Growth {
    fn each_kib(&self, options: &Options) -> u64 {
        self.peak.saturating_sub(self.baseline) / options.transfers
    }
}

fn measure(direction: Direction, binary: &Path, options: &Options) -> Result<Growth> {
    let estate = TransferEstate::start(binary, options);
    let agent = estate.puppet.ca.agent("web01");
    let client = estate.client(&agent);
    ensure!(client.get(FILE).status == 200, "the proxy does not serve");
    let baseline = estate.puppet.proxy.memory_peak_kib();
    let pace = Arc::new(Pace::new(options));
    let transfers: Vec<_> = (0..options.transfers)
        .map(|_| {
            let (client, pace, bytes) = (client.clone(), Arc::clone(&pace), options.bytes);
            thread::spawn(move || match direction {
                Direction::Down => download(&client, &pace, bytes),
                Direction::Up => upload(&client, bytes),
            })
        })
        .collect();
    if matches!(direction, Direction::Up) {
        let pace = Arc::clone(&pace);
        estate.puppet.compilers[0].read_at(move |bytes| pace.count_and_delay(bytes));
    }
    let seen = print_progress(direction, &estate.puppet.proxy, &pace, options, &transfers);
    for transfer in transfers {
        transfer
            .join()
            .map_err(|_| anyhow!("a transfer broke off"))?
            .with_context(|| format!("a transfer {}", direction.name()))?;
    }
    if matches!(direction, Direction::Up) {
        let arrived: u64 = estate.puppet.compilers[0]
            .requests()
            .iter()
            .map(|r| r.body.length)
            .sum();
        ensure!(
            arrived == options.bytes * options.transfers,
            "{arrived} bytes arrived"
        );
    }
    Ok(Growth {
        baseline,
        slow: seen.slow,
        // The kernel updates the counters in batches, so even a high-water mark can fall a little.
        peak: seen.peak.max(estate.puppet.proxy.memory_peak_kib()),
    })
}

/// Peak memory that was read during the transfers.
#[derive(Default)]
struct ObservedPeaks {
    slow: u64,
    peak: u64,
}

/// Prints the progress until all transfers are complete.
fn print_progress(
    direction: Direction,
    proxy: &Proxy,
    pace: &Pace,
    options: &Options,
    transfers: &[JoinHandle<Result<()>>],
) -> ObservedPeaks {
    let mut seen = ObservedPeaks::default();
    let mut shown = Instant::now();
    while !transfers.iter().all(JoinHandle::is_finished) {
        thread::sleep(LOOK_INTERVAL);
        let peak = proxy.memory_peak_kib();
        seen.peak = seen.peak.max(peak);
        if pace.is_slow() {
            seen.slow = seen.slow.max(peak);
        }
        if shown.elapsed() >= PROGRESS_INTERVAL {
            shown = Instant::now();
            println!(
                "{:<5} {:>6} of {} MiB passed{}, peak {peak} KiB",
                direction.name(),
                pace.passed() >> 20,
                (options.bytes * options.transfers) >> 20,
                if pace.is_slow() { ", slowly" } else { "" },
            );
        }
    }
    seen
}

fn download(client: &Client, pace: &Pace, bytes: u64) -> Result<()> {
    let mut connection = client.connect()?;
    connection.send("GET", LARGE, &[("Connection", "close")], b"")?;
    let head = connection.read_head()?;
    ensure!(head.status == 200, "answered {}", head.status);
    let mut piece = vec![0; PIECE_BYTES];
    let mut total = 0;
    loop {
        match connection.read_some(&mut piece) {
            Ok(0) => break,
            Ok(n) => {
                total += n as u64;
                pace.count_and_delay(n);
            }
            // The count of bytes shows whether the response was complete, so a connection without close_notify is
            // accepted.
            Err(ClientError::Closed) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // Reading the head may also read the first bytes of the body.
    ensure!(
        (bytes.saturating_sub(PIECE_BYTES as u64)..=bytes).contains(&total),
        "{total} bytes came"
    );
    Ok(())
}

fn upload(client: &Client, bytes: u64) -> Result<()> {
    let mut connection = client.connect()?;
    let length = usize::try_from(bytes).context("a body for this machine")?;
    connection.send_raw(&connection.head("PUT", REPORT, &[], Some(length)))?;
    let piece = vec![b'x'; PIECE_BYTES];
    let mut left = length;
    while left > 0 {
        let n = left.min(piece.len());
        connection.send_raw(&piece[..n])?;
        left -= n;
    }
    let answer = connection.read_response()?;
    ensure!(answer.status == 200, "answered {}", answer.status);
    Ok(())
}

fn print_table(growths: &[(Direction, Growth)], options: &Options) {
    println!(
        "\n{} transfers at once of {} MiB, readers at {} kB/s for {} s, then unbounded; KiB of VmHWM",
        options.transfers,
        options.bytes >> 20,
        options.rate / 1000,
        options.slow_seconds,
    );
    println!(
        "{:<6} {:>10} {:>12} {:>10} {:>14} {:>8}",
        "", "baseline", "slow, peak", "peak", "a transfer", "bound"
    );
    for (direction, growth) in growths {
        println!(
            "{:<6} {:>10} {:>12} {:>10} {:>14} {:>8}",
            direction.name(),
            growth.baseline,
            growth.slow,
            growth.peak,
            growth.each_kib(options),
            GROWTH_KIB_MAX
        );
    }
}

/// The proxy with members over mutual TLS, and the proxy's clients.
struct TransferEstate {
    puppet: Estate,
    timeout: Duration,
}

impl TransferEstate {
    fn start(binary: &Path, options: &Options) -> Self {
        let binary = binary.to_owned();
        let puppet = EstateBuilder::new(|ca| Proxy::new(ca, binary))
            .compilers(1)
            .tls_members()
            .with("[upstream]\nagent_max_except = [\"*\"]\n")
            .start();
        let bytes = options.bytes;
        puppet.compilers[0]
            .answer(move |request| (request.target == LARGE).then(|| Reply::stream(bytes)));
        Self {
            puppet,
            timeout: PATIENCE + Duration::from_secs(options.slow_seconds),
        }
    }

    fn client(&self, agent: &TestCredential) -> Client {
        let client = self.puppet.proxy.client(Some(agent)).timeout(self.timeout);
        // Data that the kernel buffers for a slow reader is not memory of the proxy, but it delays backpressure.
        client.receive_buffer(PIECE_BYTES)
    }
}

/// Limits the speed of readers for a while, and counts the bytes that they read.
struct Pace {
    rate: u64,
    until: Instant,
    passed: AtomicU64,
}

impl Pace {
    fn new(options: &Options) -> Self {
        Self {
            rate: options.rate,
            until: Instant::now() + Duration::from_secs(options.slow_seconds),
            passed: AtomicU64::new(0),
        }
    }

    /// Counts the bytes that one reader read, and delays its next read while readers are slow.
    fn count_and_delay(&self, bytes: usize) {
        self.passed.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.is_slow() {
            thread::sleep(Duration::from_secs_f64(bytes as f64 / self.rate as f64));
        }
    }

    fn is_slow(&self) -> bool {
        Instant::now() < self.until
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

/// Parses a number with a unit, for example `64MiB` or `1MB/s`.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is neither a size such as 256MiB nor a rate such as 1MB/s");
    let size = text.strip_suffix("/s").unwrap_or(text);
    let digits = size.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = size.split_at(digits);
    let factor: u64 = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "kB" => 1_000,
        "MB" => 1_000_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

/// Maximum growth of the proxy's peak memory per transfer, in KiB.
const GROWTH_KIB_MAX: u64 = 2048;
const FILE: &str = "/puppet/v3/file_content/modules/motd/motd";
const LARGE: &str = "/puppet/v3/file_content/modules/motd/large";
const REPORT: &str = "/puppet/v3/report/web01?environment=production";
/// Size of a read, of a write, and of a client's receive buffer in the kernel.
const PIECE_BYTES: usize = 64 << 10;
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time that a client waits for bytes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_have_units() {
        for (text, expected) in [
            ("1GiB", Some(1 << 30)),
            ("64KiB", Some(64 << 10)),
            ("1MB/s", Some(1_000_000)),
            ("0MiB", Some(0)),
            ("1", None),
            ("GiB", None),
            ("1 GiB", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
    }
}
