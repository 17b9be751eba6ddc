//! What a client does on a response with `Retry-After`, by its stated version of Puppet.

/// Whether a client sends its request again after a 503 with `Retry-After`.
///
/// The version is the client's own statement. It may lead to a refusal, but never to a better slot in the queue: a client whose
/// version cannot be read is treated as one that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RetrySupport {
    /// It sends the request again: agents 5.3.1 to 6.13, agents of Puppet 7 from 7.26 on, and agents from 8.2 on.
    Retries,
    /// It fails its run. Without `Retry-After` it fails at once. With it, agents 6.14 to 7.25 and 8.0 to 8.1 wait first
    /// and then fail with an error that hides the reason (PUP-11853).
    Fails,
    /// It continues its run without a response. Agents do so with the daily refresh of the CA's certificates and CRL, and with
    /// renewals. With `Retry-After`, agents of Puppet 8 would first sleep up to a hundred times.
    Continues,
    /// It states no version, so it is probably not an agent.
    #[default]
    Unknown,
}

impl RetrySupport {
    /// Notes a value of `X-Puppet-Version`. Two values count as no value.
    pub(crate) fn note(&mut self, value: &[u8]) {
        *self = match self {
            Self::Unknown if retries(value) == Some(true) => Self::Retries,
            _ => Self::Fails,
        };
    }
}

/// Whether agents of this version send the request again. `None`: the value is not a version.
fn retries(value: &[u8]) -> Option<bool> {
    let mut numbers = release(value).split(|byte| *byte == b'.').map(number);
    let version = (numbers.next()??, numbers.next()??, numbers.next()??);
    if numbers.next().is_some() {
        return None;
    }
    Some(match version {
        (5, 3, patch) => patch >= 1,
        (5, minor, _) => minor > 3,
        (6, minor, _) => minor <= 13,
        (7, minor, _) => minor >= 26,
        (8, minor, _) => minor >= 2,
        (major, ..) => major > 8,
    })
}

/// Removes `-rc1` or `.rc1`, because a release candidate behaves like its release.
fn release(value: &[u8]) -> &[u8] {
    let digits = value.iter().rev().take_while(|byte| byte.is_ascii_digit());
    match value.split_at(value.len() - digits.count()) {
        ([release @ .., b'-' | b'.', b'r', b'c'], [_, ..]) => release,
        _ => value,
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    let plain = (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let value = |sum, digit: &u8| sum * 10 + u32::from(digit - b'0');
    plain.then(|| digits.iter().fold(0, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> RetrySupport {
        let mut support = RetrySupport::default();
        values
            .iter()
            .for_each(|value| support.note(value.as_bytes()));
        support
    }

    #[test]
    fn agents_that_send_their_request_again_are_known_by_their_version() {
        for version in [
            "5.3.1",
            "5.3.10",
            "5.5.22",
            "6.0.0",
            "6.13.1",
            "7.26.0",
            "7.34.0",
            "8.2.0",
            "8.10.0",
            "9.0.0",
            "10.1.2",
            // Versions before a release. OpenVox writes them in the first form, a Ruby gem in the second.
            "9.0.0-rc1",
            "8.16.0.rc1",
            "9.0.0-rc12",
            "7.26.0.rc2",
        ] {
            assert_eq!(of(&[version]), RetrySupport::Retries, "{version}");
        }
    }

    #[test]
    fn every_other_version_and_an_invalid_one_count_as_an_agent_that_fails() {
        for version in [
            "5.3.0",
            "5.2.9",
            "4.10.12",
            "0.25.5",
            "6.14.0",
            "6.28.0",
            "7.0.0",
            "7.25.9",
            "8.0.0",
            "8.1.0",
            "",
            "8",
            "8.10",
            "8.10.0.1",
            "7.25.0.rc1",
            "8.0.0-rc1",
            "9.0.0-",
            "9.0.0-rc",
            "9.0.0rc1",
            "9.0.0-beta1",
            "9.0.0-RC1",
            "9.0.0-rc1.2",
            "9.0.0-rc1-rc2",
            "9.0-rc1",
            "9.0-rc1.0",
            "9-rc1",
            "-rc1",
            "8.10.x",
            "+8.10.0",
            " 8.10.0",
            "8..0",
            "8.10.",
            "8.100000.0",
            "8.10.0\u{fc}",
            "-9.0.0",
        ] {
            assert_eq!(of(&[version]), RetrySupport::Fails, "{version:?}");
        }
        assert_eq!(of(&["8.10.0", "8.10.0"]), RetrySupport::Fails);
        assert_eq!(of(&["x", "8.10.0"]), RetrySupport::Fails);
        assert_eq!(of(&[]), RetrySupport::Unknown);
    }
}
