//! Whether a compiler accepts heads as long as the proxy may send. If not, it answers 431 to an agent with a large
//! certificate.

use http::{HeaderName, HeaderValue};
use upstream::{QueryError, QueryResponse};

use crate::{
    Check, DoctorReport, FindingSeverity,
    claimed_identity::{self, ProxyIdentity},
    member::{Member, describe},
    member_services::unclear,
};

/// The length of an agent's head without its certificate.
const REST_BYTES: usize = 512;
const PADDING: HeaderName = HeaderName::from_static("x-proscenium-doctor");

pub(crate) async fn examine(member: &Member, simple: &QueryResponse, report: &mut DoctorReport) {
    if !member.rules.forward_cert || member.is_legacy() {
        return;
    }
    let about = &member.about;
    let own = member.proxy_identity.as_ref();
    let own = own.map_or(0, |proxy_identity| {
        ProxyIdentity::certificate_length(proxy_identity, member.form())
    });
    let most = member.rules.forward_cert_bytes_max;
    let refused = match refused(member, simple, most + REST_BYTES).await {
        Ok(None) => return report.passed(Check::HeadRoom, about),
        Ok(Some(refused)) => refused,
        Err(error) => return unclear(Check::HeadRoom, about, describe(&error), report),
    };
    let ordinary = match own {
        0 => None,
        own => self::refused(member, simple, own + REST_BYTES)
            .await
            .unwrap_or_default(),
    };
    let grade = match ordinary {
        Some(_) => FindingSeverity::Failure,
        None => FindingSeverity::Warning,
    };
    report.found(
        Check::HeadRoom,
        grade,
        about,
        format!(
            "a request head with a certificate of {most} bytes (forward_cert_max) is too large for it: {refused}; the proxy's own certificate takes {own} bytes in a header"
        ),
        "raise `request-header-max-size` in its webserver.conf, or lower `forward_cert_max` of the pool",
    );
}

/// How the compiler refuses a head of this length; `None` if it accepts the head.
async fn refused(
    member: &Member,
    simple: &QueryResponse,
    bytes: usize,
) -> Result<Option<String>, QueryError> {
    let mut fields = claimed_identity::unknown_client(member.form());
    if let Ok(padding) = HeaderValue::from_str(&"x".repeat(bytes)) {
        fields.insert(PADDING, padding);
    }
    match member.query_as_proxy(crate::member::STATUS, fields).await {
        Ok(answer) if answer.status == simple.status => Ok(None),
        Ok(answer) => Ok(Some(format!("it answered {}", answer.status))),
        Err(error @ QueryError::Broken(_)) => Ok(Some(describe(&error))),
        Err(error) => Err(error),
    }
}
