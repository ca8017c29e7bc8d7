//! Columns → batches. The rules are those of `ottla.records.columns`, the same in Python.

use std::collections::HashMap;
use std::ops::Range;

use crate::arrays::{Blobs, Lists, Numbers};
use crate::batch::{CHECKED, HEADER_SIZE, LOG_OVERHEAD, TRANSACTIONAL};
use crate::deflate::Deflater;
use crate::hash::partition;
use crate::varint::{put, size};

const RECORD_SIZE_MAX: usize = i32::MAX as usize - 100; // so that a batch of one such record has a 32-bit length
const ROW_SIZE: usize = 12; // overhead of a record, roughly
const NULL: i64 = -1;
const NO_TIMESTAMP: i64 = -1;
const NONE: i64 = -1; // no producer, no leader epoch yet, no sequence

pub(crate) struct Rows<'a> {
    pub(crate) keys: Blobs<'a>,
    pub(crate) values: Blobs<'a>,
    pub(crate) headers: Option<Lists<'a>>,
    pub(crate) timestamps: Option<Numbers<'a>>,
    pub(crate) partitions: Option<Numbers<'a>>,
}

pub(crate) struct Target {
    pub(crate) partition_count: i32,
    pub(crate) codec: u8,
    pub(crate) level: Option<i32>,
    pub(crate) batch_bytes: usize,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequences: HashMap<i32, i32>,
    pub(crate) transactional: bool,
    pub(crate) now_ms: i64,
}

/// All batches in one allocation, because many would be requested from and returned to the system one by one;
/// and their ranges, by partition.
pub(crate) struct Batches {
    pub(crate) data: Vec<u8>,
    pub(crate) places: Vec<(i32, Vec<Range<usize>>)>,
}

pub(crate) fn encode(rows: &Rows<'_>, target: Target) -> Result<Batches, String> {
    let mut writer = Writer::new(rows, target);
    for row in 0..rows.keys.count {
        let named = |reason: String| format!("row {row}: {reason}");
        let record = record(rows, row, writer.target.now_ms).map_err(named)?;
        let chosen = match &rows.partitions {
            Some(partitions) => partitions.int(row)?,
            None => None,
        };
        match chosen {
            Some(chosen) => writer.put(&record, chosen),
            None => writer.place(&record),
        }
        .map_err(named)?;
    }
    writer.close()
}

struct Record<'a> {
    timestamp: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: Option<(&'a Lists<'a>, Range<usize>)>,
    content: usize, // encoded size without the two deltas
}

fn record<'a>(rows: &'a Rows<'_>, row: usize, now_ms: i64) -> Result<Record<'a>, String> {
    let (key, value) = (rows.keys.get(row)?, rows.values.get(row)?);
    let timestamp = match &rows.timestamps {
        Some(timestamps) => timestamps.long(row)?.unwrap_or(now_ms),
        None => now_ms,
    };
    if timestamp < NO_TIMESTAMP {
        return Err(format!("the timestamp {timestamp} lies before 1970"));
    }
    let mut content = 1 + blob_size(key) + blob_size(value);
    let headers = match &rows.headers {
        None => None,
        Some(lists) => Some((lists, lists.get(row)?)),
    };
    match &headers {
        None => content += 1,
        Some((lists, range)) => {
            content += size(range.len() as i64);
            for at in range.clone() {
                let (key, value) = lists.header(at)?;
                content += blob_size(Some(key)) + blob_size(value);
            }
        }
    }
    if content > RECORD_SIZE_MAX {
        return Err(format!("a record of {content} bytes is larger than any batch can be"));
    }
    Ok(Record { timestamp, key, value, headers, content })
}

#[inline]
fn blob_size(blob: Option<&[u8]>) -> usize {
    blob.map_or(1, |blob| size(blob.len() as i64) + blob.len())
}

/// A batch under construction: space for its header, then records.
struct Open {
    data: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl Open {
    /// The size of the record's body, and with the length before it.
    #[inline]
    fn measure(&self, record: &Record<'_>) -> (usize, usize) {
        let time_delta = if self.count == 0 { 0 } else { record.timestamp - self.base_timestamp };
        let body = record.content + size(time_delta) + size(i64::from(self.count));
        (body, body + size(body as i64))
    }
}

struct Writer {
    target: Target,
    deflater: Deflater,
    open: Vec<Open>,                // by partition; count 0: none is open
    places: Vec<Vec<Range<usize>>>, // by partition
    data: Vec<u8>,
    sticky: i32,
}

impl Writer {
    fn new(rows: &Rows<'_>, target: Target) -> Self {
        let sticky = (target.now_ms % i64::from(target.partition_count)) as i32;
        let deflater = Deflater::new(target.codec, target.level);
        let size = rows.keys.size() + rows.values.size() + ROW_SIZE * rows.keys.count;
        let data = Vec::with_capacity(if target.codec == 0 { size } else { size / 2 });
        Writer { target, deflater, open: Vec::new(), places: Vec::new(), data, sticky }
    }

    /// By key. Records without a key go to one partition until its batch is full, so that batches are few and full.
    fn place(&mut self, record: &Record<'_>) -> Result<(), String> {
        if let Some(key) = record.key {
            return self.put(record, partition(key, self.target.partition_count));
        }
        if !self.fits(record, self.sticky) {
            self.finish(self.sticky)?;
            self.sticky = (self.sticky + 1) % self.target.partition_count;
        }
        self.put(record, self.sticky)
    }

    /// An empty batch takes any record: one larger than the batch size gets a batch of its own.
    #[inline]
    fn fits(&self, record: &Record<'_>, partition: i32) -> bool {
        self.open
            .get(partition as usize)
            .is_none_or(|open| open.count == 0 || open.data.len() + open.measure(record).1 <= self.target.batch_bytes)
    }

    fn put(&mut self, record: &Record<'_>, partition: i32) -> Result<(), String> {
        if !(0..self.target.partition_count).contains(&partition) {
            return Err(format!("partition {partition}, but the topic has {}", self.target.partition_count));
        }
        if !self.fits(record, partition) {
            self.finish(partition)?;
        }
        let index = partition as usize;
        if self.open.len() <= index {
            let none = || Open { data: Vec::new(), count: 0, base_timestamp: 0, max_timestamp: 0 };
            self.open.resize_with(index + 1, none);
            self.places.resize_with(index + 1, Vec::new);
        }
        let open = &mut self.open[index];
        let (body, _) = open.measure(record);
        if open.count == 0 {
            open.data.resize(HEADER_SIZE, 0);
            (open.base_timestamp, open.max_timestamp) = (record.timestamp, record.timestamp);
        }
        write(record, body, open)?;
        open.max_timestamp = open.max_timestamp.max(record.timestamp);
        open.count += 1;
        Ok(())
    }

    fn finish(&mut self, partition: i32) -> Result<(), String> {
        let index = partition as usize;
        let open = &mut self.open[index];
        let count = std::mem::take(&mut open.count);
        let start = self.data.len();
        self.data.resize(start + HEADER_SIZE, 0);
        self.deflater.deflate(&open.data[HEADER_SIZE..], &mut self.data)?;
        open.data.clear();
        let whole = &mut self.data[start..];
        let length = i32::try_from(whole.len() - LOG_OVERHEAD).map_err(|_| "a batch of more than 2 GiB")?;
        let attributes = i16::from(self.target.codec) | if self.target.transactional { TRANSACTIONAL } else { 0 };
        let sequence = self.target.base_sequences.entry(partition).or_insert(0);
        let first = if self.target.producer_id == NONE { NONE as i32 } else { *sequence };
        *sequence = sequence.wrapping_add(count) & i32::MAX;
        let head = &mut whole[..HEADER_SIZE];
        head[8..12].copy_from_slice(&length.to_be_bytes());
        head[12..16].copy_from_slice(&(NONE as i32).to_be_bytes()); // leader epoch, set by the broker
        head[16] = 2; // magic
        head[21..23].copy_from_slice(&attributes.to_be_bytes());
        head[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        head[27..35].copy_from_slice(&open.base_timestamp.to_be_bytes());
        head[35..43].copy_from_slice(&open.max_timestamp.to_be_bytes());
        head[43..51].copy_from_slice(&self.target.producer_id.to_be_bytes());
        head[51..53].copy_from_slice(&self.target.producer_epoch.to_be_bytes());
        head[53..57].copy_from_slice(&first.to_be_bytes());
        head[57..61].copy_from_slice(&count.to_be_bytes());
        let crc = crc32c::crc32c(&whole[CHECKED..]);
        whole[17..21].copy_from_slice(&crc.to_be_bytes());
        self.places[index].push(start..self.data.len());
        Ok(())
    }

    fn close(mut self) -> Result<Batches, String> {
        for partition in 0..self.open.len() {
            if self.open[partition].count > 0 {
                self.finish(partition as i32)?;
            }
        }
        let found = self.places.into_iter().enumerate().filter(|(_, places)| !places.is_empty());
        let places = found.map(|(partition, places)| (partition as i32, places)).collect();
        Ok(Batches { data: self.data, places })
    }
}

fn write(record: &Record<'_>, body: usize, open: &mut Open) -> Result<(), &'static str> {
    let out = &mut open.data;
    out.reserve(body + 5);
    put(body as i64, out);
    out.push(0); // attributes
    put(record.timestamp - open.base_timestamp, out);
    put(i64::from(open.count), out);
    put_blob(record.key, out);
    put_blob(record.value, out);
    match &record.headers {
        None => out.push(0),
        Some((lists, range)) => {
            put(range.len() as i64, out);
            for at in range.clone() {
                let (key, value) = lists.header(at)?;
                put_blob(Some(key), out);
                put_blob(value, out);
            }
        }
    }
    Ok(())
}

#[inline]
fn put_blob(blob: Option<&[u8]>, out: &mut Vec<u8>) {
    match blob {
        None => put(NULL, out),
        Some(blob) => {
            put(blob.len() as i64, out);
            out.extend_from_slice(blob);
        }
    }
}
