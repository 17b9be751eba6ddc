//! What is held and told of one exchange: lease, connection and record, until the last byte.

use std::{future::poll_fn, rc::Rc, sync::Arc, time::Duration};

use balancing::ClientSlot;
use http::{Method, StatusCode, Version, header::EXPECT, request};
use http1::HeadFault;
use identity::{ClientIdentity, ScrubReport};
use listener::{ClientVerdict, ConnectionStage};
use routing::{AccessRule, AccessStep, Class, ForwardPlan, RefusalReason};
use telemetry::{
    AccessRecord, Limit, PoolMetrics, RefusedClient, RequestFields, RequestFieldsCopy,
    RequestMetrics,
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
    strangers::StrangerSlot,
    upload::{RequestBody, Upload},
    worker::Worker,
};

/// What ended an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// Its last byte.
    Completion,
    /// The client went away.
    Client,
    /// The member broke off.
    Member,
    /// The member's body stood still for too long.
    MemberIdle,
    /// This side closed the tunnel, in good order.
    Closed(telemetry::EndedBy),
    /// We broke off, for this reason.
    Us(LogReason),
}

/// One exchange from its head to its last byte. Whatever ends it, the lease goes back and one record is written.
#[derive(Debug)]
pub(crate) struct Exchanged {
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    generation: LocalGeneration,
    began: Instant,
    record: AccessRecord,
    /// The record was sent.
    told: bool,
    metrics: Option<Rc<RequestMetrics>>,
    method: Method,
    last: bool,
    retry_support: RetrySupport,
    /// It goes on as a tunnel: its request is counted already.
    tunnel: bool,
    idle_timeout: Duration,
    pub(crate) upload: Rc<Upload>,
    pub(crate) lease: Option<PoolLease>,
    /// Where it is one of those that the CA has limits for.
    pub(crate) place: Option<StrangerSlot>,
    /// Its place among those that its client may run.
    pub(crate) hold: Option<ClientSlot<PoolLease>>,
}

impl Exchanged {
    pub(crate) fn begin(
        context: &RequestContext,
        head: &request::Parts,
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
        // Most requests have no body, and need not be searched for this.
        let expects_continue = !body.is_end_stream() && head.headers.contains_key(EXPECT);
        // In a box: it is handed on from the request's task to the response's body, and is large.
        let mut exchanged = Box::new(Self {
            began: *began,
            record,
            told: false,
            metrics: None,
            method: head.method.clone(),
            last: false,
            retry_support,
            tunnel: false,
            idle_timeout: Duration::from_secs(60),
            upload: Upload::new(body, expects_continue, *began),
            lease: None,
            place: None,
            hold: None,
            worker: Rc::clone(&context.worker),
            conn: Rc::clone(conn),
            generation: context.generation.clone(),
        });
        exchanged.identified(&context.verdict);
        exchanged.record.known_client = Some(conn.known_client(&context.verdict));
        exchanged
    }

    /// What is wrong with its head and was taken by hyper.
    pub(crate) fn head_fault(&self) -> Option<HeadFault> {
        // It is counted by now, and with HTTP/2 nothing is noted.
        self.conn.notes.fault_of(self.conn.requests.get() - 1)
    }

    /// What its client does on a 503.
    pub(crate) fn retry_support(&self) -> RetrySupport {
        self.retry_support
    }

    /// When a member can first be asked: with its head, unless a body had to be waited for.
    pub(crate) fn asked_at(&self) -> Instant {
        if self.upload.finished() == Some(self.began) {
            self.began
        } else {
            Instant::now()
        }
    }

    /// Notes who asks.
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
    }

    /// Notes where it goes.
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
        let route = Arc::clone(&plan.route.name);
        let record = &mut self.record;
        record.route = Some(route);
        record.class = Some(plan.endpoint.class.as_str());
        record.work = Some(plan.endpoint.task.work);
        record.pool = Some(name);
    }

    /// Notes a rule that would have refused it.
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

    /// Counts what a rule refused, and says which.
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

    /// Notes an attempt.
    pub(crate) fn attempted(&mut self, member: &Arc<str>, metrics: &PoolMetrics) {
        let record = &mut self.record;
        record.attempts += 1;
        record.member = Some(Arc::clone(member));
        if record.attempts > 1 {
            metrics.retries.inc();
        }
    }

    /// Attempts so far.
    pub(crate) fn attempts(&self) -> u32 {
        self.record.attempts
    }

    /// Notes that the answer of this member is passed on, though others were asked after it.
    pub(crate) fn answered_by(&mut self, member: Arc<str>) {
        self.record.member = Some(member);
    }

    /// Notes how long a new connection took.
    pub(crate) fn connected(&mut self, took: Option<Duration>) {
        self.record.times.connect = took;
    }

    /// How long a body of its pool may stand still.
    pub(crate) fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    /// Notes the head of a member's response.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        let took = self.began.elapsed();
        let record = &mut self.record;
        record.status = Some(status.as_u16());
        record.times.first_byte = Some(took);
    }

    /// How long its member took from an attempt that began at `attempted`, or from the end of the body, to its answer.
    pub(crate) fn served_in(&self, attempted: Instant) -> Option<Duration> {
        let answered = self.began + self.record.times.first_byte?;
        let asked = attempted.max(self.upload.finished()?);
        Some(answered.saturating_duration_since(asked))
    }

    /// The member of the last attempt.
    pub(crate) fn member(&self) -> Arc<str> {
        let member = self.record.member.clone();
        member.unwrap_or_else(|| Arc::from("-"))
    }

    /// Notes that a tunnel has opened. Its request counts as answered now: how long a tunnel stands says nothing of how
    /// long requests take.
    pub(crate) fn tunnelled(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.finished(
                StatusCode::SWITCHING_PROTOCOLS.as_u16(),
                self.began.elapsed(),
            );
        }
        self.tunnel = true;
    }

    /// Replaces the generation that it began under by a newer one, which counts from now on.
    pub(crate) fn decided_by(&mut self, generation: LocalGeneration) {
        self.generation = generation;
    }

    /// Notes what went through a tunnel: bytes that the member took, and bytes that the client took.
    pub(crate) fn tunnel_ended(&mut self, up: u64, down: u64) {
        self.upload.tunnelled(up);
        self.record.bytes_out = down;
    }

    /// Notes the story behind its end.
    pub(crate) fn because(&mut self, cause: String) {
        self.record.cause = Some(cause.into());
    }

    /// Notes a certificate request that a rule would have refused, had it not only observed.
    pub(crate) fn csr_observed(&self, reason: &'static str) {
        self.worker.shared.metrics.csr_observed(reason);
    }

    /// Notes an answer of our own that is no error.
    pub(crate) fn answered_here(&mut self, status: StatusCode) {
        self.record.status = Some(status.as_u16());
    }

    /// Notes the built-in status answer.
    pub(crate) fn status_answered(&mut self, status: StatusCode, available: bool) {
        self.answered_here(status);
        self.record.class = Some(Class::Status.as_str());
        if !available {
            let reason = LogReason::NoCompilerAvailable.as_str();
            self.worker.shared.metrics.refused(reason);
            self.record.reason = Some(reason);
        }
    }

    /// Notes why no member's answer is passed on, and the status code of our own.
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
        // Where that request ends is what could be read two ways, and so what would be the next (RFC 9112, 6.3).
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
        // It comes back on a new connection; this one would stay open until then.
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
        // What is said to a client that has gone is said to nobody.
        record.status = (!gone).then_some(status.as_u16());
        record.reason = Some(reason.as_str());
        record.cause = rule.or_else(|| error.cause()).map(Into::into);
        record.route = route.or_else(|| record.route.take());
        record.class = class.map(Class::as_str).or(record.class);
    }

    /// Remembers a refused client for the operator.
    fn note_refusal(&self, reason: &'static str) {
        let record = &self.record;
        let refused = RefusedClient {
            client: record.client.ip().to_canonical(),
            listener: Arc::clone(&record.listener),
            certname: record.certname.clone(),
            is_verified: record.proven_certname().is_some(),
            reason,
        };
        self.worker.shared.refusals.note(refused, record.when);
    }

    /// Notes an answer from a copy of what the CA has said.
    pub(crate) fn answered_from_copy(&mut self, status: StatusCode, answer: &EdgeAnswer) {
        let metrics = &self.worker.shared.metrics;
        metrics.edge_answered(answer.document.as_str(), answer.unchanged);
        self.answered(status);
        self.record.member = Some(Arc::from(EDGE));
    }

    /// How fast the client takes the response, where it is the only one of its connection.
    pub(crate) fn reader(&self) -> Option<&ReaderPace> {
        self.is_alone().then_some(&self.conn.reader)
    }

    /// The client begins to read a member's response.
    pub(crate) fn begin_reading(&self) {
        if let Some(reader) = self.reader() {
            reader.begin(self.conn.activity.written());
        }
    }

    /// Counts bytes of the response's body.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.record.bytes_out += bytes as u64;
    }

    /// Whether it asked for the head alone.
    pub(crate) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// Whether its response has to say that the connection ends after it, as far as is known when it begins. A stream's
    /// does not: that is told to the connection (GOAWAY).
    pub(crate) fn is_last(&self) -> bool {
        let last = self.last || self.conn.closing.get();
        if last && !self.is_alone() {
            self.conn.closing.set(true);
        }
        // What follows could be the body that was never asked for, or a request.
        (last || self.upload.awaits_continue()) && self.is_alone()
    }

    /// Whether the connection carries one request at a time, so that what is wrong with one is wrong with the next.
    fn is_alone(&self) -> bool {
        self.conn.streams.is_none()
    }

    /// The member has said all and has read all, whatever time the client takes for the rest: what is held of the member goes
    /// back.
    pub(crate) fn member_is_done(&mut self) {
        self.lease = None;
        self.place = None;
        self.hold = None;
    }

    /// The end. The connection to the member is kept only if both bodies have ended.
    pub(crate) fn end(mut self: Box<Self>, by: EndedBy, member: Option<MemberBody<RequestBody>>) {
        self.lease = None;
        self.place = None;
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

    /// Reads and drops what the client still sends, so that it gets to see the answer. A client that waits for
    /// `100 Continue` was told with the answer not to send at all.
    fn discard(&self, rest: ClientBody) {
        // A stream's end tells its client not to send on (RST_STREAM with NO_ERROR).
        if self.upload.awaits_continue() || !self.is_alone() {
            return;
        }
        let settings = self.generation.settings;
        let conn = Rc::clone(&self.conn);
        let requests = conn.requests.get();
        tokio::task::spawn_local(async move {
            let dropped = timeout(
                settings.discard_timeout,
                drop_at_most(rest, settings.discard_bytes_max),
            )
            .await;
            if dropped != Ok(true) {
                conn.metrics.limit(Limit::Discard);
            }
            // What was read meanwhile were no bytes of a next head, unless its request is under way by now.
            if conn.requests.get() == requests {
                conn.activity.enter(ConnectionStage::Idle);
            }
        });
    }

    fn finish(&mut self, by: EndedBy, now: Instant) {
        self.told = true;
        if let Some(reader) = self.reader() {
            reader.end();
        }
        let total = now.saturating_duration_since(self.began);
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
            EndedBy::MemberIdle => (
                telemetry::EndedBy::Member,
                record.reason.or(Some(LogReason::BodyTimeout.as_str())),
            ),
        };
        // Nothing was answered: the client went away first.
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
        if let Some(agent) = &self.conn.seen {
            agent.asked(record);
        }
        self.worker.sink.send(record);
        self.worker.texts.put(record.request_fields.take_room());
        self.conn.activity.enter_at(ConnectionStage::Idle, now);
    }
}

impl Drop for Exchanged {
    fn drop(&mut self) {
        if self.told {
            return;
        }
        let by = match self.conn.broken_off.get() {
            Some(reason) => EndedBy::Us(reason),
            None => EndedBy::Client,
        };
        self.finish(by, Instant::now());
    }
}

/// In the place of a member, where a copy was answered with.
const EDGE: &str = "edge-copy";

/// True: it ended within the limit.
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

/// What the client said, and what it does on a 503.
fn spoken(
    worker: &Worker,
    head: &request::Parts,
    request_id: &RequestId,
) -> (RequestFieldsCopy, RetrySupport) {
    let mut support = RetrySupport::default();
    let mut spoken = RequestFields {
        method: Some(head.method.as_str().as_bytes()),
        target: Some(
            head.uri
                .path_and_query()
                .map_or("*", |target| target.as_str())
                .as_bytes(),
        ),
        request_id: Some(request_id.as_bytes()),
        ..RequestFields::default()
    };
    // One pass over a head costs less than a lookup for each name. Of a repeated header the first is told.
    for (name, value) in &head.headers {
        let told = match name.as_str() {
            "host" => &mut spoken.host,
            "referer" => &mut spoken.referer,
            "user-agent" => &mut spoken.user_agent,
            "x-puppet-version" => {
                support.note(value.as_bytes());
                continue;
            }
            _ => continue,
        };
        told.get_or_insert(value.as_bytes());
    }
    let copy = RequestFieldsCopy::with_room(worker.texts.take(), &spoken);
    (copy, support)
}
