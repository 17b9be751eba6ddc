//! Puppet Servers, agents and the proxy: `tests/lab/lab` in a directory and on addresses of the demonstration's own.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, exit},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use anyhow::{Context as _, Result, ensure};
use tokio::signal::unix::{SignalKind, signal};

use super::facts::{Arrival, Record};
use crate::workspace;

/// What runs; its end has to be asked for, and comes by itself on Ctrl-C and SIGTERM.
pub(super) struct Stack {
    directory: PathBuf,
    binary: PathBuf,
    commands: Arc<Commands>,
}

/// What a command of the lab came to.
pub(super) struct Outcome {
    pub(super) code: Option<i32>,
    pub(super) text: String,
}

/// A command of the lab that goes on.
pub(super) struct Running<'a> {
    stack: &'a Stack,
    child: Child,
}

/// How much each server, and the proxy, had written: what comes after it is new.
pub(super) struct Mark {
    arrivals: Vec<usize>,
    records: usize,
}

/// Process groups of the commands that run now, so that an interrupt can end them.
#[derive(Default)]
struct Commands(Mutex<BTreeSet<u32>>);

/// The servers behind the proxy.
pub(super) const MEMBERS: [&str; 3] = ["ca", "m1", "m2"];

impl Stack {
    /// CA, compilers and proxy, from nothing; each line that comes says what stands.
    pub(super) fn start(binary: &Path) -> Result<Self> {
        let stack = Self {
            directory: workspace::target().join("demo-real"),
            binary: binary.to_owned(),
            commands: Arc::default(),
        };
        stack.end_when_interrupted()?;
        println!(
            "Starting a Puppet CA, two compilers and the proxy (a minute or two on two cores)"
        );
        for command in ["clean", "up"] {
            let code = stack.spawn(&mut stack.lab(&[command]))?.wait()?.code;
            if code != Some(0) {
                stack.end()?;
            }
            ensure!(code == Some(0), "tests/lab/lab {command} failed");
        }
        Ok(stack)
    }

    /// Ends every process that it started, and removes its directory.
    pub(super) fn end(&self) -> Result<()> {
        workspace::run(self.lab(&["clean"]).stdin(Stdio::null()))
    }

    /// Runs a command of the lab to its end.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<Outcome> {
        self.begin(arguments, None)?.wait()
    }

    /// Starts a command of the lab; compilers hold its catalog until `hold` has a file `release`.
    pub(super) fn begin(&self, arguments: &[&str], hold: Option<&Path>) -> Result<Running<'_>> {
        let mut command = self.lab(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(hold) = hold {
            command.env("HOLD", hold);
        }
        self.spawn(&mut command)
    }

    /// A directory in which compilers say that they hold a catalog.
    pub(super) fn hold(&self, name: &str) -> Result<PathBuf> {
        let directory = self.directory.join("hold").join(name);
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// A file of the estate; empty where there is none.
    pub(super) fn read(&self, path: &str) -> String {
        fs::read(self.directory.join(path))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Where a server listens; tests/lab/servers.bash counts the same way.
    pub(super) fn address(&self, member: &str) -> String {
        let position = MEMBERS.iter().position(|name| *name == member);
        format!("{NET}.{}", 11 + position.unwrap_or_default())
    }

    /// What is in a directory of the estate.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.directory.join(path))
            .into_iter()
            .flatten();
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()
    }

    /// Until Ctrl-C, with lines to try.
    pub(super) fn keep(&self) -> Result<()> {
        let lab = format!(
            "sudo env LAB_DIR={} LAB_NET={NET} MEMBERS={MODE} tests/lab/lab",
            self.directory.display()
        );
        println!(
            "\nIt all runs on, until Ctrl-C. In another terminal:\n  {lab} agent web01\n  {lab} curl web01 /puppet/v3/node/web01.lab.test -i\n  {lab} help"
        );
        loop {
            thread::park();
        }
    }

    /// Everything that has been written up to now.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            arrivals: MEMBERS
                .iter()
                .map(|member| self.lines(member).len())
                .collect(),
            records: self.records().len(),
        }
    }

    /// Requests that servers have answered since, by their own logs.
    pub(super) fn arrivals_since(&self, mark: &Mark) -> Vec<Arrival> {
        let new = |(member, &seen): (&&str, &usize)| {
            let lines = self.lines(member).into_iter().skip(seen);
            lines
                .filter_map(|line| Arrival::parse(member, &line))
                .collect::<Vec<_>>()
        };
        MEMBERS.iter().zip(&mark.arrivals).flat_map(new).collect()
    }

    /// The proxy's access records since.
    pub(super) fn records_since(&self, mark: &Mark) -> Vec<Record> {
        self.records().split_off(mark.records)
    }

    fn lines(&self, member: &str) -> Vec<String> {
        whole_lines(&self.read(&format!("{member}/log/access.log")))
    }

    fn records(&self) -> Vec<Record> {
        let lines = whole_lines(&self.read("proxy/log/stdout.log"));
        lines
            .iter()
            .filter_map(|line| Record::parse(line))
            .collect()
    }

    fn lab(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(workspace::root().join("tests/lab/lab"));
        command
            .args(arguments)
            .env("LAB_DIR", &self.directory)
            .env("LAB_NET", NET)
            .env("MEMBERS", MODE)
            .env("PROSCENIUM", &self.binary);
        command
    }

    /// In a process group of its own, since a terminal's Ctrl-C is for us alone to act upon.
    fn spawn(&self, command: &mut Command) -> Result<Running<'_>> {
        let mut commands = self.commands.lock();
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        let child = child.context("tests/lab/lab does not start")?;
        commands.insert(child.id());
        drop(commands);
        Ok(Running { stack: self, child })
    }

    fn end_when_interrupted(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let commands = Arc::clone(&self.commands);
        let mut clean = self.lab(&["clean"]);
        thread::spawn(move || {
            runtime.block_on(async {
                let mut term = signal(SignalKind::terminate()).ok();
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    Some(_) = async { term.as_mut()?.recv().await } => {}
                }
            });
            // No command can begin any more, and nothing more is told.
            let running = commands.lock();
            let _silence = std::io::stdout().lock();
            for group in running.iter() {
                let _ended = Command::new("kill")
                    .args(["-TERM", "--", &format!("-{group}")])
                    .status();
            }
            let cleaned = workspace::run(clean.stdin(Stdio::null()).process_group(0));
            exit(if cleaned.is_ok() { INTERRUPTED } else { 1 });
        });
        Ok(())
    }
}

impl Running<'_> {
    /// Its status and all that it printed.
    pub(super) fn wait(self) -> Result<Outcome> {
        let id = self.child.id();
        let output = self.child.wait_with_output();
        self.stack.commands.lock().remove(&id);
        let output = output?;
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        Ok(Outcome {
            code: output.status.code(),
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Outcome {
    /// The lines that have one of these words.
    pub(super) fn lines_with(&self, words: &[&str]) -> String {
        let has_one = |line: &&str| words.iter().any(|word| line.contains(word));
        self.text
            .lines()
            .filter(has_one)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl Commands {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A last line without its end is still being written.
fn whole_lines(text: &str) -> Vec<String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}

/// Beside the lab's own 127.0.77, so that both can run.
const NET: &str = "127.0.78";
/// Six lines and the enrolled ssldir; see tests/adapters/lab.
const MODE: &str = "six";
/// What shells say of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;
