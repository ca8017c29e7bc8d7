//! Reads a consumer's Fetch request in its frame, and builds the response except for the records.
//! `ottla.handlers.fetch_shortcut` has the rules: an unusual request is not read here (None); the decoder in Python
//! handles it and reports errors.

use std::mem::take;

use crate::fields::{Fields, Topic, put_count, put_varint};

const KEY: i16 = 1;
/// From the first version whose clients know every codec to the last.
const VERSIONS: std::ops::RangeInclusive<i16> = 10..=18;
const RACKS: i16 = 11;
const FLEXIBLE: i16 = 12;
const BY_ID: i16 = 13;
const REPLICA_STATE: i16 = 15; // a tagged field replaces the replica id
const CONSUMER: i32 = -1;
/// How many partitions are handled in one call.
const ENTRIES_MAX: usize = 200;

/// The request for one partition.
pub(crate) struct Entry<'a> {
    pub(crate) topic: Topic<'a>,
    pub(crate) index: i32,
    pub(crate) leader_epoch: i32,
    pub(crate) offset: i64,
    pub(crate) size_max: i32,
}

pub(crate) struct Request<'a> {
    pub(crate) correlation: i32,
    pub(crate) max_wait_ms: i32,
    pub(crate) min_bytes: i32,
    pub(crate) max_bytes: i32,
    pub(crate) committed: bool,
    pub(crate) session: (i32, i32), // its id and its epoch
    pub(crate) in_rack: bool,
    pub(crate) entries: Vec<Entry<'a>>,
    pub(crate) forgotten: Vec<(Topic<'a>, i32)>, // of the session
}

/// The request in a frame, without the length before it.
pub(crate) fn read(frame: &[u8]) -> Option<Request<'_>> {
    let mut from = Fields::new(frame);
    let (version, correlation) = from.header(KEY, VERSIONS, FLEXIBLE)?;
    let flexible = version >= FLEXIBLE;
    if version < REPLICA_STATE && from.int()? != CONSUMER {
        return None;
    }
    let (max_wait_ms, min_bytes, max_bytes) = (from.int()?, from.int()?, from.int()?);
    let committed = match from.array()? {
        [0] => false,
        [1] => true,
        _ => return None,
    };
    let session = (from.int()?, from.int()?);
    let mut entries = Vec::new();
    for _ in 0..from.count(flexible)? {
        let (topic, count) = topic(&mut from, version, ENTRIES_MAX - entries.len())?;
        for _ in 0..count {
            let (index, leader_epoch, offset) = (from.int()?, from.int()?, from.long()?);
            if flexible && from.int()? != -1 {
                return None; // it sends the last fetched epoch, as followers do
            }
            from.long()?; // a follower's log start offset
            let size_max = from.int()?;
            from.no_tags(flexible)?;
            entries.push(Entry { topic, index, leader_epoch, offset, size_max });
        }
        from.no_tags(flexible)?;
    }
    let mut forgotten = Vec::new();
    for _ in 0..from.count(flexible)? {
        let (topic, count) = topic(&mut from, version, ENTRIES_MAX - forgotten.len())?;
        for _ in 0..count {
            forgotten.push((topic, from.int()?));
        }
        from.no_tags(flexible)?;
    }
    let in_rack = version >= RACKS && !from.string(flexible)??.is_empty();
    from.no_tags(flexible)?;
    from.is_at_end().then_some(Request {
        correlation,
        max_wait_ms,
        min_bytes,
        max_bytes,
        committed,
        session,
        in_rack,
        entries,
        forgotten,
    })
}

/// A topic, and how many of its partitions follow: at least one, so there are no more topics than partitions.
fn topic<'a>(from: &mut Fields<'a>, version: i16, count_max: usize) -> Option<(Topic<'a>, usize)> {
    let flexible = version >= FLEXIBLE;
    let topic = if version >= BY_ID { Topic::Id(from.take(16)?) } else { Topic::Name(from.string(flexible)??) };
    let count = from.count(flexible)?;
    (1..=count_max).contains(&count).then_some((topic, count))
}

/// The response for one partition: its high watermark, last stable offset, log start offset, and how many bytes
/// of records follow.
pub(crate) struct Part {
    pub(crate) index: i32,
    pub(crate) high: i64,
    pub(crate) stable: i64,
    pub(crate) start: i64,
    pub(crate) size: usize,
}

/// The response including its length, split wherever records go.
pub(crate) fn answer(
    version: i16,
    correlation: i32,
    session_id: i32,
    committed: bool,
    topics: &[(Topic<'_>, Vec<Part>)],
) -> Option<Vec<Vec<u8>>> {
    let flexible = version >= FLEXIBLE;
    let (mut pieces, mut out, mut size) = (Vec::new(), Vec::with_capacity(128), 0_usize);
    let end_tags = |out: &mut Vec<u8>| {
        if flexible {
            out.push(0);
        }
    };
    out.extend([0; 4]); // the length, filled in later
    out.extend(correlation.to_be_bytes());
    end_tags(&mut out);
    out.extend([0; 6]); // not throttled, no error
    out.extend(session_id.to_be_bytes());
    put_count(&mut out, topics.len(), flexible);
    for (topic, parts) in topics {
        topic.put(&mut out, flexible);
        put_count(&mut out, parts.len(), flexible);
        for part in parts {
            out.extend(part.index.to_be_bytes());
            out.extend([0; 2]); // no error
            out.extend(part.high.to_be_bytes());
            out.extend(part.stable.to_be_bytes());
            out.extend(part.start.to_be_bytes());
            match (committed, flexible) {
                (true, _) => put_count(&mut out, 0, flexible), // no aborted transactions
                (false, true) => put_varint(&mut out, 0),      // null: not read_committed
                (false, false) => out.extend([255; 4]),
            }
            if version >= RACKS {
                out.extend([255; 4]); // no preferred read replica
            }
            put_count(&mut out, part.size, flexible);
            if part.size > 0 {
                size += out.len() + part.size;
                pieces.push(take(&mut out));
            }
            end_tags(&mut out);
        }
        end_tags(&mut out);
    }
    end_tags(&mut out);
    size += out.len();
    pieces.push(out);
    let length = i32::try_from(size - 4).ok()?;
    pieces[0][..4].copy_from_slice(&length.to_be_bytes());
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 12, session 5 in epoch 2, one partition.
    fn frame() -> Vec<u8> {
        let mut made = vec![0, 1, 0, 12, 0, 0, 0, 7, 0, 2, b'm', b'e', 0];
        for number in [-1, 500, 1, 1000] {
            made.extend(i32::to_be_bytes(number));
        }
        made.extend([0, 0, 0, 0, 5, 0, 0, 0, 2]);
        made.extend([2, 2, b't', 2, 0, 0, 0, 3, 0, 0, 0, 4]);
        made.extend(9_i64.to_be_bytes());
        made.extend([255; 12]);
        made.extend([0, 0, 16, 0, 0, 0, 1, 1, 0]);
        made
    }

    #[test]
    fn a_usual_request_is_read() {
        let made = frame();
        let found = read(&made).expect("usual");
        assert_eq!((found.correlation, found.max_wait_ms, found.min_bytes, found.max_bytes), (7, 500, 1, 1000));
        assert_eq!((found.committed, found.session, found.in_rack, found.entries.len()), (false, (5, 2), false, 1));
        let entry = &found.entries[0];
        assert!(matches!(entry.topic, Topic::Name("t")));
        assert_eq!((entry.index, entry.leader_epoch, entry.offset, entry.size_max), (3, 4, 9, 4096));
    }

    #[test]
    fn every_prefix_and_every_changed_byte_is_read_or_refused() {
        let made = frame();
        for size in 0..made.len() {
            assert!(read(&made[..size]).is_none());
        }
        for at in 0..made.len() {
            for value in 0..=255 {
                let mut other = made.clone();
                other[at] = value;
                read(&other);
            }
        }
    }

    #[test]
    fn an_answer_is_cut_where_records_go() {
        let part = |index, size| Part { index, high: 2, stable: 2, start: 0, size };
        let topics = [(Topic::Name("t"), vec![part(0, 200), part(1, 0)]), (Topic::Name("u"), vec![part(0, 1)])];
        for (version, committed) in [(10, true), (11, false), (12, false), (17, true)] {
            let pieces = answer(version, 7, 5, committed, &topics).expect("small");
            assert_eq!(pieces.len(), 3);
            let size: usize = pieces.iter().map(Vec::len).sum();
            let length = i32::from_be_bytes([pieces[0][0], pieces[0][1], pieces[0][2], pieces[0][3]]);
            assert_eq!(length as usize, size + 201 - 4);
        }
    }
}
