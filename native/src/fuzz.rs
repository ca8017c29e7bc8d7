//! Hostile bytes, with the checks for overflow on: whatever comes in, an answer or an error comes out, and the answer keeps
//! the laws. That it is also the answer of the twin in Python is tested from there.

use std::collections::HashMap;

use crate::arrays::Blobs;
use crate::reader::{Columns, Wanted, decode};
use crate::writer::{Rows, Target, encode};

const ROUNDS: usize = 4000;
const SIZE_MAX: usize = 1 << 20;

/// A generator of numbers that is the same everywhere (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn batches(codec: u8, values: &[&[u8]], chance: &mut Chance) -> Vec<u8> {
    let (mut positions, mut data) = (0_i32.to_ne_bytes().to_vec(), Vec::new());
    for value in values {
        data.extend_from_slice(value);
        positions.extend_from_slice(&(data.len() as i32).to_ne_bytes());
    }
    let blobs = Blobs { valid: None, positions: &positions, data: &data, first: 0, count: values.len() };
    let target = Target {
        partition_count: 1,
        codec,
        level: None,
        batch_bytes: 61 + chance.below(2000),
        producer_id: 1,
        producer_epoch: 0,
        base_sequences: HashMap::new(),
        transactional: true,
        now_ms: 1_700_000_000_000,
    };
    let rows = Rows { keys: blobs, values: blobs, headers: None, timestamps: None, partitions: None };
    let mut found = encode(&rows, target).expect("these can be written");
    let mut offset = 0_i64;
    for place in found.places.remove(0).1 {
        let batch = &mut found.data[place];
        batch[..8].copy_from_slice(&offset.to_be_bytes());
        offset += i64::from(u32::from_be_bytes([batch[57], batch[58], batch[59], batch[60]]));
    }
    found.data
}

fn read(data: &[u8], check_crc: bool) -> Result<Option<Columns>, String> {
    let wanted = Wanted { start: 3, stop: 1000, headers: true, check_crc, size_max: SIZE_MAX };
    let found = decode(data, &wanted, Some(vec![(2, 0)]))?;
    if let Some(columns) = &found {
        let rows = columns.offsets.len();
        assert!(columns.offsets.iter().all(|offset| (3..1000).contains(offset)));
        assert!((3..=1000).contains(&columns.next_offset) && columns.bytes_read <= data.len());
        assert_eq!((columns.timestamps.len(), columns.kinds.len()), (rows, rows));
        for blobs in [&columns.keys, &columns.values] {
            assert_eq!((blobs.positions.len(), blobs.valid.words.len()), (rows + 1, rows.div_ceil(64)));
            assert!(blobs.positions.is_sorted());
            assert_eq!(blobs.positions.last().copied(), i32::try_from(blobs.data.len()).ok());
        }
    }
    Ok(found)
}

#[test]
fn what_is_written_is_read_again() {
    let values: Vec<&[u8]> = vec![b"one", b"", b"twice upon a time, twice upon a time, twice upon a time"];
    for codec in 0..=4 {
        let data = batches(codec, &values.repeat(40), &mut Chance(7));
        let found = read(&data, true).expect("sound").expect("not old");
        assert_eq!(found.offsets, (3..120).collect::<Vec<i64>>());
        assert_eq!(found.values.data, values.repeat(39).concat());
        assert_eq!(found.keys.data, found.values.data);
        assert_eq!((found.next_offset, found.bytes_read), (120, data.len()));
    }
}

#[test]
fn hostile_bytes_give_an_answer_or_an_error() {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let (mut answers, mut errors) = (0, 0);
    let long = [7; 3000];
    for round in 0..ROUNDS {
        let value = &long[..chance.below(long.len())];
        let mut data = batches((round % 5) as u8, &[value, b"key", b""].repeat(1 + round % 5), &mut chance);
        for _ in 0..chance.below(4) {
            let at = chance.below(data.len());
            data[at] = [data[at] ^ 1 << chance.below(8), chance.below(256) as u8, 0, 255][chance.below(4)];
        }
        data.truncate(data.len() - chance.below(data.len()) * (round % 3 / 2));
        match read(&data, false) {
            Ok(_) => answers += 1,
            Err(reason) => {
                assert!(reason.starts_with("the batch at offset "), "{reason}");
                errors += 1;
            }
        }
    }
    assert!(answers > ROUNDS / 10 && errors > ROUNDS / 10, "{answers} answers, {errors} errors: try others");
}
