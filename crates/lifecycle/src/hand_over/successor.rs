//! A reload with another build on disk: starts that program, which takes over from this process.

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus, sync::Arc, time::SystemTime};

use admin::{ReloadOutcome, ReloadResult};
use rustix::process::Signal;
use state::supervise::blocking;
use telemetry::CountedReload;
use tokio::time::sleep;

use super::{
    ChangedProgram, HAND_OVER_MAX,
    launcher::{Launcher, LauncherReport, LauncherReports},
};
use crate::{pending_changes::AtStart, shared_state::App};

/// Exit code of a process whose configuration or host must be changed.
const CONFIGURATION: i32 = 78;
/// Exit code of a process whose main thread has panicked.
const PANICKED: i32 = 101;
/// Exit code of the dynamic linker if the host lacks a library, and of a shell if it finds no program.
const NOT_FOUND: i32 = 127;
/// Signals of a crash.
const CRASHES: [Signal; 7] = [
    Signal::ILL,
    Signal::TRAP,
    Signal::ABORT,
    Signal::BUS,
    Signal::FPE,
    Signal::SEGV,
    Signal::SYS,
];

/// Why the new program has not taken over.
#[derive(Debug, thiserror::Error)]
enum SuccessorError {
    #[error(transparent)]
    Launcher(#[from] io::Error),
    #[error("its launcher has ended unexpectedly")]
    LauncherEnded,
    #[error("it cannot be run: {0}")]
    NotStarted(String),
    #[error(
        "the command that requested the reload has ended before the new process was ready, which was ended too; systemd ends a reload after TimeoutStartSec= of the unit"
    )]
    Abandoned,
    #[error("it was not ready within {HAND_OVER_MAX:?} and was ended")]
    Late,
    #[error("it crashed ({0}); its messages are in the log")]
    Crashed(ExitStatus),
    #[error(
        "it refuses the configuration{}; run `proscenium check` with the new program to see all problems",
        .0.as_ref().map_or_else(String::new, |why| format!(": {why}"))
    )]
    Configuration(Option<String>),
    /// A fault that it, or this process, has found.
    #[error("{0}")]
    Reported(String),
    #[error(
        "it does not run on this host ({0}): a program or a library is missing; its messages are in the log"
    )]
    NotFound(ExitStatus),
    #[error("it was killed ({0}); its messages are in the log")]
    Killed(ExitStatus),
    #[error("it ended with {0}; its messages are in the log")]
    Ended(ExitStatus),
}

impl SuccessorError {
    /// The error of a process that has ended. `reported` is what it, or this process, has found.
    fn of_end(status: ExitStatus, reported: Option<String>) -> Self {
        let signal = status.signal().and_then(Signal::from_named_raw);
        match (status.code(), reported) {
            (Some(PANICKED), _) => Self::Crashed(status),
            _ if signal.is_some_and(|signal| CRASHES.contains(&signal)) => Self::Crashed(status),
            (Some(CONFIGURATION), reported) => Self::Configuration(reported),
            (_, Some(why)) => Self::Reported(why),
            (Some(NOT_FOUND), None) => Self::NotFound(status),
            (None, None) => Self::Killed(status),
            (Some(_), None) => Self::Ended(status),
        }
    }
}

impl App {
    /// Another build at the path of the running program, if this process may hand over to it.
    pub(crate) async fn changed_program(self: &Arc<Self>) -> Option<ChangedProgram> {
        // A container ends with its process 1, and its program is replaced with it.
        if !self.is_serving() || std::process::id() == 1 {
            return None;
        }
        let app = Arc::clone(self);
        let changed = blocking("compare-program", move || app.hand_over.program.changed());
        changed.await.flatten()
    }

    /// Hands over to another build on disk. `None` if the program on disk is the running one.
    ///
    /// If the caller disconnects before the new process has the sockets, that process is ended, because the program may be
    /// replaced again before it is ready.
    pub(crate) async fn hand_over_if_changed(
        self: &Arc<Self>,
        asked_by: &str,
        caller_left: impl Future<Output = ()>,
    ) -> Option<ReloadOutcome> {
        // A process that prepares with a program that was replaced meanwhile must not delay this reload.
        if let Some(launcher) = &mut *self.hand_over.launcher()
            && !launcher.program.is_unchanged()
        {
            launcher.end_unless_owner();
        }
        let _one_at_a_time = self.hand_over.starting.lock().await;
        let program = self.changed_program().await?;
        let path = program.path().display().to_string();
        tracing::info!(
            history.kind = "reload",
            history.subject = "program",
            asked_by,
            program = path,
            "the program on disk is another build: starting it"
        );
        let error = match self.hand_over_to(program, caller_left).await {
            Ok(pid) => {
                let report = format!("process {pid} has taken over with the program {path}");
                return Some(self.outcome(ReloadResult::HandedOver, report));
            }
            Err(error) => error,
        };
        let report = format!(
            "the program {path} is another build, but it did not take over: {error}. The running program serves as before, and the configuration was not reloaded"
        );
        tracing::error!(
            history.kind = "reload",
            history.subject = "program",
            asked_by,
            "{report}"
        );
        let (result, at_start) = match error {
            SuccessorError::Configuration(_) => (ReloadResult::Refused, AtStart::Refused),
            _ => (ReloadResult::Failed, AtStart::OtherProgram),
        };
        let outcome = self.outcome(result, report);
        self.note_refused_reload(None, at_start, &outcome.report);
        self.state().last_reload = Some((SystemTime::now(), outcome.clone()));
        self.lasting.metrics.reloaded(CountedReload::Refused);
        Some(outcome)
    }

    /// Starts the program, and waits until it serves. Returns its process.
    ///
    /// # Errors
    /// The new process has ended, or was ended.
    async fn hand_over_to(
        &self,
        program: ChangedProgram,
        caller_left: impl Future<Output = ()>,
    ) -> Result<u32, SuccessorError> {
        self.hand_over.take_failure();
        let (launcher, mut reports) = Launcher::start(program)?;
        *self.hand_over.launcher() = Some(launcher);
        let mut successor = self.active.successor();
        let taken_over = async {
            let taken = successor.wait_for(Option::is_some).await;
            taken.ok().and_then(|pid| *pid).unwrap_or_default()
        };
        let abandoned = async {
            caller_left.await;
            if !self.end_unless_owner() {
                std::future::pending().await
            }
        };
        let error = tokio::select! {
            biased;
            pid = taken_over => return Ok(pid),
            error = self.failure_of(&mut reports) => error,
            () = abandoned => SuccessorError::Abandoned,
            () = sleep(HAND_OVER_MAX) => SuccessorError::Late,
        };
        self.end_launched().await;
        Err(error)
    }

    /// Ends the process that this one has started, unless it has the right to the sockets. Returns whether it ends.
    fn end_unless_owner(&self) -> bool {
        let mut launcher = self.hand_over.launcher();
        launcher.as_mut().is_some_and(Launcher::end_unless_owner)
    }

    /// Ends the process that this one has started, if it still runs.
    async fn end_launched(&self) {
        let launcher = self.hand_over.launcher().take();
        self.hand_over.prepares_no_more();
        let ended = launcher.map(|mut launcher| {
            launcher.end();
            blocking("release-launcher", || launcher.release())
        });
        if let Some(ended) = ended
            && let Some(Err(error)) = ended.await
        {
            tracing::error!(%error, "the launcher of the new process does not end");
        }
    }

    /// Waits until the new process ends, and returns the reason.
    async fn failure_of(&self, reports: &mut LauncherReports) -> SuccessorError {
        loop {
            match reports.next().await {
                Some(LauncherReport::Started { pid }) => self.hand_over.prepares(pid, None),
                Some(LauncherReport::NotStarted { why }) => return SuccessorError::NotStarted(why),
                Some(LauncherReport::Ended { status }) => {
                    let status = ExitStatus::from_raw(status);
                    return SuccessorError::of_end(status, self.hand_over.take_failure());
                }
                None => {
                    // A launcher also ends when the new process takes over.
                    if !self.end_unless_owner() {
                        return std::future::pending().await;
                    }
                    // Without its launcher, the new process may still run.
                    self.hand_over.cancel();
                    return SuccessorError::LauncherEnded;
                }
            }
        }
    }
}
