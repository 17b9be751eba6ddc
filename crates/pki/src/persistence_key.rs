//! The key of persistence cookies. The proxy recognizes the values that it issued, and no client can create a valid value.

use std::fmt;

use aws_lc_rs::{hmac, rand};

/// Creates a value for each member. Its bytes are secret.
#[derive(Clone)]
pub struct PersistenceKey {
    bytes: [u8; Self::BYTES],
    key: hmac::Key,
}

impl PersistenceKey {
    /// Length of the key.
    pub const BYTES: usize = 32;

    /// A new key.
    ///
    /// # Panics
    /// If the system provides no random bytes.
    pub fn random() -> Self {
        let mut bytes = [0; Self::BYTES];
        rand::fill(&mut bytes).expect("the system provides random bytes");
        Self::from_bytes(bytes)
    }

    /// A stored key.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        Self { bytes, key }
    }

    /// The key, to be stored.
    pub fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.bytes
    }

    /// The cookie value for a member: 32 hexadecimal digits that reveal neither its address nor its pool.
    pub fn value(&self, pool: &str, member: &str) -> String {
        // No pool name contains a NUL, so two members always have different input.
        let tag = hmac::sign(&self.key, format!("{pool}\0{member}").as_bytes());
        let half = tag.as_ref().iter().take(16);
        half.map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for PersistenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistenceKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_of_one_key_one_pool_and_one_member() {
        let key = PersistenceKey::random();
        let value = key.value("app", "member1:80");
        assert_eq!(value.len(), 32);
        assert!(!value.contains("member1"));
        let stored = PersistenceKey::from_bytes(*key.bytes());
        assert_eq!(stored.value("app", "member1:80"), value);
        for (other, pool, member) in [
            (&key, "app", "member2:80"),
            (&key, "ap", "p\0member1:80"),
            (&PersistenceKey::random(), "app", "member1:80"),
        ] {
            assert_ne!(other.value(pool, member), value, "{pool} {member}");
        }
        assert!(!format!("{key:?}").contains(&format!("{:?}", key.bytes())));
    }
}
