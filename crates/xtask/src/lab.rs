//! `cargo xtask lab`: builds the program and runs tests/lab/lab with it.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::workspace;

/// Builds the program and runs the lab's script with these arguments; `all` without any.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let proscenium = workspace::build_proscenium(false)?;
    workspace::run(&mut command(&proscenium, arguments))
}

/// The lab's script with these arguments, for this program; `all` without any.
pub(crate) fn command(proscenium: &Path, arguments: &[String]) -> Command {
    let mut lab = Command::new(workspace::root().join("tests/lab/lab"));
    lab.env("PROSCENIUM", proscenium)
        .env("LAB_DIR", workspace::target().join("lab"));
    match arguments {
        [] => lab.arg("all"),
        _ => lab.args(arguments),
    };
    lab
}

/// What the lab needs and this machine lacks.
pub(crate) fn missing() -> Option<&'static str> {
    if !Path::new("/usr/share/puppetserver/puppetserver.jar").exists() {
        return Some("Puppet Server is not installed");
    }
    let programs = [
        ("puppet", "the Puppet agent is not installed"),
        ("puppetserver", "Puppet Server is not installed"),
        ("java", "Java is not installed"),
        ("curl", "curl is not installed"),
        ("openssl", "openssl is not installed"),
        ("setfacl", "acl is not installed"),
    ];
    let absent = |(program, _): &&(&str, _)| !workspace::is_installed(program);
    programs.iter().find(absent).map(|(_, said)| *said)
}

/// The Debian packages that provide it.
pub(crate) const PACKAGES: &str = "puppetserver puppet-agent curl openssl acl";
