//! What helps with a member that could not be asked, by what it said or left unsaid.

use std::sync::Arc;

use identity::Reason;
use pki::MemberError;
use upstream::{AskError, Connector, DialError, DialStage};

use super::{
    Check, Grade, Proof, claim,
    members::{Member, STATUS, story},
};

/// Tells why, and what to do.
pub(super) async fn told(member: &Member, error: &AskError, proof: &mut Proof) {
    let mut found = story(error);
    let (check, remedy) = match error {
        error if error.is_ours() => (Check::MemberCertificate, of_certificate(error)),
        error if let Some(alert) = error.alert() => of_alert(&alert),
        AskError::Dial(DialError::Resolve { .. }) => (
            Check::MemberReached,
            "see to the name in DNS or in /etc/hosts, or to its spelling in `members`",
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
    proof.found(check, Grade::Failure, about, found.trim_end(), remedy);
}

/// Another protocol at the same address, where that is what is wrong.
async fn speaks_otherwise(
    member: &Member,
    error: &AskError,
) -> Option<(&'static str, &'static str)> {
    // Who waits for the end of a line of HTTP says nothing to a handshake.
    let is_there = matches!(error, AskError::Broken(_)) || in_handshake(error);
    let otherwise: &Arc<Connector> = member.otherwise.as_ref().filter(|_| is_there)?;
    let answer = member
        .ask(otherwise, STATUS, claim::nobody(member.form()))
        .await;
    match (member.connector.is_tls(), answer) {
        // Some web servers say in plain HTTP that they want TLS.
        (true, Ok(answer)) if answer.status != http::StatusCode::BAD_REQUEST => Some((
            "it speaks plain HTTP there, and this pool speaks TLS",
            "name the port in `members` where that server speaks TLS; `scheme = \"http\"` is for servers on loopback",
        )),
        (false, Ok(_)) => Some(SPEAKS_TLS),
        (false, Err(error)) if error.is_ours() || error.alert().is_some() => Some(SPEAKS_TLS),
        _ => None,
    }
}

const SPEAKS_TLS: (&str, &str) = (
    "it speaks TLS there, and this pool speaks plain HTTP",
    "say `scheme = \"https\"` in the pool, or name the port in `members` where that server speaks plain HTTP",
);

/// By what we have against its certificate.
fn of_certificate(error: &AskError) -> &'static str {
    match error.tls().and_then(MemberError::find) {
        Some(MemberError::Certificate { reason, .. }) => match reason {
            Reason::Expired => {
                "requests are not sent there either: have its certificate made anew on that server"
            }
            Reason::NotYetValid | Reason::CaNotYetValid => {
                "requests are not sent there either: compare `date -u` here, there and on the CA server, and set all by NTP"
            }
            Reason::CaExpired => {
                "requests are not sent there either: renew the CA's certificate (`ca-dates`), and put it into the bundle of the pool's `[tls] ca`"
            }
            Reason::CrlMissing | Reason::CrlExpired => {
                "requests are not sent there either: see to that list (`crl`); nothing is wrong with the member"
            }
            Reason::Revoked => {
                "requests are not sent there either: give that server another certificate, or take it out of `members`"
            }
            _ => WRONG_CA,
        },
        Some(
            MemberError::WrongName { .. }
            | MemberError::WrongCommonName { .. }
            | MemberError::NoSubjectAltName { .. },
        ) => {
            "requests are not sent there either: say `server_name` beside its address in `members`, or give it a certificate with that name"
        }
        _ => WRONG_CA,
    }
}

const WRONG_CA: &str = "requests would not be sent there either: give it a certificate of the CA in the pool's `[tls] ca` with that name";

/// By what it has against ours.
fn of_alert(alert: &str) -> (Check, &'static str) {
    let remedy = match alert {
        alert if NO_CERTIFICATES.contains(&alert) => {
            let remedy = "it speaks neither TLS 1.2 nor 1.3 with the ciphers that are spoken here: see to `ssl-protocols` and `cipher-suites` in its webserver.conf";
            return (Check::MemberReached, remedy);
        }
        "CertificateExpired" => {
            "see to the dates of our certificate towards it (`certificate-dates`); where they are good, that host's clock is wrong"
        }
        "CertificateRevoked" => {
            "the list at its `ssl-crl-path` names our certificate: have one made with a new key, and put both files in place"
        }
        "UnknownCA" => {
            "its `ssl-ca-cert` has to hold the CA of our certificate towards it (the pool's `[tls] chain`)"
        }
        _ => REFUSED,
    };
    (Check::CredentialAccepted, remedy)
}

/// Alerts that are about no certificate.
pub(super) const NO_CERTIFICATES: [&str; 2] = ["ProtocolVersion", "InsufficientSecurity"];

/// By what did not come.
fn silent(member: &Member, error: &AskError) -> (Check, &'static str) {
    match error {
        AskError::Broken(_) if member.connector.is_tls() => (Check::CredentialAccepted, REFUSED),
        AskError::Late(_) => (
            Check::MemberReached,
            "it takes connections and does not answer: its log says what it does; a restart frees one that hangs",
        ),
        error if in_handshake(error) => (
            Check::MemberReached,
            "somebody takes connections there and shakes no hands: see that it is a Puppet Server, and whether it hangs",
        ),
        _ => (
            Check::MemberReached,
            "see that it runs, listens on that address, and that no packet filter is in between",
        ),
    }
}

fn in_handshake(error: &AskError) -> bool {
    matches!(error, AskError::Dial(error) if error.stage() == DialStage::Handshake)
}

const REFUSED: &str = "see its log: its `ssl-ca-cert` has to hold the CA of our certificate (the pool's `[tls] chain`), and its `ssl-crl-path` a list of that CA that does not name it";
