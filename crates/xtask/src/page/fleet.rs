//! A fleet on the page: two proxies in front of the same servers, with an etcd.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use rustix::process::Signal;
use testkit::{Ca, EtcdCluster, OperatorPage, Proxy, Servers, plain_pools};

use super::{
    axe,
    browser::Browser,
    checks::{act, fits, has, there},
};

/// Longer than the check takes, so that the entry of a frozen proxy stays.
const LEASE: &str = "lease = \"10m\"\n";

/// Shows both proxies, what differs, and where else a change applies.
pub(super) fn check(binary: &Path, browser: &Browser, axe: &str, width: u32) -> Result<()> {
    let ca = Ca::new();
    let store = EtcdCluster::start(&ca, 1)
        .context("a fleet needs etcd; on Debian: sudo apt-get install etcd-server etcd-client")?;
    let servers = Servers::plain(&ca);
    let tables = plain_pools(&servers.ca_server, &servers.compilers) + &store.fleet_table() + LEASE;
    let proxies = ["p1", "p2"].map(|name| {
        let proxy = Proxy::new(&ca, binary).certname(name).with(&tables).start();
        proxy.wait_for_members(&["ca", "compilers"]);
        proxy
    });
    let config = proxies[0].config_path();
    let page = OperatorPage::start(binary, &config, &["--actions"], Stdio::null());
    browser.open(&page.url)?;
    browser.wait_for(
        "each proxy has a row",
        &format!("{} && {}", has(&row("p1"), "this proxy"), there(&row("p2"))),
    )?;
    browser.wait_for("they are alike", &has("#fleet-body", "no differences"))?;
    turn(binary, &config, browser)?;
    acts(&proxies, &servers, browser)?;
    differences(&proxies, &servers, browser)?;
    fits(browser, width)?;
    axe::check(browser, axe, "a fleet")?;
    store.kill(0);
    browser.wait_for(
        "a store that is lost",
        &has("#fleet-body .bad", "not reached"),
    )?;
    let first = format!("[data-member='{}']", servers.compilers[0].address());
    act(browser, "ready", &first, "repaired")?;
    browser.wait_for(
        "a change that was not sent names the other proxies",
        &format!(
            "{} && {}",
            has("#outcome", "not sent to the fleet"),
            has("#outcome", "on p2 too")
        ),
    )
}

/// Checks that the page shows the turn of a proxy as long as the proxy has it.
fn turn(binary: &Path, config: &Path, browser: &Browser) -> Result<()> {
    let mut turn = Command::new(binary);
    turn.arg("--config")
        .arg(config)
        .args(["fleet", "turn", "--", "cat"]);
    let mut turn = turn.stdin(Stdio::piped()).spawn().context("the turn")?;
    browser.wait_for(
        "the turn names its proxy",
        &has("#fleet-body", "p1 has the turn"),
    )?;
    // The command `cat` exits at the end of its input.
    drop(turn.stdin.take());
    anyhow::ensure!(turn.wait()?.success(), "the command has ended");
    browser.wait_for(
        "the turn has ended",
        &format!("!({})", has("#fleet-body", "has the turn")),
    )
}

/// Checks that the page of one proxy shows drains and blocks of the other, and whether they apply there.
fn acts([first, second]: &[Proxy; 2], servers: &Servers, browser: &Browser) -> Result<()> {
    let address = servers.compilers[0].address();
    let member = format!("[data-member='{address}']");
    command(second, &["drain", &address, "--why", "disk"]);
    browser.wait_for(
        "a drain names its proxy",
        &format!("{} && {}", has(&member, " on p2 "), has(&member, ": disk")),
    )?;
    browser.wait_for("and all that have applied it", &has(&member, "also on p2"))?;
    browser.wait_for(
        "a proxy's row has its members out of service",
        &has(&row("p2"), &address),
    )?;
    act(browser, "ready", &member, "repaired")?;
    browser.wait_for(
        "a change shows where else it applies",
        &has("#outcome", "p2: applied after"),
    )?;
    command(second, &["block", "web01", "--why", "stolen"]);
    browser.wait_for(
        "a block names its proxy",
        &has("[data-blocked=web01]", " on p2"),
    )?;
    browser.wait_for(
        "the blocks are the same on all proxies",
        &has("#blocks-body", "the same on all proxies"),
    )?;
    second.signal(Signal::STOP);
    command(first, &["block", "web02", "--why", "stolen"]);
    browser.wait_for(
        "a proxy that has not applied a block",
        &has("#blocks-body", "not the same on p2"),
    )?;
    second.signal(Signal::CONT);
    browser.wait_for(
        "it has applied it",
        &has("#blocks-body", "the same on all proxies"),
    )
}

/// Checks that the page shows a configuration that differs, and a drain that one proxy withholds.
fn differences([_, second]: &[Proxy; 2], servers: &Servers, browser: &Browser) -> Result<()> {
    let [one, other] = [0, 1].map(|index: usize| servers.compilers[index].address());
    second.edit_config(&format!(", {other:?}"), "");
    second.reload_applied();
    browser.wait_for(
        "the rows have the section that differs",
        &format!(
            "{} && {}",
            has(&row("p1"), "configuration pools.compilers"),
            has(&row("p2"), "configuration pools.compilers")
        ),
    )?;
    let member = format!("[data-member='{one}']");
    act(browser, "drain", &member, "disk")?;
    browser.wait_for(
        "a proxy that withholds a drain is named",
        &format!(
            "{} && {}",
            has("#outcome", "p2: still uses"),
            has(&member, "still used by p2")
        ),
    )
}

/// The selector of a proxy's row.
fn row(name: &str) -> String {
    format!("[data-proxy={name}]")
}

fn command(proxy: &Proxy, words: &[&str]) {
    let outcome = proxy.command(&words[..1], &words[1..]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}
