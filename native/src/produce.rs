//! Reads a Produce request in its frame, and builds the response except for the offsets. `ottla.handlers.shortcut` has
//! the rules: an unusual request is not read here (None); the decoder in Python handles it and reports errors.

use crate::fields::{Fields, Topic, put_count};

/// From the first version with the log start offset in the response to the last.
const VERSIONS: std::ops::RangeInclusive<i16> = 5..=13;
const SINGLE_ERRORS: i16 = 8;
const FLEXIBLE: i16 = 9;
const BY_ID: i16 = 13;
/// How many partitions are handled in one call; limits the objects that a small frame can cause.
const ENTRIES_MAX: usize = 1024;
/// Base offset, append time and log start, which Python puts between two pieces of the response.
const RESULT_SIZE: usize = 24;

/// The records of one partition: their place in the frame, and the response up to their offset.
pub(crate) struct Entry<'a> {
    pub(crate) topic: Topic<'a>,
    pub(crate) index: i32,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) piece: Vec<u8>,
}

pub(crate) struct Request<'a> {
    pub(crate) acks: i16,
    pub(crate) timeout_ms: i32,
    pub(crate) entries: Vec<Entry<'a>>,
    pub(crate) tail: Vec<u8>, // of the response
}

/// The request in a frame, without the length before it.
pub(crate) fn read(frame: &[u8]) -> Option<Request<'_>> {
    let mut from = Fields::new(frame);
    let (version, correlation) = from.header(0, VERSIONS, FLEXIBLE)?;
    let flexible = version >= FLEXIBLE;
    if from.string(flexible)?.is_some() {
        return None; // transactional
    }
    let (acks, timeout_ms) = (from.short()?, from.int()?);
    let topics = from.count(flexible)?;
    let mut answer = Answer::new(version, correlation, topics);
    let mut entries = Vec::new();
    for _ in 0..topics {
        let topic = if version >= BY_ID {
            Topic::Id(from.take(16)?)
        } else {
            Topic::Name(from.string(flexible)?.filter(|name| !name.is_empty())?)
        };
        let count = from.count(flexible)?;
        if count == 0 || count > ENTRIES_MAX - entries.len() {
            return None; // so there are no more topics than partitions
        }
        answer.topic(topic, count);
        for _ in 0..count {
            let index = from.int()?;
            let size = from.count(flexible)?;
            let start = from.at;
            from.take(size)?;
            from.no_tags(flexible)?;
            entries.push(Entry { topic, index, start, end: start + size, piece: answer.partition(index) });
        }
        from.no_tags(flexible)?;
        answer.end_topic();
    }
    from.no_tags(flexible)?;
    if !from.is_at_end() || entries.is_empty() {
        return None;
    }
    let tail = answer.finish();
    let size = entries.iter().map(|entry| entry.piece.len() + RESULT_SIZE).sum::<usize>() + tail.len();
    let length = i32::try_from(size - 4).ok()?;
    entries[0].piece[..4].copy_from_slice(&length.to_be_bytes());
    Some(Request { acks, timeout_ms, entries, tail })
}

/// The response, in the order of the request. It is split wherever a result goes.
struct Answer {
    version: i16,
    out: Vec<u8>,
}

impl Answer {
    fn new(version: i16, correlation: i32, topics: usize) -> Self {
        let mut answer = Answer { version, out: Vec::with_capacity(64) };
        answer.out.extend([0; 4]); // the length, filled in later
        answer.out.extend(correlation.to_be_bytes());
        answer.end_tags();
        answer.count(topics);
        answer
    }

    fn flexible(&self) -> bool {
        self.version >= FLEXIBLE
    }

    fn end_tags(&mut self) {
        if self.flexible() {
            self.out.push(0);
        }
    }

    fn count(&mut self, count: usize) {
        let flexible = self.flexible();
        put_count(&mut self.out, count, flexible);
    }

    fn topic(&mut self, topic: Topic<'_>, partitions: usize) {
        let flexible = self.flexible();
        topic.put(&mut self.out, flexible);
        self.count(partitions);
    }

    /// The bytes before the result of a partition; those after it begin the next piece.
    fn partition(&mut self, index: i32) -> Vec<u8> {
        self.out.extend(index.to_be_bytes());
        self.out.extend([0; 2]); // no error
        let piece = std::mem::take(&mut self.out);
        if self.version >= SINGLE_ERRORS {
            self.count(0);
            self.out.extend(if self.flexible() { &[0][..] } else { &[255; 2] }); // no message
        }
        self.end_tags();
        piece
    }

    fn end_topic(&mut self) {
        self.end_tags();
    }

    fn finish(mut self) -> Vec<u8> {
        self.out.extend([0; 4]); // not throttled
        self.end_tags();
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(version: i16, client: &[u8], rest: &[u8]) -> Vec<u8> {
        let mut made = vec![0, 0];
        made.extend(version.to_be_bytes());
        made.extend(7_i32.to_be_bytes());
        made.extend((client.len() as u16).to_be_bytes());
        made.extend(client);
        made.extend(rest);
        made
    }

    const FLEXIBLE_BODY: &[u8] =
        &[0, 0, 0, 1, 0, 0, 0, 9, 2, 2, b't', 2, 0, 0, 0, 3, 5, b'd', b'a', b't', b'a', 0, 0, 0];

    #[test]
    fn a_usual_request_is_read_and_its_answer_prepared() {
        let made = frame(11, b"me", FLEXIBLE_BODY);
        let found = read(&made).expect("usual");
        assert_eq!((found.acks, found.timeout_ms, found.entries.len()), (1, 9, 1));
        let entry = &found.entries[0];
        assert!(matches!(entry.topic, Topic::Name("t")));
        assert_eq!((entry.index, &made[entry.start..entry.end]), (3, &b"data"[..]));
        assert_eq!(entry.piece, [0, 0, 0, 48, 0, 0, 0, 7, 0, 2, 2, b't', 2, 0, 0, 0, 3, 0, 0]);
        assert_eq!(found.tail, [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn every_prefix_and_every_changed_byte_is_read_or_refused() {
        let made = frame(11, b"me", FLEXIBLE_BODY);
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
    fn huge_counts_are_refused_before_anything_is_made() {
        let body = [0, 0, 0, 0, 1, 0, 0, 0, 9, 255, 255, 255, 255, 15];
        assert!(read(&frame(11, b"", &body)).is_none());
        let body = [255, 255, 0, 1, 0, 0, 0, 9, 127, 255, 255, 255];
        assert!(read(&frame(7, b"", &body)).is_none());
    }
}
