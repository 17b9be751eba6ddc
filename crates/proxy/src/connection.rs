//! One connection from the point of view of its requests: the client's current verdict, its limits, and the fields that
//! describe the connection to members.

use std::{
    cell::{Cell, OnceCell, RefCell},
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    task::Waker,
    time::{Duration, SystemTime},
};

use identity::ClientIdentity;
use listener::{
    Activity, ClientCertPolicy, ClientVerdict, Connection, ConnectionStage, Downstream,
    InvalidCertPolicy, ListenerSettings, Permit,
};
use pki::TrustStore;
use rustls_pki_types::UnixTime;
use telemetry::{
    Agents, Alarm, Alarms, KnownClient, ListenerMetrics, SeenCertificate, TlsFacts, agents,
};
use tokio::time::Instant;
use upstream::OwnLines;

use crate::{
    client_shares::ClientAccounts,
    forwarding::forwarded,
    pace::{RateLimits, ReaderPace},
    reason::LogReason,
    response_timer::ResponseTimer,
    streams::Streams,
    warm_connections::Warm,
};

/// One connection. Its requests run on one thread, one after the other or concurrently as streams.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) downstream: Downstream,
    pub(crate) activity: Arc<Activity>,
    pub(crate) metrics: Rc<ListenerMetrics>,
    pub(crate) tls: Option<Arc<TlsFacts>>,
    forwarded: OnceCell<OwnLines>,
    verdict: RefCell<Rc<ClientVerdict>>,
    /// The agent's entry in the list that the admin API shows.
    pub(crate) seen: Option<Arc<agents::AgentEntry>>,
    /// Counts this connection as one of the agent's open ones, if its certificate was accepted.
    _counted: Option<agents::OpenConnection>,
    /// Until this time (Unix time) the proxy need not note again that the client's CA is in use.
    ca_noted_until: Cell<u64>,
    /// Whether the client was accepted before and is now refused. Such a client gets one 403, and then the connection closes.
    lost_acceptance: Cell<bool>,
    /// Number of requests so far. The record of the first request has the time of the handshake.
    pub(crate) requests: Cell<u64>,
    /// Whether every response from now on closes the connection.
    pub(crate) closing: Cell<bool>,
    /// Why the proxy aborted the connection and whatever was in progress on it.
    pub(crate) broken_off: Cell<Option<LogReason>>,
    /// Number of the connection's requests that wait in queues.
    pub(crate) waiting: Cell<u32>,
    /// The timer for the responses of members.
    pub(crate) response_timer: ResponseTimer,
    /// The client's accounts in the pools that it has used.
    pub(crate) accounts: ClientAccounts,
    pub(crate) rates: RateLimits,
    /// The pace at which the client reads the response, if the connection carries one response at a time.
    pub(crate) reader: ReaderPace,
    /// What its access log lines have in common, and the verdict for which that is true.
    known_client: RefCell<Option<(Rc<ClientVerdict>, Arc<KnownClient>)>>,
    /// Whether nothing of the next request has been received (HTTP/1).
    pub(crate) is_between: Cell<bool>,
    /// Its slot among the worker's connections that hold buffers (HTTP/1).
    warm_slot: Cell<Option<usize>>,
    /// Whether the connection was requested to release its buffers.
    rest_requested: Cell<bool>,
    /// The task that releases the buffers.
    pub(crate) task: RefCell<Option<Waker>>,
    /// Its requests, if it carries several at once (HTTP/2).
    pub(crate) streams: Option<Box<Streams>>,
    _permit: Permit,
}

impl Warm for Conn {
    fn slot(&self) -> &Cell<Option<usize>> {
        &self.warm_slot
    }

    fn idle_since(&self) -> Option<Instant> {
        self.is_between_requests().then(|| Self::idle_since(self))
    }

    fn request_rest(&self) {
        self.rest_requested.set(true);
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }
}

/// How often an open connection notes that its CA is in use, in seconds.
const CA_NOTE_SECONDS: u64 = 3600;

/// Notes a verified agent. The contents of its certificate are read only the first time.
fn seen(
    agents: &Agents,
    verdict: &ClientVerdict,
    client: IpAddr,
) -> Option<Arc<agents::AgentEntry>> {
    let (client, now) = (client.to_canonical(), SystemTime::now());
    if let Some(claimed) = verdict.claimed() {
        // The client is refused now. Its requests are listed together with its earlier ones.
        let fingerprint = pki::fingerprint_of(verdict.verification.presented.first()?);
        return agents.came_again(&claimed, &fingerprint, client, now);
    }
    let chain = verdict.verification.chain.as_ref()?;
    let certname = verdict.certname.as_ref()?;
    let time = |time: UnixTime| SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs());
    let fingerprint = chain.fingerprint()?;
    let certificate = || {
        let own = pki::facts_of(chain.agent().leaf())?;
        Some(SeenCertificate {
            serial: chain.agent().serial().into(),
            issuer: own.issuer.into(),
            fingerprint: *fingerprint,
            not_before: time(own.not_before),
            not_after: time(own.not_after),
        })
    };
    agents.connected(certname, fingerprint, client, now, certificate)
}

/// The time since 1970. An earlier time, from a clock that was never set, counts as 1970: no certificate is valid yet then.
fn since_1970(now: SystemTime) -> UnixTime {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    UnixTime::since_unix_epoch(since.unwrap_or_default())
}

impl Conn {
    /// Raises an alarm if the agent's certname changes back to a CA that it used before, and neither that CA nor the CA of its
    /// last certificate signs the other. A rotation of the CA changes it only once. The alarm stays until an operator requests
    /// a reload.
    pub(crate) fn note_change_of_ca(&self, trust: &TrustStore, alarms: &Alarms) {
        let Some(agent) = &self.seen else { return };
        let Some([now, former, before]) = agent.take_change() else {
            return;
        };
        if trust.are_separate(now, former) && !trust.are_separate(now, before) {
            let message = format!(
                "the certname {} is used in turn with certificates of {former} and of {now}, which are CAs that do not sign each other: two hosts may have this name, and the proxy and its members treat them as one; name the CA in `issuer` of [[access]] and [[routes]], or remove one CA from [trust] ca, then run `proscenium reload`",
                agent.certname()
            );
            // The message keeps the first certname, so that agents cannot fill the log.
            alarms.assess(Alarm::CertnameOfTwoCas, "", SystemTime::now(), || {
                Some(message)
            });
        }
    }

    pub(crate) fn new(
        connection: Connection,
        settings: &ListenerSettings,
        metrics: Rc<ListenerMetrics>,
        agents: &Agents,
    ) -> (Self, listener::TlsIo) {
        let Connection {
            io,
            activity,
            downstream,
            verdict,
            permit,
        } = connection;
        let facts = |tls: &listener::NegotiatedTls| TlsFacts {
            version: tls.version,
            cipher: tls.cipher,
            resumed: tls.resumed,
            sni: tls.server_name.as_deref().map(Into::into),
        };
        let tls = downstream.tls.as_ref().map(facts).map(Arc::new);
        let http2 = downstream.tls.as_ref().is_some_and(|tls| tls.http2);
        let rates = RateLimits {
            body_min: settings.body_rate_min,
            read_min: settings.read_rate_min,
            grace: settings.rate_grace,
        };
        let seen = seen(agents, &verdict, downstream.client.ip());
        let accepted = seen.as_ref().filter(|_| !verdict.is_refused());
        let conn = Self {
            _counted: accepted.map(|agent| agent.opened()),
            accounts: ClientAccounts::default(),
            known_client: RefCell::default(),
            rates,
            reader: ReaderPace::new(rates),
            seen,
            is_between: Cell::new(true),
            warm_slot: Cell::new(None),
            rest_requested: Cell::new(false),
            task: RefCell::default(),
            streams: http2.then(|| Box::new(Streams::new(settings))),
            downstream,
            activity,
            metrics,
            tls,
            forwarded: OnceCell::new(),
            verdict: RefCell::new(Rc::new(verdict)),
            ca_noted_until: Cell::new(0),
            lost_acceptance: Cell::new(false),
            requests: Cell::new(0),
            closing: Cell::new(false),
            broken_off: Cell::new(None),
            waiting: Cell::new(0),
            response_timer: ResponseTimer::default(),
            _permit: permit,
        };
        (conn, io)
    }

    /// The values that the records of this connection have in common while this verdict is valid.
    pub(crate) fn known_client(&self, verdict: &Rc<ClientVerdict>) -> Arc<KnownClient> {
        let mut known = self.known_client.borrow_mut();
        match &*known {
            Some((same, known)) if Rc::ptr_eq(same, verdict) => Arc::clone(known),
            _ => {
                let renewed = Arc::<KnownClient>::default();
                *known = Some((Rc::clone(verdict), Arc::clone(&renewed)));
                renewed
            }
        }
    }

    pub(crate) fn server_name(&self) -> Option<&str> {
        self.downstream.tls.as_ref()?.server_name.as_deref()
    }

    /// The fields that describe the connection to members. They are rendered for the first request that is forwarded.
    pub(crate) fn forwarded(&self) -> &OwnLines {
        let downstream = &self.downstream;
        self.forwarded
            .get_or_init(|| forwarded(downstream.client.ip(), downstream.port))
    }

    /// The client's verdict against the current trust store. The client is verified again if the trust store has changed or a
    /// part of its chain has expired.
    pub(crate) fn current_verdict(&self, trust: &TrustStore, now: SystemTime) -> Rc<ClientVerdict> {
        let now = since_1970(now);
        let mut verdict = self.verdict.borrow_mut();
        if !verdict.verification.is_current(trust.generation(), now) {
            let renewed = verdict.reverify(trust, now);
            if renewed.is_refused() && !verdict.is_refused() {
                self.lost_acceptance.set(true);
                tracing::info!(
                    client = %self.downstream.client, verdict = %renewed.verdict,
                    "a live connection's certificate is no longer accepted"
                );
            }
            *verdict = Rc::new(renewed);
        }
        self.note_ca_in_use(trust, &verdict, now);
        Rc::clone(&verdict)
    }

    /// Notes once an hour that the CA of the client's certificate is in use. A connection may stay open for days, and
    /// its certificate is verified again only when the trust changes.
    fn note_ca_in_use(&self, trust: &TrustStore, verdict: &ClientVerdict, now: UnixTime) {
        if now.as_secs() >= self.ca_noted_until.get() {
            trust.note_in_use(&verdict.verification, now);
            self.ca_noted_until.set(now.as_secs() + CA_NOTE_SECONDS);
        }
    }

    /// Adopts the verdict of another trust store if looking up serials is enough to confirm it. Returns whether the verdict was
    /// confirmed.
    pub(crate) fn is_confirmed(&self, trust: &TrustStore, now: SystemTime) -> bool {
        let mut verdict = self.verdict.borrow_mut();
        let confirmed = verdict.confirmed(trust, since_1970(now));
        let is_confirmed = confirmed.is_some();
        if let Some(confirmed) = confirmed {
            *verdict = Rc::new(confirmed);
        }
        is_confirmed
    }

    pub(crate) fn last_verdict(&self) -> Rc<ClientVerdict> {
        Rc::clone(&self.verdict.borrow())
    }

    /// The streams of an HTTP/2 connection. Other connections have none.
    pub(crate) fn http2_streams(&self) -> &Streams {
        let streams = self.streams.as_ref();
        streams.expect("HTTP/2 is spoken on a connection that has streams")
    }

    /// The current stage, and when it began.
    pub(crate) fn stage(&self) -> (ConnectionStage, Instant) {
        match &self.streams {
            None => self.activity.stage(),
            Some(streams) => streams.stage(),
        }
    }

    /// Since when an idle connection has been silent. On HTTP/2, pings do not count.
    pub(crate) fn idle_since(&self) -> Instant {
        match &self.streams {
            None => self.activity.idle_since(),
            Some(streams) => streams.idle_since(),
        }
    }

    /// Whether the connection is between requests, and HTTP holds none of its bytes: only its transport may.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.stage().0 == ConnectionStage::Idle
            && self.is_between.get()
            && self.activity.write_stalled().is_none()
            && !self.closing.get()
    }

    pub(crate) fn released_buffers(&self) {
        self.warm_slot.set(None);
        self.rest_requested.set(false);
    }

    /// Whether the connection was requested to release its buffers since the last call, and can do so.
    pub(crate) fn should_rest(&self) -> bool {
        self.rest_requested.take() && self.is_between_requests()
    }

    /// Whether a GOAWAY was requested for the connection, so that it closes by itself.
    pub(crate) fn is_closing_gracefully(&self) -> bool {
        self.streams.is_some() && self.closing.get()
    }

    /// Whether looking up serials in a new trust store can confirm the verdict without building a path.
    pub(crate) fn confirms_by_serial(&self, trust: &TrustStore) -> bool {
        trust.confirms_by_serial(&self.verdict.borrow().verification)
    }

    /// Generation of the trust store that verified the client last.
    pub(crate) fn trust_generation(&self) -> u64 {
        self.verdict.borrow().verification.generation
    }

    /// Whether the client may not even stay connected. Either the client was accepted before and is now refused, or it could
    /// connect only because a resumed session bypasses the handshake's verifier.
    pub(crate) fn must_be_closed(&self, verdict: &ClientVerdict) -> bool {
        verdict.is_refused()
            && (self.lost_acceptance.get()
                || self.downstream.on_invalid == InvalidCertPolicy::Abort)
    }

    /// Whether the client is refused but may stay connected. Its next request gets a 403, whichever trust store is active.
    pub(crate) fn is_refused_but_open(&self) -> bool {
        let verdict = self.verdict.borrow();
        verdict.is_refused() && !self.must_be_closed(&verdict)
    }

    /// Called when the listener no longer requests certificates: from its next request on, the client is anonymous.
    pub(crate) fn forget_identity(&self, trust: &TrustStore) {
        let anonymous = ClientVerdict::verify(trust, &[], since_1970(SystemTime::now()));
        *self.verdict.borrow_mut() = Rc::new(anonymous);
    }

    /// Whether the listener now has another policy for clients like this one.
    pub(crate) fn policy_has_changed(&self, now: &ListenerSettings) -> bool {
        match self.verdict.borrow().identity() {
            ClientIdentity::Anonymous if now.client_cert == ClientCertPolicy::None => false,
            _ if now.client_cert == ClientCertPolicy::None => true,
            ClientIdentity::Verified(_) => false,
            ClientIdentity::Anonymous => now.client_cert == ClientCertPolicy::Required,
            ClientIdentity::Refused(_) => now.on_invalid != self.downstream.on_invalid,
        }
    }

    /// Whether a refused identity is forwarded as `FAILED` on routes that allow it.
    pub(crate) fn failed_is_forwarded(&self) -> bool {
        self.downstream.on_invalid == InvalidCertPolicy::Forward && !self.lost_acceptance.get()
    }
}
