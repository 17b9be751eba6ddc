//! A reload with another build on disk: starts that program, which takes over from this process.

use std::{process::ExitStatus, sync::Arc, time::Duration};

use admin::{ReloadOutcome, ReloadResult};
use tokio::{
    process::{Child, Command},
    task::spawn_blocking,
    time::timeout,
};

use super::{ANSWER_MAX, ChangedProgram, PREPARE_MAX, START_MAX, STORE_MAX};
use crate::shared_state::App;

/// How long the whole hand-over may take.
const HAND_OVER_MAX: Duration = Duration::from_secs(
    PREPARE_MAX.as_secs() + STORE_MAX.as_secs() + START_MAX.as_secs() + ANSWER_MAX.as_secs(),
);

impl App {
    /// Another build at the path of the running program, if this process may hand over to it.
    pub(crate) async fn changed_program(self: &Arc<Self>) -> Option<ChangedProgram> {
        // A container ends with its process 1, and its program is replaced with it.
        if !self.is_serving() || std::process::id() == 1 {
            return None;
        }
        let app = Arc::clone(self);
        let changed = spawn_blocking(move || app.hand_over.program.changed());
        changed.await.ok().flatten()
    }

    /// Starts the other build, and waits until it serves or has failed.
    pub(crate) async fn hand_over_to(
        self: &Arc<Self>,
        program: &ChangedProgram,
        asked_by: &str,
    ) -> ReloadOutcome {
        let path = program.path().display();
        tracing::info!(asked_by, program = %path, "the program on disk is another build: starting it");
        self.hand_over.take_failure();
        let why = match Command::from(program.command()).spawn() {
            Ok(child) => match self.taken_over_by(child).await {
                Ok(pid) => {
                    let report = format!("process {pid} has taken over with the program {path}");
                    return self.outcome(ReloadResult::HandedOver, report);
                }
                Err(why) => why,
            },
            Err(error) => error.to_string(),
        };
        let report = format!(
            "the program {path} is another build, but it did not take over: {why}. The running program serves as before, and the configuration was not reloaded; `proscenium check` with the new program shows problems of the configuration"
        );
        tracing::error!(asked_by, "{report}");
        self.outcome(ReloadResult::Refused, report)
    }

    /// The process that has taken over.
    ///
    /// # Errors
    /// Why the process has not taken over. It has ended.
    async fn taken_over_by(&self, mut child: Child) -> Result<u32, String> {
        let mut successor = self.hand_over.successor.subscribe();
        let taken_over = async {
            let taken = successor.wait_for(Option::is_some).await;
            taken.ok().and_then(|pid| *pid).unwrap_or_default()
        };
        let ended = tokio::select! {
            pid = taken_over => return Ok(pid),
            ended = timeout(HAND_OVER_MAX, child.wait()) => ended,
        };
        Err(match ended {
            Ok(Ok(status)) => {
                let failure = self.hand_over.take_failure();
                failure.unwrap_or_else(|| ended_with(status))
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => {
                let _ = child.kill().await;
                format!("it was not ready within {HAND_OVER_MAX:?} and was ended")
            }
        })
    }
}

fn ended_with(status: ExitStatus) -> String {
    format!("it ended with {status}; its messages are in the log")
}
