//! `doctor` tests a deployment: it examines files and queries every member, and says what to do about each finding.
//!
//! Everything that needs no running proxy is tested without one. Members get only GET requests: as an unknown client,
//! as the proxy itself with a certificate whose key is available, or, from outside, with the claim to be the proxy.
//! doctor never sends another agent's name to a member. It therefore learns nothing that an attacker could not learn,
//! and it changes nothing.

// doctor examines the permissions of files, and reads the agent certificate that the command line names.
#![expect(
    clippy::disallowed_methods,
    reason = "the checks open files and read the clock"
)]

mod certificates;
mod claimed_identity;
mod clock;
mod compiler_ca;
mod crls;
mod direct_access;
mod environments;
mod file_permissions;
mod fleet;
mod forged_headers;
mod member;
mod member_services;
mod members;
mod passthrough;
mod report;
mod request_head_size;
mod running_proxy;
mod unreachable_members;

use std::path::PathBuf;

use rustls_pki_types::UnixTime;

use claimed_identity::ProxyIdentity;
pub use compiler_ca::{CA_FILE, CRL_FILE};
use lifecycle::{Options, PreparedStart};
pub use report::{Check, DoctorFinding, DoctorReport, FindingSeverity, PassedCheck};

/// The scope of an examination, in addition to the configuration.
#[derive(Clone, Debug)]
pub struct DoctorOptions {
    /// The configuration, as for a start.
    pub options: Options,
    /// The certificate and key of an ordinary agent. Without them, the treatment of such an agent is not tested.
    pub agent: Option<(PathBuf, PathBuf)>,
    /// Ports on which plain HTTP may have been left open on members' hosts.
    pub plain_ports: Vec<u16>,
    /// Ports on which the same process may be open over TLS, on the hosts of members with plain HTTP.
    pub tls_ports: Vec<u16>,
    /// The admin socket of the running proxy, if one runs.
    pub socket: PathBuf,
}

/// Tests a deployment. This needs a runtime with IO and time. Every wait has a limit.
pub async fn examine(examination: &DoctorOptions) -> DoctorReport {
    let mut report = DoctorReport::default();
    let mut prepared = match PreparedStart::new(&examination.options) {
        Ok(prepared) => prepared,
        Err(problems) => {
            report.refused(&problems);
            running_proxy::examine(&examination.socket, None, &mut report).await;
            report.sort();
            return report;
        }
    };
    let now = UnixTime::now();
    crls::restore(&mut prepared, &mut report);
    file_permissions::examine(&prepared, &examination.options.config, &mut report);
    certificates::examine(&prepared, now, &mut report);
    compiler_ca::examine(&prepared, now, &mut report);
    crls::examine(&prepared, now, &mut report);
    let agent = claimed_identity::ordinary_agent(examination, &prepared, now, &mut report);
    let proxy_identity = proxy_identity(&prepared, now, &mut report);
    members::examine(examination, &prepared, proxy_identity, agent, &mut report).await;
    fleet::examine(&prepared, now, &mut report).await;
    running_proxy::examine(&examination.socket, Some(&prepared), &mut report).await;
    // Added last, because the findings of doctor are more specific than the warnings of the configuration.
    report.warned(prepared.report());
    report.sort();
    report
}

/// The identity for requests to members: the first certificate of the proxy that the active trust store would accept
/// from an agent.
fn proxy_identity(
    prepared: &PreparedStart,
    now: UnixTime,
    report: &mut DoctorReport,
) -> Option<ProxyIdentity> {
    let trust = prepared.trust();
    let members = prepared.member_tls().iter().map(|tls| &tls.credential);
    let mut credentials = prepared.listener_credentials().values().chain(members);
    let proxy_identity =
        credentials.find_map(|credential| ProxyIdentity::proven(trust, credential, now));
    match &proxy_identity {
        Some(proxy_identity) => report.passed(Check::OwnName, proxy_identity.certname()),
        None => report.found(
            Check::OwnName,
            FindingSeverity::Note,
            "this proxy",
            "the proxy would not accept any of its own certificates from an agent, so doctor could not send requests in the proxy's name",
            "configure a certificate of the Puppet CA that is valid now, not revoked, without authorization extensions, and with a plain name",
        ),
    }
    proxy_identity
}
