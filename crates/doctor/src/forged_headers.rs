//! How a member treats identities that arrive with the proxy's credential: the proxy's own, and that of an unknown
//! client.

use http::StatusCode;
use identity::{HeaderForm, HeaderSet};
use upstream::QueryResponse;

use crate::{
    Check, DoctorReport, FindingSeverity,
    claimed_identity::{self, UNKNOWN_NAME},
    member::{Member, describe, is_refusal},
    member_services::unclear,
};

/// Tests that a compiler believes the proxy's headers about the client's identity, and uses them.
pub(crate) async fn compiler(member: &Member, simple: &QueryResponse, report: &mut DoctorReport) {
    headers_read(member, simple, report).await;
    unknown_client(member, report).await;
    own_node(member, report).await;
    others_node(member, report).await;
}

/// Tests whether the server reads the header. If it does, it answers 400 on every endpoint to a certificate that cannot
/// be decoded.
async fn headers_read(member: &Member, simple: &QueryResponse, report: &mut DoctorReport) {
    // For other servers it is not known from which header they read the certificate, and how they answer an invalid
    // one.
    let usual = HeaderForm::default();
    let puppets = member.form().sends(HeaderSet::Puppet);
    if member.is_legacy()
        || !puppets
        || member.form().verify != usual.verify
        || member.form().dn != usual.dn
    {
        return report.found(
            Check::HeadersRead,
            FindingSeverity::Note,
            &member.about,
            "not tested: how a server that reads other headers responds to an invalid certificate is unknown",
            "check that `own-node` and `unknown-client` passed: they show which headers it trusts",
        );
    }
    let fields = match &member.proxy_identity {
        Some(proxy_identity) => proxy_identity.fields(member.form(), false),
        None => claimed_identity::unknown_client(member.form()),
    };
    let fields = claimed_identity::broken(fields, member.form());
    let about = &member.about;
    match member.query_as_proxy(member.open_path(), fields).await {
        Ok(_) if !simple.status.is_success() => {
            unclear(Check::HeadersRead, about, not_served(member, simple), report);
        }
        Ok(answer) if answer.status == simple.status => report.found(
            Check::HeadersRead,
            FindingSeverity::Failure,
            about,
            "it does not read the trusted headers, so every request has the identity of the proxy's certificate, or none",
            "set `allow-header-cert-info: true` in its auth.conf, close its ports to everything except the proxies, and restart it",
        ),
        Ok(answer) if answer.status == StatusCode::BAD_REQUEST => {
            report.passed(Check::HeadersRead, about);
        }
        Ok(answer) => {
            let found = format!("the response to a certificate that cannot be decoded was {}, not 400", answer.status);
            unclear(Check::HeadersRead, about, found, report);
        }
        Err(error) => unclear(Check::HeadersRead, about, describe(&error), report),
    }
}

/// Tests a request of an unknown client. Behind mutual TLS a member sees the proxy's certificate, so any right of that
/// certificate would be a right of every client.
async fn unknown_client(member: &Member, report: &mut DoctorReport) {
    let path = member.node(member.own_name());
    let about = &member.about;
    match member.query_as_proxy(&path, claimed_identity::unknown_client(member.form())).await {
        Ok(answer) if is_refusal(answer.status) => report.passed(Check::UnknownClient, about),
        Ok(answer) if answer.status.is_success() => report.found(
            Check::UnknownClient,
            FindingSeverity::Failure,
            about,
            format!("it answered {} to {path} for an unverified client: it uses the identity of the proxy's certificate, or requires none", answer.status),
            "set `allow-header-cert-info: true` in its auth.conf, and make sure that no rule for nodes there has `allow-unauthenticated: true`",
        ),
        Ok(answer) => unclear(Check::UnknownClient, about, format!("{path} answered {}", answer.status), report),
        Err(error) => unclear(Check::UnknownClient, about, describe(&error), report),
    }
}

async fn own_node(member: &Member, report: &mut DoctorReport) {
    let Some(proxy_identity) = &member.proxy_identity else {
        return;
    };
    let about = &member.about;
    let path = member.node(proxy_identity.certname());
    let fields = proxy_identity.fields(member.form(), member.rules.forward_cert);
    match member.query_as_proxy(&path, fields).await {
        Ok(answer) if answer.status.is_success() => report.passed(Check::OwnNode, about),
        Ok(answer) if is_refusal(answer.status) => report.found(
            Check::OwnNode,
            FindingSeverity::Failure,
            about,
            format!("it answered {} to {path} for the verified client {}: it refuses agents in the same way", answer.status, proxy_identity.certname()),
            "set `allow-header-cert-info: true` in its auth.conf, and make sure that its rules allow each node its own documents; `[pools.NAME.identity]` sets which headers the proxy sends",
        ),
        Ok(answer) => unclear(Check::OwnNode, about, format!("{path} answered {}", answer.status), report),
        Err(error) => unclear(Check::OwnNode, about, describe(&error), report),
    }
}

async fn others_node(member: &Member, report: &mut DoctorReport) {
    let Some(proxy_identity) = &member.proxy_identity else {
        return;
    };
    let about = &member.about;
    let path = member.node(UNKNOWN_NAME);
    let fields = proxy_identity.fields(member.form(), member.rules.forward_cert);
    match member.query_as_proxy(&path, fields).await {
        Ok(answer) if is_refusal(answer.status) => report.passed(Check::OthersNode, about),
        Ok(answer) if answer.status.is_success() => report.found(
            Check::OthersNode,
            FindingSeverity::Failure,
            about,
            format!(
                "it serves the documents of another node to {}: {path} answered {}",
                proxy_identity.certname(),
                answer.status
            ),
            "its auth.conf must allow each node only its own documents (`allow: \"$1\"`)",
        ),
        Ok(answer) => unclear(
            Check::OthersNode,
            about,
            format!("{path} answered {}", answer.status),
            report,
        ),
        Err(error) => unclear(Check::OthersNode, about, describe(&error), report),
    }
}

/// Tests a CA server. If it believes headers, it signs for any client that forges a certificate into a header. If it
/// grants rights to the proxy's certificate, every client of the proxy has them.
pub(crate) async fn ca(member: &Member, is_ca: bool, report: &mut DoctorReport) {
    ca_headers(member, report).await;
    if is_ca {
        ca_rights(member, report).await;
    }
}

async fn ca_headers(member: &Member, report: &mut DoctorReport) {
    let about = &member.about;
    let unknown = claimed_identity::unknown_client(member.form());
    let fields = match &member.proxy_identity {
        Some(proxy_identity) => proxy_identity.fields(member.form(), false),
        None => unknown.clone(),
    };
    let plain = member.query_as_proxy(member.open_path(), unknown).await;
    let broken = member
        .query_as_proxy(
            member.open_path(),
            claimed_identity::broken(fields, member.form()),
        )
        .await;
    match (plain, broken) {
        // If the server does not serve the status, the answer proves nothing about headers, whatever the endpoints of
        // the CA do.
        (Ok(plain), Ok(broken)) if plain.status == broken.status && !plain.status.is_success() => {
            unclear(Check::CaHeaders, about, not_served(member, &plain), report);
        }
        (Ok(plain), Ok(broken)) if plain.status == broken.status => {
            report.passed(Check::CaHeaders, about);
        }
        (_, Ok(broken)) if broken.status == StatusCode::BAD_REQUEST => {
            report.found(
                Check::CaHeaders,
                FindingSeverity::Failure,
                about,
                CA_BELIEVES,
                CA_BELIEVES_REMEDY,
            );
        }
        (_, Ok(broken)) => {
            let found = format!(
                "the response to a certificate that cannot be decoded was {}",
                broken.status
            );
            unclear(Check::CaHeaders, about, found, report);
        }
        (_, Err(error)) => unclear(Check::CaHeaders, about, describe(&error), report),
    }
}

/// The reason why an endpoint that is not served proves nothing.
fn not_served(member: &Member, plain: &QueryResponse) -> String {
    format!(
        "{} answered {}: the test needs a status endpoint that answers successfully",
        member.open_path(),
        plain.status
    )
}

async fn ca_rights(member: &Member, report: &mut DoctorReport) {
    let about = &member.about;
    let path = format!("/puppet-ca/v1/certificate_status/{}", member.own_name());
    match member.query_as_proxy(&path, claimed_identity::unknown_client(member.form())).await {
        Ok(answer) if is_refusal(answer.status) => report.passed(Check::CaRights, about),
        Ok(answer) if answer.status.is_success() || answer.status == StatusCode::NOT_FOUND => report.found(
            Check::CaRights,
            FindingSeverity::Failure,
            about,
            format!("it allows the proxy's certificate to administer the CA: {path} answered {}", answer.status),
            "remove the proxy's certname from its auth.conf, or use a certificate without rights there for the proxy",
        ),
        Ok(answer) => unclear(Check::CaRights, about, format!("{path} answered {}", answer.status), report),
        Err(error) => unclear(Check::CaRights, about, describe(&error), report),
    }
}

pub(crate) const CA_BELIEVES: &str = "the CA server trusts headers: it would sign certificates for any client that sends a forged certificate in a header";
pub(crate) const CA_BELIEVES_REMEDY: &str = "set `allow-header-cert-info: false` in its auth.conf and restart it: no request through this proxy needs it";
