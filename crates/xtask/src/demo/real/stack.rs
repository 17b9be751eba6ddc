//! Puppet Servers, agents and the proxy: runs `tests/lab/lab` in the demonstration's own directory and on its own
//! addresses.

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

/// The running lab. The caller must stop it with `end`; Ctrl-C and SIGTERM also stop it.
pub(super) struct Stack {
    directory: PathBuf,
    binary: PathBuf,
    commands: Arc<Commands>,
}

/// Exit status and output of a lab command.
pub(super) struct CommandOutcome {
    pub(super) code: Option<i32>,
    pub(super) text: String,
}

/// A lab command that is still running.
pub(super) struct Running<'a> {
    stack: &'a Stack,
    child: Child,
}

/// The length of each server's log and of the proxy's log at one moment. Later lines are new.
pub(super) struct Mark {
    arrivals: Vec<usize>,
    records: usize,
}

/// Process groups of the running commands, so that an interrupt can stop them.
#[derive(Default)]
struct Commands(Mutex<BTreeSet<u32>>);

/// The servers behind the proxy.
pub(super) const MEMBERS: [&str; 3] = ["ca", "m1", "m2"];

impl Stack {
    /// Starts the CA, the compilers and the proxy in an empty directory. The lab prints each server that is up.
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

    /// Stops every process that the lab started, and removes its directory.
    pub(super) fn end(&self) -> Result<()> {
        workspace::run(self.lab(&["clean"]).stdin(Stdio::null()))
    }

    /// Runs a lab command and waits for it.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<CommandOutcome> {
        self.begin(arguments, None)?.wait()
    }

    /// Starts a lab command. Compilers hold its catalog until the directory `hold` contains a file `release`.
    pub(super) fn begin(&self, arguments: &[&str], hold: Option<&Path>) -> Result<Running<'_>> {
        let mut command = self.lab(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(hold) = hold {
            command.env("HOLD", hold);
        }
        self.spawn(&mut command)
    }

    /// Creates a directory in which compilers note that they hold a catalog.
    pub(super) fn hold(&self, name: &str) -> Result<PathBuf> {
        let directory = self.directory.join("hold").join(name);
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// The content of a file of the lab; empty if the file is missing.
    pub(super) fn read(&self, path: &str) -> String {
        fs::read(self.directory.join(path))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The address of a server. tests/lab/servers.bash numbers them in the same order.
    pub(super) fn address(&self, member: &str) -> String {
        let position = MEMBERS.iter().position(|name| *name == member);
        format!("{NET}.{}", 11 + position.unwrap_or_default())
    }

    /// The file names in a directory of the lab.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.directory.join(path))
            .into_iter()
            .flatten();
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()
    }

    /// Prints commands to try and waits for Ctrl-C.
    pub(super) fn keep(&self) -> Result<()> {
        let lab = format!(
            "sudo env LAB_DIR={} LAB_NET={NET} MEMBERS={MODE} tests/lab/lab",
            self.directory.display()
        );
        println!(
            "\nEverything keeps running until Ctrl-C. In another terminal:\n  {lab} agent web01\n  {lab} curl web01 /puppet/v3/node/web01.lab.test -i\n  {lab} help"
        );
        loop {
            thread::park();
        }
    }

    /// Marks the current end of every log.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            arrivals: MEMBERS
                .iter()
                .map(|member| self.lines(member).len())
                .collect(),
            records: self.records().len(),
        }
    }

    /// Requests that servers answered since the mark, from their own logs.
    pub(super) fn arrivals_since(&self, mark: &Mark) -> Vec<Arrival> {
        let new = |(member, &seen): (&&str, &usize)| {
            let lines = self.lines(member).into_iter().skip(seen);
            lines
                .filter_map(|line| Arrival::parse(member, &line))
                .collect::<Vec<_>>()
        };
        MEMBERS.iter().zip(&mark.arrivals).flat_map(new).collect()
    }

    /// The proxy's access records since the mark.
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

    /// Starts the command in its own process group, so that a terminal's Ctrl-C reaches only this program.
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
            // While these locks are held, no command starts and nothing is printed.
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
    /// Waits for the command; returns its exit status and output.
    pub(super) fn wait(self) -> Result<CommandOutcome> {
        let id = self.child.id();
        let output = self.child.wait_with_output();
        self.stack.commands.lock().remove(&id);
        let output = output?;
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        Ok(CommandOutcome {
            code: output.status.code(),
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    }

    /// Whether the command has exited.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl CommandOutcome {
    /// The output lines that contain one of these words.
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

/// The complete lines. A last line without a line break is still being written.
fn whole_lines(text: &str) -> Vec<String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}

/// The lab itself uses 127.0.77, so both can run at the same time.
const NET: &str = "127.0.78";
/// The six-line configuration with the enrolled ssldir; see tests/adapters/lab.
const MODE: &str = "six";
/// The exit status that shells report for a program ended by Ctrl-C.
const INTERRUPTED: i32 = 130;
