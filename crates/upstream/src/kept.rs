//! Questions of our own over one connection that is kept between them.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    ask::{AskError, Question, READ_BYTES_MAX, Told, beginning, broken, request},
    connector::Connector,
    dial::dial_tls,
    io::{Counted, Intake},
};

/// A connection to one port of one member. Not among those that requests use, so it takes no place of theirs.
#[derive(Debug, Default)]
pub struct KeptConnection(Option<Open>);

#[derive(Debug)]
struct Open {
    sender: SendRequest<Empty<Bytes>>,
    intake: Arc<Intake>,
    /// The member's certificate, and the generation of the trust that has verified it.
    shown: Option<(CertificateDer<'static>, u64)>,
    /// Dropped with the rest, which ends the connection.
    _driver: JoinSet<()>,
}

impl KeptConnection {
    /// Asks over the open connection, or over a new one.
    ///
    /// A question that the member's end of the kept connection has met is asked once more: servers close connections that
    /// are idle.
    ///
    /// # Errors
    /// [`AskError`] says why nothing came. The connection is then closed.
    pub async fn ask(
        &mut self,
        connector: &Connector,
        question: &Question<'_>,
    ) -> Result<Told, AskError> {
        let kept = self.0.take().filter(|open| open.is_usable(connector));
        let asked = async {
            if let Some(kept) = kept
                && let Ok(answered) = kept.exchange(connector, question).await
            {
                return Ok(answered);
            }
            let open = Open::dial(connector, question.port).await?;
            open.exchange(connector, question).await
        };
        let answered = timeout(question.timeout, asked).await;
        let (open, told) = answered.unwrap_or(Err(AskError::Late(question.timeout)))?;
        self.0 = Some(open);
        Ok(told)
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.0 = None;
    }
}

impl Open {
    async fn dial(connector: &Connector, port: Option<u16>) -> Result<Self, AskError> {
        let check = connector.check.as_ref();
        let generation = check.map_or(0, |check| check.generation());
        let intake = Arc::new(Intake::new());
        intake.expect_head();
        let io = dial_tls(connector, port).await?;
        let shown = io.shown().map(|shown| (shown, generation));
        let io = TokioIo::new(Counted::new(io, Arc::clone(&intake), None));
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BYTES_MAX)
            .handshake(io)
            .await
            .map_err(broken)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // What went wrong comes to the sender too.
            let _ = connection.await;
        });
        Ok(Self {
            sender,
            intake,
            shown,
            _driver: driver,
        })
    }

    /// Whether it is open still, and the member's certificate is valid by the trust in force now.
    fn is_usable(&self, connector: &Connector) -> bool {
        let verified = match (&connector.check, &self.shown) {
            (Some(check), Some((shown, generation))) => {
                check.generation() == *generation || check.judge(shown).is_ok()
            }
            _ => true,
        };
        verified && !self.sender.is_closed()
    }

    async fn exchange(
        mut self,
        connector: &Connector,
        question: &Question<'_>,
    ) -> Result<(Self, Told), AskError> {
        let request: Request<Empty<Bytes>> = request(connector, question)?;
        self.intake.expect_head();
        self.sender.ready().await.map_err(broken)?;
        let answer = self.sender.send_request(request).await.map_err(broken)?;
        self.intake.expect_body(question.body_bytes_max);
        let told = Told {
            status: answer.status(),
            headers: answer.headers().clone(),
            body: beginning(answer.into_body(), question.body_bytes_max).await?,
            certificate: self.shown.as_ref().map(|(shown, _)| shown.clone()),
        };
        Ok((self, told))
    }
}
