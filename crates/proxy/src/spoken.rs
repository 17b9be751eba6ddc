//! A protocol on a connection, and one that begins with the client's first byte.

use std::{
    fmt::Display,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use listener::TlsIo;
use tokio::io::AsyncWrite;

use crate::{connection::Conn, worker::Worker};

/// What a protocol makes of a connection: a future that ends with it.
pub(crate) trait Spoken: Future<Output = Result<(), Self::Error>> {
    type Error: Display;

    /// Takes no more requests and ends once those that run are answered.
    fn graceful_shutdown(self: Pin<&mut Self>);

    /// Tells of a client that broke the protocol's rules.
    fn tell(worker: &Worker, conn: &Conn, error: &Self::Error);
}

/// A protocol that begins with the client's first byte: who shakes hands and asks nothing holds no buffers of it.
pub(crate) struct FromFirstByte<B, H> {
    /// The transport, and how to begin; until something has come.
    silent: Option<(TlsIo, B)>,
    speaking: Option<H>,
    /// One of the two wants to end.
    leaving: bool,
    client: SocketAddr,
}

impl<B, H> FromFirstByte<B, H>
where
    B: FnOnce(TlsIo) -> H,
{
    pub(crate) fn new(client: SocketAddr, io: TlsIo, begin: B) -> Self {
        Self {
            silent: Some((io, begin)),
            speaking: None,
            leaving: false,
            client,
        }
    }
}

impl<B, H> Future for FromFirstByte<B, H>
where
    B: FnOnce(TlsIo) -> H + Unpin,
    H: Spoken + Unpin,
{
    type Output = H::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some((io, _)) = &mut this.silent {
            if !this.leaving {
                match ready!(io.poll_spoken(cx)) {
                    Ok(spoken) => this.leaving = !spoken,
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        this.leaving = true;
                    }
                    // What is broken stays so: there is nothing that HTTP could begin on.
                    Err(error) => {
                        tracing::debug!(client = %this.client, %error, "a connection ended with an error");
                        return Poll::Ready(Ok(()));
                    }
                }
            }
            if this.leaving {
                // Nothing was asked and nothing is owed: whether the word arrives changes nothing.
                let _ = ready!(Pin::new(io).poll_shutdown(cx));
                return Poll::Ready(Ok(()));
            }
        }
        if let Some((io, begin)) = this.silent.take() {
            this.speaking = Some(begin(io));
        }
        match &mut this.speaking {
            Some(http) => Pin::new(http).poll(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl<B, H> Spoken for FromFirstByte<B, H>
where
    B: FnOnce(TlsIo) -> H + Unpin,
    H: Spoken + Unpin,
{
    type Error = H::Error;

    fn graceful_shutdown(self: Pin<&mut Self>) {
        let this = self.get_mut();
        this.leaving = true;
        if let Some(http) = &mut this.speaking {
            Pin::new(http).graceful_shutdown();
        }
    }

    fn tell(worker: &Worker, conn: &Conn, error: &Self::Error) {
        H::tell(worker, conn, error);
    }
}
