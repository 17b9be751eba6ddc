//! What has happened in the last day: alarms, changes of members, reloads, acts of operators, and starts and stops.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use crate::{alarms::Urgency, events::LogEvent, printable, syslog::Severity};

/// Maximum number of entries. A new entry replaces the oldest one.
pub const HISTORY_ENTRIES_MAX: usize = 5_000;
/// Maximum bytes of the texts of all entries. A new entry replaces the oldest ones.
pub const HISTORY_BYTES_MAX: usize = 1 << 20;
/// How long an entry is kept.
pub const HISTORY_AGE_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Maximum bytes of a message; the rest is truncated.
pub const HISTORY_MESSAGE_BYTES_MAX: usize = 1_024;
/// Maximum bytes of the name of a subject or an account; the rest is truncated.
pub const HISTORY_NAME_BYTES_MAX: usize = 256;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryKind {
    /// An alarm was raised, or its message changed.
    Alarm,
    /// An alarm was cleared.
    AlarmCleared,
    /// The health or the administrative state of a member changed, or the member was ejected.
    Member,
    /// A reload was applied or refused.
    Reload,
    /// An operator changed something or tried to.
    Operator,
    /// The process started, stopped, or handed over.
    Process,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// When it happened.
    pub at: SystemTime,
    /// Its kind.
    pub kind: HistoryKind,
    /// The alarm, the member, or what an operator changed. Empty if the message has it.
    pub subject: String,
    /// One line.
    pub message: String,
    /// How urgent it is; `None` for events that need no operator.
    pub urgency: Option<Urgency>,
    /// The account of the operator.
    pub by: Option<String>,
}

/// The entries of the last day, the oldest first.
#[derive(Debug, Default)]
pub struct EventHistory(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    entries: VecDeque<HistoryEntry>,
    bytes: usize,
    /// The number of the newest entry. Entries are numbered from 1.
    last: u64,
}

impl EventHistory {
    /// Adds an entry.
    pub fn note(&self, entry: HistoryEntry) {
        let mut entries = self.lock();
        entries.push(entry.within_limits());
        entries.last += 1;
        entries.shrink();
    }

    /// Adds the entries of an earlier process before those of this one.
    pub fn restore(&self, earlier: Vec<HistoryEntry>) {
        let mut entries = self.lock();
        let own = std::mem::take(&mut entries.entries);
        entries.bytes = 0;
        for entry in earlier.into_iter().chain(own) {
            entries.push(entry.within_limits());
        }
        entries.shrink();
    }

    /// The newest entries since this time, at most `limit`, the oldest first. Entries that are older than a day are left out. They
    /// stay in memory while there is room, because the clock may have been wrong.
    pub fn since(&self, since: SystemTime, limit: usize, now: SystemTime) -> Vec<HistoryEntry> {
        let entries = self.lock();
        let newest = entries.entries.iter().rev();
        let is_old = |entry: &HistoryEntry| {
            let age = now.duration_since(entry.at);
            age.is_ok_and(|age| age > HISTORY_AGE_MAX)
        };
        let is_shown = |entry: &&HistoryEntry| entry.at >= since && !is_old(entry);
        let newest = newest.filter(is_shown).take(limit);
        let mut newest: Vec<_> = newest.cloned().collect();
        newest.reverse();
        newest
    }

    /// The number of the newest entry, and the entries that are newer than entry `number`. Entry 0 is older than all.
    pub fn newer_than(&self, number: u64) -> (u64, Vec<HistoryEntry>) {
        let entries = self.lock();
        let newer = usize::try_from(entries.last.saturating_sub(number)).unwrap_or(usize::MAX);
        let skipped = match number {
            0 => 0,
            _ => entries.entries.len().saturating_sub(newer),
        };
        let newer = entries.entries.iter().skip(skipped).cloned();
        (entries.last, newer.collect())
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn push(&mut self, entry: HistoryEntry) {
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
    }

    /// Removes the oldest entries while there are too many.
    fn shrink(&mut self) {
        while self.entries.len() > HISTORY_ENTRIES_MAX || self.bytes > HISTORY_BYTES_MAX {
            let Some(oldest) = self.entries.front() else {
                return;
            };
            self.bytes -= oldest.bytes();
            self.entries.pop_front();
        }
    }
}

impl HistoryEntry {
    /// The entry of an event. The message has the text of the event, without the fields that name the subject or the account,
    /// and without the first step of an alarm.
    /// Without a `subject`, the subject is the member or the pool.
    pub fn of_event(
        event: &LogEvent<'_>,
        kind: HistoryKind,
        subject: Option<&str>,
        at: SystemTime,
    ) -> Self {
        let field = |wanted| {
            let mut fields = event.fields.iter();
            let found = fields.find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.as_str())
        };
        let subject = match (subject, field("pool"), field("member")) {
            (Some(subject), ..) => subject.to_owned(),
            (None, Some(pool), Some(member)) => format!("{pool}/{member}"),
            (None, pool, _) => pool.unwrap_or_default().to_owned(),
        };
        let is_shown = |name| !matches!(name, "pool" | "member" | "alarm" | "first_step" | "by");
        let fields = event.fields.iter().filter(|(name, _)| is_shown(*name));
        let fields: Vec<_> = fields.cloned().collect();
        let message = LogEvent {
            fields: &fields,
            ..*event
        };
        Self {
            at,
            kind,
            subject,
            message: message.line(),
            urgency: match event.severity {
                Severity::Error => Some(Urgency::Critical),
                Severity::Warning => Some(Urgency::Warning),
                Severity::Info | Severity::Debug => None,
            },
            by: field("by").map(str::to_owned),
        }
    }

    fn bytes(&self) -> usize {
        self.subject.len() + self.message.len() + self.by.as_ref().map_or(0, String::len)
    }

    /// The entry with texts that are safe to print and not too long.
    fn within_limits(mut self) -> Self {
        let cut = |text: &mut String, bytes_max| {
            let line = printable::line(text);
            *text = line[..line.floor_char_boundary(bytes_max)].to_owned();
        };
        cut(&mut self.message, HISTORY_MESSAGE_BYTES_MAX);
        cut(&mut self.subject, HISTORY_NAME_BYTES_MAX);
        self.by
            .iter_mut()
            .for_each(|by| cut(by, HISTORY_NAME_BYTES_MAX));
        self
    }
}

impl HistoryKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Alarm,
        Self::AlarmCleared,
        Self::Member,
        Self::Reload,
        Self::Operator,
        Self::Process,
    ];

    /// The word in the admin API and in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alarm => "alarm",
            Self::AlarmCleared => "alarm-cleared",
            Self::Member => "member",
            Self::Reload => "reload",
            Self::Operator => "operator",
            Self::Process => "process",
        }
    }

    /// The kind with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn entry(seconds: u64, message: &str) -> HistoryEntry {
        HistoryEntry {
            at: at(seconds),
            kind: HistoryKind::Process,
            subject: String::new(),
            message: message.to_owned(),
            urgency: None,
            by: None,
        }
    }

    fn messages(entries: &[HistoryEntry]) -> Vec<&str> {
        entries.iter().map(|entry| &*entry.message).collect()
    }

    #[test]
    fn an_event_becomes_an_entry_with_its_own_words() {
        let fields = [
            ("pool", "p"),
            ("member", "c1:8140"),
            ("to", "down"),
            ("by", "root"),
        ];
        let fields = fields.map(|(name, value)| (name, value.to_owned()));
        let event = LogEvent {
            severity: Severity::Warning,
            part: "proxy",
            message: "member health changed",
            fields: &fields,
        };
        let expected = HistoryEntry {
            at: at(1),
            kind: HistoryKind::Member,
            subject: "p/c1:8140".to_owned(),
            message: "member health changed to=down".to_owned(),
            urgency: Some(Urgency::Warning),
            by: Some("root".to_owned()),
        };
        let of_member = HistoryEntry::of_event(&event, HistoryKind::Member, None, at(1));
        assert_eq!(of_member, expected);
        let named = HistoryEntry::of_event(&event, HistoryKind::Member, Some("all"), at(1));
        assert_eq!(named.subject, "all");
        for kind in HistoryKind::ALL {
            assert_eq!(HistoryKind::parse(kind.as_str()), Some(kind));
        }
    }

    #[test]
    fn entries_are_bounded_in_number_bytes_and_age() {
        let history = EventHistory::default();
        for _ in 0..HISTORY_ENTRIES_MAX + 10 {
            history.note(entry(0, "short"));
        }
        assert_eq!(history.newer_than(0).1.len(), HISTORY_ENTRIES_MAX);
        let long = "ä\n".repeat(2 * HISTORY_MESSAGE_BYTES_MAX);
        for _ in 0..HISTORY_ENTRIES_MAX {
            history.note(entry(1, &long));
        }
        let entries = history.newer_than(0).1;
        let bytes = entries.iter().map(HistoryEntry::bytes).sum::<usize>();
        assert!(entries.len() < HISTORY_ENTRIES_MAX && bytes <= HISTORY_BYTES_MAX);
        assert!(entries[0].message.starts_with(r"ä\x0a"));
    }

    #[test]
    fn a_clock_that_was_wrong_for_a_time_loses_no_entry() {
        let history = EventHistory::default();
        history.note(entry(1, "before"));
        let late = 2 + HISTORY_AGE_MAX.as_secs();
        history.note(entry(late, "clock ahead"));
        let shown = |now| history.since(at(0), 9, at(now));
        assert_eq!(messages(&shown(late)), ["clock ahead"]);
        assert_eq!(messages(&shown(2)), ["before", "clock ahead"]);
    }

    #[test]
    fn new_entries_follow_those_of_earlier_processes() {
        let history = EventHistory::default();
        history.note(entry(10, "started"));
        history.restore(vec![entry(1, "a"), entry(2, "b")]);
        history.note(entry(11, "serving"));
        let since = |second, limit| history.since(at(second), limit, at(11));
        assert_eq!(messages(&since(0, 9)), ["a", "b", "started", "serving"]);
        assert_eq!(messages(&since(2, 2)), ["started", "serving"]);
        assert_eq!(messages(&since(11, 9)), ["serving"]);
        let (last, all) = history.newer_than(0);
        assert_eq!((last, all.len()), (2, 4));
        assert_eq!(messages(&history.newer_than(1).1), ["serving"]);
        assert!(history.newer_than(last).1.is_empty());
    }
}
