//! Header blocks (RFC 7541) whose fields are literal, byte for byte as a test writes them.

/// A header block without indexing.
pub(crate) fn encode<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_ref(), value.as_ref()] {
            length(text.len(), &mut block);
            block.extend_from_slice(text);
        }
    }
    block
}

/// Writes the length of a text without Huffman code.
fn length(number: usize, into: &mut Vec<u8>) {
    let most = 127;
    if number < most {
        return into.push(number as u8);
    }
    into.push(most as u8);
    let mut rest = number - most;
    while rest >= 128 {
        into.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    into.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_the_same() {
        let long = "v".repeat(300);
        let fields = [(":path", "/x"), ("X-Upper", long.as_str())];
        let mut read = Vec::new();
        httlib_hpack::Decoder::default()
            .decode(&mut encode(&fields), &mut read)
            .expect("a block");
        let (name, value, _) = &read[1];
        assert_eq!((&name[..], &value[..]), (&b"X-Upper"[..], long.as_bytes()));
    }
}
