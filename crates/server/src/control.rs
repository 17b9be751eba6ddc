//! The admin API's operations on the running process.

use std::{pin::Pin, sync::Arc, time::SystemTime};

use admin::{
    AgentsStatus, BlockError, BlockOutcome, BlockRequest, BlockStatus, BlockSubject, Caller,
    Control, CrlAcceptError, CrlAcceptRequest, CrlAccepted, CrlFetchOutcome, CrlFetchResult,
    LogLevelError, LogLevelStatus, LogsReopened, MemberStateError, MemberStateOutcome,
    MemberStateRequest, MemberStatus, RefusalsStatus, ReloadOutcome, ReopenLogsError, Status,
    WhoError, WhoRequest, WhoStatus,
};
use telemetry::Exposition;

use crate::{shared_state::App, status::status};

/// The running process as the admin API controls it.
pub(crate) struct Operator(pub(crate) Arc<App>);

impl Control for Operator {
    fn status(&self) -> Status {
        status(&self.0)
    }

    fn metrics(&self, format: Exposition) -> String {
        let metrics = &self.0.lasting.metrics;
        metrics.encode(admin::gauges(&self.status(), SystemTime::now()), format)
    }

    fn reload(&self) -> Pin<Box<dyn Future<Output = ReloadOutcome> + Send + '_>> {
        let app = Arc::clone(&self.0);
        Box::pin(async move {
            // The reload is a task of its own, so that a client that disconnects does not stop it halfway.
            let reload = tokio::spawn(async move { app.reload("admin").await });
            reload.await.unwrap_or_else(|_| ReloadOutcome {
                result: admin::ReloadResult::Refused,
                generation: self.0.generation().number,
                report: "the reload failed".to_owned(),
            })
        })
    }

    fn set_member_states(
        &self,
        request: MemberStateRequest,
        by: Caller,
    ) -> Pin<Box<dyn Future<Output = Result<MemberStateOutcome, MemberStateError>> + Send + '_>>
    {
        let change = outlives(Arc::clone(&self.0).set_member_states(request, by), || {
            Err(MemberStateError::Invalid(FAILED.to_owned()))
        });
        Box::pin(change)
    }

    fn member(&self, pool: &str, member: &str) -> Result<MemberStatus, MemberStateError> {
        self.0.member(pool, member)
    }

    fn agents(&self) -> AgentsStatus {
        self.0.agents()
    }

    fn refusals(&self) -> RefusalsStatus {
        self.0.refusals()
    }

    fn who(
        &self,
        request: WhoRequest,
    ) -> Pin<Box<dyn Future<Output = Result<WhoStatus, WhoError>> + Send + '_>> {
        let app = Arc::clone(&self.0);
        let found = tokio::task::spawn_blocking(move || app.who(&request));
        Box::pin(async move {
            let failed = |_| Err(WhoError::Senseless("the request failed".to_owned()));
            found.await.unwrap_or_else(failed)
        })
    }

    fn blocks(&self) -> Vec<BlockStatus> {
        self.0.blocks()
    }

    fn block(
        &self,
        request: BlockRequest,
        by: Caller,
    ) -> Pin<Box<dyn Future<Output = Result<BlockOutcome, BlockError>> + Send + '_>> {
        let change = outlives(Arc::clone(&self.0).block(request, by), || {
            Err(BlockError::Senseless(FAILED.to_owned()))
        });
        Box::pin(change)
    }

    fn unblock(
        &self,
        blocked: BlockSubject,
        by: Caller,
    ) -> Pin<Box<dyn Future<Output = Result<BlockOutcome, BlockError>> + Send + '_>> {
        let change = outlives(Arc::clone(&self.0).unblock(blocked, by), || {
            Err(BlockError::Senseless(FAILED.to_owned()))
        });
        Box::pin(change)
    }

    fn log_level(&self) -> LogLevelStatus {
        LogLevelStatus {
            level: self.0.events.level.get(),
            previous: None,
        }
    }

    fn set_log_level(&self, level: &str, by: Caller) -> Result<LogLevelStatus, LogLevelError> {
        let active = &self.0.events.level;
        let previous = active.set(level).map_err(LogLevelError)?;
        let log = || tracing::warn!(from = previous, to = level, %by, "log level changed");
        if tracing::enabled!(tracing::Level::WARN) {
            log();
        } else {
            // The new level hides this event, so it is logged at the previous one.
            active.set(&previous).map_err(LogLevelError)?;
            log();
            active.set(level).map_err(LogLevelError)?;
        }
        Ok(LogLevelStatus {
            level: level.to_owned(),
            previous: Some(previous),
        })
    }

    fn reopen_logs(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<LogsReopened, ReopenLogsError>> + Send + '_>> {
        Box::pin(self.0.reopen_logs())
    }

    fn fetch_crls(&self) -> Pin<Box<dyn Future<Output = CrlFetchOutcome> + Send + '_>> {
        let fetch = outlives(Arc::clone(&self.0).fetch_crls_on_request(), || {
            CrlFetchOutcome {
                result: CrlFetchResult::Failed,
                report: FAILED.to_owned(),
            }
        });
        Box::pin(fetch)
    }

    fn accept_crl(
        &self,
        request: CrlAcceptRequest,
        by: Caller,
    ) -> Pin<Box<dyn Future<Output = Result<CrlAccepted, CrlAcceptError>> + Send + '_>> {
        let change = outlives(Arc::clone(&self.0).accept_crl(request, by), || {
            Err(CrlAcceptError::Senseless(FAILED.to_owned()))
        });
        Box::pin(change)
    }
}

/// Runs a change as a task of its own, so that a client that disconnects does not stop it between the trust store and the
/// file.
fn outlives<T: Send + 'static>(
    change: impl Future<Output = T> + Send + 'static,
    failed: impl FnOnce() -> T,
) -> impl Future<Output = T> {
    let change = tokio::spawn(change);
    async move { change.await.unwrap_or_else(|_| failed()) }
}

/// The report of a change whose task has panicked.
const FAILED: &str = "the change failed";
