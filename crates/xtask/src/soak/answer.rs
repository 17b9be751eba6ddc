//! The answer of a member to a request. The agent computes the same answer; if one byte differs, the request is lost.

use testkit::{Recorded, Reply};

use super::{
    estate::{CHAT, SERVED_BY},
    faults::MemberFault,
};

/// The parts of a request that its answer repeats.
pub(super) struct Arrival<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    /// The client identity that the member received: `SUCCESS`, and the subject.
    pub(super) verify: String,
    pub(super) subject: String,
    pub(super) body: &'a [u8],
}

impl<'a> Arrival<'a> {
    /// The request as it must arrive from an agent.
    pub(super) fn of_agent(
        certname: &str,
        method: &'a str,
        target: &'a str,
        body: &'a [u8],
    ) -> Self {
        Self {
            method,
            target,
            verify: "SUCCESS".to_owned(),
            subject: format!("CN={certname}"),
            body,
        }
    }

    /// The request as it did arrive. A header that came twice makes the answer differ.
    fn recorded(request: &'a Recorded) -> Self {
        Self {
            method: &request.method,
            target: &request.target,
            verify: request.headers.all("X-Client-Verify").join(" and "),
            subject: request.headers.all("X-Client-DN").join(" and "),
            body: &request.body.kept,
        }
    }

    /// The body of the answer, of the length given in the target.
    pub(super) fn answer(&self) -> Vec<u8> {
        let mut text = format!(
            "{} {}\n{} {}\n{} bytes, sum {:016x}\n",
            self.method,
            self.target,
            self.verify,
            self.subject,
            self.body.len(),
            sum(self.body)
        )
        .into_bytes();
        let filling = text.clone().into_iter().cycle();
        let missing = (field(self.target, "bytes=") as usize).saturating_sub(text.len());
        text.extend(filling.take(missing));
        text
    }
}

/// The reply of the compiler at this address, spoilt if there is a fault. `None` selects the stand-in's default reply.
/// Catalogs are chunked, as Puppet Server sends them.
pub(super) fn reply(
    request: &Recorded,
    address: &str,
    fault: Option<(MemberFault, u64)>,
) -> Option<Reply> {
    if request.path() == CHAT && request.headers.get("upgrade").is_some() {
        return Some(Reply::switching("websocket"));
    }
    if !is_counted(request) {
        return None;
    }
    let answer = Arrival::recorded(request).answer();
    let reply = match fault {
        Some((fault, variant)) => fault.spoil(&answer, variant),
        None => {
            let reply = Reply::status(200).header("Content-Type", "application/octet-stream");
            if request.path().contains("/catalog/") {
                reply.chunked(&answer.chunks(CHUNK_BYTES).collect::<Vec<_>>())
            } else {
                reply.body(&answer)
            }
        }
    };
    Some(reply.header(SERVED_BY, address))
}

/// Whether a request belongs to a run. Only such requests are spoilt.
pub(super) fn is_counted(request: &Recorded) -> bool {
    request.path().starts_with("/puppet/")
}

/// The certname that the member received, and the number of the request.
pub(super) fn sender(request: &Recorded) -> (String, u64) {
    let arrival = Arrival::recorded(request);
    let certname = arrival.subject.trim_start_matches("CN=").to_owned();
    (certname, field(&request.target, "n="))
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A number in the query, for example the one after `bytes=`; 0 if there is none.
fn field(target: &str, name: &str) -> u64 {
    let value = target
        .split(['?', '&'])
        .find_map(|pair| pair.strip_prefix(name));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_default()
}

const CHUNK_BYTES: usize = 8 << 10;
