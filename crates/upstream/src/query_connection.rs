//! Questions of our own over one connection that is kept between them.

use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use crate::{
    connector::Connector,
    dial::dial_tls,
    io::MemberIo,
    query::{MemberQuery, QueryError, QueryResponse, converse},
    wire::Wire,
};

/// A connection to one port of one member. Not among those that requests use, so it takes no place of theirs.
#[derive(Debug, Default)]
pub struct QueryConnection(Option<Open>);

#[derive(Debug)]
struct Open {
    wire: Wire,
    /// The member's certificate, and the generation of the trust that has verified it.
    shown: Option<(CertificateDer<'static>, u64)>,
}

impl QueryConnection {
    /// Asks over the open connection, or over a new one.
    ///
    /// A question that the member's end of the kept connection has met is asked once more: servers close connections that
    /// are idle.
    ///
    /// # Errors
    /// [`QueryError`] says why nothing came. The connection is then closed.
    pub async fn query(
        &mut self,
        connector: &Connector,
        question: &MemberQuery<'_>,
    ) -> Result<QueryResponse, QueryError> {
        let mut kept = self.0.take();
        let kept = kept.take_if(|open| open.is_usable(connector));
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
        let (open, told) = answered.unwrap_or(Err(QueryError::Late(question.timeout)))?;
        self.0 = open;
        Ok(told)
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.0 = None;
    }
}

impl Open {
    async fn dial(connector: &Connector, port: Option<u16>) -> Result<Self, QueryError> {
        let check = connector.check.as_ref();
        let generation = check.map_or(0, |check| check.generation());
        let io = dial_tls(connector, port).await?;
        let shown = io.shown().map(|shown| (shown, generation));
        let wire = Wire::new(MemberIo::new(io, None));
        Ok(Self { wire, shown })
    }

    /// Whether it is open still, and the member's certificate is valid by the trust in force now.
    fn is_usable(&mut self, connector: &Connector) -> bool {
        let verified = match (&connector.check, &self.shown) {
            (Some(check), Some((shown, generation))) => {
                check.generation() == *generation || check.verify(shown).is_ok()
            }
            _ => true,
        };
        verified && self.wire.is_silent()
    }

    /// The connection too, if it may be kept.
    async fn exchange(
        mut self,
        connector: &Connector,
        question: &MemberQuery<'_>,
    ) -> Result<(Option<Self>, QueryResponse), QueryError> {
        let (told, lasts) = converse(&mut self.wire, connector, question, None).await?;
        let certificate = self.shown.as_ref().map(|(shown, _)| shown.clone());
        let told = QueryResponse {
            certificate,
            ..told
        };
        Ok((lasts.then_some(self), told))
    }
}
