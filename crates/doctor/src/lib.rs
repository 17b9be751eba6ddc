//! `doctor`: proves a deployment by looking at what is on disk and by asking every member, and says what to do.
//!
//! Everything that can be seen without a running proxy is seen without one. Members get GET requests only, as an unknown client, as
//! ourselves by a certificate whose key is here, or, from outside, as ourselves again: no other agent's name is ever
//! said to a member, so nothing is learned here that an attacker could not learn, and nothing is changed.

// It examines the permissions of files and reads the agent certificate that the command line names.
#![allow(clippy::disallowed_methods)]

mod certificates;
mod claimed_identity;
mod clock;
mod crls;
mod direct_access;
mod file_permissions;
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

use claimed_identity::Ourselves;
pub use report::{Check, DoctorFinding, DoctorReport, FindingSeverity, PassedCheck};
use server::{Options, PreparedStart};

/// What is to be proved, beside what the configuration says.
#[derive(Clone, Debug)]
pub struct DoctorOptions {
    /// The configuration, as for a start.
    pub options: Options,
    /// Certificate and key of an ordinary agent; none: what a member does with one is not proved.
    pub agent: Option<(PathBuf, PathBuf)>,
    /// Ports of members' hosts on which plain HTTP may have been left open.
    pub plain_ports: Vec<u16>,
    /// Ports of plain members' hosts where the same process may be open over TLS.
    pub tls_ports: Vec<u16>,
    /// The running proxy, if one runs.
    pub socket: PathBuf,
}

/// Proves a deployment. Wants a runtime with IO and time; every wait has its end.
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
    crls::examine(&prepared, now, &mut report);
    let agent = claimed_identity::ordinary_agent(examination, &prepared, now, &mut report);
    let ourselves = ourselves(&prepared, now, &mut report);
    members::examine(examination, &prepared, ourselves, agent, &mut report).await;
    running_proxy::examine(&examination.socket, Some(&prepared), &mut report).await;
    // Last: what was found here says more than what the configuration warns of.
    report.warned(prepared.report());
    report.sort();
    report
}

/// The identity for requests to members: the first certificate of the proxy that the active trust store would accept from an agent.
fn ourselves(
    prepared: &PreparedStart,
    now: UnixTime,
    report: &mut DoctorReport,
) -> Option<Ourselves> {
    let trust = prepared.trust();
    let members = prepared.member_tls().iter().map(|tls| &tls.credential);
    let mut credentials = prepared.listener_credentials().values().chain(members);
    let ourselves = credentials.find_map(|credential| Ourselves::proven(trust, credential, now));
    match &ourselves {
        Some(ourselves) => report.passed(Check::OwnName, ourselves.certname()),
        None => report.found(
            Check::OwnName,
            FindingSeverity::Note,
            "this proxy",
            "the proxy would not accept any of its own certificates from an agent, so doctor could not send requests in the proxy's name",
            "configure a certificate of the Puppet CA that is valid now, not revoked, without authorization extensions, and with a plain name",
        ),
    }
    ourselves
}
