//! The admin API's operations on the running process.

use std::{pin::Pin, sync::Arc, time::SystemTime};

use admin::{
    AgentsStatus, AppliedConfigurations, AuditEntry, BlockCertnamesOutcome, BlockCertnamesRequest,
    BlockError, BlockOutcome, BlockRequest, BlockStatus, BlockSubject, Caller, ChangeLocks,
    ConfigurationStatus, ConfigurationText, Control, CrlAcceptError, CrlAcceptRequest, CrlAccepted,
    CrlFetchOutcome, CrlFetchResult, ExplainError, ExplainRequest, FleetOutcome, LastChange,
    LogLevelError, LogLevelStatus, LogsReopened, MemberStateError, MemberStateOutcome,
    MemberStateRequest, MemberStatus, OperatorAccount, PastEvent, Permission, RefusalsStatus,
    ReloadOutcome, ReopenLogsError, RequestExplanation, RequestsStatus, RollbackError,
    RollbackOutcome, RollbackRequest, Status, TrafficStatus, TurnAnswer, TurnEnd, TurnError,
    TurnRequest, WhoError, WhoRequest, WhoStatus,
};
use lifecycle::App;
use state::{ReaderThreads, supervise::outliving};
use telemetry::Exposition;
use tokio::sync::oneshot;

use crate::{
    account_names::AccountNames, account_permissions::AccountPermissions, explain::Explainer,
    permissions::is_owner, requests, status::status, traffic, who,
};

/// The running process as the admin API controls it.
pub(crate) struct Operator {
    app: Arc<App>,
    permissions: AccountPermissions,
    names: AccountNames,
    /// The threads of queries that take time.
    questions: ReaderThreads,
}

/// How many queries of readers are answered at a time, each on a thread of its own.
const QUESTIONS_MAX: usize = 4;

impl Operator {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self {
            app,
            permissions: AccountPermissions::default(),
            names: AccountNames::default(),
            questions: ReaderThreads::new("question", QUESTIONS_MAX),
        }
    }

    /// Answers a query on a thread of readers. The query keeps its thread until it is answered, even if its client
    /// disconnects. `None` if the thread panicked.
    fn answer<T, Q>(&self, question: Q) -> impl Future<Output = Option<T>> + Send + use<T, Q>
    where
        T: Send + 'static,
        Q: FnOnce(&App) -> T + Send + 'static,
    {
        let app = Arc::clone(&self.app);
        self.questions.run(move || question(&app))
    }
}

impl Control for Operator {
    fn locks(&self) -> &ChangeLocks {
        self.app.locks()
    }

    fn last_member_change(&self, pool: &str, member: &str) -> Option<LastChange> {
        self.app.records().last_member_change(pool, member)
    }

    fn last_block_change(&self) -> Option<LastChange> {
        self.app.records().last_block_change()
    }

    fn status(&self) -> Status {
        status(&self.app)
    }

    fn unready(&self) -> Option<&'static str> {
        self.app.unready()
    }

    fn metrics(&self, format: Exposition) -> String {
        let metrics = &self.app.active().shared().metrics;
        metrics.encode(admin::gauges(&self.status(), SystemTime::now()), format)
    }

    fn traffic(&self) -> TrafficStatus {
        traffic::traffic(&self.app)
    }

    fn requests(&self) -> RequestsStatus {
        traffic::requests(&self.app)
    }

    fn past_events(&self, since: SystemTime, limit: usize) -> Vec<PastEvent> {
        let history = &self.app.events().history;
        let events = history.since(since, limit, SystemTime::now());
        events.iter().map(PastEvent::from).collect()
    }

    fn configuration(&self) -> Pin<Box<dyn Future<Output = ConfigurationStatus> + Send + '_>> {
        Box::pin(self.app.configuration())
    }

    fn dry_run(&self) -> Pin<Box<dyn Future<Output = ReloadOutcome> + Send + '_>> {
        Box::pin(self.app.dry_run())
    }

    fn applied_configurations(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<AppliedConfigurations, RollbackError>> + Send + '_>>
    {
        Box::pin(self.app.applied_configurations())
    }

    fn configuration_text(
        &self,
        id: String,
        by: Caller,
    ) -> Pin<Box<dyn Future<Output = Result<ConfigurationText, RollbackError>> + Send + '_>> {
        Box::pin(async move {
            match is_owner(by) {
                true => self.app.configuration_text(&id).await,
                false => Err(RollbackError::Forbidden),
            }
        })
    }

    fn try_roll_back(
        &self,
        request: RollbackRequest,
    ) -> Pin<Box<dyn Future<Output = Result<RollbackOutcome, RollbackError>> + Send + '_>> {
        Box::pin(async move { self.app.try_roll_back(request.to.as_deref()).await })
    }

    fn roll_back(
        &self,
        request: RollbackRequest,
    ) -> Pin<Box<dyn Future<Output = Result<RollbackOutcome, RollbackError>> + Send + '_>> {
        let app = Arc::clone(&self.app);
        let rollback = async move { app.roll_back(request.to.as_deref(), "admin").await };
        Box::pin(outlives(rollback, || Err(RollbackError::Internal)))
    }

    fn explain(
        &self,
        request: ExplainRequest,
    ) -> Pin<Box<dyn Future<Output = Result<RequestExplanation, ExplainError>> + Send + '_>> {
        let explained = self.answer(move |app| Explainer::live(app).explain(&request, None));
        Box::pin(async move { explained.await.unwrap_or(Err(ExplainError::Internal)) })
    }

    fn permission(&self, caller: Caller) -> Pin<Box<dyn Future<Output = Permission> + Send + '_>> {
        let settings = self.app.active().foundation().config.admin.clone();
        Box::pin(self.permissions.of(settings, caller))
    }

    fn account(
        &self,
        caller: Caller,
    ) -> Pin<Box<dyn Future<Output = OperatorAccount> + Send + '_>> {
        Box::pin(self.names.of(caller.uid))
    }

    fn audit(&self, entry: AuditEntry) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.app.audit().write(vec![entry]))
    }

    fn reload(&self) -> Pin<Box<dyn Future<Output = ReloadOutcome> + Send + '_>> {
        let app = Arc::clone(&self.app);
        Box::pin(async move {
            // The reload is a task of its own, so that a client that disconnects does not stop it halfway.
            let (_caller, left) = oneshot::channel::<()>();
            let left = async { drop(left.await) };
            let reload = outliving("reload", async move { app.reload("admin", left).await });
            reload.await.unwrap_or_else(|| ReloadOutcome {
                result: admin::ReloadResult::Failed,
                generation: self.app.active().generation().number,
                report: "the reload failed because of an internal error".to_owned(),
            })
        })
    }

    fn set_member_states(
        &self,
        request: MemberStateRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<MemberStateOutcome, MemberStateError>> + Send + '_>>
    {
        let change = outlives(
            requests::set_member_states(Arc::clone(&self.app), request, by),
            || Err(MemberStateError::Internal),
        );
        Box::pin(change)
    }

    fn applied_elsewhere(
        &self,
        members: Vec<(String, String)>,
    ) -> Pin<Box<dyn Future<Output = Option<FleetOutcome>> + Send + '_>> {
        Box::pin(async move { self.app.applied_elsewhere(&members).await })
    }

    fn ask_for_turn(
        &self,
        request: TurnRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<TurnAnswer, TurnError>> + Send + '_>> {
        Box::pin(async move { self.app.ask_for_turn(request, by).await })
    }

    fn end_turn(
        &self,
        end: TurnEnd,
    ) -> Pin<Box<dyn Future<Output = Result<TurnAnswer, TurnError>> + Send + '_>> {
        Box::pin(async move { self.app.end_turn(&end.request).await })
    }

    fn member(&self, pool: &str, member: &str) -> Result<MemberStatus, MemberStateError> {
        requests::member(&self.app, pool, member)
    }

    fn agents(&self) -> AgentsStatus {
        who::agents(&self.app)
    }

    fn refusals(&self) -> RefusalsStatus {
        who::refusals(&self.app)
    }

    fn who(
        &self,
        request: WhoRequest,
    ) -> Pin<Box<dyn Future<Output = Result<WhoStatus, WhoError>> + Send + '_>> {
        let found = self.answer(move |app| who::who(app, &request));
        Box::pin(async move { found.await.unwrap_or(Err(WhoError::Internal)) })
    }

    fn blocks(&self) -> Vec<BlockStatus> {
        self.app.trust().blocks()
    }

    fn block(
        &self,
        request: BlockRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<BlockOutcome, BlockError>> + Send + '_>> {
        let change = outlives(requests::block(Arc::clone(&self.app), request, by), || {
            Err(BlockError::Internal)
        });
        Box::pin(change)
    }

    fn block_certnames(
        &self,
        request: BlockCertnamesRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<BlockCertnamesOutcome, BlockError>> + Send + '_>> {
        let change = outlives(
            Arc::clone(self.app.trust()).block_certnames(request, by),
            || Err(BlockError::Internal),
        );
        Box::pin(change)
    }

    fn unblock(
        &self,
        blocked: BlockSubject,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<BlockOutcome, BlockError>> + Send + '_>> {
        let change = outlives(Arc::clone(self.app.trust()).unblock(blocked, by), || {
            Err(BlockError::Internal)
        });
        Box::pin(change)
    }

    fn log_level(&self) -> LogLevelStatus {
        LogLevelStatus {
            level: self.app.events().level.get(),
            previous: None,
        }
    }

    fn set_log_level(
        &self,
        level: &str,
        by: OperatorAccount,
    ) -> Result<LogLevelStatus, LogLevelError> {
        let active = &self.app.events().level;
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
        Box::pin(self.app.reopen_logs())
    }

    fn fetch_crls(&self) -> Pin<Box<dyn Future<Output = CrlFetchOutcome> + Send + '_>> {
        let fetch = outlives(Arc::clone(self.app.trust()).fetch_crls_on_request(), || {
            CrlFetchOutcome {
                result: CrlFetchResult::Failed,
                report: "the fetch failed because of an internal error".to_owned(),
            }
        });
        Box::pin(fetch)
    }

    fn accept_crl(
        &self,
        request: CrlAcceptRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<CrlAccepted, CrlAcceptError>> + Send + '_>> {
        let change = outlives(Arc::clone(self.app.trust()).accept_crl(request, by), || {
            Err(CrlAcceptError::Internal)
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
    let change = outliving("change", change);
    async move { change.await.unwrap_or_else(failed) }
}
