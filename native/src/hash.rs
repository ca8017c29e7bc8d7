//! MurmurHash2 of 32 bits with the seed of Kafka's Java clients.

const SEED: u32 = 0x9747_b28c;
const MIX: u32 = 0x5bd1_e995;

pub(crate) fn murmur2(key: &[u8]) -> i32 {
    let mut digest = SEED ^ key.len() as u32;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mixed = u32::from_le_bytes(*word).wrapping_mul(MIX);
        digest = digest.wrapping_mul(MIX) ^ (mixed ^ mixed >> 24).wrapping_mul(MIX);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |last, byte| last << 8 | u32::from(*byte));
        digest = (digest ^ last).wrapping_mul(MIX);
    }
    digest = (digest ^ digest >> 13).wrapping_mul(MIX);
    (digest ^ digest >> 15) as i32
}

/// The partition to which Kafka's Java clients send a record with this key.
pub(crate) fn partition(key: &[u8], count: i32) -> i32 {
    (murmur2(key) & i32::MAX) % count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_java_client() {
        let known: [(&str, i32); 6] = [
            ("", 275646681),
            ("21", -973932308),
            ("foobar", -790332482),
            ("a-little-bit-long-string", -985981536),
            ("a-little-bit-longer-string", -1486304829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ];
        for (key, hash) in known {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
        assert_eq!(partition(b"foobar", 1), 0);
    }
}
