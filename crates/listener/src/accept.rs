//! The accept loop of one worker for one listener, and the handshake of each connection.

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use identity::Certname;
use pki::{ListenerCredentials, Peer, ServerTls, TrustStore};
use rustls::pki_types::UnixTime;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    activity::{Activity, TlsIo},
    certificate_rejections::CertificateRejections,
    connection::{
        Accepted, ClientVerdict, Connection, Downstream, NegotiatedTls, Origin, RawConnection,
    },
    gate::{ClientSlots, Gate, Permit},
    handshake_failure::HandshakeFailure,
    handshakes::Handshakes,
    hello::Hello,
    per_address::{AddressGate, AddressPermit},
    plain_http::{self, PlainHttp},
    preface::{self, NoBytes},
    queue::AcceptQueue,
    redirect::{self, Redirected},
    settings::{ClientCertPolicy, ListenerSettings},
    tls_handshake::TlsHandshake,
    tls_stream::TlsStream,
    waiting::{Displaced, WaitingClient, WaitingHandshakes, WaitingLimits},
};

/// First and maximum wait after the system refused to accept a connection, usually because descriptors ran out.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// The active configuration of a listener. It is loaded for each connection.
#[derive(Clone, Debug)]
pub struct ActiveListener {
    /// Name, limits and policies.
    pub settings: ListenerSettings,
    /// How TLS is terminated. `None` if the listener terminates no TLS, because it passes connections through or redirects
    /// every request.
    pub tls: Option<ListenerTls>,
}

/// How a listener terminates TLS.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// The TLS configuration, including the client verifier.
    pub config: Arc<ServerTls>,
    /// The certificates of the configuration. They decide which server names are known.
    pub credentials: Arc<ListenerCredentials>,
}

/// The interface that a listener needs from the layers above.
pub trait ListenerContext: 'static {
    /// The active configuration and trust store. `None` if the listener was removed.
    fn current(&self, listener: &str) -> Option<(Arc<ActiveListener>, Arc<TrustStore>)>;
    /// Called when a limit was reached: the client waits, or a connection was closed.
    fn limit_reached(&self, listener: &str, limit: ReachedLimit);
    /// Called when the system refused to accept a connection. The accept loop tries again.
    fn accept_failed(&self, listener: &str, error: &io::Error);
    /// A new request id, for the response and its access record.
    fn request_id(&self) -> String;
    /// Called when a handshake succeeded or failed.
    fn handshake_ended(&self, listener: &str, ended: HandshakeEnd<'_>);
    /// Called when a listener that redirects has answered a request in plain HTTP.
    fn redirected(&self, listener: &str, origin: Origin, redirected: &Redirected);
}

/// A limit of a listener that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// `connections_max`.
    Connections,
    /// `connections_max_per_address`.
    ConnectionsPerAddress,
    /// `handshakes_max`.
    Handshakes,
    /// `handshakes_max_per_address`.
    HandshakesPerAddress,
    /// The descriptors of the process.
    Descriptors,
}

/// The result of a handshake.
#[derive(Debug)]
pub struct HandshakeEnd<'a> {
    /// Where the connection comes from, as far as the proxy knows.
    pub origin: Origin,
    /// How long the handshake took, including the wait for its turn.
    pub took: Duration,
    /// `None`: the handshake succeeded.
    pub failure: Option<FailedHandshake<'a>>,
}

/// Why a handshake failed.
#[derive(Debug)]
pub struct FailedHandshake<'a> {
    /// The kind of failure.
    pub reason: HandshakeFailure,
    /// The message of the error.
    pub cause: &'a str,
    /// The certname in the client's certificate, if the proxy refused that certificate. The certname is not verified.
    pub claimed: Option<Certname>,
    /// The `X-Request-Id` of the response, if the client sent plain HTTP.
    pub request_id: Option<&'a str>,
}

/// The counts of one listener, for all workers. They outlive configurations.
#[derive(Debug)]
pub struct Listener {
    /// Name in records and metrics.
    pub name: Arc<str>,
    /// Open connections, including those whose handshake is not complete.
    pub connections: Arc<Gate>,
    /// Handshakes that wait for their client.
    pub waiting: WaitingHandshakes,
    /// Slots shared with the other listeners.
    pub clients: Arc<ClientSlots>,
    /// Open connections of each client address.
    pub address_connections: Arc<AddressGate>,
    /// Clients that rejected a certificate of this listener.
    pub certificate_rejections: CertificateRejections,
}

impl Listener {
    /// A listener without connections.
    pub fn new(name: &str, clients: Arc<ClientSlots>) -> Self {
        Self {
            name: Arc::from(name),
            connections: Arc::default(),
            clients,
            waiting: WaitingHandshakes::default(),
            address_connections: Arc::default(),
            certificate_rejections: CertificateRejections::default(),
        }
    }
}

/// Accepts connections until `closed`, then accepts those in the queue and closes the socket. A client that has connected is
/// therefore not reset. Each connection runs as a task of this thread and ends in `serve`.
pub async fn accept_loop<L, S, F>(
    listener: Arc<Listener>,
    socket: AcceptQueue,
    (context, handshakes): (Rc<L>, Handshakes),
    serve: S,
    closed: impl Future<Output = ()>,
) where
    L: ListenerContext,
    S: Fn(Accepted) -> F + Clone + 'static,
    F: Future<Output = ()> + 'static,
{
    let port = socket.port();
    let acceptor = Rc::new(Acceptor {
        listener: Arc::clone(&listener),
        context: Rc::clone(&context),
        handshakes,
    });
    let start = |stream, client, permit| {
        let (acceptor, serve) = (Rc::clone(&acceptor), serve.clone());
        // Boxed, because starting and ending a task would otherwise move kilobytes several times.
        tokio::task::spawn_local(Box::pin(async move {
            let from = (client, port);
            // Boxed, so that its memory is freed after the handshake: the connection that remains needs a tenth of it.
            let accepted = Box::pin(handshake(&acceptor, stream, from, permit));
            if let Some(accepted) = accepted.await {
                serve(accepted).await;
            }
        }));
    };
    let mut closed = pin!(closed);
    let mut back_off = BACK_OFF.0;
    loop {
        let accepted = tokio::select! {
            biased;
            () = closed.as_mut() => break,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                back_off = BACK_OFF.0;
                // The accept loop must not wait for the connections of one address.
                let Ok(address) = permit_of_address(&listener, &*context, client.ip()) else {
                    continue;
                };
                // A thread takes a slot only for a connection that it has accepted. Otherwise an idle thread would hold
                // a slot that other threads need.
                tokio::select! {
                    biased;
                    permit = connection_permit(&listener, &*context) => match permit {
                        Some(permit) => start(stream, client, permit.at(address)),
                        None => break,
                    },
                    () = closed.as_mut() => {
                        if let Some(permit) = listener.connections.try_enter(u32::MAX) {
                            start(stream, client, permit);
                        }
                        break;
                    }
                }
            }
            Err(error) if aborted(&error) => {}
            Err(error) => {
                context.accept_failed(&listener.name, &error);
                sleep(back_off).await;
                back_off = (back_off * 2).min(BACK_OFF.1);
            }
        }
    }
    // The system is asked directly: tokio does not know of connections that have just arrived, and yields after about a
    // hundred.
    let Ok(queue) = socket.into_socket() else {
        return;
    };
    while let Some(permit) = listener.connections.try_enter(u32::MAX) {
        match queue.accept() {
            Ok((stream, client)) => start(stream, client, permit),
            Err(error) if aborted(&error) => {}
            Err(_) => break,
        }
    }
}

/// A slot among the connections of this address. `None` if the number of its connections has no limit.
fn permit_of_address<L: ListenerContext>(
    listener: &Listener,
    context: &L,
    client: IpAddr,
) -> Result<Option<AddressPermit>, TooManyConnections> {
    match context.current(&listener.name) {
        // With `proxy_protocol`, this is the address of a load balancer. Its PROXY header names the client later.
        Some((current, _)) if current.settings.proxy_protocol.is_none() => {
            permit_of_client(listener, context, &current.settings, client)
        }
        _ => Ok(None),
    }
}

fn permit_of_client<L: ListenerContext>(
    listener: &Listener,
    context: &L,
    settings: &ListenerSettings,
    client: IpAddr,
) -> Result<Option<AddressPermit>, TooManyConnections> {
    if !settings.limits_address(client) {
        return Ok(None);
    }
    let gate = &listener.address_connections;
    if let Some(permit) = gate.try_enter(client, settings.connections_max_per_address) {
        return Ok(Some(permit));
    }
    context.limit_reached(&listener.name, ReachedLimit::ConnectionsPerAddress);
    // Either this connection or another one from its address must be closed. A client that uses its connection at once is more
    // useful than one that leaves its handshake waiting.
    if listener.waiting.close_longest_of(client) {
        Ok(gate.try_enter(client, u32::MAX))
    } else {
        Err(TooManyConnections)
    }
}

/// The address has reached its limit of connections, and none of its handshakes waits for the client.
struct TooManyConnections;

/// A slot among the listener's connections and among all clients. `None` if the listener was removed.
async fn connection_permit<L: ListenerContext>(listener: &Listener, context: &L) -> Option<Permit> {
    let limit = || {
        context
            .current(&listener.name)
            .map_or(u32::MAX, |(current, _)| current.settings.connections_max)
    };
    let reached = || context.limit_reached(&listener.name, ReachedLimit::Connections);
    let permit = slot(listener, &listener.connections, limit, reached).await;
    let clients = &listener.clients;
    let reached = || context.limit_reached(&listener.name, ReachedLimit::Descriptors);
    let of_clients = slot(listener, clients.gate(), || clients.max(), reached).await;
    let permit = permit.among_clients(of_clients);
    context.current(&listener.name).map(|_| permit)
}

/// A slot of a gate. While the gate is full, handshakes of the listener that wait for their client are closed.
async fn slot(
    listener: &Listener,
    gate: &Arc<Gate>,
    limit: impl Fn() -> u32,
    reached: impl FnOnce(),
) -> Permit {
    if let Some(permit) = gate.try_enter(limit()) {
        return permit;
    }
    reached();
    let mut entered = pin!(gate.enter(limit));
    loop {
        let next = listener.waiting.close_longest(Instant::now());
        tokio::select! {
            biased;
            permit = entered.as_mut() => return permit,
            () = sleep_until(next) => {}
        }
    }
}

struct Acceptor<L> {
    listener: Arc<Listener>,
    context: Rc<L>,
    handshakes: Handshakes,
}

impl<L: ListenerContext> Acceptor<L> {
    /// Runs a step that waits only for this client.
    async fn await_client<T>(
        &self,
        settings: &ListenerSettings,
        client: IpAddr,
        mut step: Pin<&mut impl Future<Output = io::Result<T>>>,
    ) -> io::Result<T> {
        // Often the bytes have already arrived.
        match poll_fn(|cx| Poll::Ready(step.as_mut().poll(cx))).await {
            Poll::Ready(done) => done,
            Poll::Pending => self.wait_for_client(settings, client, step).await,
        }
    }

    /// Continues a step that waits for this client. Meanwhile the handshake counts as waiting, and a limit may close it.
    async fn wait_for_client<T>(
        &self,
        settings: &ListenerSettings,
        client: IpAddr,
        step: Pin<&mut impl Future<Output = io::Result<T>>>,
    ) -> io::Result<T> {
        let waiting = self.begin_to_wait(settings, client);
        tokio::select! {
            biased;
            () = waiting.closed() => Err(io::Error::other(Displaced)),
            done = step => done,
        }
    }

    /// Called when a handshake begins to wait for its client.
    fn begin_to_wait(&self, settings: &ListenerSettings, client: IpAddr) -> WaitingClient<'_> {
        let limits = WaitingLimits {
            max: settings.handshakes_max,
            max_per_address: settings
                .limits_address(client)
                .then_some(settings.handshakes_max_per_address),
        };
        let (waiting, made_room) = self.listener.waiting.enter(client, limits, Instant::now());
        for (was_made, limit) in [
            (made_room.at_max, ReachedLimit::Handshakes),
            (
                made_room.at_max_per_address,
                ReachedLimit::HandshakesPerAddress,
            ),
        ] {
            if was_made {
                self.context.limit_reached(&self.listener.name, limit);
            }
        }
        waiting
    }
}

/// What follows after the PROXY header, the server name and TLS.
enum Negotiated {
    Tls(Box<TlsStream>, Option<String>),
    Passthrough(Passthrough),
    /// The request was answered with a redirect, and the connection closed.
    Redirected(Box<Redirected>),
    /// The connection was closed without a record, because its address has reached its limit of connections.
    Closed,
}

/// A connection to pass through, with the bytes read from it.
struct Passthrough {
    stream: TcpStream,
    read: Vec<u8>,
    server_name: Option<Box<str>>,
    pool: Box<str>,
}

/// Turns a socket into a connection with a known client. Reports a failure to `context`.
async fn handshake<L: ListenerContext>(
    acceptor: &Acceptor<L>,
    stream: TcpStream,
    (peer, port): (SocketAddr, u16),
    permit: Permit,
) -> Option<Accepted> {
    let (listener, context) = (&*acceptor.listener, &*acceptor.context);
    let began = Instant::now();
    let (current, _) = context.current(&listener.name)?;
    let mut known = KnownClient {
        origin: Origin {
            client: peer,
            peer: None,
        },
        permit,
        claimed: None,
    };
    let steps = negotiate(acceptor, &current, stream, &mut known);
    let negotiated = timeout(current.settings.handshake_timeout, steps).await;
    let origin = known.origin;
    let ended = |failure: Option<FailedHandshake<'_>>| {
        context.handshake_ended(
            &listener.name,
            HandshakeEnd {
                origin,
                took: began.elapsed(),
                failure,
            },
        );
    };
    match negotiated {
        Ok(Ok(Negotiated::Tls(stream, server_name))) => {
            let tls = NegotiatedTls::of(stream.common(), server_name, began.elapsed());
            // The certificate is verified with the active trust store: the handshake may have begun with an older one, and the
            // verifier does not see resumed sessions.
            let (current, trust) = context.current(&listener.name)?;
            let presented = match current.settings.client_cert {
                // A reload may have changed the policy during the handshake.
                ClientCertPolicy::None => &[],
                _ => stream.common().peer_certificates().unwrap_or_default(),
            };
            let verdict = ClientVerdict::verify(&trust, presented, UnixTime::now());
            ended(None);
            let activity = Arc::new(Activity::new());
            Some(Accepted::Http(Box::new(Connection {
                io: TlsIo::new(stream, Arc::clone(&activity)),
                activity,
                downstream: Downstream {
                    listener: Arc::clone(&listener.name),
                    on_invalid: current.settings.on_invalid,
                    client: origin.client,
                    peer: origin.peer,
                    port,
                    tls: Some(tls),
                },
                verdict,
                permit: known.permit,
            })))
        }
        Ok(Ok(Negotiated::Passthrough(passthrough))) => {
            Some(Accepted::Passthrough(Box::new(RawConnection {
                stream: passthrough.stream,
                read: passthrough.read,
                listener: Arc::clone(&listener.name),
                origin,
                server_name: passthrough.server_name,
                pool: passthrough.pool,
                permit: known.permit,
            })))
        }
        Ok(Ok(Negotiated::Redirected(redirected))) => {
            context.redirected(&listener.name, origin, &redirected);
            None
        }
        Ok(Ok(Negotiated::Closed)) => None,
        Ok(Err(error)) => {
            let client = origin.client.ip().to_canonical();
            listener.certificate_rejections.note(client, &error);
            let answered = error.get_ref().and_then(|e| e.downcast_ref::<PlainHttp>());
            ended(Some(FailedHandshake {
                reason: HandshakeFailure::of(&error),
                cause: &pki::cause(&error, Peer::Client, |_| None),
                claimed: known.claimed,
                request_id: answered.map(|answered| &*answered.request_id),
            }));
            None
        }
        Err(_) => {
            ended(Some(FailedHandshake {
                reason: HandshakeFailure::Timeout,
                cause: "the client did not finish its handshake in time",
                claimed: None,
                request_id: None,
            }));
            None
        }
    }
}

/// What is known about a client during and after its handshake.
struct KnownClient {
    origin: Origin,
    permit: Permit,
    /// The unverified certname in the certificate for which the handshake was refused.
    claimed: Option<Certname>,
}

/// Reads the PROXY header, reads the server name and terminates TLS, as far as the listener is configured to do so. A PROXY
/// header completes the origin and the permit in `known`.
async fn negotiate<L: ListenerContext>(
    acceptor: &Acceptor<L>,
    current: &ActiveListener,
    mut stream: TcpStream,
    known: &mut KnownClient,
) -> io::Result<Negotiated> {
    let (listener, context) = (&*acceptor.listener, &*acceptor.context);
    let settings = &current.settings;
    if let Some(from) = &settings.proxy_protocol {
        let peer = known.origin.client;
        // Boxed, because it would enlarge the task of every connection, and most connections do not use it.
        let mut header = Box::pin(preface::read(&mut stream, peer, from));
        known.origin =
            Box::pin(acceptor.await_client(settings, peer.ip(), header.as_mut())).await?;
        match permit_of_client(listener, context, settings, known.origin.client.ip()) {
            Ok(address) => known.permit.set_address(address),
            Err(TooManyConnections) => return Ok(Negotiated::Closed),
        }
    }
    let client = known.origin.client.ip();
    if current.tls.is_none() && !settings.refuses_other_names {
        if let Some(base) = &settings.redirect_to_https {
            let mut answer = Box::pin(redirect::answer(
                stream,
                (base, settings.head_bytes_max),
                context.request_id(),
            ));
            let redirected = acceptor.await_client(settings, client, answer.as_mut());
            return Ok(Negotiated::Redirected(Box::new(
                Box::pin(redirected).await?,
            )));
        }
        // The proxy does not wait for the client's first byte, because in some protocols the member sends first.
        let pool = settings.passthrough.as_deref().unwrap_or_default();
        return Ok(Negotiated::Passthrough(Passthrough {
            stream,
            read: Vec::new(),
            server_name: None,
            pool: pool.into(),
        }));
    }
    let hello = pin!(hello(context, stream));
    let mut hello = acceptor.await_client(settings, client, hello).await?;
    if !settings.sni_passthrough.is_empty() {
        let server_name = hello.server_name();
        let pool = server_name
            .as_deref()
            .and_then(|name| settings.passthrough_of(name));
        if let Some(pool) = pool {
            let (stream, read) = hello.into_raw();
            return Ok(Negotiated::Passthrough(Passthrough {
                stream,
                read,
                pool: pool.into(),
                server_name: server_name.map(Into::into),
            }));
        }
    }
    let Some(tls) = &current.tls else {
        return Err(Box::pin(hello.refuse_name()).await);
    };
    if settings.sni_strict {
        hello = Box::pin(hello.require_known(&tls.credentials)).await?;
    }
    let server_name = hello.server_name();
    let handshake = TlsHandshake {
        executor: acceptor.handshakes.executor(),
        config: tls.config.for_connection(),
        client,
        may_sign_with_rsa: tls.credentials.have_rsa(),
    };
    let wait = || acceptor.begin_to_wait(settings, client);
    let completed = handshake.complete(hello, wait, &mut known.claimed).await;
    Ok(Negotiated::Tls(Box::new(completed?), server_name))
}

/// Reads the ClientHello. A client that sends plain HTTP gets a response in plain HTTP.
async fn hello<L: ListenerContext>(context: &L, stream: TcpStream) -> io::Result<Hello> {
    // Agents probe a port before their first request. Load balancers probe it and then reset the connection. Such a connection
    // does not count as a handshake.
    let mut first = [0; plain_http::FIRST_BYTES];
    let first = match stream.peek(&mut first).await {
        Ok(length @ 1..) => &first[..length],
        _ => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, NoBytes)),
    };
    if plain_http::is_http(first) {
        let request_id = context.request_id();
        Box::pin(plain_http::answer(stream, &request_id)).await;
        return Err(io::Error::other(PlainHttp { request_id }));
    }
    Hello::read(stream).await
}

/// Whether the peer closed the connection while it was in the queue.
fn aborted(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::ready};

    use tokio::task::{LocalSet, yield_now};

    use super::*;
    use crate::ListeningSocket;

    /// Counts the accepted connections and drops them.
    #[derive(Default)]
    struct Counting(Cell<usize>);

    impl ListenerContext for Counting {
        fn current(&self, _: &str) -> Option<(Arc<ActiveListener>, Arc<TrustStore>)> {
            self.0.set(self.0.get() + 1);
            None
        }

        fn limit_reached(&self, _: &str, _: ReachedLimit) {}

        fn accept_failed(&self, _: &str, _: &io::Error) {}

        fn request_id(&self) -> String {
            String::new()
        }

        fn handshake_ended(&self, _: &str, _: HandshakeEnd<'_>) {}

        fn redirected(&self, _: &str, _: Origin, _: &Redirected) {}
    }

    #[test]
    fn connections_in_the_queue_of_a_closing_listener_are_accepted() {
        const WAITING: usize = 300;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let sockets = crate::bind(&([127, 0, 0, 1], 0).into(), 1, false);
            let socket = sockets.expect("a port").pop().expect("one socket");
            let address = socket.local_addr().expect("its address");
            let clients: Vec<_> = (0..WAITING)
                .map(|_| std::net::TcpStream::connect(address).expect("a slot in the queue"))
                .collect();
            let context = Rc::new(Counting::default());
            let listener = Arc::new(Listener::new("agents", Arc::default()));
            let socket = AcceptQueue::new(ListeningSocket::Tcp(socket));
            let socket = socket.expect("a socket of this runtime");
            let serve = |_: Accepted| ready(());
            let handshakes = Handshakes::new(None).0;
            let worker = (Rc::clone(&context), handshakes);
            accept_loop(listener, socket, worker, serve, ready(())).await;
            while Rc::strong_count(&context) > 1 {
                yield_now().await;
            }
            assert_eq!(context.0.get(), clients.len());
        });
    }
}
