//! Runs the commands of docs/tutorial.md in one shell, in order, and compares their output with the page.
#![expect(
    clippy::disallowed_methods,
    reason = "tests start programs and read files"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::symlink, process::CommandExt},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use testkit::Tool;

/// Longest time for a step.
const LIMIT: Duration = Duration::from_secs(120);
/// Commands that change nothing, so that they can be repeated.
const SHOWING: [&str; 4] = [
    "tail ",
    "proscenium status",
    "proscenium trace",
    "proscenium refusals",
];
/// The shell prints this after each step. No output contains it.
const MARK: &str = "==tutorial==";

#[test]
fn every_command_prints_what_the_tutorial_shows() {
    if Tool::Curl.command().is_none() {
        return;
    }
    let page = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/tutorial.md"
    ));
    let steps = steps(&page.expect("the tutorial"));
    assert!(steps.len() > 20, "commands are found: {}", steps.len());
    let directory = tempfile::tempdir().expect("a directory");
    let mut shell = Shell::start(directory.path());
    for step in &steps {
        let deadline = Instant::now() + LIMIT;
        loop {
            let printed = shell.run(&step.command);
            if step
                .expected
                .as_ref()
                .is_none_or(|lines| matches(lines, &printed))
            {
                break;
            }
            // A reader types more slowly than the proxy probes its members and writes its log, so these commands are
            // repeated.
            let only_shows = SHOWING.iter().any(|verb| step.command.starts_with(verb));
            let is_early = only_shows && Instant::now() < deadline;
            assert!(
                is_early,
                "$ {}\n{}\nbut the tutorial shows:\n{}",
                step.command,
                printed.join("\n"),
                step.expected.as_deref().unwrap_or_default().join("\n")
            );
        }
    }
    let events = fs::read_to_string(directory.path().join("target/tutorial/events.log"));
    let events = events.expect("the events of the proxy");
    assert!(events.contains("kernel update"), "{events}");
}

/// A command of a `console` block with the lines below it, or a whole `sh` block, whose output the page does not show.
struct Step {
    command: String,
    expected: Option<Vec<String>>,
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = page.lines();
    while let Some(fence) = lines.find(|line| line.starts_with("```")) {
        let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        match fence {
            "```sh" => steps.push(Step {
                command: block.join("\n"),
                expected: None,
            }),
            "```console" => {
                for line in block {
                    match (line.strip_prefix("$ "), steps.last_mut()) {
                        (Some(command), _) => steps.push(Step {
                            command: command.to_owned(),
                            expected: Some(Vec::new()),
                        }),
                        (
                            None,
                            Some(Step {
                                expected: Some(lines),
                                ..
                            }),
                        ) => lines.push(line.to_owned()),
                        (None, _) => panic!("output before the first command: {line}"),
                    }
                }
            }
            _ => panic!("the tutorial has a block that no test runs: {fence}"),
        }
    }
    steps
}

/// Whether the output is as shown. A line `…` stands for any number of lines, and `…` within a line for any text.
fn matches(shown: &[String], printed: &[String]) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((first, shown_rest)), _) if first == "…" => {
            matches(shown_rest, printed)
                || printed
                    .split_first()
                    .is_some_and(|(_, rest)| matches(shown, rest))
        }
        (Some((first, shown_rest)), Some((line, rest))) => {
            line_matches(first, line) && matches(shown_rest, rest)
        }
        _ => false,
    }
}

fn line_matches(shown: &str, line: &str) -> bool {
    match shown.split_once('…') {
        None => shown == line,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| {
            line.char_indices()
                .map(|(at, _)| at)
                .chain([line.len()])
                .any(|at| line_matches(rest, &line[at..]))
        }),
    }
}

/// A shell in which `cargo xtask` is the built program, and `target/debug/proscenium` is the built proxy.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl Shell {
    fn start(directory: &Path) -> Self {
        let built = directory.join("target/debug");
        fs::create_dir_all(&built).expect("a directory");
        symlink(proscenium(), built.join("proscenium")).expect("a link");
        let mut child = Command::new("bash")
            .current_dir(directory)
            // Processes that the tutorial leaves running are killed with the group.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash starts");
        let input = child.stdin.take().expect("a pipe");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let mut shell = Self {
            child,
            input,
            output,
        };
        shell.run(&format!(
            "exec 2>&1\ncargo() {{ [ $1 = build ] || {} \"${{@:2}}\"; }}",
            env!("CARGO_BIN_EXE_xtask")
        ));
        shell
    }

    /// The lines that the command prints, without blank ones at the end.
    fn run(&mut self, command: &str) -> Vec<String> {
        let sent = writeln!(self.input, "{command}\necho {MARK}");
        sent.and_then(|()| self.input.flush()).expect("bash reads");
        let deadline = Instant::now() + LIMIT;
        let mut printed = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(line) if line == MARK => {
                    while printed.last().is_some_and(String::is_empty) {
                        printed.pop();
                    }
                    return printed;
                }
                Ok(line) => printed.push(line),
                Err(error) => panic!("$ {command}\n{}\n{error}", printed.join("\n")),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The shell may already have ended.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The program, built as the demonstration builds it.
fn proscenium() -> String {
    std::env::var("PROSCENIUM").unwrap_or_else(|_| {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--workspace", "--bin", "proscenium"])
            .status();
        assert!(built.expect("cargo starts").success());
        let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
        xtask.with_file_name("proscenium").display().to_string()
    })
}

#[test]
fn a_shown_line_may_leave_text_out() {
    for (shown, line, expected) in [
        ("a…c", "abc", true),
        ("a…c", "ac", true),
        ("a…c", "abcd", false),
        ("…", "", true),
        ("a…b…", "axbyé", true),
        ("abc", "ab", false),
    ] {
        assert_eq!(line_matches(shown, line), expected, "{shown} {line}");
    }
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("a\n…\nd"), &lines("a\nb\nc\nd")));
    assert!(matches(&lines("a\n…"), &lines("a")));
    assert!(!matches(&lines("a\n…\nd"), &lines("a\nb")));
    assert!(!matches(&lines("a"), &lines("a\nb")));
}
