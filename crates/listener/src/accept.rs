//! The accept loop of one worker for one listener, and the handshake of each connection.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use identity::Certname;
use pki::{ListenerCredentials, Peer, ServerTls, TrustStore};
use rustls::pki_types::UnixTime;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    activity::{Activity, TlsIo},
    certificate_rejections::CertificateRejections,
    connection::{
        Accepted, ClientVerdict, Connection, Downstream, NegotiatedTls, Origin, RawConnection,
    },
    gate::{Gate, Permit},
    handshake_failure::{HandshakeFailure, NoBytes},
    per_address::{AddressGate, AddressPermit},
    plain_http::{self, PlainHttp},
    preface,
    queue::AcceptQueue,
    redirect::{self, Redirected},
    settings::ListenerSettings,
    sni::{self, Hello},
};

/// First and longest wait after the system refused to hand over a connection (out of descriptors, mostly).
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// What a listener obeys at present; asked at each connection.
#[derive(Clone, Debug)]
pub struct ActiveListener {
    /// Name, limits and policies.
    pub settings: ListenerSettings,
    /// How TLS is terminated; none where every connection is passed through or redirected.
    pub tls: Option<ListenerTls>,
}

/// How a listener terminates TLS.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// TLS, with the client verifier in it.
    pub config: Arc<ServerTls>,
    /// The certificates in it: what says which names are known.
    pub credentials: Arc<ListenerCredentials>,
}

/// What a listener needs from the layers above.
pub trait ListenerContext: 'static {
    /// The configuration in force; `None`: the listener was removed.
    fn current(&self, listener: &str) -> Option<(Arc<ActiveListener>, Arc<TrustStore>)>;
    /// A limit was reached: a client waits, or was closed.
    fn limit_reached(&self, listener: &str, limit: ReachedLimit);
    /// A new name for a request, to be shown in its answer and in its access record.
    fn request_id(&self) -> String;
    /// A handshake ended: well, or with a reason and what the system said.
    fn handshake_ended(&self, listener: &str, ended: HandshakeEnd<'_>);
    /// A request in plain HTTP was answered by a listener that redirects.
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
}

/// How a handshake ended.
#[derive(Debug)]
pub struct HandshakeEnd<'a> {
    /// Where the connection comes from, as far as it was read.
    pub origin: Origin,
    /// How long it took, waiting for a place included.
    pub took: Duration,
    /// `None`: the handshake succeeded.
    pub failure: Option<FailedHandshake<'a>>,
}

/// Why a handshake failed.
#[derive(Debug)]
pub struct FailedHandshake<'a> {
    /// The kind of failure.
    pub reason: HandshakeFailure,
    /// The text of the error.
    pub cause: &'a str,
    /// The name in the client's certificate, where the verdict on it ended the handshake. Nothing proves it.
    pub claimed: Option<Certname>,
    /// What the `X-Request-Id` of an answer in plain HTTP says.
    pub request_id: Option<&'a str>,
}

/// The counts of one listener over all workers; they outlive configurations.
#[derive(Debug)]
pub struct Listener {
    /// Name in records and metrics.
    pub name: Arc<str>,
    /// Connections open, handshakes included.
    pub connections: Arc<Gate>,
    /// Handshakes in flight.
    pub handshakes: Arc<Gate>,
    /// Connections open of each address.
    pub address_connections: Arc<AddressGate>,
    /// Handshakes in flight of each address.
    pub address_handshakes: Arc<AddressGate>,
    /// Clients that did not believe us.
    pub certificate_rejections: CertificateRejections,
}

impl Listener {
    /// A listener without connections.
    pub fn new(name: &str) -> Self {
        Self {
            name: Arc::from(name),
            connections: Arc::default(),
            handshakes: Arc::default(),
            address_connections: Arc::default(),
            address_handshakes: Arc::default(),
            certificate_rejections: CertificateRejections::default(),
        }
    }
}

/// Accepts until `closed`, then takes what waits in the queue and closes the socket: nobody who has connected is
/// turned away by a reset. Each connection runs as a task of this thread and ends in `serve`.
pub async fn accept_loop<L, S, F>(
    listener: Arc<Listener>,
    socket: AcceptQueue,
    live: Rc<L>,
    serve: S,
    closed: impl Future<Output = ()>,
) where
    L: ListenerContext,
    S: Fn(Accepted) -> F + Clone + 'static,
    F: Future<Output = ()> + 'static,
{
    let port = socket.port();
    let start = |stream, client, permit| {
        let (listener, live, serve) = (Arc::clone(&listener), Rc::clone(&live), serve.clone());
        // Boxed: kilobytes that starting and ending a task would move several times.
        tokio::task::spawn_local(Box::pin(async move {
            let from = (client, port);
            if let Some(accepted) = handshake(&listener, &*live, stream, from, permit).await {
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
                // A connection too many is closed: the accept loop must not wait for one address.
                let Ok(address) = place_of_address(&listener, &*live, client.ip()) else {
                    continue;
                };
                // Only now: a place held by a thread to which nobody connects would be lost to all the others.
                tokio::select! {
                    biased;
                    permit = place(&listener, &*live) => match permit {
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
                tracing::warn!(listener = %listener.name, %error, "accept failed");
                sleep(back_off).await;
                back_off = (back_off * 2).min(BACK_OFF.1);
            }
        }
    }
    // Asked of the system itself: tokio has not heard of who came just now, and wants a pause after a hundred or so.
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

/// A place among the connections of its address, if that has a limit.
fn place_of_address<L: ListenerContext>(
    listener: &Listener,
    live: &L,
    client: IpAddr,
) -> Result<Option<AddressPermit>, TooMany> {
    match live.current(&listener.name) {
        // The address of a load balancer: that of the client follows.
        Some((current, _)) if current.settings.proxy_protocol.is_none() => {
            place_of_client(listener, live, &current.settings, client)
        }
        _ => Ok(None),
    }
}

fn place_of_client<L: ListenerContext>(
    listener: &Listener,
    live: &L,
    settings: &ListenerSettings,
    client: IpAddr,
) -> Result<Option<AddressPermit>, TooMany> {
    if !settings.limits_address(client) {
        return Ok(None);
    }
    let max = settings.connections_max_per_address;
    match listener.address_connections.try_enter(client, max) {
        Some(permit) => Ok(Some(permit)),
        None => {
            live.limit_reached(&listener.name, ReachedLimit::ConnectionsPerAddress);
            Err(TooMany)
        }
    }
}

/// An address has as many connections as it may.
struct TooMany;

/// A place among the handshakes of its address, if that has a limit; waits behind its own.
async fn handshake_of_address<L: ListenerContext>(
    listener: &Listener,
    live: &L,
    current: &ActiveListener,
    client: IpAddr,
) -> Option<AddressPermit> {
    if !current.settings.limits_address(client) {
        return None;
    }
    let gate = &listener.address_handshakes;
    let max = current.settings.handshakes_max_per_address;
    if let Some(permit) = gate.try_enter(client, max) {
        return Some(permit);
    }
    live.limit_reached(&listener.name, ReachedLimit::HandshakesPerAddress);
    Some(gate.enter(client, || max).await)
}

/// A place among the listener's connections; `None`: the listener was removed.
async fn place<L: ListenerContext>(listener: &Listener, live: &L) -> Option<Permit> {
    let limit = || {
        live.current(&listener.name)
            .map_or(u32::MAX, |(current, _)| current.settings.connections_max)
    };
    if let Some(permit) = listener.connections.try_enter(limit()) {
        return Some(permit);
    }
    live.limit_reached(&listener.name, ReachedLimit::Connections);
    let permit = listener.connections.enter(limit).await;
    live.current(&listener.name).map(|_| permit)
}

/// What a connection is for, once it has passed every stage: PROXY header, server name, TLS.
enum Negotiated {
    Tls(Box<TlsStream<TcpStream>>),
    Passthrough(Passthrough),
    /// It was answered and closed.
    Redirected(Box<Redirected>),
    /// It was closed without a record: its address has as many connections as it may.
    Closed,
}

/// A connection that is passed through, and what was read of it.
struct Passthrough {
    stream: TcpStream,
    read: Vec<u8>,
    server_name: Option<Box<str>>,
    pool: Box<str>,
}

/// From a socket to a connection whose client is known; a failure is told to `live`.
async fn handshake<L: ListenerContext>(
    listener: &Listener,
    live: &L,
    stream: TcpStream,
    (peer, port): (SocketAddr, u16),
    mut permit: Permit,
) -> Option<Accepted> {
    let began = Instant::now();
    let (current, _) = live.current(&listener.name)?;
    let mut origin = Origin {
        client: peer,
        peer: None,
    };
    let agreed = timeout(
        current.settings.handshake_timeout,
        agree(listener, live, &current, stream, (&mut origin, &mut permit)),
    )
    .await;
    let ended = |failure: Option<FailedHandshake<'_>>| {
        live.handshake_ended(
            &listener.name,
            HandshakeEnd {
                origin,
                took: began.elapsed(),
                failure,
            },
        );
    };
    match agreed {
        Ok(Ok(Negotiated::Tls(stream))) => {
            let tls = NegotiatedTls::of(stream.get_ref().1, began.elapsed());
            // Judged by what is in force now: the handshake may have begun under an older trust store, and a
            // resumed session was never shown to the verifier.
            let (current, trust) = live.current(&listener.name)?;
            let presented = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let verdict = ClientVerdict::verify(&trust, presented, UnixTime::now());
            ended(None);
            let activity = Arc::new(Activity::new());
            Some(Accepted::Http(Connection {
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
                permit,
            }))
        }
        Ok(Ok(Negotiated::Passthrough(passthrough))) => {
            let Passthrough {
                stream,
                read,
                server_name,
                pool,
            } = passthrough;
            Some(Accepted::Passthrough(Box::new(RawConnection {
                stream,
                read,
                listener: Arc::clone(&listener.name),
                origin,
                server_name,
                pool,
                permit,
            })))
        }
        Ok(Ok(Negotiated::Redirected(redirected))) => {
            live.redirected(&listener.name, origin, &redirected);
            None
        }
        Ok(Ok(Negotiated::Closed)) => None,
        Ok(Err(error)) => {
            let client = origin.client.ip().to_canonical();
            listener.certificate_rejections.note(client, &error);
            let reason = HandshakeFailure::of(&error);
            let answered = error.get_ref().and_then(|e| e.downcast_ref::<PlainHttp>());
            let is_refused = matches!(reason, HandshakeFailure::Certificate(_));
            ended(Some(FailedHandshake {
                reason,
                cause: &pki::cause(&error, Peer::Client, |_| None),
                claimed: is_refused.then(pki::take_refused_name).flatten(),
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

/// Takes a connection through its stages. `origin` and `permit` are completed by a PROXY header.
async fn agree<L: ListenerContext>(
    listener: &Listener,
    live: &L,
    current: &ActiveListener,
    mut stream: TcpStream,
    (origin, permit): (&mut Origin, &mut Permit),
) -> io::Result<Negotiated> {
    let settings = &current.settings;
    if let Some(from) = &settings.proxy_protocol {
        // Boxed, as everything that most connections have no use for: the task of each would have to have room for it.
        *origin = Box::pin(preface::read(&mut stream, origin.client, from)).await?;
        match place_of_client(listener, live, settings, origin.client.ip()) {
            Ok(place) => permit.place(place),
            Err(TooMany) => return Ok(Negotiated::Closed),
        }
    }
    let Some(tls) = &current.tls else {
        if let Some(base) = &settings.redirect_to_https {
            let answer =
                redirect::answer(stream, (base, settings.head_bytes_max), live.request_id());
            let redirected = Box::pin(answer).await?;
            return Ok(Negotiated::Redirected(Box::new(redirected)));
        }
        // Nothing is waited for: in some protocols the member speaks first.
        let pool = settings.passthrough.as_deref().unwrap_or_default();
        return Ok(Negotiated::Passthrough(Passthrough {
            stream,
            read: Vec::new(),
            server_name: None,
            pool: pool.into(),
        }));
    };
    let client = origin.client.ip();
    // A probe that only connects, as agents do before their first request and load balancers do with a reset, is no
    // handshake; and who says nothing takes no place from those who do.
    let mut first = [0; plain_http::FIRST_BYTES];
    let first = match stream.peek(&mut first).await {
        Ok(length @ 1..) => &first[..length],
        _ => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, NoBytes)),
    };
    if plain_http::is_http(first) {
        let request_id = live.request_id();
        Box::pin(plain_http::answer(stream, &request_id)).await;
        return Err(io::Error::other(PlainHttp { request_id }));
    }
    let _address = handshake_of_address(listener, live, current, client).await;
    let limit = || {
        live.current(&listener.name)
            .map_or(u32::MAX, |(current, _)| current.settings.handshakes_max)
    };
    let _permit = match listener.handshakes.try_enter(limit()) {
        Some(permit) => permit,
        None => {
            live.limit_reached(&listener.name, ReachedLimit::Handshakes);
            listener.handshakes.enter(limit).await
        }
    };
    if !settings.sni_passthrough.is_empty() {
        return Box::pin(by_server_name(settings, tls, stream)).await;
    }
    let config = tls.config.for_connection();
    let accepted = if settings.sni_strict {
        sni::accept_known(stream, config, &tls.credentials).await
    } else {
        TlsAcceptor::from(config).accept(stream).await
    };
    accepted.map(Box::new).map(Negotiated::Tls)
}

/// Passes a connection through whose server name has a pool; any other is terminated here.
async fn by_server_name(
    settings: &ListenerSettings,
    tls: &ListenerTls,
    stream: TcpStream,
) -> io::Result<Negotiated> {
    let hello = Hello::read(stream).await?;
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
    let strict = settings.sni_strict.then_some(&*tls.credentials);
    let accepted = hello.accept(tls.config.for_connection(), strict).await;
    accepted.map(Box::new).map(Negotiated::Tls)
}

/// The peer went away while it waited in the queue.
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

    /// Counts who was let in; nobody gets further.
    #[derive(Default)]
    struct Counting(Cell<usize>);

    impl ListenerContext for Counting {
        fn current(&self, _: &str) -> Option<(Arc<ActiveListener>, Arc<TrustStore>)> {
            self.0.set(self.0.get() + 1);
            None
        }

        fn limit_reached(&self, _: &str, _: ReachedLimit) {}

        fn request_id(&self) -> String {
            String::new()
        }

        fn handshake_ended(&self, _: &str, _: HandshakeEnd<'_>) {}

        fn redirected(&self, _: &str, _: Origin, _: &Redirected) {}
    }

    #[test]
    fn whoever_waits_in_the_queue_of_a_listener_that_closes_is_let_in() {
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
                .map(|_| std::net::TcpStream::connect(address).expect("a place in the queue"))
                .collect();
            let live = Rc::new(Counting::default());
            let listener = Arc::new(Listener::new("agents"));
            let socket = AcceptQueue::new(ListeningSocket::Tcp(socket));
            let socket = socket.expect("a socket of this runtime");
            let serve = |_: Accepted| ready(());
            accept_loop(listener, socket, Rc::clone(&live), serve, ready(())).await;
            while Rc::strong_count(&live) > 1 {
                yield_now().await;
            }
            assert_eq!(live.0.get(), clients.len());
        });
    }
}
