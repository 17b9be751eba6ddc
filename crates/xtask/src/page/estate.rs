//! The estate behind the page: three compilers with JRubies, agents that run, and problems.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use serde_json::json;
use testkit::{Client, Estate, EstateBuilder, OperatorPage, Proxy, Recorded, Reply};

/// Everything that runs.
pub(super) struct PageEstate {
    pub(super) estate: Estate,
    binary: PathBuf,
}

impl PageEstate {
    /// Starts everything and waits until the members are up.
    pub(super) fn start(binary: &Path) -> Self {
        let program = binary.to_owned();
        let estate = EstateBuilder::new(move |ca| Proxy::new(ca, &program))
            .compilers(3)
            .compiler_pool(
                "check = { interval = \"1s\", fast_interval = \"1s\", rise = 1, fall = 2 }\n\
                 # Members that are warming are not compared with others.\n\
                 slow_start_requests = 1",
            )
            .ca_pool("check = { interval = \"1s\", fast_interval = \"1s\", rise = 1, fall = 2 }")
            .start();
        for (index, compiler) in estate.compilers.iter().enumerate() {
            compiler.answer(move |request| answer(request, index as u64));
        }
        Self {
            estate,
            binary: binary.to_owned(),
        }
    }

    /// Serves the page of `proscenium ui` with these arguments.
    pub(super) fn page(&self, arguments: &[&str]) -> OperatorPage {
        let config = self.estate.proxy.config_path();
        OperatorPage::start(&self.binary, &config, arguments, Stdio::null())
    }

    /// A client with a certificate of this name.
    pub(super) fn agent(&self, certname: &str) -> Client {
        self.estate.client(&self.estate.ca.agent(certname))
    }

    /// One compiler is much slower than the others for as long as these catalogs are compared, and two catalogs fail.
    pub(super) fn have_numbers(&self) {
        let compilers = self.estate.compilers.len();
        thread::scope(|scope| {
            for n in 0..2 * compilers {
                let name = format!("{SLOW}{n}.example.com");
                let agent = self.agent(&name);
                scope.spawn(move || {
                    for _ in 0..CATALOGS_TO_COMPARE {
                        assert_eq!(agent.get(&catalog(&name)).status, 200);
                    }
                });
            }
        });
        let name = format!("{BROKEN}.example.com");
        for _ in 0..2 {
            assert_eq!(self.agent(&name).get(&catalog(&name)).status, 500);
        }
    }

    /// One compiler fails, another is drained, and agents are refused.
    pub(super) fn have_problems(&self) {
        let proxy = &self.estate.proxy;
        self.estate.compilers[2].kill();
        let member = self.estate.compilers[1].address();
        proxy.command(
            &["drain", "compilers", &member, "--why", "kernel update"],
            &[],
        );
        proxy.command(&["block", "web07.example.com", "--why", "stolen"], &[]);
        let stolen = self.agent("web07.example.com");
        assert_eq!(stolen.get(&catalog("web07.example.com")).status, 403);
        let unknown = testkit::Ca::other();
        let stranger = self.estate.client(&unknown.agent("web99.example.org"));
        assert_eq!(stranger.get(&catalog("web99.example.org")).status, 403);
    }
}

/// Names of agents whose catalogs the last compiler takes long for.
const SLOW: &str = "compared";
/// Names of agents whose catalogs fail.
const BROKEN: &str = "broken";
/// Enough for a comparison of the members, with some more for each than that needs.
const CATALOGS_TO_COMPARE: usize = 40;

/// The path of an agent's catalog.
pub(super) fn catalog(certname: &str) -> String {
    format!("/puppet/v3/catalog/{certname}?environment=production")
}

fn answer(request: &Recorded, index: u64) -> Option<Reply> {
    if request.is_jruby_reading() {
        return Some(jrubies(4, index % 3));
    }
    if request.path().contains(BROKEN) {
        return Some(Reply::status(500));
    }
    // Some members and paths take longer.
    let milliseconds = match request.path() {
        path if path.contains(SLOW) && index == 2 => 900,
        path if path.contains("/catalog/") => 120 + 90 * index,
        path if path.contains("/report/") => 40,
        path if path.contains("/file_") => 5,
        _ => return None,
    };
    let reply = Reply::json(&json!({"name": "x", "classes": [], "resources": []}));
    Some(reply.delay(Duration::from_millis(milliseconds)))
}

/// The response of Puppet Server 8 about its JRubies.
fn jrubies(count: u64, free: u64) -> Reply {
    Reply::jrubies(&json!({
        "num-jrubies": count, "num-free-jrubies": free, "requested-count": 52, "borrow-count": 52,
        "borrow-retry-count": 0, "borrow-timeout-count": 0, "average-borrow-time": 321, "average-wait-time": 12,
        "requested-instances": [], "queue-limit-hit-count": 0, "queue-limit-hit-rate": 0.0,
    }))
}

/// Agents that run one after the other until this is dropped.
pub(super) struct Traffic {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    /// Starts the agents.
    pub(super) fn start(estate: &PageEstate) -> Self {
        let names = (1..=12).map(|n| format!("web{n:02}.example.com"));
        let agents: Vec<_> = names.map(|name| (estate.agent(&name), name)).collect();
        let ends = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            for turn in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (agent, name) = &agents[turn % agents.len()];
                one_run(agent, name);
                // The minutes differ, so that the chart of the run interval has a pattern.
                let minute = std::time::UNIX_EPOCH
                    .elapsed()
                    .unwrap_or_default()
                    .as_secs()
                    / 60;
                sleep(Duration::from_millis(150 + 250 * (minute % 5)));
            }
        });
        Self {
            ends,
            thread: Some(thread),
        }
    }

    /// Lets the agents run for this time.
    pub(super) fn run_for(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
                return Err(anyhow!("the agents have ended"));
            }
            sleep(Duration::from_secs(1));
        }
        Ok(())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed on the terminal.
            let _ = thread.join();
        }
    }
}

/// Sends the requests of one run. Blocked agents are refused.
fn one_run(agent: &Client, name: &str) {
    let Ok(mut connection) = agent.connect() else {
        return;
    };
    let report = format!("/puppet/v3/report/{name}?environment=production");
    for (method, target) in [
        (
            "GET",
            format!("/puppet/v3/node/{name}?environment=production"),
        ),
        (
            "GET",
            "/puppet/v3/file_metadatas/plugins?environment=production".to_owned(),
        ),
        ("POST", catalog(name)),
        (
            "GET",
            "/puppet/v3/file_content/modules/motd/motd?environment=production".to_owned(),
        ),
        ("PUT", report),
    ] {
        let body: &[u8] = if method == "GET" { b"" } else { b"{}" };
        let fields = [("Content-Type", "application/json")];
        if connection
            .try_request(method, &target, &fields, body)
            .is_err()
        {
            return;
        }
    }
}
