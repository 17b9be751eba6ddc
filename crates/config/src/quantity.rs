//! Durations, sizes and percentages as strings: an integer and a unit, so that key names need no unit.

use std::time::Duration;

/// Parses a duration, for example `"60s"`: milliseconds, seconds, minutes, hours or days. `None` if it is invalid.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(milliseconds).map(Duration::from_millis)
}

/// Parses a size, for example `"8KiB"`: bytes, or a power of 1024 bytes.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let bytes = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(bytes)
}

/// Parses a percentage, for example `"25%"`.
pub(crate) fn percent(text: &str) -> Option<u64> {
    match split(text)? {
        (number, "%") => Some(number),
        _ => None,
    }
}

/// Formats a percentage.
pub(crate) fn show_percent(percent: u64) -> String {
    format!("{percent}%")
}

/// Formats a duration in the largest unit that gives an integer; one minute is `60s`.
pub(crate) fn show_duration(duration: Duration) -> String {
    let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    match milliseconds {
        0 => "0s".into(),
        // Operators usually write `60s`.
        60_000 => "60s".into(),
        // Up to a week, hours are easier to compare.
        days if days.is_multiple_of(86_400_000) && days > 7 * 86_400_000 => {
            format!("{}d", days / 86_400_000)
        }
        hours if hours.is_multiple_of(3_600_000) => format!("{}h", hours / 3_600_000),
        minutes if minutes.is_multiple_of(60_000) => format!("{}m", minutes / 60_000),
        seconds if seconds.is_multiple_of(1_000) => format!("{}s", seconds / 1_000),
        milliseconds => format!("{milliseconds}ms"),
    }
}

/// Formats a size in the largest unit that gives an integer.
pub(crate) fn show_size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units
        .iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_an_integer_and_a_unit() {
        for (text, milliseconds) in [
            ("60s", 60_000),
            ("500ms", 500),
            ("11m", 660_000),
            ("2h", 7_200_000),
            ("0s", 0),
        ] {
            assert_eq!(
                duration(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for (text, bytes) in [
            ("8KiB", 8192),
            ("0B", 0),
            ("4MiB", 4 << 20),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "60",
            "s",
            "60 s",
            "1.5s",
            "-1s",
            "1m30s",
            "8kb",
            "8K",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert_eq!(duration(text), None, "{text}");
            assert_eq!(size(text), None, "{text}");
            assert_eq!(percent(text), None, "{text}");
        }
        for (text, expected) in [
            ("25%", Some(25)),
            ("0%", Some(0)),
            ("%", None),
            ("25 %", None),
        ] {
            assert_eq!(percent(text), expected, "{text}");
        }
    }

    #[test]
    fn a_printed_quantity_parses_to_the_same_value() {
        for milliseconds in [
            0,
            1,
            999,
            1_000,
            1_500,
            60_000,
            90_000,
            660_000,
            3_600_000,
            86_400_000,
            3_888_000_000,
        ] {
            let value = Duration::from_millis(milliseconds);
            assert_eq!(
                duration(&show_duration(value)),
                Some(value),
                "{milliseconds}"
            );
        }
        for bytes in [0, 1, 1023, 1024, 65_536, 4 << 20, 3 << 30] {
            assert_eq!(size(&show_size(bytes)), Some(bytes), "{bytes}");
        }
    }
}
