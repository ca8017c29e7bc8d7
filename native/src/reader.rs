//! Batches → columns. The rules are those of `ottla.records.columns`, the same in Python.

use std::collections::HashSet;

use crate::batch::{
    self, CHECKED, CONTROL, Entry, HEADER_SIZE, Header, LOG_APPEND_TIME, RECORD_SIZE_MIN, Record, TRANSACTIONAL,
};
use crate::inflate::Inflater;

const ROW_SIZE: usize = 32; // memory of a row in the columns, besides its bytes
const HEADER_ROW_SIZE: usize = 16;

pub(crate) struct Wanted {
    pub(crate) start: i64,
    pub(crate) stop: i64,
    pub(crate) headers: bool,
    pub(crate) check_crc: bool,
    pub(crate) size_max: usize,
}

pub(crate) struct Columns {
    pub(crate) keys: Blobs,
    pub(crate) values: Blobs,
    pub(crate) offsets: Vec<i64>,
    pub(crate) timestamps: Vec<i64>,
    pub(crate) kinds: Vec<i32>,
    pub(crate) headers: Option<Headers>,
    pub(crate) next_offset: i64,
    pub(crate) bytes_read: usize,
}

/// Columns, or None if a batch has magic 0 or 1.
pub(crate) fn decode(
    data: &[u8],
    wanted: &Wanted,
    aborted: Option<Vec<(i64, i64)>>,
) -> Result<Option<Columns>, String> {
    let mut columns = Columns::new(data, wanted);
    let mut inflater = Inflater::default();
    let mut aborts = aborted.map(Aborts::new);
    while columns.next_offset < wanted.stop && columns.size() < wanted.size_max {
        let at = columns.bytes_read;
        let named = |reason: String| {
            let offset = data[at..].first_chunk().map_or(-1, |bytes| i64::from_be_bytes(*bytes));
            format!("the batch at offset {offset}, byte {at} of the data: {reason}")
        };
        let (head, whole) = match batch::entry(&data[at..]).map_err(|reason| named(reason.into()))? {
            Entry::Batch(head, whole) => (head, whole),
            Entry::Legacy => return Ok(None),
            Entry::End => break,
        };
        if head.base_offset >= wanted.stop {
            columns.next_offset = wanted.stop;
            break;
        }
        let last = columns.batch(&head, whole, wanted, &mut aborts, &mut inflater).map_err(named)?;
        columns.next_offset = columns.next_offset.max(last + 1).min(wanted.stop);
        columns.bytes_read += whole.len();
    }
    columns.finish();
    Ok(Some(columns))
}

impl Columns {
    fn new(data: &[u8], wanted: &Wanted) -> Self {
        let rows = survey(data);
        Columns {
            keys: Blobs::new(rows, 0),
            values: Blobs::new(rows, data.len()),
            offsets: Vec::with_capacity(rows),
            timestamps: Vec::with_capacity(rows),
            kinds: Vec::with_capacity(rows),
            headers: wanted.headers.then(Headers::new),
            next_offset: wanted.start,
            bytes_read: 0,
        }
    }

    fn size(&self) -> usize {
        let headers = self.headers.as_ref().map_or(0, |headers| {
            headers.keys.data.len() + headers.values.data.len() + HEADER_ROW_SIZE * headers.values.rows()
        });
        self.keys.data.len() + self.values.data.len() + ROW_SIZE * self.offsets.len() + headers
    }

    /// Takes the requested records of one batch; returns its last offset.
    fn batch(
        &mut self,
        head: &Header,
        whole: &[u8],
        wanted: &Wanted,
        aborts: &mut Option<Aborts>,
        inflater: &mut Inflater,
    ) -> Result<i64, String> {
        let last = head
            .last_offset()
            .ok_or_else(|| format!("no batch spans {} offsets from {}", head.last_offset_delta, head.base_offset))?;
        if wanted.check_crc && crc32c::crc32c(&whole[CHECKED..]) != head.crc {
            return Err("its checksum does not match".into());
        }
        let hidden = match aborts {
            Some(aborts) => aborts.hide(head, last, || marker(head, whole, wanted, inflater))?,
            None => false,
        };
        if !hidden && !head.has(CONTROL) && head.count != 0 {
            self.records(head, payload(head, whole, wanted, inflater)?, wanted)?;
        }
        Ok(last)
    }

    fn records(&mut self, head: &Header, data: &[u8], wanted: &Wanted) -> Result<(), &'static str> {
        let append_time = head.has(LOG_APPEND_TIME);
        let (mut at, before) = (0, self.offsets.len());
        for _ in 0..head.count {
            let record = batch::record(data, &mut at)?;
            if record.offset_delta as u32 > head.last_offset_delta as u32 {
                return Err("an offset lies outside of the batch");
            }
            let offset = head.base_offset + i64::from(record.offset_delta);
            let kept = wanted.start <= offset && offset < wanted.stop;
            match &mut self.headers {
                Some(headers) if kept => headers.push(&record)?,
                _ => _ = record.headers(|_, _| ())?,
            }
            if kept {
                let time = head.base_timestamp.wrapping_add(record.time_delta);
                self.offsets.push(offset);
                self.timestamps.push(if append_time { head.max_timestamp } else { time });
                self.keys.push(record.key);
                self.values.push(record.value);
            }
        }
        if at != data.len() {
            return Err("bytes follow the last record");
        }
        let rows = self.kinds.len() + self.offsets.len() - before;
        self.kinds.resize(rows, i32::from(append_time));
        Ok(())
    }

    fn finish(&mut self) {
        self.keys.finish();
        self.values.finish();
        if let Some(headers) = &mut self.headers {
            headers.lists.finish();
            headers.values.finish();
        }
    }
}

/// How many rows to reserve memory for: the count that the batches declare, limited by what their bytes can hold.
fn survey(data: &[u8]) -> usize {
    let (mut at, mut rows) = (0, 0_usize);
    while let Ok(Entry::Batch(head, whole)) = batch::entry(&data[at..]) {
        rows = rows.saturating_add(usize::try_from(head.count).unwrap_or(0));
        at += whole.len();
    }
    rows.min(data.len() / RECORD_SIZE_MIN)
}

fn payload<'a>(
    head: &Header,
    whole: &'a [u8],
    wanted: &Wanted,
    inflater: &'a mut Inflater,
) -> Result<&'a [u8], String> {
    let data = match head.codec() {
        0 => &whole[HEADER_SIZE..],
        codec => inflater.inflate(codec, &whole[HEADER_SIZE..], wanted.size_max)?,
    };
    if head.count < 0 { Err(format!("a batch cannot have {} records", head.count)) } else { Ok(data) }
}

/// Whether a control batch is an abort marker.
fn marker(head: &Header, whole: &[u8], wanted: &Wanted, inflater: &mut Inflater) -> Result<bool, String> {
    if head.count == 0 {
        return Ok(false); // compaction removed the marker and kept the empty batch
    }
    let record = batch::record(payload(head, whole, wanted, inflater)?, &mut 0)?;
    record.headers(|_, _| ())?;
    Ok(batch::aborts(&record)?)
}

/// Which batches a `read_committed` reader must skip: the rule of Kafka's consumer.
struct Aborts {
    ahead: Vec<(i64, i64)>, // first offset, producer; the next one last
    producers: HashSet<i64>,
}

impl Aborts {
    fn new(aborted: Vec<(i64, i64)>) -> Self {
        let mut ahead: Vec<_> = aborted.into_iter().map(|(producer, first)| (first, producer)).collect();
        ahead.sort_unstable_by(|one, other| other.cmp(one));
        Aborts { ahead, producers: HashSet::new() }
    }

    fn hide(
        &mut self,
        head: &Header,
        last: i64,
        aborts: impl FnOnce() -> Result<bool, String>,
    ) -> Result<bool, String> {
        if head.producer_id < 0 {
            return Ok(false);
        }
        while let Some((_, producer)) = self.ahead.pop_if(|(first, _)| *first <= last) {
            self.producers.insert(producer);
        }
        if head.has(CONTROL) {
            if aborts()? {
                self.producers.remove(&head.producer_id);
            }
            return Ok(true);
        }
        Ok(head.has(TRANSACTIONAL) && self.producers.contains(&head.producer_id))
    }
}

/// A nullable column of bytes: row i is data[positions[i]..positions[i + 1]].
pub(crate) struct Blobs {
    pub(crate) positions: Vec<i32>,
    pub(crate) data: Vec<u8>,
    pub(crate) valid: Bits,
}

impl Blobs {
    fn new(rows: usize, size: usize) -> Self {
        let mut positions = Vec::with_capacity(rows + 1);
        positions.push(0);
        Blobs { positions, data: Vec::with_capacity(size), valid: Bits::default() }
    }

    fn rows(&self) -> usize {
        self.positions.len() - 1
    }

    #[inline(always)]
    fn push(&mut self, blob: Option<&[u8]>) {
        if let Some(blob) = blob {
            self.data.extend_from_slice(blob);
        }
        self.valid.push(blob.is_some());
        self.positions.push(self.data.len() as i32);
    }

    fn finish(&mut self) {
        self.valid.finish();
    }
}

/// One bit per row, lowest first; `word` holds the rows after the last multiple of 64.
#[derive(Default)]
pub(crate) struct Bits {
    pub(crate) words: Vec<u64>,
    pub(crate) unset: usize,
    word: u64,
    count: u32,
}

impl Bits {
    #[inline(always)]
    fn push(&mut self, set: bool) {
        self.word |= u64::from(set) << (self.count & 63);
        self.unset += usize::from(!set);
        self.count += 1;
        if self.count & 63 == 0 {
            self.words.push(self.word.to_le());
            self.word = 0;
        }
    }

    fn finish(&mut self) {
        if self.count & 63 != 0 {
            self.words.push(self.word.to_le());
        }
    }
}

/// Lists of (key, value), one per row; null for a row without headers.
pub(crate) struct Headers {
    pub(crate) lists: Bits,
    pub(crate) positions: Vec<i32>,
    pub(crate) keys: Blobs,
    pub(crate) values: Blobs,
}

impl Headers {
    fn new() -> Self {
        Headers { lists: Bits::default(), positions: vec![0], keys: Blobs::new(0, 0), values: Blobs::new(0, 0) }
    }

    fn push(&mut self, record: &Record<'_>) -> Result<(), &'static str> {
        let count = record.headers(|key, value| {
            self.keys.push(Some(String::from_utf8_lossy(key).as_bytes())); // as the Java reader does
            self.values.push(value);
        })?;
        self.lists.push(count > 0);
        self.positions.push(self.values.rows() as i32);
        Ok(())
    }
}
