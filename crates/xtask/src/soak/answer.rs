//! What a member says to a request, which the agent works out too: any other byte, and the request is lost.

use testkit::{Recorded, Reply};

use super::{
    estate::{CHAT, SERVED_BY},
    faults::MemberFault,
};

/// What arrived, by the words of which an answer consists.
pub(super) struct Arrival<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    /// What the member was told of the client: `SUCCESS`, and the subject.
    pub(super) verify: String,
    pub(super) subject: String,
    pub(super) body: &'a [u8],
}

impl<'a> Arrival<'a> {
    /// What must arrive of an agent's request.
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

    /// What did arrive; a header that came twice shows.
    fn recorded(request: &'a Recorded) -> Self {
        Self {
            method: &request.method,
            target: &request.target,
            verify: request.headers.all("X-Client-Verify").join(" and "),
            subject: request.headers.all("X-Client-DN").join(" and "),
            body: &request.body.kept,
        }
    }

    /// The answer's body, as long as the target asks for.
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

/// The reply of the compiler at this address, spoilt by a fault if there is one; none: as Puppet's. Catalogs are chunked, as
/// Puppet Server's are.
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
            match request.path().contains("/catalog/") {
                true => reply.chunked(&answer.chunks(CHUNK_BYTES).collect::<Vec<_>>()),
                false => reply.body(&answer),
            }
        }
    };
    Some(reply.header(SERVED_BY, address))
}

/// Whether a request is one of a run, of which some are spoilt.
pub(super) fn is_counted(request: &Recorded) -> bool {
    request.path().starts_with("/puppet/")
}

/// The certname that the member was shown, and the number of the request.
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

/// A number of the query, such as that behind `bytes=`; 0 if there is none.
fn field(target: &str, name: &str) -> u64 {
    let value = target
        .split(['?', '&'])
        .find_map(|pair| pair.strip_prefix(name));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_default()
}

const CHUNK_BYTES: usize = 8 << 10;
