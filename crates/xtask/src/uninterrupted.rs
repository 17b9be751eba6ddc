//! `cargo xtask handover` and `cargo xtask reload-storm`: agents that never retry, while the program is replaced or its
//! configuration reloaded. A request without its answer is lost, and one lost request fails the command.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use testkit::{Ca, Client, Proxy, Servers, wait_until};

use crate::workspace;

/// Options of `handover`.
#[derive(Args)]
pub(crate) struct HandOverOptions {
    /// Agents that run in a loop
    #[arg(long, default_value_t = 100)]
    agents: usize,
    /// Hand-overs; the fourth is to a program that fails
    #[arg(long, default_value_t = 10)]
    hand_overs: usize,
    /// Use the debug build of `cargo test`
    #[arg(long)]
    debug: bool,
}

/// Options of `reload-storm`.
#[derive(Args)]
pub(crate) struct ReloadOptions {
    /// Connections that are always busy
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Reloads, each with a changed configuration
    #[arg(long, default_value_t = 200)]
    reloads: usize,
    /// KiB by which resident memory may grow from the first quarter of the reloads to the end
    #[arg(long, default_value_t = 4096)]
    growth_kib_max: u64,
    /// Use the debug build of `cargo test`
    #[arg(long)]
    debug: bool,
}

/// Replaces the program again and again under load.
pub(crate) fn hand_over(options: &HandOverOptions) -> Result<()> {
    let binary = workspace::build_proscenium(!options.debug)?;
    without_panic(|| {
        let estate = Estate::start(&binary);
        let load = Load::default();
        let printed = load.during(estate.agents(options.agents), RUN_REQUESTS, || {
            for number in 1..=options.hand_overs {
                match number == BROKEN {
                    true => estate.fail_to_hand_over()?,
                    false => estate.hand_over()?,
                }
                println!(
                    "hand-over {number} of {}: {} requests so far",
                    options.hand_overs,
                    load.answered.load(Ordering::SeqCst)
                );
                load.wait_for_more(options.agents as u64 * 2)?;
            }
            Ok(format!(
                "{} hand-overs, one of them to a program that fails",
                options.hand_overs
            ))
        })?;
        load.end(&printed)
    })
}

/// Reloads again and again under load.
pub(crate) fn reload_storm(options: &ReloadOptions) -> Result<()> {
    let binary = workspace::build_proscenium(!options.debug)?;
    without_panic(|| {
        let estate = Estate::start(&binary);
        let load = Load::default();
        let printed = load.during(estate.agents(options.connections), usize::MAX, || {
            let mut warm = 0;
            for number in 1..=options.reloads {
                let (from, to) = match number % 2 {
                    1 => ("attempts_max = 3", "attempts_max = 2"),
                    _ => ("attempts_max = 2", "attempts_max = 3"),
                };
                estate.proxy.edit_config(from, to);
                let outcome = estate.proxy.reload();
                ensure!(outcome["result"] == "applied", "{outcome:#}");
                load.wait_for_more(options.connections as u64)?;
                if number == options.reloads.div_ceil(4) {
                    warm = resident_kib(&estate.proxy)?;
                }
            }
            let end = resident_kib(&estate.proxy)?;
            ensure!(
                end <= warm + options.growth_kib_max,
                "resident memory has grown from {warm} KiB to {end} KiB"
            );
            Ok(format!(
                "{} reloads, resident memory {warm} KiB after a quarter of them and {end} KiB at the end",
                options.reloads
            ))
        })?;
        load.end(&printed)
    })
}

/// Runs the measurement. A stand-in panics where a test would fail.
pub(crate) fn without_panic(run: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(anyhow!("it broke off; the reason is above")))
}

/// The servers, and the proxy in front.
struct Estate {
    proxy: Proxy,
    ca: Ca,
    _servers: Servers,
}

impl Estate {
    fn start(binary: &Path) -> Self {
        let ca = Ca::named("uninterrupted");
        let servers = Servers::plain(&ca);
        let members: Vec<_> = servers.compilers.iter().map(|c| c.address()).collect();
        let proxy = Proxy::new(&ca, binary)
            .own_copy()
            .with(&format!(
                "[upstream]\nattempts_max = 3\n\
                 [pools.ca]\nscheme = \"http\"\nmembers = [{:?}]\n\
                 [pools.compilers]\nscheme = \"http\"\nmembers = {members:?}\n",
                servers.ca_server.address()
            ))
            .start();
        proxy.wait_for_members(&["compilers"]);
        Self {
            proxy,
            ca,
            _servers: servers,
        }
    }

    fn agents(&self, count: usize) -> Vec<Client> {
        let agent = |number| self.ca.agent(&format!("web{number}"));
        (0..count)
            .map(|number| self.proxy.client(Some(&agent(number))))
            .collect()
    }

    /// Replaces the program by another build, as a package manager does, and starts it.
    fn hand_over(&self) -> Result<()> {
        self.replace_program(|program| program.push(0))?;
        let mut former = self
            .proxy
            .take_over()
            .map_err(|outcome| anyhow!("no hand-over: {}", outcome.stderr))?;
        let outcome = former.wait_for_end(END);
        ensure!(
            outcome.code == Some(0) && outcome.stderr.contains(" cut=0 "),
            "the former process has not finished its connections: {}",
            outcome.stderr
        );
        Ok(())
    }

    /// Replaces the program by one that fails, reloads, and restores it.
    fn fail_to_hand_over(&self) -> Result<()> {
        let path = self.proxy.program();
        let program = fs::read(&path)?;
        self.replace_program(|program| *program = b"#!/bin/sh\nexit 1\n".to_vec())?;
        let outcome = self.proxy.reload();
        ensure!(outcome["result"] == "failed", "{outcome:#}");
        self.replace_program(|broken| *broken = program)
    }

    fn replace_program(&self, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let path = self.proxy.program();
        let mut program = fs::read(&path)?;
        change(&mut program);
        let new = path.with_extension("new");
        fs::write(&new, program)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
        Ok(fs::rename(new, path)?)
    }
}

/// What the agents do and have seen.
#[derive(Default)]
pub(crate) struct Load {
    stops: AtomicBool,
    /// The service is restarted: a connection that is refused is made again.
    pub(crate) is_restarted: AtomicBool,
    answered: AtomicU64,
    lost: Mutex<Vec<String>>,
}

impl Load {
    /// Runs `change` while the agents `web0`, `web1` and so on send requests, `requests` on each connection.
    pub(crate) fn during<T>(
        &self,
        agents: Vec<Client>,
        requests: usize,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let count = agents.len() as u64;
        thread::scope(|scope| {
            for (number, client) in agents.into_iter().enumerate() {
                scope.spawn(move || self.run(&client, number, requests));
            }
            let changed = self.wait_for_more(count).and_then(|()| change());
            self.stops.store(true, Ordering::SeqCst);
            changed
        })
    }

    /// One agent: sends requests until the end, and retries none.
    fn run(&self, client: &Client, number: usize, requests: usize) {
        let target = format!("/puppet/v3/catalog/web{number}?environment=production");
        while !self.stops.load(Ordering::SeqCst) {
            let mut connection = match client.connect() {
                Ok(connection) => connection,
                Err(_) if self.is_restarted.load(Ordering::SeqCst) => {
                    thread::sleep(CONNECT_PAUSE);
                    continue;
                }
                Err(error) => {
                    self.lose(format!("connect: {error}"));
                    continue;
                }
            };
            for _ in 0..requests {
                match connection.try_request("GET", &target, &[], b"") {
                    Ok(answer) if answer.status == 200 => {
                        self.answered.fetch_add(1, Ordering::SeqCst);
                        if answer.says_close() || self.stops.load(Ordering::SeqCst) {
                            break;
                        }
                    }
                    Ok(answer) => {
                        self.lose(format!("status {}", answer.status));
                        break;
                    }
                    Err(error) => {
                        self.lose(format!("request: {error}"));
                        break;
                    }
                }
            }
        }
    }

    fn lose(&self, why: String) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.push(why);
    }

    /// Waits until this many more requests are answered, or one is lost.
    pub(crate) fn wait_for_more(&self, more: u64) -> Result<()> {
        let begun = Instant::now();
        let wanted = self.answered.load(Ordering::SeqCst) + more;
        wait_until(PATIENCE, || {
            (self.answered.load(Ordering::SeqCst) >= wanted).then_some(())
        })
        .with_context(|| format!("no {more} answers within {:?}", begun.elapsed()))
    }

    /// Prints the result.
    pub(crate) fn end(&self, what: &str) -> Result<()> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = self.answered.load(Ordering::SeqCst);
        println!("{what}: {answered} requests answered, {} lost", lost.len());
        for why in lost.iter().take(ERRORS_SHOWN) {
            println!("  lost: {why}");
        }
        ensure!(lost.is_empty(), "{} requests were lost", lost.len());
        Ok(())
    }
}

fn resident_kib(proxy: &Proxy) -> Result<u64> {
    let status = proxy.status();
    let bytes = status["process"]["resident_bytes"].as_u64();
    Ok(bytes.context("no memory in the status")? >> 10)
}

/// Requests of an agent on one connection.
const RUN_REQUESTS: usize = 5;
/// The hand-over to a program that fails.
const BROKEN: usize = 4;
/// Longer than a process takes to finish its connections.
const END: Duration = Duration::from_secs(90);
/// Longer than agents take for a request each.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause of an agent whose connection is refused.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);
/// Errors printed at the end.
const ERRORS_SHOWN: usize = 10;
