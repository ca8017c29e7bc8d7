//! Hostile bytes, with overflow checks on: every input gives a result or an error, and the result keeps the rules.
//! Tests in Python check that the Python version gives the same result.

use std::collections::HashMap;

use crate::arrays::Blobs;
use crate::reader::{Columns, Wanted, decode};
use crate::seek;
use crate::validate::{self, Limits, Rules, SOUND};
use crate::writer::{Rows, Target, encode};

const ROUNDS: usize = 4000;
const SIZE_MAX: usize = 1 << 20;

/// A random number generator that is the same on every platform (xorshift).
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

const RULES: Rules =
    Rules { keyed: true, create_time: true, now_ms: 1_700_000_000_000, before_ms: 1000, after_ms: 1000, errors_max: 3 };
const LIMITS: Limits = Limits { inflated: SIZE_MAX as u64, records: 10_000 };

/// A batch with its checksum corrected, so that the checks after it run.
fn sealed(mut data: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&data[21..]);
    data[17..21].copy_from_slice(&crc.to_be_bytes());
    data
}

/// The first batch of these, with offsets as a client sends them.
fn first(data: &[u8]) -> Vec<u8> {
    let length = u32::from_be_bytes([data[8], data[9], data[10], data[11]]) as usize;
    data[..length + 12].to_vec()
}

#[test]
fn sound_batches_are_sound_in_every_codec() {
    let long = vec![b'x'; 300_000];
    let values: Vec<&[u8]> = vec![&long, b"", b"three"];
    for codec in 0..=4 {
        let data = first(&batches(codec, &values, &mut Chance(0)));
        let found = validate::check(&data, &RULES, LIMITS);
        assert_eq!((found.state, found.errors_total), (SOUND, 0), "{codec}: {}", found.detail);
        for target in 0..=4 {
            let (verdict, packed) = validate::transcode(&data, &RULES, LIMITS, (target, None), SIZE_MAX);
            assert_eq!((verdict.state, verdict.inflated), (SOUND, found.inflated));
            let mut again = data[..61].to_vec();
            again[22] = target;
            again[8..12].copy_from_slice(&(packed.len() as u32 + 49).to_be_bytes());
            again.extend_from_slice(&packed);
            assert_eq!(validate::check(&sealed(again), &RULES, LIMITS).inflated, found.inflated, "{codec} {target}");
        }
    }
}

#[test]
fn hostile_batches_get_a_verdict() {
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    let (mut sound, mut wrong) = (0, 0);
    for round in 0..ROUNDS {
        let text = vec![round as u8; chance.below(2000)];
        let mut data = first(&batches((round % 5) as u8, &[&text[..], b"", b"key"].repeat(1 + round % 7), &mut chance));
        for _ in 0..chance.below(4) {
            let at = 21 + chance.below(data.len() - 21);
            data[at] = [data[at] ^ 1 << chance.below(8), chance.below(256) as u8, 0, 255][chance.below(4)];
        }
        let data = sealed(data);
        let found = validate::check(&data, &RULES, LIMITS);
        assert!(found.errors.len() <= 3 && found.inflated <= LIMITS.inflated);
        let (verdict, packed) = validate::transcode(&data, &RULES, LIMITS, ((round / 5 % 5) as u8, None), 1000);
        assert!(packed.len() <= 1000);
        assert_eq!(verdict.state == validate::WRONG, found.state == validate::WRONG);
        let records = seek::portion(&data, 0, 10, 100, LIMITS).map_or(0, |found| found.len());
        assert!(records <= 10);
        _ = seek::since(&data, i64::MAX, 0, LIMITS);
        if found.state == SOUND { sound += 1 } else { wrong += 1 }
    }
    assert!(sound > ROUNDS / 10 && wrong > ROUNDS / 10, "{sound} sound, {wrong} wrong: try others");
}

#[test]
fn bombs_end_at_the_limit() {
    // One record that declares a length beyond any limit, and zeros as its content.
    let mut content = Vec::new();
    crate::varint::put(2_000_000_000, &mut content);
    content.extend_from_slice(&[0, 0, 0]);
    crate::varint::put(1_900_000_000, &mut content);
    content.resize(3 * SIZE_MAX, 0);
    for codec in 1..=4 {
        let mut packed = Vec::new();
        crate::deflate::Deflater::new(codec, None).deflate(&content, &mut packed).expect("packs");
        let mut data = first(&batches(codec, &[b"x"], &mut Chance(7)))[..61].to_vec();
        data[8..12].copy_from_slice(&(packed.len() as u32 + 49).to_be_bytes());
        data.extend_from_slice(&packed);
        let found = validate::check(&sealed(data), &RULES, LIMITS);
        assert_eq!(found.state, validate::OVER, "{codec}: {}", found.detail);
    }
}
