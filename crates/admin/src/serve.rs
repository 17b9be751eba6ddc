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
    sync::{Notify, OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, load_shed, timeout as tower_timeout};
use tracing::{debug, warn};

use crate::{
    Caller, Control, api,
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
    let service = limited(endpoints, ANSWER_TIMEOUT);
    let others = Arc::new(Semaphore::new(OTHERS_MAX));
    let own = rustix::process::geteuid().as_raw();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Finished tasks are removed first, so that their slots are free for the next caller.
            biased;
            () = stopped(&mut stop) => break,
            Some(ended) = connections.join_next(), if !connections.is_empty() => report(ended),
            _ = periods.tick() => history.record(control.traffic(), SystemTime::now()),
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    let uid = stream.peer_cred().ok().map(|caller| caller.uid());
                    let Some(slot) = slot_of(uid, own, &others) else {
                        debug!("closed an admin connection: other accounts hold all their slots");
                        continue;
                    };
                    let connection = admin_connection(stream, service.clone(), stop.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection on the admin socket");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    let finish = async { while connections.join_next().await.is_some() {} };
    if timeout(STOP_GRACE, finish).await.is_err() {
        debug!("closed admin connections at shutdown");
    }
    Ok(())
}

/// A slot for a connection: `Some(None)` for root and the account of the proxy, which need none. `None` if no slot is
/// free.
fn slot_of(
    uid: Option<u32>,
    own: u32,
    others: &Arc<Semaphore>,
) -> Option<Option<OwnedSemaphorePermit>> {
    match uid == Some(0) || uid == Some(own) {
        true => Some(None),
        false => Arc::clone(others).try_acquire_owned().ok().map(Some),
    }
}

/// A connection of the admin socket.
async fn admin_connection<S>(stream: UnixStream, service: S, stop: watch::Receiver<bool>)
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = BoxError>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let credentials = stream.peer_cred().ok();
    let caller = Caller {
        uid: credentials.map(|caller| caller.uid()),
        gid: credentials.map(|caller| caller.gid()),
    };
    let service = service.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller);
        request
    });
    connection(stream, service, stop).await;
}

/// One client, one request: `Connection: close` keeps idle clients from holding a slot.
pub(crate) async fn connection<I, S>(stream: I, service: S, mut stop: watch::Receiver<bool>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<Body>, Error = BoxError>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let answered = Arc::new(Notify::new());
    let noted = answered.clone();
    let service = service.map_response(move |response: Response<Body>| {
        let content_type = response.headers().get(header::CONTENT_TYPE);
        // An event stream lasts. It holds one event at most if its client does not read.
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

pub(crate) fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        warn!(%error, "an admin connection ended with an error");
    }
}

/// Maximum number of callers; more wait in the socket's backlog.
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of connections of accounts other than root and that of the proxy. It is smaller than the number of
/// requests, so that other accounts cannot keep root from draining a member or blocking an agent.
const OTHERS_MAX: usize = 8;
/// Maximum number of concurrent requests; more are answered 503.
const REQUESTS_MAX: usize = 16;
/// Maximum length of a request head. Those of the client have about 200 bytes; hyper requires at least 8 KiB.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Time allowed from connect to the end of the head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
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
    use super::*;

    #[test]
    fn other_accounts_hold_a_few_connections_and_never_those_of_root() {
        let others = Arc::new(Semaphore::new(OTHERS_MAX));
        let slot = |uid| slot_of(uid, 990, &others);
        let mut held: Vec<_> = (0..OTHERS_MAX).map(|_| slot(Some(1000))).collect();
        assert!(held.iter().all(|slot| matches!(slot, Some(Some(_)))));
        for uid in [Some(1000), Some(1001), None] {
            assert!(slot(uid).is_none(), "{uid:?}");
        }
        for uid in [Some(0), Some(990)] {
            assert!(matches!(slot(uid), Some(None)), "{uid:?}");
        }
        held.pop();
        assert!(slot(Some(1001)).is_some());
        const { assert!(OTHERS_MAX < REQUESTS_MAX) };
    }
}
