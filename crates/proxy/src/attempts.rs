//! The attempts of one request: pick a member, stamp the head, send the request, wait for the response head, decide whether to
//! try again.

use std::{cell::Cell, pin::pin, rc::Rc, sync::Arc, time::Duration};

use balancing::{
    AttemptFailure, AttemptStage, ClientKey, Member, MemberPersistence, Offer, PickCriteria,
    PickError, Picker, RetryPolicy, RetryVerdict, Task, key_hash, settings::Algorithm, source_hash,
};
use http::{HeaderValue, StatusCode};
use routing::{ForwardPlan, RetryClass};
use telemetry::{AttemptResult, ResponseFailure};
use tokio::time::{Instant, sleep};
use upstream::{
    AttemptError, Connector, DialError, DialStage, Exchange, MemberHead, OwnFields, SendOptions,
    Stamped,
};

use crate::{
    admission::{AdmissionRequest, WaitPolicy, admit},
    authorization::{UpstreamRequest, recheck_access},
    context::RequestContext,
    error::ProxyError,
    first_byte::{Limits, NoResponse, WaitHooks, first_byte},
    forwarding::{names, set_host_fields},
    long_requests::{LongRequest, REQUEST_CHARS_MAX},
    member_return::{STOP_PAUSE, holds_jruby, task},
    pool_runtime::{PickNow, PoolLease, PoolRuntime},
    reason::LogReason,
    record::ActiveExchange,
    respond,
    response_body::AnswerBody,
    retry_support::RetrySupport,
    settings::IdentitySent,
    upgrade::Upgrade,
    upload::{RequestBody, Upload},
};

pub(crate) struct Attempts<'a> {
    pub(crate) context: &'a RequestContext,
    pub(crate) pool: &'a Arc<PoolRuntime>,
    pub(crate) plan: &'a ForwardPlan<'a>,
    pub(crate) with_certificate: bool,
    /// The member that persistence prefers.
    pub(crate) stay: MemberPersistence,
    /// Whether the request may have been sent to the member that persistence prefers.
    pub(crate) tried_home: Cell<bool>,
    pub(crate) request: UpstreamRequest<'a>,
}

/// How one attempt is made.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) fresh: bool,
    pub(crate) now: Instant,
    pub(crate) tried: &'a [u64],
    /// Whether the request may move to another member if this one fails before the first byte of its response.
    pub(crate) may_move: bool,
}

pub(crate) struct MemberResponse {
    pub(crate) head: MemberHead,
    pub(crate) body: AnswerBody,
}

impl From<Exchange<RequestBody>> for MemberResponse {
    fn from(response: Exchange<RequestBody>) -> Self {
        Self {
            head: response.head,
            body: AnswerBody::Streamed(response.body),
        }
    }
}

/// An attempt without a response.
pub(crate) enum Unanswered {
    /// The member went down or into maintenance. This lease is for another member that can take the request.
    Moved(PoolLease),
    Failed(AttemptFailure, ProxyError),
}

/// How far the attempts of a request have come.
struct Progress {
    attempts_max: u32,
    attempts: u32,
    tried: Vec<u64>,
    last: Option<ProxyError>,
    reused: bool,
    moved: bool,
    /// The member of the next attempt, if it has already been picked.
    next: Option<PoolLease>,
    /// When the current attempt began. The clock is read rarely, because several reads per request measurably increase its
    /// cost.
    now: Instant,
}

/// What follows a response.
enum AfterResponse {
    Accept,
    Again,
    /// Try again after a pause, because the only member is stopping. The member soon refuses connections, and then the request
    /// waits.
    AgainAfterPause,
}

impl Attempts<'_> {
    /// Tries members until one responds, or until another attempt could do harm.
    pub(crate) async fn run(
        &self,
        attempts_max: u32,
        exchange: &mut ActiveExchange,
    ) -> Result<MemberResponse, ProxyError> {
        self.pool
            .pool
            .count_request(self.pool.rules.guards.retry_budget);
        let mut progress = Progress {
            // Each renewal uses up a serial of the CA and supersedes the previous certificate, so it gets one attempt only.
            attempts_max: if self.plan.is_renewal() {
                1
            } else {
                attempts_max
            },
            attempts: 0,
            tried: Vec::new(),
            last: None,
            reused: false,
            moved: false,
            next: None,
            now: exchange.ready_at(),
        };
        if exchange.retry_support() != RetrySupport::Retries && self.holds_jruby() {
            exchange.upload.store_sent();
        }
        loop {
            if progress.attempts > 0 {
                progress.now = Instant::now();
            }
            let before = exchange.upload.time_in_queue();
            let lease = match progress.next.take() {
                Some(lease) => lease,
                None => self.wait_for_member(&mut progress, exchange).await?,
            };
            let in_queue = exchange.upload.time_in_queue();
            let waited = in_queue.map_or(Duration::ZERO, |all| {
                all.saturating_sub(before.unwrap_or_default())
            });
            progress.attempts += 1;
            let counted = self.begin_attempt(&lease, exchange);
            let attempt = self.attempt(&lease, &exchange.upload, self.next_attempt(&progress));
            match attempt.await {
                Ok(response) => {
                    self.note_answer(&lease, &counted, response.head.status);
                    match self.after_response(&response.head, &lease, &mut progress, exchange) {
                        AfterResponse::Accept => {}
                        AfterResponse::Again => continue,
                        AfterResponse::AgainAfterPause => {
                            drop((response, lease, counted));
                            sleep(STOP_PAUSE).await;
                            continue;
                        }
                    }
                    let asked = lease.member().id();
                    let attempted = progress.now + waited;
                    let answer = self.accept(response, (lease, attempted), exchange)?;
                    let left = progress.attempts_max - progress.attempts;
                    if left > 0 && self.is_bucket_miss(&answer) {
                        progress.tried.push(asked);
                        // Boxed, so that requests without a search need no room for it.
                        let search = self.search_buckets(answer, progress.tried, left, exchange);
                        return Ok(Box::pin(search).await);
                    }
                    return Ok(answer.into());
                }
                Err(Unanswered::Moved(elsewhere)) => {
                    counted.moved();
                    tracing::warn!(
                        pool = %self.pool.pool.name(), member = %lease.member().address(), to = %elsewhere.member().address(),
                        "request moved: its member is down or in maintenance and had not answered"
                    );
                    progress.moved = true;
                    progress.tried.push(lease.member().id());
                    progress.next = Some(elsewhere);
                }
                Err(Unanswered::Failed(failure, error)) => {
                    let failed = (&failure, error);
                    // Boxed, so that requests without a failure need no room for it.
                    Box::pin(self.after_failure(failed, (lease, counted), &mut progress, exchange))
                        .await?;
                }
            }
        }
    }

    async fn wait_for_member(
        &self,
        progress: &mut Progress,
        exchange: &mut ActiveExchange,
    ) -> Result<PoolLease, ProxyError> {
        let waited = exchange.upload.time_in_queue();
        let admission = self.admission_request(exchange);
        let offer = Offer {
            // An upgrade does not wait, so it must not displace a request from the queue.
            comes_back: admission.comes_back || self.request.upgrade.is_some(),
            ..self.offer(&progress.tried, progress.reused)
        };
        let hold = exchange.hold.take();
        let wait_policy = match self.request.upgrade {
            None => WaitPolicy::Waits(&exchange.upload),
            Some(_) => WaitPolicy::None,
        };
        let now = self.since_start(progress.now);
        match admit(admission, offer, hold, wait_policy, now).await {
            Ok(admitted) => {
                if exchange.upload.time_in_queue() != waited {
                    recheck_access(self.context, &self.request, exchange)?;
                }
                exchange.hold = Some(admitted.hold);
                Ok(admitted.lease)
            }
            Err(error) => Err(progress.last.take().unwrap_or(error)),
        }
    }

    fn next_attempt<'p>(&self, progress: &'p Progress) -> Attempt<'p> {
        // A tunnel keeps its connection until it ends. A reused connection, which the member may be closing, is not worth the
        // risk. The same holds for a renewal, which is not sent again on another connection.
        let once = self.request.upgrade.is_some() || self.plan.is_renewal();
        Attempt {
            fresh: progress.attempts > 1 || once,
            now: progress.now,
            tried: &progress.tried,
            may_move: !progress.moved
                && progress.attempts < progress.attempts_max
                && self.is_safe(),
        }
    }

    fn after_response(
        &self,
        head: &MemberHead,
        lease: &PoolLease,
        progress: &mut Progress,
        exchange: &ActiveExchange,
    ) -> AfterResponse {
        if self.waits_for_queue(head, lease, exchange) {
            // The member did nothing, so this does not count as an attempt.
            progress.attempts -= 1;
            return AfterResponse::Again;
        }
        exchange.upload.drop_sent();
        let again = progress.attempts < progress.attempts_max && exchange.upload.replayable();
        if !again || !self.may_try_another(head) || !self.admit_retry() {
            return AfterResponse::Accept;
        }
        progress.tried.push(lease.member().id());
        match self.pick_at_once(&progress.tried, Instant::now()) {
            Ok(elsewhere) => {
                progress.next = Some(elsewhere);
                AfterResponse::Again
            }
            // The other members are busy: the request waits for one of them.
            Err(PickError::Full) => AfterResponse::Again,
            // No other member is available.
            Err(PickError::NoneYet) => {
                progress.tried.clear();
                AfterResponse::Again
            }
            Err(PickError::AllTried) if self.stops(head, exchange) => {
                progress.tried.clear();
                AfterResponse::AgainAfterPause
            }
            Err(PickError::AllTried | PickError::NoneAvailable) => AfterResponse::Accept,
        }
    }

    /// Prepares another attempt after one that failed.
    ///
    /// # Errors
    /// No further attempt is made.
    async fn after_failure(
        &self,
        (failure, error): (&AttemptFailure, ProxyError),
        (lease, counted): (PoolLease, CountedAttempt),
        progress: &mut Progress,
        exchange: &ActiveExchange,
    ) -> Result<(), ProxyError> {
        let upload = &exchange.upload;
        self.note_failure(&lease, failure, &error, (&counted, upload));
        // If no member is available, the request waits like a request that arrives now, and any member may get it.
        let waits = self.waits_for_return(exchange);
        if waits && failure.unsent {
            // The members did nothing, so only this attempt counts.
            progress.attempts = 1;
        }
        let policy = RetryPolicy {
            attempts_max: progress.attempts_max,
        };
        let decided = policy.decide(
            failure,
            &self.retry_question(&error, progress, exchange, waits),
        );
        if decided == RetryVerdict::GiveUp {
            return Err(error);
        }
        // Closing an idle connection does not show that a member fails under its load, so such a retry does not use the budget.
        if failure.blames_member() && !waits && !self.admit_retry() {
            return Err(ProxyError::NotRetried(Box::new(error)));
        }
        progress.reused = failure.reused;
        if waits {
            progress.tried.clear();
        } else if failure.blames_member() {
            progress.tried.push(lease.member().id());
            let may_be_gone = failure.broken_off && self.pool.pool.available() <= 1;
            // The only member may have died. So far only its port could show that.
            if may_be_gone && self.may_wait_for_return(exchange) {
                drop(counted);
                if self.is_gone(lease).await {
                    progress.tried.clear();
                }
            }
        }
        progress.last = Some(error);
        Ok(())
    }

    /// The facts that decide whether a failed attempt is repeated. `waits`: no member is available, and the request waits.
    fn retry_question(
        &self,
        error: &ProxyError,
        progress: &Progress,
        exchange: &ActiveExchange,
        waits: bool,
    ) -> balancing::Progress {
        balancing::Progress {
            attempts: progress.attempts,
            // Bytes that are not HTTP do not count as a response.
            response_started: matches!(error, ProxyError::Broken { begun: true, source, .. } if !source.is_malformed()),
            safe: self.is_safe(),
            body_replayable: exchange.upload.replayable(),
            single_member: self.plan.endpoint.ca_write && !self.pool.pool.has_backup() && !waits,
            late: matches!(
                error,
                ProxyError::Late { .. } | ProxyError::Stalled { .. } | ProxyError::Body(_)
            ),
        }
    }

    pub(crate) fn admission_request(&self, exchange: &ActiveExchange) -> AdmissionRequest<'_> {
        AdmissionRequest {
            context: self.context,
            pool: self.pool,
            task: self.task(),
            jruby: self.holds_jruby(),
            comes_back: exchange.retry_support() == RetrySupport::Retries,
        }
    }

    /// Whether the request waits here because the member's own queue is full. It waits if its agent would fail its run on the
    /// 503, if the response shows that the member did nothing, and if the whole request can be sent again.
    fn waits_for_queue(
        &self,
        head: &MemberHead,
        lease: &PoolLease,
        exchange: &ActiveExchange,
    ) -> bool {
        let class = self.plan.endpoint.class;
        if respond::is_unmounted(head, class, self.plan.route.unguarded) {
            lease.member().noted_starting();
        }
        if !self.holds_jruby() {
            // Puppet Server's queue limit applies to JRubies. The proxy learns no limit for other requests, so nothing would
            // delay their next attempt.
            return false;
        }
        if !respond::is_overloaded(head, class, self.plan.route.unguarded) {
            // A 503 of a server that is stopping, or whose JRubies stayed busy too long, does not mean that its queue
            // has room.
            let shows_room = head.status != StatusCode::SERVICE_UNAVAILABLE;
            if shows_room {
                lease.member().has_room();
            }
            return false;
        }
        self.note_overload(lease.member());
        let admission = self.admission_request(exchange);
        let upload = &exchange.upload;
        let is_once = self.request.upgrade.is_some() || self.plan.is_renewal();
        !is_once && !admission.comes_back && admission.has_time_left(upload) && upload.rewind()
    }

    fn note_overload(&self, member: &Member) {
        if member.overloaded(self.since_start(Instant::now())) {
            tracing::warn!(
                pool = %member.pool(), member = %member.address(), limit = member.learned_limit(),
                "member overloaded: its own queue is full, and it gets no more requests than it accepted"
            );
        }
    }

    /// Notes an attempt in the record. The attempt is counted when it ends.
    pub(crate) fn begin_attempt(
        &self,
        lease: &PoolLease,
        exchange: &mut ActiveExchange,
    ) -> CountedAttempt {
        exchange.attempted(lease.member().address(), &self.pool.metrics);
        let tries_home = match self.stay {
            MemberPersistence::No => false,
            MemberPersistence::Member(id) => id == lease.member().id(),
            MemberPersistence::Hash(_) => exchange.attempts() > 1,
        };
        if tries_home {
            self.tried_home.set(true);
        }
        CountedAttempt {
            at: lease.pool_and_index(),
            result: Cell::new(AttemptResult::Abandoned),
        }
    }

    /// Notes a member's response. The response is passed on unless a check refuses it.
    fn accept(
        &self,
        response: Exchange<RequestBody>,
        (lease, attempted): (PoolLease, Instant),
        exchange: &mut ActiveExchange,
    ) -> Result<Exchange<RequestBody>, ProxyError> {
        exchange.connected(response.connect);
        let status = response.head.status;
        exchange.answered(status);
        if let Some(took) = exchange.served_in(attempted) {
            let is_error = status.is_client_error() || status.is_server_error();
            lease.learn(took, is_error, self.since_start(attempted + took));
            if !status.is_server_error() {
                self.note_time(&lease, took);
            }
        }
        respond::check_response(
            &response.head,
            self.plan.endpoint.class,
            self.plan.route.unguarded,
            self.request.upgrade,
            lease.member().address(),
        )?;
        exchange.lease = Some(lease);
        Ok(response)
    }

    /// Whether the request may be sent twice. An upgrade may have opened a tunnel at the first member.
    fn is_safe(&self) -> bool {
        self.plan.retry == RetryClass::Safe && self.request.upgrade.is_none()
    }

    /// Whether a member answered that it is starting or stopping, so that a safe request may go to another member. Agents of
    /// Puppet 7 do not handle a `Retry-After`: they close the connection, wait, and then fail to read the response that they
    /// had already received (docs/decisions/starting-server-404.md).
    fn may_try_another(&self, head: &MemberHead) -> bool {
        let class = self.plan.endpoint.class;
        self.is_safe() && respond::is_starting_or_stopping(head, class, self.plan.route.unguarded)
    }

    /// Counts a retry. False: the retry budget of the pool is used up for now.
    fn admit_retry(&self) -> bool {
        let now = self.context.worker.shared.now();
        self.pool.pool.admit_retry(now)
    }

    /// Counts a filebucket search. False: the pool may make no more searches for now.
    pub(crate) fn admit_search(&self) -> bool {
        let now = self.context.worker.shared.now();
        self.pool.pool.admit_search(now)
    }

    fn offer(&self, tried: &[u64], after_reuse: bool) -> Offer {
        let context = self.context;
        let shares = &context.worker.shared.shares;
        let (account, _) = shares.of_pool(
            context.client_accounts(),
            context.generation.number,
            self.pool,
            self.holds_jruby(),
        );
        Offer {
            account,
            eligible: self.eligible(),
            criteria: self.criteria(),
            tried: tried.to_vec(),
            after_reuse,
            comes_back: false,
            unavailable_wait_max: self.unavailable_wait_max(),
        }
    }

    /// Whether a Puppet server needs one of its few JRubies for the request.
    fn holds_jruby(&self) -> bool {
        holds_jruby(self.plan)
    }

    pub(crate) fn pick_at_once(&self, tried: &[u64], now: Instant) -> Result<PoolLease, PickError> {
        let now = self.since_start(now);
        let pool = self.pool;
        PickNow { pool, now }.pick(&self.offer(tried, false))
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.context.worker.shared.started)
    }

    /// The criteria for picking a member. Each is computed only where the algorithm or the route needs it.
    fn criteria(&self) -> PickCriteria {
        let algorithm = self.pool.pool.algorithm();
        let source = || source_hash(self.context.conn.downstream.client.ip());
        PickCriteria {
            key: self.plan.bucket_key.map(|key| key_hash(key.as_bytes())),
            source: (algorithm == Algorithm::SourceHash).then(source),
            random: match algorithm {
                Algorithm::Random => self.context.worker.random(),
                _ => 0,
            },
            certname: match algorithm {
                Algorithm::CertnameHash => self.certname().map(|name| key_hash(name.as_bytes())),
                _ => None,
            },
            task: self.task(),
            persistence: self.stay,
        }
    }

    /// What the request costs a member. A tunnel stays open for hours without holding a JRuby. If it counted as a
    /// request that holds one, a few tunnels would block all other requests to the member.
    fn task(&self) -> Task {
        task(self.plan, self.request.upgrade.is_some())
    }

    fn certname(&self) -> Option<&str> {
        let agent = self.context.verdict.identity().agent()?;
        Some(agent.certname().as_str())
    }

    /// One attempt at one member: stamps the identity last, sends the request, and waits for the response head.
    pub(crate) async fn attempt(
        &self,
        lease: &PoolLease,
        upload: &Rc<Upload>,
        how: Attempt<'_>,
    ) -> Result<Exchange<RequestBody>, Unanswered> {
        let connector = lease.connector();
        let upgrade = self.request.upgrade.map(Upgrade::field);
        let begun = Cell::new(false);
        let sent = pin!(self.context.worker.connections.send(
            connector,
            self.request.method,
            self.request.target,
            self.stamp(connector, upgrade.as_ref()),
            RequestBody::new(upload),
            SendOptions {
                fresh: how.fresh,
                now: how.now,
                begun: &begun,
            },
        ));
        let limits = Limits {
            first_byte: self.pool.settings.first_byte_timeout,
            idle: self.pool.settings.idle_timeout,
        };
        let elsewhere = || {
            let may_move = !begun.get() && upload.replayable();
            let now = self.since_start(Instant::now());
            may_move.then(|| lease.elsewhere(&self.offer(how.tried, false), now))?
        };
        let elsewhere: Option<&dyn Fn() -> _> = how.may_move.then_some(&elsewhere);
        let timer = (&self.context.conn.response_timer, how.now);
        let long = || self.note_long(lease);
        let looks = WaitHooks {
            long: &long,
            elsewhere,
        };
        match first_byte(sent, upload, limits, timer, looks).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.failed(error, connector, upload)),
            Err(end) => Err(no_response(end, connector, limits)),
        }
    }

    /// The head that the member gets: the client's fields, then the proxy's own, and last the client's identity.
    fn stamp<'s>(
        &'s self,
        connector: &'s Connector,
        upgrade: Option<&'s HeaderValue>,
    ) -> Stamped<'s> {
        let (context, rules) = (self.context, &self.pool.rules);
        let scrubbed = self.request.scrubbed;
        let mut own = OwnFields::with_lines(context.conn.forwarded());
        own.set(&names::X_REQUEST_ID, context.request_id.as_bytes());
        set_host_fields(&mut own, scrubbed, rules.host, &connector.host);
        if let Some(protocols) = upgrade {
            own.set(&names::CONNECTION, b"upgrade");
            own.set(&names::UPGRADE, protocols.as_bytes());
        }
        if self.plan.is_renewal() {
            // The proxy reads this response itself and does not decode content codings.
            own.set(&names::ACCEPT_ENCODING, b"identity");
        }
        if self.plan.rewrite_member_names().is_some() {
            // The proxy replaces names only in a complete text without a content coding.
            own.set(&names::ACCEPT_ENCODING, b"identity");
            own.remove(&names::RANGE);
            own.remove(&names::IF_RANGE);
        }
        let (identity, form) = (&context.verdict.headers, &rules.form);
        match rules.identity_of(self.plan) {
            IdentitySent::All => scrubbed.stamp(own, identity, form, self.with_certificate),
            IdentitySent::Certificate => scrubbed.stamp_certificate(own, identity, Some(form)),
            IdentitySent::None => scrubbed.stamp_certificate(own, identity, None),
        }
    }

    fn failed(&self, error: AttemptError, connector: &Connector, upload: &Upload) -> Unanswered {
        let broken = |source, begun| match upload.fault() {
            // The client caused the failure, whatever the member reported.
            Some(fault) => ProxyError::Body(fault),
            None => ProxyError::Broken {
                member: Arc::clone(&connector.address),
                source,
                begun,
            },
        };
        let (stage, reused, unsent, error) = match error {
            AttemptError::Dial(error) => {
                let stage = match error.stage() {
                    DialStage::Resolve => AttemptStage::Resolve,
                    DialStage::Connect => AttemptStage::Connect,
                    DialStage::Handshake => AttemptStage::Handshake,
                };
                (stage, false, true, self.unreached(error))
            }
            AttemptError::Unsent { source, reused } => {
                (AttemptStage::SendHead, reused, true, broken(source, false))
            }
            AttemptError::Ambiguous {
                source,
                reused,
                begun,
            } => {
                let error = broken(source, begun);
                (AttemptStage::ReceiveHead, reused, false, error)
            }
        };
        let failure = AttemptFailure {
            stage,
            reused,
            unsent,
            broken_off: matches!(&error, ProxyError::Broken { begun: false, source, .. } if source.is_end()),
        };
        Unanswered::Failed(failure, error)
    }

    /// Adds this request to the list of those that have waited long for a member.
    fn note_long(&self, lease: &PoolLease) {
        let context = self.context;
        lease.note_long(&context.worker.shared.long_requests, || {
            let address = || {
                context
                    .conn
                    .downstream
                    .client
                    .ip()
                    .to_canonical()
                    .to_string()
            };
            let certname = context.verdict.certname.as_ref();
            let request = format!("{} {}", self.request.method, self.request.target.path());
            LongRequest {
                client: certname.map_or_else(|| address().into(), Arc::clone),
                request: request.chars().take(REQUEST_CHARS_MAX).collect(),
                since: context.when,
            }
        });
    }

    /// The error for a failed dial. A member that refuses connections may be back in a moment. A member whose TLS is
    /// misconfigured will not be.
    fn unreached(&self, error: DialError) -> ProxyError {
        match error {
            DialError::Handshake { .. }
            | DialError::Plaintext { .. }
            | DialError::Guarded { .. } => ProxyError::Unreachable(error),
            error => ProxyError::Unavailable {
                pool: Arc::clone(self.pool.pool.name()),
                reason: LogReason::Dial(error.reason()),
                source: Some(error),
            },
        }
    }

    /// Counts how long a member took to respond.
    pub(crate) fn note_time(&self, lease: &PoolLease, took: Duration) {
        let metrics = &lease.runtime().metrics;
        metrics.took(self.plan.endpoint.task.work, took);
    }

    pub(crate) fn note_answer(
        &self,
        lease: &PoolLease,
        counted: &CountedAttempt,
        status: StatusCode,
    ) {
        if status.is_server_error() {
            let metrics = &lease.runtime().metrics;
            metrics.response_failed(ResponseFailure::ServerError);
        }
        let member = lease.member();
        if let Some(change) = member.answered() {
            let pool = self.pool.pool.name();
            let shared = &self.context.worker.shared;
            shared.health_changed(pool, member.address(), &change);
        }
        member.attempt_succeeded();
        counted.result.set(AttemptResult::Ok);
    }

    /// Notes a failure that is the member's fault. It may eject the member.
    fn note_members_fault(&self, lease: &PoolLease, failure: &AttemptFailure) {
        let (runtime, index) = lease.pool_and_index();
        let context = self.context;
        let now = context.worker.shared.now();
        let settings = &runtime.rules.guards.ejection;
        let client = || {
            let certname = context.verdict.certname.as_ref();
            ClientKey::new(certname, context.conn.downstream.client.ip())
        };
        let client = (!failure.unsent).then(client);
        if let Some(time) = runtime.pool.attempt_failed(index, client, settings, now) {
            tracing::warn!(
                history.kind = "member",
                pool = %runtime.pool.name(), member = %lease.member().address(), seconds = time.as_secs_f64(),
                "member ejected: attempts at it failed"
            );
        }
    }

    pub(crate) fn note_failure(
        &self,
        lease: &PoolLease,
        failure: &AttemptFailure,
        error: &ProxyError,
        (counted, upload): (&CountedAttempt, &Upload),
    ) {
        let result = match (failure.stage, error) {
            (_, ProxyError::Late { .. } | ProxyError::Stalled { .. }) => AttemptResult::Timeout,
            (_, ProxyError::Body(_)) => AttemptResult::Abandoned,
            (AttemptStage::Resolve, _) => AttemptResult::Resolve,
            (AttemptStage::Connect, _) => AttemptResult::Connect,
            (AttemptStage::Handshake, _) => AttemptResult::Handshake,
            (AttemptStage::SendHead | AttemptStage::SendBody, _) => AttemptResult::Send,
            (AttemptStage::ReceiveHead, _) => AttemptResult::Receive,
        };
        counted.result.set(result);
        if let ProxyError::Late { limit, .. } = error {
            self.note_time(lease, *limit);
        }
        let member = lease.member();
        tracing::warn!(
            pool = %self.pool.pool.name(), member = %member.address(), result = result.as_str(),
            cause = error.cause().unwrap_or_else(|| error.reason().as_str().to_owned()), "attempt failed"
        );
        if is_members_fault(failure, error, upload) {
            self.note_members_fault(lease, failure);
        }
        let refused = matches!(error, ProxyError::Unavailable { source: Some(source), .. } if source.refused());
        if refused {
            self.note_refused(lease.member());
        }
    }

    pub(crate) fn note_refused(&self, member: &Member) {
        let shared = &self.context.worker.shared;
        if let Some(change) = member.connect_refused(shared.now()) {
            shared.health_changed(self.pool.pool.name(), member.address(), &change);
        }
    }
}

fn no_response(end: NoResponse, connector: &Connector, limits: Limits) -> Unanswered {
    let member = Arc::clone(&connector.address);
    let (stage, error) = match end {
        NoResponse::Moved(elsewhere) => return Unanswered::Moved(elsewhere),
        NoResponse::Late => {
            let limit = limits.first_byte;
            (
                AttemptStage::ReceiveHead,
                ProxyError::Late { member, limit },
            )
        }
        NoResponse::Stalled => {
            let limit = limits.idle;
            (
                AttemptStage::SendBody,
                ProxyError::Stalled { member, limit },
            )
        }
    };
    let failure = AttemptFailure {
        stage,
        reused: false,
        unsent: false,
        broken_off: false,
    };
    Unanswered::Failed(failure, error)
}

/// Whether a failure is the member's fault: no connection, no TLS, no valid response, or a host that no longer answers.
/// A slow member is not at fault, nor is one that closes a reused connection. A member that closes before the client
/// has sent the whole body is not at fault either, because servers do not wait for slow clients.
fn is_members_fault(failure: &AttemptFailure, error: &ProxyError, upload: &Upload) -> bool {
    match error {
        ProxyError::Unavailable {
            source: Some(source),
            ..
        }
        | ProxyError::Unreachable(source) => source.is_members_fault(),
        ProxyError::Broken { source, .. } if source.is_unanswered() => true,
        ProxyError::Broken { .. } => !failure.reused && upload.finished().is_some(),
        _ => false,
    }
}

/// Counts an attempt when it ends. If the value is dropped before, the client abandoned the attempt.
pub(crate) struct CountedAttempt {
    at: (Arc<PoolRuntime>, usize),
    result: Cell<AttemptResult>,
}

impl CountedAttempt {
    pub(crate) fn moved(&self) {
        self.result.set(AttemptResult::Moved);
    }
}

impl Drop for CountedAttempt {
    fn drop(&mut self) {
        let (pool, member) = &self.at;
        pool.members[*member].metrics.attempt(self.result.get());
    }
}
