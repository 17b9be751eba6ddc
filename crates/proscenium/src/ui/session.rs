//! Access to the page: a token that works once, and the secret that a page gets for it.

use std::fmt::Write as _;

use anyhow::Context;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::failure::Failure;

/// Bytes of randomness in a token or secret.
const KEY_BYTES: usize = 32;

/// The token that was printed, or the secret that a page got for it.
#[derive(Debug)]
pub(super) struct Session {
    token: Option<String>,
    secret: Option<String>,
}

impl Session {
    /// A session that waits for a page with this token.
    pub(super) fn new(token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            secret: None,
        }
    }

    /// The secret for the token. A token works once.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub(super) fn exchange(&mut self, token: &str) -> Result<Option<String>, Failure> {
        if !same(self.token.as_deref(), token) {
            return Ok(None);
        }
        let secret = new_token()?;
        self.token = None;
        self.secret = Some(secret.clone());
        Ok(Some(secret))
    }

    /// Whether a request with this secret is from the page.
    pub(super) fn is_valid(&self, secret: &str) -> bool {
        same(self.secret.as_deref(), secret)
    }
}

/// Compares two strings in a time that does not depend on where they differ.
fn same(expected: Option<&str>, given: &str) -> bool {
    let Some(expected) = expected else {
        return false;
    };
    let pairs = expected.bytes().zip(given.bytes());
    let difference = pairs.fold(0, |found, (a, b)| found | (a ^ b));
    expected.len() == given.len() && difference == 0
}

/// A random token in hexadecimal.
///
/// # Errors
/// The system provides no random numbers.
pub(crate) fn new_token() -> Result<String, Failure> {
    let mut bytes = [0; KEY_BYTES];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    // Up to 256 bytes are always complete (getrandom(2)).
    let filled = filled.context("cannot get random numbers from the system")?;
    if filled != KEY_BYTES {
        return Err(Failure::because("the system gave too few random numbers"));
    }
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_works_once_and_its_secret_until_a_new_session() {
        let token = new_token().unwrap();
        assert_eq!(token.len(), 2 * KEY_BYTES);
        let mut session = Session::new(&token);
        for wrong in ["", "0", &token[1..], &format!("{token}0")] {
            assert_eq!(session.exchange(wrong).unwrap(), None, "{wrong}");
            assert!(!session.is_valid(wrong));
        }
        assert!(!session.is_valid(&token));
        let secret = session.exchange(&token).unwrap().expect("a secret");
        assert_ne!(secret, token);
        assert!(session.is_valid(&secret));
        assert!(!session.is_valid(""));
        assert_eq!(session.exchange(&token).unwrap(), None);
        assert!(session.is_valid(&secret));
    }
}
