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
    is_well(browser, "nothing is wrong at first")?;
    browser.wait_for("the token is not in the address", "location.hash === ''")?;
    browser.wait_for(
        "the drawing says where requests go",
        "document.querySelector('#drawing svg').getAttribute('aria-label').includes('pool compilers, 3 of 3 available')",
    )?;
    browser.wait_for(
        "a pool that is well is folded",
        "!document.querySelector('[data-pool=compilers]').open",
    )?;
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
    browser.reload()?;
    browser.wait_for("a reload keeps the page open", &there(&member))?;
    browser.wait_for("it is still read-only", &has("#connection", "read-only"))?;
    let secret = "JSON.parse(sessionStorage.proscenium).secret";
    browser.wait_for(
        "the secret is in no address",
        &format!(
            "!location.href.includes({secret}) && !document.cookie \
             && performance.getEntries().every((entry) => !entry.name.includes({secret}))"
        ),
    )?;
    let alone = page.url.split('#').next().unwrap_or_default();
    browser.in_another_tab(alone, || {
        browser.wait_for(
            "another tab has no access",
            &format!(
                "{} && document.querySelector('#content').hidden && document.title.startsWith('Closed')",
                has("#band.bad", "Open the address")
            ),
        )
    })
}

/// The band, the title and the icon say that all is well.
pub(super) fn is_well(browser: &Browser, what: &str) -> Result<()> {
    browser.wait_for(
        what,
        &format!(
            "{} && {}",
            has("#band.good", "Serving"),
            state_of_tab("good", "Serving")
        ),
    )
}

/// An expression that is true if the title and the icon of the tab have this state.
pub(super) fn state_of_tab(state: &str, title: &str) -> String {
    format!(
        "(({{href, dataset}}) => href.startsWith('data:image/svg+xml,') && dataset.state === '{state}')\
         (document.querySelector('#icon')) && document.title.startsWith('{title}')"
    )
}

/// A member is drained with the keyboard alone.
fn keyboard(estate: &PageEstate, browser: &Browser) -> Result<()> {
    let member = estate.estate.compilers[0].address();
    let button = format!("[data-action=drain][data-member='{member}']");
    browser.wait_for("a member has a button", &there(&button))?;
    browser.script("document.activeElement.blur(); scrollTo(0, 0)")?;
    tab_to(browser, "[data-pool=compilers] summary")?;
    browser.press(ENTER)?;
    let reached = tab_to(browser, &button)?;
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
    browser.wait_for("the focus is back at the button", &reached)?;
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

/// Presses Tab until an element has the focus. Returns the expression that is true while it has.
fn tab_to(browser: &Browser, selector: &str) -> Result<String> {
    let reached = format!("document.activeElement.matches(\"{selector}\")");
    let mut tabs = 0;
    while browser.script(&format!("return {reached}"))? != Value::Bool(true) {
        browser.press(&TAB.to_string())?;
        tabs += 1;
        ensure!(tabs < TABS_MAX, "the key Tab does not reach {selector}");
    }
    Ok(reached)
}

/// Health, probes, in flight, and the alarm of a pool without members.
fn members(estate: &PageEstate, browser: &Browser) -> Result<()> {
    let compilers = &estate.estate.compilers;
    let row = format!("[data-member='{}']", compilers[2].address());
    browser.wait_for("JRubies are shown", &has(&row, "of 4"))?;
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
        "the band names the pool, and the tab follows",
        &format!(
            "{} && {}",
            has("#band.bad", "no member of pool compilers is available"),
            state_of_tab("bad", "Critical")
        ),
    )?;
    browser.wait_for(
        "the band says what to do first",
        &has("#band .first", "First: "),
    )?;
    browser.wait_for(
        "the members that are down are folded below it",
        &format!(
            "{} && !document.querySelector('#band details').open && document.querySelector('#problems').childElementCount === 0",
            has("#band details li", "is down")
        ),
    )?;
    browser.wait_for(
        "the drawing shows it, in words too",
        &format!(
            "{} && document.querySelector('#drawing svg').getAttribute('aria-label').includes('none of 3')",
            has("#drawing .box.bad", "none of 3 available")
        ),
    )?;
    browser.wait_for(
        "JRubies of a member that is down are unknown",
        &has(&row, "unknown"),
    )?;
    for compiler in compilers {
        compiler.restart();
    }
    is_well(browser, "the band is green again")?;
    in_flight(estate, browser)
}

/// A request in flight, in its row and in the dialog of a drain; and a drain with an end.
fn in_flight(estate: &PageEstate, browser: &Browser) -> Result<()> {
    let compilers = &estate.estate.compilers;
    for compiler in compilers {
        compiler.hold();
    }
    let agent = estate.agent("slow.example.com");
    let waiting = std::thread::spawn(move || agent.get(&catalog("slow.example.com")).status);
    let busy = "[...document.querySelectorAll('[data-pool=compilers] [data-member]')]\
         .find((row) => row.querySelector('[data-label=\"In flight\"]').textContent.startsWith('1'))";
    browser.wait_for("a request is in flight", busy)?;
    browser.script(&format!(
        "{busy}.querySelector('[data-action=drain]').click()"
    ))?;
    browser.wait_for(
        "the dialog has what is in flight, and what stays",
        &format!(
            "{} && {}",
            has("#dialog-text", "In flight there now: 1 request."),
            has(
                "#dialog-text",
                "Available in pool compilers after it: 2 of 3 members"
            )
        ),
    )?;
    browser.script(
        "document.querySelector('#why').value = 'kernel update'; \
         document.querySelector('#until').value = 'tomorrow'; document.querySelector('#confirm').click()",
    )?;
    browser.wait_for(
        "an end that is not a time is refused",
        &has("#dialog-error", "a duration (12h, 7d)"),
    )?;
    browser.script(
        "document.querySelector('#until').value = '2h'; document.querySelector('#confirm').click()",
    )?;
    browser.wait_for("the row has the end", &has("[data-member]", ", until 20"))?;
    for compiler in compilers {
        compiler.release();
    }
    ensure!(waiting.join().is_ok_and(|status| status == 200));
    act(browser, "ready", "[data-pool=compilers]", "updated")
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
    browser.wait_for(
        "a name that its certificate proves is not called unverified",
        "!document.querySelector('#refusals-clients').textContent.includes('unverified')",
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

/// Numbers of each member and failures.
pub(super) fn numbers(estate: &PageEstate, browser: &Browser) -> Result<()> {
    estate.have_numbers();
    let cell = |name: &str, text: &str| {
        has(
            &format!("[data-pool=compilers] [data-label='{name}']"),
            text,
        )
    };
    for (what, column, text) in [
        (
            "requests per second and the share",
            "Requests/s",
            "% of pool",
        ),
        ("durations by kind of work", "p95", "catalog "),
        ("failures by cause", "Failures/min", "5xx"),
        ("connections", "In flight", "connection"),
        ("a slow member beside its neighbours", "p95", "neighbours "),
        ("a mark of the slow member", "State", "slow"),
    ] {
        browser.wait_for(what, &cell(column, text))?;
    }
    browser.wait_for("failures by kind", &has("#work", "5xx of members"))?;
    browser.wait_for(
        "rates on the arrows",
        "[...document.querySelectorAll('#drawing text.rate')].filter((text) => /^[0-9.]+\\/s$/.test(text.textContent)).length >= 3",
    )?;
    browser.wait_for(
        "failures are a red area",
        "(() => { const c = document.querySelector('#rate-plot canvas'); \
         const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; \
         for (let i = 0; i < d.length; i += 4) { \
           if (d[i + 3] > 60 && d[i + 3] < 120 && d[i] > 140 && d[i + 1] < 90) return true; } \
         return false; })()",
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
        &has("#band.warn, #problems .warn", "is down"),
    )?;
    browser.wait_for(
        "the band is amber, and the tab follows",
        &state_of_tab("warn", "Degraded"),
    )?;
    browser.wait_for("a drained member", &has("#pools-body", "kernel update"))?;
    browser.wait_for("refusals by reason", &there("[data-reason=blocked]"))?;
    browser.wait_for(
        "what operators did recently",
        &there("#recent [data-event=operator]"),
    )?;
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

/// On a telephone, each member has one line, and its button shows the rest.
pub(super) fn one_line_for_each_member(browser: &Browser) -> Result<()> {
    let heights =
        "[...document.querySelectorAll('.members tbody tr')].map((row) => row.offsetHeight)";
    browser.wait_for(
        "each member has one line",
        &format!("{heights}.every((height) => height > 20 && height < 56)"),
    )?;
    browser.script("document.querySelector('[data-more]').click()")?;
    browser.wait_for(
        "its button shows the rest",
        &format!(
            "{heights}.some((height) => height > 150) && {}",
            there("[data-more][aria-expanded=true]")
        ),
    )?;
    browser.script("document.querySelector('[data-more]').click()")?;
    browser.wait_for(
        "and folds it again",
        &format!("{heights}.every((height) => height < 56)"),
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
