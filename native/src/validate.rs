//! The broker's check of a batch: its checksum, and a complete walk over its records. `ottla.records.check` is the Python
//! version and has the rules.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::batch::{self, CHECKED, CONTROL, HEADER_SIZE, Header, LOG_APPEND_TIME, TRANSACTIONAL};
use crate::cursor::Cursor;
use crate::helper;
use crate::pack::Packer;
use crate::windows::{Inflated, Plain, Stop, Windows};

pub(crate) const SOUND: u8 = 0;
pub(crate) const CHECKSUM: u8 = 1;
pub(crate) const WRONG: u8 = 2;
pub(crate) const OVER: u8 = 3;
pub(crate) const LARGE: u8 = 4; // recompressed it would be larger than allowed

const ZSTD: u8 = 4;
const NO_TIMESTAMP: i64 = -1;
const NO_KEY: u8 = 1;
const BAD_TIME: u8 = 2;
const BAD_TYPE: u8 = 3;

/// The topic's rules for each record. Timestamps are compared as in Kafka, whose sums wrap.
pub(crate) struct Rules {
    pub(crate) keyed: bool,
    pub(crate) create_time: bool,
    pub(crate) now_ms: i64,
    pub(crate) before_ms: i64,
    pub(crate) after_ms: i64,
    pub(crate) errors_max: usize, // how many refused records are reported
}

#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) inflated: u64,
    pub(crate) records: i64,
}

pub(crate) struct Verdict {
    pub(crate) state: u8,
    pub(crate) detail: String,
    pub(crate) inflated: u64,
    pub(crate) latest: i64, // the largest timestamp, at least -1
    pub(crate) latest_index: i64,
    pub(crate) negative: bool,              // a timestamp is below -1
    pub(crate) errors: Vec<(i64, u8, i64)>, // index, which rule, timestamp
    pub(crate) errors_total: i64,
    pub(crate) bad_times: bool,
}

impl Verdict {
    fn new(state: u8, detail: String) -> Self {
        Verdict {
            state,
            detail,
            inflated: 0,
            latest: NO_TIMESTAMP,
            latest_index: -1,
            negative: false,
            errors: Vec::new(),
            errors_total: 0,
            bad_times: false,
        }
    }

    fn refuse(&mut self, rules: &Rules, index: i64, rule: u8, timestamp: i64) {
        self.errors_total += 1;
        self.bad_times |= rule != NO_KEY;
        if self.errors.len() < rules.errors_max {
            self.errors.push((index, rule, timestamp));
        }
    }
}

impl From<Stop> for Verdict {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Wrong(reason) => Verdict::new(WRONG, reason),
            Stop::Over => Verdict::new(OVER, String::new()),
        }
    }
}

/// `data` is exactly one batch of magic 2.
pub(crate) fn check(data: &[u8], rules: &Rules, limits: Limits) -> Verdict {
    let head = match opened(data) {
        Ok(head) => head,
        Err(verdict) => return verdict,
    };
    let payload = &data[HEADER_SIZE..];
    let found = match head.codec() {
        0 => walk(&mut Cursor::new(Plain(payload), limits.inflated), &head, rules, limits),
        codec => Inflated::new(codec, payload, limits.inflated)
            .and_then(|windows| walk(&mut Cursor::new(windows, limits.inflated), &head, rules, limits)),
    };
    found.unwrap_or_else(Verdict::from)
}

/// What the log needs to know of a batch that is stored unchanged.
pub(crate) struct Sound {
    pub(crate) last_offset_delta: i32,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) inflated: u64, // bytes that had to be decompressed
}

/// Whether a client's batch can be stored unchanged: `ottla.records.check.sound` has the conditions. None: perhaps not.
pub(crate) fn sound(data: &[u8], rules: &Rules, zstd: bool, inflated_max: u64) -> Option<Sound> {
    let Ok(batch::Entry::Batch(head, whole)) = batch::entry(data) else {
        return None;
    };
    let codec = head.codec();
    let usual = whole.len() == data.len()
        && head.base_offset == 0
        && head.count > 0
        && head.count - 1 == head.last_offset_delta
        && !head.has(LOG_APPEND_TIME | CONTROL | TRANSACTIONAL)
        && (head.producer_id < 0 || batch::numbered(data))
        && (codec < ZSTD || (codec == ZSTD && zstd));
    if !usual {
        return None;
    }
    let inflated = if codec == 0 { data.len() as u64 } else { inflated_max };
    let found = check(data, rules, Limits { inflated, records: i64::MAX });
    (found.state == SOUND && found.latest == head.max_timestamp && found.errors_total == 0).then_some(Sound {
        last_offset_delta: head.last_offset_delta,
        max_timestamp: head.max_timestamp,
        producer_id: head.producer_id,
        inflated: if codec == 0 { 0 } else { found.inflated },
    })
}

/// Limits for batches of one request that are checked together.
pub(crate) struct Together {
    pub(crate) size_max: usize,
    pub(crate) compressed_size_max: usize,
    pub(crate) inflated_max: u64, // of one batch
    pub(crate) zstd: bool,
}

/// How much is decompressed together. Batches that have begun by then are finished.
const INFLATED_TOGETHER_MAX: u64 = 2 << 20;

/// Checking fewer compressed bytes takes not much longer than waking the helper.
const COMPRESSED_SHARED_MIN: usize = 32 * 1024;

/// The same for several batches, in order. Ends before the first that cannot be stored unchanged or is larger than
/// allowed, or when much has been decompressed. Compressed batches are checked by two threads.
pub(crate) fn sound_each(batches: &[&[u8]], rules: &Rules, limits: &Together) -> Vec<Sound> {
    let results: Vec<OnceLock<Sound>> = batches.iter().map(|_| OnceLock::new()).collect();
    let (ended, inflated) = (AtomicBool::new(false), AtomicU64::new(0));
    let check = |at: usize| {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        let batch = batches[at];
        let allowed = if batch::is_compressed(batch) { limits.compressed_size_max } else { limits.size_max };
        let fits = batch.len() <= allowed.min(limits.size_max);
        match fits.then(|| sound(batch, rules, limits.zstd, limits.inflated_max)).flatten() {
            Some(found) => {
                let total = inflated.fetch_add(found.inflated, Ordering::Relaxed) + found.inflated;
                ended.fetch_or(total > INFLATED_TOGETHER_MAX, Ordering::Relaxed);
                let _ = results[at].set(found);
            }
            None => ended.store(true, Ordering::Relaxed),
        }
    };
    let compressed = batches.iter().filter(|batch| batch::is_compressed(batch)).map(|batch| batch.len());
    if compressed.sum::<usize>() >= COMPRESSED_SHARED_MIN {
        helper::share(batches.len(), check);
    } else {
        (0..batches.len()).for_each(check);
    }
    results.into_iter().map_while(OnceLock::into_inner).collect()
}

/// The same, and the records recompressed with another codec, if they take no more than `size_max` bytes.
pub(crate) fn transcode(
    data: &[u8],
    rules: &Rules,
    limits: Limits,
    (codec, level): (u8, Option<i32>),
    size_max: usize,
) -> (Verdict, Vec<u8>) {
    let head = match opened(data) {
        Ok(head) => head,
        Err(verdict) => return (verdict, Vec::new()),
    };
    let payload = &data[HEADER_SIZE..];
    let mut packer = match Packer::new(codec, level, size_max) {
        Ok(packer) => packer,
        Err(reason) => return (Verdict::new(WRONG, reason), Vec::new()),
    };
    let found = match head.codec() {
        0 => retold(Plain(payload), &mut packer, &head, rules, limits),
        codec => Inflated::new(codec, payload, limits.inflated)
            .and_then(|windows| retold(windows, &mut packer, &head, rules, limits)),
    };
    let verdict = found.unwrap_or_else(Verdict::from);
    if verdict.state != SOUND || verdict.errors_total > 0 {
        return (verdict, Vec::new()); // errors of single records take precedence over errors of the batch
    }
    match packer.finish() {
        Some(packed) => (verdict, packed),
        None => (Verdict::new(LARGE, String::new()), Vec::new()),
    }
}

fn opened(data: &[u8]) -> Result<Header, Verdict> {
    let head = match batch::entry(data) {
        Ok(batch::Entry::Batch(head, whole)) if whole.len() == data.len() => head,
        _ => return Err(Verdict::new(WRONG, "not one batch".into())),
    };
    if crc32c::crc32c(&data[CHECKED..]) == head.crc { Ok(head) } else { Err(Verdict::new(CHECKSUM, String::new())) }
}

/// Windows that are compressed again after they have been walked over.
struct Retold<'a, W> {
    windows: W,
    packer: &'a mut Packer,
}

impl<W: Windows> Windows for Retold<'_, W> {
    #[inline(always)]
    fn window(&self) -> &[u8] {
        self.windows.window()
    }

    fn next(&mut self) -> Result<bool, Stop> {
        self.packer.add(self.windows.window());
        self.windows.next()
    }
}

fn retold(
    windows: impl Windows,
    packer: &mut Packer,
    head: &Header,
    rules: &Rules,
    limits: Limits,
) -> Result<Verdict, Stop> {
    walk(&mut Cursor::new(Retold { windows, packer }, limits.inflated), head, rules, limits)
}

fn walk<W: Windows>(cursor: &mut Cursor<W>, head: &Header, rules: &Rules, limits: Limits) -> Result<Verdict, Stop> {
    let count = i64::from(head.count);
    let mut found = Verdict::new(SOUND, String::new());
    let append_time = head.has(LOG_APPEND_TIME);
    for index in 0..count {
        if index >= limits.records {
            return Err(Stop::Over); // the declared count may be wrong, so it alone proves nothing
        }
        let record = cursor.record()?;
        if i64::from(record.offset_delta) != index {
            return Err(format!("record {index} has the offset of record {}", record.offset_delta).into());
        }
        let timestamp =
            if append_time { head.max_timestamp } else { head.base_timestamp.wrapping_add(record.time_delta) };
        if timestamp > found.latest {
            found.latest = timestamp;
            found.latest_index = index;
        }
        found.negative |= timestamp < NO_TIMESTAMP;
        if rules.keyed && !record.has_key {
            found.refuse(rules, index, NO_KEY, timestamp);
        } else if rules.create_time && timestamp != NO_TIMESTAMP {
            let age = rules.now_ms.wrapping_sub(timestamp);
            if age > rules.before_ms || age.wrapping_neg() > rules.after_ms {
                found.refuse(rules, index, BAD_TIME, timestamp);
            }
        } else if append_time {
            found.refuse(rules, index, BAD_TYPE, timestamp);
        }
    }
    if !cursor.ended()? {
        return Err(format!("bytes follow the last of {count} records").into());
    }
    found.inflated = cursor.position();
    Ok(found)
}
