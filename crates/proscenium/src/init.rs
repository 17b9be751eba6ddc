//! The command `init`: a configuration for this machine, or a CA for the compilers' side, and what to do next.

mod compiler_ca;
mod configuration;
mod machine;
mod steps;

use std::{
    fs::{self, DirBuilder},
    io::ErrorKind,
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use anyhow::Context;
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    arguments::{Arguments, Init},
    failure::Failure,
    new_file::{self, Existing},
    output,
};
use compiler_ca::CompilerCa;
use configuration::Members;
use machine::{Found, Machine};

/// Mode of the configuration, as the packages install it. It has no secrets.
const MODE: u32 = 0o644;
/// The name that stands for standard output in place of a file.
const STDOUT: &str = "-";

/// Writes a configuration or a CA for compilers, and prints what is left to do.
pub(crate) fn init(arguments: &Arguments, wanted: &Init) -> Result<(), Failure> {
    let machine = Machine::examine(&wanted.root);
    match &wanted.compiler_ca {
        Some(directory) => write_compiler_ca(arguments, wanted, &machine, directory),
        None => write_configuration(arguments, wanted, &machine),
    }
}

fn write_configuration(
    arguments: &Arguments,
    wanted: &Init,
    machine: &Machine,
) -> Result<(), Failure> {
    let members = Members::of(machine, wanted.ca.as_ref(), &wanted.compiler);
    let text = configuration::render(machine, &members, &wanted.root);
    let file = wanted.output.as_ref().unwrap_or(&arguments.config);
    let shown = file.display().to_string();
    let complete = configuration::render(machine, &members.with_examples(), &wanted.root);
    let report = config::check_text(&shown, &complete);
    if report.count(config::ProblemSeverity::Error) > 0 {
        return Err(report.into());
    }
    let steps = steps::after_configuration(machine, &members, &shown);
    if shown == STDOUT {
        output::print_error(steps::text(&steps).trim_end());
        return output::print(text.trim_end());
    }
    write_file(file, &text, wanted.force)?;
    let answer = json!({
        "file": shown,
        "missing": members.missing(),
        "machine": found(machine, &members)
            .into_iter()
            .map(|(what, value)| (what.to_owned(), value.into()))
            .collect::<serde_json::Map<_, _>>(),
        "steps": steps,
    });
    output::answer(arguments.json, &answer, |_| {
        let found = found(machine, &members).into_iter();
        let found: Vec<_> = found
            .map(|(what, value)| format!("  {what:<12} {value}"))
            .collect();
        format!(
            "wrote {shown}, with what was found on this machine:\n{}\n\n{}",
            found.join("\n"),
            steps::text(&steps)
        )
    })
}

fn write_file(file: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let shown = file.display();
    let existing = if force {
        Existing::Replace
    } else {
        Existing::Keep
    };
    if let Some(parent) = file.parent().filter(|parent| *parent != Path::new("")) {
        let mut builder = DirBuilder::new();
        let created = builder.recursive(true).mode(0o755).create(parent);
        created.with_context(|| format!("cannot create {}", parent.display()))?;
    }
    match new_file::write(file, text, MODE, existing) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let is_packaged =
                fs::read(file).is_ok_and(|its| its == configuration::PACKAGED.as_bytes());
            let what = if is_packaged {
                "is the file of the package, unchanged"
            } else {
                "exists"
            };
            Err(Failure::because(format!(
                "{shown} {what}: replace it with --force, or write to another file with --output"
            )))
        }
        written => Ok(written.with_context(|| format!("cannot write {shown}"))?),
    }
}

/// What was found, as it is printed.
fn found(machine: &Machine, members: &Members) -> Vec<(&'static str, String)> {
    let fact = |found: &Option<Found>| match found {
        Some(Found { value, source }) => format!("{value} ({source})"),
        None => "not found".to_owned(),
    };
    let pool = |members: &[Found]| match members {
        [] => "not found".to_owned(),
        members => {
            let each = members
                .iter()
                .map(|Found { value, source }| format!("{value} ({source})"));
            each.collect::<Vec<_>>().join(", ")
        }
    };
    let mut found = vec![
        (
            "puppet.conf",
            machine
                .puppet_conf
                .clone()
                .unwrap_or_else(|| "not found".to_owned()),
        ),
        ("ssldir", fact(&machine.ssldir)),
        ("certname", fact(&machine.certname)),
        ("CA server", pool(&members.ca)),
        ("compilers", pool(&members.compilers)),
    ];
    if machine.srv_domain.is_some() {
        let domain = fact(&machine.srv_domain);
        found.push((
            "SRV records",
            format!("{domain}; see /usr/share/doc/proscenium/operating/dns.md"),
        ));
    }
    let programs: Vec<_> = machine.programs.iter().copied().collect();
    let running = match programs.as_slice() {
        [] => "no program for Puppet or HTTP".to_owned(),
        programs => programs.join(", "),
    };
    found.push(("running", running));
    let port = if machine.agents_port_in_use {
        "in use"
    } else {
        "free"
    };
    found.push(("port 8140", port.to_owned()));
    found
}

fn write_compiler_ca(
    arguments: &Arguments,
    wanted: &Init,
    machine: &Machine,
    directory: &Path,
) -> Result<(), Failure> {
    let host = machine
        .certname
        .as_ref()
        .map_or("proxy", |found| &found.value);
    let mut ca = CompilerCa::create(host, OffsetDateTime::now_utc())
        .context("cannot create the CA for compilers")?;
    let snippets = webserver_confs(machine, &wanted.compiler)?;
    for (name, text) in &snippets {
        ca.add(name, text.clone());
    }
    ca.add("auth.conf", steps::AUTH_CONF.to_owned());
    ca.write(directory)?;
    let steps = steps::after_compiler_ca(&machine.layout, directory, &snippets[0].1);
    let date = |time: OffsetDateTime| time.format(&Rfc3339).context("a date has a text");
    let (not_before, not_after) = (date(ca.not_before)?, date(ca.not_after)?);
    let answer = json!({
        "directory": directory,
        "files": ca.names(),
        "not_before": not_before,
        "not_after": not_after,
        "steps": steps,
    });
    output::answer(arguments.json, &answer, |_| {
        format!(
            "created {} with {}\n\
             the CA, its CRL and the certificate of the proxy are valid from {not_before} until {not_after}\n\n{}",
            directory.display(),
            ca.names().join(", "),
            steps::text(&steps)
        )
    })
}

/// The `webserver.conf` of each compiler, by the name of the file; without names, one with a placeholder.
fn webserver_confs(
    machine: &Machine,
    compilers: &[String],
) -> Result<Vec<(String, String)>, Failure> {
    if compilers.is_empty() {
        let text = steps::webserver_conf(&machine.layout, "CERTNAME");
        return Ok(vec![("webserver.conf".to_owned(), text)]);
    }
    let hosts = compilers.iter().map(|address| {
        let host = address.split(':').next().unwrap_or_default();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
        if host.is_empty() || host.starts_with('.') || !host.chars().all(is_plain) { Err(Failure::Usage(format!(
                "error: --compiler {address}: write the host name of the compiler, which is also its certname"
            ))) } else { Ok(host) }
    });
    hosts
        .map(|host| {
            let host = host?;
            let text = steps::webserver_conf(&machine.layout, host);
            Ok((format!("webserver-{host}.conf"), text))
        })
        .collect()
}
