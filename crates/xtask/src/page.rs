//! `cargo xtask page`: the page of `proscenium ui` in a real Chromium, in front of a small estate. Each item must
//! change when its object changes, and axe-core must find no violation. The same is then checked for two proxies of a
//! fleet.

mod axe;
pub(crate) mod browser;
mod checks;
mod estate;
mod fleet;
mod outage;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::json;

use self::{
    browser::Browser,
    estate::{PageEstate, Traffic},
};
use crate::workspace;

/// The options of `cargo xtask page`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write the screenshots of the documentation to docs/images, and not to target/page
    #[arg(long)]
    screenshots: bool,
    /// Minutes of traffic before the screenshots
    #[arg(long, default_value_t = 0, value_name = "MINUTES")]
    traffic: u64,
}

/// Width, height and colours of a screen.
struct Screen {
    name: &'static str,
    width: u32,
    height: u32,
    colours: &'static str,
}

const SCREENS: [Screen; 4] = [
    Screen {
        name: "wide-light",
        width: 1400,
        height: 1500,
        colours: "light",
    },
    Screen {
        name: "wide-dark",
        width: 1400,
        height: 1500,
        colours: "dark",
    },
    Screen {
        name: "narrow-light",
        width: 360,
        height: 800,
        colours: "light",
    },
    Screen {
        name: "narrow-dark",
        width: 360,
        height: 800,
        colours: "dark",
    },
];

/// The screens that the documentation contains.
const DOCUMENTED: [&str; 2] = ["wide-light", "narrow-dark"];

/// Fails if an item does not change, or if axe-core finds a violation.
pub(crate) fn run(options: &Options) -> Result<()> {
    let axe = axe::script()?;
    let binary = workspace::build_proscenium(false)?;
    workspace::without_panic(|| show(&binary, &axe, options))
}

fn show(binary: &Path, axe: &str, options: &Options) -> Result<()> {
    let estate = PageEstate::start(binary);
    let directory = tempfile::tempdir().context("cannot create a directory for the browser")?;
    let browser = Browser::start(directory.path())?;
    set_screen(&browser, &SCREENS[0])?;
    let _page = checks::all(&estate, &browser)?;
    let traffic = Traffic::start(&estate);
    checks::traffic(&browser)?;
    checks::numbers(&estate, &browser)?;
    estate.have_problems();
    checks::problems(&browser)?;
    println!("traffic for {} minutes", options.traffic);
    traffic.run_for(Duration::from_secs(60 * options.traffic))?;
    let images = if options.screenshots {
        workspace::root().join("docs/images")
    } else {
        workspace::target().join("page")
    };
    screens(&browser, axe, &images, options.screenshots)?;
    drop(traffic);
    outage::check(&estate, &browser, axe)?;
    // The narrowest screen, on which each row of the fleet becomes a block.
    let narrow = &SCREENS[2];
    set_screen(&browser, narrow)?;
    fleet::check(binary, &browser, axe, narrow.width)
}

/// Looks for violations on each screen, also with the dialog open, and makes the screenshots.
fn screens(browser: &Browser, axe: &str, images: &PathBuf, for_docs: bool) -> Result<()> {
    fs::create_dir_all(images).with_context(|| format!("cannot create {}", images.display()))?;
    for screen in &SCREENS {
        set_screen(browser, screen)?;
        if !for_docs || DOCUMENTED.contains(&screen.name) {
            let file = images.join(format!("page-{}.png", screen.name));
            fs::write(&file, browser.screenshot()?)
                .with_context(|| format!("cannot write {}", file.display()))?;
            println!("wrote {}", file.display());
        }
        browser.script(
            "document.querySelectorAll('details').forEach((part) => { part.open = true; })",
        )?;
        checks::fits(browser, screen.width)?;
        if screen.width < 1100 {
            checks::one_line_for_each_member(browser)?;
        }
        axe::check(browser, axe, screen.name)?;
        browser.script("document.querySelector('[data-action=drain]').click()")?;
        axe::check(browser, axe, &format!("{} with the dialog", screen.name))?;
        browser.script("document.querySelector('#cancel').click()")?;
        browser.script(
            "document.querySelectorAll('details').forEach((part) => { part.open = part.dataset.well === 'false'; })",
        )?;
    }
    set_screen(browser, &SCREENS[0])
}

fn set_screen(browser: &Browser, screen: &Screen) -> Result<()> {
    let size = json!({
        "width": screen.width, "height": screen.height, "deviceScaleFactor": 1, "mobile": false,
    });
    browser.devtools("Emulation.setDeviceMetricsOverride", &size)?;
    let colours = json!({"name": "prefers-color-scheme", "value": screen.colours});
    browser.devtools(
        "Emulation.setEmulatedMedia",
        &json!({"features": [colours]}),
    )?;
    browser.script("scrollTo(0, 0)")?;
    // Waits for two frames, because the plots adapt to the screen in the first.
    browser.script_async("requestAnimationFrame(() => requestAnimationFrame(() => done(true)))")?;
    Ok(())
}
