//! How a member of a passthrough pool treats a client that forges identity headers, which the proxy passes through
//! unread.

use std::sync::Arc;

use config::PoolConfig;
use identity::HeaderForm;
use listener::ListenerSettings;
use pki::MemberNames;
use tokio::task::JoinSet;
use upstream::Connector;

use crate::{
    Check, DoctorReport, FindingSeverity, claimed_identity,
    direct_access::{self, DirectAccess},
    member::{AccessPath, Member, MemberContext, Role},
};
use lifecycle::PreparedStart;

/// The forms of identity headers that members in this configuration read, without duplicates.
pub(crate) fn forms(prepared: &PreparedStart) -> Vec<HeaderForm> {
    let pools = prepared.config().pools.iter();
    let pools = pools.filter(|pool| !pool.rules.passthrough.is_used);
    let mut forms = Vec::new();
    for pool in pools {
        if !forms.contains(&pool.rules.form) {
            forms.push(pool.rules.form.clone());
        }
    }
    forms
}

/// The access paths of clients through the proxy: TLS without a certificate, TLS with that of an ordinary agent, and
/// plain HTTP.
pub(crate) fn access_paths(asked: &MemberContext<'_>, connector: &Connector) -> Vec<AccessPath> {
    let trust = asked.prepared.trust();
    let requested = server_name(asked.prepared, asked.pool);
    let names = MemberNames {
        indicated: requested.is_some(),
        from_cn: true,
    };
    let name = asked.server_name.or(requested);
    let unknown = (None, "over TLS without a certificate");
    let agent = asked
        .agent
        .map(|agent| (Some(agent), "over TLS with an ordinary agent's certificate"));
    let over_tls = std::iter::once(unknown)
        .chain(agent)
        .map(|(credential, how)| (Some((trust, credential, names)), how));
    let ways = over_tls.chain([(None, "in plain HTTP")]);
    ways.filter_map(|(tls, how)| {
        let connector = asked.connector(&connector.address, name, tls)?;
        Some(AccessPath::passthrough(how, connector))
    })
    .collect()
}

/// A server name that a listener passes through to this pool.
fn server_name<'a>(prepared: &'a PreparedStart, pool: &PoolConfig) -> Option<&'a str> {
    let listeners = prepared.config().listeners.iter();
    let mut entries = listeners.flat_map(|listener: &ListenerSettings| &listener.sni_passthrough);
    let entry = entries.find(|entry| entry.pool == pool.pool.name)?;
    let mut names = entry.server_names.iter().map(String::as_str);
    names.find(|name| !name.starts_with("*."))
}

pub(crate) async fn examine(member: Member) -> DoctorReport {
    let mut report = DoctorReport::default();
    let mut tried = JoinSet::new();
    for access_path in member.access_paths.clone() {
        let member = member.clone();
        tried.spawn(async move {
            let outcome = try_door(&member, &access_path).await;
            (access_path, outcome)
        });
    }
    while let Some(tried) = tried.join_next().await {
        if let Ok((access_path, outcome)) = tried {
            report_outcome(&member, &access_path, outcome, &mut report);
        }
    }
    report
}

async fn try_door(member: &Member, access_path: &AccessPath) -> DirectAccess {
    let unknown = claimed_identity::unknown_client(member.form());
    match member
        .query(&access_path.connector, member.open_path(), unknown)
        .await
    {
        // doctor refused the member's certificate. The member might accept a client that does not verify it.
        Err(error) if matches!(error.tls(), Some(error) if is_refused_by_us(error)) => {
            DirectAccess::Unknown(error.to_string())
        }
        _ => direct_access::try_door(member, access_path).await,
    }
}

fn is_refused_by_us(error: &upstream::TlsError) -> bool {
    !matches!(error, upstream::TlsError::AlertReceived(_))
}

fn report_outcome(
    member: &Member,
    access_path: &AccessPath,
    outcome: DirectAccess,
    report: &mut DoctorReport,
) {
    let (about, how) = (&member.about, &access_path.how);
    match outcome {
        DirectAccess::Closed | DirectAccess::Served(_) => {
            report.passed(Check::Passthrough, &format!("{about}, {how}"));
        }
        DirectAccess::Unknown(why) => report.found(
            Check::Passthrough,
            FindingSeverity::Note,
            about,
            format!("not tested {how}: {why}"),
            "fix that first, then run doctor again",
        ),
        DirectAccess::Believed(what) => report.found(
            Check::Passthrough,
            FindingSeverity::Failure,
            about,
            format!("connections are passed through to it, and it trusts the identity headers of every client that connects {how}: {what}"),
            "disable trusted headers in that service (`allow-header-cert-info: false`), or terminate TLS at the proxy and route requests to it",
        ),
    }
}

/// A copy of a member that is queried with this form of headers.
pub(crate) fn member(
    asked: &MemberContext<'_>,
    member: Member,
    connector: &Arc<Connector>,
    form: HeaderForm,
) -> Member {
    let mut rules = member.rules.clone();
    rules.form = form;
    Member {
        role: Role::Compiler,
        access_paths: access_paths(asked, connector),
        rules,
        ..member
    }
}
