//! What this program is built from. The command `version`, the option `--version` and the metric
//! `proscenium_build_info` show it.

use std::borrow::Cow;

use anyhow::Context;
use lifecycle::BuildStatus;
use serde_json::json;

use crate::{arguments::Arguments, failure::Failure, output};

pub(crate) const BUILD: BuildStatus = BuildStatus {
    version: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
    commit: Cow::Borrowed(env!("PROSCENIUM_COMMIT")),
    rustc: Cow::Borrowed(env!("PROSCENIUM_RUSTC")),
    tls: Cow::Borrowed(env!("PROSCENIUM_TLS")),
};

/// The values of `BUILD`, one per line. clap prints the name of the program before it.
pub(crate) const LINES: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("PROSCENIUM_COMMIT"),
    "\nrustc: ",
    env!("PROSCENIUM_RUSTC"),
    "\nTLS: ",
    env!("PROSCENIUM_TLS"),
    "\nprofile: ",
    env!("PROSCENIUM_PROFILE"),
);

pub(crate) fn version(arguments: &Arguments) -> Result<(), Failure> {
    if !arguments.json {
        return output::print(&format!("proscenium {LINES}"));
    }
    let BuildStatus {
        version,
        commit,
        rustc,
        tls,
    } = BUILD;
    let profile = env!("PROSCENIUM_PROFILE");
    let json = json!({ "version": version, "commit": commit, "rustc": rustc, "tls": tls, "profile": profile });
    output::print(&serde_json::to_string_pretty(&json).context("a version is JSON")?)
}
