//! Draws the view of `top`.

use std::collections::BTreeMap;

use admin::{AlarmSeverity, PoolStatus, shown_milliseconds};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Stylize},
    text::{Line, Text},
    widgets::{Block, Clear, Paragraph, Row, Table, Wrap},
};

use super::view::{MemberOrder, Trouble, View};
use crate::member_table;

/// Maximum number of lines for alarms, and of pools and reasons, so that members have room.
const ALARM_LINES_MAX: usize = 6;
const POOLS_MAX: usize = 6;
const REASONS_MAX: usize = 4;
/// The border of a table, and its header.
const FRAME_LINES: u16 = 3;

const HELP: &str = "\
Up, Down, PageUp, PageDown, Home, End   scroll the members
o   order of members: trouble first, or as in the configuration
?, h   show or hide this help
q, Esc   end

Rates and durations of requests are those of the last 10 seconds, numbers of members those of the last minute.
Failures: `here` 5xx of the proxy, `member` 5xx of a member, `refused` clients and requests, `cut` responses.
`proscenium status` shows more about each alarm and member.";

pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let (status, traffic) = &view.now;
    let alarms = alarms(view);
    let lines = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let work = traffic.work.len().max(REASONS_MAX);
    let [head, problems, pools, requests, members] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(lines(alarms.lines.len())),
        Constraint::Length(lines(status.pools.len().min(POOLS_MAX)) + FRAME_LINES),
        Constraint::Length(lines(work) + FRAME_LINES),
        Constraint::Min(6),
    ])
    .areas(frame.area());
    let [work, refused] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(requests);
    frame.render_widget(title(view), head);
    frame.render_widget(Paragraph::new(alarms), problems);
    frame.render_widget(pools_table(&status.pools), pools);
    frame.render_widget(work_table(view), work);
    frame.render_widget(failures_table(view), refused);
    view.visible = usize::from(members.height.saturating_sub(FRAME_LINES));
    frame.render_widget(members_table(view), members);
    if view.shows_help {
        draw_help(frame);
    }
}

fn title(view: &View) -> Line<'static> {
    let (status, traffic) = &view.now;
    let codes = traffic.codes.keys().filter_map(|class| {
        let rate = view.rate(|traffic| traffic.codes.get(class).copied().unwrap_or(0))?;
        Some(format!("  {class} {rate:.1}/s"))
    });
    let codes: String = codes.collect();
    Line::from(format!(
        "proscenium {}  {}  generation {}  {} in flight  {} waiting{codes}  (? help, q ends)",
        status.version, status.phase, status.generation.number, traffic.in_flight, traffic.waiting
    ))
    .bold()
}

/// One line for each alarm, which the terminal may cut off, in the order of the status: causes first.
fn alarms(view: &View) -> Text<'static> {
    let alarms = view.now.0.alarms.iter();
    let alarms = alarms.map(|alarm| {
        let message = match &alarm.caused_by {
            Some(cause) => format!("(follows from {cause}) {}", alarm.message),
            None => alarm.message.clone(),
        };
        Line::from(message).fg(match alarm.severity {
            AlarmSeverity::Critical => Color::Red,
            AlarmSeverity::Warning => Color::Yellow,
        })
    });
    let problem = view.problem.iter();
    let problem = problem.map(|problem| Line::from(problem.clone()).fg(Color::Red));
    let mut lines: Vec<_> = problem.chain(alarms).collect();
    if lines.len() > ALARM_LINES_MAX {
        let more = lines.split_off(ALARM_LINES_MAX - 1).len();
        lines.push(Line::from(format!(
            "{more} more: `proscenium status` shows all alarms"
        )));
    }
    Text::from(lines)
}

/// Pools, those without an available member and with a queue first.
fn pools_table(pools: &[PoolStatus]) -> Table<'static> {
    let mut sorted: Vec<_> = pools.iter().collect();
    sorted.sort_by_key(|pool| (pool.available > 0, pool.waiting == 0));
    let rows = sorted.into_iter().take(POOLS_MAX).map(|pool| {
        let wait = pool.longest_wait_milliseconds;
        let row = Row::new([
            pool.name.clone(),
            format!("{} of {}", pool.available, pool.members.len()),
            pool.waiting.to_string(),
            wait.map_or_else(String::new, shown_milliseconds),
        ]);
        if pool.available == 0 {
            row.fg(Color::Red)
        } else {
            row
        }
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ];
    let header = Row::new(["pool", "available", "waiting", "longest wait"]).bold();
    let block = Block::bordered().title("pools");
    Table::new(rows, widths)
        .header(header)
        .block(with_more(block, pools.len().saturating_sub(POOLS_MAX)))
}

fn work_table(view: &View) -> Table<'static> {
    let names = view.now.1.work.keys();
    let rows = names.map(|name| {
        let of = |count: fn(&admin::WorkTraffic) -> u64| {
            view.rate(|traffic| traffic.work.get(name).map_or(0, count))
                .unwrap_or(0.0)
        };
        let (requests, milliseconds) = (of(|work| work.requests), of(|work| work.milliseconds));
        let mean = (requests > 0.0).then(|| (milliseconds / requests) as u64);
        let shown = |time: Option<u64>| time.map_or_else(String::new, shown_milliseconds);
        Row::new([
            name.clone(),
            format!("{requests:.1}/s"),
            shown(mean),
            shown(view.p95_milliseconds(name)),
        ])
    });
    let widths = [Constraint::Fill(1); 4];
    let header = Row::new(["work", "requests", "mean", "p95"]).bold();
    Table::new(rows, widths)
        .header(header)
        .block(Block::bordered().title("requests"))
}

/// Failures by kind now, and beside them the most frequent reasons since the start. Refused certificates have a column of their
/// own, because a full queue needs another remedy than a revoked certificate.
fn failures_table(view: &View) -> Table<'static> {
    let traffic = &view.now.1;
    let kinds = traffic.failures.keys().map(|kind| {
        let rate = view.rate(|traffic| traffic.failures.get(kind).copied().unwrap_or(0));
        let rate = rate.unwrap_or(0.0);
        let cell = Line::from(format!("{kind} {rate:.1}/s"));
        if rate > 0.0 {
            cell.fg(Color::Red)
        } else {
            cell
        }
    });
    let kinds: Vec<_> = kinds.collect();
    let (errors, certificates) = (
        reasons(&traffic.refusals),
        reasons(&traffic.certificate_refusals),
    );
    let most = errors.len().max(certificates.len());
    let rows = (0..kinds.len().max(most.min(REASONS_MAX))).map(|line| {
        let cell = |cells: &[Line<'static>]| cells.get(line).cloned().unwrap_or_default();
        Row::new([cell(&kinds), cell(&errors), cell(&certificates)])
    });
    let rows: Vec<_> = rows.collect();
    let header = Row::new(["now", "errors of the proxy", "refused certificates"]).bold();
    let block = Block::bordered().title("failures now, and reasons since the start");
    Table::new(
        rows,
        [
            Constraint::Fill(2),
            Constraint::Fill(3),
            Constraint::Fill(3),
        ],
    )
    .header(header)
    .block(with_more(block, most.saturating_sub(REASONS_MAX)))
}

/// The counts of reasons, the most frequent first.
fn reasons(counts: &BTreeMap<String, u64>) -> Vec<Line<'static>> {
    let mut counts: Vec<_> = counts.iter().filter(|(_, count)| **count > 0).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let lines = counts.into_iter();
    lines
        .map(|(reason, count)| Line::from(format!("{count} {reason}")))
        .collect()
}

fn members_table(view: &View) -> Table<'static> {
    let members = view.members();
    let visible = members.iter().skip(view.scrolled).take(view.visible);
    let rows = visible.map(|(pool, member)| {
        let row = Row::new([
            member.address.clone(),
            pool.name.clone(),
            member_table::state(member),
            member_table::requests(member),
            member_table::catalogs(member),
            member_table::failures(member),
            member.in_flight.to_string(),
            member_table::jrubies(member),
            member_table::marks(member).join(", "),
        ]);
        match Trouble::of(member) {
            Trouble::None => row,
            Trouble::Down => row.fg(Color::Red),
            Trouble::Overloaded | Trouble::Failing | Trouble::Slow => row.fg(Color::Yellow),
        }
    });
    let rows: Vec<_> = rows.collect();
    let below = members.len().saturating_sub(view.scrolled + rows.len());
    let widths = [
        Constraint::Fill(4),
        Constraint::Fill(2),
        Constraint::Length(11),
        Constraint::Length(6),
        Constraint::Length(15),
        Constraint::Fill(3),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Fill(3),
    ];
    let header = Row::new([
        "member",
        "pool",
        "state",
        "req/s",
        "catalog p50/95",
        "failures/min",
        "in flight",
        "JRubies",
        "marks",
    ]);
    let title = match view.order {
        MemberOrder::Trouble => "members, trouble first",
        MemberOrder::Configuration => "members",
    };
    Table::new(rows, widths)
        .header(header.bold())
        .block(with_more(Block::bordered().title(title), below))
}

/// Notes at the bottom of a table how many rows are cut off.
fn with_more(block: Block<'static>, rows: usize) -> Block<'static> {
    match rows {
        0 => block,
        rows => block.title_bottom(Line::from(format!(" {rows} more ")).right_aligned()),
    }
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let lines = u16::try_from(HELP.lines().count()).unwrap_or(u16::MAX);
    // Long lines may wrap once.
    let height = (2 * lines).min(area.height);
    let help = Rect { height, ..area };
    frame.render_widget(Clear, help);
    let help_text = Paragraph::new(HELP).wrap(Wrap { trim: false });
    frame.render_widget(help_text.block(Block::bordered().title("help")), help);
}

#[cfg(test)]
mod tests;
