//! A headless Chromium, driven by chromedriver over WebDriver (W3C).

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use testkit::{Client, wait_until};

/// Longer than a page needs, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A browser with one window, which is closed on drop.
pub(crate) struct Browser {
    driver: Child,
    client: Client,
    session: String,
}

impl Browser {
    /// Starts Chromium with its profile in this directory.
    pub(crate) fn start(directory: &Path) -> Result<Self> {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run chromedriver; on Debian: sudo apt-get install chromium-driver")?;
        let port = port(&mut driver)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let client = Client::plain(address)
            .server_name("127.0.0.1")
            .timeout(LIMIT);
        let mut browser = Self {
            driver,
            client,
            session: String::new(),
        };
        let profile = format!("--user-data-dir={}", directory.display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &profile,
        ];
        let wanted =
            json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}}}});
        let opened = browser.call("POST", "/session", &wanted)?;
        let session = opened["sessionId"].as_str().context("a session")?;
        session.clone_into(&mut browser.session);
        Ok(browser)
    }

    /// Opens an address.
    pub(crate) fn open(&self, url: &str) -> Result<()> {
        self.command("url", &json!({"url": url})).map(drop)
    }

    /// Loads the page of this tab again.
    pub(crate) fn reload(&self) -> Result<()> {
        self.command("refresh", &json!({})).map(drop)
    }

    /// Opens an address in a new tab, and closes the tab after the check.
    pub(crate) fn in_another_tab(
        &self,
        url: &str,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let window = format!("{}/window", self.path());
        let first = self.call("GET", &window, &Value::Null)?;
        let opened = self.command("window/new", &json!({"type": "tab"}))?;
        self.command("window", &json!({"handle": opened["handle"]}))?;
        self.open(url)?;
        check()?;
        self.call("DELETE", &window, &Value::Null)?;
        self.command("window", &json!({"handle": first})).map(drop)
    }

    /// Runs a script; returns the value that the script returns.
    pub(crate) fn script(&self, source: &str) -> Result<Value> {
        self.command("execute/sync", &json!({"script": source, "args": []}))
    }

    /// Runs a script that calls `done` with its result.
    pub(crate) fn script_async(&self, source: &str) -> Result<Value> {
        let source = format!("const done = arguments[arguments.length - 1]; {source}");
        self.command("execute/async", &json!({"script": source, "args": []}))
    }

    /// Waits until an expression is true. `what` describes the expression in the error.
    pub(crate) fn wait_for(&self, what: &str, expression: &str) -> Result<()> {
        let source = format!("return Boolean({expression})");
        let met = wait_until(LIMIT, || {
            let value = self.script(&source).ok()?;
            (value == true).then_some(())
        });
        match met {
            Some(()) => {
                println!("  ok: {what}");
                Ok(())
            }
            None => {
                let text = self.script("return document.body.innerText")?;
                let text = text.as_str().unwrap_or_default().to_owned();
                bail!("{what}: not within {LIMIT:?}: {expression}\n{text}")
            }
        }
    }

    /// Presses keys, one after the other. `\u{E004}` is Tab, `\u{E007}` Enter, `\u{E00C}` Escape.
    pub(crate) fn press(&self, keys: &str) -> Result<()> {
        let strokes = keys.chars().flat_map(|key| {
            ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()}))
        });
        let strokes: Vec<_> = strokes.collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": strokes});
        self.command("actions", &json!({"actions": [keyboard]}))
            .map(drop)
    }

    /// The visible part of the page as PNG.
    pub(crate) fn screenshot(&self) -> Result<Vec<u8>> {
        let image = self.call("GET", &format!("{}/screenshot", self.path()), &Value::Null)?;
        let text = image.as_str().context("an image")?;
        STANDARD.decode(text).context("the image is not in base64")
    }

    /// A command of the DevTools protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) -> Result<()> {
        let body = json!({"cmd": command, "params": parameters});
        self.command("goog/cdp/execute", &body).map(drop)
    }

    fn command(&self, name: &str, body: &Value) -> Result<Value> {
        self.call("POST", &format!("{}/{name}", self.path()), body)
    }

    fn path(&self) -> String {
        format!("/session/{}", self.session)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let text = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let fields = [("Connection", "close")];
        let answer = self
            .client
            .try_request(method, path, &fields, text.as_bytes())
            .map_err(|error| anyhow::anyhow!("chromedriver: {method} {path}: {error}"))?;
        let mut value: Value = serde_json::from_slice(&answer.body.kept)
            .with_context(|| format!("chromedriver: {method} {path}"))?;
        let value = value["value"].take();
        match answer.status {
            200 => Ok(value),
            _ => bail!("chromedriver: {path}: {}", value["message"]),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The command closes the browser. The driver is killed in any case.
        let _ = self.call("DELETE", &self.path(), &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The port number that chromedriver prints.
fn port(driver: &mut Child) -> Result<u16> {
    let stdout = driver.stdout.take().context("stdout is a pipe")?;
    let mut lines = BufReader::new(stdout).lines();
    let port = lines.by_ref().find_map(|line| {
        let line = line.ok()?;
        let (_, rest) = line.split_once("started successfully on port ")?;
        rest.trim_end_matches('.').parse().ok()
    });
    // The rest of the driver's output is read, so that the driver never blocks on a full pipe.
    std::thread::spawn(move || lines.count());
    port.context("chromedriver printed no port")
}
