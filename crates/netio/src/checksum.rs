//! The Internet checksum (RFC 1071), whole and in parts.

/// Returns the 16-bit one's complement sum of `parts`, folded but not inverted. Only the last part may have an odd
/// length.
pub(crate) fn sum(parts: &[&[u8]]) -> u16 {
    let mut total: u64 = 0;
    for part in parts {
        let (words, rest) = part.as_chunks::<4>();
        let words = words
            .iter()
            .map(|word| u64::from(u32::from_ne_bytes(*word)));
        total += words.sum::<u64>();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        total += u64::from(u32::from_ne_bytes(last));
    }
    // A sum of words in the machine's byte order equals the byte-swapped sum of words in network order (RFC 1071,
    // section 2.B).
    u16::from_be(fold(total))
}

/// Folds a sum of 32-bit words to 16 bits.
#[expect(clippy::cast_possible_truncation, reason = "folded below 2^16 first")]
fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Adds two numbers in one's complement.
pub(crate) fn add(a: u16, b: u16) -> u16 {
    fold(u64::from(a) + u64::from(b))
}

/// Returns the transport checksum of `parts`, in which its field, at `offset` in the header, holds the sum of the
/// pseudo header. In UDP, whose field is at offset 6, 0 means no checksum, so 0xffff is returned instead of 0 (RFC
/// 768). Other protocols never yield 0xffff, because the sum of data that is not all zero is not 0.
pub(crate) fn complete(parts: &[&[u8]], offset: usize) -> u16 {
    const OF_UDP: usize = 6;
    match !sum(parts) {
        0 if offset == OF_UDP => 0xffff,
        sum => sum,
    }
}

/// Returns the sum over an IP pseudo header: `addresses` as in the header, protocol, and transport length.
pub(crate) fn pseudo(addresses: &[u8], protocol: u8, length: usize) -> u16 {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    sum(&[addresses, &[a, b, c, d], &[0, 0, 0, protocol]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_has_its_sum() {
        assert_eq!(
            sum(&[&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]),
            0xddf2
        );
    }

    #[test]
    fn only_udp_replaces_a_checksum_of_zero() {
        let parts: [&[u8]; 1] = [&[0xf0, 0x0f, 0x0f, 0xf0]];
        assert_eq!(complete(&parts, 6), 0xffff);
        assert_eq!(complete(&parts, 16), 0);
    }

    #[test]
    fn an_odd_byte_counts_as_the_high_half() {
        assert_eq!(sum(&[&[0x12, 0x34, 0x56]]), 0x1234 + 0x5600);
    }
}
