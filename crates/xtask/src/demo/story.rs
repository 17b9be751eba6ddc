//! The telling: one line for each exchange, ticked or crossed by what was recorded, and the count at the end.

use std::{
    env,
    io::{IsTerminal, stdout},
    time::Instant,
};

use anyhow::{Result, bail};
use testkit::Recorded;

use super::estate::Exchange;

/// What has been told so far, and which expectations were not seen.
pub(crate) struct Story {
    coloured: bool,
    begun: Instant,
    acts: usize,
    answers: usize,
    seen: usize,
    missed: Vec<String>,
}

/// What is expected of an exchange.
pub(crate) struct Expected<'a> {
    pub(crate) status: u16,
    pub(crate) far_end: FarEnd<'a>,
}

/// Who behind the proxy sees a request, and what it is told of the client.
pub(crate) enum FarEnd<'a> {
    /// No member sees the request.
    NoRequest,
    Sees {
        /// One of these members.
        members: &'a [&'a str],
        client: ExpectedIdentity<'a>,
    },
}

/// What a member is told of a client.
#[derive(Clone, Copy)]
pub(crate) enum ExpectedIdentity<'a> {
    Anonymous,
    Agent(&'a str),
}

impl Story {
    /// On standard output; coloured only where that is a terminal.
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

    /// A heading.
    pub(crate) fn act(&mut self, title: &str) {
        self.acts += 1;
        println!("\n{}", self.paint(BOLD, &format!("{}. {title}", self.acts)));
    }

    /// A plain line.
    pub(crate) fn print(&self, text: &str) {
        println!("  {text}");
    }

    /// Something quoted, each line marked.
    pub(crate) fn quote(&self, speaker: &str, text: &str) {
        for (number, line) in text.lines().flat_map(wrapped).enumerate() {
            let speaker = if number == 0 { speaker } else { "" };
            println!("  {speaker:>13} {} {line}", self.paint(DIM, "│"));
        }
    }

    /// One exchange, in one line.
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

    /// Answers told so far.
    pub(crate) fn answers(&self) -> usize {
        self.answers
    }

    /// A claim that was seen or not; `found` says what was seen in its place.
    pub(crate) fn expect(&mut self, claim: &str, seen: bool, found: &str) {
        let missing = if seen {
            Vec::new()
        } else {
            vec![format!("seen: {found}")]
        };
        self.record(claim, missing);
    }

    /// As `expect`, told only if it was not seen.
    pub(crate) fn expect_quietly(&mut self, claim: &str, seen: bool) {
        if seen {
            self.seen += 1;
        } else {
            self.expect(claim, false, "something else");
        }
    }

    /// The count.
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
    /// What of this was not seen.
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
            (FarEnd::NoRequest, []) => {}
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
        let (verify, dn) = match self {
            Self::Anonymous => ("NONE", None),
            Self::Agent(certname) => ("SUCCESS", Some(format!("CN={certname}"))),
        };
        let matches = request.headers.all("X-Client-Verify") == [verify]
            && request.headers.all("X-Client-DN")
                == dn.iter().map(String::as_str).collect::<Vec<_>>();
        let dn = dn.map(|dn| format!(" {dn}")).unwrap_or_default();
        (!matches).then(|| format!("expected the client told as {verify}{dn}"))
    }
}

/// The request line that arrives is, byte for byte, the one that was sent.
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

/// What arrived, by its own fields: `c1 saw SUCCESS CN=web01`.
fn far_end(arrived: &[Recorded]) -> String {
    let summary = |request: &Recorded| {
        let fields: Vec<_> = ["X-Client-Verify", "X-Client-DN"]
            .iter()
            .flat_map(|name| request.headers.all(name))
            .collect();
        format!("{} saw {}", request.member, fields.join(" "))
    };
    match arrived {
        [] => "nobody saw it".to_owned(),
        requests => requests.iter().map(summary).collect::<Vec<_>>().join(", "),
    }
}

/// Lines of a readable length, broken at blanks.
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

/// Characters of a quoted line.
const LINE_MAX: usize = 84;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const RESET: &str = "\x1b[0m";
