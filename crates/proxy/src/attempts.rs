//! The attempts of one request: pick, stamp, send, wait for the head, judge whether to try again.

use std::{cell::Cell, future::Future, pin::pin, rc::Rc, sync::Arc, time::Duration};

use balancing::{
    Failure, Lead, Lease, PickError, Progress, RetryPolicy, RetryVerdict, Stage as AttemptStage,
    key_hash, settings::Algorithm, source_hash,
};
use http::{
    HeaderName, HeaderValue, Method, Uri,
    header::{HOST, TRANSFER_ENCODING},
    response,
};
use listener::Standing;
use routing::{Plan, RetryClass};
use telemetry::{AttemptResult, PoolMetrics};
use tokio::time::sleep;
use upstream::{AttemptError, DialError, DialStage, Exchange, Scrubbed, settings::Settings};

use crate::{
    body::{RequestBody, Upload},
    connection::Conn,
    error::ProxyError,
    generation::PoolRuntime,
    record::Exchanged,
    respond,
    settings::HostRule,
    worker::{RequestId, Worker},
};

/// The attempts of one request.
pub(crate) struct Attempts<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) conn: &'a Conn,
    pub(crate) pool: &'a PoolRuntime,
    pub(crate) plan: &'a Plan<'a>,
    pub(crate) standing: &'a Standing,
    pub(crate) request: Outgoing<'a>,
}

/// A request as it was found fit to be sent on.
pub(crate) struct Outgoing<'a> {
    pub(crate) method: &'a Method,
    pub(crate) target: &'a Uri,
    pub(crate) scrubbed: &'a Scrubbed,
    pub(crate) request_id: &'a RequestId,
}

impl Attempts<'_> {
    /// Tries members until one answers, or until trying again could do harm.
    pub(crate) async fn run(
        &self,
        attempts_max: u32,
        exchanged: &mut Exchanged,
    ) -> Result<Exchange<RequestBody>, ProxyError> {
        let policy = RetryPolicy { attempts_max };
        let mut tried = Vec::new();
        let mut attempts = 0;
        let mut last: Option<ProxyError> = None;
        let mut reused = false;
        let mut next = None;
        loop {
            let lease = match next.take().map_or_else(|| self.pick(&tried), Ok) {
                Ok(lease) => lease,
                // A kept connection that breaks tells little of its member: with nobody else to ask, a new one shows.
                Err(PickError::AllTried) if std::mem::take(&mut reused) => {
                    tried.clear();
                    continue;
                }
                Err(error) => return Err(last.unwrap_or_else(|| self.unavailable(error))),
            };
            let member = Arc::clone(lease.member().address());
            attempts += 1;
            exchanged.attempted(&member, &self.pool.metrics);
            let counted = CountedAttempt {
                metrics: &self.pool.metrics,
                result: Cell::new(AttemptResult::Abandoned),
            };
            match self.attempt(&lease, &exchanged.upload, attempts > 1).await {
                Ok(exchange) => {
                    if let Some(change) = lease.member().answered() {
                        self.worker
                            .shared
                            .health_changed(self.pool.pool.name(), &member, &change);
                    }
                    counted.result.set(AttemptResult::Ok);
                    let again = attempts < attempts_max && exchanged.upload.replayable();
                    if again && self.may_ask_another(&exchange.head) {
                        tried.push(lease.index());
                        next = self.pick(&tried).ok();
                        if next.is_some() {
                            continue;
                        }
                    }
                    exchanged.connected(exchange.connect);
                    exchanged.answered(exchange.head.status);
                    respond::judge_answer(
                        &exchange.head,
                        self.plan.endpoint.class,
                        self.plan.route.unguarded,
                        &member,
                    )?;
                    exchanged.lease = Some(lease);
                    return Ok(exchange);
                }
                Err((failure, error)) => {
                    self.note_failure(&lease, &failure, &error, &counted);
                    let progress = Progress {
                        attempts,
                        response_started: matches!(error, ProxyError::Broken { begun: true, .. }),
                        safe: self.plan.retry == RetryClass::Safe,
                        body_replayable: exchanged.upload.replayable(),
                        single_member: self.plan.endpoint.ca_write,
                        late: matches!(
                            error,
                            ProxyError::Late { .. }
                                | ProxyError::Stalled { .. }
                                | ProxyError::Body(_)
                        ),
                    };
                    if policy.judge(&failure, &progress) == RetryVerdict::GiveUp {
                        return Err(error);
                    }
                    reused = failure.reused;
                    if failure.blames_member() {
                        tried.push(lease.index());
                    }
                    last = Some(error);
                }
            }
        }
    }

    /// A member that is starting or stopping says so and has done nothing: what is safe may go to another. Agents of
    /// Puppet 7 cannot be sent away to come again: they close the connection, wait, and then fail to read the answer
    /// they had (docs/decisions/starting-server-404.md).
    fn may_ask_another(&self, head: &response::Parts) -> bool {
        let class = self.plan.endpoint.class;
        self.plan.retry == RetryClass::Safe
            && respond::is_starting_or_stopping(head, class, self.plan.route.unguarded)
    }

    /// The CA's writes go to one member; a filebucket's checksum leads to one; the rest is balanced.
    fn pick(&self, tried: &[usize]) -> Result<Lease, PickError> {
        let now = self.worker.shared.now();
        if self.plan.endpoint.ca_write {
            self.pool.pool.pick_first(now)
        } else {
            self.pool.pool.pick(tried, self.lead(), now)
        }
    }

    /// What the choice of a member goes by, each only where something asks for it.
    fn lead(&self) -> Lead {
        let key = self.plan.bucket_key.map(|key| key_hash(key.as_bytes()));
        match self.pool.pool.algorithm() {
            Algorithm::LeastConnections | Algorithm::RoundRobin => Lead {
                key,
                ..Lead::default()
            },
            Algorithm::Random => Lead {
                key,
                random: self.worker.random(),
                ..Lead::default()
            },
            Algorithm::SourceHash => Lead {
                key,
                source: Some(source_hash(self.conn.downstream.client.ip())),
                ..Lead::default()
            },
        }
    }

    fn unavailable(&self, error: PickError) -> ProxyError {
        let reason = match error {
            PickError::Full => "members-full",
            PickError::NoneAvailable | PickError::AllTried => "no-member-available",
        };
        ProxyError::Unavailable {
            pool: Arc::clone(self.pool.pool.name()),
            reason,
            source: None,
        }
    }

    /// One attempt at one member: stamp last, send, wait for the head.
    async fn attempt(
        &self,
        lease: &Lease,
        upload: &Rc<Upload>,
        fresh: bool,
    ) -> Result<Exchange<RequestBody>, (Failure, ProxyError)> {
        let connector = &self.pool.connectors[lease.index()];
        let request = &self.request;
        let mut scrubbed = request.scrubbed.clone();
        tell_of_connection(&mut scrubbed, self.conn, request.request_id, upload);
        if self.pool.rules.host == HostRule::Member || !scrubbed.headers().contains_key(HOST) {
            scrubbed.set(HOST, connector.host.clone());
        }
        let with_certificate = self.plan.with_certificate_class && self.pool.rules.forward_cert;
        let stamped = scrubbed.stamp(&self.standing.headers, with_certificate);
        let body = RequestBody(Rc::clone(upload));
        let sent = self.worker.connections.send(
            connector,
            request.method,
            request.target,
            stamped,
            body,
            fresh,
        );
        let Settings {
            first_byte_timeout,
            idle_timeout,
            ..
        } = self.pool.settings;
        let failed = |stage, reused, unsent, error| {
            Err((
                Failure {
                    stage,
                    reused,
                    unsent,
                },
                error,
            ))
        };
        let member = || Arc::clone(&connector.address);
        let answer = match first_byte(sent, upload, first_byte_timeout, idle_timeout).await {
            Ok(answer) => answer,
            Err(Silence::Late) => {
                let error = ProxyError::Late {
                    member: member(),
                    limit: first_byte_timeout,
                };
                return failed(AttemptStage::ReceiveHead, false, false, error);
            }
            Err(Silence::Stalled) => {
                let error = ProxyError::Stalled {
                    member: member(),
                    limit: idle_timeout,
                };
                return failed(AttemptStage::SendBody, false, false, error);
            }
        };
        match answer {
            Ok(exchange) => Ok(exchange),
            Err(AttemptError::Dial(error, _)) => {
                let stage = match error.stage() {
                    DialStage::Resolve => AttemptStage::Resolve,
                    DialStage::Connect => AttemptStage::Connect,
                    DialStage::Handshake => AttemptStage::Handshake,
                };
                failed(stage, false, true, self.unreached(error))
            }
            Err(AttemptError::Unsent(source, _)) => failed(
                AttemptStage::SendHead,
                true,
                true,
                ProxyError::Broken {
                    member: member(),
                    source,
                    begun: false,
                },
            ),
            Err(AttemptError::Ambiguous {
                source,
                reused,
                begun,
            }) => {
                let error = match upload.fault() {
                    // The client's doing, whatever the member made of it.
                    Some(fault) => ProxyError::Body(fault),
                    None => ProxyError::Broken {
                        member: member(),
                        source,
                        begun,
                    },
                };
                failed(AttemptStage::ReceiveHead, reused, false, error)
            }
        }
    }

    /// A member that takes no connection may be back in a moment; one whose TLS is wrong is not.
    fn unreached(&self, error: DialError) -> ProxyError {
        match error {
            DialError::Handshake { .. } | DialError::Plaintext { .. } => {
                ProxyError::Unreachable(error)
            }
            error => ProxyError::Unavailable {
                pool: Arc::clone(self.pool.pool.name()),
                reason: error.reason(),
                source: Some(error),
            },
        }
    }

    /// Tells metrics, events and the member's health of a failed attempt.
    fn note_failure(
        &self,
        lease: &Lease,
        failure: &Failure,
        error: &ProxyError,
        counted: &CountedAttempt<'_>,
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
        let member = lease.member();
        tracing::warn!(
            pool = %self.pool.pool.name(), member = %member.address(), result = result.as_str(),
            cause = error.cause().unwrap_or_default(), "attempt failed"
        );
        let refused = matches!(error, ProxyError::Unavailable { source: Some(source), .. } if source.refused());
        if refused && let Some(change) = member.connect_refused(self.worker.shared.now()) {
            self.worker
                .shared
                .health_changed(self.pool.pool.name(), member.address(), &change);
        }
    }
}

/// Sets what is said of the connection, one value each.
fn tell_of_connection(
    scrubbed: &mut Scrubbed,
    conn: &Conn,
    request_id: &RequestId,
    upload: &Upload,
) {
    if let Some(host) = scrubbed.headers().get(HOST).cloned() {
        scrubbed.set(X_FORWARDED_HOST, host);
    }
    scrubbed.set(X_FORWARDED_FOR, conn.forwarded.client.clone());
    scrubbed.set(X_REAL_IP, conn.forwarded.client.clone());
    scrubbed.set(X_FORWARDED_PORT, conn.forwarded.port.clone());
    scrubbed.set(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
    scrubbed.set(
        X_REQUEST_ID,
        HeaderValue::from_bytes(request_id.as_bytes()).expect("hexadecimal digits"),
    );
    if upload.length_unknown() {
        // hyper would drop a GET's body of unknown length without this.
        scrubbed.set(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Counts an attempt when it is over; one that is dropped half-way was abandoned by its client.
struct CountedAttempt<'a> {
    metrics: &'a PoolMetrics,
    result: Cell<AttemptResult>,
}

impl Drop for CountedAttempt<'_> {
    fn drop(&mut self) {
        self.metrics.attempt(self.result.get());
    }
}

/// What a member let pass.
enum Silence {
    /// The time for its answer.
    Late,
    /// The time for taking more of the body.
    Stalled,
}

/// Waits for the head of a response. `first_byte` counts from the request's last byte, `idle` from the last one that
/// the member took; while the client sends nothing, its own silence is limited, not the member's.
async fn first_byte<T>(
    sent: impl Future<Output = T>,
    upload: &Upload,
    first_byte: Duration,
    idle: Duration,
) -> Result<T, Silence> {
    let mut sent = pin!(sent);
    let mut timer = pin!(sleep(first_byte.min(idle)));
    loop {
        tokio::select! {
            biased;
            answer = sent.as_mut() => return Ok(answer),
            () = timer.as_mut() => {
                let (limit, waited, silence) = match upload.finished() {
                    Some(finished) => (first_byte, finished.elapsed(), Silence::Late),
                    None => (idle, upload.untaken(), Silence::Stalled),
                };
                if waited >= limit {
                    return Err(silence);
                }
                timer.as_mut().reset(tokio::time::Instant::now() + (limit - waited));
            }
        }
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
