//! A proxy that ends, or that does not answer: the page says so first, and dates everything else.

use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use super::{
    axe,
    browser::Browser,
    checks::{has, state_of_tab, there},
    estate::PageEstate,
};

/// Longer than the proxy needs to end.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Ends the proxy, reloads the page, starts the proxy again, and stops it without ending it.
pub(super) fn check(estate: &PageEstate, browser: &Browser, axe: &str) -> Result<()> {
    let proxy = &estate.estate.proxy;
    proxy.terminate();
    let lost = format!(
        "{} && {}",
        has("#band.bad", "The proxy has not answered since "),
        state_of_tab("bad", "No answer")
    );
    browser.wait_for("a proxy that has ended is the first box", &lost)?;
    browser.wait_for(
        "it says what to do",
        &has("#band .first", "systemctl start proscenium"),
    )?;
    browser.wait_for(
        "the rest is greyed and dated",
        &format!(
            "{} && {} && !document.querySelector('#content').hidden",
            there("#content.stale #pools"),
            has("#band", "What is below was true at ")
        ),
    )?;
    browser.wait_for(
        "it cannot be changed",
        "[...document.querySelectorAll('[data-action]')].every((button) => button.disabled)",
    )?;
    axe::check(browser, axe, "a proxy that has ended")?;
    browser.reload()?;
    browser.wait_for(
        "a page that was reloaded shows nothing but that",
        &format!(
            "{} && document.querySelector('#content').hidden && !document.body.innerText.includes('Serving')",
            has("#band.bad", "The proxy does not answer")
        ),
    )?;
    proxy.wait_for_exit(END_LIMIT);
    proxy.start_again();
    let alive =
        "!document.querySelector('#content').hidden && !document.querySelector('#content.stale')";
    browser.wait_for("the page follows a proxy that is started again", alive)?;
    proxy.signal(Signal::STOP);
    browser.wait_for("a proxy that has stopped is the first box", &lost)?;
    proxy.signal(Signal::CONT);
    browser.wait_for("the page follows it again", alive)?;
    proxy.terminate();
    Ok(())
}
