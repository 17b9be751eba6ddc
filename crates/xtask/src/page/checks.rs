//! The checks of the page: the items that it must show, and when.

use anyhow::{Result, ensure};
use serde_json::Value;
use testkit::OperatorPage;

use super::{
    browser::Browser,
    estate::{PageEstate, catalog},
};

const TAB: char = '\u{E004}';
const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";
/// More than the number of elements on the page that can have the focus.
const TABS_MAX: usize = 60;

/// Checks that each item changes when its object changes. Returns the page, which stays open.
pub(super) fn all(estate: &PageEstate, browser: &Browser) -> Result<OperatorPage> {
    read_only(estate, browser)?;
    let page = estate.page(&["--actions"]);
    browser.open(&page.url)?;
    browser.wait_for(
        "the page opens",
        "!document.querySelector('#content').hidden",
    )?;
    browser.wait_for(
        "nothing is wrong at first",
        &has("#problems-body", "Nothing."),
    )?;
    browser.wait_for("the token is not in the address", "location.hash === ''")?;
    browser.wait_for(
        "a proxy alone has no section of a fleet",
        "document.querySelector('#fleet').hidden",
    )?;
    keyboard(estate, browser)?;
    members(estate, browser)?;
    agents(estate, browser)?;
    trust(estate, browser)?;
    Ok(page)
}

/// A page without `--actions` has no button that changes something.
fn read_only(estate: &PageEstate, browser: &Browser) -> Result<()> {
    let page = estate.page(&[]);
    browser.open(&page.url)?;
    let member = format!("[data-member='{}']", estate.estate.compilers[0].address());
    browser.wait_for("a page without actions opens", &there(&member))?;
    browser.wait_for("it says so", &has("#connection", "read-only"))?;
    browser.wait_for(
        "it has no action",
        "document.querySelectorAll('[data-action]').length === 0",
    )?;
    browser.open(page.url.split('#').next().unwrap_or_default())?;
    browser.wait_for(
        "a reloaded page is closed",
        &has("#closed", "Open the address"),
    )?;
    Ok(())
}

/// A member is drained with the keyboard alone.
fn keyboard(estate: &PageEstate, browser: &Browser) -> Result<()> {
    let member = estate.estate.compilers[0].address();
    let button = format!("[data-action=drain][data-member='{member}']");
    browser.wait_for("a member has a button", &there(&button))?;
    browser.script("document.activeElement.blur(); scrollTo(0, 0)")?;
    let reached = format!("return document.activeElement.matches(\"{button}\")");
    let mut tabs = 0;
    while browser.script(&reached)? != Value::Bool(true) {
        browser.press(&TAB.to_string())?;
        tabs += 1;
        ensure!(tabs < TABS_MAX, "the key Tab does not reach {button}");
    }
    browser.press(ENTER)?;
    browser.wait_for(
        "the key Enter opens the dialog",
        "document.querySelector('#dialog').open",
    )?;
    browser.press(ESCAPE)?;
    browser.wait_for(
        "the key Escape closes it",
        "!document.querySelector('#dialog').open",
    )?;
    browser.wait_for(
        "the focus is back at the button",
        &reached.replace("return ", ""),
    )?;
    browser.press(ENTER)?;
    browser.wait_for(
        "the dialog opens again",
        "document.querySelector('#dialog').open",
    )?;
    browser.press(ENTER)?;
    browser.wait_for(
        "a reason is required",
        "document.querySelector('#dialog').open",
    )?;
    browser.press("kernel update\u{E007}")?;
    let row = format!("[data-member='{member}']");
    browser.wait_for("the member is draining", &has(&row, "draining"))?;
    browser.wait_for("its row has the reason", &has(&row, "kernel update"))?;
    act(
        browser,
        "ready",
        &format!("[data-member='{member}']"),
        "updated",
    )?;
    browser.wait_for(
        "the member is ready",
        &format!("!({})", has(&row, "draining")),
    )
}

/// Health, probes, in flight, and the alarm of a pool without members.
fn members(estate: &PageEstate, browser: &Browser) -> Result<()> {
    let compilers = &estate.estate.compilers;
    let row = format!("[data-member='{}']", compilers[2].address());
    browser.wait_for("JRubies are shown", &has(&row, "of 4 busy"))?;
    browser.wait_for(
        "probes are shown",
        &there(&format!("{row} .probes .passed")),
    )?;
    for compiler in compilers {
        compiler.kill();
    }
    browser.wait_for(
        "a failed probe is shown",
        &there(&format!("{row} .probes .failed")),
    )?;
    browser.wait_for("a member is down", &has(&row, "down"))?;
    browser.wait_for(
        "the pool is an alarm",
        &has(".problems .error", "compilers"),
    )?;
    browser.wait_for(
        "the alarm says what to do first",
        &has(".problems .error", "Do this first"),
    )?;
    for compiler in compilers {
        compiler.restart();
    }
    browser.wait_for("the alarm is gone", &has("#problems-body", "Nothing."))?;
    for compiler in compilers {
        compiler.hold();
    }
    let agent = estate.agent("slow.example.com");
    let waiting = std::thread::spawn(move || agent.get(&catalog("slow.example.com")).status);
    browser.wait_for(
        "a request is in flight",
        "[...document.querySelectorAll('[data-label=\"In flight\"]')].some((cell) => cell.textContent === '1')",
    )?;
    for compiler in compilers {
        compiler.release();
    }
    ensure!(waiting.join().is_ok_and(|status| status == 200));
    Ok(())
}

/// Search, last runs, blocks, and the refusals that follow.
fn agents(estate: &PageEstate, browser: &Browser) -> Result<()> {
    let name = "web01.example.com";
    ensure!(estate.agent(name).get(&catalog(name)).status == 200);
    ensure!(
        estate
            .agent("web02.example.com")
            .get(&catalog("web02.example.com"))
            .status
            == 200
    );
    search(browser, "WEB0")?;
    browser.wait_for(
        "a search finds agents",
        &there("[data-agent='web02.example.com']"),
    )?;
    browser.script(&format!(
        "document.querySelector(\"[data-agent='{name}']\").click()"
    ))?;
    browser.wait_for("the agent's verdict", &has("#agent", "SUCCESS"))?;
    browser.wait_for(
        "the agent's last run",
        &has("#agent details", "/puppet/v3/catalog/web01"),
    )?;
    act(browser, "block", "#agent", "stolen <b>laptop</b>")?;
    let block = format!("[data-blocked='{name}']");
    browser.wait_for(
        "the block is listed, as text",
        &has(&block, "stolen <b>laptop</b>"),
    )?;
    browser.wait_for("the agent's page has the block", &has("#agent", "Blocked"))?;
    ensure!(estate.agent(name).get(&catalog(name)).status == 403);
    browser.wait_for("the refusal is counted", &there("[data-reason=blocked]"))?;
    browser.wait_for(
        "the refused client is listed",
        &has("#refusals-clients", name),
    )?;
    browser.script(&format!(
        "document.querySelector(\"{block} [data-action=unblock]\").click()"
    ))?;
    browser.script("document.querySelector('#confirm').click()")?;
    browser.wait_for(
        "the block is lifted",
        &has("#blocks-body", "No certificate is blocked"),
    )?;
    ensure!(estate.agent(name).get(&catalog(name)).status == 200);
    Ok(())
}

/// CRLs and expiring certificates.
fn trust(estate: &PageEstate, browser: &Browser) -> Result<()> {
    let (ca, proxy) = (&estate.estate.ca, &estate.estate.proxy);
    let number = ca.renew_crl();
    proxy.write_crl();
    proxy.reload_applied();
    let cell = "[...document.querySelectorAll('[data-crl] td:nth-child(2)')]";
    browser.wait_for(
        "a new CRL is shown",
        &format!("{cell}.some((cell) => cell.textContent === '{number}')"),
    )?;
    let expiring = ca.leaf("old.example.com").valid_days(-10, 5).issue();
    ensure!(
        estate
            .estate
            .client(&expiring)
            .get(&catalog("old.example.com"))
            .status
            == 200
    );
    browser.wait_for(
        "a certificate that expires soon",
        &there("[data-certificate='old.example.com']"),
    )
}

/// Rates, durations and the run interval.
pub(super) fn traffic(browser: &Browser) -> Result<()> {
    let cells = "[...document.querySelectorAll('[data-work=catalog] td')]";
    browser.wait_for(
        "the rate of catalogs",
        &format!("{cells}[1].textContent !== '0'"),
    )?;
    browser.wait_for(
        "the duration of catalogs",
        &format!("{cells}[3].textContent.includes('ms')"),
    )?;
    browser.wait_for(
        "the plots are drawn",
        "document.querySelectorAll('.plot canvas').length === 2",
    )?;
    browser.wait_for("the run interval has a busy minute", &there(".heat-9"))?;
    browser.wait_for(
        "the plot has lines",
        "(() => { const c = document.querySelector('#rate-plot canvas'); \
         const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; \
         const seen = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) seen.add(`${d[i]},${d[i + 1]},${d[i + 2]}`); \
         return seen.size >= 3; })()",
    )
}

/// Checks that the page shows the problems that the screenshots will show.
pub(super) fn problems(browser: &Browser) -> Result<()> {
    browser.wait_for(
        "a member that is down is a problem",
        &has(".problems", "is down"),
    )?;
    browser.wait_for("a drained member", &has("#pools-body", "kernel update"))?;
    browser.wait_for("refusals by reason", &there("[data-reason=blocked]"))?;
    search(browser, "web03.example.com")?;
    browser.wait_for("an agent with its runs", &there("#agent details"))
}

/// Fails if an element is wider than the screen.
pub(super) fn fits(browser: &Browser, width: u32) -> Result<()> {
    browser.wait_for(
        &format!("the page fits {width} pixels"),
        &format!("document.documentElement.scrollWidth <= {width} && innerWidth === {width}"),
    )
}

/// The page shows that the proxy has ended.
pub(super) fn end(estate: &PageEstate, browser: &Browser) -> Result<()> {
    estate.estate.proxy.terminate();
    browser.wait_for(
        "a proxy that has ended",
        &has("#connection.bad", "no proscenium is listening"),
    )
}

/// Presses a button in a part of the page, enters the reason, and confirms.
pub(super) fn act(browser: &Browser, action: &str, part: &str, why: &str) -> Result<()> {
    let button = format!("{part} [data-action={action}]");
    browser.wait_for(&format!("the button {action}"), &there(&button))?;
    browser.script(&format!("document.querySelector(\"{button}\").click()"))?;
    browser.script(&format!(
        "document.querySelector('#why').value = '{why}'; document.querySelector('#confirm').click()"
    ))?;
    browser.wait_for(
        &format!("{action} is done"),
        "!document.querySelector('#dialog').open",
    )
}

fn search(browser: &Browser, words: &str) -> Result<()> {
    browser
        .script(&format!(
            "document.querySelector('#certname').value = '{words}'; document.querySelector('#search').requestSubmit()"
        ))
        .map(drop)
}

/// An expression that is true if an element exists.
pub(super) fn there(selector: &str) -> String {
    format!("document.querySelector(\"{selector}\")")
}

/// An expression that is true if an element contains this text.
pub(super) fn has(selector: &str, text: &str) -> String {
    format!(
        "[...document.querySelectorAll(\"{selector}\")].some((found) => found.textContent.includes('{text}'))"
    )
}
