//! Agents that never retry, while the service changes. A request without an answer is lost, and a single lost request
//! fails the check.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use testkit::{Client, wait_until};

/// The state of the agents, and the results so far.
#[derive(Default)]
pub(super) struct Load {
    stops: AtomicBool,
    /// Whether the service is being restarted: an agent then connects again if its connection is refused.
    pub(super) is_restarted: AtomicBool,
    answered: AtomicU64,
    lost: Mutex<Vec<String>>,
}

impl Load {
    /// Runs `change` while the agents `web0`, `web1` and so on send requests, `requests` on each connection.
    pub(super) fn during<T>(
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
    pub(super) fn wait_for_more(&self, more: u64) -> Result<()> {
        let begun = Instant::now();
        let wanted = self.answered.load(Ordering::SeqCst) + more;
        wait_until(PATIENCE, || {
            (self.answered.load(Ordering::SeqCst) >= wanted).then_some(())
        })
        .with_context(|| format!("no {more} answers within {:?}", begun.elapsed()))
    }

    /// Prints the result.
    pub(super) fn end(&self, what: &str) -> Result<()> {
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

/// Longer than all agents need for one request each.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause of an agent whose connection is refused.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);
/// Errors printed at the end.
const ERRORS_SHOWN: usize = 10;
