//! A protocol on a connection, and one that begins with the client's first byte and again after a rest.

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
pub(crate) trait ConnectionProtocol: Future<Output = Result<(), Self::Error>> {
    type Error: Display;

    /// Takes no more requests and ends once those that run are answered.
    fn graceful_shutdown(self: Pin<&mut Self>);

    /// Between requests: holds nothing but the transport until the next begins. Where nothing can be given back, nothing is
    /// done.
    fn rest(self: Pin<&mut Self>) {}

    /// Tells of a client that broke the protocol's rules.
    fn record_error(worker: &Worker, conn: &Conn, error: &Self::Error);
}

/// A protocol that begins with the client's first byte: who shakes hands and asks nothing holds no buffers of it, and who
/// asks nothing more for a while holds them no longer.
pub(crate) struct StartOnFirstByte<B, R, H> {
    /// The transport, until something has come.
    silent: Option<TlsIo>,
    begin: B,
    /// Takes back the transport that the protocol has let go of.
    reclaim: R,
    speaking: Option<H>,
    /// One of the two wants to end.
    leaving: bool,
    client: SocketAddr,
}

impl<B, R, H> StartOnFirstByte<B, R, H>
where
    B: Fn(TlsIo) -> H,
    R: Fn() -> Option<TlsIo>,
{
    pub(crate) fn new(client: SocketAddr, io: TlsIo, begin: B, reclaim: R) -> Self {
        Self {
            silent: Some(io),
            begin,
            reclaim,
            speaking: None,
            leaving: false,
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
        if let Some(io) = &mut this.silent {
            if !this.leaving {
                match ready!(io.poll_readable(cx)) {
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
        if let Some(io) = this.silent.take() {
            this.speaking = Some((this.begin)(io));
        }
        match &mut this.speaking {
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
        this.leaving = true;
        if let Some(http) = &mut this.speaking {
            Pin::new(http).graceful_shutdown();
        }
    }

    fn rest(self: Pin<&mut Self>) {
        let this = self.get_mut();
        if this.speaking.take().is_some() {
            this.silent = (this.reclaim)();
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

    type LetGo = Rc<RefCell<Option<TlsIo>>>;

    /// Reads what comes and says nothing.
    struct Mute(Option<TlsIo>, LetGo);

    impl Future for Mute {
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

    impl Drop for Mute {
        fn drop(&mut self) {
            *self.1.borrow_mut() = self.0.take();
        }
    }

    impl ConnectionProtocol for Mute {
        type Error = io::Error;
        fn graceful_shutdown(self: Pin<&mut Self>) {}
        fn record_error(_: &Worker, _: &Conn, _: &io::Error) {}
    }

    #[tokio::test]
    async fn what_rests_holds_its_transport_alone_until_the_client_says_something() {
        let (near, mut far) = duplex(64);
        let io = TlsIo::in_memory(Box::new(near), Arc::new(Activity::new()));
        let (let_go, begun) = (LetGo::default(), RefCell::new(0));
        let begin = |io| {
            *begun.borrow_mut() += 1;
            Mute(Some(io), Rc::clone(&let_go))
        };
        let client = SocketAddr::from(([127, 0, 0, 1], 1));
        let http = StartOnFirstByte::new(client, io, begin, || let_go.take());
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
            assert!(http.speaking.is_none() && http.silent.is_some());
            assert_eq!(*begun.borrow(), round, "nothing has come since");
        }
    }
}
