//! The output of the demonstration: one line per exchange, marked as seen or missed, and the total at the end.

use std::{
    env,
    io::{IsTerminal, stdout},
    time::Instant,
};

use anyhow::{Result, bail};
use testkit::Recorded;

use super::estate::Exchange;

/// Counts what was printed so far, and collects the expectations that were not seen.
pub(crate) struct Story {
    coloured: bool,
    begun: Instant,
    acts: usize,
    answers: usize,
    seen: usize,
    missed: Vec<String>,
}

/// The expected status and the request expected behind the proxy.
pub(crate) struct Expected<'a> {
    pub(crate) status: u16,
    pub(crate) far_end: FarEnd<'a>,
}

/// The member that receives a request, and the client identity that it sees.
pub(crate) enum FarEnd<'a> {
    /// No member sees the request.
    NoRequest,
    /// The CA server sees the request, without an identity, unless the proxy has a copy of the document.
    CaOrCopy,
    Sees {
        /// Any one of these members may receive it.
        members: &'a [&'a str],
        client: ExpectedIdentity<'a>,
    },
}

/// The client identity that the proxy passes to a member.
#[derive(Clone, Copy)]
pub(crate) enum ExpectedIdentity<'a> {
    /// No identity header: a CA server over TLS needs none for an enrolment.
    None,
    Agent(&'a str),
}

impl Story {
    /// Prints to standard output, in colour only if that is a terminal.
    pub(crate) fn for_terminal() -> Self {
        Self {
            coloured: stdout().is_terminal() && env::var_os("NO_COLOR").is_none(),
            begun: Instant::now(),
            acts: 0,
            answers: 0,
            seen: 0,
            missed: Vec::new(),
        }
    }

    /// Prints a numbered heading.
    pub(crate) fn act(&mut self, title: &str) {
        self.acts += 1;
        println!("\n{}", self.paint(BOLD, &format!("{}. {title}", self.acts)));
    }

    /// Prints a plain line.
    pub(crate) fn print(&self, text: &str) {
        println!("  {text}");
    }

    /// Prints a quotation, each line marked.
    pub(crate) fn quote(&self, speaker: &str, text: &str) {
        for (number, line) in text.lines().flat_map(wrapped).enumerate() {
            let speaker = if number == 0 { speaker } else { "" };
            println!("  {speaker:>13} {} {line}", self.paint(DIM, "│"));
        }
    }

    /// Prints an exchange on one line and checks it.
    pub(crate) fn exchange(&mut self, exchange: &Exchange, expected: &Expected<'_>) {
        let missing = expected.missing(exchange);
        self.answers += usize::from(exchange.answer.is_ok());
        let path = exchange.target.split('?').next().unwrap_or_default();
        let line = format!(
            "{:4} {path:45} {}  {}",
            exchange.method,
            status(exchange),
            far_end(&exchange.arrived)
        );
        self.record(&line, missing);
    }

    /// How many answers were printed so far.
    pub(crate) fn answers(&self) -> usize {
        self.answers
    }

    /// Records whether a claim was seen. `found` is what was seen instead.
    pub(crate) fn expect(&mut self, claim: &str, seen: bool, found: &str) {
        let missing = if seen {
            Vec::new()
        } else {
            vec![format!("seen: {found}")]
        };
        self.record(claim, missing);
    }

    /// Like `expect`, but prints the claim only if it was not seen.
    pub(crate) fn expect_quietly(&mut self, claim: &str, seen: bool) {
        if seen {
            self.seen += 1;
        } else {
            self.expect(claim, false, "something else");
        }
    }

    /// Prints the total.
    ///
    /// # Errors
    /// If an expectation was not seen.
    pub(crate) fn end(&self) -> Result<()> {
        let seconds = self.begun.elapsed().as_secs_f64();
        if !self.missed.is_empty() {
            bail!(
                "{} of {} expectations not seen:\n{}",
                self.missed.len(),
                self.seen + self.missed.len(),
                self.missed.join("\n")
            );
        }
        let line = format!(
            "{} expectations, every one seen, in {seconds:.1} s.",
            self.seen
        );
        println!("\n{}", self.paint(GREEN, &line));
        Ok(())
    }

    fn record(&mut self, line: &str, missing: Vec<String>) {
        if missing.is_empty() {
            self.seen += 1;
            println!("  {} {line}", self.paint(GREEN, "✓"));
        } else {
            println!("  {} {line}", self.paint(RED, "✗"));
            for part in &missing {
                println!("      {}", self.paint(RED, part));
            }
            self.missed
                .push(format!("  {} ({})", line.trim_end(), missing.join("; ")));
        }
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.coloured {
            format!("{colour}{text}{RESET}")
        } else {
            text.to_owned()
        }
    }
}

impl Expected<'_> {
    /// The parts of the expectation that were not seen.
    fn missing(&self, exchange: &Exchange) -> Vec<String> {
        let mut missing = Vec::new();
        match &exchange.answer {
            Ok(answer) if answer.status == self.status => {}
            Ok(answer) => missing.push(format!(
                "expected {}, seen {}: {}",
                self.status,
                answer.status,
                answer.text().trim()
            )),
            Err(error) => missing.push(format!("expected {}, seen: {error}", self.status)),
        }
        match (&self.far_end, exchange.arrived.as_slice()) {
            (FarEnd::NoRequest | FarEnd::CaOrCopy, []) => {}
            (FarEnd::CaOrCopy, [request]) if request.member == "ca" => {
                missing.extend(ExpectedIdentity::None.missing(request));
                missing.extend(changed(exchange, request));
            }
            (FarEnd::CaOrCopy, _) => missing.push("expected once at ca, or nowhere".to_owned()),
            (FarEnd::NoRequest, _) => missing.push("expected nothing behind the proxy".to_owned()),
            (FarEnd::Sees { members, client }, [request]) => {
                if !members.contains(&request.member.as_str()) {
                    missing.push(format!("expected at {}", members.join(" or ")));
                }
                missing.extend(client.missing(request));
                missing.extend(changed(exchange, request));
            }
            (FarEnd::Sees { members, .. }, _) => {
                missing.push(format!("expected once at {}", members.join(" or ")));
            }
        }
        missing
    }
}

impl ExpectedIdentity<'_> {
    fn missing(&self, request: &Recorded) -> Option<String> {
        let dn = match self {
            Self::None => None,
            Self::Agent(certname) => Some(format!("CN={certname}")),
        };
        let verify = dn.as_ref().map(|_| "SUCCESS");
        let is = |name, expected: Option<&str>| {
            request.headers.all(name) == expected.into_iter().collect::<Vec<_>>()
        };
        let matches = is("X-Client-Verify", verify) && is("X-Client-DN", dn.as_deref());
        (!matches).then(|| match dn {
            None => "expected no identity header".to_owned(),
            Some(dn) => format!("expected the client identity SUCCESS {dn}"),
        })
    }
}

/// Checks that the request line arrived byte for byte as it was sent.
fn changed(exchange: &Exchange, request: &Recorded) -> Option<String> {
    let line = format!("{} {} HTTP/1.1\r\n", exchange.method, exchange.target);
    (!request.raw.starts_with(line.as_bytes()))
        .then(|| format!("expected the request line {:?}", line.trim_end()))
}

fn status(exchange: &Exchange) -> String {
    match &exchange.answer {
        Ok(answer) => answer.status.to_string(),
        Err(_) => "---".to_owned(),
    }
}

/// The requests that arrived, as in `c1 saw SUCCESS CN=web01`.
fn far_end(arrived: &[Recorded]) -> String {
    let summary = |request: &Recorded| format!("{} saw {}", request.member, identity(request));
    match arrived {
        [] => "no member saw it".to_owned(),
        requests => requests.iter().map(summary).collect::<Vec<_>>().join(", "),
    }
}

/// The identity headers of a request, as in `SUCCESS CN=web01`.
pub(crate) fn identity(request: &Recorded) -> String {
    let names = ["X-Client-Verify", "X-Client-DN"].iter();
    let values: Vec<_> = names.flat_map(|name| request.headers.all(name)).collect();
    if values.is_empty() {
        "no identity header".to_owned()
    } else {
        values.join(" ")
    }
}

/// Wraps text at blanks.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a last line");
        if !line.is_empty() && line.chars().count() + word.chars().count() >= LINE_MAX {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// Maximum length of a quoted line, in characters.
const LINE_MAX: usize = 84;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const RESET: &str = "\x1b[0m";
