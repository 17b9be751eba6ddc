//! Each endpoint of `[fleet]`: whether it is reached, whether its certificate is valid, whether this proxy has the
//! rights that it needs and no others, and whether the database has room.

use std::{process, time::Duration};

use fleet_store::{EndpointStatus, Put, Revision, Session, Store, StoreError};
use lifecycle::PreparedStart;
use rustls_pki_types::UnixTime;
use tokio::task::JoinSet;

use crate::{Check, DoctorReport, FindingSeverity, certificates};

/// How long the probe key exists if this process ends before it removes the key.
const LEASE: Duration = Duration::from_secs(10);
/// A prefix that the role of a proxy does not include. No key is written there.
const OTHER_PREFIX: &str = "/proscenium-doctor.invalid/";
/// No key has this revision, so a write on this condition changes nothing. etcd verifies the rights before the
/// condition.
const NEVER: Revision = Revision::MAX;
/// Three quarters of etcd's default quota of 2 GiB. etcd does not report its quota to clients.
const DATABASE_LARGE: u64 = 3 << 29;
const MIB: u64 = 1 << 20;

/// The results for one endpoint.
struct Endpoint {
    reached: Result<(), StoreError>,
    report: DoctorReport,
}

/// Examines all endpoints at the same time.
pub(crate) async fn examine(prepared: &PreparedStart, now: UnixTime, report: &mut DoctorReport) {
    let Some(fleet) = &prepared.config().fleet else {
        return;
    };
    let count = fleet.etcd.len();
    let mut examined = JoinSet::new();
    for index in 0..count {
        let own = prepared.fleet_store(fleet.site_prefix());
        let other = prepared.fleet_store(OTHER_PREFIX.to_owned());
        if let (Some(own), Some(other)) = (own, other) {
            examined.spawn(async move { endpoint(&*own, &*other, index, now).await });
        }
    }
    let examined = examined.join_all().await;
    let is_any_reached = examined.iter().any(|endpoint| endpoint.reached.is_ok());
    for endpoint in examined {
        if let Err(error) = endpoint.reached {
            unreached(&error, is_any_reached, report);
        }
        report.append(endpoint.report);
    }
}

async fn endpoint(own: &dyn Store, other: &dyn Store, index: usize, now: UnixTime) -> Endpoint {
    let about = format!("etcd {}", own.endpoints()[index]);
    let mut report = DoctorReport::default();
    let reached = async {
        let session = own.connect(index).await?;
        // etcd refuses a certificate only after the handshake, so the first answer shows whether it accepts the
        // proxy's.
        let status = session.status().await;
        if let Err(error @ (StoreError::Dial(_) | StoreError::Late { .. })) = status {
            return Err(error);
        }
        report.passed(Check::FleetReached, &about);
        certificate(&*session, &about, now, &mut report);
        if let Ok(status) = &status {
            database(status, &about, &mut report);
        }
        let result = write_and_read(&*session).await;
        let has_rights = result.is_ok();
        rights(result, &about, &mut report);
        if has_rights {
            let session = other.connect(index).await?;
            other_keys(&*session, &about, &mut report).await;
        }
        Ok(())
    };
    let reached = reached.await;
    Endpoint { reached, report }
}

fn unreached(error: &StoreError, is_any_reached: bool, report: &mut DoctorReport) {
    let (severity, remedy) = if is_any_reached {
        (
            FindingSeverity::Warning,
            "start it, or remove it from `[fleet] etcd`; the proxy uses the others",
        )
    } else {
        (
            FindingSeverity::Failure,
            "no endpoint is reached, so blocks and drains apply on this proxy only: start etcd, and check its certificate, the name in `[fleet] etcd` and packet filters",
        )
    };
    report.found(
        Check::FleetReached,
        severity,
        "[fleet] etcd",
        error.to_string(),
        remedy,
    );
}

/// Reports the dates of the certificate. Its name was verified when the connection was made.
fn certificate(session: &dyn Session, about: &str, now: UnixTime, report: &mut DoctorReport) {
    let facts = session.certificate();
    let Some(facts) = facts.as_deref().and_then(pki::facts_of) else {
        return;
    };
    match certificates::time(facts.not_before, facts.not_after, now) {
        None => report.passed(Check::FleetCertificate, about),
        Some((severity, found)) => report.found(
            Check::FleetCertificate,
            severity,
            about,
            format!("its certificate {}: {found}", facts.subject),
            "renew it before the proxies refuse it",
        ),
    }
}

/// Writes a key with a lease, lists the keys, and removes it.
async fn write_and_read(session: &dyn Session) -> Result<(), StoreError> {
    let lease = session.grant(LEASE).await?;
    let key = format!("{}doctor-{}-{lease:x}", fleet_store::PROBES, process::id());
    let written = session.put_if(&key, 0, Put::Leased(b"", lease)).await;
    let listed = match written {
        Ok(_) => session.list().await.map(|_| ()),
        Err(error) => Err(error),
    };
    // Revoking the lease removes the key. If that fails, the lease expires.
    let _ = session.revoke(lease).await;
    listed
}

fn rights(result: Result<(), StoreError>, about: &str, report: &mut DoctorReport) {
    let (check, severity, remedy) = match &result {
        Ok(()) => return report.passed(Check::FleetRights, about),
        Err(StoreError::NoSpace { .. }) => {
            return report.found(
                Check::FleetDatabase,
                FindingSeverity::Failure,
                about,
                "its database is full (NOSPACE), and blocks and drains apply on this proxy only",
                "compact and defragment it, then run `etcdctl alarm disarm` (docs/operating/fleet.md, fleet-no-space)",
            );
        }
        Err(StoreError::Denied { .. }) => (
            Check::FleetRights,
            FindingSeverity::Failure,
            "add a user with the common name of the proxy's certificate to etcd, with a role that reads and writes the prefix (docs/operating/fleet.md, Set up); if the certificate has expired or is revoked, renew it",
        ),
        Err(_) => (
            Check::FleetRights,
            FindingSeverity::Warning,
            "more than half of the members of etcd must run; its log has the reason",
        ),
    };
    if let Err(error) = result {
        report.found(check, severity, about, error.to_string(), remedy);
    }
}

/// Reports whether this proxy may write keys that do not belong to it.
async fn other_keys(session: &dyn Session, about: &str, report: &mut DoctorReport) {
    match session.put_if("probe", NEVER, Put::Value(b"")).await {
        Err(StoreError::Denied { .. }) => report.passed(Check::FleetOtherKeys, about),
        Ok(_) => report.found(
            Check::FleetOtherKeys,
            FindingSeverity::Warning,
            about,
            "this proxy's certificate may change keys outside of the prefix of the fleet: etcd has no users, or the role is too wide. If etcd has no users, each certificate of its CA may do so, those of agents included",
            "run `etcdctl auth enable` with one user for each proxy and a role for the prefix (docs/operating/fleet.md, Set up)",
        ),
        Err(error) => report.found(
            Check::FleetOtherKeys,
            FindingSeverity::Note,
            about,
            format!("it is not known whether this proxy may write other keys: {error}"),
            "run doctor again",
        ),
    }
}

fn database(status: &EndpointStatus, about: &str, report: &mut DoctorReport) {
    // NOSPACE also makes the write of the probe key fail, which is reported there.
    if status.database_bytes < DATABASE_LARGE {
        if !status.errors.iter().any(|error| error.contains("NOSPACE")) {
            report.passed(Check::FleetDatabase, about);
        }
        return;
    }
    report.found(
        Check::FleetDatabase,
        FindingSeverity::Warning,
        about,
        format!(
            "its database has {} MiB, of which {} MiB are in use; the quota is 2048 MiB if --quota-backend-bytes is not set, and then etcd accepts no change",
            status.database_bytes / MIB,
            status.used_bytes / MIB
        ),
        "set --auto-compaction-retention=1h, and run `etcdctl defrag` on each member in turn",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_reported_near_the_default_quota() {
        for (bytes, errors, expected) in [
            (20 * MIB, &[][..], (1, 0)),
            (DATABASE_LARGE - 1, &[], (1, 0)),
            (DATABASE_LARGE, &[], (0, 1)),
            // The failed write of the probe key is reported instead.
            (20 * MIB, &["memberID:1 alarm:NOSPACE"], (0, 0)),
        ] {
            let mut report = DoctorReport::default();
            let status = EndpointStatus {
                database_bytes: bytes,
                used_bytes: bytes / 2,
                errors: errors.iter().copied().map(str::to_owned).collect(),
                ..EndpointStatus::default()
            };
            database(&status, "etcd e1:2379", &mut report);
            let found = (report.passed.len(), report.findings.len());
            assert_eq!(found, expected, "{bytes}: {report:?}");
        }
    }
}
