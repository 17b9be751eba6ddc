//! The admin socket: connections, and limits that keep a stuck caller harmless.

use std::{
    convert::Infallible,
    io,
    os::unix::net::UnixListener as StdListener,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{body::Body, http::header, response::IntoResponse};
use http::{Request, Response, StatusCode};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{UnixListener, UnixStream},
    sync::{Notify, watch},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, load_shed, timeout as tower_timeout};
use tracing::{debug, warn};

use crate::{
    Caller, Control, Permission, api,
    connections::{AccountLimits, Connections, OpenConnection},
    history::{PERIOD, TrafficHistory},
};

/// Serves the control plane on a bound socket until `stop` becomes true, then finishes running requests.
///
/// Needs a tokio runtime with IO and time; one thread is enough.
///
/// # Errors
/// The socket cannot be registered with the runtime.
pub async fn serve(
    listener: StdListener,
    control: Arc<dyn Control>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let history = Arc::new(TrafficHistory::default());
    let mut periods = interval(PERIOD);
    periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let endpoints = api::endpoints(Arc::clone(&control), Arc::clone(&history), stop.clone());
    // Each kind of account has requests of its own, so that accounts with fewer rights do not keep out accounts with more.
    let service = || limited(endpoints.clone(), ANSWER_TIMEOUT);
    let (trusted, operators, readers, strangers) = (service(), service(), service(), service());
    let limits = Arc::new(AccountLimits::default());
    let own = rustix::process::geteuid().as_raw();
    let mut trusted_connections = Connections::new("admin socket", TRUSTED_MAX);
    let mut connections = Connections::new("admin socket", CONNECTIONS_MAX);
    loop {
        tokio::select! {
            // Finished tasks are removed first, so that their slots are free for the next caller.
            biased;
            () = stopped(&mut stop) => break,
            () = trusted_connections.ended() => {}
            () = connections.ended() => {}
            _ = periods.tick() => history.record(control.traffic(), SystemTime::now()),
            accepted = listener.accept(), if trusted_connections.has_room() => match accepted {
                Ok((stream, _)) => {
                    let caller = caller_of(&stream);
                    let stop = stop.clone();
                    if caller.uid == Some(0) || caller.uid == Some(own) {
                        let service = for_caller(trusted.clone(), caller);
                        trusted_connections.spawn(caller.uid, |open| connection(stream, service, stop, open));
                        continue;
                    }
                    if !connections.has_room() {
                        connections.closed_one();
                        continue;
                    }
                    let control = Arc::clone(&control);
                    let limits = Arc::clone(&limits);
                    let (operators, readers) = (operators.clone(), readers.clone());
                    let strangers = strangers.clone();
                    connections.spawn(caller.uid, |open| async move {
                        // An account without a right gets its 403 beyond the limit too.
                        let permission = control.permission(caller).await;
                        let service = match permission {
                            Permission::None => strangers,
                            Permission::Read => readers,
                            Permission::Operate => operators,
                        };
                        let permit = limits.acquire(caller.uid, ACCOUNT_MAX);
                        if permit.is_none() && permission > Permission::None {
                            return connection(stream, tower::service_fn(too_many_connections), stop, open).await;
                        }
                        connection(stream, for_caller(service, caller), stop, open).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection on the admin socket");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    let finish = async {
        trusted_connections.finish().await;
        connections.finish().await;
    };
    if timeout(STOP_GRACE, finish).await.is_err() {
        debug!("closed admin connections at shutdown");
    }
    Ok(())
}

/// The account of a connection, as the kernel reports it.
fn caller_of(stream: &UnixStream) -> Caller {
    let credentials = stream.peer_cred().ok();
    Caller {
        uid: credentials.map(|caller| caller.uid()),
        gid: credentials.map(|caller| caller.gid()),
    }
}

/// The service for the requests of one account.
fn for_caller<S>(
    service: S,
    caller: Caller,
) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = BoxError, Future = S::Future>
+ Clone
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = BoxError> + Clone,
{
    service.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller);
        request
    })
}

/// The answer to an account that has as many connections as it may have.
async fn too_many_connections(_: Request<Incoming>) -> Result<Response<Body>, BoxError> {
    let text = format!("this account has {ACCOUNT_MAX} connections already: end one of them first");
    Ok(api::problem(StatusCode::SERVICE_UNAVAILABLE, text).into_response())
}

/// One client, one request: `Connection: close` keeps idle clients from holding a slot.
pub(crate) async fn connection<I, S, C>(
    stream: I,
    service: S,
    mut stop: watch::Receiver<bool>,
    open: OpenConnection<C>,
) where
    C: Send + 'static,
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<Body>, Error = BoxError>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let answered = Arc::new(Notify::new());
    let noted = answered.clone();
    let open = Arc::new(open);
    let waits = Arc::clone(&open);
    let service = service.map_request(move |request| {
        open.waits(false);
        request
    });
    let service = service.map_response(move |response: Response<Body>| {
        waits.waits(true);
        // An event stream has no time limit. If its client does not read, the stream holds at most one event.
        let content_type = response.headers().get(header::CONTENT_TYPE);
        if content_type.is_none_or(|value| value != "text/event-stream") {
            noted.notify_one();
        }
        response
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(connection);
    // hyper limits the time for the head, and the service its own work. A caller that does not read its response is closed here.
    let unread = async {
        answered.notified().await;
        sleep(WRITE_TIMEOUT).await;
    };
    tokio::pin!(unread);
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    debug!(%error, "cannot serve an admin connection");
                }
                return;
            }
            () = &mut unread => {
                debug!("an admin client did not read its response");
                return;
            }
            () = stopped(&mut stop), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The API behind its limits: a maximum of concurrent requests, refusal beyond it, and a maximum of their time.
pub(crate) fn limited<S>(
    api: S,
    within: Duration,
) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = BoxError, Future: Send>
+ Clone
+ Send
+ 'static
where
    S: Service<axum::extract::Request, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    ServiceBuilder::new()
        .map_result(|result: Result<Response<Body>, BoxError>| {
            Ok::<_, BoxError>(result.unwrap_or_else(|error| refusal(&error)))
        })
        .load_shed()
        .concurrency_limit(REQUESTS_MAX)
        .timeout(within)
        .map_request(|request: Request<Incoming>| request.map(Body::new))
        .service(api)
}

/// The only place that maps limit errors to status codes.
fn refusal(error: &BoxError) -> Response<Body> {
    let refused = if error.is::<load_shed::error::Overloaded>() {
        api::problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many admin requests at once: try again in a moment",
        )
    } else if error.is::<tower_timeout::error::Elapsed>() {
        api::problem(
            StatusCode::GATEWAY_TIMEOUT,
            "no result in time; a reload continues in the background: see /v1/status for its result",
        )
    } else {
        api::problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    };
    refused.into_response()
}

/// Ends when `stop` becomes true or its sender is dropped.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped, and with it the server.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Maximum number of connections of root and the account of the proxy. If none of them waits for its client, further
/// connections wait in the backlog of the socket.
const TRUSTED_MAX: usize = 64;
/// Maximum number of connections of all other accounts. At most three times [`REQUESTS_MAX`] of them run a request; the others
/// wait for their clients. If none of them waited, a further connection would be closed, so that it does not keep root waiting.
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of connections of one other account that may use the socket.
const ACCOUNT_MAX: usize = 12;
/// Maximum number of concurrent requests of each of these groups: root and the account of the proxy, operators, readers, and
/// accounts without a right. Further requests are answered 503.
const REQUESTS_MAX: usize = 16;
/// Maximum length of a request head. Those of [`AdminClient`](crate::AdminClient) have about 200 bytes; hyper requires at least
/// 8 KiB.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Time allowed from connect to the end of the head. A client on the same machine or a load balancer sends it at once.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Time allowed for a response. Only a reload takes long: reading CRLs with a million entries from a slow disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// Time that a caller has to read its response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that running requests have when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Pause after a failed accept (no descriptors left), so that the loop does not spin.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::stream;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        sync::mpsc,
    };

    use super::*;

    /// Six accounts read events in eight connections each, and the others run requests that last.
    #[tokio::test]
    async fn event_streams_make_room_for_a_further_connection() {
        let (began, mut running) = mpsc::channel(CONNECTIONS_MAX);
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let began = began.clone();
            async move {
                match request.uri().path() {
                    "/events" => {
                        let body = Body::from_stream(stream::pending::<io::Result<&str>>());
                        let answer =
                            Response::builder().header("content-type", "text/event-stream");
                        Ok::<_, BoxError>(answer.body(body).expect("a response"))
                    }
                    "/now" => Ok(Response::new(Body::empty())),
                    _ => {
                        let _ = began.send(()).await;
                        pending().await
                    }
                }
            }
        });
        let (_running, stop) = watch::channel(false);
        let mut connections = Connections::new("admin socket", CONNECTIONS_MAX);
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS_MAX {
            let (is_stream, account) = (number < 48, number % 6);
            let path = if is_stream { "events" } else { "long" };
            let mut client = request(&mut connections, account, path, &service, &stop).await;
            if is_stream {
                assert!(head(&mut client).await.contains("200"))
            } else {
                running.recv().await.expect("it runs")
            }
            clients.push(client);
        }
        assert!(connections.has_room());
        let mut further = request(&mut connections, 9, "now", &service, &stop).await;
        assert!(head(&mut further).await.contains("200"));
        connections.ended().await;
        let mut first = Vec::new();
        clients[0].read_to_end(&mut first).await.expect("it ends");
    }

    async fn request<S>(
        connections: &mut Connections<usize>,
        account: usize,
        path: &str,
        service: &S,
        stop: &watch::Receiver<bool>,
    ) -> DuplexStream
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = BoxError>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        let (mut client, server) = duplex(4096);
        let (service, stop) = (service.clone(), stop.clone());
        connections.spawn(account, |open| connection(server, service, stop, open));
        let head = format!("GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n");
        client.write_all(head.as_bytes()).await.expect("sends");
        client
    }

    async fn head(client: &mut DuplexStream) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let length = client.read_buf(&mut head).await.expect("reads");
            assert!(length > 0, "the connection ended");
        }
        String::from_utf8_lossy(&head).into_owned()
    }
}
