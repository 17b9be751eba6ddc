//! The request for a renewed certificate: one POST to the CA server that gets the writes. It uses TLS with the certificate that
//! is to be renewed, and the CA learns only from TLS which certificate that is.

use std::{sync::Arc, time::Duration};

use balancing::Administrative;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use pki::Credential;
use proxy::Generation;
use routing::pool_names;
use state::Foundation;
use upstream::{MemberQuery, QueryResponse, printable};

use crate::own_renewal::failure::RenewalFailure;

const PATH: &str = "/puppet-ca/v1/certificate_renewal";
/// Maximum time of the request. A CA answers in milliseconds.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum bytes of a response. A certificate with all its extensions needs a tenth of that.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A response with status code 200.
pub(crate) struct RenewalAnswer {
    pub(crate) member: Arc<str>,
    pub(crate) body: Vec<u8>,
}

/// Requests the renewal of `credential` once. No other member is tried, because each request uses a serial number of the CA.
///
/// # Errors
/// The CA has not renewed it.
pub(crate) async fn request_renewal(
    generation: &Generation,
    foundation: &Foundation,
    credential: &Credential,
) -> Result<RenewalAnswer, RenewalFailure> {
    let connector = ca_server(generation).map_err(RenewalFailure::Unreached)?;
    let tls = foundation.tls_presenting(pool_names::CA, credential);
    let connector = connector.with_tls(tls.map_err(RenewalFailure::Unreached)?);
    let member = Arc::clone(&connector.address);
    let field = HeaderValue::from_static;
    let post = MemberQuery {
        method: Method::POST,
        path: PATH,
        port: None,
        headers: HeaderMap::from_iter([
            (header::ACCEPT, field("text/plain")),
            (header::ACCEPT_ENCODING, field("identity")),
            (header::CONTENT_TYPE, field("text/plain")),
        ]),
        timeout: REQUEST_TIME_MAX,
        // One more byte than allowed shows that the response is too long.
        body_bytes_max: ANSWER_BYTES_MAX + 1,
    };
    let answer = upstream::query(&connector, &post).await;
    let answer = answer.map_err(|error| {
        RenewalFailure::Unreached(format!("the CA server {member} did not answer: {error}"))
    })?;
    let body = body_of(&member, answer)?;
    Ok(RenewalAnswer { member, body })
}

/// The member that gets the writes to the CA.
fn ca_server(generation: &Generation) -> Result<Arc<upstream::Connector>, String> {
    let pool = generation
        .ca_pool
        .and_then(|pool| generation.pools.get(pool));
    let pool = pool.ok_or("there is no pool `ca`")?;
    let writer = pool.pool.writer().ok_or("pool `ca` has no member now")?;
    let connector = &pool.members[writer].connector;
    let state = pool.pool.entries()[writer].member.operator_state();
    match state == Administrative::Maintenance {
        true => Err(format!("{} is in maintenance", connector.address)),
        false => Ok(Arc::clone(connector)),
    }
}

fn body_of(member: &Arc<str>, answer: QueryResponse) -> Result<Vec<u8>, RenewalFailure> {
    let QueryResponse {
        status,
        headers,
        body,
        ..
    } = answer;
    let member = Arc::clone(member);
    match status {
        StatusCode::OK if headers.contains_key(header::CONTENT_ENCODING) => {
            let why = "it has a Content-Encoding that was not requested".to_owned();
            Err(RenewalFailure::Unusable { member, why })
        }
        StatusCode::OK if body.len() > ANSWER_BYTES_MAX => {
            let why = format!("it has more than {ANSWER_BYTES_MAX} bytes");
            Err(RenewalFailure::Unusable { member, why })
        }
        StatusCode::OK => Ok(body.into()),
        StatusCode::NOT_FOUND => Err(RenewalFailure::NotSupported { member }),
        status => {
            let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
            Err(RenewalFailure::Refused {
                member,
                status,
                text: printable(text.trim()),
            })
        }
    }
}

/// Maximum bytes of an error response's text that are shown.
const SHOWN_BYTES_MAX: usize = 256;
