//! `cargo xtask bench abuse`: the latency of one agent's small requests while another agent attacks, compared with the
//! latency of the same requests without an attack.
//!
//! The proxy has the last core and one worker, so that attacker and victim share a thread. The member is a plain HTTP
//! stand-in with the default limit of 128 connections, and `body_buffer_max` is 16 KiB. Each attack lasts while the
//! victim's requests are measured, which takes less time than `head_timeout` and `rate_grace`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use testkit::{
    Attacker, Client, ClientError, Estate, EstateBuilder, Protocol, Proxy, Reply, wait_until,
};

use super::cores::Cores;
use crate::workspace;

/// The size of the run.
#[derive(Args)]
pub(crate) struct Options {
    /// Rounds, each of which measures once without an attack and once under each
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The victim's requests in each measurement
    #[arg(long, default_value_t = 2_000)]
    requests: usize,
    /// The victim's connections
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// The attacker's connections, and its streams where it opens no window
    #[arg(long, default_value_t = 150)]
    attackers: usize,
}

/// Runs the rounds and prints the table. Fails if the member did not answer one of the victim's requests.
pub(super) fn run(options: &Options) -> Result<()> {
    if cfg!(debug_assertions) {
        return workspace::run_optimised();
    }
    ensure!(
        options.requests >= options.connections && options.connections > 0,
        "fewer requests than connections"
    );
    let binary = workspace::build_proscenium(true)?;
    let cores = Cores::here()?;
    cores.keep_us_off_the_last()?;
    // The stand-in servers and the raw client panic on an error, as in a test. The panic message is then on the
    // terminal.
    let series = catch_unwind(AssertUnwindSafe(|| measure_all(&binary, &cores, options)))
        .unwrap_or_else(|_| Err(anyhow!("a measurement broke off")))?;
    print_table(&series);
    let unanswered: usize = series.iter().map(|series| series.unanswered).sum();
    if unanswered > 0 {
        bail!("the member did not answer {unanswered} of the victim's requests");
    }
    Ok(())
}

/// A kind of attack.
struct Attack {
    name: &'static str,
    protocol: Protocol,
    /// Whether the attack occupies the connections to the member that one client may use.
    holds_share: bool,
    connections: fn(&Options) -> usize,
    begin: fn(&Client, &Options) -> Result<Attacker, ClientError>,
}

const ATTACKS: [Attack; 9] = [
    Attack {
        name: "slow heads, HTTP/1.1",
        protocol: Protocol::Http1,
        holds_share: false,
        connections: one_each,
        begin: slow_heads,
    },
    Attack {
        name: "slow heads, HTTP/2",
        protocol: Protocol::Http2,
        holds_share: false,
        connections: one_each,
        begin: slow_heads,
    },
    Attack {
        name: "slow bodies, HTTP/1.1",
        protocol: Protocol::Http1,
        holds_share: false,
        connections: one_each,
        begin: slow_bodies,
    },
    Attack {
        name: "slow bodies, HTTP/2",
        protocol: Protocol::Http2,
        holds_share: false,
        connections: one_each,
        begin: slow_bodies,
    },
    Attack {
        name: "slow large bodies, HTTP/1.1",
        protocol: Protocol::Http1,
        holds_share: true,
        connections: one_each,
        begin: slow_large_bodies,
    },
    Attack {
        name: "slow large bodies, HTTP/2",
        protocol: Protocol::Http2,
        holds_share: true,
        connections: one_each,
        begin: slow_large_bodies,
    },
    Attack {
        name: "no reading, HTTP/1.1",
        protocol: Protocol::Http1,
        holds_share: true,
        connections: one_each,
        begin: without_reading,
    },
    Attack {
        name: "no reading, HTTP/2",
        protocol: Protocol::Http2,
        holds_share: true,
        connections: one_each,
        begin: without_reading,
    },
    Attack {
        name: "windows of 0, HTTP/2",
        protocol: Protocol::Http2,
        holds_share: true,
        connections: |_| WINDOWLESS_CONNECTIONS,
        begin: without_window,
    },
];

fn one_each(options: &Options) -> usize {
    options.attackers
}

fn slow_heads(client: &Client, _: &Options) -> Result<Attacker, ClientError> {
    Attacker::slow_head(client, LARGE)
}

fn slow_bodies(client: &Client, _: &Options) -> Result<Attacker, ClientError> {
    Attacker::slow_body(client, REPORT, 30_000, 1)
}

fn slow_large_bodies(client: &Client, _: &Options) -> Result<Attacker, ClientError> {
    Attacker::slow_body(client, REPORT, 1 << 20, BODY_BUFFER_BYTES + 1)
}

fn without_reading(client: &Client, _: &Options) -> Result<Attacker, ClientError> {
    Attacker::without_reading(client, LARGE)
}

fn without_window(client: &Client, options: &Options) -> Result<Attacker, ClientError> {
    let streams = options.attackers.div_ceil(WINDOWLESS_CONNECTIONS);
    Attacker::without_window(client, LARGE, streams)
}

/// The measurements under one attack, in all rounds.
struct Series {
    name: &'static str,
    latencies: Vec<Duration>,
    unanswered: usize,
    /// The attacker's connections to the member at the end of the last round.
    held: f64,
}

impl Series {
    fn percentile(&self, percent: usize) -> Duration {
        let index = (self.latencies.len() * percent).div_ceil(100).max(1) - 1;
        self.latencies.get(index).copied().unwrap_or_default()
    }
}

fn measure_all(binary: &Path, cores: &Cores, options: &Options) -> Result<Vec<Series>> {
    let estate = AttackedEstate::start(binary, cores)?;
    let names = ATTACKS.iter().map(|attack| attack.name);
    let mut series: Vec<_> = std::iter::once("none")
        .chain(names)
        .map(|name| Series {
            name,
            latencies: Vec::new(),
            unanswered: 0,
            held: 0.0,
        })
        .collect();
    // Warm up the connections to the member and the code of all threads before the first measurement.
    estate.measure(
        &mut Series {
            name: "warm-up",
            latencies: Vec::new(),
            unanswered: 0,
            held: 0.0,
        },
        options,
    )?;
    for round in 1..=options.rounds {
        for (index, series) in series.iter_mut().enumerate() {
            let began = Instant::now();
            match index.checked_sub(1) {
                None => estate.measure(series, options)?,
                Some(attack) => estate.attack(&ATTACKS[attack], series, options)?,
            }
            println!(
                "round {round}: {:<28} {:5.1} s",
                series.name,
                began.elapsed().as_secs_f64()
            );
        }
    }
    for series in &mut series {
        series.latencies.sort_unstable();
    }
    Ok(series)
}

/// The proxy in front of one stand-in compiler.
struct AttackedEstate(Estate);

impl AttackedEstate {
    fn start(binary: &Path, cores: &Cores) -> Result<Self> {
        let binary = binary.to_owned();
        let estate = EstateBuilder::new(|ca| Proxy::new(ca, binary))
            .compilers(1)
            .proxy(|proxy| {
                proxy.top("workers = 1").with(&format!(
                    "[upstream]\nagent_max_except = [\"*\"]\nbody_buffer_max = \"{BODY_BUFFER_BYTES}B\"\n"
                ))
            })
            .start();
        estate.compilers[0].answer(|request| match request.path() {
            LARGE => Some(Reply::stream(64 << 20)),
            SMALL => Some(Reply::ok(ANSWER)),
            _ => None,
        });
        cores.move_to_the_last(estate.proxy.pid())?;
        Ok(Self(estate))
    }

    /// Measures the victim's requests under an attack.
    fn attack(&self, attack: &Attack, series: &mut Series, options: &Options) -> Result<()> {
        let agent = self.0.ca.agent("attacker.example.com");
        let client = self.0.proxy.client(Some(&agent)).protocol(attack.protocol);
        let begin = || (attack.begin)(&client, options);
        let mut attackers = (0..(attack.connections)(options))
            .map(|_| begin())
            .collect::<Result<Vec<_>, _>>()
            .with_context(|| format!("{}: the attack does not begin", attack.name))?;
        if attack.holds_share {
            let holds = || (self.in_flight() >= CLIENT_SHARE).then_some(());
            wait_until(PATIENCE, holds)
                .with_context(|| format!("{}: the attack holds no connections", attack.name))?;
        }
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    thread::sleep(STEP);
                    attackers
                        .iter_mut()
                        .for_each(|attacker| send_next_byte(attacker, begin));
                }
            });
            let measured = self.measure(series, options);
            over.store(true, Ordering::Relaxed);
            measured
        })?;
        series.held = self.in_flight();
        drop(attackers);
        // Wait until the attacker's connections to the member are free again.
        wait_until(PATIENCE, || (self.in_flight() == 0.0).then_some(()))
            .with_context(|| format!("{}: connections to the member stay open", attack.name))?;
        self.0.compilers[0].forget();
        Ok(())
    }

    /// Sends the victim's requests, one after the other on each connection.
    fn measure(&self, series: &mut Series, options: &Options) -> Result<()> {
        let client = self
            .0
            .proxy
            .client(Some(&self.0.ca.agent("victim.example.com")));
        let each = options.requests / options.connections;
        let results = thread::scope(|scope| {
            let victims: Vec<_> = (0..options.connections)
                .map(|_| scope.spawn(|| request_all(&client, each)))
                .collect();
            victims
                .into_iter()
                .map(|victim| victim.join().map_err(|_| anyhow!("a victim broke off")))
                .collect::<Result<Vec<_>>>()
        })?;
        for (latencies, unanswered) in results {
            series.latencies.extend(latencies);
            series.unanswered += unanswered;
        }
        Ok(())
    }

    /// Number of requests in flight to the member.
    fn in_flight(&self) -> f64 {
        let metrics = self.0.proxy.metrics();
        metrics.sum("proscenium_member_in_flight", &[])
    }
}

/// Sends one more byte. If the proxy has closed the attacker's connection, the attacker connects again.
fn send_next_byte(attacker: &mut Attacker, begin: impl Fn() -> Result<Attacker, ClientError>) {
    if attacker.step().is_err()
        && let Ok(next) = begin()
    {
        *attacker = next;
    }
}

/// The latency of each request, and the number of requests that the member did not answer. A connection that fails is
/// replaced.
fn request_all(client: &Client, requests: usize) -> (Vec<Duration>, usize) {
    let (mut latencies, mut unanswered) = (Vec::with_capacity(requests), 0);
    let mut connection = client.connect().ok();
    for _ in 0..requests {
        let began = Instant::now();
        let answer = match &mut connection {
            Some(connection) => connection.try_request("GET", SMALL, &[], b"").ok(),
            None => None,
        };
        latencies.push(began.elapsed());
        if !answer.is_some_and(|answer| answer.status == 200 && answer.text() == ANSWER) {
            unanswered += 1;
            connection = client.connect().ok();
        }
    }
    (latencies, unanswered)
}

fn print_table(series: &[Series]) {
    println!(
        "\n{:<28} {:>8} {:>12} {:>7} {:>8} {:>8} {:>12}",
        "attack", "requests", "not answered", "held", "p50, ms", "p99, ms", "p99 : none"
    );
    let undisturbed = series[0].percentile(99).as_secs_f64();
    for series in series {
        let [p50, p99] = [50, 99].map(|percent| series.percentile(percent).as_secs_f64());
        println!(
            "{:<28} {:>8} {:>12} {:>7} {:>8.2} {:>8.2} {:>12.2}",
            series.name,
            series.latencies.len(),
            series.unanswered,
            series.held,
            p50 * 1e3,
            p99 * 1e3,
            p99 / undisturbed
        );
    }
}

const SMALL: &str = "/puppet/v3/file_metadata/modules/ntp/ntp.conf";
const LARGE: &str = "/puppet/v3/file_content/modules/m/large";
const REPORT: &str = "/puppet/v3/report/attacker.example.com?environment=production";
/// The member's response to the victim. The proxy itself never sends it.
const ANSWER: &str = "{\"path\":\"/etc/puppetlabs/code/modules/ntp/files/ntp.conf\",\"owner\":0,\"group\":0,\"mode\":420}";
/// `body_buffer_max` in this benchmark. It is smaller than HTTP/2's stream window, so that an attacker can always send
/// one more byte. The bodies of all attackers fit in their part of `body_buffers_max`.
const BODY_BUFFER_BYTES: usize = 16 << 10;
/// The default share of one client: a quarter of the 128 connections to the member.
const CLIENT_SHARE: f64 = 32.0;
/// Number of connections whose streams have no window: one connection has at most `streams_max` streams.
const WINDOWLESS_CONNECTIONS: usize = 2;
/// Time between two bytes of a slow connection.
const STEP: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);
