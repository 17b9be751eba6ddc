//! The stand-in for the running proxy.

use std::{pin::Pin, sync::Mutex, time::SystemTime};

use tokio::sync::Semaphore;

use super::{
    block,
    samples::{member, status},
};
use crate::*;

/// A proxy that answers as its fields say.
pub(crate) struct Fake {
    pub(crate) result: ReloadResult,
    pub(crate) metrics: String,
    /// One permit lets one reload finish.
    pub(crate) reloads: Semaphore,
    pub(crate) reloading: Mutex<usize>,
    pub(crate) set: Mutex<Vec<MemberStateRequest>>,
    pub(crate) status: Mutex<Status>,
    pub(crate) permission: Permission,
    pub(crate) audit: Mutex<Vec<AuditEntry>>,
    pub(crate) locks: ChangeLocks,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            result: ReloadResult::Applied,
            metrics: "# EOF\n".to_owned(),
            reloads: Semaphore::new(100),
            reloading: Mutex::new(0),
            set: Mutex::new(Vec::new()),
            status: Mutex::new(status()),
            permission: Permission::Operate,
            audit: Mutex::default(),
            locks: ChangeLocks::default(),
        }
    }
}

impl Control for Fake {
    fn locks(&self) -> &ChangeLocks {
        &self.locks
    }

    fn last_member_change(&self, _: &str, _: &str) -> Option<LastChange> {
        None
    }

    fn last_block_change(&self) -> Option<LastChange> {
        None
    }

    fn status(&self) -> Status {
        self.status.lock().unwrap().clone()
    }

    fn unready(&self) -> Option<&'static str> {
        None
    }

    fn traffic(&self) -> TrafficStatus {
        TrafficStatus::default()
    }

    fn requests(&self) -> RequestsStatus {
        RequestsStatus::default()
    }

    fn configuration(&self) -> Pin<Box<dyn Future<Output = ConfigurationStatus> + Send + '_>> {
        Box::pin(async {
            ConfigurationStatus {
                generation: 7,
                loaded_at: SystemTime::UNIX_EPOCH.into(),
                file: "/etc/proscenium/proscenium.toml".to_owned(),
                active: String::new(),
                restart_pending: Vec::new(),
                reload: self.dry_run().await,
            }
        })
    }

    fn dry_run(&self) -> Pin<Box<dyn Future<Output = ReloadOutcome> + Send + '_>> {
        Box::pin(async {
            ReloadOutcome {
                result: self.result,
                generation: 7,
                report: "what would change".to_owned(),
            }
        })
    }

    fn applied_configurations(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<AppliedConfigurations, RollbackError>> + Send + '_>>
    {
        Box::pin(async {
            Ok(AppliedConfigurations {
                configurations: Vec::new(),
            })
        })
    }

    fn configuration_text(
        &self,
        _: String,
        _: Caller,
    ) -> Pin<Box<dyn Future<Output = Result<ConfigurationText, RollbackError>> + Send + '_>> {
        Box::pin(async { Err(RollbackError::Forbidden) })
    }

    fn try_roll_back(
        &self,
        _: RollbackRequest,
    ) -> Pin<Box<dyn Future<Output = Result<RollbackOutcome, RollbackError>> + Send + '_>> {
        Box::pin(async { Err(RollbackError::NoOther) })
    }

    fn roll_back(
        &self,
        request: RollbackRequest,
    ) -> Pin<Box<dyn Future<Output = Result<RollbackOutcome, RollbackError>> + Send + '_>> {
        self.try_roll_back(request)
    }

    fn explain(
        &self,
        request: ExplainRequest,
    ) -> Pin<Box<dyn Future<Output = Result<RequestExplanation, ExplainError>> + Send + '_>> {
        Box::pin(async move {
            match request.method.as_str() {
                "GET" => Ok(RequestExplanation {
                    is_refused: false,
                    blocks_not_applied: None,
                    client: ExplainedClient {
                        verdict: "NONE".to_owned(),
                        certname: None,
                        refusal: None,
                        issuer: None,
                        possible_issuers: Vec::new(),
                        extensions: Vec::new(),
                    },
                    listeners: Vec::new(),
                    headers_removed: 0,
                    path: request.url,
                    steps: Vec::new(),
                    observed_rule: None,
                    outcome: ExplainedOutcome::Status,
                }),
                method => Err(ExplainError::Method(method.to_owned())),
            }
        })
    }

    fn account(
        &self,
        caller: Caller,
    ) -> Pin<Box<dyn Future<Output = OperatorAccount> + Send + '_>> {
        let name = Some("operator".to_owned());
        Box::pin(async move { OperatorAccount::new(caller.uid, name) })
    }

    fn past_events(&self, since: SystemTime, limit: usize) -> Vec<PastEvent> {
        let events = (0..3).map(|minute| PastEvent {
            at: Timestamp::from_unix_seconds(1_700_000_000 + 60 * minute),
            kind: "member".to_owned(),
            subject: "compilers/c1:8140".to_owned(),
            message: "member health changed".to_owned(),
            severity: None,
            by: None,
        });
        let newer = events.filter(|event| event.at.instant() >= Some(since));
        newer.take(limit).collect()
    }

    fn permission(&self, _: Caller) -> Pin<Box<dyn Future<Output = Permission> + Send + '_>> {
        Box::pin(async { self.permission })
    }

    fn audit(&self, entry: AuditEntry) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.audit.lock().unwrap().push(entry);
        Box::pin(async {})
    }

    fn metrics(&self, format: telemetry::Exposition) -> String {
        format!("{format:?}{}", self.metrics)
    }

    fn reload(&self) -> Pin<Box<dyn Future<Output = ReloadOutcome> + Send + '_>> {
        Box::pin(async {
            *self.reloading.lock().unwrap() += 1;
            self.reloads.acquire().await.unwrap().forget();
            ReloadOutcome {
                result: self.result,
                generation: 7,
                report: "what was found".to_owned(),
            }
        })
    }

    fn set_member_states(
        &self,
        request: MemberStateRequest,
        _by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<MemberStateOutcome, MemberStateError>> + Send + '_>>
    {
        let member = PoolMemberStatus {
            pool: request.members.pool.clone().unwrap_or_default(),
            member: MemberStatus {
                administrative_state: request.state,
                ..member()
            },
        };
        self.set.lock().unwrap().push(request);
        Box::pin(async {
            Ok(MemberStateOutcome {
                members: vec![member],
                not_persisted: None,
                replaced: Vec::new(),
                fleet: None,
            })
        })
    }

    fn applied_elsewhere(
        &self,
        _: Vec<(String, String)>,
    ) -> Pin<Box<dyn Future<Output = Option<FleetOutcome>> + Send + '_>> {
        Box::pin(async {
            let fleet = self.status().fleet?;
            let proxies = fleet.proxies.into_iter().map(|proxy| FleetProxyOutcome {
                name: proxy.name,
                applied_after_milliseconds: Some(31),
                ..FleetProxyOutcome::default()
            });
            Some(FleetOutcome {
                proxies: proxies.collect(),
                ..FleetOutcome::default()
            })
        })
    }

    fn ask_for_turn(
        &self,
        request: TurnRequest,
        _: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<TurnAnswer, TurnError>> + Send + '_>> {
        Box::pin(async move {
            request.check()?;
            Ok(TurnAnswer {
                has_turn: true,
                ..TurnAnswer::default()
            })
        })
    }

    fn end_turn(
        &self,
        _: TurnEnd,
    ) -> Pin<Box<dyn Future<Output = Result<TurnAnswer, TurnError>> + Send + '_>> {
        Box::pin(async { Err(TurnError::NoFleet) })
    }

    fn member(&self, pool: &str, member: &str) -> Result<MemberStatus, MemberStateError> {
        if member == "unknown" {
            return Err(MemberStateError::UnknownMember {
                pool: pool.to_owned(),
                member: member.to_owned(),
                known: vec!["c1:8140".to_owned(), "c2:8140".to_owned()],
            });
        }
        let address = member.to_owned();
        Ok(MemberStatus {
            address,
            ..self::member()
        })
    }

    fn agents(&self) -> AgentsStatus {
        AgentsStatus {
            seen: 0,
            agents: Vec::new(),
        }
    }

    fn refusals(&self) -> RefusalsStatus {
        RefusalsStatus {
            refusals: Vec::new(),
            evicted: 0,
        }
    }

    fn who(
        &self,
        request: WhoRequest,
    ) -> Pin<Box<dyn Future<Output = Result<WhoStatus, WhoError>> + Send + '_>> {
        let about = request.certname.unwrap_or_default();
        Box::pin(async move { Err(WhoError::Invalid(format!("no agent is named {about}"))) })
    }

    fn blocks(&self) -> Vec<BlockStatus> {
        vec![block("web01")]
    }

    fn block_certnames(
        &self,
        request: BlockCertnamesRequest,
        _: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<BlockCertnamesOutcome, BlockError>> + Send + '_>> {
        Box::pin(async move {
            Ok(BlockCertnamesOutcome {
                blocks: request.certnames.iter().map(|name| block(name)).collect(),
                not_persisted: None,
                replaced: Vec::new(),
                fleet: None,
            })
        })
    }

    fn block(
        &self,
        request: BlockRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<BlockOutcome, BlockError>> + Send + '_>> {
        Box::pin(async move {
            if request.why.is_empty() {
                return Err(BlockError::Invalid("why is empty".to_owned()));
            }
            let block = BlockStatus {
                blocked: request.blocked,
                why: request.why,
                by: by.to_string(),
                ..block("")
            };
            let not_persisted = Some("no space left".to_owned());
            Ok(BlockOutcome {
                block,
                not_persisted,
                agent: None,
                refusal: None,
                separate_cas: Vec::new(),
                replaced: None,
                fleet: None,
            })
        })
    }

    fn unblock(
        &self,
        blocked: BlockSubject,
        _by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<BlockOutcome, BlockError>> + Send + '_>> {
        let name = blocked.certname.unwrap_or_default();
        Box::pin(async move { Err(BlockError::NotBlocked(format!("certname {name}"))) })
    }

    fn log_level(&self) -> LogLevelStatus {
        LogLevelStatus {
            level: "info".to_owned(),
            previous: None,
        }
    }

    fn set_log_level(
        &self,
        level: &str,
        by: OperatorAccount,
    ) -> Result<LogLevelStatus, LogLevelError> {
        Err(LogLevelError(format!("{level:?} is not a level ({by})")))
    }

    fn reopen_logs(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<LogsReopened, ReopenLogsError>> + Send + '_>> {
        Box::pin(async {
            Err(ReopenLogsError(
                "access log /var/log/x: no such file".to_owned(),
            ))
        })
    }

    fn fetch_crls(&self) -> Pin<Box<dyn Future<Output = CrlFetchOutcome> + Send + '_>> {
        Box::pin(async {
            CrlFetchOutcome {
                result: CrlFetchResult::Shrunk,
                report: "a CRL drops revocations: CN=Puppet CA".to_owned(),
            }
        })
    }

    fn accept_crl(
        &self,
        request: CrlAcceptRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<CrlAccepted, CrlAcceptError>> + Send + '_>> {
        Box::pin(async move {
            match request.issuer.as_str() {
                "CN=Puppet CA" => Ok(CrlAccepted {
                    accepted: Vec::new(),
                    not_persisted: Some(format!("{by}: {}", request.why)),
                }),
                _ => Err(CrlAcceptError::NotShrunk {
                    issuer: request.issuer,
                    shrunk: vec!["CN=Puppet CA".to_owned()],
                }),
            }
        })
    }
}
