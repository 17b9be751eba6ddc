//! One tunnel. A member's 101 opens it. A side, a limit or a signal ends it.
//!
//! The proxy does not inspect the bytes. It verifies the client's certificate again when the trust changes and when a part of
//! the chain expires.

use std::{
    future::poll_fn,
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use identity::ClientIdentity;
use listener::TlsIo;
use telemetry::Limit;
use tokio::{
    io::AsyncWriteExt,
    task::unconstrained,
    time::{Instant, sleep_until, timeout},
};
use upstream::{MemberHead, MemberIo};

use crate::{
    client_response::ClientResponse,
    closing_tunnels::{PendingTurn, closing_gap, is_cut},
    connection::Conn,
    context::RequestContext,
    copying::{Copying, End, FAREWELL_TIMEOUT, Side, Silence},
    http1::Switched,
    open_tunnels::{TunnelClient, TunnelEntry},
    pool_runtime::PoolRuntime,
    reason::LogReason,
    record::{ActiveExchange, EndedBy},
    respond,
    response_body::ResponseBody,
    signals::{ConnectionSignals, LifecyclePhase, Signals},
    tunnel_opening::TunnelOpening,
    worker::Worker,
};

/// After a change of trust, re-verifications that must build a path are spread over this time, because thousands at once would
/// delay requests. It is half of the second within which a revoked client is cut off.
const REVERIFY_SPREAD: Duration = Duration::from_millis(500);
/// How often the proxy checks the wall clock for expired certificates. A timer alone would miss a change of that clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum wait, because a certificate's last second may not have passed when the timer fires.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Starts a tunnel after a member's 101 that the client requested. The task of the client's connection then runs the tunnel.
pub(crate) fn open(
    context: &RequestContext,
    pool: &PoolRuntime,
    head: MemberHead,
    member: (MemberIo, Bytes),
    exchange: Box<ActiveExchange>,
) -> ClientResponse {
    let opening = Box::new(TunnelOpening {
        exchange,
        member,
        idle_timeout: pool.settings.tunnel_idle_timeout,
        open: pool.metrics.tunnel(),
    });
    let body = ResponseBody::tunnel(opening);
    respond::switching(&context.worker, &context.generation.own_names, head, body)
}

/// Runs the tunnel after HTTP has ended on a connection.
pub(crate) async fn follow(worker: &Rc<Worker>, conn: &Rc<Conn>, switched: Switched) {
    let Switched { io, read, opening } = switched;
    run(worker, conn, (io, read), *opening).await;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TunnelEnd {
    Sides(End),
    Idle,
    Refused,
    /// The tunnel was closed in its turn, because the member is down.
    MemberDown,
    Cut,
}

async fn run(worker: &Rc<Worker>, conn: &Rc<Conn>, client: (TlsIo, Bytes), opening: TunnelOpening) {
    let TunnelOpening {
        mut exchange,
        member,
        idle_timeout,
        open,
    } = opening;
    exchange.tunnelled();
    let entry = entry(worker, conn, &exchange);
    let mut signals = worker.signals.subscribe();
    let mut copying = Copying::new(client, member);
    let mut monitor = TunnelMonitor {
        worker,
        conn,
        silence: Silence::new(idle_timeout),
        reverify_at: None,
    };
    let mut ending = monitor.apply_signals(&signals.current(), &mut exchange);
    let mut timer = pin!(sleep_until(monitor.next_check()));
    let mut turn = PendingTurn::default();
    let ending = loop {
        if let Some(ending) = ending {
            break ending;
        }
        if let (Some(lease), Some(entry)) = (&exchange.lease, &entry) {
            turn.update(is_cut(worker, lease), || {
                let gap = closing_gap(worker, lease.pool(), None);
                let pool = lease.member().pool();
                worker.shared.leaving.join(pool, entry.number(), gap)
            });
        }
        ending = tokio::select! {
            biased;
            // Signals and the timer are checked even while both sides keep this task busy.
            changed = poll_fn(|cx| signals.poll_changed(cx)) => {
                let ending = monitor.apply_signals(&changed, &mut exchange);
                timer.as_mut().reset(monitor.next_check());
                ending
            }
            () = unconstrained(timer.as_mut()) => {
                let ending = monitor.due();
                timer.as_mut().reset(monitor.next_check());
                ending
            }
            () = unconstrained(turn.wait()) => Some(TunnelEnd::MemberDown),
            end = poll_fn(|cx| {
                let end = worker.with_piece(|piece| copying.poll(cx, piece));
                monitor.silence.note(copying.copied());
                end
            }) => Some(TunnelEnd::Sides(end)),
        };
    };
    exchange.tunnel_ended(copying.copied());
    if matches!(ending, TunnelEnd::Idle | TunnelEnd::MemberDown) {
        let _ = timeout(FAREWELL_TIMEOUT, async {
            let _ = tokio::join!(copying.client.shutdown(), copying.member.shutdown());
        })
        .await;
    }
    if ending == TunnelEnd::Refused {
        monitor.wait_for_turn(&mut signals).await;
    }
    drop((turn, copying, open, entry));
    monitor.end(ending, exchange);
}

/// Adds the tunnel to the list of those that are open to its member.
fn entry<'a>(
    worker: &'a Worker,
    conn: &Conn,
    exchange: &ActiveExchange,
) -> Option<TunnelEntry<'a>> {
    let member = exchange.lease.as_ref()?.member();
    let address = || conn.downstream.client.ip().to_canonical().to_string();
    let client = TunnelClient {
        client: match &conn.last_verdict().certname {
            Some(certname) => Arc::clone(certname),
            None => address().into(),
        },
        since: SystemTime::now(),
    };
    let tunnels = &worker.shared.tunnels;
    Some(tunnels.open(member.pool(), member.address(), client))
}

/// Decides when a tunnel must close, and why.
struct TunnelMonitor<'a> {
    worker: &'a Worker,
    conn: &'a Conn,
    silence: Silence,
    /// When the client must be re-verified, if that requires building a path.
    reverify_at: Option<Instant>,
}

impl TunnelMonitor<'_> {
    /// Applies the current signals and configuration. A tunnel outlives configurations, and refers only to the current one.
    fn apply_signals(
        &mut self,
        signals: &Signals,
        exchange: &mut ActiveExchange,
    ) -> Option<TunnelEnd> {
        if signals.phase == LifecyclePhase::Cutting {
            return Some(TunnelEnd::Cut);
        }
        let generation = self.worker.current();
        let changed = self.conn.trust_generation() != generation.trust.generation();
        let cheap = self.conn.confirms_by_serial(&generation.trust);
        exchange.decided_by(generation);
        if changed && cheap {
            return self.reverify();
        }
        if changed && self.reverify_at.is_none() {
            let spread = self.worker.random() % REVERIFY_SPREAD.as_millis() as u64;
            self.reverify_at = Some(Instant::now() + Duration::from_millis(spread));
        }
        None
    }

    /// Whether the tunnel must end now.
    fn due(&mut self) -> Option<TunnelEnd> {
        let now = Instant::now();
        let turn = self.reverify_at.take_if(|at| *at <= now).is_some();
        if (turn || self.left() == Some(Duration::ZERO))
            && let Some(ending) = self.reverify()
        {
            return Some(ending);
        }
        (now >= self.silence.ends()).then_some(TunnelEnd::Idle)
    }

    /// Verifies the client against the current trust store. Ends the tunnel if the client is no longer accepted.
    fn reverify(&mut self) -> Option<TunnelEnd> {
        let generation = self.worker.current();
        let verdict = self
            .conn
            .current_verdict(&generation.trust, SystemTime::now());
        self.conn
            .must_be_closed(&verdict)
            .then_some(TunnelEnd::Refused)
    }

    /// Waits for the tunnel's turn among all connections that are closed for revocation, so that thousands of clients do not
    /// reconnect at once. No more bytes are copied meanwhile.
    async fn wait_for_turn(&self, signals: &mut ConnectionSignals) {
        let rate = self.worker.current().revoked_close_rate;
        let turn = self.worker.shared.revocation_turn(rate);
        let cutting = async {
            while signals.current().phase != LifecyclePhase::Cutting {
                poll_fn(|cx| signals.poll_changed(cx)).await;
            }
        };
        let _ = timeout(turn, cutting).await;
    }

    fn next_check(&self) -> Instant {
        let looks = self
            .left()
            .map(|left| Instant::now() + left.clamp(LOOK_INTERVAL_MIN, CLOCK_INTERVAL));
        [self.reverify_at, looks]
            .into_iter()
            .flatten()
            .fold(self.silence.ends(), Instant::min)
    }

    /// Time until the client must be verified again, by the wall clock.
    fn left(&self) -> Option<Duration> {
        let good_until = self.conn.last_verdict().verification.good_until()?;
        let past = Duration::from_secs(good_until.as_secs().saturating_add(1));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(past.saturating_sub(now.unwrap_or_default()))
    }

    fn end(&self, ending: TunnelEnd, mut exchange: Box<ActiveExchange>) {
        let by = match ending {
            TunnelEnd::Sides(End::Closed(Side::Client)) => {
                EndedBy::Closed(telemetry::EndedBy::Client)
            }
            TunnelEnd::Sides(End::Closed(Side::Member)) => {
                EndedBy::Closed(telemetry::EndedBy::Member)
            }
            TunnelEnd::Sides(End::Broken(Side::Client)) => EndedBy::Client,
            TunnelEnd::Sides(End::Broken(Side::Member)) => EndedBy::Member,
            TunnelEnd::Sides(End::Unanswered) => EndedBy::MemberUnanswered,
            TunnelEnd::Idle => {
                self.conn.metrics.limit(Limit::TunnelIdleTimeout);
                EndedBy::Us(LogReason::TunnelIdleTimeout)
            }
            TunnelEnd::Refused => {
                self.worker.shared.metrics.connections_revoked.inc();
                if let ClientIdentity::Refused(refusal) = self.conn.last_verdict().identity() {
                    exchange.set_cause(refusal.text());
                }
                EndedBy::Us(LogReason::RefusedCertificate)
            }
            TunnelEnd::MemberDown => EndedBy::Us(LogReason::MemberDown),
            TunnelEnd::Cut => EndedBy::Us(LogReason::DrainGrace),
        };
        exchange.end(by, None);
    }
}
