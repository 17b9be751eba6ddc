//! What this host shows about a proxy that does not answer: results of other commands, and the ends of its logs.

use std::{
    ffi::OsString,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::fs::OFlags;
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    time::timeout,
};

use crate::{
    arguments::{Arguments, Socket},
    trace::{configured_log, end_of},
};

/// Maximum number of bytes of one output or file. The end is kept.
const PART_BYTES_MAX: usize = 512 << 10;
/// Time allowed for a program of this machine.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);
/// Time allowed for a command of this program. `doctor` connects to every member.
const OWN_TIMEOUT: Duration = Duration::from_secs(120);

/// Programs of the machine, with their parts of the bundle.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    (
        "unit",
        "systemctl",
        &[
            "show",
            "proscenium.service",
            "--property=ActiveState,SubState,Result,ExecMainStatus,ExecMainCode,NRestarts,MainPID,\
             ActiveEnterTimestamp,InactiveEnterTimestamp,FragmentPath,DropInPaths,LimitNOFILE,LimitNOFILESoft,\
             LimitNPROC,LimitCORE,LimitMEMLOCK,TasksMax,MemoryMax,MemoryCurrent,CPUQuotaPerSecUSec",
        ],
    ),
    ("clock", "timedatectl", &["show"]),
    ("chrony", "chronyc", &["-n", "tracking"]),
    (
        "journal",
        "journalctl",
        &[
            "--unit=proscenium",
            "--lines=2000",
            "--no-pager",
            "--output=short-iso",
        ],
    ),
    ("kernel", "uname", &["-a"]),
];

/// Files of the machine, with their parts of the bundle.
const FILES: &[(&str, &str)] = &[
    ("limits", "/proc/self/limits"),
    ("open_files", "/proc/sys/fs/file-nr"),
    ("system", "/etc/os-release"),
];

/// A program that is executed once.
struct Program {
    /// Its name in the bundle.
    name: String,
    file: PathBuf,
    arguments: Vec<OsString>,
    time: Duration,
}

/// All parts. A part that cannot be read has the reason.
pub(super) async fn parts(arguments: &Arguments, socket: &Socket) -> Map<String, Value> {
    let mut parts = Map::new();
    for words in [
        &["check", "--json"][..],
        &["doctor", "--json"],
        &["config", "show"],
    ] {
        let result = own(arguments, socket, words).run().await;
        parts.insert(words[0].to_owned(), result);
    }
    for (part, program, words) in PROGRAMS {
        let program = Program {
            name: (*program).to_owned(),
            file: program.into(),
            arguments: words.iter().map(OsString::from).collect(),
            time: PROGRAM_TIMEOUT,
        };
        parts.insert((*part).to_owned(), program.run().await);
    }
    for (part, file) in FILES {
        parts.insert(
            (*part).to_owned(),
            end_of_file(Path::new(file), OFlags::empty()),
        );
    }
    let log = match configured_log(&arguments.config) {
        // The account of the service owns its directory, and must not choose which file root reads.
        Ok(log) => end_of_file(&log, OFlags::NOFOLLOW),
        Err(failure) => json!({ "problem": failure.to_string() }),
    };
    parts.insert("access_log".to_owned(), log);
    if let Some((_, events)) = lifecycle::stored_events(&arguments.config) {
        let events = events.map_or_else(
            |error| json!({ "problem": error.to_string() }),
            |events| json!({ "events": events }),
        );
        parts.insert("events".to_owned(), events);
    }
    parts
}

/// This program with another command.
fn own(arguments: &Arguments, socket: &Socket, words: &[&str]) -> Program {
    let mut all: Vec<OsString> = words.iter().map(OsString::from).collect();
    all.extend(["--config".into(), arguments.config.clone().into()]);
    if let (["doctor", ..], Some(socket)) = (words, &socket.socket) {
        all.extend(["--socket".into(), socket.into()]);
    }
    Program {
        name: "proscenium".to_owned(),
        file: "/proc/self/exe".into(),
        arguments: all,
        time: OWN_TIMEOUT,
    }
}

impl Program {
    /// Executes the program and returns the ends of its outputs, or why there is none.
    async fn run(&self) -> Value {
        let words = self.arguments.iter().map(|word| word.to_string_lossy());
        let words: Vec<_> = words.collect();
        let command = format!("{} {}", self.name, words.join(" "));
        let spawned = Command::new(&self.file)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let problem = format!("{} is not installed", self.name);
                return json!({ "command": command, "problem": problem });
            }
            Err(error) => {
                return json!({ "command": command, "problem": error.to_string() });
            }
        };
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let ended = timeout(self.time, async {
            tokio::join!(
                read_end(stdout, &mut output),
                read_end(stderr, &mut errors),
                child.wait()
            )
        });
        let problem = match ended.await {
            Ok((_, _, Ok(status))) => (!status.success()).then(|| status.to_string()),
            Ok((_, _, Err(error))) => Some(error.to_string()),
            Err(_) => Some(format!("stopped after {} s", self.time.as_secs())),
        };
        json!({
            "command": command,
            "problem": problem,
            "output": text_or_json(&output),
            "errors": text_or_json(&errors),
        })
    }
}

/// Reads to the end of a stream and keeps the last `PART_BYTES_MAX` bytes.
async fn read_end(stream: Option<impl AsyncRead + Unpin>, end: &mut Vec<u8>) {
    let Some(mut stream) = stream else { return };
    let mut chunk = vec![0; 16 << 10];
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        end.extend_from_slice(&chunk[..length]);
        let surplus = end.len().saturating_sub(PART_BYTES_MAX);
        end.drain(..surplus);
    }
}

fn text_or_json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into())
}

/// The end of a file, or why it cannot be read.
fn end_of_file(path: &Path, flags: OFlags) -> Value {
    match end_of(path, flags, PART_BYTES_MAX as u64) {
        Ok((bytes, end)) => json!({ "file": path, "bytes": bytes, "end": end }),
        Err(error) => json!({ "file": path, "problem": error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str, time: Duration) -> Program {
        Program {
            name: "sh".to_owned(),
            file: "sh".into(),
            arguments: vec!["-c".into(), line.into()],
            time,
        }
    }

    #[tokio::test]
    async fn a_program_is_limited_in_time_and_size() {
        let long = Duration::from_secs(60);
        for (line, time, problem, end) in [
            ("echo good", long, None, "good\n"),
            ("echo bad; exit 3", long, Some("exit status: 3"), "bad\n"),
            (
                "echo begun; exec sleep 1000",
                Duration::from_millis(500),
                Some("stopped after 0 s"),
                "begun\n",
            ),
            (
                "head -c 2000000 /dev/zero | tr '\\0' x; echo end",
                long,
                None,
                "xend\n",
            ),
        ] {
            let result = shell(line, time).run().await;
            assert_eq!(result["problem"].as_str(), problem, "{line}");
            let output = result["output"].as_str().unwrap();
            assert!(output.ends_with(end), "{line}");
            assert!(output.len() <= PART_BYTES_MAX, "{line}");
        }
        let absent = Program {
            name: "chronyc".to_owned(),
            file: "/nonexistent/chronyc".into(),
            arguments: Vec::new(),
            time: long,
        };
        assert_eq!(
            absent.run().await["problem"],
            json!("chronyc is not installed")
        );
    }
}
