//! Lines of the access logs of Puppet Server and the proxy, and the expectations on them.

/// A request in a Puppet Server's access log, in the form of tests/lab/config/request-logging.xml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) member: String,
    pub(super) request: Request,
    /// `User-Agent`; `-` where there was none.
    pub(super) by: String,
    /// `X-Client-Verify` and `X-Client-DN`; `-` where there was none.
    pub(super) verify: String,
    pub(super) dn: String,
}

/// A line of the proxy's access log, in the combined form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) request: Request,
    fields: Vec<(String, String)>,
}

/// The parts of an exchange that both logs contain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) status: u16,
}

impl Arrival {
    /// Returns `None` if the line does not have that form.
    pub(super) fn parse(member: &str, line: &str) -> Option<Self> {
        let (request, rest) = Request::parse(line)?;
        let (rest, identity) = rest.split_once(" verify=")?;
        let (_, by) = rest.split_once(" by=")?;
        let (verify, dn) = identity.split_once(" dn=")?;
        Some(Self {
            member: member.to_owned(),
            request,
            by: by.trim_matches('"').to_owned(),
            verify: verify.to_owned(),
            dn: dn.to_owned(),
        })
    }

    /// Whether the proxy forwarded the request for a client. Probes and CRL fetches are the proxy's own requests; its
    /// fetches have no user agent. A request that bypassed the proxy has no `X-Client-Verify`.
    pub(super) fn is_for_a_client(&self) -> bool {
        self.verify != "-" && self.by != "-" && !self.request.is_probe()
    }

    /// For the output: `m1 saw SUCCESS CN=web01.lab.test`.
    pub(super) fn summary(&self) -> String {
        let dn = if self.dn == "-" { "" } else { &self.dn };
        format!("{} saw {} {dn}", self.member, self.verify)
            .trim_end()
            .to_owned()
    }
}

impl Record {
    /// Returns `None` if the line is an event: the same file contains both.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (request, rest) = Request::parse(line)?;
        // Bytes, referer and user agent precede the named fields.
        let named = rest.rsplit_once('"')?.1;
        let fields = named.split_whitespace().filter_map(|field| {
            let (name, value) = field.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        Some(Self {
            request,
            fields: fields.collect(),
        })
    }

    /// The value of a named field; `-` if there is none.
    pub(super) fn field(&self, name: &str) -> &str {
        let field = self.fields.iter().find(|(found, _)| found == name);
        field.map_or("-", |(_, value)| value)
    }

    /// The server that answered it, by the first part of its name.
    pub(super) fn member(&self) -> Option<&str> {
        let member = self.field("member");
        (member != "-").then(|| member.split('.').next().unwrap_or(member))
    }
}

impl Request {
    /// Parses `… "METHOD TARGET VERSION" STATUS …`, which both forms contain. Also returns the rest of the line.
    fn parse(line: &str) -> Option<(Self, &str)> {
        let (_, line) = line.split_once("] \"")?;
        let (request_line, rest) = line.split_once("\" ")?;
        let mut words = request_line.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let status = rest.split(' ').next()?.parse().ok()?;
        let request = Self {
            method: method.to_owned(),
            target: target.to_owned(),
            status,
        };
        Some((request, rest))
    }

    /// Whether this is the request of a health check. A client's request for the same path looks the same.
    fn is_probe(&self) -> bool {
        self.path() == "/status/v1/simple"
    }

    /// The target without its query.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

/// What the log of a server behind the proxy must contain.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) status: u16,
    /// Any one of these members may have answered.
    pub(super) members: &'a [&'a str],
    /// The client's certname, or `None` for a client without a certificate.
    pub(super) client: Option<&'a str>,
}

impl Expected<'_> {
    /// Returns the line to print, and what was not seen. There must be arrivals of that method, path and status. Each
    /// must be at one of the members and carry this client's identity.
    pub(super) fn check(&self, arrivals: &[Arrival]) -> (String, Result<(), String>) {
        let of_path = |arrival: &&Arrival| {
            arrival.request.method == self.method && arrival.request.path() == self.path
        };
        let found = arrivals.iter().filter(of_path);
        let (right, wrong): (Vec<&Arrival>, Vec<&Arrival>) =
            found.partition(|arrival| self.fits(arrival));
        let line = format!(
            "{:4} {:49} {}  {}",
            self.method,
            self.path,
            self.status,
            right.first().map_or_else(
                || "no member saw it".to_owned(),
                |arrival| arrival.summary()
            )
        );
        // An answer with another status belongs to another exchange, such as a 404 before the certificate was signed.
        let wrong: Vec<_> = wrong
            .iter()
            .filter(|arrival| right.is_empty() || arrival.request.status == self.status)
            .map(|arrival| format!("{}, answered {}", arrival.summary(), arrival.request.status))
            .collect();
        let seen = match (right.is_empty(), wrong.is_empty()) {
            (false, true) => Ok(()),
            (true, true) => Err("no such line in any server's log".to_owned()),
            (_, false) => Err(wrong.join("; ")),
        };
        (line, seen)
    }

    fn fits(&self, arrival: &Arrival) -> bool {
        let (verify, dn) = match self.client {
            Some(certname) => ("SUCCESS", format!("CN={certname}")),
            None => ("NONE", "-".to_owned()),
        };
        arrival.request.status == self.status
            && self.members.contains(&arrival.member.as_str())
            && arrival.verify == verify
            && arrival.dn == dn
    }
}

/// The answers on which the servers' logs and the proxy's records differ.
pub(super) fn differences(arrivals: &[Arrival], records: &[Record]) -> Vec<String> {
    let count = |of: &(String, Request)| {
        let here = arrivals
            .iter()
            .filter(|a| a.is_for_a_client())
            .map(of_arrival);
        let there = records.iter().filter_map(of_record);
        (
            here.filter(|one| one == of).count(),
            there.filter(|one| one == of).count(),
        )
    };
    let stamped = arrivals
        .iter()
        .filter(|arrival| arrival.is_for_a_client())
        .map(of_arrival);
    let mut all: Vec<_> = stamped
        .chain(records.iter().filter_map(of_record))
        .collect();
    all.sort();
    all.dedup();
    all.iter()
        .map(|one| (one, count(one)))
        .filter(|(_, (here, there))| here != there)
        .map(|((member, request), (here, there))| {
            format!(
                "{} {} {} at {member}: {here} in its log, {there} records",
                request.method, request.target, request.status
            )
        })
        .collect()
}

fn of_arrival(arrival: &Arrival) -> (String, Request) {
    (arrival.member.clone(), arrival.request.clone())
}

/// Returns `None` if no server answered. A record with a reason is an answer of the proxy itself.
fn of_record(record: &Record) -> Option<(String, Request)> {
    let answered = record.field("reason") == "-" && !record.request.is_probe();
    Some((
        record.member().filter(|_| answered)?.to_owned(),
        record.request.clone(),
    ))
}

#[cfg(test)]
mod tests;
