//! `doctor`: proves a deployment by looking at what is on disk and by asking every member, and says what to do.
//!
//! Whatever can be seen without a running proxy is seen without one. Members are asked with GET alone, as nobody, as
//! ourselves by a certificate whose key is here, or, from outside, as ourselves again: no other agent's name is ever
//! said to a member, so nothing is learned here that an attacker could not learn, and nothing is changed.

mod claim;
mod clock;
mod dates;
mod files;
mod findings;
mod forged;
mod head_room;
mod lists;
mod members;
mod outside;
mod passthrough;
mod running;
mod service;
mod unreached;

use std::path::PathBuf;

use rustls_pki_types::UnixTime;

use self::claim::Ourselves;
pub use self::findings::{Check, Finding, Grade, Passed, Proof};
use crate::{Options, check, prepare::Prepared};

/// What is to be proved, beside what the configuration says.
#[derive(Clone, Debug)]
pub struct Examination {
    /// The configuration, as for a start.
    pub options: Options,
    /// Certificate and key of an ordinary agent; none: what a member does with one is not proved.
    pub agent: Option<(PathBuf, PathBuf)>,
    /// Ports of members' hosts where somebody may have left plain HTTP open.
    pub plain_ports: Vec<u16>,
    /// Ports of plain members' hosts where the same process may be open over TLS.
    pub tls_ports: Vec<u16>,
    /// The running proxy, if one runs.
    pub socket: PathBuf,
}

/// Proves a deployment. Wants a runtime with IO and time; every wait has its end.
pub async fn examine(examination: &Examination) -> Proof {
    let mut proof = Proof::default();
    let mut prepared = match check::prepared(&examination.options) {
        Ok(prepared) => prepared,
        Err(report) => {
            proof.refused(&report);
            running::examine(&examination.socket, None, &mut proof).await;
            proof.sort();
            return proof;
        }
    };
    let now = UnixTime::now();
    lists::restore(&mut prepared, &mut proof);
    files::examine(&prepared, &examination.options.config, &mut proof);
    dates::examine(&prepared, now, &mut proof);
    lists::examine(&prepared, now, &mut proof);
    let agent = claim::ordinary_agent(examination, &prepared, now, &mut proof);
    let ourselves = ourselves(&prepared, now, &mut proof);
    members::examine(examination, &prepared, ourselves, agent, &mut proof).await;
    running::examine(&examination.socket, Some(&prepared), &mut proof).await;
    // Last: what was found here says more than what the configuration warns of.
    proof.warned(&prepared.report);
    proof.sort();
    proof
}

/// As whom members may be asked: by the first certificate of ours that the trust in force would take from an agent.
fn ourselves(prepared: &Prepared, now: UnixTime, proof: &mut Proof) -> Option<Ourselves> {
    let trust = &prepared.generation.trust;
    let members = prepared.member_tls.iter().map(|tls| &tls.credential);
    let mut credentials = prepared.credentials.values().chain(members);
    let ourselves = credentials.find_map(|credential| Ourselves::proven(trust, credential, now));
    match &ourselves {
        Some(ourselves) => proof.passed(Check::OwnName, ourselves.certname()),
        None => proof.found(
            Check::OwnName,
            Grade::Note,
            "this proxy",
            "the proxy would not accept any of its own certificates from an agent, so doctor could not send requests in the proxy's name",
            "configure a certificate of the Puppet CA that is valid now, not revoked, without authorization extensions, and with a plain name",
        ),
    }
    ourselves
}
