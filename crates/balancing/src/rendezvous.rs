//! Weighted rendezvous hashing: each key ranks the members, and losing one moves only its own keys.

use std::net::IpAddr;

use crate::pool::Entry;

/// Hash of a routing key, such as a file's checksum or a client's address.
///
/// Fixed for ever (FNV-1a, then mixed), since two proxies and two versions of one must send a key to the same member.
pub fn key_hash(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(FNV_OFFSET, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
    });
    mix(hash)
}

/// Hash of a client's address, an IPv4 one being the same over an IPv6 socket.
pub fn source_hash(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => key_hash(&address.octets()),
        IpAddr::V6(address) => key_hash(&address.octets()),
    }
}

/// Hash of a client by which it is within a share of all clients or not. It says nothing of the member that the same client
/// hashes to.
pub fn share_hash(client: u64) -> u64 {
    mix(client ^ SHARE_SALT)
}

/// The member that wants the key most, of those that are `open`.
///
/// Each wants it by `weight / -ln(u)` with `u` even over (0, 1): a member wins with a chance in proportion to its weight.
/// Few logarithms are taken: members of one weight stand in the order of `u`, and `-ln(u)` is at least `1 - u`.
pub(crate) fn most_wanted(
    entries: &[Entry],
    key: u64,
    weight: impl Fn(&Entry) -> u64,
    open: impl Fn(&Entry) -> bool,
) -> Option<usize> {
    let mut best: Option<(usize, Wish)> = None;
    for (index, entry) in entries.iter().enumerate() {
        let wish = Wish {
            drawn: mix(key ^ entry.address_hash.rotate_left(32)) >> (64 - DRAWN_BITS),
            weight: weight(entry),
        };
        let loses = best.as_ref().is_some_and(|(_, best)| !wish.is_above(best));
        if !loses && open(entry) {
            best = Some((index, wish));
        }
    }
    best.map(|(index, _)| index)
}

/// How much a member wants a key.
#[derive(Clone, Copy)]
struct Wish {
    drawn: u64,
    weight: u64,
}

impl Wish {
    fn is_above(self, other: &Self) -> bool {
        if self.weight == other.weight {
            return self.drawn > other.drawn;
        }
        let (weight, best) = (self.weight as f64, other.strength());
        weight > best * (1.0 - self.unit()) && self.strength() > best
    }

    fn unit(self) -> f64 {
        (self.drawn as f64 + 0.5) / (1_u64 << DRAWN_BITS) as f64
    }

    fn strength(self) -> f64 {
        self.weight as f64 / -self.unit().ln()
    }
}

/// The finaliser of splitmix64: every input bit reaches every output bit.
pub(crate) fn mix(mut value: u64) -> u64 {
    value ^= value >> 30;
    value = value.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value ^= value >> 27;
    value = value.wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// One bit fewer than an `f64` holds, so that adding a half is exact and `u` is never 0 or 1.
const DRAWN_BITS: u32 = f64::MANTISSA_DIGITS - 1;
/// Fixed for ever, as the hash of a key is.
const SHARE_SALT: u64 = 0x9e37_79b9_7f4a_7c15;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
