//! `rollback`: applies a configuration again that the running proxy has used before.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::Path,
};

use admin::{
    AdminClient, AppliedConfiguration, ReloadOutcome, ReloadResult, RollbackOutcome,
    RollbackRequest,
};
use anyhow::Context;

use crate::{
    arguments::{Arguments, Rollback},
    ask::{client, wait},
    columns::table_or_lines,
    failure::Failure,
    new_file, output,
    progress::with_progress,
};

pub(crate) fn rollback(arguments: &Arguments, wanted: &Rollback) -> Result<(), Failure> {
    let client = client(arguments, &wanted.socket)?;
    if wanted.list {
        let applied = wait(client.applied_configurations())?;
        return output::answer(arguments.json, &applied, |applied| {
            match &applied.configurations[..] {
                [] => "no configuration is stored".to_owned(),
                all => table_or_lines(["ID", "APPLIED", "BYTES", ""], all, cells, line),
            }
        });
    }
    if !wanted.yes && !io::stdin().is_terminal() {
        let words =
            "error: the question needs a terminal; to apply a configuration without it, use --yes";
        return Err(Failure::Usage(words.to_owned()));
    }
    let request = RollbackRequest {
        to: wanted.to.clone(),
    };
    let tested = with_progress("testing the configuration", || {
        wait(client.try_roll_back(&request))
    })?;
    let configuration = &tested.configuration;
    refused(&tested.reload, &configuration.id)?;
    if !arguments.json {
        output::print(&line(configuration))?;
        output::print(tested.reload.report.trim_end())?;
    }
    if !wanted.yes && !is_wanted()? {
        return Err(Failure::because("nothing was changed"));
    }
    // Before anything changes: a refusal leaves the proxy as it is.
    let text = wanted
        .write
        .then(|| text_to_write(arguments, &client, &configuration.id));
    let text = text.transpose()?;
    // Of the same configuration, whatever has been applied since.
    let request = RollbackRequest {
        to: Some(configuration.id.clone()),
    };
    let outcome = with_progress("applying the configuration", || {
        wait(client.roll_back(&request))
    })?;
    refused(&outcome.reload, &configuration.id)?;
    let written = text.map(|text| write(arguments, &configuration.id, &text));
    let written = written.transpose()?;
    output::answer(arguments.json, &outcome, |outcome| {
        said(outcome, written.as_deref())
    })
}

/// The result, and what the next reload would do.
fn said(outcome: &RollbackOutcome, written: Option<&str>) -> String {
    let (id, generation) = (&outcome.configuration.id, outcome.reload.generation);
    let applied = match outcome.reload.result {
        ReloadResult::Unchanged => {
            format!("unchanged: configuration {id} is active as generation {generation}")
        }
        _ => format!("applied: configuration {id} is active as generation {generation}"),
    };
    match written {
        Some(file) => format!("{applied}\nwritten to {file}"),
        None => format!(
            "{applied}\nthe configuration file was not changed: if it differs, the next reload or restart applies it"
        ),
    }
}

/// Fails if a configuration is not applied, or would not be.
fn refused(outcome: &ReloadOutcome, id: &str) -> Result<(), Failure> {
    let report = outcome.report.trim_end();
    match outcome.result {
        ReloadResult::Refused => Err(Failure::Configuration(format!(
            "{report}\nrefused: configuration {id} is not applied, and generation {} stays active",
            outcome.generation
        ))),
        ReloadResult::Failed | ReloadResult::Stopping => Err(Failure::because(report.to_owned())),
        ReloadResult::Applied | ReloadResult::Unchanged | ReloadResult::HandedOver => Ok(()),
    }
}

/// Asks on the terminal.
fn is_wanted() -> Result<bool, Failure> {
    let mut answer = String::new();
    let asked = write!(io::stderr(), "apply this configuration? [y/N] ")
        .and_then(|()| io::stdin().read_line(&mut answer));
    asked.context("cannot ask on the terminal")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The text of a configuration, if the running proxy reads the configuration file of this command. The proxy has fewer rights
/// than root, so the proxy must not choose the file.
fn text_to_write(arguments: &Arguments, client: &AdminClient, id: &str) -> Result<String, Failure> {
    let file = wait(client.configuration())?.file;
    let real = |path: &Path| fs::canonicalize(path).ok();
    let found = real(Path::new(&file));
    if found.is_none() || found != real(&arguments.config) {
        let named = arguments.config.display();
        return Err(Failure::because(format!(
            "nothing was changed: the proxy reads {file}, and not {named}; name its file with --config"
        )));
    }
    Ok(wait(client.configuration_text(id))?.text)
}

/// Writes the text to the configuration file. Returns its path.
fn write(arguments: &Arguments, id: &str, text: &str) -> Result<String, Failure> {
    let file = arguments.config.display().to_string();
    new_file::replace_text(&arguments.config, text).with_context(|| {
        format!("configuration {id} is active, but it cannot be written to {file}")
    })?;
    Ok(file)
}

fn cells(configuration: &AppliedConfiguration) -> [String; 4] {
    [
        configuration.id.clone(),
        configuration.applied_at.to_string(),
        configuration.bytes.to_string(),
        active(configuration).to_owned(),
    ]
}

fn line(configuration: &AppliedConfiguration) -> String {
    let AppliedConfiguration {
        id,
        applied_at,
        bytes,
        ..
    } = configuration;
    let state = match active(configuration) {
        "" => String::new(),
        state => format!(", {state}"),
    };
    format!("configuration {id}, applied at {applied_at}, {bytes} bytes{state}")
}

fn active(configuration: &AppliedConfiguration) -> &'static str {
    if configuration.is_active {
        "active"
    } else {
        ""
    }
}
