//! The command `fleet turn`: it runs a command when it is the turn of this proxy to be restarted, and keeps the turn until the
//! proxy is ready again.

use std::{
    convert::Infallible,
    ffi::OsString,
    io::{self, ErrorKind},
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    time::Duration,
};

use admin::{
    AdminClient, AdminClientError, TURN_COMMAND_BYTES_MAX, TurnAnswer, TurnEnd, TurnRequest,
};
use anyhow::Context as _;
use rustix::{
    process::{Pid, Signal, getpgrp, kill_process},
    termios::tcgetpgrp,
};
use tokio::{
    process::{Child, Command},
    signal::unix::{self, SignalKind},
    time::{Instant, sleep, timeout},
};

use crate::{
    arguments::{Arguments, FleetTurn},
    ask::client,
    exit_codes::{NO_COMMAND, NO_TURN, NOT_EXECUTABLE, SIGNALLED, TURN_NOT_READY},
    failure::Failure,
    output,
    ui::new_token,
};

/// Time between two repetitions of the request. The proxy ends a turn whose request is silent for 10 s.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum time for one request. The proxy answers within 4 s, even if it cannot reach the store.
const POLL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the store or the proxy may not answer while this command waits for the turn: an election in etcd takes seconds.
const TROUBLE_MAX: Duration = Duration::from_secs(5);

/// Takes the turn, runs the command, and gives the turn back.
pub(crate) fn turn(arguments: &Arguments, wanted: &FleetTurn) -> Result<(), Failure> {
    match perform(arguments, wanted) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Failure::Found(code)),
        // The exit code 1 could be that of the command, so another one is used.
        Err(Failure::Failed(error)) => {
            say(&format!("the command was not executed: {error:#}"));
            Err(Failure::Found(NO_TURN))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns the exit code.
fn perform(arguments: &Arguments, wanted: &FleetTurn) -> Result<u8, Failure> {
    let turn = Turn {
        client: client(arguments, &wanted.socket)?,
        request: TurnRequest {
            request: new_token()?,
            command: shown_command(&wanted.command),
            timeout_seconds: wanted.timeout.as_secs(),
            had_turn: false,
        },
        timeout: wanted.timeout,
        shown: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    runtime.block_on(turn.perform(&wanted.command))
}

/// A request for the turn.
struct Turn {
    client: AdminClient,
    request: TurnRequest,
    timeout: Duration,
    /// The last reasons of a wait, which are not printed again.
    shown: Vec<String>,
}

/// Why the command is not executed.
struct NotTaken {
    code: u8,
    why: String,
}

impl Turn {
    /// Returns the exit code.
    async fn perform(mut self, command: &[OsString]) -> Result<u8, Failure> {
        let mut signals = Signals::new().context("cannot wait for signals")?;
        let taken = tokio::select! {
            taken = self.take() => taken,
            signal = signals.next() => Err(NotTaken {
                code: signal_code(signal.as_raw()),
                why: "the wait was interrupted".to_owned(),
            }),
        };
        if let Err(NotTaken { code, why }) = taken {
            say(&format!("the command was not executed: {why}"));
            // The proxy drops a request that is not repeated, so this only saves time.
            let _ = self.end().await;
            return Ok(code);
        }
        self.request.had_turn = true;
        say("this proxy has the turn");
        let code = match spawn(command) {
            Err((code, why)) => {
                say(&why);
                code
            }
            Ok(mut child) => {
                let ended = tokio::select! {
                    ended = signals.pass_on_until(&mut child) => ended,
                    never = self.hold() => match never {},
                };
                let code = exit_code(ended.context("cannot wait for the command")?);
                let ready = tokio::select! {
                    ready = self.wait_until_ready(), if !signals.have_arrived() => ready,
                    signal = signals.last() => Err((signal_code(signal.as_raw()), "the wait was interrupted".to_owned())),
                };
                match ready {
                    Ok(()) => code,
                    Err((otherwise, why)) => {
                        say(&format!("this proxy is not ready after the command: {why}"));
                        if code == 0 { otherwise } else { code }
                    }
                }
            }
        };
        if let Err(why) = self.give_back().await {
            let longest = self.timeout.as_secs();
            say(&format!(
                "the turn was not given back: {why}; it ends 10 s after the proxy and the store answer again, at the latest {longest} s after the proxy has stopped"
            ));
        }
        Ok(code)
    }

    /// Waits until this proxy has the turn.
    async fn take(&mut self) -> Result<(), NotTaken> {
        let began = Instant::now();
        let mut answered_at = None;
        loop {
            let trouble = match self.ask().await {
                Ok(answer) if answer.has_turn => return Ok(()),
                Ok(TurnAnswer {
                    unreached: Some(why),
                    ..
                }) => Some(format!("the store of the fleet is not reached: {why}")),
                Ok(answer) => {
                    answered_at = Some(Instant::now());
                    self.show(answer.waits_for);
                    None
                }
                Err(error) if answered_at.is_none() || is_final(&error) => {
                    return Err(no_turn(&chain(&error)));
                }
                Err(error) => Some(chain(&error)),
            };
            let is_over = began.elapsed() >= self.timeout;
            let since = answered_at.unwrap_or(began);
            match trouble {
                Some(trouble) if is_over || since.elapsed() >= TROUBLE_MAX => {
                    return Err(no_turn(&trouble));
                }
                None if is_over => {
                    let (seconds, waits_for) = (self.timeout.as_secs(), self.shown.join("; "));
                    return Err(NotTaken {
                        code: NO_TURN,
                        why: format!("still waiting after {seconds} s: {waits_for}"),
                    });
                }
                _ => {}
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Repeats the request while the command runs. The command may stop the proxy, so no error ends the repetition.
    async fn hold(&mut self) -> Infallible {
        let mut is_lost = false;
        loop {
            sleep(POLL_INTERVAL).await;
            if let Ok(answer) = self.ask().await
                && answer.unreached.is_none()
                && is_lost == answer.has_turn
            {
                is_lost = !answer.has_turn;
                match is_lost {
                    true if answer.waits_for.is_empty() => is_lost = false,
                    true => say(&format!(
                        "the turn was lost while the command runs: {}",
                        answer.waits_for.join("; ")
                    )),
                    false => say("this proxy has the turn again"),
                }
            }
        }
    }

    /// Waits until this proxy is ready, and the other proxies can see it. The error has the exit code.
    async fn wait_until_ready(&mut self) -> Result<(), (u8, String)> {
        let began = Instant::now();
        loop {
            let why = match self.ask().await {
                Ok(TurnAnswer {
                    unreached: Some(why),
                    ..
                }) => format!("the store of the fleet is not reached: {why}"),
                Ok(TurnAnswer {
                    unready: Some(why), ..
                }) => why,
                Ok(_) => return Ok(()),
                Err(error) => chain(&error),
            };
            if began.elapsed() >= self.timeout {
                return Err((TURN_NOT_READY, why));
            }
            self.show(vec![format!("this proxy is not ready: {why}")]);
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Ends the turn.
    async fn give_back(&mut self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let trouble = match self.end().await {
                Ok(TurnAnswer {
                    unreached: Some(why),
                    ..
                }) => why,
                Ok(answer) if !answer.has_turn => return Ok(()),
                Ok(_) => "the store still has it".to_owned(),
                Err(error) => chain(&error),
            };
            if began.elapsed() >= TROUBLE_MAX {
                return Err(trouble);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn ask(&self) -> Result<TurnAnswer, AdminClientError> {
        let asked = timeout(POLL_TIMEOUT, self.client.ask_for_turn(&self.request));
        asked.await.unwrap_or_else(|_| Err(self.late()))
    }

    async fn end(&self) -> Result<TurnAnswer, AdminClientError> {
        let end = TurnEnd {
            request: self.request.request.clone(),
        };
        let ended = timeout(POLL_TIMEOUT, self.client.end_turn(&end));
        ended.await.unwrap_or_else(|_| Err(self.late()))
    }

    fn late(&self) -> AdminClientError {
        AdminClientError::Late {
            socket: self.client.socket().to_owned(),
            allowed: POLL_TIMEOUT,
        }
    }

    /// Prints the reasons of a wait that are new.
    fn show(&mut self, reasons: Vec<String>) {
        for reason in &reasons {
            if !self.shown.contains(reason) {
                say(&format!("waiting: {reason}"));
            }
        }
        self.shown = reasons;
    }
}

/// The signals that end a wait, and that are passed on to the command.
struct Signals {
    sources: [(Signal, unix::Signal); 3],
    last: Option<Signal>,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            sources: [
                (Signal::INT, unix::signal(SignalKind::interrupt())?),
                (Signal::TERM, unix::signal(SignalKind::terminate())?),
                (Signal::HUP, unix::signal(SignalKind::hangup())?),
            ],
            last: None,
        })
    }

    async fn next(&mut self) -> Signal {
        let [(_, interrupt), (_, terminate), (_, hang_up)] = &mut self.sources;
        let signal = tokio::select! {
            _ = interrupt.recv() => Signal::INT,
            _ = terminate.recv() => Signal::TERM,
            _ = hang_up.recv() => Signal::HUP,
        };
        self.last = Some(signal);
        signal
    }

    /// The signal that has arrived, or the next one.
    async fn last(&mut self) -> Signal {
        match self.last {
            Some(signal) => signal,
            None => self.next().await,
        }
    }

    fn have_arrived(&self) -> bool {
        self.last.is_some()
    }

    /// Waits for the end of a command, and passes signals on to it.
    async fn pass_on_until(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        loop {
            tokio::select! {
                ended = child.wait() => return ended,
                signal = self.next() => {
                    // The terminal has sent its interrupt to the command as well.
                    if let Some(pid) = pid
                        && !(signal == Signal::INT && is_in_foreground())
                    {
                        // The command may have ended already.
                        let _ = kill_process(pid, signal);
                    }
                }
            }
        }
    }
}

/// Whether the interrupt key of the terminal reaches this process.
fn is_in_foreground() -> bool {
    let groups = [
        tcgetpgrp(io::stdin()),
        tcgetpgrp(io::stdout()),
        tcgetpgrp(io::stderr()),
    ];
    groups.contains(&Ok(getpgrp()))
}

/// Starts the command. The error has the exit code.
fn spawn(command: &[OsString]) -> Result<Child, (u8, String)> {
    let Some((program, arguments)) = command.split_first() else {
        return Err((NO_COMMAND, "there is no command".to_owned()));
    };
    Command::new(program)
        .args(arguments)
        .spawn()
        .map_err(|error| {
            let code = match error.kind() {
                ErrorKind::NotFound => NO_COMMAND,
                _ => NOT_EXECUTABLE,
            };
            (
                code,
                format!("cannot execute {}: {error}", program.display()),
            )
        })
}

/// The exit code that a shell would report for the command.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.unwrap_or_else(|| signal_code(status.signal().unwrap_or_default()))
}

fn signal_code(signal: i32) -> u8 {
    SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or_default())
}

/// The failure of the store or of the proxy, with what to do.
fn no_turn(why: &str) -> NotTaken {
    NotTaken {
        code: NO_TURN,
        why: format!(
            "{why}; without a turn, run it on one proxy after the other, each when the others are ready (proscenium status shows this)"
        ),
    }
}

/// Whether the same request would fail again with this error.
fn is_final(error: &AdminClientError) -> bool {
    matches!(
        error,
        AdminClientError::Refused { .. } | AdminClientError::PermissionDenied { .. }
    )
}

/// An error with its causes.
fn chain(error: &AdminClientError) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| {
        error.source()
    });
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

/// Prints a message of this command, apart from those of the command that it runs.
fn say(text: &str) {
    output::print_error(&format!("fleet turn: {text}"));
}

/// The command as the operators of the other proxies see it: one line of limited length.
fn shown_command(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let mut shown = words.join(" ").replace(char::is_control, " ");
    let cut = shown.floor_char_boundary(TURN_COMMAND_BYTES_MAX);
    shown.truncate(cut);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_on_one_line_of_limited_length() {
        for (words, expected) in [
            (
                vec!["systemctl", "restart", "proscenium"],
                "systemctl restart proscenium".to_owned(),
            ),
            (
                vec!["sh", "-c", "a\nb\u{1b}[2J"],
                "sh -c a b [2J".to_owned(),
            ),
            (vec![&*"é".repeat(300)], "é".repeat(250)),
            (
                vec![&*format!("a{}", "é".repeat(300))],
                format!("a{}", "é".repeat(249)),
            ),
        ] {
            let words: Vec<_> = words.into_iter().map(OsString::from).collect();
            assert_eq!(shown_command(&words), expected);
        }
    }

    #[test]
    fn the_exit_code_is_that_of_a_shell() {
        for (status, expected) in [(0, 0), (3 << 8, 3), (255 << 8, 255), (15, 143), (9, 137)] {
            assert_eq!(exit_code(ExitStatus::from_raw(status)), expected);
        }
    }
}
