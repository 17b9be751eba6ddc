//! A worker with a listener, compilers and a CA, built without a configuration file.

use std::{
    cell::Cell,
    future::poll_fn,
    io::{self, Write},
    rc::Rc,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use arc_swap::ArcSwap;
use balancing::{
    Pool, Registry,
    settings::{CheckKind, CheckSettings, MemberSettings, PoolSettings},
};
use bytes::Bytes;
use h2::client::SendRequest;
use listener::{Activity, ClientStream, Connection, Downstream, Gate, NegotiatedTls, TlsIo};
use pki::{CsrPolicy, CsrSettings};
use proxy::{
    CaSettings, Generation, LifecyclePhase, MemberRuntime, PoolRules, PoolRuntime, Shared, Worker,
};
use routing::RouteTable;
use serde_json::Value;
use telemetry::{AccessLogSettings, AccessLogs, Format, Metrics, SinkOutput};
use testkit::TestCredential;
use tokio::{
    io::{BufWriter, DuplexStream, duplex},
    task::{JoinHandle, spawn_local},
};

use super::{FILE, holding_stream::HoldingStream, member::TestMember, settle, trusted, wire::Wire};

/// The parts of an estate. Each test changes only the parts that it tests.
pub struct Setup {
    /// How many compilers there are.
    pub compilers: usize,
    /// Limits on members.
    pub upstream: upstream::UpstreamSettings,
    /// Limits on clients.
    pub listener: listener::ListenerSettings,
    /// Limits of an exchange.
    pub exchange: proxy::ProxySettings,
    /// Limits of the CA's routes.
    pub ca: CaSettings,
    /// The routes.
    pub routes: routing::RoutingSettings,
    /// Maximum requests in flight for each compiler.
    pub in_flight_max: Option<u32>,
    /// Bytes that a connection to a client buffers in each direction.
    pub client_buffer: usize,
    /// Whether a connection to a client accepts bytes before a flush passes them on, as a TLS connection does.
    pub buffered: bool,
    /// Whether such a connection holds these bytes until the next write, flush or read that can send them.
    pub sends_with_reads: bool,
    /// The bytes that a connection to a member buffers in each direction.
    pub member_buffer: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            compilers: 1,
            upstream: upstream::UpstreamSettings {
                scheme: upstream::Scheme::Http,
                // All agents here are in `agent_max_except`, and still may run at least this many requests.
                agent_max: 1,
                ..upstream::UpstreamSettings::default()
            },
            listener: listener::ListenerSettings::new("agents", ([127, 0, 0, 1], 8140).into()),
            exchange: proxy::ProxySettings::default(),
            ca: CaSettings::default(),
            routes: routing::RoutingSettings::default(),
            in_flight_max: None,
            client_buffer: 64 << 10,
            buffered: false,
            sends_with_reads: false,
            member_buffer: 64 << 10,
        }
    }
}

/// A running worker with its members, its CA and its logs.
pub struct InMemoryEstate {
    /// The compilers.
    pub compilers: Vec<TestMember>,
    /// The CA.
    pub ca: TestMember,
    /// State that workers share.
    pub shared: Arc<Shared>,
    /// Counts the connections of clients.
    pub gate: Arc<Gate>,
    pub worker: Rc<Worker>,
    sink: AccessLogs,
    lines: Lines,
    buffer: usize,
    buffered: bool,
    sends_with_reads: bool,
    /// How many more times connections opened from now on are polled before they are dropped.
    turns_left: Rc<Cell<u32>>,
}

impl InMemoryEstate {
    /// An estate with the defaults, except for what `change` changes.
    pub fn new(change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup);
        let (registry, metrics) = (Registry::default(), Arc::new(Metrics::default()));
        let addresses: Vec<_> = (0..setup.compilers)
            .map(|index| format!("127.0.0.1:{}", 8141 + index))
            .collect();
        let (compilers, compilers_pool) =
            pool("compilers", &addresses, &setup, (&registry, &metrics));
        let address = ["127.0.0.1:8150".to_owned()];
        let (mut ca, ca_pool) = pool("ca", &address, &setup, (&registry, &metrics));
        let generation = generation(&setup, [compilers_pool, ca_pool]);
        let lines = Lines::default();
        let log = AccessLogSettings {
            format: Format::Json,
            ..AccessLogSettings::default()
        };
        let output = SinkOutput::Lines("page".to_owned(), Box::new(lines.clone()));
        let sink = AccessLogs::start(&log, output, &metrics).expect("a thread");
        let current = Arc::new(ArcSwap::from_pointee(generation));
        let shared = Arc::new(Shared::new(current, metrics, sink.handle()));
        for pool in &*shared.current.load().pools {
            pool.adopt_queue(shared.started);
        }
        let (worker, sweeping) = Worker::new(&shared, None);
        spawn_local(sweeping);
        Self {
            compilers,
            ca: ca.remove(0),
            shared,
            gate: Arc::default(),
            worker,
            sink,
            lines,
            buffer: setup.client_buffer,
            buffered: setup.buffered,
            sends_with_reads: setup.sends_with_reads,
            turns_left: Rc::new(Cell::new(u32::MAX)),
        }
    }

    /// Drops connections opened from now on once they have been polled this many times in total. Returns the number of polls
    /// that are left.
    pub fn drop_after(&mut self, turns: u32) -> Rc<Cell<u32>> {
        self.turns_left = Rc::new(Cell::new(turns));
        Rc::clone(&self.turns_left)
    }

    /// Opens a connection as the agent `web01`.
    pub fn connect(&self) -> Wire {
        self.connect_web01().0
    }

    /// Sends a request as the agent `web01`, which the first compiler reads and does not answer. Returns both connections.
    pub async fn ask_first(&mut self) -> (Wire, Wire) {
        let mut client = self.connect();
        client.get(FILE).await;
        let mut member = self.compilers[0].accept().await;
        member.request().await;
        (client, member)
    }

    /// Opens a connection as the agent `web01`. Also returns the task that serves it.
    pub fn connect_web01(&self) -> (Wire, JoinHandle<()>) {
        self.connect_as(Some(&trusted().web01))
    }

    /// Opens a connection as a client. Also returns the task that serves it.
    pub fn connect_as(&self, client: Option<&TestCredential>) -> (Wire, JoinHandle<()>) {
        self.connect_speaking(client, false)
    }

    /// Opens a connection as a client, with the negotiated protocol. Also returns the task that serves it.
    pub fn connect_speaking(
        &self,
        client: Option<&TestCredential>,
        http2: bool,
    ) -> (Wire, JoinHandle<()>) {
        let (far, serving) = self.open(client, http2);
        (Wire::new(far), serving)
    }

    /// Opens an HTTP/2 connection as the agent `web01`, with stream windows of this size. Also returns the task that drives it.
    pub async fn connect_http2(&self, window: u32) -> (SendRequest<Bytes>, JoinHandle<()>) {
        let (far, _) = self.open(Some(&trusted().web01), true);
        let handshake = h2::client::Builder::new()
            .initial_window_size(window)
            .initial_connection_window_size(window)
            .handshake(far)
            .await;
        let (requests, connection) = handshake.expect("settings");
        let driven = spawn_local(async move {
            // The streams of the connection report how it ended.
            let _ = connection.await;
        });
        (requests.ready().await.expect("an open connection"), driven)
    }

    /// Opens a connection. Returns the client's end, and the task that serves the connection.
    pub fn open(
        &self,
        client: Option<&TestCredential>,
        http2: bool,
    ) -> (DuplexStream, JoinHandle<()>) {
        let (near, far) = duplex(self.buffer);
        let activity = Arc::new(Activity::new());
        let connection = Connection {
            io: TlsIo::in_memory(self.transport(near), Arc::clone(&activity)),
            activity,
            downstream: Downstream {
                listener: Arc::from("agents"),
                on_invalid: listener::InvalidCertPolicy::default(),
                client: ([192, 0, 2, 1], 40000).into(),
                peer: None,
                port: 8140,
                tls: Some(NegotiatedTls {
                    version: "TLSv1.3",
                    cipher: "TLS13_AES_128_GCM_SHA256",
                    server_name: None,
                    resumed: false,
                    took: Duration::ZERO,
                    http2,
                }),
            },
            verdict: trusted().standing(client),
            permit: self.gate.try_enter(u32::MAX).expect("a place"),
        };
        let left = Rc::clone(&self.turns_left);
        let mut serving = Box::pin(Rc::clone(&self.worker).serve(connection));
        let serving = spawn_local(poll_fn(move |cx| match left.get() {
            0 => Poll::Ready(()),
            turns => {
                left.set(turns - 1);
                let ended = serving.as_mut().poll(cx);
                if left.get() == 0 {
                    // The next poll drops the connection.
                    cx.waker().wake_by_ref();
                }
                ended
            }
        }));
        (far, serving)
    }

    fn transport(&self, near: DuplexStream) -> Box<dyn ClientStream> {
        match (self.buffered, self.sends_with_reads) {
            (true, _) => Box::new(BufWriter::new(near)),
            (false, true) => Box::new(HoldingStream::new(near)),
            (false, false) => Box::new(near),
        }
    }

    /// Signals a life-cycle stage to all connections.
    pub fn enter(&self, phase: LifecyclePhase) {
        self.shared
            .signals
            .send_modify(|signals| signals.phase = phase);
    }

    /// Applies a changed configuration, and signals it to all connections.
    pub fn apply(&self, change: impl FnOnce(&mut Generation)) {
        let mut next = (*self.shared.current.load_full()).clone();
        next.number += 1;
        change(&mut next);
        let trust_generation = next.trust.generation();
        self.shared.current.store(Arc::new(next));
        self.shared
            .signals
            .send_modify(|signals| signals.trust_generation = trust_generation);
    }

    /// Asserts that no exchange still holds anything: no member has a request in flight.
    pub async fn assert_at_rest(&self) {
        settle().await;
        for member in self.compilers.iter().chain([&self.ca]) {
            assert_eq!(member.in_flight(), 0, "requests in flight");
        }
    }

    /// All access records, in the order in which their exchanges ended.
    pub async fn records(self) -> Vec<Value> {
        settle().await;
        let closed = self.sink.close(Duration::from_secs(10));
        closed.expect("records are written to memory");
        let bytes = self.lines.0.lock().expect("no writer panics").clone();
        let text = String::from_utf8(bytes).expect("JSON is UTF-8");
        let parsed = text.lines().map(serde_json::from_str);
        parsed
            .map(|record| record.expect("a JSON object"))
            .collect()
    }

    /// Returns the access record, of which there must be exactly one.
    pub async fn record(self) -> Value {
        let mut records = self.records().await;
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }
}

fn pool(
    name: &str,
    addresses: &[String],
    setup: &Setup,
    (registry, metrics): (&Registry, &Metrics),
) -> (Vec<TestMember>, PoolRuntime) {
    let settings = PoolSettings {
        members: addresses
            .iter()
            .map(|address| MemberSettings {
                in_flight_max: setup.in_flight_max,
                ..MemberSettings::new(address)
            })
            .collect(),
        algorithm: balancing::settings::Algorithm::RoundRobin,
        check: CheckSettings {
            kind: CheckKind::None,
            ..CheckSettings::default()
        },
        ..PoolSettings::new(name)
    };
    let pool = Pool::new(&settings, setup.upstream.connections_max, registry);
    pool.adopt();
    let limits = (setup.upstream, setup.member_buffer);
    let (members, runtimes) = addresses
        .iter()
        .map(|address| {
            let (member, connector) = TestMember::new((name, address), limits, registry);
            let counters = metrics.member(name, address);
            (member, MemberRuntime::new(connector, counters, None))
        })
        .unzip();
    let runtime = PoolRuntime {
        presented: None,
        pool,
        admission: Arc::default(),
        members: runtimes,
        rules: PoolRules::default(),
        // The few agents here send many requests at once. `agent_max` is covered by the end-to-end tests.
        agent_max_except: [identity::CertnamePattern::parse("*").expect("a pattern")].into(),
        settings: setup.upstream,
        metrics: metrics.pool(name),
    };
    (members, runtime)
}

fn generation(setup: &Setup, pools: [PoolRuntime; 2]) -> Generation {
    let names = ["compilers".into(), "ca".into()];
    let routes = RouteTable::new(&setup.routes, &names).expect("routes");
    let listener = trusted().listener(setup.listener.clone());
    Generation {
        number: 1,
        routes: Arc::new(routes),
        rules: Arc::default(),
        pools: Arc::new(pools.map(Arc::new)),
        status_pool: Some(0),
        ca_pool: Some(1),
        own_names: identity::OwnNames::default(),
        trust: Arc::clone(&trusted().store),
        listeners: [(Arc::from("agents"), Arc::new(listener))]
            .into_iter()
            .collect(),
        settings: setup.exchange,
        csr: Arc::new(CsrPolicy::new(CsrSettings::default())),
        ca: setup.ca,
        revoked_close_rate: 100,
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .expect("no reader panics")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
