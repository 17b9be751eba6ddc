//! The remedy for a member that could not be queried, depending on the error.

use std::sync::Arc;

use identity::Reason;
use pki::MemberError;
use upstream::{Connector, DialError, DialStage, QueryError};

use crate::{
    Check, DoctorReport, FindingSeverity, claimed_identity,
    member::{Member, NO_CERTIFICATES, STATUS, describe},
};

/// Reports the reason and the remedy.
pub(crate) async fn report_outcome(member: &Member, error: &QueryError, report: &mut DoctorReport) {
    let mut found = describe(error);
    let (check, remedy) = match error {
        error if error.refused_certificate() => (Check::MemberCertificate, of_certificate(error)),
        error if let Some(alert) = error.alert() => of_alert(&alert),
        QueryError::Dial(DialError::Resolve { .. }) => (
            Check::MemberReached,
            "correct the name in DNS or /etc/hosts, or in `members`",
        ),
        error => match speaks_otherwise(member, error).await {
            Some((what, remedy)) => {
                found = format!("{found}: {what}");
                (Check::MemberReached, remedy)
            }
            None => silent(member, error),
        },
    };
    let about = &member.about;
    report.found(
        check,
        FindingSeverity::Failure,
        about,
        found.trim_end(),
        remedy,
    );
}

/// Tries the other protocol at the same address, if the error suggests that the pool's protocol is wrong.
async fn speaks_otherwise(
    member: &Member,
    error: &QueryError,
) -> Option<(&'static str, &'static str)> {
    // A TLS handshake gets no answer from a server that waits for the end of an HTTP line.
    let is_there = matches!(error, QueryError::Broken(_)) || in_handshake(error);
    let otherwise: &Arc<Connector> = member.otherwise.as_ref().filter(|_| is_there)?;
    let answer = member
        .query(
            otherwise,
            STATUS,
            claimed_identity::unknown_client(member.form()),
        )
        .await;
    match (member.connector.is_tls(), answer) {
        // Some web servers answer in plain HTTP that they require TLS.
        (true, Ok(answer)) if answer.status != http::StatusCode::BAD_REQUEST => Some((
            "it uses plain HTTP there, but this pool uses TLS",
            "set the server's TLS port in `members`; `scheme = \"http\"` is for servers on loopback",
        )),
        (false, Ok(_)) => Some(SPEAKS_TLS),
        (false, Err(error)) if error.refused_certificate() || error.alert().is_some() => {
            Some(SPEAKS_TLS)
        }
        _ => None,
    }
}

const SPEAKS_TLS: (&str, &str) = (
    "it uses TLS there, but this pool uses plain HTTP",
    "set `scheme = \"https\"` in the pool, or set the server's plain HTTP port in `members`",
);

/// The remedy if the proxy refuses the member's certificate.
fn of_certificate(error: &QueryError) -> &'static str {
    match error.tls().and_then(MemberError::find) {
        Some(MemberError::Certificate { reason, .. }) => match reason {
            Reason::Expired => {
                "the proxy does not send requests to it either: renew its certificate on that server"
            }
            Reason::NotYetValid | Reason::CaNotYetValid => {
                "the proxy does not send requests to it either: compare `date -u` on this host, on that server and on the CA server, and synchronize their clocks with NTP"
            }
            Reason::CaExpired => {
                "the proxy does not send requests to it either: renew the CA certificate (`ca-dates`), and add it to the pool's `[tls] ca`"
            }
            Reason::CrlMissing | Reason::CrlExpired => {
                "the proxy does not send requests to it either: fix that CRL (`crl`); the member itself is not at fault"
            }
            Reason::Revoked => {
                "the proxy does not send requests to it either: issue another certificate for that server, or remove it from `members`"
            }
            _ => WRONG_CA,
        },
        Some(
            MemberError::WrongName { .. }
            | MemberError::WrongCommonName { .. }
            | MemberError::NoSubjectAltName { .. },
        ) => {
            "the proxy does not send requests to it either: set `server_name` for it in `members`, or issue a certificate with that name for it"
        }
        _ => WRONG_CA,
    }
}

const WRONG_CA: &str = "the proxy does not send requests to it either: issue a certificate with that name for it, from a CA in the pool's `[tls] ca`";

/// The finding for the alert that the member sends about the proxy's certificate.
fn of_alert(alert: &str) -> (Check, &'static str) {
    let remedy = match alert {
        alert if NO_CERTIFICATES.contains(&alert) => {
            let remedy = "it supports neither TLS 1.2 nor 1.3 with a cipher suite of the proxy: correct `ssl-protocols` and `cipher-suites` in its webserver.conf";
            return (Check::MemberReached, remedy);
        }
        "CertificateExpired" => {
            "check the dates of the proxy's certificate for this pool (`certificate-dates`); if they are valid, the clock of that host is wrong"
        }
        "CertificateRevoked" => {
            "the CRL at its `ssl-crl-path` revokes the proxy's certificate: create a new key, get a certificate for it, and replace both files"
        }
        "UnknownCA" => {
            "its `ssl-ca-cert` must contain the CA of the proxy's certificate (the pool's `[tls] chain`)"
        }
        _ => REFUSED,
    };
    (Check::CredentialAccepted, remedy)
}

/// The finding for a missing response.
fn silent(member: &Member, error: &QueryError) -> (Check, &'static str) {
    match error {
        QueryError::Broken(_) if member.connector.is_tls() => (Check::CredentialAccepted, REFUSED),
        QueryError::Late(_) => (
            Check::MemberReached,
            "it accepts connections but does not answer: look at its log, and restart it if it hangs",
        ),
        error if in_handshake(error) => (
            Check::MemberReached,
            "the port accepts connections but does not complete a TLS handshake: check that it is a Puppet Server, and whether it hangs",
        ),
        _ => (
            Check::MemberReached,
            "check that it runs and listens on that address, and that no packet filter blocks the connection",
        ),
    }
}

fn in_handshake(error: &QueryError) -> bool {
    matches!(error, QueryError::Dial(error) if error.stage() == DialStage::Handshake)
}

const REFUSED: &str = "look at its log: its `ssl-ca-cert` must contain the CA of the proxy's certificate (the pool's `[tls] chain`), and its `ssl-crl-path` a CRL of that CA that does not revoke the certificate";
