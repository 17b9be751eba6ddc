//! What a member says to a request, which the agent works out too: any other byte, and the request is lost.

use testkit::{Recorded, Reply};

use super::estate::CHAT;

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
        let missing = length(self.target).saturating_sub(text.len());
        text.extend(filling.take(missing));
        text
    }
}

/// A compiler's reply, where it is not as Puppet's; catalogs are chunked, as Puppet Server's are.
pub(super) fn reply(request: &Recorded) -> Option<Reply> {
    if request.path() == CHAT && request.headers.get("upgrade").is_some() {
        return Some(Reply::switching("websocket"));
    }
    if !request.path().starts_with("/puppet/") {
        return None;
    }
    let answer = Arrival::recorded(request).answer();
    let reply = Reply::status(200).header("Content-Type", "application/octet-stream");
    Some(match request.path().contains("/catalog/") {
        true => reply.chunked(&answer.chunks(CHUNK_BYTES).collect::<Vec<_>>()),
        false => reply.body(&answer),
    })
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `bytes=N` of the query.
fn length(target: &str) -> usize {
    let value = target
        .split(['?', '&'])
        .find_map(|pair| pair.strip_prefix("bytes="));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_default()
}

const CHUNK_BYTES: usize = 8 << 10;
