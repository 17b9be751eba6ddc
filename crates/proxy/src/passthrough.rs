//! A connection that is passed through to a member, from the choice of the member to the last byte.
//!
//! The proxy knows only the client's address and reads none of the bytes. The checks on requests do not apply here.

use std::{
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use balancing::{Administrative, PickCriteria, PickError, Task, settings::Algorithm, source_hash};
use bytes::Bytes;
use listener::{Origin, RawConnection, keep_alive};
use proxy_protocol::{ConnectionAddresses, Tlv, Version};
use telemetry::{
    AccessRecord, Alarm, AttemptResult, Limit, ListenerMetrics, OpenPassthrough, OpenTunnel,
    PassthroughMetrics, RequestFields, RequestFieldsCopy,
};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    task::unconstrained,
    time::{Instant, sleep_until, timeout},
};
use upstream::{DialError, DialStage, MemberAddress, MemberIo};

use crate::{
    closing_tunnels::{PendingTurn, closing_gap, is_cut},
    copying::{Copied, Copying, End, FAREWELL_TIMEOUT, Side, Silence},
    generation::Generation,
    open_tunnels::TunnelClient,
    passthrough_guard::guarded_by,
    pool_runtime::{PoolLease, PoolRuntime},
    reason::LogReason,
    request_id::RequestId,
    signals::{LifecyclePhase, Signals},
    worker::Worker,
};

const CLASS: &str = "passthrough";

/// What is known about a connection from its start, for the member and for the record.
struct Facts {
    listener: Arc<str>,
    origin: Origin,
    server_name: Option<Box<str>>,
    id: RequestId,
    when: SystemTime,
    began: Instant,
}

struct Reached {
    lease: PoolLease,
    member: MemberIo,
    attempts: u32,
    connect: Duration,
}

struct Unreached {
    attempts: u32,
    member: Option<Arc<str>>,
    reason: LogReason,
    cause: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassthroughEnd {
    Sides(End),
    Idle,
    /// The connection was closed in its turn, for this reason.
    InTurn(LogReason),
    Cut,
}

pub(crate) async fn serve(worker: &Rc<Worker>, raw: RawConnection) {
    let RawConnection {
        stream,
        read,
        listener,
        origin,
        server_name,
        pool,
        permit,
    } = raw;
    let generation = worker.current();
    let Some(pool) = generation.pool(&pool) else {
        return; // A reload has removed it in this moment.
    };
    let metrics = worker.listener_metrics(&listener);
    let _open = metrics.opens();
    let facts = Facts {
        listener,
        origin,
        server_name,
        id: worker.request_id(),
        when: SystemTime::now(),
        began: Instant::now(),
    };
    // Boxed, because it ends before any bytes are passed through.
    match Box::pin(reach(worker, &generation, pool, &facts, &stream)).await {
        Ok(reached) => {
            let tunnel = Tunnel::new(worker, facts, (stream, read.into()), reached);
            drop(generation);
            tunnel.run(&metrics).await;
        }
        Err(unreached) => {
            worker.shared.metrics.refused(unreached.reason.as_str());
            let mut record = facts.record(pool.pool.name(), unreached.attempts);
            record.member = unreached.member;
            record.reason = Some(unreached.reason.as_str());
            record.cause = unreached.cause;
            worker.sink.send(&record);
        }
    }
    drop(permit);
}

impl Facts {
    /// The record, after the connection has ended.
    fn record(&self, pool: &Arc<str>, attempts: u32) -> AccessRecord {
        let Origin { client, peer } = self.origin;
        let mut record = AccessRecord::new(self.when, Arc::clone(&self.listener), client);
        record.peer = peer.map(|peer| peer.ip());
        record.passthrough = Some(telemetry::Passthrough {
            server_name: self.server_name.clone(),
        });
        record.request_fields = RequestFieldsCopy::of(&RequestFields {
            request_id: Some(self.id.as_bytes()),
            ..RequestFields::default()
        });
        record.class = Some(CLASS);
        record.pool = Some(Arc::clone(pool));
        record.attempts = attempts;
        record.times.total = Some(self.began.elapsed());
        record
    }

    /// The PROXY header that the member gets before the first byte.
    fn header(&self, version: Version, proxy: SocketAddr) -> Vec<u8> {
        let addresses = ConnectionAddresses {
            client: self.origin.client,
            proxy,
        };
        let id = Tlv::UniqueId(self.id.as_bytes());
        match &self.server_name {
            Some(name) => proxy_protocol::write(version, addresses, &[Tlv::Authority(name), id]),
            None => proxy_protocol::write(version, addresses, &[id]),
        }
    }
}

/// Picks a member and connects to it. Another member can be tried until a byte has been sent.
async fn reach(
    worker: &Rc<Worker>,
    generation: &Generation,
    pool: &Arc<PoolRuntime>,
    facts: &Facts,
    client: &TcpStream,
) -> Result<Reached, Unreached> {
    let mut tried = Vec::new();
    let mut attempts = 0;
    let mut last = None;
    loop {
        let lease = match pick(worker, pool, &tried, facts.origin.client) {
            Ok(lease) => lease,
            Err(reason) => {
                return Err(last.unwrap_or(Unreached {
                    attempts,
                    member: None,
                    reason,
                    cause: None,
                }));
            }
        };
        attempts += 1;
        if attempts > 1 {
            pool.metrics.retries.inc();
        }
        let began = Instant::now();
        match open(generation, &lease, facts, client).await {
            Ok(member) => {
                note_success(worker, &lease);
                return Ok(Reached {
                    lease,
                    member,
                    attempts,
                    connect: began.elapsed(),
                });
            }
            Err(error) => {
                note_failure(worker, &lease, &error);
                tried.push(lease.member().id());
                let unreached = Unreached {
                    attempts,
                    member: Some(Arc::clone(lease.member().address())),
                    reason: LogReason::Dial(error.reason()),
                    cause: Some(error.to_string().into()),
                };
                drop(lease);
                let now = worker.shared.now();
                if attempts >= generation.settings.attempts_max || !pool.pool.admit_retry(now) {
                    return Err(unreached);
                }
                last = Some(unreached);
            }
        }
    }
}

/// Picks a member that has room. The connection does not wait for one, because passed-through connections stay open too long.
fn pick(
    worker: &Worker,
    pool: &Arc<PoolRuntime>,
    tried: &[u64],
    client: SocketAddr,
) -> Result<PoolLease, LogReason> {
    let algorithm = pool.pool.algorithm();
    let criteria = PickCriteria {
        source: (algorithm == Algorithm::SourceHash).then(|| source_hash(client.ip())),
        random: match algorithm {
            Algorithm::Random => worker.random(),
            _ => 0,
        },
        task: Task {
            without_jruby: true,
            ..Task::default()
        },
        ..PickCriteria::default()
    };
    match pool.pool.pick(tried, criteria, worker.shared.now()) {
        Ok(lease) => Ok(PoolLease::new(pool, lease)),
        Err(PickError::Full) => Err(LogReason::MembersFull),
        Err(PickError::NoneAvailable | PickError::NoneYet | PickError::AllTried) => {
            Err(LogReason::NoMemberAvailable)
        }
    }
}

/// Connects, and sends the PROXY header if the pool is configured for it.
async fn open(
    generation: &Generation,
    lease: &PoolLease,
    facts: &Facts,
    client: &TcpStream,
) -> Result<MemberIo, DialError> {
    let (pool, connector) = (lease.pool(), lease.connector());
    let off = pool.rules.passthrough.trusted_headers_off;
    let is_guarded = |target: &MemberAddress, addresses: &[IpAddr]| {
        let pools = generation.pools.iter().map(|pool| &**pool);
        guarded_by(pools, target, addresses, off).is_some()
    };
    if is_guarded(&connector.target, connector.addresses()) {
        return Err(connector.guarded());
    }
    let is_refused = |ip: IpAddr| match connector.target {
        MemberAddress::Tcp { port, .. } => {
            let host = ip.to_string();
            is_guarded(&MemberAddress::Tcp { host, port }, &[])
        }
        MemberAddress::Unix(_) => false,
    };
    let version = pool.settings.send_proxy.version();
    let header = version.map(|version| {
        let local = client.local_addr().unwrap_or(facts.origin.client);
        facts.header(version, local)
    });
    MemberIo::open_raw(connector, header, is_refused).await
}

fn note_success(worker: &Worker, lease: &PoolLease) {
    let (pool, member) = (lease.pool(), lease.member());
    if let Some(change) = member.answered() {
        let shared = &worker.shared;
        shared.health_changed(pool.pool.name(), member.address(), &change);
    }
    member.attempt_succeeded();
    lease.runtime().metrics.attempt(AttemptResult::Ok);
}

fn note_failure(worker: &Worker, lease: &PoolLease, error: &DialError) {
    let (pool, member, shared) = (lease.pool(), lease.member(), &worker.shared);
    let name = pool.pool.name();
    let result = match error.stage() {
        DialStage::Resolve => AttemptResult::Resolve,
        DialStage::Connect | DialStage::Handshake => AttemptResult::Connect,
    };
    lease.runtime().metrics.attempt(result);
    tracing::warn!(
        pool = %name, member = %member.address(), result = result.as_str(), cause = %error,
        "attempt failed"
    );
    if let DialError::Guarded { .. } = error {
        let about = format!("{name}: {}", member.address());
        let alarms = &shared.metrics.alarms;
        alarms.raise(
            Alarm::PassthroughMember,
            &about,
            error.to_string(),
            SystemTime::now(),
        );
    }
    let now = shared.now();
    let settings = &pool.rules.guards.ejection;
    if error.is_members_fault()
        && let Some(time) = pool.pool.attempt_failed(lease.index(), None, settings, now)
    {
        tracing::warn!(
            history.kind = "member",
            pool = %name, member = %member.address(), seconds = time.as_secs_f64(),
            "member ejected: attempts at it failed"
        );
    }
    if error.refused()
        && let Some(change) = member.connect_refused(now)
    {
        shared.health_changed(name, member.address(), &change);
    }
}

/// An open connection and its member. It outlives configurations. Of the configuration that it started under it keeps only its
/// pool.
struct Tunnel<'a> {
    worker: &'a Rc<Worker>,
    facts: Facts,
    lease: PoolLease,
    attempts: u32,
    connect: Duration,
    copying: Copying<TcpStream, MemberIo>,
    silence: Silence,
    counted: (OpenTunnel, Option<OpenPassthrough>),
}

impl<'a> Tunnel<'a> {
    fn new(
        worker: &'a Rc<Worker>,
        facts: Facts,
        client: (TcpStream, Bytes),
        reached: Reached,
    ) -> Self {
        let Reached {
            lease,
            member,
            attempts,
            connect,
        } = reached;
        keep_alive(&client.0);
        let pool = lease.pool();
        let counted = (
            pool.metrics.tunnel(),
            lease
                .runtime()
                .passthrough_metrics
                .as_ref()
                .map(PassthroughMetrics::opens),
        );
        Self {
            worker,
            facts,
            attempts,
            connect,
            silence: Silence::new(pool.settings.tunnel_idle_timeout),
            copying: Copying::new(client, (member, Bytes::new())),
            counted,
            lease,
        }
    }

    async fn run(mut self, metrics: &ListenerMetrics) {
        let worker = Rc::clone(self.worker);
        let shared = &worker.shared;
        let client = self.facts.origin.client.ip().to_canonical();
        let client = TunnelClient {
            client: client.to_string().into(),
            since: self.facts.when,
        };
        let member = self.lease.member();
        let entry = shared.tunnels.open(member.pool(), member.address(), client);
        let mut signals = worker.signals.subscribe();
        let mut turn = PendingTurn::default();
        let mut timer = pin!(sleep_until(self.silence.ends()));
        let mut heard = signals.current();
        let ending = loop {
            if heard.phase == LifecyclePhase::Cutting {
                break PassthroughEnd::Cut;
            }
            let reason = self.reason_to_close(&heard);
            turn.update(reason.is_some(), || {
                let gap = closing_gap(&worker, self.lease.pool(), heard.cut_at);
                let pool = self.lease.member().pool();
                shared.leaving.join(pool, entry.number(), gap)
            });
            tokio::select! {
                biased;
                // Signals and timers are checked even while both sides keep this task busy.
                changed = poll_fn(|cx| signals.poll_changed(cx)) => heard = changed,
                () = unconstrained(turn.wait()) => {
                    break PassthroughEnd::InTurn(reason.unwrap_or(LogReason::Drained));
                }
                () = unconstrained(timer.as_mut()) => {
                    let ends = self.silence.ends();
                    if ends <= Instant::now() {
                        break PassthroughEnd::Idle;
                    }
                    timer.as_mut().reset(ends);
                }
                end = poll_fn(|cx| {
                    let (copying, silence) = (&mut self.copying, &mut self.silence);
                    let end = self.worker.with_piece(|piece| copying.poll(cx, piece));
                    let copied = silence.note(copying.copied());
                    if copied != Copied::default()
                        && let Some(counted) = &self.counted.1
                    {
                        counted.moved(copied.up, copied.down);
                    }
                    end
                }) => break PassthroughEnd::Sides(end),
            }
        };
        drop((turn, entry));
        self.end(ending, metrics).await;
    }

    /// Why the connection must close: the process drains, the member is in maintenance or down, or the current
    /// configuration would not send the connection there.
    fn reason_to_close(&self, heard: &Signals) -> Option<LogReason> {
        let member = self.lease.member();
        if heard.phase == LifecyclePhase::Draining
            || member.operator_state() == Administrative::Maintenance
        {
            return Some(LogReason::Drained);
        }
        let generation = self.worker.current();
        let listener = generation.listeners.get(&self.facts.listener);
        let pool = listener.and_then(|listener| match &self.facts.server_name {
            Some(name) => listener.settings.passthrough_of(name),
            None => listener.settings.passthrough.as_deref(),
        });
        if pool != Some(&**member.pool())
            || !generation.names_member(member.pool(), member.address())
        {
            return Some(LogReason::Drained);
        }
        is_cut(self.worker, &self.lease).then_some(LogReason::MemberDown)
    }

    async fn end(mut self, ending: PassthroughEnd, metrics: &ListenerMetrics) {
        match ending {
            // The broken connection is passed on: the other side gets a reset.
            PassthroughEnd::Sides(End::Broken(Side::Client)) => {
                if let Some(member) = self.copying.member.tcp() {
                    let _ = member.set_zero_linger();
                }
            }
            PassthroughEnd::Sides(End::Broken(Side::Member) | End::Unanswered) => {
                let _ = self.copying.client.set_zero_linger();
            }
            PassthroughEnd::Idle | PassthroughEnd::InTurn(_) => {
                let (client, member) = (&mut self.copying.client, &mut self.copying.member);
                let _ = timeout(FAREWELL_TIMEOUT, async {
                    let _ = tokio::join!(client.shutdown(), member.shutdown());
                })
                .await;
            }
            PassthroughEnd::Sides(End::Closed(_)) | PassthroughEnd::Cut => {}
        }
        if ending == PassthroughEnd::Idle {
            metrics.limit(Limit::TunnelIdleTimeout);
        }
        let mut record = self.facts.record(self.lease.member().pool(), self.attempts);
        record.member = Some(Arc::clone(self.lease.member().address()));
        record.times.connect = Some(self.connect);
        let copied = self.copying.copied();
        (record.bytes_in, record.bytes_out) = (copied.up, copied.down);
        (record.ended_by, record.reason) = match ending {
            PassthroughEnd::Sides(End::Closed(side)) => (side.into(), None),
            PassthroughEnd::Sides(End::Broken(side)) => (side.into(), Some(broken(side))),
            PassthroughEnd::Sides(End::Unanswered) => (
                telemetry::EndedBy::Member,
                Some(LogReason::DownWait.as_str()),
            ),
            PassthroughEnd::Idle => proxy(LogReason::TunnelIdleTimeout),
            PassthroughEnd::InTurn(reason) => proxy(reason),
            PassthroughEnd::Cut => proxy(LogReason::DrainGrace),
        };
        let worker = Rc::clone(self.worker);
        // Both sides are closed and the member is released before the record is written.
        drop(self);
        worker.sink.send(&record);
    }
}

fn proxy(reason: LogReason) -> (telemetry::EndedBy, Option<&'static str>) {
    (telemetry::EndedBy::Proxy, Some(reason.as_str()))
}

fn broken(side: Side) -> &'static str {
    match side {
        Side::Client => LogReason::ClientGone.as_str(),
        Side::Member => LogReason::MemberClosed.as_str(),
    }
}

impl From<Side> for telemetry::EndedBy {
    fn from(side: Side) -> Self {
        match side {
            Side::Client => Self::Client,
            Side::Member => Self::Member,
        }
    }
}
