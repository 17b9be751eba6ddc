//! Drives one connection: requests, the two timers, revocation and drain.

use std::{
    cell::RefCell,
    convert::Infallible,
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::{Duration, SystemTime},
};

use http::StatusCode;
use hyper::{
    body::Incoming,
    rt::{Read, Write},
    server::conn::http1,
    service::HttpService,
};
use hyper_util::rt::TokioIo;
use listener::{AcceptQueue, Accepted, Connection, ConnectionStage, Listener, ListenerSettings};
use telemetry::Limit;
use tokio::{
    task::{JoinSet, unconstrained},
    time::{Instant, sleep_until},
};

use crate::{
    connection::Conn,
    exceeded_limit::ExceededLimit,
    exchange::handle,
    http1_transport::Http1Transport,
    http2::Http2,
    listener_context::WorkerContext,
    passthrough,
    protocol::{ConnectionProtocol, StartOnFirstByte},
    protocol_errors,
    reason::LogReason,
    response_body::ResponseBody,
    signals::{LifecyclePhase, Signals},
    streams::Streams,
    tunnel,
    worker::Worker,
};

/// Silence after which a draining connection may be closed: an agent reuses one for 4 s and never tries again.
const DRAIN_SILENCE: Duration = Duration::from_secs(5);

/// Silence after which a connection's buffers are given back. An agent that is at work asks again before, and a busy one
/// pays nothing for it.
const REST_AFTER: Duration = Duration::from_secs(1);

/// Time for the answers to requests that still waited in a queue when the process ended. The process waits twice as long.
const REFUSAL_GRACE: Duration = Duration::from_secs(1);

impl Worker {
    /// Accepts and serves connections of one listener on this thread until `closed`.
    pub async fn listen(
        self: Rc<Self>,
        listener: Arc<Listener>,
        socket: AcceptQueue,
        closed: impl Future<Output = ()>,
    ) {
        let live = Rc::new(WorkerContext(Rc::clone(&self)));
        let serve = move |accepted| {
            let worker = Rc::clone(&self);
            async move {
                match accepted {
                    Accepted::Http(connection) => worker.serve(connection).await,
                    // Boxed: connections whose TLS is terminated have no room for it.
                    Accepted::Passthrough(raw) => Box::pin(passthrough::serve(&worker, *raw)).await,
                }
            }
        };
        listener::accept_loop(listener, socket, live, serve, closed).await;
    }

    /// Serves one connection to its end, on the thread of this worker.
    pub async fn serve(self: Rc<Self>, connection: Connection) {
        serve(self, connection).await;
    }
}

/// Why a connection is closed by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseReason {
    Idle,
    HeadLate,
    WriteStalled,
    ReadSlowly,
    Revoked,
    Drained,
    Cut,
}

async fn serve(worker: Rc<Worker>, connection: Connection) {
    let Some(settings) = worker
        .current()
        .listeners
        .get(&connection.downstream.listener)
        .map(|l| l.settings.clone())
    else {
        return;
    };
    let metrics = worker.listener_metrics(&connection.downstream.listener);
    let (conn, io) = Conn::new(connection, &settings, metrics, &worker.shared.agents);
    let conn = Rc::new(conn);
    conn.metrics.connections_open.inc();
    match conn.streams {
        None => serve_http1(&worker, &conn, &settings, io).await,
        Some(_) => serve_http2(&worker, &conn, &settings, io).await,
    }
    drop(conn.task.take());
    conn.metrics.connections_open.dec();
}

async fn serve_http1(
    worker: &Rc<Worker>,
    conn: &Rc<Conn>,
    settings: &ListenerSettings,
    io: listener::TlsIo,
) {
    // Head and idle time have timers of their own below; hyper has one for both. Its limit of 100 fields stays as it is:
    // with any that is set, every head costs two large allocations.
    let opening = &RefCell::new(None);
    let begin = |io| {
        worker.warm.enter(conn);
        let service = hyper::service::service_fn(|request| {
            let (worker, conn) = (Rc::clone(worker), Rc::clone(conn));
            async move {
                let mut response = handle(worker, conn, request).await;
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    opening.replace(response.body_mut().take_tunnel());
                }
                Ok::<_, Infallible>(response)
            }
        });
        let (notes, requests) = (Arc::clone(&conn.notes), conn.requests.get());
        let io = Http1Transport::new(io, settings.head_bytes_max, notes, requests);
        http1::Builder::new()
            .header_read_timeout(None)
            .max_header_size(settings.head_bytes_max)
            .serve_connection(TokioIo::new(io), service)
            .with_upgrades()
    };
    let http = StartOnFirstByte::new(conn.downstream.client, io, begin, || conn.notes.take());
    drive(worker, conn, settings, pin!(http)).await;
    // A tunnel, or a request that outlasts its client, may hold this connection for hours.
    conn.left_warm();
    // Whatever else holds this connection, its client sees the end of it.
    drop(conn.notes.take());
    if conn.upgrade.borrow().is_some() {
        // Boxed: connections that never become tunnels, which is nearly all, hold no room for one.
        Box::pin(tunnel::follow(worker, conn, opening.take())).await;
    }
}

impl<I, S> ConnectionProtocol for http1::UpgradeableConnection<I, S>
where
    I: Read + Write + Unpin + Send + 'static,
    S: HttpService<Incoming, ResBody = ResponseBody>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Error = hyper::Error;

    fn graceful_shutdown(self: Pin<&mut Self>) {
        Self::graceful_shutdown(self);
    }

    fn record_error(worker: &Worker, conn: &Conn, error: &hyper::Error) {
        if error.is_parse_too_large() {
            conn.metrics.limit(Limit::Head);
        }
        if error.is_parse() {
            protocol_errors::head_refused(worker, conn, error);
        }
    }
}

async fn serve_http2(
    worker: &Rc<Worker>,
    conn: &Rc<Conn>,
    settings: &ListenerSettings,
    io: listener::TlsIo,
) {
    let tasks = RefCell::new(JoinSet::new());
    {
        let http = Http2::new(worker, conn, settings, io, &tasks);
        drive(worker, conn, settings, pin!(http)).await;
    }
    // Whatever still runs has nobody to answer: it is dropped, and its records are written.
    tasks.into_inner().shutdown().await;
}

impl ConnectionProtocol for Http2<'_> {
    type Error = h2::Error;

    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.get_mut().leave();
    }

    fn record_error(worker: &Worker, conn: &Conn, error: &h2::Error) {
        if error.is_library() && !error.is_io() && conn.broken_off.get().is_none() {
            protocol_errors::frames_refused(worker, conn, error);
        }
    }
}

/// Runs a connection beside its timers, revocation and drain.
async fn drive<H: ConnectionProtocol>(
    worker: &Rc<Worker>,
    conn: &Rc<Conn>,
    settings: &ListenerSettings,
    mut http: Pin<&mut H>,
) {
    let mut signals = worker.signals.subscribe();
    poll_fn(|cx| Poll::Ready(conn.task.replace(Some(cx.waker().clone())))).await;
    let mut monitor = ConnectionMonitor {
        worker,
        conn,
        settings,
        draining: false,
        rested: None,
        turn_at: None,
        revoked_at: None,
        cut_at: None,
    };
    monitor.heed(&signals.current());
    let mut timer = pin!(sleep_until(monitor.next()));
    loop {
        tokio::select! {
            biased;
            // Signals first: whether a connection was busy at a swap is asked before its answer is let go on. They and
            // the timer count even where the peer keeps this task so busy that it has used up its share.
            changed = poll_fn(|cx| signals.poll_changed(cx)) => {
                monitor.heed(&changed);
                timer.as_mut().reset(monitor.next());
            }
            ended = http.as_mut() => {
                if let Err(error) = ended {
                    H::record_error(worker, conn, &error);
                    tracing::debug!(client = %conn.downstream.client, %error, "a connection ended with an error");
                }
                return;
            }
            () = poll_fn(|_| if conn.is_to_rest() { Poll::Ready(()) } else { Poll::Pending }) => {
                monitor.rest(http.as_mut());
            }
            () = unconstrained(timer.as_mut()) => {
                monitor.reverify_if_due();
                if monitor.rests_at().is_some_and(|at| at <= Instant::now()) {
                    monitor.rest(http.as_mut());
                }
                let Some(ending) = monitor.due() else {
                    timer.as_mut().reset(monitor.next());
                    continue;
                };
                monitor.note(ending);
                if !matches!(ending, CloseReason::Cut | CloseReason::WriteStalled | CloseReason::ReadSlowly
                ) {
                    // Says goodbye to a peer that may be listening, but does not wait for one that is not.
                    http.as_mut().graceful_shutdown();
                    if conn.is_leaving() {
                        timer.as_mut().reset(monitor.next());
                        continue;
                    }
                    let _ = tokio::time::timeout(Duration::from_secs(1), http.as_mut()).await;
                }
                return;
            }
        }
    }
}

/// When a connection is to be closed, and why.
struct ConnectionMonitor<'a> {
    worker: &'a Worker,
    conn: &'a Conn,
    settings: &'a ListenerSettings,
    draining: bool,
    /// After how many requests what HTTP held was given back.
    rested: Option<u64>,
    /// When an idle client has its turn to be judged anew by building a path, and to be closed if it is no longer
    /// accepted: thousands at once would keep requests waiting, and come back at once.
    turn_at: Option<Instant>,
    /// The turn in which it was found to be no longer accepted.
    revoked_at: Option<Instant>,
    /// When what is left is cut, once the grace is over.
    cut_at: Option<Instant>,
}

impl ConnectionMonitor<'_> {
    /// Takes note of what the whole process was told.
    fn heed(&mut self, signals: &Signals) {
        match signals.phase {
            LifecyclePhase::Serving => {}
            LifecyclePhase::Draining => {
                self.draining = true;
                self.conn.closing.set(true);
            }
            LifecyclePhase::Cutting => {
                // The phase before it may have been too short to be seen.
                self.draining = true;
                self.conn.closing.set(true);
                let grace = match self.conn.waiting.get() {
                    0 => Duration::ZERO,
                    // They are refused now, and are to read why.
                    _ => REFUSAL_GRACE,
                };
                self.cut_at = Some(Instant::now() + grace);
            }
        }
        let generation = self.worker.current();
        // Its listener was removed, or would not have let it in so: what is open runs out as it does when the process stops.
        let listener = generation.listeners.get(&self.conn.downstream.listener);
        if listener.is_none_or(|now| self.conn.policy_has_changed(&now.settings)) {
            self.draining = true;
            self.conn.closing.set(true);
        }
        // A busy connection finishes its answer, and its next request is told why it is the last.
        let trust_generation = generation.trust.generation();
        let busy = |streams: &Streams| streams.was_busy_at(trust_generation);
        let idle = self.conn.stage().0 == ConnectionStage::Idle
            && !self.conn.streams.as_ref().is_some_and(busy);
        let changed = self.conn.trust_generation() != generation.trust.generation();
        // Anybody can be a refused client that stays: were these judged too, those that may not stay would wait for them.
        let concerned = idle && changed && !self.conn.is_refused_but_open();
        let confirmed = || self.conn.is_confirmed(&generation.trust, SystemTime::now());
        // One turn, however many changes follow before it has come.
        if concerned && !confirmed() && self.turn_at.is_none() {
            let turn = self.worker.shared.turn(generation.revoked_close_rate);
            self.turn_at = Some(Instant::now() + turn);
        }
    }

    /// Judges an idle client anew whose turn has come. A busy one was judged with its request.
    fn reverify_if_due(&mut self) {
        let Some(at) = self.turn_at.take_if(|at| *at <= Instant::now()) else {
            return;
        };
        if self.conn.stage().0 == ConnectionStage::Idle {
            let generation = self.worker.current();
            let verdict = self
                .conn
                .current_verdict(&generation.trust, SystemTime::now());
            self.revoked_at = self.conn.must_be_closed(&verdict).then_some(at);
        }
    }

    /// When what HTTP holds for the connection is to be given back, if it is and has not been.
    fn rests_at(&self) -> Option<Instant> {
        let requests = self.conn.requests.get();
        let may = requests > 0 && self.rested != Some(requests) && self.conn.streams.is_none();
        let between = may && self.conn.is_between_requests();
        between.then(|| self.conn.idle_since() + REST_AFTER)
    }

    /// Gives back what HTTP holds for the connection.
    fn rest(&mut self, http: Pin<&mut impl ConnectionProtocol>) {
        self.rested = Some(self.conn.requests.get());
        self.conn.left_warm();
        http.rest();
    }

    /// Why the connection is to be closed now, if it is.
    fn due(&self) -> Option<CloseReason> {
        let now = Instant::now();
        self.deadlines()
            .into_iter()
            .flatten()
            .find(|(at, _)| *at <= now)
            .map(|(_, ending)| ending)
    }

    /// When to look again. A change of stage wakes nobody, so no look may be further away than the shortest of the
    /// times that could begin in between.
    fn next(&self) -> Instant {
        let ListenerSettings {
            idle_timeout,
            head_timeout,
            write_timeout,
            rate_grace,
            ..
        } = *self.settings;
        let silence = if self.draining {
            DRAIN_SILENCE
        } else {
            idle_timeout
        };
        let shortest = silence.min(head_timeout).min(write_timeout).min(rate_grace);
        let rested = self.rested == Some(self.conn.requests.get()) || self.conn.streams.is_some();
        let shortest = if rested {
            shortest
        } else {
            shortest.min(REST_AFTER)
        };
        let ahead = Instant::now() + shortest;
        self.deadlines()
            .into_iter()
            .flatten()
            .map(|(at, _)| at)
            .chain(self.turn_at)
            .chain(self.rests_at())
            .fold(ahead, Instant::min)
    }

    fn deadlines(&self) -> [Option<(Instant, CloseReason)>; 5] {
        let (stage, since) = self.conn.stage();
        let at = |from: Instant, after: Duration| from + after;
        let idle = stage == ConnectionStage::Idle;
        let stalled = self.conn.activity.write_stalled();
        [
            self.cut_at.map(|at| (at, CloseReason::Cut)),
            stalled.map(|since| {
                (
                    at(since, self.settings.write_timeout),
                    CloseReason::WriteStalled,
                )
            }),
            self.conn
                .reader
                .due(self.conn.activity.written())
                .map(|at| (at, CloseReason::ReadSlowly)),
            self.revoked_at
                .filter(|_| idle && stalled.is_none() && !self.conn.is_leaving())
                .map(|at| (at, CloseReason::Revoked)),
            match stage {
                ConnectionStage::Busy => None,
                // It was told to end, and does by itself.
                ConnectionStage::Idle if self.conn.is_leaving() => None,
                ConnectionStage::Head => {
                    Some((at(since, self.settings.head_timeout), CloseReason::HeadLate))
                }
                ConnectionStage::Idle if stalled.is_some() => None,
                ConnectionStage::Idle if self.draining => {
                    let silent = self
                        .conn
                        .activity
                        .idle_since()
                        .max(self.conn.activity.last_read());
                    Some((at(silent, DRAIN_SILENCE), CloseReason::Drained))
                }
                ConnectionStage::Idle => Some((
                    at(self.conn.idle_since(), self.settings.idle_timeout),
                    CloseReason::Idle,
                )),
            },
        ]
    }

    fn note(&self, ending: CloseReason) {
        match ending {
            CloseReason::Idle => self.conn.metrics.limit(Limit::IdleTimeout),
            CloseReason::HeadLate => match &self.conn.streams {
                Some(streams) => streams.overstep(ExceededLimit::HeadTimeout),
                None => {
                    protocol_errors::overstepped(self.worker, self.conn, ExceededLimit::HeadTimeout)
                }
            },
            CloseReason::WriteStalled => {
                self.conn.metrics.limit(Limit::WriteTimeout);
                self.conn.broken_off.set(Some(LogReason::WriteTimeout));
            }
            CloseReason::ReadSlowly => {
                self.conn.metrics.limit(Limit::ReadRate);
                self.conn.broken_off.set(Some(LogReason::ReadTooSlow));
            }
            CloseReason::Revoked => {
                self.worker.shared.metrics.connections_revoked.inc();
            }
            CloseReason::Cut => self.conn.broken_off.set(Some(LogReason::DrainGrace)),
            CloseReason::Drained => {}
        }
    }
}
