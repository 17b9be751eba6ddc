//! Plain HTTP on a TCP address: the metrics listener of the proxy, and the page of `proscenium ui`.

use std::{
    io,
    net::{IpAddr, TcpListener as StdListener},
    time::Duration,
};

use axum::Router;
use tokio::{net::TcpListener, sync::watch, time::sleep};
use tracing::warn;

use crate::{
    connections::Connections,
    serve::{ACCEPT_PAUSE, connection, limited, stopped},
};

/// Maximum time of a request, its body included: any account of the machine can connect to a loopback address.
const LISTENER_TIMEOUT: Duration = Duration::from_secs(15);

/// Serves a router on a bound socket until `stop` becomes true or its sender is dropped: one request per connection, and at
/// most `connections_max` connections. At that limit, a connection that waits for its client is closed. If none waits, further
/// connections wait in the backlog of the socket.
///
/// Needs a tokio runtime with IO and time; one thread is enough.
///
/// # Errors
/// The socket cannot be registered with the runtime.
pub async fn serve_http(
    listener: StdListener,
    endpoints: Router,
    connections_max: usize,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let service = limited(endpoints, LISTENER_TIMEOUT);
    let name = format!("HTTP listener on {}", listener.local_addr()?);
    let mut connections = Connections::<IpAddr>::new(name, connections_max);
    loop {
        tokio::select! {
            biased;
            () = stopped(&mut stop) => return Ok(()),
            () = connections.ended() => {}
            accepted = listener.accept(), if connections.has_room() => match accepted {
                Ok((stream, client)) => {
                    let (service, stop) = (service.clone(), stop.clone());
                    connections.spawn(client.ip(), |open| connection(stream, service, stop, open));
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection on an HTTP listener");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}
