//! The TLS handshake of one connection. The worker transfers its bytes. Jobs compute its cryptography: the worker computes jobs
//! that cost less than handing them to a thread, a few in each turn, and the executor computes all others.

use std::{
    future::poll_fn,
    io,
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll, ready},
};

use identity::Certname;
use rustls::{HandshakeKind, ServerConfig, server::UnbufferedServerConnection};
use tokio::net::TcpStream;

use crate::{
    handshake_executor::Executor,
    hello::{Hello, refuse},
    tls_records::Records,
    tls_stream::TlsStream,
    waiting::{Displaced, WaitingClient},
};

/// The outcome of a job.
pub(crate) type Computed = Result<Box<Records>, Box<Refusal>>;

/// A handshake that ends with an alert.
pub(crate) struct Refusal {
    error: rustls::Error,
    alert: Vec<u8>,
    /// The unverified certname in the client's certificate, if the proxy refused that certificate.
    claimed: Option<Certname>,
}

/// What a handshake needs from its worker.
pub(crate) struct TlsHandshake<'a> {
    pub(crate) executor: &'a Executor<Computed>,
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) client: IpAddr,
    /// Whether the listener may sign with an RSA key.
    pub(crate) may_sign_with_rsa: bool,
}

/// What a job may compute, which decides where it is computed.
#[derive(Clone, Copy)]
enum Cost {
    /// No RSA signature. The job costs less than handing it to the thread and back.
    Low,
    /// As `Low` if the proxy knows the session that the client offers.
    LowIfResumed,
    /// The step after the signature: verifying the client's certificate and the client's signature.
    Light,
    /// An RSA signature.
    High,
}

impl TlsHandshake<'_> {
    /// Responds to the ClientHello and completes the handshake. `wait` begins the wait for the client. If a certificate is
    /// refused, `claimed` becomes the unverified certname in it.
    ///
    /// # Errors
    /// The handshake failed, or was closed at a limit. The error is a [`rustls::Error`] if TLS is the reason.
    pub(crate) async fn complete<'w>(
        self,
        hello: Hello,
        wait: impl FnOnce() -> WaitingClient<'w>,
        claimed: &mut Option<Certname>,
    ) -> io::Result<TlsStream> {
        let cost = match (self.may_sign_with_rsa, hello.offers_session()) {
            (false, _) => Cost::Low,
            (true, true) => Cost::LowIfResumed,
            (true, false) => Cost::High,
        };
        let (mut stream, hello) = hello.into_raw();
        let config = Arc::clone(&self.config);
        let answered = self.compute(cost, move || answer(config, &hello)).await?;
        let mut records = match answered {
            Ok(records) => records,
            Err(refusal) => return Err(end(stream, *refusal, claimed).await),
        };
        let waiting = wait();
        loop {
            let is_complete = tokio::select! {
                biased;
                () = waiting.closed() => return Err(io::Error::other(Displaced)),
                exchanged = poll_fn(|cx| poll_exchange(cx, &mut stream, &mut records)) => exchanged?,
            };
            if is_complete {
                break;
            }
            let cost = match records.common().handshake_kind() {
                _ if !self.may_sign_with_rsa => Cost::Low,
                Some(HandshakeKind::Resumed) => Cost::Low,
                Some(HandshakeKind::Full) => Cost::Light,
                // After a second ClientHello, the signature may follow.
                _ => Cost::High,
            };
            let job = self.compute(cost, move || proceed(records));
            records = match waiting.except_during(job).await? {
                Ok(records) => records,
                Err(refusal) => return Err(end(stream, *refusal, claimed).await),
            };
        }
        Ok(TlsStream::new(stream, *records))
    }

    async fn compute(
        &self,
        cost: Cost,
        job: impl FnOnce() -> Computed + Send + 'static,
    ) -> io::Result<Computed> {
        let computed = match cost {
            Cost::Low => self.executor.compute_cheap(self.client, job).await,
            Cost::LowIfResumed => {
                // An error, and a handshake that waits for a second ClientHello, do not confirm the hint: both may follow a
                // signature.
                let is_true = |computed: &Computed| {
                    computed.as_ref().is_ok_and(|records| is_resumed(records))
                };
                self.executor
                    .compute_hinted(self.client, job, is_true)
                    .await
            }
            Cost::Light => self.executor.compute_light(self.client, job).await,
            Cost::High => self.executor.compute(self.client, job).await,
        };
        computed.map_err(io::Error::other)
    }
}

/// Whether the proxy knew the session that the client offered.
fn is_resumed(records: &Records) -> bool {
    records.common().handshake_kind() == Some(HandshakeKind::Resumed)
}

async fn end(stream: TcpStream, refusal: Refusal, claimed: &mut Option<Certname>) -> io::Error {
    *claimed = refusal.claimed;
    refuse(stream, &refusal.alert).await;
    io::Error::new(io::ErrorKind::InvalidData, refusal.error)
}

/// A job: responds to the ClientHello, with the signature.
fn answer(config: Arc<ServerConfig>, hello: &[u8]) -> Computed {
    let tls = UnbufferedServerConnection::new(config).map_err(|error| {
        Box::new(Refusal {
            error,
            alert: Vec::new(),
            claimed: None,
        })
    })?;
    let mut records = Box::new(Records::new(tls));
    records.receive(hello);
    proceed(records)
}

/// A job: processes what the client has sent since, with its certificate and the proof that it holds the key.
fn proceed(mut records: Box<Records>) -> Computed {
    match records.advance() {
        Ok(()) => Ok(records),
        Err(error) => {
            let name = pki::take_refused_name();
            Err(Box::new(Refusal {
                claimed: name.filter(|_| matches!(error, rustls::Error::InvalidCertificate(_))),
                error,
                alert: records.take_unsent(),
            }))
        }
    }
}

/// Sends the bytes that wait for the socket, then reads what the client sends next. `true`: the handshake is complete.
fn poll_exchange(
    cx: &mut Context<'_>,
    stream: &mut TcpStream,
    records: &mut Records,
) -> Poll<io::Result<bool>> {
    ready!(records.poll_send(cx, stream))?;
    if !records.common().is_handshaking() {
        return Poll::Ready(Ok(true));
    }
    // A job for each byte would cost the proxy more than the client. It would also keep the handshake from counting towards the
    // limit of waiting handshakes.
    while !records.has_whole_record() {
        if ready!(records.poll_receive(cx, stream))? == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
    }
    Poll::Ready(Ok(false))
}
