//! Manual pages: proscenium(8) and a page for each verb, from the declarations of the command line, and
//! proscenium.toml(5), from those of the settings.

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, bold, italic, roman},
};
use config::{Setting, SettingsTable};

/// Files that an administrator looks for: each path with its description.
const FILES: &[(&str, &str)] = &[
    (
        "/etc/proscenium/proscenium.toml",
        "The configuration; see proscenium.toml(5).",
    ),
    (
        "/etc/puppetlabs/puppet/ssl",
        "The ssldir of the Puppet agent. The proxy uses the agent's certificate, key, CA bundle and CRL, unless the \
         configuration names other files.",
    ),
    (
        "/run/proscenium/admin.sock",
        "The admin socket of the running proxy.",
    ),
    (
        "/run/proscenium/admin-socket",
        "The path of the admin socket, for commands that find no running proxy with the configuration file.",
    ),
    (
        "/var/lib/proscenium",
        "State that outlasts a restart: blocks, fetched CRLs.",
    ),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "NO_COLOR",
        "If set to a value that is not empty, error messages are printed without color.",
    ),
    (
        "STATE_DIRECTORY",
        "The state directory, unless the configuration names one. systemd sets it by StateDirectory=.",
    ),
    (
        "RUNTIME_DIRECTORY",
        "The directory of the file admin-socket, in place of /run/proscenium. systemd sets it by RuntimeDirectory=.",
    ),
    (
        "NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID",
        "Set by systemd. The proxy notifies systemd when it is ready and when it stops, and sends the pings of the watchdog.",
    ),
    (
        "JOURNAL_STREAM",
        "Set by systemd. If it describes standard error, log lines start with a priority for the journal in place of \
         the time.",
    ),
];

/// Each page with its file name.
pub(super) fn pages() -> Vec<(String, String)> {
    let mut command = proscenium::command()
        .disable_help_subcommand(true)
        .subcommand_help_heading("VERBS");
    command.build();
    let mut pages = vec![("proscenium.toml.5".to_owned(), settings_page())];
    command_pages(&mut pages, &command, &[]);
    pages
}

fn command_pages(pages: &mut Vec<(String, String)>, command: &Command, above: &[String]) {
    let name = name(command);
    pages.push((format!("{name}.8"), command_page(command, above)));
    let above = [above, &[format!("{name}(8)")]].concat();
    for verb in command.get_subcommands() {
        let verb = verb.clone().subcommand_help_heading("VERBS");
        command_pages(pages, &verb, &above);
    }
}

fn command_page(command: &Command, above: &[String]) -> String {
    let man = Man::new(command.clone())
        .section("8")
        .date(NO_DATE)
        .source(source())
        .manual(MANUAL);
    let mut page = Vec::new();
    let rendered = man
        .render_title(&mut page)
        .and_then(|()| man.render_name_section(&mut page))
        .and_then(|()| man.render_synopsis_section(&mut page))
        .and_then(|()| man.render_description_section(&mut page))
        .and_then(|()| man.render_options_section(&mut page))
        .and_then(|()| {
            if command.has_subcommands() {
                man.render_subcommands_section(&mut page)
            } else {
                Ok(())
            }
        });
    rendered.expect("memory can be written to");
    let mut more = Roff::new();
    let words = command.get_bin_name().unwrap_or_default();
    exit_status(&mut more, words.trim_start_matches("proscenium "));
    if above.is_empty() {
        list(&mut more, "FILES", FILES);
        list(&mut more, "ENVIRONMENT", ENVIRONMENT);
    }
    let below = command.get_subcommands();
    let mut related: Vec<_> = below.map(|verb| format!("{}(8)", name(verb))).collect();
    related.extend(above.iter().cloned());
    related.push("proscenium.toml(5)".to_owned());
    see_also(&mut more, &related);
    let page = String::from_utf8(page).expect("clap renders UTF-8");
    code_in_bold(&(page + &more.to_roff()))
}

fn exit_status(page: &mut Roff, verb: &str) {
    let codes = proscenium::exit_codes(verb).iter();
    let codes: Vec<_> = codes
        .map(|(code, meaning)| (code.to_string(), *meaning))
        .collect();
    let codes: Vec<_> = codes
        .iter()
        .map(|(code, meaning)| (&**code, *meaning))
        .collect();
    list(page, "EXIT STATUS", &codes);
}

fn settings_page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["proscenium.toml", "5", NO_DATE, &source(), MANUAL]);
    page.control("SH", ["NAME"]);
    page.text([roman("proscenium.toml - configuration of proscenium(8)")]);
    for SettingsTable {
        header,
        docs,
        settings,
    } in config::settings()
    {
        match header {
            None => {
                page.control("SH", ["DESCRIPTION"]);
                sentences(&mut page, &docs);
                page.control("PP", []);
                sentences(&mut page, config::NOTATION);
                page.control("SH", ["TOP LEVEL"]);
            }
            Some(header) => {
                page.control("SH", [header.trim_matches('`')]);
                sentences(&mut page, &docs);
            }
        }
        for setting in &settings {
            describe(&mut page, setting);
        }
    }
    list(&mut page, "FILES", &FILES[..1]);
    see_also(
        &mut page,
        &[
            "proscenium(8)",
            "proscenium-check(8)",
            "proscenium-config-show(8)",
        ]
        .map(str::to_owned),
    );
    code_in_bold(&page.render())
}

fn describe(page: &mut Roff, setting: &Setting) {
    page.control("TP", []);
    page.text([bold(setting.name)]);
    sentences(page, &setting.docs);
    page.control("RS", []);
    for (label, text) in [("Value: ", &setting.value), ("Default: ", &setting.default)] {
        page.control("PP", []);
        page.text([italic(label), roman(format!("{text}."))]);
    }
    page.control("RE", []);
}

fn list(page: &mut Roff, heading: &str, rows: &[(&str, &str)]) {
    page.control("SH", [heading]);
    for (term, meaning) in rows {
        page.control("TP", []);
        page.text([bold(*term)]);
        page.text([roman(*meaning)]);
    }
}

fn see_also(page: &mut Roff, related: &[String]) {
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(related.join(", "))]);
}

/// Writes Markdown with one sentence on each line.
fn sentences(page: &mut Roff, text: &str) {
    for line in text.lines() {
        page.text([roman(line)]);
    }
}

/// Prints Markdown code between backquotes in bold, because a terminal shows backquotes as quotation marks.
fn code_in_bold(page: &str) -> String {
    let mut bold = String::with_capacity(page.len());
    for line in page.lines() {
        let parts: Vec<_> = line.split('`').collect();
        for (at, part) in parts.iter().enumerate() {
            match at % 2 {
                // An unmatched backquote stays.
                1 if at + 1 == parts.len() => bold.extend(["\\(ga", part]),
                1 => bold.extend(["\\fB", part, "\\fR"]),
                _ => bold.push_str(part),
            }
        }
        bold.push('\n');
    }
    bold
}

fn name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

/// An empty argument for the date, so that a page changes only with its text.
const NO_DATE: &str = "\"\"";

/// The source that the bottom of each page names.
fn source() -> String {
    format!("proscenium {}", env!("CARGO_PKG_VERSION"))
}

const MANUAL: &str = "Proscenium";
