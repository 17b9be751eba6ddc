//! What the running proxy, if there is one, reports about itself.

use std::{path::Path, time::SystemTime};

use admin::{
    AdminClient, AdminClientError, AdministrativeState, ListenerStatus, MemberHealth, MemberStatus,
    Status, Timestamp,
};

use crate::{Check, DoctorReport, FindingSeverity};
use lifecycle::PreparedStart;

/// Examines the running proxy. `examined` is the configuration that the other checks examine, if a start would accept
/// it.
pub(crate) async fn examine(
    socket: &Path,
    examined: Option<&PreparedStart>,
    report: &mut DoctorReport,
) {
    let about = socket.display().to_string();
    let status = match AdminClient::new(socket).status().await {
        Ok(status) => status,
        // It is not an error to run doctor before the first start.
        Err(error @ AdminClientError::NotListening { .. }) => {
            let remedy = "start it, then run doctor again";
            return report.found(
                Check::Running,
                FindingSeverity::Note,
                &about,
                error.to_string(),
                remedy,
            );
        }
        Err(error) => {
            let remedy = unasked(&error);
            return report.found(
                Check::Running,
                FindingSeverity::Warning,
                &about,
                error.to_string(),
                remedy,
            );
        }
    };
    clocks(&status.listeners, SystemTime::now().into(), report);
    if let Some(examined) = examined {
        active(&about, &status, examined, report);
    }
    let before = report.findings.len();
    report_outcome(&about, &status, report);
    pools(&about, &status, report);
    if report.findings.len() == before {
        report.passed(Check::Running, &about);
    }
}

/// The remedy if another program listens on the socket and does not answer as a proxy would.
fn unasked(error: &AdminClientError) -> &'static str {
    match error {
        AdminClientError::PermissionDenied { .. } => "run as root or as the account of the service",
        AdminClientError::Late { .. } => {
            "`ss -xlp` shows which process listens there; if it is the proxy, look at its log, and restart it if it hangs"
        }
        _ => {
            "`ss -xlp` shows which process listens there: set --socket to the proxy's socket, or restart the proxy if its version differs from that of this command"
        }
    }
}

/// Compares the active configuration with that on disk, because a file may have been edited and not loaded.
fn active(about: &str, status: &Status, examined: &PreparedStart, report: &mut DoctorReport) {
    // The default number of workers is the number of cores, which may differ between the service and this account. The
    // fingerprints cannot be compared then.
    if status.limits.get("workers") != Some(&(examined.config().workers as u64)) {
        return;
    }
    let ours = examined.config().state_directory.display().to_string();
    let theirs = &status.state.directory;
    let (found, remedy) = if *theirs != ours {
        (
            format!(
                "the running proxy uses the state directory {theirs}, but doctor examined {ours}, so it did not use the proxy's blocks and fetched CRLs"
            ),
            format!(
                "run doctor with STATE_DIRECTORY={theirs}, as the service does, or set [state] directory"
            ),
        )
    } else if status.generation.fingerprint != examined.fingerprint() {
        (
            format!(
                "the running proxy uses another configuration or other files than those examined here, since {}",
                status.generation.loaded_at
            ),
            "run `proscenium reload` to activate these; or set --config, --ssldir and --certname as in the start of the proxy"
                .to_owned(),
        )
    } else {
        return;
    };
    report.found(Check::Running, FindingSeverity::Note, about, found, remedy);
}

/// Agents do not report their time. An agent with a wrong clock rejects the proxy's certificate or a CRL as expired or not yet
/// valid.
fn clocks(listeners: &[ListenerStatus], now: Timestamp, report: &mut DoctorReport) {
    for listener in listeners {
        let about = format!("agents on listener {}", listener.name);
        let Some(shown) = &listener.certificate_rejected else {
            report.passed(Check::AgentClocks, &about);
            continue;
        };
        let found = format!(
            "{} handshakes failed because the client refused the proxy's certificate, the last from {} on {} ({}): the client's clock is wrong, so that the certificate or the client's CRL is expired or not valid yet, or the client connected to a name that the certificate does not contain",
            shown.count, shown.client, shown.at, shown.alert
        );
        let since = now.unix_seconds().zip(shown.at.unix_seconds());
        // Agents connect twice an hour, so an agent with the same error has connected again. Only a restart resets the
        // counter.
        let (grade, remedy) = match since {
            Some((now, last)) if now.saturating_sub(last) > DISTRUST_SECONDS_MAX => (
                FindingSeverity::Note,
                "this has not happened for a day; the count starts again with a restart of the proxy",
            ),
            _ => (
                FindingSeverity::Warning,
                "compare `date -u` on both hosts, and synchronize them with NTP; if the clocks agree, run `proscenium check` to see the names in the proxy's certificates",
            ),
        };
        report.found(Check::AgentClocks, grade, &about, found, remedy);
    }
}

/// How long after the last rejected handshake doctor reports a warning. After that it reports a note.
const DISTRUST_SECONDS_MAX: i64 = 86_400;

fn report_outcome(about: &str, status: &Status, report: &mut DoctorReport) {
    let mut warn = |found: String, remedy: &str| {
        report.found(
            Check::Running,
            FindingSeverity::Warning,
            about,
            found,
            remedy,
        );
    };
    for alarm in &status.trust.alarms {
        warn(
            format!("alarm of the running proxy: {alarm}"),
            "see `proscenium status`",
        );
    }
    if let Some(refused) = &status.materials.refused {
        warn(
            format!(
                "files on disk are refused and not active since {}: {}",
                refused.since,
                refused.report.trim()
            ),
            "correct them; the proxy then loads them, at the latest after `proscenium reload`",
        );
    }
    if let Some(why) = &status.state.unusable {
        warn(
            format!("the state directory is unusable, so changes are lost at a restart: {why}"),
            "create the directory with mode 0700, owned by the account of the service",
        );
    }
    let refused = |alarm: &&admin::AlarmStatus| alarm.key.starts_with("renewals-refused");
    for alarm in status.alarms.iter().filter(refused) {
        warn(
            alarm.message.clone(),
            "let agents renew their certificates: infra_inventory.txt on the CA server, and `renewal = true` in [ca]",
        );
    }
    if let Some(off) = &status.renewal.off {
        warn(
            format!(
                "the proxy has forwarded no certificate renewals since {}: {}",
                off.since,
                off.why.trim()
            ),
            "fix the CA server first (docs: renewal of agents' certificates), then run `proscenium reload`",
        );
    }
}

/// Reports members that are down, and whether any member is available.
fn pools(about: &str, status: &Status, report: &mut DoctorReport) {
    for pool in &status.pools {
        // An operator may be working on a member in maintenance, so that it may be down.
        let down = pool.members.iter().filter(|member| {
            member.health == MemberHealth::Down
                && member.administrative_state != AdministrativeState::Maintenance
        });
        for member in down {
            report.found(
                Check::Running,
                FindingSeverity::Warning,
                about,
                format!("{} of pool {} is down", member.address, pool.name),
                "`proscenium status` shows the last probe",
            );
        }
        let is_out = |member: &MemberStatus| {
            member.health == MemberHealth::Down
                || member.administrative_state != AdministrativeState::Ready
        };
        if pool.members.iter().all(is_out) {
            let states = pool.members.iter().map(|member| {
                format!(
                    "{} ({}, {})",
                    member.address, member.health, member.administrative_state
                )
            });
            let states: Vec<_> = states.take(MEMBERS_SHOWN_MAX).collect();
            report.found(
                Check::Running,
                FindingSeverity::Failure,
                about,
                format!(
                    "no member of pool {} is available, so requests to it get a 503: {}",
                    pool.name,
                    states.join(", ")
                ),
                "run `proscenium ready POOL MEMBER` for a member that an operator took out of service; `proscenium status` shows why others are down",
            );
        }
    }
}

/// Maximum number of members that a sentence names.
const MEMBERS_SHOWN_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use admin::DistrustedStatus;

    use super::*;

    #[test]
    fn a_client_that_distrusted_us_long_ago_is_worth_knowing_and_no_more() {
        const DAY: i64 = 86_400;
        for (ago, expected) in [
            (60, FindingSeverity::Warning),
            (DAY + 1, FindingSeverity::Note),
        ] {
            let listener = ListenerStatus {
                name: "agents".to_owned(),
                address: "0.0.0.0:8140".to_owned(),
                addresses: vec!["0.0.0.0:8140".to_owned()],
                connections: 0,
                connections_max: 1,
                handshakes: 0,
                handshakes_max: 1,
                certificate_rejected: Some(DistrustedStatus {
                    count: 1,
                    client: "192.0.2.7".to_owned(),
                    at: Timestamp::from_unix_seconds(10 * DAY - ago),
                    alert: "certificate_expired".to_owned(),
                }),
            };
            let mut report = DoctorReport::default();
            clocks(
                &[listener],
                Timestamp::from_unix_seconds(10 * DAY),
                &mut report,
            );
            assert_eq!(report.worst(), Some(expected), "{ago}");
        }
    }
}
