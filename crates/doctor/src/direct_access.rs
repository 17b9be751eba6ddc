//! How a member treats clients other than a proxy: without a certificate, with that of an ordinary agent, and over
//! plain HTTP.
//!
//! Each such client claims the proxy's name. A member that believes this claim would believe any name.

use std::{io::ErrorKind, net::IpAddr, sync::Arc};

use balancing::host_and_port;
use http::StatusCode;
use pki::{MemberNames, TrustStore};
use tokio::task::JoinSet;
use upstream::{Connector, DialError, DialStage, MemberAddress, Plaintext, QueryError, Scheme};

use crate::{
    Check, DoctorReport, FindingSeverity, claimed_identity,
    forged_headers::{CA_BELIEVES, CA_BELIEVES_REMEDY},
    member::{AccessPath, Member, MemberContext, Role, is_refusal, role},
};

/// The access paths to a member that doctor tries. Reports the facts that are known without trying.
pub(crate) fn access_paths(
    asked: &MemberContext<'_>,
    connector: &Connector,
    report: &mut DoctorReport,
) -> Vec<AccessPath> {
    let MemberAddress::Tcp { host, port } = &connector.target else {
        return Vec::new(); // Who may open a Unix socket, the file system says.
    };
    if role(asked.pool, asked.prepared) == Role::Other {
        return Vec::new();
    }
    match asked.pool.upstream.scheme {
        Scheme::Https => of_tls(asked, connector, (host, *port)),
        Scheme::Http => of_plain(asked, host, report),
    }
}

fn of_tls(
    asked: &MemberContext<'_>,
    connector: &Connector,
    (host, port): (&str, u16),
) -> Vec<AccessPath> {
    let Some(tls) = asked.prepared.tls_of(asked.pool) else {
        return Vec::new();
    };
    let names = MemberNames {
        indicated: tls.indication,
        from_cn: tls.settings.name_from_cn,
    };
    let own_name = asked.server_name.unwrap_or(host);
    let by = (&tls.trust, names);
    let mut access_paths = over_tls(asked, (&connector.address, asked.server_name), by, "");
    for other in &asked.examination.tls_ports {
        if *other != port && !is_own_listener(asked, host, *other) {
            let (there, at) = (host_and_port(host, *other), on_port(*other));
            let mut elsewhere = over_tls(asked, (&there, Some(own_name)), by, &at);
            elsewhere
                .iter_mut()
                .for_each(|access_path| access_path.is_members = false);
            access_paths.append(&mut elsewhere);
        }
    }
    let mut ports = vec![port];
    ports.extend(
        asked
            .examination
            .plain_ports
            .iter()
            .filter(|other| **other != port),
    );
    for port in ports {
        let way = asked.connector(&host_and_port(host, port), None, None);
        access_paths.extend(way.map(|connector| AccessPath {
            check: Check::OutsidePlain,
            how: format!("in plain HTTP on port {port}"),
            connector,
            is_members: false,
        }));
    }
    access_paths
}

/// A plain port is meant to trust headers. The same process may also have a TLS port that was forgotten.
fn of_plain(asked: &MemberContext<'_>, host: &str, report: &mut DoctorReport) -> Vec<AccessPath> {
    let local = asked.pool.upstream.plaintext == Plaintext::Loopback;
    let (grade, found, remedy) = if local {
        (
            FindingSeverity::Note,
            "plain HTTP on loopback: every user of this host can send it any identity",
            "allow no other users to log in to this host",
        )
    } else {
        (
            FindingSeverity::Warning,
            "plain HTTP over a network: every host on the network path can send it any identity",
            "use scheme = \"https\" with a certificate of a separate CA that serves no other purpose",
        )
    };
    report.found(Check::OutsidePlain, grade, asked.about, found, remedy);
    let trust = asked.prepared.trust();
    let own_name = asked
        .prepared
        .config()
        .certname
        .as_deref()
        .filter(|_| local);
    let name = asked.server_name.or(own_name);
    let names = MemberNames {
        indicated: false,
        from_cn: true,
    };
    let mut access_paths = Vec::new();
    for port in &asked.examination.tls_ports {
        if local && is_own_listener(asked, host, *port) {
            continue;
        }
        let there = host_and_port(host, *port);
        let by = (trust, names);
        access_paths.append(&mut over_tls(asked, (&there, name), by, &on_port(*port)));
    }
    access_paths
}

/// Access paths without a certificate, and with that of an ordinary agent if one was provided.
fn over_tls(
    asked: &MemberContext<'_>,
    (address, name): (&str, Option<&str>),
    (trust, names): (&Arc<TrustStore>, MemberNames),
    at: &str,
) -> Vec<AccessPath> {
    let unknown = (Check::OutsideAnonymous, None, "without a certificate");
    let agent = asked.agent.map(|agent| {
        let how = "with an ordinary agent's certificate";
        (Check::OutsideAgent, Some(agent), how)
    });
    let credentials = std::iter::once(unknown).chain(agent);
    credentials
        .filter_map(|(check, credential, how)| {
            Some(AccessPath {
                check,
                how: format!("{at}{how}"),
                connector: asked.connector(address, name, Some((trust, credential, names)))?,
                is_members: true,
            })
        })
        .collect()
}

fn on_port(port: u16) -> String {
    format!("over TLS on port {port}, ")
}

/// Whether this port of a member's host may belong to one of the proxy's own listeners.
fn is_own_listener(asked: &MemberContext<'_>, host: &str, port: u16) -> bool {
    let is_here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    let mut listeners = asked.prepared.config().listeners.iter();
    is_here && listeners.any(|listener| listener.endpoints().any(|own| own.port() == Some(port)))
}

pub(crate) async fn examine(member: &Member, report: &mut DoctorReport) {
    for access_path in &member.access_paths {
        report_outcome(
            member,
            access_path,
            try_door(member, access_path).await,
            report,
        );
    }
}

/// Tries the other ports of a member whose own port could not be reached, because they may be open. A port whose answer
/// proves nothing is not reported.
pub(crate) async fn examine_unreached(member: &Member, report: &mut DoctorReport) {
    let mut tried = JoinSet::new();
    // The member's own TLS port was tried just now.
    let is_tried = |access_path: &&AccessPath| access_path.is_members && member.connector.is_tls();
    for access_path in member
        .access_paths
        .iter()
        .filter(|access_path| !is_tried(access_path))
    {
        let (member, access_path) = (member.clone(), access_path.clone());
        tried.spawn(async move {
            let outcome = try_door(&member, &access_path).await;
            (member, access_path, outcome)
        });
    }
    while let Some(tried) = tried.join_next().await {
        if let Ok((member, access_path, outcome)) = tried
            // A host that is down answers on no port, which does not prove that its ports are closed.
            && !matches!(outcome, DirectAccess::Unknown(_) | DirectAccess::Closed)
        {
            report_outcome(&member, &access_path, outcome, report);
        }
    }
}

fn report_outcome(
    member: &Member,
    access_path: &AccessPath,
    outcome: DirectAccess,
    report: &mut DoctorReport,
) {
    let (check, about, how) = (access_path.check, &member.about, &access_path.how);
    match outcome {
        DirectAccess::Closed => report.passed(check, &format!("{about}, {how}")),
        DirectAccess::Unknown(why) => report.found(
            check,
            FindingSeverity::Note,
            about,
            format!("not tested {how}: {why}"),
            "fix that first, then run doctor again",
        ),
        DirectAccess::Served(status) => report.found(
            check,
            FindingSeverity::Warning,
            about,
            format!("it answers {status} to a client that connects {how}: only its authorization rules refuse the request, and the port accepts every client"),
            REMEDY,
        ),
        DirectAccess::Believed(what) if member.role == Role::Ca => {
            let found = format!("{CA_BELIEVES}; this was tested {how} ({what})");
            report.found(check, FindingSeverity::Failure, about, found, CA_BELIEVES_REMEDY);
        }
        DirectAccess::Believed(what) => report.found(
            check,
            FindingSeverity::Failure,
            about,
            format!("it trusts the identity headers of every client that connects {how}: {what}"),
            REMEDY,
        ),
    }
}

/// The result of an attempt.
pub(crate) enum DirectAccess {
    /// No server answered.
    Closed,
    /// A server answered and did not believe the claim.
    Served(StatusCode),
    Believed(String),
    Unknown(String),
}

pub(crate) async fn try_door(member: &Member, access_path: &AccessPath) -> DirectAccess {
    let forgery = claimed_identity::forgery(member.form(), member.proxy_identity.as_ref());
    // The status with which a compiler answers a request for a node. A CA server gets no such request, because it must
    // accept agents.
    let mut answered = None;
    // A CA server serves its documents to every client, so they do not show which identity it believes.
    if member.role == Role::Compiler {
        let path = member.node(member.own_name());
        match member
            .query(&access_path.connector, &path, forgery.clone())
            .await
        {
            Ok(answer) if answer.status.is_success() => {
                return DirectAccess::Believed(format!("{path} answered {}", answer.status));
            }
            Ok(answer) => answered = Some(answer.status),
            Err(error) => return closed(&error),
        }
    }
    let stands_open = answered.filter(|_| access_path.is_members);
    // A server that reads the headers of every client fails to decode this certificate, whatever its rules for nodes
    // are.
    let path = member.open_path();
    let plain = member
        .query(
            &access_path.connector,
            path,
            claimed_identity::unknown_client(member.form()),
        )
        .await;
    let broken = claimed_identity::broken(forgery, member.form());
    let broken = member.query(&access_path.connector, path, broken).await;
    match (plain, broken) {
        (Ok(plain), Ok(broken))
            if broken.status == StatusCode::BAD_REQUEST && plain.status != broken.status =>
        {
            DirectAccess::Believed(format!(
                "{path} with a certificate that cannot be decoded answered 400"
            ))
        }
        _ if let Some(answered) = stands_open => DirectAccess::Served(answered),
        // No server has answered there yet.
        (Err(error), Err(_)) if answered.is_none() => closed(&error),
        (Err(error), _) | (_, Err(error)) => DirectAccess::Unknown(error.to_string()),
        // If the server does not serve the status, the answer proves nothing about headers, whatever else the port
        // serves.
        (Ok(plain), Ok(_)) if !plain.status.is_success() && is_puppets(answered) => {
            DirectAccess::Unknown(format!("{path} answered {}", plain.status))
        }
        _ => DirectAccess::Closed,
    }
}

/// Whether a Puppet Server may have answered: a server that refuses a node, or a CA server, which got no such request.
fn is_puppets(answered: Option<StatusCode>) -> bool {
    answered.is_none_or(is_refusal)
}

/// Whether the port is closed. Only an action of the other side, or of a packet filter before it, shows this. An error
/// of this host, such as a missing route, means that the port was not tried.
fn closed(error: &QueryError) -> DirectAccess {
    let is_closed = match error {
        error if error.refused_certificate() => false,
        QueryError::Broken(_) => true,
        QueryError::Dial(DialError::Handshake { .. }) => true,
        QueryError::Dial(DialError::Late { stage, .. }) => *stage == DialStage::Connect,
        QueryError::Dial(DialError::Connect { source, .. }) => matches!(
            source.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionReset
                | ErrorKind::HostUnreachable
                | ErrorKind::TimedOut
        ),
        // The attempt failed after the connection was accepted, or before it was tried.
        QueryError::Late(_) | QueryError::Dial(_) => false,
    };
    if is_closed {
        DirectAccess::Closed
    } else {
        DirectAccess::Unknown(error.to_string())
    }
}

const REMEDY: &str = "accept only certificates of the proxies there (`client-auth: need`, `ssl-ca-cert` with a separate CA for them), disable the plain HTTP port, or close its ports with a packet filter";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_closed_only_if_the_other_side_did_not_accept_the_connection() {
        for (kind, expected) in [
            (ErrorKind::ConnectionRefused, true),
            (ErrorKind::HostUnreachable, true),
            (ErrorKind::TimedOut, true),
            (ErrorKind::NetworkUnreachable, false),
            (ErrorKind::PermissionDenied, false),
            (ErrorKind::AddrNotAvailable, false),
        ] {
            let error = QueryError::Dial(DialError::Connect {
                address: "c1:8139".into(),
                source: kind.into(),
            });
            let is_closed = matches!(closed(&error), DirectAccess::Closed);
            assert_eq!(is_closed, expected, "{kind:?}");
        }
    }
}
