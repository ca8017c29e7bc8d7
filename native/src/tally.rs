//! A digest of a set of rows that does not depend on their order or grouping: the sum of a hash of each. The Python
//! version is `ottla.records.digest`, which says what it is for.

use crate::arrays::Blobs;
use crate::writer::Rows;

const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND: u64 = 0xd6e8_feb8_6659_fd93;
const NULL: u64 = u64::MAX; // in place of a length

pub(crate) fn tally(topics: Option<&Blobs<'_>>, rows: &Rows<'_>) -> Result<u64, &'static str> {
    let mut sum = 0u64;
    for row in 0..rows.keys.count {
        let topic = match topics {
            Some(topics) => topics.get(row)?,
            None => None,
        };
        let mut hash = blob(FIRST, topic);
        hash = blob(hash, rows.keys.get(row)?);
        hash = blob(hash, rows.values.get(row)?);
        if let Some(lists) = &rows.headers {
            for at in lists.get(row)? {
                let (key, value) = lists.header(at)?;
                hash = blob(blob(hash, Some(key)), value);
            }
        }
        let timestamp = match &rows.timestamps {
            Some(timestamps) => timestamps.long(row)?,
            None => None,
        };
        let partition = match &rows.partitions {
            Some(partitions) => partitions.int(row)?,
            None => None,
        };
        hash = number(number(hash, timestamp), partition.map(i64::from));
        sum = sum.wrapping_add(hash);
    }
    Ok(sum)
}

/// Multiplies to twice the width, and folds the halves.
#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let wide = u128::from(one) * u128::from(other);
    (wide >> 64) as u64 ^ wide as u64
}

#[inline]
fn blob(mut hash: u64, blob: Option<&[u8]>) -> u64 {
    let Some(blob) = blob else { return fold(hash ^ SECOND, NULL ^ FIRST) };
    let (chunks, rest) = blob.as_chunks::<16>();
    for chunk in chunks {
        hash = step(hash, chunk);
    }
    if !rest.is_empty() {
        let mut chunk = [0; 16];
        chunk[..rest.len()].copy_from_slice(rest);
        hash = step(hash, &chunk);
    }
    fold(hash ^ SECOND, blob.len() as u64 ^ FIRST)
}

#[inline]
fn number(hash: u64, number: Option<i64>) -> u64 {
    match number {
        Some(number) => fold(hash ^ SECOND, number as u64 ^ FIRST),
        None => fold(hash ^ FIRST, SECOND),
    }
}

#[inline]
fn step(hash: u64, chunk: &[u8; 16]) -> u64 {
    let wide = u128::from_le_bytes(*chunk);
    fold(wide as u64 ^ FIRST, (wide >> 64) as u64 ^ hash)
}
