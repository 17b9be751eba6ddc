//! The page of `proscenium ui`: the process that serves it, and requests such as a browser sends.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{client::Client, message::Response, wait::wait_until};

/// Long enough for a debug build on a busy machine.
const END_LIMIT: Duration = Duration::from_secs(20);

/// A running `proscenium ui`, which is killed on drop.
pub struct OperatorPage {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The printed address, with the token.
    pub url: String,
    /// Whether the page may change the proxy.
    pub actions: bool,
}

impl OperatorPage {
    /// Serves the page about the proxy with this admin socket, on a free port.
    ///
    /// # Panics
    /// The command cannot be run, or prints no address.
    #[track_caller]
    pub fn start(binary: &Path, config: &Path, arguments: &[&str], stdin: Stdio) -> Self {
        let mut command = Command::new(binary);
        command.stdin(stdin);
        Self::run(command, config, arguments)
    }

    /// Like [`OperatorPage::start`], with a command that runs the program.
    ///
    /// # Panics
    /// The command cannot be run, or prints no address.
    #[track_caller]
    pub fn run(mut command: Command, config: &Path, arguments: &[&str]) -> Self {
        let mut child = command
            .args(["ui", "--json", "--listen", "127.0.0.1:0", "--config"])
            .arg(config)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let mut page = Self {
            child,
            stdout,
            url: String::new(),
            actions: false,
        };
        page.read_address();
        page
    }

    /// Reads the next address that the command prints.
    ///
    /// # Panics
    /// The command prints something else, or nothing more.
    #[track_caller]
    pub fn read_address(&mut self) {
        let mut text = String::new();
        while !text.ends_with("}\n") {
            let read = self.stdout.read_line(&mut text).expect("text");
            assert!(read > 0, "the command printed no address, but {text:?}");
        }
        let opened: Value = serde_json::from_str(&text).expect("JSON");
        self.url = opened["url"].as_str().expect("an address").to_owned();
        self.actions = opened["actions"] == true;
    }

    /// The address at which the page is served.
    ///
    /// # Panics
    /// The printed address has no port.
    pub fn address(&self) -> SocketAddr {
        let rest = self.url.strip_prefix("http://").expect("plain HTTP");
        let address = rest.split_once("/#").map(|(address, _)| address);
        address
            .and_then(|address| address.parse().ok())
            .expect("an address and a token")
    }

    /// The token in the address.
    pub fn token(&self) -> &str {
        self.url.split_once('#').map_or("", |(_, token)| token)
    }

    /// A client that sends the printed address as `Host`.
    pub fn client(&self) -> Client {
        let address = self.address();
        Client::plain(address).server_name(&address.ip().to_string())
    }

    /// Exchanges the token for the secret.
    ///
    /// # Panics
    /// The page refuses the token.
    #[track_caller]
    pub fn open(&self) -> String {
        let answer = self.post("/session", "", self.token());
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["secret"]
            .as_str()
            .expect("a secret")
            .to_owned()
    }

    /// A GET with this secret.
    #[track_caller]
    pub fn get(&self, target: &str, secret: &str) -> Response {
        let fields = [("X-Proscenium-Secret", secret)];
        self.client().request("GET", target, &fields, b"")
    }

    /// A POST with this secret.
    #[track_caller]
    pub fn post(&self, target: &str, secret: &str, body: &str) -> Response {
        let fields = [("X-Proscenium-Secret", secret)];
        self.client()
            .request("POST", target, &fields, body.as_bytes())
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// The process has ended.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the page is served");
    }

    /// Waits for the process to exit.
    ///
    /// # Panics
    /// The process does not exit in time.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let ended = wait_until(END_LIMIT, || self.child.try_wait().expect("a child"));
        ended.expect("the page ends")
    }
}

impl Drop for OperatorPage {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
