//! Hashes that select members. They must never change.

use std::net::IpAddr;

/// Hash of a routing key, such as a file's checksum or a client's address.
///
/// The function is fixed (FNV-1a, then mixed), because two proxies, and two versions of one proxy, must send a key to the same
/// member.
pub fn key_hash(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(FNV_OFFSET, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
    });
    mix(hash)
}

/// Hash of a client's address. An IPv4 address on an IPv6 socket has the same hash.
pub fn source_hash(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => key_hash(&address.octets()),
        IpAddr::V6(address) => key_hash(&address.octets()),
    }
}

/// Hash that decides whether a client belongs to a given share of all clients. It is independent of the hash that selects the
/// client's member.
pub fn share_hash(client: u64) -> u64 {
    mix(client ^ SHARE_SALT)
}

/// The finaliser of splitmix64: every input bit affects every output bit.
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let value = mix_nearly(value);
    value ^ (value >> 31)
}

/// The finaliser without its last step.
#[inline]
pub(crate) fn mix_nearly(mut value: u64) -> u64 {
    value ^= value >> 30;
    value = value.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value ^= value >> 27;
    value.wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Fixed, like the hash of a key.
const SHARE_SALT: u64 = 0x9e37_79b9_7f4a_7c15;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
