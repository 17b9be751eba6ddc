//! What `top` shows: the last answers of the proxy, the order of members, and how far the list is scrolled.

use std::{cmp::Reverse, collections::VecDeque};

use admin::{MemberHealth, MemberStatus, PoolStatus, Status, TrafficStatus, WorkTraffic};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

pub(super) type Sample = (Status, TrafficStatus);

/// Answers in memory. Rates and durations are those since the first.
const SAMPLES_MAX: usize = 10;

pub(super) struct View {
    pub(super) now: Sample,
    /// The counts of earlier answers, the oldest first.
    before: VecDeque<TrafficStatus>,
    /// Why the last update failed.
    pub(super) problem: Option<String>,
    pub(super) order: MemberOrder,
    pub(super) shows_help: bool,
    /// Members above the part of the list that is visible.
    pub(super) scrolled: usize,
    /// Members that were visible when the view was drawn last.
    pub(super) visible: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberOrder {
    /// Members that need an operator come first.
    Trouble,
    Configuration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterKey {
    Continue,
    End,
}

impl View {
    pub(super) fn new(now: Sample) -> Self {
        Self {
            now,
            before: VecDeque::new(),
            problem: None,
            order: MemberOrder::Trouble,
            shows_help: false,
            scrolled: 0,
            visible: 0,
        }
    }

    pub(super) fn update(&mut self, now: Sample) {
        let (_, before) = std::mem::replace(&mut self.now, now);
        self.problem = None;
        if self.now.1.elapsed_milliseconds < before.elapsed_milliseconds {
            // Another process answers, whose counts begin at 0.
            self.before.clear();
            return;
        }
        if self.before.len() >= SAMPLES_MAX {
            self.before.pop_front();
        }
        self.before.push_back(before);
    }

    /// Obeys a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> AfterKey {
        let interrupt =
            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        let page = self.visible.max(1);
        match key.code {
            _ if key.kind == KeyEventKind::Release => {}
            _ if interrupt => return AfterKey::End,
            KeyCode::Char('q') | KeyCode::Esc => return AfterKey::End,
            KeyCode::Char('?' | 'h') => self.shows_help = !self.shows_help,
            KeyCode::Char('o') => {
                self.order = match self.order {
                    MemberOrder::Trouble => MemberOrder::Configuration,
                    MemberOrder::Configuration => MemberOrder::Trouble,
                };
                self.scrolled = 0;
            }
            KeyCode::Up | KeyCode::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scrolled += 1,
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(page),
            KeyCode::PageDown => self.scrolled += page,
            KeyCode::Home => self.scrolled = 0,
            KeyCode::End => self.scrolled = usize::MAX,
            _ => {}
        }
        let last = self.members().len().saturating_sub(page);
        self.scrolled = self.scrolled.min(last);
        AfterKey::Continue
    }

    /// All members, in the order of the list.
    pub(super) fn members(&self) -> Vec<(&PoolStatus, &MemberStatus)> {
        let pools = self.now.0.pools.iter();
        let mut members: Vec<_> = pools
            .flat_map(|pool| pool.members.iter().map(move |member| (pool, member)))
            .collect();
        if self.order == MemberOrder::Trouble {
            members.sort_by_key(|(_, member)| Reverse(Trouble::of(member)));
        }
        members
    }

    /// How much a count grew per second. None: there is only one answer yet.
    pub(super) fn rate(&self, count: impl Fn(&TrafficStatus) -> u64) -> Option<f64> {
        let (before, now) = (self.before.front()?, &self.now.1);
        let elapsed = now
            .elapsed_milliseconds
            .saturating_sub(before.elapsed_milliseconds);
        let grown = count(now).saturating_sub(count(before));
        Some(grown as f64 * 1000.0 / elapsed.max(1) as f64)
    }

    /// The duration in milliseconds that 95 % of the requests of this kind did not exceed.
    pub(super) fn p95_milliseconds(&self, work: &str) -> Option<u64> {
        let none = WorkTraffic::default();
        let before = self.before.front()?.work.get(work).unwrap_or(&none);
        self.now.1.work.get(work)?.p95_milliseconds_since(before)
    }
}

/// Why a member needs an operator; the later, the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    None,
    Overloaded,
    Failing,
    Slow,
    Down,
}

impl Trouble {
    pub(super) fn of(member: &MemberStatus) -> Self {
        let traffic = member.traffic.as_ref();
        if member.health == MemberHealth::Down {
            Self::Down
        } else if traffic.is_some_and(|traffic| traffic.slow.is_some()) {
            Self::Slow
        } else if member.ejected_seconds.is_some()
            || traffic.is_some_and(|traffic| !traffic.failures.is_empty())
        {
            Self::Failing
        } else if member.overloaded.is_some() {
            Self::Overloaded
        } else {
            Self::None
        }
    }
}
