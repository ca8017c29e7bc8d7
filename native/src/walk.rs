//! A walk over a region of a log file, for recovery. `ottla.records.walk` is the Python version, and says what
//! is returned and why so little per batch.

use std::collections::{HashMap, VecDeque};

use crate::batch::{CHECKED, CONTROL, HEADER_SIZE, LOG_OVERHEAD, TRANSACTIONAL};

const HEAD_SIZE: usize = 17; // up to the magic, which is at the same place in all formats
const WINDOW: usize = 5;

/// As `ottla.records.walk.State`: end, offset_max, since, interval, timestamp, timestamp_offset, epoch.
pub(crate) type State = (i64, i64, i64, i64, i64, i64, i64);

type Point = (i64, usize, i64, i64);

/// As `ottla.records.walk.Walked`.
pub(crate) type Walked = (usize, bool, i64, i64, i64, i64, Vec<Point>, Vec<(i32, i64)>, Vec<usize>);

/// None if a batch has magic 0 or 1.
pub(crate) fn walk(data: &[u8], state: State) -> Option<Walked> {
    let (mut end, offset_max, mut since, interval, mut timestamp, mut timestamp_offset, mut latest) = state;
    let (mut points, mut epochs, mut producers) = (Vec::new(), Vec::new(), Vec::new());
    let mut recent: HashMap<i64, VecDeque<usize>> = HashMap::new();
    let (mut at, mut sound) = (0, true);
    while data.len() - at >= HEAD_SIZE {
        let rest = &data[at..];
        let magic = rest[16];
        if magic < 2 {
            return None;
        }
        let (base, length) = (long(rest, 0), int(rest, 8));
        if magic != 2 || length < (HEADER_SIZE - LOG_OVERHEAD) as i32 || base < end {
            sound = false;
            break;
        }
        let size = length as usize + LOG_OVERHEAD;
        let Some(whole) = rest.get(..size) else {
            break;
        };
        let delta = int(whole, 23);
        let last = base.checked_add(i64::from(delta)).filter(|&last| delta >= 0 && last <= offset_max);
        let Some(last) = last.filter(|_| crc32c::crc32c(&whole[CHECKED..]) == int(whole, 17) as u32) else {
            sound = false;
            break;
        };
        let newest = long(whole, 35);
        if newest > timestamp {
            (timestamp, timestamp_offset) = (newest, last);
        }
        if since > interval {
            points.push((last, at, timestamp, timestamp_offset));
            since = 0;
        }
        since += size as i64;
        let epoch = int(whole, 12);
        if i64::from(epoch) > latest {
            epochs.push((epoch, base));
            latest = i64::from(epoch);
        }
        let producer_id = long(whole, 43);
        if producer_id >= 0 {
            let attributes = i16::from_be_bytes([whole[21], whole[22]]);
            if attributes & (TRANSACTIONAL | CONTROL) != 0 {
                producers.push(at);
            } else {
                let positions = recent.entry(producer_id).or_default();
                positions.push_back(at);
                if positions.len() > WINDOW {
                    positions.pop_front();
                }
            }
        }
        end = last + 1;
        at += size;
    }
    producers.extend(recent.into_values().flatten());
    producers.sort_unstable();
    Some((at, sound, end, since, timestamp, timestamp_offset, points, epochs, producers))
}

fn long(data: &[u8], at: usize) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&data[at..at + 8]);
    i64::from_be_bytes(bytes)
}

fn int(data: &[u8], at: usize) -> i32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&data[at..at + 4]);
    i32::from_be_bytes(bytes)
}
