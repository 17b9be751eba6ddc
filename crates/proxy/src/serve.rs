//! Serves one connection: requests, timers, revocation and drain.

use std::{
    cell::RefCell,
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::{Duration, SystemTime},
};

use listener::{
    AcceptQueue, Accepted, ActiveListener, ClientCertPolicy, Connection, ConnectionStage, Listener,
    ListenerSettings, TlsIo,
};
use telemetry::Limit;
use tokio::{
    sync::oneshot,
    task::{JoinHandle, JoinSet, spawn_local, unconstrained},
    time::{Instant, sleep_until},
};

use crate::{
    connection::Conn,
    exceeded_limit::ExceededLimit,
    http1::Http1,
    http2::Http2,
    listener_context::WorkerContext,
    passthrough,
    protocol::ConnectionProtocol,
    protocol_errors,
    reason::LogReason,
    signals::{LifecyclePhase, Signals},
    tunnel,
    worker::Worker,
};

/// How long a draining connection must be silent before it may be closed: an agent reuses a connection for 4 s and does not
/// retry.
const DRAIN_SILENCE: Duration = Duration::from_secs(5);

/// How long a connection must be silent before it releases its buffers. An agent in the middle of a run sends its next request
/// earlier, so a busy connection has no cost from this.
const REST_AFTER: Duration = Duration::from_secs(1);

/// Time for the responses to requests that still waited in a queue when the drain ended. The process waits twice as long.
const REFUSAL_GRACE: Duration = Duration::from_secs(1);

impl Worker {
    /// A task that accepts and serves connections of one listener on this thread until the sender of `closed` is
    /// dropped.
    ///
    /// The task is spawned here so that the code of requests is compiled in this crate, for speed; its callers are
    /// compiled for size.
    ///
    /// # Panics
    /// Outside a [`tokio::task::LocalSet`].
    pub fn listen(
        self: Rc<Self>,
        listener: Arc<Listener>,
        socket: AcceptQueue,
        closed: oneshot::Receiver<()>,
    ) -> JoinHandle<()> {
        let handshakes = self.handshakes.clone();
        let live = Rc::new(WorkerContext(Rc::clone(&self)));
        let serve = move |accepted| {
            let worker = Rc::clone(&self);
            async move {
                match accepted {
                    Accepted::Http(connection) => Rc::clone(&worker).serve(*connection).await,
                    // Boxed, so that connections with terminated TLS need no room for it.
                    Accepted::Passthrough(raw) => Box::pin(passthrough::serve(&worker, *raw)).await,
                }
                let shared = &worker.shared;
                shared.descriptors.connection_ended(&shared.metrics.alarms);
            }
        };
        let closed = async {
            let _ = closed.await;
        };
        spawn_local(listener::accept_loop(
            listener,
            socket,
            (live, handshakes),
            serve,
            closed,
        ))
    }

    /// Serves one connection to its end, on the thread of this worker.
    pub fn serve(self: Rc<Self>, connection: Connection) -> impl Future<Output = ()> + use<> {
        // Prepared outside the future. Otherwise the future would hold the connection twice for as long as it lasts.
        let prepared = prepare(&self, connection);
        async move {
            if let Some((conn, listener, io)) = prepared {
                serve(self, conn, listener, io).await;
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseReason {
    Idle,
    HeadLate,
    WriteStalled,
    ReadSlowly,
    ReadDisplaced,
    Revoked,
    Drained,
    Cut,
}

/// Prepares a connection. `None`: its listener was removed.
fn prepare(
    worker: &Worker,
    connection: Connection,
) -> Option<(Rc<Conn>, Arc<ActiveListener>, TlsIo)> {
    let name = &connection.downstream.listener;
    let listener = Arc::clone(worker.current().listeners.get(name)?);
    let metrics = worker.listener_metrics(name);
    let agents = &worker.shared.agents;
    let (conn, io) = Conn::new(connection, &listener.settings, metrics, agents);
    Some((Rc::new(conn), listener, io))
}

async fn serve(worker: Rc<Worker>, conn: Rc<Conn>, listener: Arc<ActiveListener>, io: TlsIo) {
    conn.note_change_of_ca(&worker.current().trust, &worker.shared.metrics.alarms);
    let _open = conn.metrics.opens();
    let settings = &listener.settings;
    match conn.streams {
        None => serve_http1(&worker, &conn, settings, io).await,
        // Boxed, so that a connection with HTTP/1 needs no room for it.
        Some(_) => Box::pin(serve_http2(&worker, &conn, settings, io)).await,
    }
    drop(conn.task.take());
}

async fn serve_http1(worker: &Rc<Worker>, conn: &Rc<Conn>, settings: &ListenerSettings, io: TlsIo) {
    let switched = {
        let mut http = Http1::new(worker, conn, settings.head_bytes_max, io);
        drive(worker, conn, settings, Pin::new(&mut http)).await;
        http.into_switched()
    };
    // A tunnel, or a request that outlasts its client, may hold this connection for hours.
    conn.released_buffers();
    if let Some(switched) = switched {
        // Boxed, so that connections without a tunnel (nearly all) need no room for it.
        Box::pin(tunnel::follow(worker, conn, *switched)).await;
    }
}

async fn serve_http2(worker: &Rc<Worker>, conn: &Rc<Conn>, settings: &ListenerSettings, io: TlsIo) {
    let tasks = RefCell::new(JoinSet::new());
    {
        let http = Http2::new(worker, conn, settings, io, &tasks);
        drive(worker, conn, settings, pin!(http)).await;
    }
    // The client has gone. Tasks that still run are dropped, which writes their records.
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

/// Runs a connection together with its timers, revocation and drain.
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
        reverify_at: None,
        revoked_at: None,
        cut_at: None,
    };
    monitor.apply_signals(&signals.current());
    let mut timer = pin!(sleep_until(monitor.next_check()));
    loop {
        tokio::select! {
            biased;
            // Signals come first, because a connection that was busy at a trust change must be recognized before its response
            // continues. Signals and the timer are checked even when the peer has used up this task's budget.
            changed = poll_fn(|cx| signals.poll_changed(cx)) => {
                monitor.apply_signals(&changed);
                timer.as_mut().reset(monitor.next_check());
            }
            ended = http.as_mut() => {
                if let Err(error) = ended {
                    H::record_error(worker, conn, &error);
                    tracing::debug!(client = %conn.downstream.client, %error, "a connection ended with an error");
                }
                return;
            }
            () = poll_fn(|_| if conn.should_rest() { Poll::Ready(()) } else { Poll::Pending }) => {
                monitor.rest(http.as_mut());
            }
            () = poll_fn(|_| if conn.reader.is_displaced() { Poll::Ready(()) } else { Poll::Pending }) => {
                monitor.note(CloseReason::ReadDisplaced);
                return;
            }
            () = unconstrained(timer.as_mut()) => {
                monitor.reverify_if_due();
                monitor.note_slow_reader();
                if monitor.rests_at().is_some_and(|at| at <= Instant::now()) {
                    monitor.rest(http.as_mut());
                }
                let Some(ending) = monitor.due() else {
                    timer.as_mut().reset(monitor.next_check());
                    continue;
                };
                monitor.note(ending);
                if !matches!(ending, CloseReason::Cut | CloseReason::WriteStalled | CloseReason::ReadSlowly
                ) {
                    // The connection closes in an orderly way, but the proxy does not wait long for the peer.
                    http.as_mut().graceful_shutdown();
                    if conn.is_closing_gracefully() {
                        timer.as_mut().reset(monitor.next_check());
                        continue;
                    }
                    let _ = tokio::time::timeout(Duration::from_secs(1), http.as_mut()).await;
                }
                return;
            }
        }
    }
}

/// Decides when a connection must close, and why.
struct ConnectionMonitor<'a> {
    worker: &'a Worker,
    conn: &'a Conn,
    settings: &'a ListenerSettings,
    draining: bool,
    /// Number of requests when the connection last released its buffers.
    rested: Option<u64>,
    /// When an idle client must be re-verified by building a path. It is closed if it is no longer accepted. Re-verifications
    /// are spread over time, because thousands at once would delay requests, and the closed clients would reconnect at once.
    reverify_at: Option<Instant>,
    /// When a re-verification found that the client is no longer accepted.
    revoked_at: Option<Instant>,
    /// When the connection is cut off, after the grace period.
    cut_at: Option<Instant>,
}

impl ConnectionMonitor<'_> {
    /// Applies the current signals and configuration.
    fn apply_signals(&mut self, signals: &Signals) {
        match signals.phase {
            LifecyclePhase::Serving => {}
            LifecyclePhase::Draining => {
                self.draining = true;
                self.conn.closing.set(true);
            }
            LifecyclePhase::Cutting => {
                // The draining phase may have been too short to be seen.
                self.draining = true;
                self.conn.closing.set(true);
                let grace = match self.conn.waiting.get() {
                    0 => Duration::ZERO,
                    // Waiting requests are refused now, and their clients should still get the response.
                    _ => REFUSAL_GRACE,
                };
                self.cut_at = Some(Instant::now() + grace);
            }
        }
        let generation = self.worker.current();
        // Open connections drain as they do when the process stops, if their listener was removed or now has another policy for
        // this client.
        let listener = generation.listeners.get(&self.conn.downstream.listener);
        if listener.is_none_or(|now| self.conn.policy_has_changed(&now.settings)) {
            self.draining = true;
            self.conn.closing.set(true);
        }
        if listener.is_some_and(|now| now.settings.client_cert == ClientCertPolicy::None) {
            self.conn.forget_identity(&generation.trust);
        }
        // A busy connection finishes its response, and its next request is refused.
        let trust_generation = generation.trust.generation();
        let streams = self.conn.streams.as_deref();
        let idle = self.conn.stage().0 == ConnectionStage::Idle
            && !streams.is_some_and(|streams| streams.was_busy_at(trust_generation));
        let changed = self.conn.trust_generation() != generation.trust.generation();
        // Only clients that were accepted before are re-verified. Clients already refused may stay connected, and
        // re-verifying them would delay closing the newly revoked ones.
        let concerned = idle && changed && !self.conn.is_refused_but_open();
        let confirmed = || self.conn.is_confirmed(&generation.trust, SystemTime::now());
        // Further changes before the planned re-verification need no additional one.
        if concerned && !confirmed() && self.reverify_at.is_none() {
            let turn = self
                .worker
                .shared
                .revocation_turn(generation.revoked_close_rate);
            self.reverify_at = Some(Instant::now() + turn);
        }
    }

    /// Re-verifies an idle client whose turn has come. A busy client is verified with its request.
    fn reverify_if_due(&mut self) {
        let Some(at) = self.reverify_at.take_if(|at| *at <= Instant::now()) else {
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

    fn note_slow_reader(&self) {
        if let Some(task) = &*self.conn.task.borrow() {
            let written = self.conn.activity.written();
            let readers = &self.worker.shared.slow_readers;
            self.conn.reader.note_slow(readers, written, task);
        }
    }

    /// When the connection should release its buffers, if it holds any.
    fn rests_at(&self) -> Option<Instant> {
        let requests = self.conn.requests.get();
        let may = requests > 0 && self.rested != Some(requests) && self.conn.streams.is_none();
        let between = may && self.conn.is_between_requests();
        between.then(|| self.conn.idle_since() + REST_AFTER)
    }

    /// Releases the memory that HTTP holds for the connection.
    fn rest(&mut self, http: Pin<&mut impl ConnectionProtocol>) {
        self.rested = Some(self.conn.requests.get());
        self.conn.released_buffers();
        http.rest();
    }

    fn due(&self) -> Option<CloseReason> {
        let now = Instant::now();
        self.deadlines()
            .into_iter()
            .flatten()
            .find(|(at, _)| *at <= now)
            .map(|(_, ending)| ending)
    }

    /// When to check again. A change of stage does not wake this task, so the next check must not be later than the shortest
    /// timeout that could start meanwhile.
    fn next_check(&self) -> Instant {
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
            .chain(self.reverify_at)
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
                .filter(|_| idle && stalled.is_none() && !self.conn.is_closing_gracefully())
                .map(|at| (at, CloseReason::Revoked)),
            match stage {
                ConnectionStage::Busy => None,
                // A GOAWAY was sent, so the connection closes by itself.
                ConnectionStage::Idle if self.conn.is_closing_gracefully() => None,
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
            CloseReason::ReadDisplaced => {
                self.conn.metrics.limit(Limit::ClientShare);
                self.conn.broken_off.set(Some(LogReason::ReadDisplaced));
            }
            CloseReason::Revoked => {
                self.worker.shared.metrics.connections_revoked.inc();
            }
            CloseReason::Cut => self.conn.broken_off.set(Some(LogReason::DrainGrace)),
            CloseReason::Drained => {}
        }
    }
}
