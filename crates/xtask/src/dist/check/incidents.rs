//! Incidents on the packaged service under systemd, while agents send requests. Each shows what an operator sees: the first
//! sign, and whether the status, the page of `proscenium ui` in Chromium, and the alerts of a real Prometheus name the cause
//! first.

mod causes;

use std::{
    any::Any,
    fs,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{Client, HeldPort, OperatorPage, Prometheus, Servers, wait_until};

use self::causes::{INCIDENTS, Incident, Shown};
use super::{CONFIG, Check, booted::in_system, installed::Service};
use crate::page::browser::Browser;

/// Longer than any of the package's default intervals.
const LIMIT: Duration = Duration::from_secs(180);
/// Agents that request a catalog again and again, each on a new connection.
const AGENTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(250);
/// The file with which an incident changes the unit.
const DROP_IN: &str = "/run/systemd/system/proscenium.service.d/incident.conf";

/// Installs the package, plays the incidents with these names, or every one if there are none, and prints a table. It is an
/// error if the status, the page or the alerts do not name a cause first.
pub(super) fn play(lower: &Path, package: &Path, only: &[String]) -> Result<()> {
    let is_known = |name: &&String| INCIDENTS.iter().any(|incident| *name == incident.name);
    if let Some(unknown) = only.iter().find(|name| !is_known(name)) {
        let names = INCIDENTS.map(|incident| incident.name).join(", ");
        bail!("there is no incident {unknown:?}; choose from {names}");
    }
    in_system(lower, |check| {
        check.install(check.manager.install, package)?;
        let servers = Servers::start("incidents");
        let service = Service::new(&check.root, &servers)?;
        let agents = Agents::default();
        let mut stage = Stage::set(check, &servers, &service, &agents)?;
        let rows = thread::scope(|scope| {
            for (number, agent) in service.agents(AGENTS).into_iter().enumerate() {
                let agents = &agents;
                scope.spawn(move || agents.run(&agent, &catalog_of(number)));
            }
            let wanted = INCIDENTS.iter().filter(|incident| {
                only.is_empty() || only.iter().any(|name| name == incident.name)
            });
            // Also after a panic, the scope waits for the agents.
            let _ends = EndOf(&agents);
            wanted
                .map(|one| stage.play(one))
                .collect::<Result<Vec<_>>>()
        })?;
        println!(
            "| incident | first sign | `status` names first | exit code | band of the page | alerts |"
        );
        println!("| --- | --- | --- | --- | --- | --- |");
        for row in rows {
            println!("| {} |", row.join(" | "));
        }
        Ok(())
    })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The path of the catalog of one of the agents.
fn catalog_of(number: usize) -> String {
    format!("/puppet/v3/catalog/web{number}?environment=production")
}

/// The agents, and the first failure of one.
#[derive(Default)]
struct Agents(Mutex<AgentsState>);

#[derive(Default)]
struct AgentsState {
    failure: Option<(Instant, String)>,
    has_ended: bool,
}

/// Ends the agents on drop.
struct EndOf<'a>(&'a Agents);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        self.0.state().has_ended = true;
    }
}

impl Agents {
    fn run(&self, agent: &Client, catalog: &str) {
        while !self.state().has_ended {
            let failure = match agent.try_request("GET", catalog, &[], b"") {
                Ok(answer) if answer.status == 200 => None,
                Ok(answer) => Some(format!("{} {}", answer.status, answer.text())),
                Err(error) => Some(error.to_string()),
            };
            if let Some(failure) = failure {
                self.state()
                    .failure
                    .get_or_insert_with(|| (Instant::now(), failure));
            }
            thread::sleep(PAUSE);
        }
    }

    fn state(&self) -> MutexGuard<'_, AgentsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that an incident can change, and everything that shows it.
struct Stage<'a> {
    check: &'a Check<'a>,
    servers: &'a Servers,
    service: &'a Service<'a>,
    /// The configuration in which everything is well.
    healthy: String,
    browser: Browser,
    prometheus: Prometheus,
    _page: OperatorPage,
    _directory: TempDir,
    agents: &'a Agents,
    /// What an incident keeps until its end.
    held: Vec<Box<dyn Any>>,
}

impl<'a> Stage<'a> {
    fn set(
        check: &'a Check<'a>,
        servers: &'a Servers,
        service: &'a Service<'a>,
        agents: &'a Agents,
    ) -> Result<Self> {
        let metrics = HeldPort::take().address();
        let healthy = format!(
            "{}\n[metrics]\naddress = \"{metrics}\"\n",
            service.fill_in()?
        );
        fs::write(check.root.path(CONFIG), &healthy)?;
        check.call(&["systemctl", "enable", "--now", "proscenium"])?;
        let directory = tempfile::tempdir()?;
        // The installed rules, without the times for which a condition must hold.
        let rules = "/usr/share/proscenium/prometheus/proscenium.rules.yml";
        let rules = fs::read_to_string(check.root.path(rules))?;
        let at_once = rules
            .lines()
            .map(|line| match line.split_once("for: ") {
                Some((indent, _)) if indent.trim().is_empty() => format!("{indent}for: 0s\n"),
                _ => format!("{line}\n"),
            })
            .collect::<String>();
        let rules = directory.path().join("rules.yml");
        fs::write(&rules, at_once)?;
        let prometheus = Prometheus::start(directory.path(), metrics, Some(&rules))
            .context("Prometheus does not start")?;
        let page = OperatorPage::run(check.root.command("proscenium"), Path::new(CONFIG), &[]);
        let browser = Browser::start(&directory.path().join("browser"))?;
        browser.open(&page.url)?;
        Ok(Self {
            check,
            servers,
            service,
            healthy,
            browser,
            prometheus,
            _page: page,
            _directory: directory,
            agents,
            held: Vec::new(),
        })
    }

    /// Plays an incident from a state in which all is well; returns its row of the table.
    fn play(&mut self, incident: &Incident) -> Result<Vec<String>> {
        println!("\n{}", incident.name);
        self.is_well()?;
        self.agents.state().failure = None;
        let begun = (incident.begins)(self)?;
        // A restart for the incident is not its sign.
        self.agents.state().failure.take_if(|(at, _)| *at < begun);
        let shown = self
            .observe(incident, begun)
            .with_context(|| incident.name.to_owned())?;
        (incident.ends)(self)?;
        self.held.clear();
        self.restarts_with(&self.healthy)?;
        Ok(shown)
    }

    fn observe(&self, incident: &Incident, begun: Instant) -> Result<Vec<String>> {
        let after =
            |at: Instant| format!("{:.1} s", at.saturating_duration_since(begun).as_secs_f64());
        let mut first_alarm = None;
        let named = wait_until(LIMIT, || {
            let status = self.status();
            let alarm = status["alarms"][0]["key"].as_str();
            if let (None, Some(alarm)) = (&first_alarm, alarm) {
                first_alarm = Some((Instant::now(), format!("alarm {alarm}")));
            }
            match incident.shown {
                Shown::Alarm { kinds, .. } => kinds
                    .iter()
                    .any(|kind| alarm.is_some_and(|alarm| alarm.starts_with(kind)))
                    .then(Instant::now),
                Shown::Stopped => status.is_null().then(Instant::now),
                Shown::Refusal => self.agents.state().failure.as_ref().map(|(at, _)| *at),
            }
        });
        let named = named.with_context(|| {
            format!("the status does not name it: {:#}", self.status()["alarms"])
        })?;
        let alarm = self.status()["alarms"][0].clone();
        let band = self.band(incident, &alarm)?;
        let alerts = self.alerts(incident)?;
        let mut status = self.check.root.command("proscenium");
        let status = status.args(["status", "--exit-code"]).output()?;
        let code = status.status.code();
        ensure!(
            code == Some(incident.exit_code),
            "exit code {code:?}: {}",
            String::from_utf8_lossy(&status.stdout)
        );
        let failure = self.agents.state().failure.clone();
        let failure =
            failure.map(|(at, why)| (at, format!("an agent's request: {}", first_line(&why))));
        let sign = first_alarm
            .into_iter()
            .chain(failure)
            .min_by_key(|(at, _)| *at);
        let sign = sign.map(|(at, what)| format!("{}: {what}", after(at)));
        let text = match &status.stdout[..] {
            [] => &status.stderr,
            printed => printed,
        };
        let text = String::from_utf8_lossy(text);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start));
        let line = line("CRITICAL")
            .or_else(|| line("WARNING"))
            .unwrap_or_else(|| first_line(&text));
        Ok(vec![
            incident.name.to_owned(),
            sign.unwrap_or_default(),
            format!("after {}: {}", after(named), line),
            incident.exit_code.to_string(),
            band,
            alerts,
        ])
    }

    /// The sentence of the page's band, which must have the message of the first alarm.
    fn band(&self, incident: &Incident, alarm: &Value) -> Result<String> {
        let message = alarm["message"].as_str().unwrap_or_default();
        let wanted = match incident.shown {
            Shown::Alarm { .. } => message.replace('`', ""),
            Shown::Stopped => "has not answered since".to_owned(),
            Shown::Refusal => "Serving".to_owned(),
        };
        let text = "return document.querySelector('#band-state').innerText";
        let mut found = String::new();
        wait_until(LIMIT, || {
            let value = self.browser.script(text).ok()?;
            found = value.as_str().unwrap_or_default().to_owned();
            found.contains(&wanted).then_some(())
        })
        .with_context(|| format!("the band says {found:?}, not {wanted:?}"))?;
        Ok(found)
    }

    /// The alerts that fire, with that about the cause.
    fn alerts(&self, incident: &Incident) -> Result<String> {
        let firing = || {
            let series = self.prometheus.query("ALERTS{alertstate='firing'}");
            let names = series.iter().map(|series| {
                let label = |name: &str| series["metric"][name].as_str().unwrap_or_default();
                format!("{} ({})", label("alertname"), label("severity"))
            });
            names.collect::<Vec<_>>()
        };
        let wanted = match incident.shown {
            Shown::Alarm { alerts, .. } => alerts,
            Shown::Stopped => &["ProsceniumDown (critical)"],
            Shown::Refusal => &[],
        };
        let fire = || {
            let firing = firing();
            let is_firing = |wanted: &&str| firing.iter().any(|name| name == wanted);
            wanted.iter().all(is_firing).then_some(())
        };
        wait_until(LIMIT, fire)
            .with_context(|| format!("{wanted:?} do not fire: {:?}", firing()))?;
        Ok(firing().join(", "))
    }

    /// The answer of the proxy, or `Null`.
    fn status(&self) -> Value {
        let text = self.check.in_root("proscenium", &["status", "--json"]);
        let parsed = text.ok().and_then(|text| serde_json::from_str(&text).ok());
        parsed.unwrap_or_default()
    }

    /// Waits until all is well on every side.
    fn is_well(&self) -> Result<()> {
        let no_alarm = || {
            let status = self.status();
            let alarms = status["alarms"].as_array()?;
            alarms.is_empty().then_some(())
        };
        wait_until(LIMIT, no_alarm)
            .with_context(|| format!("alarms stay: {:#}", self.status()["alarms"]))?;
        let no_alert = || {
            let firing = self.prometheus.query("ALERTS");
            firing.is_empty().then_some(())
        };
        wait_until(LIMIT, no_alert)
            .with_context(|| format!("alerts stay: {:?}", self.prometheus.query("ALERTS")))?;
        self.browser
            .wait_for("all is well", "document.querySelector('#band.good')")?;
        self.service.answers()
    }

    /// Restarts the service with this configuration.
    fn restarts_with(&self, configuration: &str) -> Result<()> {
        fs::write(self.check.root.path(CONFIG), configuration)?;
        self.check.call(&["systemctl", "restart", "proscenium"])
    }

    /// Restarts the service with these lines in its unit.
    fn restarts_with_unit(&self, lines: &str) -> Result<()> {
        let path = self.check.root.path(DROP_IN);
        fs::create_dir_all(path.parent().context("a directory")?)?;
        fs::write(path, format!("[Service]\n{lines}\n"))?;
        self.check.call(&["systemctl", "daemon-reload"])?;
        self.check.call(&["systemctl", "restart", "proscenium"])
    }

    /// Takes back what `restarts_with_unit` has changed.
    fn has_own_unit_again(&self) -> Result<()> {
        fs::remove_file(self.check.root.path(DROP_IN))?;
        self.check.call(&["systemctl", "daemon-reload"])
    }
}
