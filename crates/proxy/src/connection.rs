//! One connection as its requests see it: who the client is now, and what is said of it upstream.

use std::{
    cell::{Cell, OnceCell, RefCell},
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    task::Waker,
    time::{Duration, SystemTime},
};

use hyper::upgrade::OnUpgrade;
use identity::ClientIdentity;
use listener::{
    Activity, ClientCertPolicy, ClientVerdict, Connection, ConnectionStage, Downstream,
    InvalidCertPolicy, ListenerSettings, Permit,
};
use pki::TrustStore;
use rustls_pki_types::UnixTime;
use telemetry::{Agents, KnownClient, ListenerMetrics, SeenCertificate, TlsFacts, agents};
use tokio::time::Instant;
use upstream::OwnLines;

use crate::{
    client_shares::ClientAccounts,
    forwarding::forwarded,
    http1_transport::TransportNotes,
    pace::{RateLimits, ReaderPace},
    reason::LogReason,
    response_timer::ResponseTimer,
    streams::Streams,
    warm_connections::Warm,
};

/// One connection; its requests come one after the other, or as streams, on one thread.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) downstream: Downstream,
    pub(crate) activity: Arc<Activity>,
    pub(crate) metrics: ListenerMetrics,
    pub(crate) tls: Option<Arc<TlsFacts>>,
    forwarded: OnceCell<OwnLines>,
    verdict: RefCell<Rc<ClientVerdict>>,
    /// The verified agent, as others can ask for it.
    pub(crate) seen: Option<Arc<agents::AgentEntry>>,
    /// Counts this connection among the agent's open ones, where its certificate was accepted.
    _counted: Option<agents::OpenConnection>,
    /// Until when (Unix time) its CA need not be noted again as one in use.
    ca_noted_until: Cell<u64>,
    /// The client was accepted once and is no more: one 403, then the end.
    turned: Cell<bool>,
    /// Whether a request has come; the handshake's time is told with the first.
    pub(crate) requests: Cell<u64>,
    /// Every response from now on says that it is the last.
    pub(crate) closing: Cell<bool>,
    /// Why we broke off, whatever was under way.
    pub(crate) broken_off: Cell<Option<LogReason>>,
    /// How many of its requests wait in queues.
    pub(crate) waiting: Cell<u32>,
    /// For the answers of members.
    pub(crate) response_timer: ResponseTimer,
    /// Accounts of its client in the pools that it has used.
    pub(crate) accounts: ClientAccounts,
    /// How slow its client may be.
    pub(crate) rates: RateLimits,
    /// How fast its client reads the response, where there is one at a time.
    pub(crate) reader: ReaderPace,
    /// What its lines in the access log have in common, and for which standing.
    known_client: RefCell<Option<(Rc<ClientVerdict>, Arc<KnownClient>)>>,
    /// What its transport has seen of its requests (HTTP/1).
    pub(crate) notes: Arc<TransportNotes>,
    /// Its place among the worker's connections that hold buffers (HTTP/1).
    warm_place: Cell<Option<usize>>,
    /// Whether it is to give its buffers back.
    rest_asked: Cell<bool>,
    /// The task that rests.
    pub(crate) task: RefCell<Option<Waker>>,
    /// Its requests, where several come at once (HTTP/2).
    pub(crate) streams: Option<Streams>,
    /// Set where a request asked for an upgrade: the transport, once HTTP has ended on it.
    pub(crate) upgrade: RefCell<Option<OnUpgrade>>,
    _permit: Permit,
}

impl Warm for Conn {
    fn place(&self) -> &Cell<Option<usize>> {
        &self.warm_place
    }

    fn idle_since(&self) -> Option<Instant> {
        self.is_between_requests().then(|| Self::idle_since(self))
    }

    fn ask_to_rest(&self) {
        self.rest_asked.set(true);
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }
}

/// How often an open connection notes that its CA is in use.
const CA_NOTE_SECONDS: u64 = 3600;

/// Notes a verified agent; what its certificate says is read only where it was not seen before.
fn seen(
    agents: &Agents,
    verdict: &ClientVerdict,
    client: IpAddr,
) -> Option<Arc<agents::AgentEntry>> {
    let (client, now) = (client.to_canonical(), SystemTime::now());
    if let Some(claimed) = verdict.claimed() {
        // Refused by now: what it asks is told with what it asked before.
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

/// A clock before 1970 was never set: nothing is valid yet then.
fn since_1970(now: SystemTime) -> UnixTime {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    UnixTime::since_unix_epoch(since.unwrap_or_default())
}

impl Conn {
    pub(crate) fn new(
        connection: Connection,
        settings: &ListenerSettings,
        metrics: ListenerMetrics,
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
            notes: Arc::default(),
            warm_place: Cell::new(None),
            rest_asked: Cell::new(false),
            task: RefCell::default(),
            streams: http2.then(|| Streams::new(settings)),
            downstream,
            activity,
            metrics,
            tls,
            forwarded: OnceCell::new(),
            verdict: RefCell::new(Rc::new(verdict)),
            ca_noted_until: Cell::new(0),
            turned: Cell::new(false),
            requests: Cell::new(0),
            closing: Cell::new(false),
            broken_off: Cell::new(None),
            waiting: Cell::new(0),
            response_timer: ResponseTimer::default(),
            upgrade: RefCell::default(),
            _permit: permit,
        };
        (conn, io)
    }

    /// What the records of this connection have in common while its client has this standing.
    pub(crate) fn known_client(&self, verdict: &Rc<ClientVerdict>) -> Arc<KnownClient> {
        let mut known = self.known_client.borrow_mut();
        match &*known {
            Some((same, known)) if Rc::ptr_eq(same, verdict) => Arc::clone(known),
            _ => {
                let anew = Arc::<KnownClient>::default();
                *known = Some((Rc::clone(verdict), Arc::clone(&anew)));
                anew
            }
        }
    }

    /// The server name that the client requested.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.downstream.tls.as_ref()?.server_name.as_deref()
    }

    /// What is told of it, made with the first request that is passed on.
    pub(crate) fn forwarded(&self) -> &OwnLines {
        let downstream = &self.downstream;
        self.forwarded
            .get_or_init(|| forwarded(downstream.client.ip(), downstream.port))
    }

    /// Who the client is by the trust store in force: judged anew where that has changed or something on the chain
    /// has run out.
    pub(crate) fn current_verdict(&self, trust: &TrustStore, now: SystemTime) -> Rc<ClientVerdict> {
        let now = since_1970(now);
        let mut verdict = self.verdict.borrow_mut();
        if !verdict.verification.is_current(trust.generation(), now) {
            let anew = verdict.reverify(trust, now);
            if anew.is_refused() && !verdict.is_refused() {
                self.turned.set(true);
                tracing::info!(
                    client = %self.downstream.client, verdict = %anew.verdict,
                    "a live connection's certificate is no longer accepted"
                );
            }
            *verdict = Rc::new(anew);
        }
        self.note_ca_in_use(trust, &verdict, now);
        Rc::clone(&verdict)
    }

    /// Notes once an hour that the CA of the client's certificate is in use. A connection may stay open for days, and its
    /// certificate is verified again only when the trust changes.
    fn note_ca_in_use(&self, trust: &TrustStore, verdict: &ClientVerdict, now: UnixTime) {
        if now.as_secs() >= self.ca_noted_until.get() {
            trust.note_in_use(&verdict.verification, now);
            self.ca_noted_until.set(now.as_secs() + CA_NOTE_SECONDS);
        }
    }

    /// Takes the word of another trust store, where looking serials up is enough for the same verdict; whether it is.
    pub(crate) fn is_confirmed(&self, trust: &TrustStore, now: SystemTime) -> bool {
        let mut verdict = self.verdict.borrow_mut();
        let confirmed = verdict.confirmed(trust, since_1970(now));
        let is_confirmed = confirmed.is_some();
        if let Some(confirmed) = confirmed {
            *verdict = Rc::new(confirmed);
        }
        is_confirmed
    }

    /// Who the client was when last asked.
    pub(crate) fn last_verdict(&self) -> Rc<ClientVerdict> {
        Rc::clone(&self.verdict.borrow())
    }

    /// Its requests, for whoever is there only where several come at once.
    pub(crate) fn http2_streams(&self) -> &Streams {
        let streams = self.streams.as_ref();
        streams.expect("HTTP/2 is spoken on a connection that has streams")
    }

    /// What it is doing, and since when.
    pub(crate) fn stage(&self) -> (ConnectionStage, Instant) {
        match &self.streams {
            None => self.activity.stage(),
            Some(streams) => streams.stage(),
        }
    }

    /// Since when nothing happened on an idle connection. Where requests are streams, pings are nothing.
    pub(crate) fn idle_since(&self) -> Instant {
        match &self.streams {
            None => self.activity.idle_since(),
            Some(streams) => streams.idle_since(),
        }
    }

    /// Whether it is between requests, and nothing that is read or written is held for it but by its transport.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.stage().0 == ConnectionStage::Idle
            && self.notes.is_between(self.requests.get())
            && self.activity.write_stalled().is_none()
            && !self.closing.get()
            && self.upgrade.borrow().is_none()
    }

    /// It holds no buffers from now on.
    pub(crate) fn left_warm(&self) {
        self.warm_place.set(None);
        self.rest_asked.set(false);
    }

    /// Whether it was asked to rest since it was last looked at, and can.
    pub(crate) fn is_to_rest(&self) -> bool {
        self.rest_asked.take() && self.is_between_requests()
    }

    /// Whether its streams were told that they are the last: it ends by itself.
    pub(crate) fn is_leaving(&self) -> bool {
        self.streams.is_some() && self.closing.get()
    }

    /// Whether asking a new trust store costs next to nothing.
    pub(crate) fn confirms_by_serial(&self, trust: &TrustStore) -> bool {
        trust.confirms_by_serial(&self.verdict.borrow().verification)
    }

    /// Generation of the trust store that was last asked.
    pub(crate) fn trust_generation(&self) -> u64 {
        self.verdict.borrow().verification.generation
    }

    /// Whether the client may not even stay connected: accepted once and no more, or admitted only because a
    /// resumed session was never shown to the verifier.
    pub(crate) fn must_be_closed(&self, verdict: &ClientVerdict) -> bool {
        verdict.is_refused()
            && (self.turned.get() || self.downstream.on_invalid == InvalidCertPolicy::Abort)
    }

    /// Whether the client is refused and stays connected all the same: whatever trust comes, its next request is told.
    pub(crate) fn is_refused_but_open(&self) -> bool {
        let verdict = self.verdict.borrow();
        verdict.is_refused() && !self.must_be_closed(&verdict)
    }

    /// Whether its listener has another policy by now for clients like this one.
    pub(crate) fn policy_has_changed(&self, now: &ListenerSettings) -> bool {
        match self.verdict.borrow().identity() {
            ClientIdentity::Verified(_) => false,
            ClientIdentity::Anonymous => now.client_cert == ClientCertPolicy::Required,
            ClientIdentity::Refused(_) => now.on_invalid != self.downstream.on_invalid,
        }
    }

    /// Whether a refused identity goes upstream as `FAILED` where that is allowed at all.
    pub(crate) fn failed_is_forwarded(&self) -> bool {
        self.downstream.on_invalid == InvalidCertPolicy::Forward && !self.turned.get()
    }
}
