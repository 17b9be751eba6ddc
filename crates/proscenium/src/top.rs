//! The command `top`: a live view of the running proxy on the terminal.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    time::Duration,
};

use admin::{AdminClient, PoolStatus, Status, TrafficStatus};
use anyhow::Context;
use ratatui::{
    Frame,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Color, Style, Stylize},
    text::{Line, Text},
    widgets::{Block, Paragraph, Row, Table, Wrap},
};

use crate::{
    arguments::{Arguments, Socket},
    ask::{client, wait},
    failure::Failure,
};

/// How often the view is updated.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows the view until q, Esc or Ctrl-C.
pub(crate) fn top(arguments: &Arguments, socket: &Socket) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "error: `top` needs a terminal; `status --watch` prints the status again and again"
                .to_owned(),
        ));
    }
    let client = client(arguments, socket)?;
    // The first request shows whether the proxy answers, before the screen changes.
    let mut view = View::new(read(&client)?);
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| draw(frame, &view)) {
            break Err(error);
        }
        match asks_to_end(INTERVAL) {
            Ok(true) => break Ok(()),
            Ok(false) => {}
            Err(error) => break Err(error),
        }
        match read(&client) {
            Ok(sample) => view.update(sample),
            Err(Failure::Failed(error)) => view.problem = Some(format!("{error:#}")),
            Err(_) => {}
        }
    };
    ratatui::restore();
    Ok(ended.context("cannot use the terminal")?)
}

type Sample = (Status, TrafficStatus);

fn read(client: &AdminClient) -> Result<Sample, Failure> {
    wait(async { Ok((client.status().await?, client.traffic().await?)) })
}

/// Waits for a key; true if it ends the program.
fn asks_to_end(time: Duration) -> io::Result<bool> {
    if !event::poll(time)? {
        return Ok(false);
    }
    let Event::Key(key) = event::read()? else {
        return Ok(false);
    };
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let ends = interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
    Ok(ends && key.kind == KeyEventKind::Press)
}

struct View {
    now: Sample,
    before: Option<TrafficStatus>,
    /// Why the last update failed.
    problem: Option<String>,
}

impl View {
    fn new(now: Sample) -> Self {
        Self {
            now,
            before: None,
            problem: None,
        }
    }

    fn update(&mut self, now: Sample) {
        let before = std::mem::replace(&mut self.now, now);
        self.before = Some(before.1);
        self.problem = None;
    }

    /// How much a count grew per second since the last update.
    fn rate(&self, count: impl Fn(&TrafficStatus) -> u64) -> f64 {
        let Some(before) = &self.before else {
            return 0.0;
        };
        let now = &self.now.1;
        let elapsed = now
            .elapsed_milliseconds
            .saturating_sub(before.elapsed_milliseconds);
        count(now).saturating_sub(count(before)) as f64 * 1000.0 / elapsed.max(1) as f64
    }
}

fn draw(frame: &mut Frame<'_>, view: &View) {
    let (status, traffic) = &view.now;
    let alarms = alarms(view);
    let members: usize = status.pools.iter().map(|pool| 1 + pool.members.len()).sum();
    let [head, problems, pools, work, refusals] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::try_from(alarms.lines.len()).unwrap_or(u16::MAX).min(6)),
        Constraint::Length(u16::try_from(members).unwrap_or(u16::MAX).saturating_add(3)),
        Constraint::Length(7),
        Constraint::Min(3),
    ])
    .areas(frame.area());
    frame.render_widget(title(status, traffic), head);
    frame.render_widget(Paragraph::new(alarms).wrap(Wrap { trim: true }), problems);
    frame.render_widget(pools_table(&status.pools), pools);
    frame.render_widget(work_table(view), work);
    frame.render_widget(refusals_table(view), refusals);
}

fn title(status: &Status, traffic: &TrafficStatus) -> Line<'static> {
    Line::from(format!(
        "proscenium {}  {}  generation {}  {} in flight  {} waiting   (q ends)",
        status.version, status.phase, status.generation.number, traffic.in_flight, traffic.waiting
    ))
    .bold()
}

fn alarms(view: &View) -> Text<'static> {
    let alarms = view.now.0.alarms.iter();
    let alarms = alarms.map(|alarm| match &alarm.caused_by {
        Some(cause) => format!("(follows from {cause}) {}", alarm.message),
        None => alarm.message.clone(),
    });
    let lines = view.problem.clone().into_iter().chain(alarms);
    let lines: Vec<_> = lines
        .map(|message| Line::from(message).fg(Color::Red))
        .collect();
    Text::from(lines)
}

fn pools_table(pools: &[PoolStatus]) -> Table<'static> {
    let rows = pools.iter().flat_map(|pool| {
        let wait = pool.longest_wait_milliseconds.unwrap_or(0) as f64 / 1e3;
        let head = Row::new([
            pool.name.clone(),
            format!("{} available", pool.available),
            String::new(),
            format!("{} waiting", pool.waiting),
            format!("{wait:.1} s"),
        ])
        .bold();
        let members = pool.members.iter().map(|member| {
            let is_up = member.health == admin::MemberHealth::Up;
            let jrubies = member.jrubies.as_ref().and_then(|jrubies| {
                Some(format!(
                    "{} of {} JRubies free",
                    jrubies.free?, jrubies.count?
                ))
            });
            let colour = if is_up { Color::Reset } else { Color::Red };
            Row::new([
                format!("  {}", member.address),
                member.health.to_string(),
                member.administrative_state.to_string(),
                format!("{} in flight", member.in_flight),
                jrubies.unwrap_or_default(),
            ])
            .style(Style::new().fg(colour))
        });
        std::iter::once(head).chain(members).collect::<Vec<_>>()
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(14),
        Constraint::Length(12),
        Constraint::Length(14),
        Constraint::Fill(1),
    ];
    Table::new(rows, widths).block(Block::bordered().title("pools"))
}

fn work_table(view: &View) -> Table<'static> {
    let names = view.now.1.work.keys().cloned();
    let rows = names.map(|name| {
        let of = |count: fn(&admin::WorkTraffic) -> u64| {
            let name = name.clone();
            view.rate(move |traffic| traffic.work.get(&name).map_or(0, count))
        };
        let (requests, milliseconds) = (of(|work| work.requests), of(|work| work.milliseconds));
        let mean = if requests > 0.0 {
            format!("{:.0} ms", milliseconds / requests)
        } else {
            String::new()
        };
        Row::new([name.clone(), format!("{requests:.1}/s"), mean])
    });
    let widths = [
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(12),
    ];
    let header = Row::new(["work", "requests", "mean time"]).bold();
    Table::new(rows, widths)
        .header(header)
        .block(Block::bordered().title("traffic"))
}

fn refusals_table(view: &View) -> Table<'static> {
    let traffic = &view.now.1;
    let mut counts: BTreeMap<&String, u64> = BTreeMap::new();
    for (reason, count) in traffic.refusals.iter().chain(&traffic.certificate_refusals) {
        let entry = counts.entry(reason).or_default();
        *entry = (*entry).max(*count);
    }
    let mut counts: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rows = counts.into_iter().map(|(reason, count)| {
        let rate = view.rate(|traffic| {
            let refused = traffic.refusals.get(reason).copied().unwrap_or(0);
            let by_certificate = traffic
                .certificate_refusals
                .get(reason)
                .copied()
                .unwrap_or(0);
            refused.max(by_certificate)
        });
        Row::new([reason.clone(), count.to_string(), format!("{rate:.1}/s")])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(12),
        Constraint::Length(12),
    ];
    Table::new(rows, widths).block(Block::bordered().title("refusals since the start"))
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;
    use crate::status::tests::status;

    fn traffic(elapsed: u64, requests: u64) -> TrafficStatus {
        serde_json::from_value(serde_json::json!({
            "elapsed_milliseconds": elapsed,
            "work": {"catalog": {"requests": requests, "milliseconds": requests * 20, "durations": []}},
            "refusals": {"no-route": 3}, "certificate_refusals": {"revoked": 1},
            "limits_hit": {}, "handshakes": {}, "in_flight": 4, "waiting": 2
        }))
        .unwrap()
    }

    #[test]
    fn the_view_has_alarms_members_rates_and_refusals() {
        let mut view = View::new((status(), traffic(1_000, 10)));
        view.update((status(), traffic(3_000, 30)));
        let mut terminal = Terminal::new(TestBackend::new(100, 40)).unwrap();
        terminal.draw(|frame| draw(frame, &view)).unwrap();
        let shown = terminal.backend().to_string();
        for expected in [
            "4 in flight  2 waiting",
            "no member of pool compilers is available",
            "compilers",
            "c1:8140",
            "down",
            "10.0/s",
            "20 ms",
            "no-route",
            "revoked",
        ] {
            assert!(shown.contains(expected), "{expected} is not in\n{shown}");
        }
    }

    #[test]
    fn a_small_terminal_is_drawn_without_an_error() {
        let view = View::new((status(), traffic(1, 1)));
        let mut terminal = Terminal::new(TestBackend::new(10, 3)).unwrap();
        terminal.draw(|frame| draw(frame, &view)).unwrap();
    }
}
