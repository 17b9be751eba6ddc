//! Bars of a trace: how long each phase of a request took, in proportion to the longest request of its run.

use std::{env, io};

use rustix::termios::tcgetwinsize;

/// The phases of a request in their order, each with the character of its cells in ASCII and in UTF-8.
const PHASES: [(&str, char, char); 5] = [
    ("handshake", 'h', '╌'),
    ("queue", 'q', '░'),
    ("connect", 'c', '▒'),
    ("member", 'm', '█'),
    ("transfer", 't', '▓'),
];
/// The width of an output that is not a terminal.
const COLUMNS_DEFAULT: u16 = 80;
/// Maximum number of cells of a bar.
const CELLS_MAX: usize = 40;
/// Minimum number of cells of the longest bar.
const CELLS_MIN: usize = 10;

/// The seconds of each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Phases([f64; PHASES.len()]);

impl Phases {
    /// The phases of a record, by the microseconds of its fields. A phase that did not happen has no field.
    pub(super) fn of(micros: impl Fn(&str) -> Option<f64>) -> Self {
        let of = |name| micros(name).unwrap_or(0.0) / 1e6;
        let (queue, connect, total) = (of("queue_us"), of("connect_us"), of("total_us"));
        // Without a response, the whole time after the connection was spent on the member.
        let first_byte = micros("first_byte_us").map_or(total, |micros| micros / 1e6);
        Self([
            of("handshake_us"),
            queue,
            connect,
            (first_byte - queue - connect).max(0.0),
            (total - first_byte).max(0.0),
        ])
    }

    pub(super) fn seconds(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// How bars are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct BarStyle {
    cells: usize,
    is_utf8: bool,
}

impl BarStyle {
    /// The style for standard output and the locale of this process.
    pub(super) fn of_output() -> Self {
        let columns = tcgetwinsize(io::stdout()).map_or(COLUMNS_DEFAULT, |size| size.ws_col);
        let mut locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .filter_map(env::var_os);
        let locale = locale.find(|value| !value.is_empty()).unwrap_or_default();
        Self::new(columns, &locale.to_string_lossy())
    }

    fn new(columns: u16, locale: &str) -> Self {
        let locale = locale.to_ascii_lowercase();
        Self {
            cells: usize::from(columns / 4).clamp(CELLS_MIN, CELLS_MAX),
            is_utf8: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// The bar of a request. The longest request of the run fills all cells, and no bar is empty.
    pub(super) fn bar(self, phases: &Phases, longest: f64) -> String {
        let scale = self.cells as f64 / longest.max(f64::MIN_POSITIVE);
        let (mut bar, mut end, mut drawn) = (String::new(), 0.0, 0);
        for (seconds, symbols) in phases.0.iter().zip(PHASES) {
            end += seconds;
            // Bars end at the rounded sum, so that the errors of the phases do not add up.
            let cells = (end * scale).round() as usize;
            bar.extend(std::iter::repeat_n(self.symbol(symbols), cells - drawn));
            drawn = cells;
        }
        if bar.is_empty() {
            let phases = phases.0.iter().zip(PHASES);
            let main = phases.max_by(|(one, _), (other, _)| one.total_cmp(other));
            bar.extend(main.map(|(_, symbols)| self.symbol(symbols)));
        }
        bar
    }

    /// The meaning of the characters.
    pub(super) fn legend(self) -> String {
        let phases = PHASES.map(|phase| format!("{} {}", self.symbol(phase), phase.0));
        format!("phases: {}", phases.join("  "))
    }

    fn symbol(self, (_, ascii, utf8): (&str, char, char)) -> char {
        if self.is_utf8 { utf8 } else { ascii }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_what_the_fields_leave() {
        for (fields, expected) in [
            (
                &[
                    ("handshake_us", 1e6),
                    ("queue_us", 2e6),
                    ("connect_us", 3e6),
                    ("first_byte_us", 9e6),
                    ("total_us", 14e6),
                ][..],
                [1.0, 2.0, 3.0, 4.0, 5.0],
            ),
            (
                &[("first_byte_us", 1e6), ("total_us", 1e6)],
                [0.0, 0.0, 0.0, 1.0, 0.0],
            ),
            // The request was refused after it waited in the queue.
            (
                &[("queue_us", 2e6), ("total_us", 2e6)],
                [0.0, 2.0, 0.0, 0.0, 0.0],
            ),
            (
                &[("connect_us", 1e6), ("total_us", 3e6)],
                [0.0, 0.0, 1.0, 2.0, 0.0],
            ),
            (&[], [0.0; 5]),
        ] {
            let of = |name: &str| {
                fields
                    .iter()
                    .find(|(field, _)| *field == name)
                    .map(|(_, micros)| *micros)
            };
            assert_eq!(Phases::of(of), Phases(expected), "{fields:?}");
        }
    }

    #[test]
    fn bars_are_in_proportion_to_the_longest_request() {
        let ten = BarStyle::new(40, "C");
        for (phases, longest, expected) in [
            ([1.0, 2.0, 2.0, 4.0, 1.0], 10.0, "hqqccmmmmt"),
            ([0.0, 0.0, 0.0, 5.0, 0.0], 10.0, "mmmmm"),
            // Two phases of less than a cell have one cell together.
            ([0.0, 0.4, 0.0, 0.4, 0.0], 10.0, "m"),
            ([0.0, 0.0, 0.0, 0.1, 0.2], 10.0, "t"),
            ([0.0, 0.0, 0.0, 0.0, 0.0], 0.0, "t"),
            ([0.0, 10.0, 0.0, 0.0, 0.0], 10.0, "qqqqqqqqqq"),
        ] {
            assert_eq!(ten.bar(&Phases(phases), longest), expected, "{phases:?}");
        }
    }

    #[test]
    fn bars_follow_the_width_and_the_locale() {
        let whole = Phases([0.0, 0.5, 0.0, 0.5, 0.0]);
        for (columns, locale, expected) in [
            (80, "", "q".repeat(10) + &"m".repeat(10)),
            (0, "POSIX", "q".repeat(5) + &"m".repeat(5)),
            (500, "de_DE.UTF-8", "░".repeat(20) + &"█".repeat(20)),
            (40, "C.utf8", "░".repeat(5) + &"█".repeat(5)),
        ] {
            let style = BarStyle::new(columns, locale);
            assert_eq!(style.bar(&whole, 1.0), expected, "{columns} {locale}");
        }
        let legend = "phases: h handshake  q queue  c connect  m member  t transfer";
        assert_eq!(BarStyle::new(80, "C").legend(), legend);
    }
}
