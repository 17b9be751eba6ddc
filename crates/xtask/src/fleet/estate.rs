//! The proxies and their store.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Ca, CommandOutcome, EtcdCluster, Proxy, ProxyBuilder, wait_until};

/// Members of etcd.
pub(super) const STORE_MEMBERS: usize = 3;
/// Number of members whose states are set together; all are on one host.
pub(super) const MEMBERS: usize = 400;
/// The host of these members, and of all other servers.
pub(super) const HOST: &str = "127.0.0.1";
pub(super) const OTHER_HOST: &str = "127.0.0.2";
/// Maximum time until all proxies have applied a change.
const LIMIT: Duration = Duration::from_secs(180);
/// Time between two reads of the audit logs.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

pub(super) struct FleetEstate {
    pub(super) proxies: Vec<Proxy>,
    pub(super) store: EtcdCluster,
    /// Number of certnames that were blocked so far.
    blocked: AtomicUsize,
}

impl FleetEstate {
    /// Starts etcd and the proxies, and waits until each proxy knows all others.
    pub(super) fn start(binary: &Path, proxies: usize) -> Result<Self> {
        let ca = Ca::named("fleet");
        let store =
            EtcdCluster::start(&ca, STORE_MEMBERS).context("this needs etcd and etcdctl")?;
        let table = store.fleet_table();
        let proxies: Vec<_> = (1..=proxies)
            .map(|number| {
                let proxy = proxy(&ca, binary, &format!("p{number}"));
                proxy.with(&table).start()
            })
            .collect();
        let estate = Self {
            proxies,
            store,
            blocked: AtomicUsize::new(0),
        };
        estate.wait_until_equal()?;
        Ok(estate)
    }

    /// The version of etcd.
    pub(super) fn store_version(&self) -> String {
        let status = self
            .store
            .control(&["endpoint", "status", "-w", "json"], &[]);
        let status: Value = serde_json::from_slice(&status).unwrap_or_default();
        let version = &status[0]["Status"]["version"];
        format!(
            "{STORE_MEMBERS} members of etcd {}",
            version.as_str().unwrap_or_default()
        )
    }

    /// A number that no blocked certname has yet.
    pub(super) fn next_number(&self) -> usize {
        self.blocked.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until each proxy knows all others, and all proxies have the same records.
    pub(super) fn wait_until_equal(&self) -> Result<()> {
        let are_equal = |proxy: &Proxy| {
            let fleet = proxy.admin("GET", "/v1/fleet").json();
            let is_empty = |name: &str| fleet[name].as_array().is_some_and(Vec::is_empty);
            let proxies = fleet["proxies"].as_array().map(Vec::len);
            proxies == Some(self.proxies.len()) && is_empty("differences") && is_empty("refused")
        };
        let equal = wait_until(LIMIT, || self.proxies.iter().all(are_equal).then_some(()));
        equal.with_context(|| {
            let fleet = self.proxies[0].admin("GET", "/v1/fleet").json();
            format!("the proxies differ: {fleet:#}")
        })
    }

    /// Runs a command on a proxy, and measures the time until all other proxies have `changes` more lines in their
    /// audit logs. Also returns the result of the command, which may wait for longer.
    pub(super) fn measure(
        &self,
        number: usize,
        words: &[&str],
        arguments: &[&str],
        changes: usize,
    ) -> Result<(Duration, CommandOutcome)> {
        let mut logs: Vec<_> = self.proxies.iter().enumerate().collect();
        logs.retain(|(other, _)| *other != number);
        let mut logs: Vec<_> = logs
            .into_iter()
            .map(|(_, proxy)| AuditLog::of(proxy))
            .collect();
        let began = Instant::now();
        thread::scope(|scope| {
            let proxy = &self.proxies[number];
            let command = scope.spawn(|| proxy.command(words, arguments));
            while !logs.is_empty() {
                ensure!(
                    began.elapsed() < LIMIT,
                    "{words:?} {arguments:?} on {} has not reached {} proxies",
                    name(number),
                    logs.len()
                );
                logs.retain_mut(|log| log.lines() < changes);
                thread::sleep(LOOK_INTERVAL);
            }
            let took = began.elapsed();
            let outcome = command.join().ok().context("the command broke off")?;
            Ok((took, outcome))
        })
    }
}

/// The name of a proxy, by its index.
pub(super) fn name(index: usize) -> String {
    format!("p{}", index + 1)
}

/// A proxy without `[fleet]`. Its members are not probed, so that nothing else uses this machine.
pub(super) fn proxy(ca: &Ca, binary: &Path, name: &str) -> ProxyBuilder {
    let members = (1..=MEMBERS).map(|port| format!("\"{HOST}:{port}\""));
    let members = members.chain((1..=2).map(|port| format!("\"{OTHER_HOST}:{port}\"")));
    let members: Vec<_> = members.collect();
    Proxy::new(ca, binary).certname(name).with(&format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"{OTHER_HOST}:3\"]\ncheck = {{ type = \"none\" }}\n\
         [pools.compilers]\nscheme = \"http\"\nmembers = [{}]\ncheck = {{ type = \"none\" }}\n",
        members.join(", ")
    ))
}

/// The lines that a proxy appends to its audit log from now on.
struct AuditLog {
    path: PathBuf,
    begin: u64,
    /// The length at the last read, and the number of lines up to there.
    seen: (u64, usize),
}

impl AuditLog {
    fn of(proxy: &Proxy) -> Self {
        let path = proxy.state_directory().join("audit.log");
        let begin = length(&path);
        Self {
            path,
            begin,
            seen: (begin, 0),
        }
    }

    /// The number of complete lines since the beginning.
    fn lines(&mut self) -> usize {
        let length = length(&self.path);
        if length > self.seen.0 {
            let bytes = fs::read(&self.path).unwrap_or_default();
            let begin = usize::try_from(self.begin).unwrap_or(usize::MAX);
            let new = bytes.get(begin..).unwrap_or_default();
            self.seen = (length, new.iter().filter(|byte| **byte == b'\n').count());
        }
        self.seen.1
    }
}

fn length(path: &Path) -> u64 {
    // The log does not exist before the first change.
    fs::metadata(path).map_or(0, |file| file.len())
}

/// The load of this machine, on which the delays depend.
pub(super) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}
