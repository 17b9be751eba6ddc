//! The commands that query a running proxy over its admin socket: `reload`, `reopen-logs`, `log-level`, `status`.

use std::{
    fs,
    future::Future,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use admin::{
    AdminClient, AdminClientError, AlarmSeverity, ConfigurationStatus, ProcessPhase, ReloadResult,
    Status, settings::AdminSettings,
};
use anyhow::Context;
use tokio::net::UnixStream;

use crate::{
    arguments::{Arguments, LogLevel, Reload, Socket, StatusParts},
    exit_codes::{CONFIGURATION, CRITICAL, FAILED, UNKNOWN, WARNINGS},
    failure::Failure,
    member_table::member_table,
    output,
    progress::with_progress,
    status::{most_severe, table},
};

/// Reloads the configuration, waits for the result, and sets the exit code.
pub(crate) fn reload(arguments: &Arguments, reload: &Reload) -> Result<(), Failure> {
    let client = client(arguments, &reload.socket)?;
    let outcome = with_progress("reading the configuration, certificates and CRLs", || {
        if reload.dry_run {
            wait(client.dry_run())
        } else {
            wait(client.reload())
        }
    })?;
    if arguments.json {
        output::answer(arguments.json, &outcome, |_| String::new())?;
        return match outcome.result {
            ReloadResult::Applied | ReloadResult::Unchanged | ReloadResult::HandedOver => Ok(()),
            ReloadResult::Refused => Err(Failure::Found(CONFIGURATION)),
            ReloadResult::Stopping | ReloadResult::Failed => Err(Failure::Found(FAILED)),
        };
    }
    let report = outcome.report.trim_end();
    let generation = outcome.generation;
    match (outcome.result, reload.dry_run) {
        (ReloadResult::Applied, false) => said(
            report,
            &format!("applied: generation {generation} is active"),
        ),
        (ReloadResult::Applied, true) => {
            said(report, "a reload would apply this; nothing was changed")
        }
        (ReloadResult::Unchanged, _) => said(
            report,
            &format!("unchanged: generation {generation} stays active"),
        ),
        (ReloadResult::HandedOver, _) => said(report, "handed over to another build"),
        (ReloadResult::Refused, _) => Err(Failure::Configuration(format!(
            "{report}\nrefused: generation {generation} stays active"
        ))),
        (ReloadResult::Failed, _) => Err(Failure::because(report.to_owned())),
        (ReloadResult::Stopping, _) => Err(Failure::because(
            "the proxy is stopping and does not reload",
        )),
    }
}

/// Shows whether the files differ from what runs.
pub(crate) fn config_diff(arguments: &Arguments, socket: &Socket) -> Result<(), Failure> {
    let client = client(arguments, socket)?;
    let configuration = wait(client.configuration())?;
    let result = configuration.reload.result;
    output::answer(arguments.json, &configuration, differences)?;
    match result {
        ReloadResult::Unchanged if configuration.restart_pending.is_empty() => Ok(()),
        _ => Err(Failure::Found(FAILED)),
    }
}

fn differences(configuration: &ConfigurationStatus) -> String {
    let generation = configuration.generation;
    let mut lines = match configuration.reload.result {
        ReloadResult::Unchanged if configuration.restart_pending.is_empty() => {
            format!("the files are those of generation {generation}, which is active")
        }
        ReloadResult::Unchanged => format!(
            "the files are those of generation {generation}, which is active except for settings that wait for a restart"
        ),
        _ => format!(
            "{}\nthe files differ from generation {generation}, which is active since {}",
            configuration.reload.report.trim_end(),
            configuration.loaded_at
        ),
    };
    if !configuration.restart_pending.is_empty() {
        lines.push_str(&format!(
            "\naccepted by a reload, but used after a restart only: {}; run `systemctl restart proscenium`",
            configuration.restart_pending.join(", ")
        ));
    }
    lines
}

/// Makes the proxy reopen its log files, and prints their names.
pub(crate) fn reopen_logs(arguments: &Arguments, socket: &Socket) -> Result<(), Failure> {
    let client = client(arguments, socket)?;
    output::answer(arguments.json, &wait(client.reopen_logs())?, |outcome| {
        if outcome.reopened.is_empty() {
            "no log file to reopen: the proxy does not log to files".to_owned()
        } else {
            format!("reopened: {}", outcome.reopened.join(", "))
        }
    })
}

/// Prints the log level, or changes it and prints both.
pub(crate) fn log_level(arguments: &Arguments, wanted: &LogLevel) -> Result<(), Failure> {
    let client = client(arguments, &wanted.socket)?;
    let status = match &wanted.level {
        None => wait(client.log_level())?,
        Some(level) => wait(client.set_log_level(level))?,
    };
    output::answer(arguments.json, &status, |status| match &status.previous {
        None => status.level.clone(),
        Some(previous) => format!("{} (was {previous})", status.level),
    })
}

/// Prints the status of the running proxy, and with `--exit-code` sets the exit code by it.
pub(crate) fn status(arguments: &Arguments, parts: &StatusParts) -> Result<(), Failure> {
    let answered = client(arguments, &parts.socket).and_then(|client| wait(client.status()));
    let status = match answered {
        Err(failure) if parts.exit_code => {
            failure.report();
            return Err(Failure::Found(UNKNOWN));
        }
        answered => answered?,
    };
    let text = if parts.members { member_table } else { table };
    match output::answer(arguments.json, &status, text) {
        Err(failure) if parts.exit_code => {
            failure.report();
            return Err(Failure::Found(UNKNOWN));
        }
        printed => printed?,
    }
    match exit_code(&status) {
        code @ 1.. if parts.exit_code => Err(Failure::Found(code)),
        _ => Ok(()),
    }
}

/// The exit code of a status, as monitoring plug-ins have it.
fn exit_code(status: &Status) -> u8 {
    match most_severe(status) {
        Some(AlarmSeverity::Critical) => CRITICAL,
        None if status.phase == ProcessPhase::Serving => 0,
        _ => WARNINGS,
    }
}

fn said(report: &str, last: &str) -> Result<(), Failure> {
    if !report.is_empty() {
        output::print(report)?;
    }
    output::print(last)
}

/// Waits for a response. One request needs only one thread.
pub(crate) fn wait<T>(
    answer: impl Future<Output = Result<T, AdminClientError>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    Ok(runtime.block_on(answer).map_err(anyhow::Error::from)?)
}

/// A client of the running proxy's admin socket.
pub(crate) fn client(arguments: &Arguments, socket: &Socket) -> Result<AdminClient, Failure> {
    Ok(AdminClient::new(self::socket(arguments, socket)?))
}

/// The path of the running proxy's admin socket.
pub(crate) fn socket(arguments: &Arguments, socket: &Socket) -> Result<PathBuf, Failure> {
    match &socket.socket {
        Some(path) => Ok(path.clone()),
        None => configured_socket(arguments),
    }
}

/// The admin socket in the configuration file, even if the file has errors. If the file does not lead to a running proxy, the
/// socket that the running proxy has left in its runtime directory: `reload` and `drain` must be able to reach it while its
/// file is being edited.
fn configured_socket(arguments: &Arguments) -> Result<PathBuf, Failure> {
    let file = &arguments.config;
    let default = || Ok(AdminSettings::default().socket);
    let (configured, fault) = match fs::read_to_string(file) {
        Ok(text) => match config::admin_socket(&text) {
            Some(socket) if wait(listens(&socket))? => return Ok(socket),
            Some(socket) => {
                let fault = format!("sets {}, where no proxy listens", socket.display());
                (Ok(socket), fault)
            }
            None => (default(), "cannot be parsed".to_owned()),
        },
        Err(error) => {
            let fault = format!("cannot be read: {error}");
            match error.kind() {
                // The proxy may use another file and the default socket.
                ErrorKind::NotFound => (default(), fault),
                _ => (Err(unreadable(file, error)), fault),
            }
        }
    };
    let Some(running) = lifecycle::running_socket(file) else {
        return configured;
    };
    let (file, socket) = (file.display(), running.display());
    output::print_error(&format!(
        "the configuration file {file} {fault}; using the socket {socket} of the running proxy"
    ));
    Ok(running)
}

/// Whether a process listens on a socket, or may do so: it may be busy, or refuse this account.
async fn listens(socket: &Path) -> Result<bool, AdminClientError> {
    let refused = UnixStream::connect(socket).await.err();
    let kind = refused.map(|error| error.kind());
    Ok(!matches!(
        kind,
        Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused)
    ))
}

fn unreadable(file: &Path, error: io::Error) -> Failure {
    let file = file.display();
    let context = format!(
        "cannot read {file}, which sets the path of the admin socket; to set it on the command line, use --socket"
    );
    anyhow::Error::from(error).context(context).into()
}
