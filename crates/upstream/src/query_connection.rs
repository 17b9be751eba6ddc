//! Sends queries of the proxy itself over one persistent connection.

use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use crate::{
    connector::Connector,
    dial::dial_tls,
    io::MemberIo,
    query::{MemberQuery, QueryError, QueryResponse, exchange_on},
    wire::Wire,
};

/// A connection to one port of one member. It does not count as one of the connections for requests.
#[derive(Debug, Default)]
pub struct QueryConnection(Option<Open>);

#[derive(Debug)]
struct Open {
    wire: Wire,
    /// The member's certificate, and the generation of the trust store that verified it.
    presented: Option<(CertificateDer<'static>, u64)>,
}

impl QueryConnection {
    /// Sends a query on the open connection, or on a new one.
    ///
    /// If the query fails on the open connection, it is sent once more on a new one, because servers close idle
    /// connections.
    ///
    /// # Errors
    /// [`QueryError`] is the reason why there is no response. The connection is closed in that case.
    pub async fn query(
        &mut self,
        connector: &Connector,
        query: &MemberQuery<'_>,
    ) -> Result<QueryResponse, QueryError> {
        let mut open = self.0.take();
        let open = open.take_if(|open| open.is_usable(connector));
        let attempt = async {
            if let Some(open) = open
                && let Ok(result) = open.exchange(connector, query).await
            {
                return Ok(result);
            }
            let open = Open::dial(connector, query.port).await?;
            open.exchange(connector, query).await
        };
        let result = timeout(query.timeout, attempt).await;
        let (open, response) = result.unwrap_or(Err(QueryError::Late(query.timeout)))?;
        self.0 = open;
        Ok(response)
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
        let presented = io.presented().map(|presented| (presented, generation));
        let wire = Wire::new(MemberIo::new(io, None));
        Ok(Self { wire, presented })
    }

    /// Whether the connection is still open, and the member's certificate is valid according to the active trust store.
    fn is_usable(&mut self, connector: &Connector) -> bool {
        let verified = match (&connector.check, &self.presented) {
            (Some(check), Some((presented, generation))) => {
                check.generation() == *generation || check.verify(presented).is_ok()
            }
            _ => true,
        };
        verified && self.wire.is_silent()
    }

    /// Sends a query. Also returns the connection, if it can be reused.
    async fn exchange(
        mut self,
        connector: &Connector,
        query: &MemberQuery<'_>,
    ) -> Result<(Option<Self>, QueryResponse), QueryError> {
        let (response, lasts) = exchange_on(&mut self.wire, connector, query, None).await?;
        let certificate = self
            .presented
            .as_ref()
            .map(|(presented, _)| presented.clone());
        let response = QueryResponse {
            certificate,
            ..response
        };
        Ok((lasts.then_some(self), response))
    }
}
