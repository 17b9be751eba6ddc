//! Renewals: what the CA answers goes on only if it is the client's next certificate.
//!
//! Behind mutual TLS the CA sees our certificate beside the one we tell it of. One that does not believe us renews ours,
//! and who asked would be handed a certificate of this proxy's name. The first such answer ends renewals until an
//! operator has looked: each further one would burn a serial of the CA and could replace our certificate there.

use std::{future::poll_fn, sync::Arc};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, header::CONTENT_ENCODING, request, response};
use identity::ClientIdentity;
use pki::RenewedCertificateError;
use routing::ForwardPlan;
use tokio::time::{Instant, timeout};
use upstream::{MemberBody, WireError};

use crate::{
    context::RequestContext, error::ProxyError, generation::Generation, pool_runtime::PoolRuntime,
    reason::LogReason, response_body::AnswerBody, upload::RequestBody,
};

/// Most bytes of an answer: a certificate with all its extensions has a tenth of that.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Whether a renewal may be sent: none is off, and the CA will be told whose certificate it is about.
pub(crate) fn admit(
    context: &RequestContext,
    plan: &ForwardPlan<'_>,
    pool: &PoolRuntime,
) -> Result<(), ProxyError> {
    if !plan.is_renewal() {
        return Ok(());
    }
    if context.worker.shared.renewal.off().is_some() {
        return Err(ProxyError::RenewalOff);
    }
    // Without it the CA would take the certificate that it sees, which is ours.
    match context.verdict.headers.has_certificate(&pool.rules.form) {
        true => Ok(()),
        false => Err(ProxyError::RenewalWithoutCertificate),
    }
}

/// Whether a request is one whose answer is waited for and judged though its client goes away: what the CA has renewed it
/// has renewed, and it might be our certificate.
pub(crate) fn outlasts_client(generation: &Generation, head: &request::Parts) -> bool {
    generation.ca.renewal
        && head.method == Method::POST
        && head
            .uri
            .path()
            .starts_with("/puppet-ca/v1/certificate_renewal")
}

/// The body of the CA's answer: read whole, if it is the client's next certificate; as it comes where the CA says why
/// there is none.
pub(crate) async fn verify_response(
    context: &RequestContext,
    pool: &PoolRuntime,
    member: &Arc<str>,
    head: &response::Parts,
    mut body: MemberBody<RequestBody>,
) -> Result<AnswerBody, ProxyError> {
    let status = head.status;
    if status.is_redirection() {
        // Agents follow, with the same request, to wherever it says.
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
        // What a reader makes of it is not what was judged.
        _ if is_coded(&head.headers) => Err(RenewedCertificateError::Unreadable(
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
        (Ok(()), Some(answer)) => Ok(AnswerBody::Whole(answer)),
        (checked, _) => {
            let what = checked.err().map_or_else(String::new, |e| e.to_string());
            let client = context
                .verdict
                .certname
                .as_deref()
                .unwrap_or("-")
                .escape_default();
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

fn is_coded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Nothing where it is longer than any certificate.
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
