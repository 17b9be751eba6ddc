//! The exit codes, declared once: for the code, `--help`, the manual pages and docs/operating/limits-and-exit-codes.md.

use std::fmt::Write as _;

/// Exit codes with their meanings.
pub type ExitCodes = &'static [(u8, &'static str)];

/// The command was executed and failed.
pub(crate) const FAILED: u8 = 1;
/// EX_USAGE.
pub(crate) const USAGE: u8 = 64;
/// EX_TEMPFAIL: a restart may help.
pub(crate) const UNAVAILABLE: u8 = 75;
/// EX_CONFIG; systemd units name it in `RestartPreventExitStatus`.
pub(crate) const CONFIGURATION: u8 = 78;
/// `explain`: the request would be refused.
pub(crate) const REFUSED: u8 = 1;
/// `doctor`: the most severe finding is a warning. `status --exit-code`: the most severe alarm is one, or a member fails.
/// Monitoring plug-ins use the same exit code.
pub(crate) const WARNINGS: u8 = 1;
pub(crate) const FAILURES: u8 = 2;
/// `status --exit-code`: an alarm is critical.
pub(crate) const CRITICAL: u8 = 2;
/// `status --exit-code`: the proxy did not answer.
pub(crate) const UNKNOWN: u8 = 3;

/// `who`: the proxy knows nothing about the name.
pub(crate) const UNKNOWN_NAME: u8 = 3;

/// `support-bundle`: the file is written, but the proxy did not answer.
pub(crate) const NO_ANSWER: u8 = 3;

/// `drain --wait`: members still have requests when the timeout expires.
pub(crate) const STILL_RUNNING: u8 = 3;

/// `drain --wait`: a proxy of the fleet was lost, or still uses the members.
pub(crate) const FLEET_LOST: u8 = 4;
/// The change is active on this proxy alone, although this proxy is part of a fleet.
pub(crate) const NOT_SENT: u8 = 5;

/// `fleet turn`: the command was executed, and the proxy was not ready afterwards. The same code as that of timeout(1).
pub(crate) const TURN_NOT_READY: u8 = 124;
/// `fleet turn`: the turn was not taken, and the command was not executed. The same code as that of timeout(1) and env(1).
pub(crate) const NO_TURN: u8 = 125;
/// `fleet turn`: the command cannot be executed. The same code as that of a shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// `fleet turn`: the command does not exist. The same code as that of a shell.
pub(crate) const NO_COMMAND: u8 = 127;
/// Added to the number of a signal that has ended a command, as a shell does.
pub(crate) const SIGNALLED: u8 = 128;

const NOT_SENT_MEANS: &str = "The change is active on this proxy, but it was not sent to the fleet; standard error shows the reason and the proxies on which to run the command too.";
const UNAVAILABLE_MEANS: &str =
    "An address or the admin socket is not available now, so that a later start may succeed.";
const CONFIGURATION_MEANS: &str = "The configuration or the host must be changed.";
const USAGE_MEANS: &str = "The command line is invalid.";

/// The exit codes of commands that have no row in `OF_VERBS`.
const OF_ALL: ExitCodes = &[
    (0, "Success."),
    (FAILED, "Failure; standard error shows the reason."),
    (USAGE, USAGE_MEANS),
    (CONFIGURATION, CONFIGURATION_MEANS),
];

/// The exit codes of `drain` and `maintenance`.
const OF_WITHDRAWAL: ExitCodes = &[
    (
        0,
        "The state is set; with `--wait`, no request and no tunnel is left.",
    ),
    (FAILED, "Failure; standard error shows the reason."),
    (
        STILL_RUNNING,
        "The state is set, but requests or tunnels were left when `--timeout` ended; standard error shows them.",
    ),
    (
        FLEET_LOST,
        "The state is set, but a proxy of the fleet has not confirmed that it sends nothing to the members: its lease has ended, the store is not reached, or no other member is available there. Standard error names it; `--without NAME` does not wait for it.",
    ),
    (NOT_SENT, NOT_SENT_MEANS),
    (USAGE, USAGE_MEANS),
    (CONFIGURATION, CONFIGURATION_MEANS),
];

/// The exit codes of commands that change what a fleet shares.
const OF_SHARED: ExitCodes = &[
    (0, "Success."),
    (FAILED, "Failure; standard error shows the reason."),
    (NOT_SENT, NOT_SENT_MEANS),
    (USAGE, USAGE_MEANS),
    (CONFIGURATION, CONFIGURATION_MEANS),
];

const OF_VERBS: &[(&str, ExitCodes)] = &[
    (
        "run",
        &[
            (0, "The proxy stopped after SIGTERM."),
            (FAILED, "Failure; standard error shows the reason."),
            (USAGE, USAGE_MEANS),
            (UNAVAILABLE, UNAVAILABLE_MEANS),
            (CONFIGURATION, CONFIGURATION_MEANS),
        ],
    ),
    (
        "check",
        &[
            (0, "There are no errors; there may be warnings."),
            (
                FAILED,
                "The test did not run; standard error shows the reason.",
            ),
            (USAGE, USAGE_MEANS),
            (UNAVAILABLE, UNAVAILABLE_MEANS),
            (
                CONFIGURATION,
                "The configuration or the host must be changed; with `--strict`, also if there are warnings.",
            ),
        ],
    ),
    (
        "explain",
        &[
            (0, "The proxy would forward or answer the request."),
            (REFUSED, "The proxy would refuse the request."),
            (USAGE, USAGE_MEANS),
            (CONFIGURATION, CONFIGURATION_MEANS),
        ],
    ),
    (
        "doctor",
        &[
            (0, "There are no findings, or only notes."),
            (
                WARNINGS,
                "Warnings: a condition that will become a failure, or is one in other circumstances.",
            ),
            (
                FAILURES,
                "Failures: agents are locked out, or clients get access that they must not have.",
            ),
            (USAGE, USAGE_MEANS),
            (
                CONFIGURATION,
                "The configuration is refused, and no member was queried.",
            ),
        ],
    ),
    (
        "who",
        &[
            (
                0,
                "The proxy knows the agent or the certificate; without an argument, the agents are listed.",
            ),
            (FAILED, "Failure; standard error shows the reason."),
            (
                UNKNOWN_NAME,
                "The certname is unknown: no agent of this name has connected or was refused since the start, and no block names it.",
            ),
            (USAGE, USAGE_MEANS),
            (CONFIGURATION, CONFIGURATION_MEANS),
        ],
    ),
    (
        "status",
        &[
            (
                0,
                "The proxy answered; with `--exit-code`, it serves, no alarm is active, and no member that is ready is down or ejected.",
            ),
            (
                WARNINGS,
                "Failure; standard error shows the reason. With `--exit-code`: a warning is active, a member that is ready is down or ejected, or the proxy is starting or draining.",
            ),
            (CRITICAL, "With `--exit-code`: a critical alarm is active."),
            (
                UNKNOWN,
                "With `--exit-code`: the state is unknown, because the proxy did not answer.",
            ),
            (USAGE, USAGE_MEANS),
            (CONFIGURATION, CONFIGURATION_MEANS),
        ],
    ),
    (
        "support-bundle",
        &[
            (0, "The file is written."),
            (
                FAILED,
                "The file is not written; standard error shows the reason.",
            ),
            (
                NO_ANSWER,
                "The file is written, but the proxy did not answer, and the file has only what this host shows.",
            ),
            (USAGE, USAGE_MEANS),
        ],
    ),
    (
        "fleet turn",
        &[
            (
                0,
                "The command was executed with exit code 0, and the proxy is ready.",
            ),
            (USAGE, USAGE_MEANS),
            (
                TURN_NOT_READY,
                "The command was executed with exit code 0, but the proxy was not ready when `--timeout` ended; standard error shows the reason.",
            ),
            (
                NO_TURN,
                "The command was not executed, because the turn was not taken: no `[fleet]`, no proxy, the store is not reached, or `--timeout` ended; standard error shows the reason.",
            ),
            (NOT_EXECUTABLE, "The command cannot be executed."),
            (NO_COMMAND, "The command does not exist."),
            (
                SIGNALLED,
                "128 and the number of the signal that ended the wait or the command. Any other exit code is that of the command.",
            ),
        ],
    ),
    ("drain", OF_WITHDRAWAL),
    ("maintenance", OF_WITHDRAWAL),
    ("ready", OF_SHARED),
    ("block", OF_SHARED),
    ("unblock", OF_SHARED),
];

/// The exit codes of a command.
#[must_use]
pub fn exit_codes(verb: &str) -> ExitCodes {
    let own = OF_VERBS.iter().find(|(name, _)| *name == verb);
    own.map_or(OF_ALL, |(_, codes)| codes)
}

/// The commands that have their own exit codes.
pub fn verbs_with_exit_codes() -> impl Iterator<Item = &'static str> {
    OF_VERBS.iter().map(|(verb, _)| *verb)
}

/// The section about exit codes at the end of a help text.
pub(crate) fn help(verb: &str) -> String {
    let mut help = String::from("Exit codes:");
    for (code, meaning) in exit_codes(verb) {
        let _ = write!(help, "\n  {code:>3}  {meaning}");
    }
    help
}
