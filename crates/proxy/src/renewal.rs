//! Certificate renewals: the CA's response is passed on only if it is the client's next certificate.
//!
//! With mutual TLS the CA sees the proxy's certificate in addition to the forwarded one. A CA that does not trust the forwarded
//! certificate renews the proxy's, and the client would get a certificate with the proxy's name. The first such response turns
//! renewal off until an operator acts: each further one would use up a serial of the CA, and could supersede the proxy's
//! certificate there. Some CAs revoke the certificate that they renew. A CA server that is not known to be Puppet Server
//! therefore gets no renewal at all.

use std::{future::poll_fn, sync::Arc};

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use http1::{Fields, RequestHead};
use identity::ClientIdentity;
use pki::RenewedCertificateError;
use tokio::time::{Instant, timeout};
use upstream::{MemberBody, MemberHead, WireError};

use crate::{
    ca_kind::may_renew, context::RequestContext, error::ProxyError, generation::Generation,
    pool_runtime::PoolRuntime, reason::LogReason, response_body::AnswerBody, upload::RequestBody,
};

/// Maximum bytes of a response. A certificate with all its extensions has a tenth of that.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Checks that a renewal may be sent.
///
/// # Errors
/// Renewal is off, the CA server is not known to be Puppet Server, or the CA would not get the certificate to renew.
pub(crate) async fn admit(context: &RequestContext, pool: &PoolRuntime) -> Result<(), ProxyError> {
    let renewal = &context.worker.shared.renewal;
    if renewal.is_forbidden() {
        return Err(ProxyError::RenewalOff);
    }
    // Without the header the CA would renew the certificate of the connection, which is the proxy's.
    if !context.verdict.headers.has_certificate(&pool.rules.form) {
        return Err(ProxyError::RenewalWithoutCertificate);
    }
    // The CA is asked for each renewal, because another CA may have taken over its address before.
    match may_renew(pool, context.generation.ca.kind, renewal).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(ProxyError::RenewalOff),
        Err(question) => Err(ProxyError::UnknownCa {
            pool: Arc::clone(pool.pool.name()),
            question,
        }),
    }
}

/// Whether the response to a request is awaited and verified even if the client goes away. The CA has renewed a certificate by
/// then, and it might be the proxy's.
pub(crate) fn outlasts_client(generation: &Generation, head: &RequestHead) -> bool {
    generation.ca.renewal
        && head.method == Method::POST
        && head
            .target
            .path()
            .starts_with("/puppet-ca/v1/certificate_renewal")
}

/// The body of the CA's response. A successful response is read completely, and its body must be the client's next certificate.
/// An error response is passed on as it arrives.
pub(crate) async fn verify_response(
    context: &RequestContext,
    pool: &PoolRuntime,
    member: &Arc<str>,
    head: &MemberHead,
    mut body: MemberBody<RequestBody>,
) -> Result<AnswerBody, ProxyError> {
    let status = head.status;
    let certname = context.verdict.certname.as_deref().unwrap_or("-");
    if status == StatusCode::BAD_REQUEST {
        let presented = pool.presented.as_deref();
        let renewal = &context.worker.shared.renewal;
        renewal.note_rejected(member, certname, presented);
    }
    if status.is_redirection() {
        // An agent would follow the redirect and send the same request again.
        return Err(ProxyError::Answer {
            member: Arc::clone(member),
            reason: LogReason::RenewalRedirected,
        });
    }
    if !status.is_success() {
        return Ok(AnswerBody::Streamed(body));
    }
    let read = timeout(pool.settings.idle_timeout, read_whole(&mut body)).await;
    let answer = match read {
        Ok(Ok(answer)) => {
            body.give_back(Instant::now());
            answer
        }
        Ok(Err(source)) => {
            return Err(ProxyError::Broken {
                member: Arc::clone(member),
                source,
                begun: true,
            });
        }
        Err(_) => {
            return Err(ProxyError::Answer {
                member: Arc::clone(member),
                reason: LogReason::BodyTimeout,
            });
        }
    };
    let checked = match (&answer, context.verdict.identity()) {
        // A body with a content coding cannot be verified, because the client would decode it to other bytes.
        _ if is_coded(&head.fields) => Err(RenewedCertificateError::Unreadable(
            "it has a Content-Encoding, although the request did not accept one".to_owned(),
        )),
        (Some(answer), ClientIdentity::Verified(agent)) => {
            pki::check_renewed_certificate(agent.leaf(), answer)
        }
        _ => Err(RenewedCertificateError::Unreadable(format!(
            "it has more than {ANSWER_BYTES_MAX} bytes"
        ))),
    };
    match (checked, answer) {
        (Ok(()), Some(answer)) => {
            context.worker.shared.renewal.note_renewed(member);
            Ok(AnswerBody::Whole(answer))
        }
        (checked, _) => {
            let what = checked.err().map_or_else(String::new, |e| e.to_string());
            let client = certname.escape_default();
            context.worker.shared.renewal.forbid(&format!(
                "the CA server {member} answered the renewal of {client} with something other than its new certificate: {what}"
            ));
            Err(ProxyError::NotRenewed {
                member: Arc::clone(member),
                what,
            })
        }
    }
}

fn is_coded(fields: &Fields) -> bool {
    let mut codings = fields.all("content-encoding");
    codings.any(|coding| !coding.eq_ignore_ascii_case(b"identity"))
}

/// Reads the whole body. `None` if it is longer than any certificate.
async fn read_whole(body: &mut MemberBody<RequestBody>) -> Result<Option<Bytes>, WireError> {
    let mut whole = BytesMut::new();
    while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
        let data = data?;
        if whole.len() + data.len() > ANSWER_BYTES_MAX {
            return Ok(None);
        }
        whole.extend_from_slice(&data);
    }
    Ok(Some(whole.freeze()))
}
