//! Batches that the broker itself writes: the records of its coordinators, and the markers that end transactions.
//! `ottla.records.own_batch` is the same in Python.

use crate::batch::{CHECKED, HEADER_SIZE, LOG_OVERHEAD};
use crate::varint::{put, size};

const NONE: i64 = -1;
const OVERHEAD: usize = 40; // of a record: more than its lengths, offset and time can take

/// The fields of the header that differ from batch to batch.
pub(crate) struct Head {
    pub(crate) base_offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) attributes: i16,
}

/// One batch, not compressed, whose records all have the same time. None if it is larger than 2 GiB.
pub(crate) fn build(records: &[(&[u8], Option<&[u8]>)], head: &Head) -> Option<Vec<u8>> {
    let content = |(key, value): &(&[u8], Option<&[u8]>)| key.len() + value.map_or(0, <[u8]>::len) + OVERHEAD;
    let mut out = Vec::with_capacity(HEADER_SIZE + records.iter().map(content).sum::<usize>());
    out.resize(HEADER_SIZE, 0);
    for (delta, (key, value)) in records.iter().enumerate() {
        record(delta as i64, key, *value, &mut out);
    }
    let length = i32::try_from(out.len() - LOG_OVERHEAD).ok()?;
    let count = records.len() as i32;
    out[..8].copy_from_slice(&head.base_offset.to_be_bytes());
    out[8..12].copy_from_slice(&length.to_be_bytes());
    out[12..16].copy_from_slice(&head.leader_epoch.to_be_bytes());
    out[16] = 2; // magic
    out[21..23].copy_from_slice(&head.attributes.to_be_bytes());
    out[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    out[27..35].copy_from_slice(&head.timestamp.to_be_bytes());
    out[35..43].copy_from_slice(&head.timestamp.to_be_bytes());
    out[43..51].copy_from_slice(&head.producer_id.to_be_bytes());
    out[51..53].copy_from_slice(&head.producer_epoch.to_be_bytes());
    out[53..57].copy_from_slice(&(NONE as i32).to_be_bytes()); // the broker does not number its batches
    out[57..61].copy_from_slice(&count.to_be_bytes());
    let crc = crc32c::crc32c(&out[CHECKED..]);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    Some(out)
}

fn record(delta: i64, key: &[u8], value: Option<&[u8]>, out: &mut Vec<u8>) {
    let blob = |size_of: usize| size(size_of as i64) + size_of;
    let body = 3 + size(delta) + blob(key.len()) + value.map_or(1, |value| blob(value.len()));
    put(body as i64, out);
    out.extend_from_slice(&[0, 0]); // attributes, and the time since the first record
    put(delta, out);
    put(key.len() as i64, out);
    out.extend_from_slice(key);
    match value {
        None => put(NONE, out),
        Some(value) => {
            put(value.len() as i64, out);
            out.extend_from_slice(value);
        }
    }
    out.push(0); // headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Entry, entry, record as read};

    #[test]
    fn what_is_built_is_read_again() {
        let long = vec![7; 300];
        let records = [(&b"k"[..], Some(&b"v"[..])), (&long[..], None), (&b""[..], Some(&long[..]))];
        let head = Head {
            base_offset: 42,
            leader_epoch: 3,
            timestamp: 1_000,
            producer_id: 9,
            producer_epoch: 2,
            attributes: 0x10,
        };
        let data = build(&records, &head).unwrap();
        let Ok(Entry::Batch(found, whole)) = entry(&data) else { panic!("no batch") };
        assert_eq!((found.base_offset, found.last_offset(), found.count), (42, Some(44), 3));
        assert_eq!((found.base_timestamp, found.max_timestamp, found.producer_id), (1_000, 1_000, 9));
        assert_eq!(found.crc, crc32c::crc32c(&whole[CHECKED..]));
        let mut at = HEADER_SIZE;
        for (delta, (key, value)) in records.iter().enumerate() {
            let one = read(whole, &mut at).unwrap();
            assert_eq!((one.offset_delta, one.time_delta, one.key, one.value), (delta as i32, 0, Some(*key), *value));
            assert_eq!(one.headers(|_, _| ()), Ok(0));
        }
        assert_eq!(at, whole.len());
    }
}
