//! XXH32 with seed 0, the checksum of lz4 frames. Blocks and whole frames may have one, and Kafka's readers check it.

const PRIME: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];

/// Takes bytes in pieces of any size.
pub(crate) struct Hash {
    lanes: [u32; 4],
    rest: [u8; 16], // bytes that do not fill a stripe yet
    rest_size: usize,
    size: u64,
}

impl Default for Hash {
    fn default() -> Self {
        let lanes = [PRIME[0].wrapping_add(PRIME[1]), PRIME[1], 0, 0_u32.wrapping_sub(PRIME[0])];
        Hash { lanes, rest: [0; 16], rest_size: 0, size: 0 }
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn stripe(lanes: &mut [u32; 4], bytes: &[u8]) {
    for (lane, four) in lanes.iter_mut().zip(bytes.chunks_exact(4)) {
        let input = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        *lane = lane.wrapping_add(input.wrapping_mul(PRIME[1])).rotate_left(13).wrapping_mul(PRIME[0]);
    }
}

impl Hash {
    pub(crate) fn add(&mut self, mut data: &[u8]) {
        self.size += data.len() as u64;
        if self.rest_size > 0 {
            let taken = data.len().min(16 - self.rest_size);
            self.rest[self.rest_size..self.rest_size + taken].copy_from_slice(&data[..taken]);
            self.rest_size += taken;
            data = &data[taken..];
            if self.rest_size < 16 {
                return;
            }
            stripe(&mut self.lanes, &self.rest);
            self.rest_size = 0;
        }
        let stripes = data.chunks_exact(16);
        let rest = stripes.remainder();
        let mut lanes = self.lanes;
        for one in stripes {
            stripe(&mut lanes, one);
        }
        self.lanes = lanes;
        self.rest[..rest.len()].copy_from_slice(rest);
        self.rest_size = rest.len();
    }

    pub(crate) fn finish(&self) -> u32 {
        let [one, two, three, four] = self.lanes;
        let mut hash = if self.size < 16 {
            PRIME[4]
        } else {
            one.rotate_left(1)
                .wrapping_add(two.rotate_left(7))
                .wrapping_add(three.rotate_left(12))
                .wrapping_add(four.rotate_left(18))
        };
        hash = hash.wrapping_add(self.size as u32);
        let words = self.rest[..self.rest_size].chunks_exact(4);
        let bytes = words.remainder();
        for four in words {
            hash = hash.wrapping_add(word(four).wrapping_mul(PRIME[2])).rotate_left(17).wrapping_mul(PRIME[3]);
        }
        for byte in bytes {
            hash = hash.wrapping_add(u32::from(*byte).wrapping_mul(PRIME[4])).rotate_left(11).wrapping_mul(PRIME[0]);
        }
        hash = (hash ^ hash >> 15).wrapping_mul(PRIME[1]);
        hash = (hash ^ hash >> 13).wrapping_mul(PRIME[2]);
        hash ^ hash >> 16
    }
}

pub(crate) fn xxh32(data: &[u8]) -> u32 {
    let mut hash = Hash::default();
    hash.add(data);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        assert_eq!(xxh32(b""), 0x02cc_5d05);
        assert_eq!(xxh32(b"a"), 0x550d_7456);
        assert_eq!(xxh32(b"Nobody inspects the spammish repetition"), 0xe229_3b2f);
        assert_eq!(xxh32(b"\x60\x40") >> 8 & 0xff, 0x82); // the header that Java writes
    }

    #[test]
    fn pieces_add_up() {
        let data: Vec<u8> = (0..200).collect();
        for first in 0..40 {
            for second in first..60 {
                let mut hash = Hash::default();
                hash.add(&data[..first]);
                hash.add(&data[first..second]);
                hash.add(&data[second..]);
                assert_eq!(hash.finish(), xxh32(&data));
            }
        }
    }
}
