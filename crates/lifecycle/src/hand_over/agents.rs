//! Agents that the serving process has seen, as they are passed to the new process.

use std::{net::IpAddr, time::SystemTime};

use identity::Reason;
use serde::{Deserialize, Serialize};
use telemetry::{SeenAgent, SeenCertificate, SeenRequest};

/// An agent, its certificate and its last requests.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PassedAgent {
    certname: String,
    serial: String,
    issuer: String,
    fingerprint: [u8; 32],
    not_before: SystemTime,
    not_after: SystemTime,
    at: SystemTime,
    client: IpAddr,
    requests: Vec<PassedRequest>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PassedRequest {
    at: SystemTime,
    line: String,
    status: Option<u16>,
    reason: Option<String>,
}

impl From<SeenAgent> for PassedAgent {
    fn from(seen: SeenAgent) -> Self {
        let SeenAgent {
            certname,
            certificate,
            at,
            client,
            requests,
            // Connections are not passed.
            connections: _,
        } = seen;
        let requests = requests.into_iter().map(|request| PassedRequest {
            at: request.at,
            line: request.line,
            status: request.status,
            reason: request.reason.map(str::to_owned),
        });
        Self {
            certname: certname.to_string(),
            serial: certificate.serial.into(),
            issuer: certificate.issuer.to_string(),
            fingerprint: certificate.fingerprint,
            not_before: certificate.not_before,
            not_after: certificate.not_after,
            at,
            client,
            requests: requests.collect(),
        }
    }
}

impl From<PassedAgent> for SeenAgent {
    fn from(passed: PassedAgent) -> Self {
        let requests = passed.requests.into_iter().map(|request| SeenRequest {
            at: request.at,
            line: request.line,
            status: request.status,
            reason: request.reason.and_then(|reason| known(&reason)),
        });
        Self {
            certname: passed.certname.into(),
            certificate: SeenCertificate {
                serial: passed.serial.into(),
                issuer: passed.issuer.into(),
                fingerprint: passed.fingerprint,
                not_before: passed.not_before,
                not_after: passed.not_after,
            },
            at: passed.at,
            client: passed.client,
            requests: requests.collect(),
            connections: 0,
        }
    }
}

/// A reason of this build with this name.
fn known(reason: &str) -> Option<&'static str> {
    let verdicts = Reason::ALL.into_iter().map(Reason::as_str);
    let mut all = verdicts.chain(proxy::refusal_reasons());
    all.find(|known| *known == reason)
}
