//! The state of one exchange until its last byte: its lease, its connection and its record.

use std::{future::poll_fn, rc::Rc, sync::Arc, time::Duration};

use balancing::ClientSlot;
use http::{Method, StatusCode, Version};
use http1::{FieldName, RequestHead};
use identity::{ClientIdentity, ScrubReport};
use listener::{ClientVerdict, ConnectionStage};
use routing::{AccessRule, AccessStep, Class, ForwardPlan, RefusalReason};
use telemetry::{
    AccessRecord, FailureKind, Limit, PoolMetrics, RefusedClient, RequestFields, RequestFieldsCopy,
    RequestMetrics, ResponseFailure,
};
use tokio::time::Instant;
use tokio::time::timeout;
use upstream::MemberBody;

use crate::{
    access_rules::Observed,
    body_fault::BodyFault,
    client_body::ClientBody,
    connection::Conn,
    context::RequestContext,
    copying::Copied,
    edge::EdgeAnswer,
    error::ProxyError,
    forged_headers,
    generation::LocalGeneration,
    pace::ReaderPace,
    pool_runtime::PoolLease,
    reason::LogReason,
    request_id::RequestId,
    retry_support::RetrySupport,
    sanitize::InvalidRequest,
    slow_readers::Download,
    strangers::StrangerSlot,
    upload::{RequestBody, Upload},
    worker::Worker,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// The last byte was sent.
    Completion,
    Client,
    /// The member closed the connection too early.
    Member,
    /// The member's host no longer answers.
    MemberUnanswered,
    /// The framing of the member's body is malformed.
    Malformed,
    /// The member's body stalled for too long.
    MemberIdle,
    /// This side closed the tunnel in an orderly way.
    Closed(telemetry::EndedBy),
    /// The proxy aborted it, for this reason.
    Us(LogReason),
}

impl EndedBy {
    /// Whether the member broke off the response, or stalled in it.
    const fn is_members_fault(self) -> bool {
        matches!(
            self,
            Self::Member | Self::MemberUnanswered | Self::Malformed | Self::MemberIdle
        )
    }
}

/// One exchange from its head to its last byte. However it ends, the lease is released and one record is written.
#[derive(Debug)]
pub(crate) struct ActiveExchange {
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    generation: LocalGeneration,
    began: Instant,
    record: AccessRecord,
    /// Whether a trusted CA proves the certname in the record, although the certificate may be refused.
    has_proven_name: bool,
    is_recorded: bool,
    metrics: Option<Rc<RequestMetrics>>,
    method: Method,
    last: bool,
    retry_support: RetrySupport,
    /// The exchange continues as a tunnel. Its request has already been counted.
    tunnel: bool,
    idle_timeout: Duration,
    pub(crate) upload: Rc<Upload>,
    pub(crate) lease: Option<PoolLease>,
    /// The CA slot of a client without a verified certificate.
    pub(crate) stranger_slot: Option<StrangerSlot>,
    /// The slot in the client's share of the pool.
    pub(crate) hold: Option<ClientSlot<PoolLease>>,
}

impl ActiveExchange {
    pub(crate) fn begin(
        context: &RequestContext,
        head: &RequestHead,
        body: ClientBody,
    ) -> Box<Self> {
        let RequestContext { conn, began, .. } = context;
        let mut record = AccessRecord::new(
            context.when,
            Arc::clone(&conn.downstream.listener),
            conn.downstream.client,
        );
        record.tls = conn.tls.clone();
        record.peer = conn.downstream.peer.map(|peer| peer.ip());
        let (said, retry_support) = spoken(&context.worker, head, &context.request_id);
        record.request_fields = said;
        record.http_version = Some(match head.version {
            Version::HTTP_10 => "HTTP/1.0",
            Version::HTTP_2 => "HTTP/2",
            _ => "HTTP/1.1",
        });
        let requests = conn.requests.get();
        conn.requests.set(requests + 1);
        if requests == 0 {
            record.times.handshake = conn.downstream.tls.as_ref().map(|tls| tls.took);
        }
        // Most requests have no body, so they skip the lookup.
        let expects_continue =
            !body.is_end_stream() && head.fields.get(FieldName::Expect).is_some();
        // Boxed: it is large, and moves from the request's task to the response's body.
        let mut exchange = Box::new(Self {
            began: *began,
            record,
            is_recorded: false,
            metrics: None,
            method: head.method.clone(),
            has_proven_name: false,
            last: false,
            retry_support,
            tunnel: false,
            idle_timeout: Duration::from_secs(60),
            upload: Upload::new(body, expects_continue, *began),
            lease: None,
            stranger_slot: None,
            hold: None,
            worker: Rc::clone(&context.worker),
            conn: Rc::clone(conn),
            generation: context.generation.clone(),
        });
        exchange.identified(&context.verdict);
        exchange.record.known_client = Some(conn.known_client(&context.verdict));
        exchange
    }

    pub(crate) fn retry_support(&self) -> RetrySupport {
        self.retry_support
    }

    pub(crate) fn has_available_member(&self) -> bool {
        let name = self.record.pool.as_ref();
        let mut pools = self.generation.pools.iter();
        let pool = pools.find(|pool| Some(pool.pool.name()) == name);
        pool.is_some_and(|pool| pool.pool.is_available(self.worker.shared.now()))
    }

    /// When the first attempt can begin: when the head has arrived, unless the body must be buffered first.
    pub(crate) fn ready_at(&self) -> Instant {
        if self.upload.finished() == Some(self.began) {
            self.began
        } else {
            Instant::now()
        }
    }

    fn identified(&mut self, verdict: &ClientVerdict) {
        if self.conn.must_be_closed(verdict) {
            self.last = true;
            if let Some(streams) = &self.conn.streams {
                streams.turned_away.set(true);
            }
        }
        let record = &mut self.record;
        record.verdict = Some(Arc::clone(&verdict.verdict));
        record.certname = verdict.certname.clone().or_else(|| verdict.claimed());
        self.has_proven_name = verdict.has_proven_name();
    }

    pub(crate) fn routed(&mut self, plan: &ForwardPlan<'_>) {
        let pool = &self.generation.pools[plan.pool];
        let name = Arc::clone(pool.pool.name());
        self.metrics = Some(self.worker.request_metrics(
            self.generation.number,
            &plan.route.name,
            &name,
            plan.endpoint.class,
            plan.endpoint.task.work,
        ));
        self.idle_timeout = pool.settings.idle_timeout;
        if plan.document().is_some() || plan.is_renewal() {
            self.retry_support = RetrySupport::Continues;
        }
        let route = Arc::clone(&plan.route.name);
        let record = &mut self.record;
        record.route = Some(route);
        record.class = Some(plan.endpoint.class.as_str());
        record.work = Some(plan.endpoint.task.work);
        record.pool = Some(name);
    }

    /// Notes an access rule in observe mode that would have refused the request.
    pub(crate) fn observed(&mut self, rule: &AccessRule, class: Class) {
        self.record.observed = Some(Arc::clone(&rule.name));
        let Some(runtime) = self.generation.rules.get(rule.index) else {
            return;
        };
        let observed = Observed {
            rule,
            client: self.conn.downstream.client,
            certname: self.record.proven_certname(),
            class: class.as_str(),
        };
        runtime.observed(self.worker.shared.now(), &observed);
    }

    /// Counts a refusal by an access rule, and returns the cause with the rule's name.
    fn refused_by_rule(&self, error: &ProxyError) -> Option<String> {
        let ProxyError::Refused(refusal) = error else {
            return None;
        };
        let index = refusal.rule?;
        self.generation.rules.get(index)?.refused();
        let rule = self.generation.routes.rules().get(index)?;
        Some(format!("access rule {}", rule.name))
    }

    /// Counts the identity headers that were removed from the request, and logs them once a minute for each client.
    pub(crate) fn scrubbed(&self, scrubbing: ScrubReport) {
        if scrubbing.identity > 0 {
            self.worker
                .shared
                .metrics
                .identity_headers_scrubbed
                .inc_by(u64::from(scrubbing.identity));
            self.log_forged(&scrubbing);
        }
    }

    fn log_forged(&self, scrubbing: &ScrubReport) {
        let record = &self.record;
        let client = self.conn.downstream.client.ip().to_canonical();
        let certname = record.certname.as_ref();
        let certname = certname.filter(|_| record.proven_certname().is_some());
        let shared = &self.worker.shared;
        if shared.forged.is_due(certname, client, shared.now()) {
            tracing::warn!(
                certname = certname.map_or("-", |certname| certname),
                address = %client,
                headers = forged_headers::shown(&scrubbing.identity_names),
                "removed identity headers that the client sent"
            );
        }
    }

    pub(crate) fn attempted(&mut self, member: &Arc<str>, metrics: &PoolMetrics) {
        let record = &mut self.record;
        record.attempts += 1;
        record.member = Some(Arc::clone(member));
        if record.attempts > 1 {
            metrics.retries.inc();
        }
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.record.attempts
    }

    /// Notes that this member's response is passed on, although other members were tried later.
    pub(crate) fn answered_by(&mut self, member: Arc<str>) {
        self.record.member = Some(member);
    }

    pub(crate) fn connected(&mut self, took: Option<Duration>) {
        self.record.times.connect = took;
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    pub(crate) fn answered(&mut self, status: StatusCode) {
        let took = self.began.elapsed();
        let record = &mut self.record;
        record.status = Some(status.as_u16());
        record.times.first_byte = Some(took);
    }

    /// How long the member took to respond, from the later of `attempted` (the start of the attempt) and the end of the
    /// body.
    pub(crate) fn served_in(&self, attempted: Instant) -> Option<Duration> {
        let answered = self.began + self.record.times.first_byte?;
        let asked = attempted.max(self.upload.finished()?);
        Some(answered.saturating_duration_since(asked))
    }

    pub(crate) fn member(&self) -> Arc<str> {
        let member = self.record.member.clone();
        member.unwrap_or_else(|| Arc::from("-"))
    }

    /// Notes that a tunnel has opened. Its request counts as answered now, because the lifetime of a tunnel is not a response
    /// time.
    pub(crate) fn tunnelled(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.finished(
                StatusCode::SWITCHING_PROTOCOLS.as_u16(),
                self.began.elapsed(),
            );
        }
        self.tunnel = true;
    }

    /// Replaces the generation that the exchange started under with a newer one.
    pub(crate) fn decided_by(&mut self, generation: LocalGeneration) {
        self.generation = generation;
    }

    pub(crate) fn tunnel_ended(&mut self, copied: Copied) {
        self.upload.tunnelled(copied.up);
        self.record.bytes_out = copied.down;
    }

    pub(crate) fn set_cause(&mut self, cause: String) {
        self.record.cause = Some(cause.into());
    }

    /// Counts a certificate request that a rule in observe mode would have refused.
    pub(crate) fn csr_observed(&self, reason: &'static str) {
        self.worker.shared.metrics.csr_observed(reason);
    }

    pub(crate) fn answered_here(&mut self, status: StatusCode) {
        self.record.status = Some(status.as_u16());
    }

    pub(crate) fn status_answered(&mut self, status: StatusCode, available: bool) {
        self.answered_here(status);
        self.record.class = Some(Class::Status.as_str());
        if !available {
            let reason = LogReason::NoCompilerAvailable.as_str();
            self.worker.shared.metrics.refused(reason);
            self.record.reason = Some(reason);
        }
    }

    /// Notes why the proxy answers the request itself, and with which status code.
    pub(crate) fn failed(&mut self, status: StatusCode, error: &ProxyError) {
        let (route, class) = match error {
            ProxyError::Refused(refusal) => (refusal.route.clone(), Some(refusal.class)),
            _ => (None, None),
        };
        let reason = error.reason();
        let shared = &self.worker.shared;
        shared.metrics.refused(reason.as_str());
        if let ProxyError::Refused(refusal) = error
            && refusal.needs_legacy_routes
        {
            shared.metrics.legacy_requests_refused.inc();
            shared
                .old_agents
                .uses_legacy_path(shared.now(), &self.record);
        }
        let not_configured = LogReason::Route(RefusalReason::Access(AccessStep::NotConfigured));
        if reason == not_configured
            && let Some(certname) = self.record.proven_certname()
        {
            shared.renewal.note_refused(certname, self.record.when);
        }
        let mut refused_for = reason.as_str();
        let by_route = LogReason::Route(RefusalReason::Access(AccessStep::RefusedCertificate));
        if (reason == LogReason::RefusedCertificate || reason == by_route)
            && let ClientIdentity::Refused(refusal) = self.conn.last_verdict().identity()
        {
            let metrics = &self.worker.shared.metrics;
            refused_for = refusal.reason.as_str();
            metrics.certificate_refused(refused_for);
        }
        if status == StatusCode::FORBIDDEN {
            self.note_refusal(refused_for);
        }
        if matches!(error, ProxyError::Stalled { .. }) {
            self.conn.metrics.limit(Limit::BodyTimeout);
        }
        // Two parsers could disagree on where this request ends, and therefore on the next request (RFC 9112, 6.3).
        if matches!(
            error,
            ProxyError::InvalidRequest(InvalidRequest::Framing(_) | InvalidRequest::Head(_))
        ) {
            self.last |= self.is_alone();
        }
        if matches!(error, ProxyError::InvalidRequest(InvalidRequest::Large(_))) {
            self.conn.metrics.limit(Limit::Head);
        }
        if matches!(error, ProxyError::Body(_)) {
            self.last |= self.is_alone();
            match reason {
                LogReason::BodyTooLarge => self.conn.metrics.limit(Limit::Body),
                LogReason::BodyTimeout => self.conn.metrics.limit(Limit::BodyTimeout),
                LogReason::BodyTooSlow => self.conn.metrics.limit(Limit::BodyRate),
                _ => {}
            }
        }
        // The client comes back on a new connection. If this one stayed open, it would be idle until then.
        if matches!(
            error,
            ProxyError::Queue {
                retry_after: Some(_),
                ..
            }
        ) {
            self.last |= self.is_alone();
        }
        let gone = matches!(error, ProxyError::Body(BodyFault::Gone));
        let rule = self.refused_by_rule(error);
        let record = &mut self.record;
        // A client that has gone gets no response.
        record.status = (!gone).then_some(status.as_u16());
        record.reason = Some(reason.as_str());
        record.cause = rule.or_else(|| error.cause()).map(Into::into);
        record.route = route.or_else(|| record.route.take());
        record.class = class.map(Class::as_str).or(record.class);
    }

    /// Adds a refused client to the list for the operator.
    fn note_refusal(&self, reason: &'static str) {
        let record = &self.record;
        let refused = RefusedClient {
            client: record.client.ip().to_canonical(),
            listener: Arc::clone(&record.listener),
            certname: record.certname.clone(),
            is_verified: self.has_proven_name,
            reason,
        };
        self.worker.shared.refusals.note(refused, record.when);
    }

    pub(crate) fn answered_from_copy(&mut self, status: StatusCode, answer: &EdgeAnswer) {
        let metrics = &self.worker.shared.metrics;
        metrics.edge_answered(answer.document.as_str(), answer.unchanged);
        self.answered(status);
        self.record.member = Some(Arc::from(EDGE));
    }

    /// The pace at which the client reads the response, if its connection carries one response at a time.
    pub(crate) fn reader(&self) -> Option<&ReaderPace> {
        self.is_alone().then_some(&self.conn.reader)
    }

    pub(crate) fn begin_reading(&self) {
        if let Some(reader) = self.reader() {
            reader.begin(self.conn.activity.written(), self.download());
        }
    }

    /// What the list of slow downloads needs to know about the response, if the proxy may end it.
    pub(crate) fn download(&self) -> Option<Download> {
        let hold = self.hold.as_ref().filter(|_| self.method == Method::GET);
        let account = hold?.account()?;
        Some(Download {
            account: Arc::clone(account),
            began: self.began,
        })
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.record.bytes_out += bytes as u64;
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// Whether the response must announce that the connection closes. The response on a stream does not announce it, because
    /// the connection sends a GOAWAY.
    pub(crate) fn is_last(&self) -> bool {
        let last = self.last || self.conn.closing.get();
        if last && !self.is_alone() {
            self.conn.closing.set(true);
        }
        // The next bytes could be the body that the proxy never requested, or a new request.
        (last || self.upload.awaits_continue()) && self.is_alone()
    }

    /// Whether the connection carries one request at a time, so that a framing fault affects the next request.
    fn is_alone(&self) -> bool {
        self.conn.streams.is_none()
    }

    /// Called when the member has sent and read everything. Releases its slots, although the client may still be reading.
    pub(crate) fn member_is_done(&mut self) {
        self.lease = None;
        self.stranger_slot = None;
        self.hold = None;
    }

    /// Ends the exchange. The connection to the member is reused only if both bodies have ended.
    pub(crate) fn end(mut self: Box<Self>, by: EndedBy, member: Option<MemberBody<RequestBody>>) {
        if let Some(lease) = self.lease.take()
            && by.is_members_fault()
            && !self.tunnel
        {
            let metrics = &lease.runtime().metrics;
            metrics.response_failed(ResponseFailure::Cut);
        }
        self.stranger_slot = None;
        self.hold = None;
        let now = Instant::now();
        if by == EndedBy::Completion {
            match self.upload.rest() {
                None => member.into_iter().for_each(|member| member.give_back(now)),
                Some(rest) => {
                    drop(member);
                    self.discard(rest);
                }
            }
        }
        self.finish(by, now);
    }

    /// Reads and drops the rest of the body, so that the client can read the response. A client that waits for `100 Continue`
    /// does not send the body after the response.
    fn discard(&self, rest: ClientBody) {
        if self.upload.awaits_continue() {
            return;
        }
        let settings = self.generation.settings;
        let (time, bytes) = (settings.discard_timeout, settings.discard_bytes_max);
        if let Some(streams) = &self.conn.streams {
            // When the rest is dropped, the proxy sends RST_STREAM (NO_ERROR), and the client stops sending its body.
            // Some clients, such as curl 7.88, show that reset in place of the response, so a small rest is read first.
            if let Some(discard) = streams.begin_discard() {
                let time = time.min(STREAM_DISCARD_TIME_MAX);
                let bytes = bytes.min(STREAM_DISCARD_BYTES_MAX);
                tokio::task::spawn_local(async move {
                    let _ = timeout(time, drop_at_most(rest, bytes)).await;
                    drop(discard);
                });
            }
            return;
        }
        let conn = Rc::clone(&self.conn);
        let requests = conn.requests.get();
        tokio::task::spawn_local(async move {
            let dropped = timeout(time, drop_at_most(rest, bytes)).await;
            if dropped != Ok(true) {
                conn.metrics.limit(Limit::Discard);
            }
            // If the next request has not started, the bytes read meanwhile belong to no head, and the connection is idle.
            if conn.requests.get() == requests {
                conn.activity.enter(ConnectionStage::Idle);
            }
        });
    }

    /// What the client got in place of a complete response, if it was still there to get one.
    fn failure(&self, by: EndedBy) -> Option<FailureKind> {
        let status = self.record.status?;
        // The reason of an answer of the proxy itself is noted with its status code.
        let is_own = self.record.reason.is_some();
        match status {
            500.. if is_own => Some(FailureKind::Here),
            500.. => Some(FailureKind::Member),
            400.. if is_own => Some(FailureKind::Refused),
            _ if self.tunnel => None,
            _ => match by {
                EndedBy::Completion | EndedBy::Client | EndedBy::Closed(_) => None,
                _ => Some(FailureKind::Cut),
            },
        }
    }

    fn finish(&mut self, by: EndedBy, now: Instant) {
        self.is_recorded = true;
        if let Some(reader) = self.reader() {
            reader.end();
        }
        let total = now.saturating_duration_since(self.began);
        if let Some(kind) = self.failure(by) {
            self.worker.shared.metrics.failed(kind);
        }
        let record = &mut self.record;
        if by == EndedBy::MemberIdle {
            self.conn.metrics.limit(Limit::BodyTimeout);
        }
        record.bytes_in = self.upload.bytes();
        record.times.queue = self.upload.time_in_queue();
        record.times.total = Some(total);
        (record.ended_by, record.reason) = match by {
            EndedBy::Completion if record.status.is_none() => {
                (telemetry::EndedBy::Client, record.reason)
            }
            EndedBy::Completion => (telemetry::EndedBy::Proxy, record.reason),
            EndedBy::Closed(side) => (side, record.reason),
            EndedBy::Us(reason) => (
                telemetry::EndedBy::Proxy,
                record.reason.or(Some(reason.as_str())),
            ),
            EndedBy::Client => (
                telemetry::EndedBy::Client,
                record.reason.or(Some(LogReason::ClientGone.as_str())),
            ),
            EndedBy::Member => (
                telemetry::EndedBy::Member,
                record.reason.or(Some(LogReason::MemberClosed.as_str())),
            ),
            EndedBy::MemberUnanswered => (
                telemetry::EndedBy::Member,
                record.reason.or(Some(LogReason::DownWait.as_str())),
            ),
            EndedBy::Malformed => (
                telemetry::EndedBy::Member,
                record.reason.or(Some(LogReason::MemberMalformed.as_str())),
            ),
            EndedBy::MemberIdle => (
                telemetry::EndedBy::Member,
                record.reason.or(Some(LogReason::BodyTimeout.as_str())),
            ),
        };
        // Without a status, the client closed the connection first.
        let status = *record.status.get_or_insert(499);
        if let Some(metrics) = &self.metrics {
            if !self.tunnel {
                metrics.finished(status, total);
            }
        } else {
            let class = record.class.unwrap_or("-");
            self.worker
                .shared
                .metrics
                .request("-", "-", class, record.work)
                .finished(status, total);
        }
        if !self.tunnel {
            let shared = &self.worker.shared;
            let age = now.saturating_duration_since(shared.started);
            shared.slowest.note(total, age, record);
        }
        if let Some(agent) = &self.conn.seen {
            agent.asked(record);
        }
        self.worker.sink.send(record);
        self.worker
            .spare_buffers
            .put(record.request_fields.take_room());
        self.conn.activity.enter_at(ConnectionStage::Idle, now);
    }
}

impl Drop for ActiveExchange {
    fn drop(&mut self) {
        if self.is_recorded {
            return;
        }
        let by = match self.conn.broken_off.get() {
            Some(reason) => EndedBy::Us(reason),
            None => EndedBy::Client,
        };
        self.finish(by, Instant::now());
    }
}

/// The member's name in records of responses from a copy.
const EDGE: &str = "edge-copy";

/// Limits on the time, and on the bytes, that the proxy spends on reading an HTTP/2 request body after its response.
const STREAM_DISCARD_TIME_MAX: Duration = Duration::from_secs(1);
const STREAM_DISCARD_BYTES_MAX: u64 = 256 << 10;

/// Reads the rest of a body and drops it. True: the body ended within the limit.
async fn drop_at_most(mut rest: ClientBody, limit: u64) -> bool {
    let mut dropped = 0;
    while !rest.is_end_stream() {
        match poll_fn(|cx| rest.poll_data(cx)).await {
            Some(Ok(data)) => dropped += data.len() as u64,
            Some(Err(_)) | None => return true,
        }
        if dropped > limit {
            return false;
        }
    }
    true
}

/// Copies the fields of a request for its record. Also returns what the client does on a 503.
fn spoken(
    worker: &Worker,
    head: &RequestHead,
    request_id: &RequestId,
) -> (RequestFieldsCopy, RetrySupport) {
    let mut support = RetrySupport::default();
    let mut spoken = RequestFields {
        method: Some(head.method.as_str().as_bytes()),
        target: Some(
            head.target
                .path_and_query()
                .map_or("*", |target| target.as_str())
                .as_bytes(),
        ),
        request_id: Some(request_id.as_bytes()),
        ..RequestFields::default()
    };
    // One pass over the head costs less than a lookup for each name. The first value of a repeated header is recorded.
    for line in head.fields.iter() {
        let field = match line.known {
            FieldName::Host => &mut spoken.host,
            FieldName::Referer => &mut spoken.referer,
            FieldName::UserAgent => &mut spoken.user_agent,
            FieldName::XPuppetVersion => {
                support.note(line.value);
                continue;
            }
            _ => continue,
        };
        field.get_or_insert(line.value);
    }
    let copy = RequestFieldsCopy::with_room(worker.spare_buffers.take(), &spoken);
    (copy, support)
}
