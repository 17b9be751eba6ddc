//! The protocol of a connection, and a wrapper that starts it with the client's first byte and again after each rest.

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

/// A protocol on a connection: a future that ends with it.
pub(crate) trait ConnectionProtocol: Future<Output = Result<(), Self::Error>> {
    type Error: Display;

    /// Accepts no more requests, and ends after the running ones are answered.
    fn graceful_shutdown(self: Pin<&mut Self>);

    /// Called between requests: releases everything but the transport until the next request. Protocols that cannot do
    /// so do nothing.
    fn rest(self: Pin<&mut Self>) {}

    /// Records an error of the client that ended the connection.
    fn record_error(worker: &Worker, conn: &Conn, error: &Self::Error);
}

/// A protocol that starts with the client's first byte. A connection without a request holds no protocol buffers, and
/// an idle one releases them.
pub(crate) struct StartOnFirstByte<B, R, H> {
    /// The transport, until bytes have arrived.
    idle_io: Option<TlsIo>,
    begin: B,
    /// Takes back the transport after the protocol was dropped.
    reclaim: R,
    running: Option<H>,
    /// The client or the proxy is closing the connection.
    closing: bool,
    client: SocketAddr,
}

impl<B, R, H> StartOnFirstByte<B, R, H>
where
    B: Fn(TlsIo) -> H,
    R: Fn() -> Option<TlsIo>,
{
    pub(crate) fn new(client: SocketAddr, io: TlsIo, begin: B, reclaim: R) -> Self {
        Self {
            idle_io: Some(io),
            begin,
            reclaim,
            running: None,
            closing: false,
            client,
        }
    }
}

impl<B, R, H> Future for StartOnFirstByte<B, R, H>
where
    B: Fn(TlsIo) -> H + Unpin,
    R: Unpin,
    H: ConnectionProtocol + Unpin,
{
    type Output = H::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(io) = &mut this.idle_io {
            if !this.closing {
                match ready!(io.poll_readable(cx)) {
                    Ok(has_bytes) => this.closing = !has_bytes,
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        this.closing = true;
                    }
                    // The transport is broken, so HTTP cannot start on it.
                    Err(error) => {
                        tracing::debug!(client = %this.client, %error, "a connection ended with an error");
                        return Poll::Ready(Ok(()));
                    }
                }
            }
            if this.closing {
                // There is no request to answer, so it does not matter whether the close arrives.
                let _ = ready!(Pin::new(io).poll_shutdown(cx));
                return Poll::Ready(Ok(()));
            }
        }
        if let Some(io) = this.idle_io.take() {
            this.running = Some((this.begin)(io));
        }
        match &mut this.running {
            Some(http) => Pin::new(http).poll(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl<B, R, H> ConnectionProtocol for StartOnFirstByte<B, R, H>
where
    B: Fn(TlsIo) -> H + Unpin,
    R: Fn() -> Option<TlsIo> + Unpin,
    H: ConnectionProtocol + Unpin,
{
    type Error = H::Error;

    fn graceful_shutdown(self: Pin<&mut Self>) {
        let this = self.get_mut();
        this.closing = true;
        if let Some(http) = &mut this.running {
            Pin::new(http).graceful_shutdown();
        }
    }

    fn rest(self: Pin<&mut Self>) {
        let this = self.get_mut();
        if this.running.take().is_some() {
            this.idle_io = (this.reclaim)();
        }
    }

    fn record_error(worker: &Worker, conn: &Conn, error: &Self::Error) {
        H::record_error(worker, conn, error);
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, future::poll_fn, rc::Rc, sync::Arc};

    use listener::Activity;
    use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf, duplex};

    use super::*;

    type Released = Rc<RefCell<Option<TlsIo>>>;

    /// A protocol that reads and never writes.
    struct SilentProtocol(Option<TlsIo>, Released);

    impl Future for SilentProtocol {
        type Output = Result<(), io::Error>;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            let mut bytes = [0; 8];
            let io = self.0.as_mut().expect("a transport");
            while Pin::new(&mut *io)
                .poll_read(cx, &mut ReadBuf::new(&mut bytes))?
                .is_ready()
            {}
            Poll::Pending
        }
    }

    impl Drop for SilentProtocol {
        fn drop(&mut self) {
            *self.1.borrow_mut() = self.0.take();
        }
    }

    impl ConnectionProtocol for SilentProtocol {
        type Error = io::Error;
        fn graceful_shutdown(self: Pin<&mut Self>) {}
        fn record_error(_: &Worker, _: &Conn, _: &io::Error) {}
    }

    #[tokio::test]
    async fn a_resting_protocol_holds_only_its_transport_until_the_client_sends_a_byte() {
        let (near, mut far) = duplex(64);
        let io = TlsIo::in_memory(Box::new(near), Arc::new(Activity::new()));
        let (released, begun) = (Released::default(), RefCell::new(0));
        let begin = |io| {
            *begun.borrow_mut() += 1;
            SilentProtocol(Some(io), Rc::clone(&released))
        };
        let client = SocketAddr::from(([127, 0, 0, 1], 1));
        let http = StartOnFirstByte::new(client, io, begin, || released.take());
        let mut http = std::pin::pin!(http);
        for round in 1..=3 {
            far.write_all(b"GET").await.expect("room");
            poll_fn(|cx| {
                assert!(http.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            assert_eq!(*begun.borrow(), round);
            http.as_mut().rest();
            poll_fn(|cx| {
                assert!(http.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            assert!(http.running.is_none() && http.idle_io.is_some());
            assert_eq!(*begun.borrow(), round, "nothing has come since");
        }
    }
}
