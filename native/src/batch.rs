//! Record batches, magic 2, one after the other; `ottla.records.batch` has the format byte by byte.

use crate::varint::{self, CUT, Claim, byte};

pub(crate) const HEADER_SIZE: usize = 61;
pub(crate) const LOG_OVERHEAD: usize = 12; // base offset and length
pub(crate) const CHECKED: usize = 21; // the checksum covers everything from here on
const MAGIC: usize = 16;
const ENTRY_LENGTH_MIN: i32 = 14; // of any magic
pub(crate) const RECORD_SIZE_MIN: usize = 7;

pub(crate) const LOG_APPEND_TIME: i16 = 0x08;
pub(crate) const TRANSACTIONAL: i16 = 0x10;
pub(crate) const CONTROL: i16 = 0x20;
const CODEC: i16 = 0x07;

#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) base_offset: i64,
    pub(crate) crc: u32,
    pub(crate) attributes: i16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) count: i32,
}

impl Header {
    fn read(data: &[u8; HEADER_SIZE]) -> Self {
        fn at<const SIZE: usize>(data: &[u8; HEADER_SIZE], position: usize) -> [u8; SIZE] {
            let mut bytes = [0; SIZE];
            bytes.copy_from_slice(&data[position..position + SIZE]);
            bytes
        }
        Header {
            base_offset: i64::from_be_bytes(at(data, 0)),
            crc: u32::from_be_bytes(at(data, 17)),
            attributes: i16::from_be_bytes(at(data, 21)),
            last_offset_delta: i32::from_be_bytes(at(data, 23)),
            base_timestamp: i64::from_be_bytes(at(data, 27)),
            max_timestamp: i64::from_be_bytes(at(data, 35)),
            producer_id: i64::from_be_bytes(at(data, 43)),
            count: i32::from_be_bytes(at(data, 57)),
        }
    }

    pub(crate) fn has(&self, attribute: i16) -> bool {
        self.attributes & attribute != 0
    }

    pub(crate) fn codec(&self) -> u8 {
        (self.attributes & CODEC) as u8
    }

    /// None beyond the range of offsets in a log.
    pub(crate) fn last_offset(&self) -> Option<i64> {
        let last = self.base_offset.checked_add(i64::from(self.last_offset_delta))?;
        (self.base_offset >= 0 && self.last_offset_delta >= 0 && last < i64::MAX).then_some(last)
    }
}

/// Whether the batch has the epoch and sequence of an idempotent producer. `data` begins with a header.
pub(crate) fn numbered(data: &[u8]) -> bool {
    let Some(&[high, low, sign, ..]) = data.get(51..HEADER_SIZE) else {
        return false;
    };
    i16::from_be_bytes([high, low]) >= -1 && sign < 128
}

pub(crate) enum Entry<'a> {
    Batch(Header, &'a [u8]), // all its bytes
    Legacy,                  // magic 0 or 1
    End,                     // nothing, or a torn batch
}

/// The entry at the beginning of `data`.
pub(crate) fn entry(data: &[u8]) -> Claim<Entry<'_>> {
    let Some(&magic) = data.get(MAGIC) else {
        return Ok(Entry::End);
    };
    let mut length = [0; 4];
    length.copy_from_slice(&data[8..LOG_OVERHEAD]);
    let length = i32::from_be_bytes(length);
    let head = data.first_chunk::<HEADER_SIZE>().filter(|_| magic == 2);
    if length < ENTRY_LENGTH_MIN || (head.is_some() && (length as usize) < HEADER_SIZE - LOG_OVERHEAD) {
        return Err("it is smaller than its own header");
    }
    if magic > 2 {
        return Err("no record format has this magic");
    }
    let Some(whole) = data.get(..length as usize + LOG_OVERHEAD) else {
        return Ok(Entry::End);
    };
    match head {
        Some(head) => Ok(Entry::Batch(Header::read(head), whole)),
        None if magic == 2 => Err("it is smaller than its own header"),
        None => Ok(Entry::Legacy),
    }
}

/// Whether a batch, complete or not, has compressed records.
pub(crate) fn is_compressed(data: &[u8]) -> bool {
    data.get(CHECKED + 1).is_some_and(|low| i16::from(*low) & CODEC != 0)
}

/// A record in place; offset and timestamp are deltas.
pub(crate) struct Record<'a> {
    pub(crate) offset_delta: i32,
    pub(crate) time_delta: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    headers: &'a [u8], // from their number on
}

/// The record that begins at `at`; moves `at` past it. Headers are read by `Record::headers`.
#[inline(always)]
pub(crate) fn record<'a>(data: &'a [u8], at: &mut usize) -> Claim<Record<'a>> {
    let size = length(data, at)?.ok_or(CUT)?;
    let body = data.get(*at..*at + size).ok_or(CUT)?;
    *at += size;
    let mut at = 1; // after the attributes, which are unused so far
    let time_delta = varint::signed_long(varint::unsigned_long(body, &mut at)?);
    let offset_delta = varint::signed(varint::unsigned(body, &mut at)?);
    let key = blob(body, &mut at)?;
    let value = blob(body, &mut at)?;
    Ok(Record { offset_delta, time_delta, key, value, headers: body.get(at..).ok_or(CUT)? })
}

impl<'a> Record<'a> {
    /// Passes each header to `each`; returns their number. They must fill the record to its end.
    #[inline(always)]
    pub(crate) fn headers(&self, each: impl FnMut(&'a [u8], Option<&'a [u8]>)) -> Claim<usize> {
        if self.headers == [0] { Ok(0) } else { headers(self.headers, each) }
    }
}

fn headers<'a>(data: &'a [u8], mut each: impl FnMut(&'a [u8], Option<&'a [u8]>)) -> Claim<usize> {
    let mut at = 0;
    let count = length(data, &mut at)?.ok_or("a record cannot have fewer than no headers")?;
    for _ in 0..count {
        let key = blob(data, &mut at)?.ok_or("a header key cannot be null")?;
        each(key, blob(data, &mut at)?);
    }
    if at == data.len() { Ok(count) } else { Err("a record is longer than what is in it") }
}

/// A length, or None for a negative one, which means null.
#[inline(always)]
fn length(data: &[u8], at: &mut usize) -> Claim<Option<usize>> {
    let zigzag = varint::unsigned(data, at)?;
    Ok((zigzag & 1 == 0).then_some((zigzag >> 1) as usize))
}

#[inline(always)]
fn blob<'a>(data: &'a [u8], at: &mut usize) -> Claim<Option<&'a [u8]>> {
    let Some(size) = length(data, at)? else {
        return Ok(None);
    };
    let found = data.get(*at..*at + size).ok_or(CUT)?;
    *at += size;
    Ok(Some(found))
}

/// Whether a control record is an abort marker.
pub(crate) fn aborts(record: &Record<'_>) -> Claim<bool> {
    let mut at = 0;
    let key = record.key.unwrap_or_default();
    let mut short = || Ok::<i16, &'static str>(i16::from_be_bytes([byte(key, &mut at)?, byte(key, &mut at)?]));
    let (version, kind) = (short(), short());
    match (version, kind) {
        (Ok(version), Ok(kind)) if version >= 0 => Ok(kind == 0),
        _ => Err("a control record has no type"),
    }
}
