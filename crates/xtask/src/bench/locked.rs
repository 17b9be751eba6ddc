//! Counts the executed instructions that lock memory against access by other cores.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::callgrind::Executed;

/// The number of executed instructions that lock memory. `None` on a processor whose instruction set this program
/// cannot decode.
pub(super) fn count(executed: &Executed) -> Result<Option<u64>> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(None);
    }
    let mut all = 0;
    for (path, times) in executed {
        // Some code is in no file, for example the kernel's functions for the time.
        let Ok(file) = fs::read(path) else {
            continue;
        };
        let segments =
            segments(&file).with_context(|| format!("{path} is not an ELF file of 64 bits"))?;
        for (address, times) in times {
            let code = segments.iter().find_map(|segment| segment.at(*address));
            if code.is_some_and(|offset| is_locked(&file[offset.min(file.len())..])) {
                all += times;
            }
        }
    }
    Ok(Some(all))
}

/// Whether an x86-64 instruction has the prefix `lock`, or is an exchange with memory, which locks without the prefix
/// (Intel's manual, volume 2, "XCHG").
fn is_locked(code: &[u8]) -> bool {
    let mut bytes = code.iter().copied();
    let prefixes = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3];
    let mut next = bytes.find(|byte| !prefixes.contains(byte));
    if next == Some(0xf0) {
        return true;
    }
    // A REX prefix.
    if next.is_some_and(|byte| byte & 0xf0 == 0x40) {
        next = bytes.next();
    }
    let is_exchange = matches!(next, Some(0x86 | 0x87));
    // The upper two bits of ModRM are set if both operands are registers.
    is_exchange && bytes.next().is_some_and(|modrm| modrm < 0xc0)
}

/// A part of an ELF file and the addresses at which it is loaded.
struct Segment {
    offset: u64,
    address: u64,
    length: u64,
}

impl Segment {
    /// The offset of the byte with this address in the file.
    fn at(&self, address: u64) -> Option<usize> {
        let within = address.checked_sub(self.address)?;
        let offset = (within < self.length).then(|| self.offset.checked_add(within))??;
        usize::try_from(offset).ok()
    }
}

/// The loaded segments of a 64-bit little-endian ELF file (System V ABI, "Program Header").
fn segments(file: &[u8]) -> Result<Vec<Segment>> {
    const LOADED: u64 = 1;
    let number = |offset: usize, length: usize| {
        let bytes = file
            .get(offset..offset + length)
            .context("it is too short")?;
        anyhow::Ok(
            bytes
                .iter()
                .rev()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    };
    ensure!(file.starts_with(b"\x7fELF\x02\x01"), "another format");
    let (start, size) = (number(0x20, 8)? as usize, number(0x36, 2)? as usize);
    let mut segments = Vec::new();
    for header in 0..number(0x38, 2)? as usize {
        let header = start + header * size;
        if number(header, 4)? == LOADED {
            segments.push(Segment {
                offset: number(header + 0x08, 8)?,
                address: number(header + 0x10, 8)?,
                length: number(header + 0x20, 8)?,
            });
        }
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_lock_are_known_by_their_bytes() {
        for (code, locks, what) in [
            (
                &[0xf0, 0x48, 0x0f, 0xc1, 0x07][..],
                true,
                "lock xadd %rax,(%rdi)",
            ),
            (
                &[0x66, 0xf0, 0x0f, 0xb1, 0x0f],
                true,
                "lock cmpxchg %cx,(%rdi)",
            ),
            (
                &[0x87, 0x0d, 0xc5, 0x2e, 0x00, 0x00],
                true,
                "xchg %ecx,0x2ec5(%rip)",
            ),
            (&[0x48, 0x87, 0x07], true, "xchg %rax,(%rdi)"),
            (&[0x48, 0x87, 0xc7], false, "xchg %rax,%rdi"),
            (&[0x66, 0x90], false, "xchg %ax,%ax"),
            (&[0x48, 0x89, 0x07], false, "mov %rax,(%rdi)"),
            (&[0xf3, 0x0f, 0x1e, 0xfa], false, "endbr64"),
            (&[], false, "the end of the file"),
        ] {
            assert_eq!(is_locked(code), locks, "{what}");
        }
    }

    #[test]
    fn a_segment_of_this_program_has_its_code() {
        let file = fs::read("/proc/self/exe").expect("this program");
        let all = segments(&file).expect("an ELF file");
        // The entry point of the program is in a segment.
        let entry = u64::from_le_bytes(file[0x18..0x20].try_into().expect("8 bytes"));
        let offset = all.iter().find_map(|segment| segment.at(entry));
        assert!(offset.is_some_and(|offset| offset < file.len()));
        assert!(all.iter().all(|segment| segment.at(u64::MAX).is_none()));
        assert!(segments(b"#!/bin/sh").is_err() && segments(&file[..0x40]).is_err());
    }
}
