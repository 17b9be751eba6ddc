//! The answer of a member's agent check, and how it reduces the member's capacity.

use crate::administrative::Administrative;

/// Maximum number of bytes of an answer that are read.
pub const ANSWER_BYTES_MAX: usize = 256;

/// The state after the answers of an agent check so far.
///
/// The answers are plain text, so they can only reduce capacity. The operator's state, the check and the configured weight
/// apply as well, and the strictest of them decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentState {
    /// Set by `ready`, `drain` or `maint`.
    pub administrative: Administrative,
    /// Set by `down`, `fail`, `failed` or `stopped`, and cleared by `up`.
    pub is_down: bool,
    /// Set by `N%`: percentage of the configured weight, at most 100.
    pub weight_percent: u32,
}

impl Default for AgentState {
    fn default() -> Self {
        Self {
            administrative: Administrative::Ready,
            is_down: false,
            weight_percent: 100,
        }
    }
}

impl AgentState {
    /// The state after an answer. An answer is one line of words that are separated by blanks or commas, as for HAProxy's
    /// `agent-check`. Case is ignored, and unknown words such as `maxconn:30` change nothing. If a line does not mention a part
    /// of the state, that part stays the same. None: the answer has no known word, and the state stays the same.
    pub fn after(self, answer: &[u8]) -> Option<Self> {
        let line = answer.split(|byte| matches!(byte, b'\n' | b'\r')).next()?;
        let line = String::from_utf8_lossy(line).to_ascii_lowercase();
        // Text after `#` is a comment.
        let line = line.split('#').next().unwrap_or_default();
        let words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let mut state = self;
        let mut any = false;
        for word in words {
            match word {
                "ready" => state.administrative = Administrative::Ready,
                "drain" => state.administrative = Administrative::Drain,
                "maint" => state.administrative = Administrative::Maintenance,
                "up" => state.is_down = false,
                "down" | "fail" | "failed" | "stopped" => state.is_down = true,
                word => match percent(word) {
                    Some(percent) => state.weight_percent = percent,
                    None => continue,
                },
            }
            any = true;
        }
        any.then_some(state)
    }

    /// Its effect on the member's administrative state.
    pub fn effect(&self) -> Administrative {
        if self.is_down {
            Administrative::Maintenance
        } else {
            self.administrative
        }
    }
}

/// The number of `N%`. A number above 100 counts as 100, because an answer cannot add capacity.
fn percent(word: &str) -> Option<u32> {
    let digits = word.strip_suffix('%')?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u32 = digits.parse().ok().filter(|_| all_digits)?;
    Some(number.min(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_haproxy_reads_them() {
        use Administrative::{Drain, Maintenance, Ready};
        let mut state = AgentState::default();
        for (answer, expected) in [
            ("drain\n", (Drain, false, 100)),
            ("50%\n", (Drain, false, 50)),
            ("ready\r\n", (Ready, false, 50)),
            ("down # out of memory, up again soon\n", (Ready, true, 50)),
            ("maint", (Maintenance, true, 50)),
            ("up ready 75%\nmaint\n", (Ready, false, 75)),
            ("up,ready,\t300%", (Ready, false, 100)),
            ("stopped 0%", (Ready, true, 0)),
            ("failed", (Ready, true, 0)),
            ("UP 40%", (Ready, false, 40)),
            ("maxconn:30 Drain rubbish", (Drain, false, 40)),
            ("DOWN", (Drain, true, 40)),
            ("up READY -1% 5.5% \u{e9}", (Ready, false, 40)),
            ("Fail", (Ready, true, 40)),
            ("Up Stopped", (Ready, true, 40)),
            ("up MAINT 99%", (Maintenance, false, 99)),
        ] {
            state = state.after(answer.as_bytes()).expect(answer);
            let found = (state.administrative, state.is_down, state.weight_percent);
            assert_eq!(found, expected, "{answer:?}");
        }
    }

    #[test]
    fn an_answer_without_a_known_word_changes_nothing() {
        let state = AgentState::default();
        for answer in [
            "",
            "\n",
            " \t\n",
            "#down",
            "down50%",
            "%",
            "-1%",
            "+1%",
            "50",
            "5.5%",
            "maxconn:30",
            "rubbish drains",
            "fails",
            "99999999999%",
        ] {
            assert_eq!(state.after(answer.as_bytes()), None, "{answer:?}");
        }
        assert_eq!(state.after(b"drain\xff"), None);
    }
}
