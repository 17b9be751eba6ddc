//! `cargo xtask lab`: builds the program and runs tests/lab/lab with it.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::workspace;

/// Builds the program and runs the lab's script with these arguments, or with `all` if there are none. `PUPPET` is the
/// version of Puppet Server, 7 by default.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut lab = script(&workspace::build_proscenium(false)?);
    match arguments {
        [] => lab.arg("all"),
        _ => lab.args(arguments),
    };
    workspace::run(&mut lab)
}

/// The versions of Puppet Server that every change is tested with.
pub(crate) const VERSIONS: [&str; 2] = ["7", "8"];

/// A command of the lab's script for this version. `prepare` makes everything that can be reused, and `ci` runs the
/// tests that every change must pass.
pub(crate) fn command(name: &str, version: &str, proscenium: &Path) -> Command {
    let mut lab = script(proscenium);
    lab.arg(name).env("PUPPET", version);
    lab
}

fn script(proscenium: &Path) -> Command {
    let mut lab = Command::new(workspace::root().join("tests/lab/lab"));
    lab.env("PROSCENIUM", proscenium);
    lab
}

/// The programs that the lab with this version needs and this machine lacks.
pub(crate) fn missing(version: &str) -> Option<String> {
    let programs: &[(&str, &str)] = match version {
        // The lab creates a root directory with everything else.
        "8" => &[("mmdebstrap", "mmdebstrap")],
        _ => &[
            ("puppet", "the Puppet agent"),
            ("puppetserver", "Puppet Server"),
            ("java", "Java"),
            ("curl", "curl"),
            ("openssl", "openssl"),
            ("setfacl", "acl"),
        ],
    };
    let absent = |(program, _): &&(&str, _)| !workspace::is_installed(program);
    match programs.iter().find(absent) {
        Some((_, name)) => Some(format!("{name} is not installed")),
        None if version == "7" => not_seven(),
        None => None,
    }
}

/// An error text if this machine has another version of Puppet Server than 7, as Debian 13 has.
fn not_seven() -> Option<String> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${Version}", "puppetserver"]);
    let found = workspace::output(&mut query).unwrap_or_default();
    (!found.starts_with("7.")).then(|| format!("this machine has Puppet Server {found}"))
}

/// The Debian packages that the lab needs.
pub(crate) const PACKAGES: &str = "puppetserver puppet-agent curl openssl acl mmdebstrap";
