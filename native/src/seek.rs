//! Single records of a stored batch: the first at or after a timestamp, and a limited number from an offset on.

use crate::batch::{self, Entry, HEADER_SIZE, Header, LOG_APPEND_TIME};
use crate::cursor::{Cursor, Taken};
use crate::validate::Limits;
use crate::windows::{Inflated, Plain, Stop, Windows};

/// offset, timestamp, key, value, number of headers
pub(crate) type Found = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, u32);

fn time_of(head: &Header, delta: i64) -> i64 {
    if head.has(LOG_APPEND_TIME) { head.max_timestamp } else { head.base_timestamp.wrapping_add(delta) }
}

fn opened(data: &[u8], limits: Limits) -> Result<Header, Stop> {
    match batch::entry(data)? {
        Entry::Batch(head, _) if i64::from(head.count) > limits.records => Err(Stop::Over),
        Entry::Batch(head, _) if head.last_offset().is_some() => Ok(head),
        _ => Err("not a batch".into()),
    }
}

/// Offset and timestamp of the first record from offset `start` on whose timestamp is not below `timestamp`.
pub(crate) fn since(data: &[u8], timestamp: i64, start: i64, limits: Limits) -> Result<Option<(i64, i64)>, Stop> {
    fn find(
        mut cursor: Cursor<impl Windows>,
        head: &Header,
        timestamp: i64,
        start: i64,
    ) -> Result<Option<(i64, i64)>, Stop> {
        for _ in 0..head.count {
            let record = cursor.record()?;
            let offset = head.base_offset.saturating_add(i64::from(record.offset_delta));
            let time = time_of(head, record.time_delta);
            if time >= timestamp && offset >= start {
                return Ok(Some((offset, time)));
            }
        }
        Ok(None)
    }
    let head = opened(data, limits)?;
    let payload = &data[HEADER_SIZE..];
    match head.codec() {
        _ if head.count == 0 => Ok(None),
        0 => find(Cursor::new(Plain(payload), limits.inflated), &head, timestamp, start),
        codec => {
            let windows = Inflated::new(codec, payload, limits.inflated)?;
            find(Cursor::new(windows, limits.inflated), &head, timestamp, start)
        }
    }
}

/// The records from offset `start` on, up to `records_max` records or `bytes_max` bytes.
pub(crate) fn portion(
    data: &[u8],
    start: i64,
    records_max: usize,
    bytes_max: usize,
    limits: Limits,
) -> Result<Vec<Found>, Stop> {
    let gather = |cursor: &mut dyn FnMut() -> Result<Taken, Stop>, head: &Header| {
        let (mut found, mut size) = (Vec::new(), 0);
        for _ in 0..head.count {
            let record = cursor()?;
            let offset = head.base_offset.saturating_add(i64::from(record.offset_delta));
            if offset < start {
                continue;
            }
            size += [&record.key, &record.value].map(|blob| blob.as_ref().map_or(0, Vec::len)).iter().sum::<usize>();
            found.push((offset, time_of(head, record.time_delta), record.key, record.value, record.headers));
            if found.len() >= records_max || size >= bytes_max {
                break;
            }
        }
        Ok(found)
    };
    let head = opened(data, limits)?;
    let payload = &data[HEADER_SIZE..];
    match head.codec() {
        _ if head.count == 0 => Ok(Vec::new()),
        0 => {
            let mut cursor = Cursor::new(Plain(payload), limits.inflated);
            gather(&mut || cursor.take_record(), &head)
        }
        codec => {
            let mut cursor = Cursor::new(Inflated::new(codec, payload, limits.inflated)?, limits.inflated);
            gather(&mut || cursor.take_record(), &head)
        }
    }
}
