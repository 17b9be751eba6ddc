//! The commands `requests` and `certificates`: what runs or waits now, and what expires soon.

use admin::{CertificatesStatus, RequestsStatus};

use crate::{
    arguments::{Arguments, Socket},
    ask::{client, wait},
    columns::columns,
    failure::Failure,
    output,
};

/// Shows requests in flight, queues, and the slowest requests.
pub(crate) fn requests(arguments: &Arguments, socket: &Socket) -> Result<(), Failure> {
    let client = client(arguments, socket)?;
    output::answer(arguments.json, &wait(client.requests())?, requests_text)
}

/// Lists certificates that expire soon.
pub(crate) fn certificates(arguments: &Arguments, socket: &Socket) -> Result<(), Failure> {
    let client = client(arguments, socket)?;
    output::answer(
        arguments.json,
        &wait(client.certificates())?,
        certificates_text,
    )
}

fn requests_text(requests: &RequestsStatus) -> String {
    let mut parts = Vec::new();
    let in_flight = requests.in_flight.iter().map(|request| {
        let of = &request.request;
        [
            of.since.to_string(),
            of.client.clone(),
            format!("{} in {}", request.member, request.pool),
            of.request.clone(),
        ]
    });
    parts.push(if requests.in_flight.is_empty() {
        "no request has been in flight for more than a few seconds".to_owned()
    } else {
        columns(["SINCE", "CLIENT", "AT", "REQUEST IN FLIGHT"], in_flight)
    });
    let queues = requests.queues.iter().map(|queue| {
        let wait = queue.longest_wait_milliseconds.unwrap_or(0);
        [
            queue.pool.clone(),
            queue.waiting.to_string(),
            format!("{:.1} s", wait as f64 / 1e3),
        ]
    });
    parts.push(if requests.queues.is_empty() {
        "no request waits for a member".to_owned()
    } else {
        columns(["POOL", "WAITING", "LONGEST WAIT"], queues)
    });
    let slowest = requests.slowest.iter().map(|request| {
        [
            format!("{:.1} s", request.milliseconds as f64 / 1e3),
            request.at.to_string(),
            request.client.clone(),
            request.status.to_string(),
            request.member.clone().unwrap_or_else(|| "-".to_owned()),
            request.request.clone(),
        ]
    });
    parts.push(if requests.slowest.is_empty() {
        "no request of the last hours took longer than a second".to_owned()
    } else {
        columns(
            [
                "TOOK",
                "ARRIVED",
                "CLIENT",
                "STATUS",
                "AT",
                "SLOWEST REQUESTS",
            ],
            slowest,
        )
    });
    parts.join("\n\n")
}

fn certificates_text(certificates: &CertificatesStatus) -> String {
    let cas = certificates.cas.iter().map(|ca| {
        let role = format!("CA in {}", ca.source);
        [ca.not_after.to_string(), ca.subject.clone(), role]
    });
    let proxy = certificates.proxy.iter().map(|certificate| {
        let use_of = format!("{} {}", certificate.role, certificate.name);
        [
            certificate.not_after.to_string(),
            certificate.subject.clone(),
            use_of,
        ]
    });
    let agents = certificates.agents.iter().map(|agent| {
        let certificate = &agent.certificate;
        let name = certificate
            .certname
            .clone()
            .unwrap_or_else(|| "-".to_owned());
        let seen = format!("agent, last seen {} from {}", agent.at, agent.client);
        [certificate.not_after.to_string(), name, seen]
    });
    let rows: Vec<_> = cas.chain(proxy).chain(agents).collect();
    if rows.is_empty() {
        "no certificate of the proxy or of an agent that it has seen expires within 60 days, and no CA within 90 days"
                .to_owned()
    } else {
        columns(["EXPIRES", "NAME", "USE"], rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lists_say_so_and_rows_are_aligned() {
        let text = requests_text(&RequestsStatus::default());
        assert_eq!(
            text.lines()
                .filter(|line| line.starts_with("no request"))
                .count(),
            3
        );
        let shown: RequestsStatus = serde_json::from_value(serde_json::json!({
            "in_flight": [{"pool": "compilers", "member": "c1:8140", "client": "web01",
                           "request": "GET /a", "since": "2030-01-01T00:00:00Z"}],
            "queues": [{"pool": "compilers", "waiting": 2, "longest_wait_milliseconds": 1500}],
            "slowest": []
        }))
        .unwrap();
        let text = requests_text(&shown);
        assert!(
            text.contains("2030-01-01T00:00:00Z  web01  c1:8140 in compilers  GET /a"),
            "{text}"
        );
        assert!(text.contains("compilers  2  1.5 s"), "{text}");
        let none = CertificatesStatus {
            cas: Vec::new(),
            proxy: Vec::new(),
            agents: Vec::new(),
        };
        assert!(certificates_text(&none).starts_with("no certificate"));
    }
}
