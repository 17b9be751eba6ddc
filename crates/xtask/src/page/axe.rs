//! axe-core, which finds what is not accessible to people with assistive technology.

use std::{fs, process::Command};

use anyhow::{Context, Result, bail};

use super::browser::Browser;
use crate::workspace;

/// The version that is fetched from npm.
const AXE_CORE: &str = "4.14.1";

/// The script of axe-core. npm fetches it into the target directory if it is not there.
pub(super) fn script() -> Result<String> {
    let directory = workspace::target().join("axe-core").join(AXE_CORE);
    let file = directory.join("package/axe.min.js");
    if !file.is_file() {
        println!("fetching axe-core {AXE_CORE}");
        fs::create_dir_all(&directory).context("cannot create a directory for axe-core")?;
        let package = format!("axe-core@{AXE_CORE}");
        workspace::run(
            Command::new("npm")
                .args(["pack", "--silent", &package])
                .current_dir(&directory),
        )?;
        let archive = format!("axe-core-{AXE_CORE}.tgz");
        workspace::run(
            Command::new("tar")
                .args(["-xzf", &archive, "package/axe.min.js"])
                .current_dir(&directory),
        )?;
    }
    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
}

/// Fails if there is a violation of the rules of WCAG 2.2 A and AA, or of axe-core's best practices.
pub(super) fn check(browser: &Browser, axe: &str, screen: &str) -> Result<()> {
    browser.script(&format!("if (!window.axe) {{ {axe} }}"))?;
    let found = browser.script_async(
        "axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })
           .then((result) => done({
             passes: result.passes.length,
             violations: result.violations.map((rule) =>
               `${rule.id}: ${rule.help}: ${rule.nodes.map((node) => node.html + ' ' + node.failureSummary).join('; ')}`),
           }), (error) => done({ passes: 0, violations: [String(error)] }))",
    )?;
    let violations: Vec<_> = found["violations"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let passes = found["passes"].as_u64().unwrap_or(0);
    if !violations.is_empty() || passes < 20 {
        bail!("axe-core on {screen}: {passes} rules hold; violations: {violations:#?}");
    }
    println!("  ok: axe-core on {screen}: {passes} rules hold, no violation");
    Ok(())
}
