//! The exact bytes of HTTP/1 between clients, the proxy and members, from the tables in `wire_cases/`.
//!
//! Each case runs three times: with all bytes of a step at once, and with the client's bytes in pieces of 7 bytes and of one
//! byte. After each piece the proxy runs until it is idle. The results must be the same, unless a table contains a case a
//! second time, as `NAME, in single bytes`. A case is a list of lines:
//!
//! ```text
//! == Name of the case
//! # A comment.
//! with head_max=8192              Settings: see `configure`.
//! C> GET / HTTP/1.1\r\n           The client sends. Lines that follow each other are one step.
//! --                              Ends a step.
//! C.                              The client closes its sending side.
//! C!                              The client closes the connection.
//! C pauses                        The client reads nothing from now on, until `C reads`.
//! wait 3                          3 seconds pass.
//! drain                           The process drains, until `cut`: the end of the grace period.
//! M1> HTTP/1.1 200 OK\r\n         The member of the proxy's first connection sends. Also `M1.` and `M1!`.
//! M1+                             Result: the proxy has opened its first connection to a member.
//! M1< GET / HTTP/1.1\r\n          Result: the member gets.
//! C< HTTP/1.1 200 OK\r\n          Result: the client gets.
//! C|                              Result: the proxy has closed the connection. Also `M1|`.
//! record 200 -, ended by proxy    Result: status and reason of an access record, who ended the exchange, the method, the
//!                                 version, the request id, and the bytes of both bodies.
//! ```
//!
//! `{x*9}` is `x` nine times, always in one write. `{date}` is a date of 29 bytes, `{id 1}` the first request id of
//! the case, `{wait}` a random `Retry-After`, `{certificate}` the agent's, and `{running 1}` the text with this name and
//! this id from `texts.txt`. With `UPDATE=1` the tests write their results into the tables.

#![expect(
    clippy::disallowed_methods,
    reason = "tables are files, and an environment variable rewrites them"
)]

mod notation;

use std::{
    collections::HashMap,
    fmt::Write,
    panic::catch_unwind,
    pin::Pin,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use proxy::LifecyclePhase;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use upstream::settings::HttpVersion;

use crate::support::{InMemoryEstate, Setup, run, settle, trusted};

use notation::{escaped, lines_of, pieces, with_names};

macro_rules! tables {
    ($($name:ident)+) => {
        mod each_case_gives_the_bytes_and_records_of_its_table {
            $(#[test]
            fn $name() {
                let table = concat!("wire_cases/", stringify!($name), ".txt");
                super::check(table, include_str!(concat!("wire_cases/", stringify!($name), ".txt")));
            })+
        }
    };
}

tables!(heads targets fields framing bodies responses connections upgrades limits);

const IN_SINGLE_BYTES: &str = ", in single bytes";

fn check(table: &str, text: &str) {
    let (intro, cases) = text.split_once("== ").expect("a case");
    let cases = cases.split("\n== ");
    let (others, cases): (Vec<_>, Vec<_>) = cases
        .filter_map(|case| case.split_once('\n'))
        .partition(|(name, _)| name.ends_with(IN_SINGLE_BYTES));
    let others: HashMap<_, _> = others.into_iter().collect();
    let result = |lines, piece_max| {
        let ran = catch_unwind(|| run(transcript(lines, piece_max)));
        ran.unwrap_or_else(|_| "it panics\n".to_owned())
    };
    let results = |piece_max| -> Vec<_> {
        let results = cases.iter().map(|(_, lines)| result(*lines, piece_max));
        results.collect()
    };
    let results = &results;
    let [whole, seven, single] = thread::scope(|scope| {
        let threads = [usize::MAX, 7, 1].map(|piece_max| scope.spawn(move || results(piece_max)));
        threads.map(|thread| thread.join().expect("panics are results"))
    });
    let (mut written, mut differing) = (intro.to_owned(), String::new());
    for (index, (name, lines)) in cases.iter().enumerate() {
        let (whole, seven, single) = (&*whole[index], &*seven[index], &*single[index]);
        let single_name = format!("{name}{IN_SINGLE_BYTES}");
        let _ = write!(written, "== {name}\n{whole}\n");
        if single != whole {
            let _ = write!(written, "== {single_name}\n{single}\n");
        }
        let single_expected = *others.get(&*single_name).unwrap_or(lines);
        // If the result depends on the pieces, that of 7 bytes may differ from both others.
        let seven_expected = if single == whole { lines } else { seven };
        for (name, got, expected) in [
            (*name, whole, *lines),
            (&single_name, single, single_expected),
            (
                &format!("{name}, in pieces of 7 bytes"),
                seven,
                seven_expected,
            ),
        ] {
            if got.trim_end() != expected.trim_end() {
                let _ = write!(differing, "== {name}\n{got}-- and not\n{expected}\n");
            }
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        let path = format!("{}/tests/in_memory/{table}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, written.trim_end().to_owned() + "\n").expect("a writable table");
    } else {
        assert!(
            differing.is_empty(),
            "{table} has other results (UPDATE=1 writes these):\n{differing}"
        );
    }
}

/// Runs a case. Returns its lines, with the results.
async fn transcript(lines: &str, piece_max: usize) -> String {
    let settings = lines.lines().filter_map(|line| line.strip_prefix("with "));
    let settings: Vec<_> = settings.flat_map(|line| line.split(' ')).collect();
    let estate = InMemoryEstate::new(|setup| configure(setup, &settings));
    let client = (!settings.contains(&"client=none")).then(|| &trusted().web01);
    let peers = vec![Peer::new("C", estate.open(client, false).0)];
    let mut case = Case {
        estate,
        peers,
        opened: String::new(),
        ids: Vec::new(),
        written: String::new(),
    };
    let is_result = |line: &str| {
        let rest = line.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
        line.is_empty() || line.starts_with("record ") || rest.starts_with(['<', '+', '|'])
    };
    let mut lines = lines.lines().peekable();
    while let Some(line) = lines.next() {
        if is_result(line) {
            continue;
        }
        let _ = writeln!(case.written, "{line}");
        let who = line.split(['>', '.', '!']).next().unwrap_or_default();
        let piece_max = if who == "C" { piece_max } else { usize::MAX };
        case.act(line, piece_max).await;
        let same_step = |next: &&str| {
            next.strip_prefix(who)
                .is_some_and(|rest| rest.starts_with(['>', '.', '!']))
        };
        if !lines.peek().is_some_and(same_step) {
            case.run_until_idle().await;
            case.note_results();
        }
    }
    case.finish().await
}

#[derive(Default)]
struct Peer {
    label: String,
    io: Option<DuplexStream>,
    /// Bytes that the proxy has not read yet.
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    closes: bool,
    pauses: bool,
    /// Whether the proxy has closed its side, and whether the transcript shows that.
    ended: (bool, bool),
}

impl Peer {
    fn new(label: &str, io: DuplexStream) -> Self {
        Self {
            label: label.to_owned(),
            io: Some(io),
            ..Self::default()
        }
    }

    /// Writes and reads as much as possible now. Returns whether any bytes were moved.
    fn exchange(&mut self) -> bool {
        let Some(io) = &mut self.io else { return false };
        let (mut io, mut cx) = (Pin::new(io), Context::from_waker(Waker::noop()));
        let mut moved = false;
        while !self.outgoing.is_empty()
            && let Poll::Ready(written) = io.as_mut().poll_write(&mut cx, &self.outgoing)
        {
            // Once the proxy has dropped the connection, the remaining bytes are lost.
            self.outgoing
                .drain(..written.unwrap_or(self.outgoing.len()));
            moved = true;
        }
        if self.outgoing.is_empty() && std::mem::take(&mut self.closes) {
            moved |= io.as_mut().poll_shutdown(&mut cx).is_ready();
        }
        let mut piece = [0; 4096];
        let mut buffer = ReadBuf::new(&mut piece);
        while !self.pauses
            && !self.ended.0
            && let Poll::Ready(read) = io.as_mut().poll_read(&mut cx, &mut buffer)
        {
            self.ended.0 = read.is_err() || buffer.filled().is_empty();
            self.incoming.extend_from_slice(buffer.filled());
            buffer.clear();
            moved = true;
        }
        moved
    }
}

struct Case {
    estate: InMemoryEstate,
    /// The client, followed by the members' connections.
    peers: Vec<Peer>,
    /// Results that precede those of the peers.
    opened: String,
    ids: Vec<String>,
    written: String,
}

impl Case {
    /// Performs the action of one line.
    async fn act(&mut self, line: &str, piece_max: usize) {
        let (who, what) = line.split_at(line.find(['>', '.', '!', ' ']).unwrap_or(line.len()));
        let peer = self.peers.iter().position(|peer| peer.label == who);
        match (who, what, peer) {
            ("wait", seconds, _) => {
                let seconds = seconds.trim().parse().expect("seconds");
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            }
            ("drain", ..) => self.estate.enter(LifecyclePhase::Draining),
            ("cut", ..) => self.estate.enter(LifecyclePhase::Cutting),
            ("--" | "#" | "with", ..) => {}
            (_, " pauses", Some(peer)) => self.peers[peer].pauses = true,
            (_, " reads", Some(peer)) => self.peers[peer].pauses = false,
            (_, ".", Some(peer)) => self.peers[peer].closes = true,
            (_, "!", Some(peer)) => {
                self.peers[peer].exchange();
                self.peers[peer].io = None;
            }
            (_, text, Some(peer)) if text.starts_with("> ") => {
                for (bytes, is_repeated) in pieces(&text[2..]) {
                    let size = if is_repeated { usize::MAX } else { piece_max };
                    for bytes in bytes.chunks(size) {
                        self.peers[peer].outgoing.extend_from_slice(bytes);
                        if piece_max < usize::MAX {
                            self.run_until_idle().await;
                        }
                    }
                }
            }
            (who, _, None) if who.starts_with('M') => {} // The missing `M1+` shows it.
            _ => panic!("not a line of a case: {line}"),
        }
    }

    async fn run_until_idle(&mut self) {
        let mut settled = false;
        loop {
            for member in [&mut self.estate.compilers[0], &mut self.estate.ca] {
                while let Some(io) = member.try_accept() {
                    let label = format!("M{}", self.peers.len());
                    let _ = writeln!(self.opened, "{label}+");
                    self.peers.push(Peer::new(&label, io));
                }
            }
            let mut moved = false;
            for peer in &mut self.peers {
                moved |= peer.exchange();
            }
            if settled && !moved {
                return;
            }
            settle().await;
            settled = true;
        }
    }

    /// Writes the results since the last call.
    fn note_results(&mut self) {
        self.written.push_str(&std::mem::take(&mut self.opened));
        self.peers.rotate_left(1);
        for Peer {
            label,
            incoming,
            ended,
            ..
        } in &mut self.peers
        {
            for same in lines_of(incoming).chunk_by(|one, other| one == other) {
                let line = escaped(same[0], &mut self.ids);
                let _ = match same.len() {
                    count @ 4.. => writeln!(self.written, "{label}< {{{line}*{count}}}"),
                    count => write!(
                        self.written,
                        "{}",
                        format!("{label}< {line}\n").repeat(count)
                    ),
                };
            }
            incoming.clear();
            if ended.0 && !std::mem::replace(&mut ended.1, true) {
                let _ = writeln!(self.written, "{label}|");
            }
        }
        self.peers.rotate_right(1);
    }

    /// Closes all connections, the client's first, and adds the access records.
    async fn finish(mut self) -> String {
        for peer in &mut self.peers {
            peer.io = None;
            settle().await;
        }
        // Requests that still wait for a member give up.
        tokio::time::sleep(Duration::from_secs(600)).await;
        self.estate.assert_at_rest().await;
        for record in self.estate.records().await {
            let words = ["reason", "ended_by", "method", "http_version", "id"];
            let [reason, ended_by, method, version, id] =
                words.map(|name| record[name].as_str().unwrap_or("-"));
            let id = escaped(format!("x-request-id: {id}\r\n").as_bytes(), &mut self.ids);
            let id = &id["x-request-id: ".len()..id.len() - "\\r\\n".len()];
            let [status, received, sent] =
                ["status", "bytes_in", "bytes_out"].map(|name| &record[name]);
            let _ = writeln!(
                self.written,
                "record {status} {reason}, ended by {ended_by}, {method} {version} {id}, bytes {received} {sent}"
            );
        }
        with_names(self.written, self.ids.len())
    }
}

fn configure(setup: &mut Setup, settings: &[&str]) {
    crate::upgrades::with_route(setup);
    for setting in settings {
        let (name, value) = setting.split_once('=').expect("a value");
        let number = value.parse().unwrap_or_default();
        let seconds = Duration::from_secs(number);
        match name {
            "head_max" => setup.listener.head_bytes_max = number as usize,
            "head_timeout" => setup.listener.head_timeout = seconds,
            "idle_timeout" => setup.listener.idle_timeout = seconds,
            "write_timeout" => setup.listener.write_timeout = seconds,
            "rate_grace" => setup.listener.rate_grace = seconds,
            "body_buffer" => setup.exchange.body_buffer_bytes_max = number,
            "client_buffer" => setup.client_buffer = number as usize,
            "first_byte_timeout" => setup.upstream.first_byte_timeout = seconds,
            "member_idle_timeout" => setup.upstream.idle_timeout = seconds,
            "members" if value == "http10" => setup.upstream.http_version = HttpVersion::Http10,
            "client" if value == "none" => {}
            _ => panic!("not a setting: {setting}"),
        }
    }
}
