//! The proxy under test: the built program in a separate directory, with its configuration, records and metrics.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    net::SocketAddr,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    ca::{Ca, TestCredential, write_file},
    client::{Client, Protocol},
    client_error::ClientError,
    log::Log,
    message::Response,
    metrics::ScrapedMetrics,
    port::HeldPort,
    wait::wait_until,
};

/// Maximum time for a start: sufficient for a debug build on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Maximum time for an action of a running proxy, other than answering a request.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// The result of a command.
#[derive(Clone, Debug)]
pub struct CommandOutcome {
    /// Exit code; `None` if a signal ended the program.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs the program with these arguments, and waits for it.
///
/// # Panics
/// The program cannot be run, or it panicked.
#[track_caller]
pub fn command_line<S: AsRef<OsStr>>(binary: &Path, arguments: &[S]) -> CommandOutcome {
    run_to_end(Command::new(binary).args(arguments), binary)
}

#[track_caller]
fn run_to_end(command: &mut Command, binary: &Path) -> CommandOutcome {
    let output = command
        .stdin(Stdio::null())
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", binary.display()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let outcome = CommandOutcome {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    };
    assert_no_panic(&outcome.stderr);
    outcome
}

/// A command that runs the program, with this shell line before it.
fn launched(binary: &Path, launcher: Option<&str>) -> Command {
    let Some(launcher) = launcher else {
        return Command::new(binary);
    };
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("{launcher} \"$0\" \"$@\""))
        .arg(binary);
    command
}

/// A proxy that has not started. In all TOML text `{dir}` stands for its directory and `{port}` for its port.
pub struct ProxyBuilder {
    binary: PathBuf,
    ca: Ca,
    certname: String,
    credential: Option<TestCredential>,
    top: Vec<String>,
    listener: Vec<String>,
    access_log: Vec<String>,
    access_log_alone: Option<String>,
    materials: String,
    admin: String,
    fetch: String,
    tables: Vec<String>,
    whole: Option<String>,
    files: Vec<(String, String, u32)>,
    links: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    journal: bool,
    arguments: Vec<String>,
    runs_own_copy: bool,
    launcher: Option<String>,
    protocol: Protocol,
}

impl ProxyBuilder {
    /// Sets a limit of the process, with these arguments of the shell's `ulimit`: `-n 256`.
    pub fn ulimit(mut self, arguments: &str) -> Self {
        self.launcher = Some(format!("ulimit {arguments} && exec"));
        self
    }

    /// Runs the process without the permission to use a system call. Needs [`Tool::Strace`](crate::Tool::Strace).
    pub fn refusing(mut self, system_call: &str) -> Self {
        // strace is detached, so that the process that the test started becomes the proxy.
        self.launcher = Some(format!(
            "exec strace -D -f -qq --seccomp-bpf -e trace={system_call} -e inject={system_call}:error=EPERM -o /dev/null"
        ));
        self
    }

    /// Runs a copy of the program. The copy is in the proxy's directory under the name `program`, and the test may
    /// replace it.
    pub fn own_copy(mut self) -> Self {
        self.runs_own_copy = true;
        self
    }

    /// Sets the protocol of the proxy's clients. Default HTTP/1.1.
    pub fn speaking(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Adds TOML that begins with a table header.
    pub fn with(mut self, tables: &str) -> Self {
        self.tables.push(tables.to_owned());
        self
    }

    /// Configures both pools over plain HTTP, with members that do not exist.
    pub fn without_members(self) -> Self {
        self.with(
            "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
             [pools.compilers]\nscheme = \"http\"\nmembers = [\"127.0.0.1:2\"]",
        )
    }

    /// Adds a line of TOML before the first table.
    pub fn top(mut self, line: &str) -> Self {
        self.top.push(line.to_owned());
        self
    }

    /// Adds a line to `[listeners.agents]`.
    pub fn listener(mut self, line: &str) -> Self {
        self.listener.push(line.to_owned());
        self
    }

    /// Adds a line to `[access_log]`, whose path and format are already set.
    pub fn access_log(mut self, line: &str) -> Self {
        self.access_log.push(line.to_owned());
        self
    }

    /// Writes `[access_log]` with only these lines; the test reads the records itself.
    pub fn access_log_alone(mut self, lines: &str) -> Self {
        self.access_log_alone = Some(lines.to_owned());
        self
    }

    /// Writes `[materials]` with these lines. By default nothing is watched, so a test that writes files decides when
    /// they are loaded.
    pub fn materials(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.materials);
        self
    }

    /// Writes `[admin]` with the socket and these lines.
    pub fn admin(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.admin);
        self
    }

    /// Writes `[trust.fetch]` with these lines. By default no CRL is fetched, so a test that revokes decides when the
    /// CRL is loaded.
    pub fn fetch(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.fetch);
        self
    }

    /// Sets another certname for the ssldir. Default `puppet`.
    pub fn certname(mut self, name: &str) -> Self {
        name.clone_into(&mut self.certname);
        self
    }

    /// Puts this credential into the ssldir, in place of one made for `certname`.
    pub fn credential(mut self, credential: &TestCredential) -> Self {
        self.certname.clone_from(&credential.certname);
        self.credential = Some(credential.clone());
        self
    }

    /// Replaces the whole configuration; `{dir}` and `{port}` still apply.
    pub fn whole(mut self, text: &str) -> Self {
        self.whole = Some(text.to_owned());
        self
    }

    /// Adds a file to the proxy's directory.
    pub fn file(mut self, name: &str, text: &str, mode: u32) -> Self {
        self.files.push((name.to_owned(), text.to_owned(), mode));
        self
    }

    /// Adds a symbolic link to the proxy's directory.
    pub fn link(mut self, name: &str, target: &str) -> Self {
        self.links.push((name.to_owned(), target.to_owned()));
        self
    }

    /// Sets a variable in the program's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Names the program's standard error in `JOURNAL_STREAM`, as systemd does if the journal reads it.
    pub fn stderr_to_journal(mut self) -> Self {
        self.journal = true;
        self
    }

    /// Adds an argument of `run` and `check`; `{dir}` applies here too.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Starts the proxy and waits until it serves.
    ///
    /// # Panics
    /// The proxy exits, or does not serve in time.
    #[track_caller]
    pub fn start(self) -> Proxy {
        self.try_start().unwrap_or_else(|outcome| {
            panic!(
                "the proxy ended with {:?}:\n{}",
                outcome.code, outcome.stderr
            )
        })
    }

    /// Like `start`.
    ///
    /// # Errors
    /// The proxy exited; the error is its result.
    ///
    /// # Panics
    /// The proxy neither exits nor serves in time.
    #[track_caller]
    pub fn try_start(self) -> Result<Proxy, CommandOutcome> {
        let directory = self.directory();
        let port = HeldPort::take();
        self.write_config(directory.path(), port.address().port());
        let mut proxy = self.spawn(&directory, port);
        proxy.wait_until_serving()?;
        Ok(proxy.keeping(directory, &self.ca, self.protocol))
    }

    /// Runs `check` on the configuration, with a free port.
    #[track_caller]
    pub fn check(self) -> CommandOutcome {
        let directory = self.directory();
        let port = HeldPort::take();
        self.write_config(directory.path(), port.address().port());
        let config = directory.path().join(CONFIG);
        let arguments = self.arguments(directory.path());
        let words = [
            OsStr::new("check"),
            OsStr::new("--config"),
            config.as_os_str(),
        ];
        let all: Vec<&OsStr> = words
            .into_iter()
            .chain(arguments.iter().map(OsStr::new))
            .collect();
        let mut command = launched(&self.binary, self.launcher.as_deref());
        command
            .args(all)
            .env("STATE_DIRECTORY", directory.path().join(STATE))
            .env("RUNTIME_DIRECTORY", directory.path());
        run_to_end(&mut command, &self.binary)
    }

    fn arguments(&self, directory: &Path) -> Vec<String> {
        let directory = directory.display().to_string();
        let arguments = self.arguments.iter();
        arguments
            .map(|argument| argument.replace("{dir}", &directory))
            .collect()
    }

    fn directory(&self) -> TempDir {
        let directory = tempfile::Builder::new()
            .prefix("proscenium-")
            .tempdir()
            .expect("a temporary directory");
        let ssldir = directory.path().join("ssl");
        match &self.credential {
            Some(credential) => self.ca.write_ssldir_with(&ssldir, credential),
            None => drop(self.ca.write_ssldir(&ssldir, &self.certname)),
        }
        for (name, text, mode) in &self.files {
            let path = directory.path().join(name);
            let parent = path.parent().expect("a file has a directory");
            fs::create_dir_all(parent).expect("a directory of our own takes another");
            write_file(&path, text, *mode);
        }
        for (name, target) in &self.links {
            std::os::unix::fs::symlink(target, directory.path().join(name)).expect("a link");
        }
        directory
    }

    fn write_config(&self, directory: &Path, port: u16) {
        let text = self.whole.clone().unwrap_or_else(|| self.assembled());
        write_config(directory, port, &text);
    }

    fn assembled(&self) -> String {
        let lines = |lines: &[String]| {
            lines
                .iter()
                .map(|line| format!("{line}\n"))
                .collect::<String>()
        };
        format!(
            "ssldir = \"{{dir}}/ssl\"\ncertname = \"{certname}\"\n{top}\n\
             [listeners.agents]\naddress = \"127.0.0.1:{{port}}\"\n{listener}\n\
             [access_log]\n{access_log}\n\
             [admin]\nsocket = \"{{dir}}/{ADMIN_SOCKET}\"\n{admin}\n\n\
             [materials]\n{materials}\n\n[trust.fetch]\n{fetch}\n\n{tables}",
            certname = self.certname,
            top = lines(&self.top),
            listener = lines(&self.listener),
            access_log = self.access_log_alone.clone().unwrap_or_else(|| format!(
                "path = \"{{dir}}/{ACCESS_LOG}\"\nformat = \"json\"\n{}",
                lines(&self.access_log)
            )),
            admin = self.admin,
            materials = self.materials,
            fetch = self.fetch,
            tables = lines(&self.tables),
        )
    }

    fn spawn(&self, directory: &TempDir, port: HeldPort) -> Started {
        let mut binary = self.binary.clone();
        if self.runs_own_copy {
            binary = directory.path().join(PROGRAM);
            fs::copy(&self.binary, &binary).expect("a copy of the program");
        }
        let mut environment = self.environment.clone();
        let state = directory.path().join(STATE).display().to_string();
        environment.push(("STATE_DIRECTORY".to_owned(), state));
        let runtime = directory.path().display().to_string();
        environment.push(("RUNTIME_DIRECTORY".to_owned(), runtime));
        let start = StartCommand {
            commands: self.binary.clone(),
            binary,
            config: directory.path().join(CONFIG),
            arguments: self.arguments(directory.path()),
            environment,
            journal: self.journal,
            launcher: self.launcher.clone(),
        };
        Started {
            running: start.spawn(None),
            admin: directory.path().join(ADMIN_SOCKET),
            port,
            start,
            adopted: None,
        }
    }
}

/// How to start the program.
struct StartCommand {
    /// The program that runs commands.
    commands: PathBuf,
    binary: PathBuf,
    config: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    journal: bool,
    launcher: Option<String>,
}

impl StartCommand {
    fn spawn(&self, more: Option<&str>) -> Running {
        let mut command = launched(&self.binary, self.launcher.as_deref());
        command
            .arg("run")
            .arg("--config")
            .arg(&self.config)
            .args(&self.arguments)
            .args(more)
            .env("RUST_BACKTRACE", "1");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let (stderr_end, writer) = io::pipe().expect("a pipe");
        let writer = File::from(OwnedFd::from(writer));
        if self.journal {
            let pipe = writer.metadata().expect("a pipe has a number");
            command.env("JOURNAL_STREAM", format!("{}:{}", pipe.dev(), pipe.ino()));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(writer);
        // ETXTBSY: a child process of another test may have the copy open for writing until it executes its own
        // program.
        let spawned = wait_until(START_LIMIT, || match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => None,
            spawned => Some(spawned),
        });
        let mut child = spawned
            .expect("the program is not busy for long")
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.binary.display()));
        // The command holds the writing ends of the pipes. The collector would wait for this process if they stayed
        // open.
        drop(command);
        let (stdout, stderr) = (Log::default(), Log::default());
        let collectors = vec![
            stdout.collect(child.stdout.take().expect("stdout is a pipe")),
            stderr.collect(stderr_end),
        ];
        let process = Process {
            child: Some(child),
            collectors,
            status: None,
        };
        Running {
            process,
            stdout,
            stderr,
        }
    }
}

/// A process of the program, with its output.
struct Running {
    process: Process,
    stdout: Log,
    stderr: Log,
}

/// A process that has handed over to another one. It is killed on drop, and a panic in it fails the test.
pub struct FormerProxy(Running);

impl FormerProxy {
    /// Sends SIGTERM, without waiting.
    pub fn terminate(&self) {
        if let Some(pid) = self.0.process.pid() {
            kill_process(pid, Signal::TERM).expect("it runs");
        }
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        !self.0.process.has_ended()
    }

    /// Waits until the standard error contains these words.
    ///
    /// # Panics
    /// The words do not appear in time.
    #[track_caller]
    pub fn wait_for_event(&self, words: &str) {
        let said = wait_until(WAIT_LIMIT, || self.stderr().contains(words).then_some(()));
        assert!(said.is_some(), "{words:?} is not in\n{}", self.stderr());
    }

    /// Waits for the process to exit.
    ///
    /// # Panics
    /// The process does not exit within `limit`.
    #[track_caller]
    pub fn wait_for_end(&mut self, limit: Duration) -> CommandOutcome {
        let ended = wait_until(limit, || self.0.process.has_ended().then_some(()));
        let stderr = self.0.stderr.text();
        assert!(ended.is_some(), "not ended within {limit:?}:\n{stderr}");
        self.0.outcome()
    }

    /// The standard error so far.
    pub fn stderr(&self) -> String {
        self.0.stderr.text()
    }
}

impl Drop for FormerProxy {
    fn drop(&mut self) {
        if !self.0.process.has_ended() {
            self.0.process.kill();
        }
        if thread::panicking() {
            let stderr = self.0.stderr.text();
            let _ = writeln!(io::stderr(), "--- the former process\n{stderr}---");
        } else {
            assert_no_panic(&self.0.stderr.text());
        }
    }
}

/// A program that was started and does not serve yet.
struct Started {
    running: Running,
    admin: PathBuf,
    port: HeldPort,
    start: StartCommand,
    /// A process that the proxy has started and that has taken over.
    adopted: Option<Pid>,
}

impl Started {
    fn wait_until_serving(&mut self) -> Result<(), CommandOutcome> {
        // The wait ends when the program exits or serves; the code below distinguishes the two.
        let serving = wait_until(START_LIMIT, || {
            if self.running.process.has_ended() {
                return Some(false);
            }
            (phase(&self.admin).as_deref() == Some("serving")).then_some(true)
        });
        match serving {
            Some(true) => Ok(()),
            Some(false) => Err(self.running.outcome()),
            None => panic!(
                "the proxy does not serve after {START_LIMIT:?}:\n{}",
                self.running.stderr.text()
            ),
        }
    }

    fn keeping(self, directory: TempDir, ca: &Ca, protocol: Protocol) -> Proxy {
        Proxy {
            started: Mutex::new(self),
            directory,
            ca: ca.clone(),
            answers: Arc::default(),
            protocol,
        }
    }
}

impl Running {
    fn outcome(&self) -> CommandOutcome {
        // The pipes are closed when the process exits, but their content may be read a moment later.
        wait_until(WAIT_LIMIT, || {
            self.process
                .collectors
                .iter()
                .all(JoinHandle::is_finished)
                .then_some(())
        });
        let code = self.process.exit_code();
        CommandOutcome {
            code,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        }
    }
}

/// A child process, which is killed by its process id when its owner is dropped.
struct Process {
    child: Option<Child>,
    collectors: Vec<JoinHandle<()>>,
    status: Option<ExitStatus>,
}

impl Process {
    fn pid(&self) -> Option<Pid> {
        self.child.as_ref().map(Pid::from_child)
    }

    fn has_ended(&mut self) -> bool {
        if let (None, Some(child)) = (self.status, &mut self.child) {
            self.status = child.try_wait().ok().flatten();
        }
        self.status.is_some()
    }

    fn exit_code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            // The process may have ended already.
            let _ = child.kill();
            self.status = child.wait().ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.kill();
        }
    }
}

/// The running proxy. It is killed on drop, and a panic in it fails the test.
pub struct Proxy {
    started: Mutex<Started>,
    directory: TempDir,
    ca: Ca,
    answers: Arc<AtomicUsize>,
    protocol: Protocol,
}

impl Proxy {
    /// A proxy whose ssldir comes from `ca`; `binary` is the built program.
    #[expect(clippy::new_ret_no_self, reason = "a proxy is started, not made")]
    pub fn new(ca: &Ca, binary: impl AsRef<Path>) -> ProxyBuilder {
        ProxyBuilder {
            binary: binary.as_ref().to_owned(),
            ca: ca.clone(),
            certname: "puppet".to_owned(),
            credential: None,
            top: Vec::new(),
            listener: Vec::new(),
            access_log: Vec::new(),
            access_log_alone: None,
            materials: "watch = \"off\"".to_owned(),
            admin: String::new(),
            fetch: "enabled = false".to_owned(),
            tables: Vec::new(),
            whole: None,
            files: Vec::new(),
            links: Vec::new(),
            environment: Vec::new(),
            journal: false,
            arguments: Vec::new(),
            runs_own_copy: false,
            launcher: None,
            protocol: Protocol::default(),
        }
    }

    /// The address of the listener for agents.
    pub fn address(&self) -> SocketAddr {
        self.started().port.address()
    }

    /// The proxy's directory, with `proscenium.toml` and `ssl/`.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The proxy's ssldir.
    pub fn ssldir(&self) -> PathBuf {
        self.directory().join("ssl")
    }

    /// The proxy's configuration file.
    pub fn config_path(&self) -> PathBuf {
        self.directory().join(CONFIG)
    }

    /// The proxy's admin socket.
    pub fn admin_socket(&self) -> PathBuf {
        self.directory().join(ADMIN_SOCKET)
    }

    /// The proxy's state directory, which the service manager provides unless the configuration sets one.
    pub fn state_directory(&self) -> PathBuf {
        self.directory().join(STATE)
    }

    /// The CA that the proxy trusts.
    pub fn ca(&self) -> &Ca {
        &self.ca
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.started()
            .running
            .process
            .child
            .as_ref()
            .map_or(0, Child::id)
    }

    /// A client that presents `credential`.
    pub fn client(&self, credential: Option<&TestCredential>) -> Client {
        Client::new(self.address(), &self.ca.bundle_pem(), credential)
            .counted(&self.answers)
            .protocol(self.protocol)
    }

    /// A client that presents `credential`, whose key the TLS library may reject.
    ///
    /// # Errors
    /// The library rejects the key.
    pub fn try_client(&self, credential: Option<&TestCredential>) -> Result<Client, rustls::Error> {
        let client = Client::try_new(self.address(), &self.ca.bundle_pem(), credential)?;
        Ok(client.counted(&self.answers).protocol(self.protocol))
    }

    /// A client with a credential over an RSA key of 1024 bits.
    pub fn small_client(&self, credential: &TestCredential) -> Client {
        let client = Client::small(self.address(), &self.ca.bundle_pem(), credential);
        client.counted(&self.answers)
    }

    /// Whether the process is running.
    pub fn is_running(&self) -> bool {
        !self.started().running.process.has_ended()
    }

    /// Asserts, after all clients have finished, that every response has a record and no lease is left.
    ///
    /// # Panics
    /// The counts do not match in time.
    #[track_caller]
    pub fn assert_settled(&self) {
        self.wait_for_status("no lease left", |status| {
            let pools = status["pools"].as_array().map_or(&[][..], Vec::as_slice);
            let members = pools
                .iter()
                .filter_map(|pool| pool["members"].as_array())
                .flatten();
            members.clone().all(|member| member["in_flight"] == 0)
        });
        let answers = self.answers.load(Ordering::SeqCst);
        let records = || self.records().len();
        let written = wait_until(WAIT_LIMIT, || (records() >= answers).then_some(()));
        assert!(
            written.is_some(),
            "{answers} answers, {} records",
            records()
        );
    }

    /// The configuration on disk.
    pub fn config_text(&self) -> String {
        fs::read_to_string(self.config_path()).expect("the configuration is there")
    }

    /// Replaces the configuration without notifying the proxy.
    pub fn write_config(&self, text: &str) {
        write_config(self.directory(), self.address().port(), text);
    }

    /// Replaces the text `from` in the configuration without notifying the proxy.
    ///
    /// # Panics
    /// The configuration does not contain the text.
    #[track_caller]
    pub fn edit_config(&self, from: &str, to: &str) {
        let text = self.config_text();
        assert!(text.contains(from), "{from:?} is not in\n{text}");
        self.write_config(&text.replace(from, to));
    }

    /// Writes a file in the proxy's directory by replacing it.
    pub fn write(&self, name: &str, text: &str, mode: u32) {
        write_file(&self.directory().join(name), text, mode);
    }

    /// Writes the CA's current CRLs into the ssldir without notifying the proxy.
    pub fn write_crl(&self) {
        write_file(&self.ssldir().join("crl.pem"), &self.ca.crl_pem(), 0o644);
    }

    /// `POST /v1/reload`: the result from the admin socket.
    ///
    /// # Panics
    /// The admin socket does not answer.
    #[track_caller]
    pub fn reload(&self) -> Value {
        self.admin("POST", "/v1/reload").json()
    }

    /// Reloads, and asserts that the reload is applied.
    ///
    /// # Panics
    /// The reload is not applied.
    #[track_caller]
    pub fn reload_applied(&self) -> Value {
        let outcome = self.reload();
        assert_eq!(outcome["result"], "applied", "{outcome:#}");
        outcome
    }

    /// Sends SIGHUP and waits until a reload has ended; returns `last_reload` of the status.
    ///
    /// # Panics
    /// No reload ends in time.
    #[track_caller]
    pub fn hang_up(&self) -> Value {
        let before = self.reloads();
        self.signal(Signal::HUP);
        let ended = wait_until(WAIT_LIMIT, || (self.reloads() > before).then_some(()));
        assert!(
            ended.is_some(),
            "no reload ended after SIGHUP:\n{}",
            self.stderr()
        );
        self.status()["last_reload"].clone()
    }

    /// Publishes the CA's current CRLs: writes them into the ssldir and reloads.
    #[track_caller]
    pub fn swap_crl(&self) {
        self.write_crl();
        self.reload_applied();
    }

    /// `GET /v1/status`.
    ///
    /// # Panics
    /// The admin socket does not answer.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.admin("GET", "/v1/status").json()
    }

    /// Number of the active generation.
    #[track_caller]
    pub fn generation(&self) -> u64 {
        self.status()["generation"]["number"]
            .as_u64()
            .unwrap_or_default()
    }

    /// Waits until every member of these pools is up.
    ///
    /// # Panics
    /// A member is not up in time.
    #[track_caller]
    pub fn wait_for_members(&self, pools: &[&str]) {
        for pool in pools {
            self.wait_for_status(&format!("members of {pool} up"), |status| {
                let members = pool_members(status, pool);
                !members.is_empty() && members.iter().all(|member| member["health"] == "up")
            });
        }
    }

    /// Waits until the member with this address is `up` or `down`.
    ///
    /// # Panics
    /// The member does not get this health in time.
    #[track_caller]
    pub fn wait_for_health(&self, pool: &str, address: &str, health: &str) {
        self.wait_for_status(&format!("{address} {health}"), |status| {
            pool_members(status, pool)
                .iter()
                .any(|m| m["address"] == address && m["health"] == health)
        });
    }

    /// Waits until the status meets a condition.
    ///
    /// # Panics
    /// The status does not meet the condition in time.
    #[track_caller]
    pub fn wait_for_status(&self, what: &str, met: impl Fn(&Value) -> bool) -> Value {
        let status = wait_until(WAIT_LIMIT, || {
            Some(self.status()).filter(|status| met(status))
        });
        status.unwrap_or_else(|| {
            panic!(
                "not seen in time: {what}: {:#}\n{}",
                self.status(),
                self.stderr()
            )
        })
    }

    /// Sends one request to the admin socket.
    ///
    /// # Panics
    /// The admin socket does not answer.
    #[track_caller]
    pub fn admin(&self, method: &str, target: &str) -> Response {
        let answer = self.try_admin(method, target);
        answer.unwrap_or_else(|error| panic!("admin {method} {target}: {error}\n{}", self.stderr()))
    }

    /// Like `admin`, for a proxy that may be about to exit.
    ///
    /// # Errors
    /// The admin socket does not answer.
    pub fn try_admin(&self, method: &str, target: &str) -> Result<Response, ClientError> {
        let client = Client::unix(&self.admin_socket());
        client.try_request(method, target, &[("Connection", "close")], b"")
    }

    /// `GET /metrics`, parsed.
    #[track_caller]
    pub fn metrics(&self) -> ScrapedMetrics {
        ScrapedMetrics::parse(&self.admin("GET", "/metrics").text())
    }

    /// Waits until the sum of a metric's samples with these labels is at least `least`.
    ///
    /// # Panics
    /// The sum does not reach `least` in time.
    #[track_caller]
    pub fn wait_for_metric(&self, name: &str, labels: &[(&str, &str)], least: f64) -> f64 {
        let sum = wait_until(WAIT_LIMIT, || {
            Some(self.metrics().sum(name, labels)).filter(|sum| *sum >= least)
        });
        sum.unwrap_or_else(|| {
            panic!(
                "{name}{labels:?} is {}, not {least}",
                self.metrics().sum(name, labels)
            )
        })
    }

    /// Access records written so far, in order.
    pub fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.directory().join(ACCESS_LOG)).unwrap_or_default();
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |line: &str| {
            serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("an access record is not JSON: {error}: {line}"))
        };
        whole.lines().map(parse).collect()
    }

    /// Waits for an access record that meets a condition.
    ///
    /// # Panics
    /// No record meets the condition in time.
    #[track_caller]
    pub fn wait_for_record(&self, met: impl Fn(&Value) -> bool) -> Value {
        let record = wait_until(WAIT_LIMIT, || self.records().into_iter().find(&met));
        record.unwrap_or_else(|| {
            let lines: Vec<_> = self
                .records()
                .iter()
                .map(|record| format!("{record}\n"))
                .collect();
            panic!(
                "no such record among:\n{}\n{}",
                lines.concat(),
                self.stderr()
            )
        })
    }

    /// Waits until there are `n` records.
    ///
    /// # Panics
    /// There are fewer records at the end of the time limit.
    #[track_caller]
    pub fn wait_for_records(&self, n: usize) -> Vec<Value> {
        let records = wait_until(WAIT_LIMIT, || {
            Some(self.records()).filter(|records| records.len() >= n)
        });
        records.unwrap_or_else(|| panic!("{} records, not {n}", self.records().len()))
    }

    /// Runs a command of the program, with `--config` after its words.
    #[track_caller]
    pub fn command(&self, words: &[&str], arguments: &[&str]) -> CommandOutcome {
        let config = self.config_path();
        let all: Vec<&OsStr> = words
            .iter()
            .map(OsStr::new)
            .chain([OsStr::new("--config"), config.as_os_str()])
            .chain(arguments.iter().map(OsStr::new))
            .collect();
        let binary = self.started().start.commands.clone();
        let mut command = Command::new(&binary);
        command
            .args(all)
            .env("STATE_DIRECTORY", self.state_directory())
            .env("RUNTIME_DIRECTORY", self.directory());
        run_to_end(&mut command, &binary)
    }

    /// Starts another process with `run --hand-over`, and waits until it has taken over. From then on, this value
    /// stands for the new process. Returns the former one.
    ///
    /// # Errors
    /// The new process exited; the error is its result. This value still stands for the former process.
    ///
    /// # Panics
    /// The new process neither exits nor serves in time.
    #[track_caller]
    pub fn take_over(&self) -> Result<FormerProxy, CommandOutcome> {
        let mut new = self.started().start.spawn(Some("--hand-over"));
        let pid = new.process.child.as_ref().map_or(0, Child::id);
        let taken_over = wait_until(START_LIMIT, || {
            if new.process.has_ended() {
                return Some(false);
            }
            self.serves_as(pid).then_some(true)
        });
        match taken_over {
            Some(true) => {
                let former = std::mem::replace(&mut self.started().running, new);
                Ok(FormerProxy(former))
            }
            Some(false) => Err(new.outcome()),
            None => panic!(
                "not taken over after {START_LIMIT:?}:\n{}\n{}",
                new.stderr.text(),
                self.stderr()
            ),
        }
    }

    /// Starts the program again after its process has exited, and waits until it serves.
    ///
    /// # Panics
    /// The process has not exited, or the new one exits or does not serve in time.
    #[track_caller]
    pub fn start_again(&self) {
        let mut started = self.started();
        assert!(started.running.process.has_ended(), "it still runs");
        started.running = started.start.spawn(None);
        if let Err(outcome) = started.wait_until_serving() {
            panic!(
                "the proxy ended with {:?}:\n{}",
                outcome.code, outcome.stderr
            );
        }
    }

    /// Makes this value stand for another process, which the proxy has started. That process is killed on drop.
    pub fn adopt(&self, pid: u32) {
        self.started().adopted = Pid::from_raw(pid.cast_signed());
    }

    /// Whether the process that answers on the admin socket has this process id.
    pub fn serves_as(&self, pid: u32) -> bool {
        let answer = self.try_admin("GET", "/v1/status");
        answer.is_ok_and(|answer| answer.status == 200 && answer.json()["process"]["pid"] == pid)
    }

    /// The path of the program.
    pub fn program(&self) -> PathBuf {
        self.started().start.binary.clone()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = self.started().running.process.pid();
        if let Some(pid) = pid {
            kill_process(pid, signal).expect("the proxy runs");
        }
    }

    /// Sends SIGTERM, without waiting.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGTERM, and waits at most this long for the process to exit.
    ///
    /// # Panics
    /// The process does not exit within `limit`.
    #[track_caller]
    pub fn stop_within(self, limit: Duration) -> CommandOutcome {
        self.terminate();
        self.wait_for_end(limit)
    }

    /// Sends SIGTERM, and waits for the process to exit.
    ///
    /// # Panics
    /// The process does not exit in time.
    #[track_caller]
    pub fn stop(self) -> CommandOutcome {
        self.stop_within(WAIT_LIMIT)
    }

    /// Waits for the process to exit.
    ///
    /// # Panics
    /// The process does not exit within `limit`.
    #[track_caller]
    pub fn wait_for_end(&self, limit: Duration) -> CommandOutcome {
        let ended = wait_until(limit, || {
            self.started().running.process.has_ended().then_some(())
        });
        assert!(
            ended.is_some(),
            "the proxy has not ended within {limit:?}:\n{}",
            self.stderr()
        );
        self.started().running.outcome()
    }

    /// Waits for the started process to exit. Another process may continue its output.
    ///
    /// # Panics
    /// The process does not exit within `limit`.
    #[track_caller]
    pub fn wait_for_exit(&self, limit: Duration) -> Option<i32> {
        let ended = wait_until(limit, || {
            let mut started = self.started();
            let has_ended = started.running.process.has_ended();
            has_ended.then_some(())
        });
        assert!(ended.is_some(), "not ended within {limit:?}");
        self.started().running.process.exit_code()
    }

    /// The standard error so far.
    pub fn stderr(&self) -> String {
        self.started().running.stderr.text()
    }

    /// Waits until the standard error contains these words.
    ///
    /// # Panics
    /// The words do not appear in time.
    #[track_caller]
    pub fn wait_for_event(&self, words: &str) {
        let said = wait_until(WAIT_LIMIT, || self.stderr().contains(words).then_some(()));
        assert!(said.is_some(), "{words:?} is not in\n{}", self.stderr());
    }

    /// The standard output so far.
    pub fn stdout(&self) -> String {
        self.started().running.stdout.text()
    }

    /// Peak resident memory so far, in KiB (`VmHWM`).
    pub fn memory_peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap_or_default();
        line.trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap_or_default()
    }

    /// How much the peak has grown since it had this size. The kernel sums counters of each processor, which lag
    /// behind, so a later peak may look smaller.
    pub fn memory_growth_kib(&self, before: u64) -> u64 {
        self.memory_peak_kib().saturating_sub(before)
    }

    fn reloads(&self) -> f64 {
        self.metrics().sum_of_prefix("proscenium_reload")
    }

    fn started(&self) -> MutexGuard<'_, Started> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut started = self.started();
        if let Some(pid) = started.adopted.take() {
            // The process may have ended already.
            let _ = kill_process(pid, Signal::KILL);
        }
        if started.running.process.status.is_none() {
            started.running.process.kill();
        }
        let stderr = started.running.outcome().stderr;
        if thread::panicking() {
            // The test is failing already, so an error here is ignored.
            let _ = writeln!(io::stderr(), "--- the proxy's standard error\n{stderr}---");
        } else {
            assert_no_panic(&stderr);
        }
    }
}

fn pool_members(status: &Value, pool: &str) -> Vec<Value> {
    let pools = status["pools"].as_array().cloned().unwrap_or_default();
    let found = pools.into_iter().find(|p| p["name"] == pool);
    found
        .and_then(|p| p["members"].as_array().cloned())
        .unwrap_or_default()
}

fn phase(admin: &Path) -> Option<String> {
    let answer: Result<Response, ClientError> =
        Client::unix(admin).try_request("GET", "/v1/status", &[("Connection", "close")], b"");
    let status: Value = serde_json::from_slice(&answer.ok()?.body.kept).ok()?;
    Some(status["phase"].as_str()?.to_owned())
}

fn write_config(directory: &Path, port: u16, text: &str) {
    let text = text
        .replace("{dir}", &directory.display().to_string())
        .replace("{port}", &port.to_string());
    write_file(&directory.join(CONFIG), &text, 0o644);
}

#[track_caller]
fn assert_no_panic(stderr: &str) {
    assert!(
        !stderr.contains("panicked at"),
        "the program panicked:\n{stderr}"
    );
}

const CONFIG: &str = "proscenium.toml";
const ACCESS_LOG: &str = "access.json";
const ADMIN_SOCKET: &str = "admin.sock";
const STATE: &str = "state";
const PROGRAM: &str = "program";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_at_once_is_an_outcome_with_its_words() {
        let script = tempfile::tempdir().expect("a temporary directory");
        let path = script.path().join("refuses");
        write_file(
            &path,
            "#!/bin/sh\necho \"error: $1 $2 $(grep -c 127.0.0.1 $3)\" >&2\nexit 78\n",
            0o755,
        );
        let outcome = Proxy::new(&Ca::new(), &path)
            .try_start()
            .map(drop)
            .expect_err("it ends");
        assert_eq!(
            (outcome.code, outcome.stderr.as_str()),
            (Some(78), "error: run --config 1\n")
        );
    }
}
