//! Kafka's record batches, for `ottla.records.native`, the only caller: the broker's check of produced batches, lookup
//! of single stored records, and whole fetches ↔ Arrow columns.
//!
//! Columns are returned as plain buffers (`Region`) that pyarrow adopts in place, and arrays are passed as pyarrow's
//! buffers. That is smaller than an Arrow library or its C interface, and as fast: a call handles a fetch of a megabyte
//! or more, and a dozen buffer objects take microseconds to create. The GIL is released while bytes are processed.

mod arrays;
mod batch;
mod cursor;
mod deflate;
mod fetch;
mod fields;
mod files;
mod frames;
#[cfg(test)]
mod fuzz;
mod hash;
mod helper;
mod inflate;
mod own;
mod pack;
mod planned_write;
mod produce;
mod reader;
mod region;
#[cfg(target_os = "linux")]
mod reservation;
mod seek;
#[cfg(target_os = "linux")]
mod sender;
#[cfg(target_os = "linux")]
mod sockets;
mod tally;
mod validate;
mod varint;
mod walk;
mod windows;
mod writer;
mod xxhash;

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::fields::Topic;
use crate::region::{Region, View};
use crate::validate::{Limits, Rules, Together, Verdict};
use crate::windows::Stop;

type Blobs = (Option<View>, View, View, usize, usize); // validity, positions, bytes, first row, number of rows
type Numbers = (Option<View>, View, usize); // validity, numbers, first row
type Pairs = (Numbers, Blobs, Blobs); // lists, with the keys and values in them
type Column = (usize, Region, Region, Region); // nulls, validity, positions, bytes
type Lists = (usize, Region, Region, usize, Region, Region, Column);
type Found = (usize, Column, Column, Region, Region, Region, Option<Lists>, i64, usize);

/// As `ottla.records.columns.Target`.
#[derive(FromPyObject)]
struct Target {
    partition_count: i32,
    codec: u8,
    level: Option<i32>,
    batch_bytes: usize,
    producer_id: i64,
    producer_epoch: i16,
    base_sequences: HashMap<i32, i32>,
    transactional: bool,
    now_ms: i64,
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn decode(
    py: Python<'_>,
    data: View,
    start: i64,
    stop: i64,
    headers: bool,
    aborted: Option<Vec<(i64, i64)>>,
    check_crc: bool,
    size_max: usize,
) -> PyResult<Option<Found>> {
    let wanted = reader::Wanted { start, stop, headers, check_crc, size_max };
    let bytes = data.bytes();
    let found = py.detach(|| reader::decode(bytes, &wanted, aborted)).map_err(PyValueError::new_err)?;
    Ok(found.map(|columns| {
        (
            columns.offsets.len(),
            column(columns.keys),
            column(columns.values),
            columns.offsets.into(),
            columns.timestamps.into(),
            columns.kinds.into(),
            columns.headers.map(lists),
            columns.next_offset,
            columns.bytes_read,
        )
    }))
}

fn column(blobs: reader::Blobs) -> Column {
    (blobs.valid.unset, blobs.valid.words.into(), blobs.positions.into(), blobs.data.into())
}

fn lists(headers: reader::Headers) -> Lists {
    (
        headers.lists.unset,
        headers.lists.words.into(),
        headers.positions.into(),
        headers.values.positions.len() - 1,
        headers.keys.positions.into(),
        headers.keys.data.into(),
        column(headers.values),
    )
}

#[pyfunction]
fn encode<'py>(
    py: Python<'py>,
    keys: Blobs,
    values: Blobs,
    headers: Option<Pairs>,
    timestamps: Option<Numbers>,
    partitions: Option<Numbers>,
    target: Target,
) -> PyResult<Bound<'py, PyDict>> {
    let rows = rows(&keys, &values, headers.as_ref(), timestamps.as_ref(), partitions.as_ref());
    let target = writer::Target {
        partition_count: target.partition_count,
        codec: target.codec,
        level: target.level,
        batch_bytes: target.batch_bytes,
        producer_id: target.producer_id,
        producer_epoch: target.producer_epoch,
        base_sequences: target.base_sequences,
        transactional: target.transactional,
        now_ms: target.now_ms,
    };
    let found = py.detach(|| writer::encode(&rows, target)).map_err(PyValueError::new_err)?;
    let answer = PyDict::new(py);
    for (partition, places) in found.places {
        let batches = places.into_iter().map(|place| PyBytes::new(py, &found.data[place]));
        answer.set_item(partition, PyList::new(py, batches)?)?;
    }
    Ok(answer)
}

#[pyfunction]
fn digest(
    py: Python<'_>,
    topics: Option<Blobs>,
    keys: Blobs,
    values: Blobs,
    headers: Option<Pairs>,
    timestamps: Option<Numbers>,
    partitions: Option<Numbers>,
) -> PyResult<u64> {
    let topics = topics.as_ref().map(blobs);
    let rows = rows(&keys, &values, headers.as_ref(), timestamps.as_ref(), partitions.as_ref());
    py.detach(|| tally::tally(topics.as_ref(), &rows)).map_err(PyValueError::new_err)
}

fn rows<'a>(
    keys: &'a Blobs,
    values: &'a Blobs,
    headers: Option<&'a Pairs>,
    timestamps: Option<&'a Numbers>,
    partitions: Option<&'a Numbers>,
) -> writer::Rows<'a> {
    writer::Rows {
        keys: blobs(keys),
        values: blobs(values),
        headers: headers.map(|((valid, positions, first), keys, values)| arrays::Lists {
            valid: valid.as_ref().map(View::bytes),
            positions: positions.bytes(),
            first: *first,
            keys: blobs(keys),
            values: blobs(values),
        }),
        timestamps: timestamps.map(numbers),
        partitions: partitions.map(numbers),
    }
}

#[pyfunction]
fn walk_log(py: Python<'_>, data: View, state: walk::State) -> Option<walk::Walked> {
    let bytes = data.bytes();
    py.detach(|| walk::walk(bytes, state))
}

#[pyfunction]
fn murmur2(py: Python<'_>, keys: Blobs) -> PyResult<Region> {
    let keys = blobs(&keys);
    let hash = |row| keys.get(row).map(|key| key.map_or(0, hash::murmur2));
    let hashes: Result<Vec<i32>, _> = py.detach(|| (0..keys.count).map(hash).collect());
    Ok(hashes.map_err(PyValueError::new_err)?.into())
}

fn blobs((valid, positions, data, first, count): &Blobs) -> arrays::Blobs<'_> {
    arrays::Blobs {
        valid: valid.as_ref().map(View::bytes),
        positions: positions.bytes(),
        data: data.bytes(),
        first: *first,
        count: *count,
    }
}

fn numbers((valid, data, first): &Numbers) -> arrays::Numbers<'_> {
    arrays::Numbers { valid: valid.as_ref().map(View::bytes), data: data.bytes(), first: *first }
}

/// As `ottla.records.check.Verdict`.
type Told = (u8, String, u64, i64, i64, bool, Vec<(i64, u8, i64)>, i64, bool);

fn told(verdict: Verdict) -> Told {
    (
        verdict.state,
        verdict.detail,
        verdict.inflated,
        verdict.latest,
        verdict.latest_index,
        verdict.negative,
        verdict.errors,
        verdict.errors_total,
        verdict.bad_times,
    )
}

/// As `ottla.records.check.Rules`.
type Asked = (bool, bool, i64, i64, i64, usize);

fn rules((keyed, create_time, now_ms, before_ms, after_ms, errors_max): Asked) -> Rules {
    Rules { keyed, create_time, now_ms, before_ms, after_ms, errors_max }
}

fn limits((inflated, records): (u64, i64)) -> Limits {
    Limits { inflated, records }
}

/// Checking this many bytes takes long enough to let other threads run.
const RELEASE_SIZE_MIN: usize = 128 * 1024;

/// Runs `work`, without the GIL if the work is long enough to be worth taking it again afterwards.
fn run<T: Send>(py: Python<'_>, release: bool, work: impl FnOnce() -> T + Send) -> T {
    if release { py.detach(work) } else { work() }
}

#[pyfunction]
fn check(py: Python<'_>, data: View, asked: Asked, most: (u64, i64), release: bool) -> Told {
    let bytes = data.bytes();
    told(run(py, release, || validate::check(bytes, &rules(asked), limits(most))))
}

/// Last offset delta, largest timestamp and producer id of the batch in `data[start..end]`.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn sound(
    data: View,
    start: usize,
    end: usize,
    keyed: bool,
    now_ms: i64,
    before_ms: i64,
    after_ms: i64,
    zstd: bool,
    inflated_max: u64,
) -> Option<(i32, i64, i64)> {
    let rules = Rules { keyed, create_time: true, now_ms, before_ms, after_ms, errors_max: 0 };
    let found = validate::sound(data.bytes().get(start..end)?, &rules, zstd, inflated_max)?;
    Some((found.last_offset_delta, found.max_timestamp, found.producer_id))
}

/// The same for the batches of `entries`, which are those of `read_produce`, in order: see `validate::sound_each`.
#[pyfunction]
fn sound_each(
    py: Python<'_>,
    data: View,
    entries: Vec<Bound<'_, PyTuple>>,
    terms: (usize, bool, i64, i64), // as `ottla.records.validate.Terms`
    now_ms: i64,
    compressed: (usize, u64, bool), // the largest size, before and after decompression, and whether zstd is allowed
) -> PyResult<Vec<(i32, i64, i64)>> {
    let (size_max, keyed, before_ms, after_ms) = terms;
    let (compressed_size_max, inflated_max, zstd) = compressed;
    let rules = Rules { keyed, create_time: true, now_ms, before_ms, after_ms, errors_max: 0 };
    let limits = Together { size_max, compressed_size_max, inflated_max, zstd };
    let mut batches = Vec::with_capacity(entries.len());
    for entry in entries {
        let place: (usize, usize) = (entry.get_item(2)?.extract()?, entry.get_item(3)?.extract()?);
        batches.push(data.bytes().get(place.0..place.1).unwrap_or_default());
    }
    let found = run(py, data.bytes().len() >= RELEASE_SIZE_MIN, || validate::sound_each(&batches, &rules, &limits));
    Ok(found.into_iter().map(|one| (one.last_offset_delta, one.max_timestamp, one.producer_id)).collect())
}

/// Writes batches of the frame to their files: see `planned_write`. The last number is the system's error, or 0.
#[pyfunction]
fn write_planned(py: Python<'_>, frame: View, writes: Vec<Bound<'_, PyTuple>>) -> PyResult<(usize, usize, i32)> {
    let mut every = Vec::with_capacity(writes.len());
    for write in writes {
        every.push(planned_write::PlannedWrite {
            fd: write.get_item(0)?.extract()?,
            position: write.get_item(1)?.extract()?,
            base: write.get_item(2)?.extract()?,
            epoch: write.get_item(3)?.extract()?,
            start: write.get_item(4)?.extract()?,
            end: write.get_item(5)?.extract()?,
        });
    }
    let bytes = frame.bytes();
    Ok(match py.detach(|| planned_write::write_planned(bytes, &every)) {
        (count, Ok(written)) => (count, written, 0),
        (count, Err(error)) => (count, 0, error),
    })
}

/// Allocates blocks after the end of a file: see `reservation`.
#[cfg(target_os = "linux")]
#[pyfunction]
fn reserve_blocks(py: Python<'_>, fd: i32, position: i64, size: i64, free_min: u64) -> bool {
    py.detach(|| reservation::reserve(fd, position, size, free_min))
}

// Topic (a name or an id), partition, where its records begin and end, and the response up to its result.
type Part<'py> = (Bound<'py, PyAny>, i32, usize, usize, Bound<'py, PyBytes>);

/// Acks, timeout, partitions, and the end of the response.
#[pyfunction]
fn read_produce<'py>(py: Python<'py>, frame: View) -> Option<(i16, i32, Vec<Part<'py>>, Bound<'py, PyBytes>)> {
    let found = produce::read(frame.bytes())?;
    let mut topics = Topics::new(py);
    let entries = found
        .entries
        .iter()
        .map(|entry| (topics.get(entry.topic), entry.index, entry.start, entry.end, PyBytes::new(py, &entry.piece)));
    Some((found.acks, found.timeout_ms, entries.collect(), PyBytes::new(py, &found.tail)))
}

/// Names and ids as Python objects. Partitions of a topic are adjacent, so that they share one object.
struct Topics<'py, 'a> {
    py: Python<'py>,
    last: Option<(Topic<'a>, Bound<'py, PyAny>)>,
}

impl<'py, 'a> Topics<'py, 'a> {
    fn new(py: Python<'py>) -> Self {
        Topics { py, last: None }
    }

    fn get(&mut self, topic: Topic<'a>) -> Bound<'py, PyAny> {
        match &self.last {
            Some((known, object)) if *known == topic => object.clone(),
            _ => {
                let object = match topic {
                    Topic::Name(name) => PyString::new(self.py, name).into_any(),
                    Topic::Id(id) => PyBytes::new(self.py, id).into_any(),
                };
                self.last = Some((topic, object.clone()));
                object
            }
        }
    }
}

type Wanted<'py> = (Bound<'py, PyAny>, i32, i32, i64, i32); // topic, partition, leader epoch, offset, most bytes

// Correlation id, longest wait, fewest and most bytes, whether it is read_committed, session and its
// epoch, whether a rack is given, partitions, and forgotten partitions.
type FetchRead<'py> = (i32, i32, i32, i32, bool, i32, i32, bool, Vec<Wanted<'py>>, Vec<(Bound<'py, PyAny>, i32)>);

#[pyfunction]
fn read_fetch<'py>(py: Python<'py>, frame: View) -> Option<FetchRead<'py>> {
    let found = fetch::read(frame.bytes())?;
    let mut topics = Topics::new(py);
    let entries = found
        .entries
        .iter()
        .map(|entry| (topics.get(entry.topic), entry.index, entry.leader_epoch, entry.offset, entry.size_max))
        .collect();
    let forgotten = found.forgotten.iter().map(|&(topic, index)| (topics.get(topic), index)).collect();
    let (session_id, session_epoch) = found.session;
    Some((
        found.correlation,
        found.max_wait_ms,
        found.min_bytes,
        found.max_bytes,
        found.committed,
        session_id,
        session_epoch,
        found.in_rack,
        entries,
        forgotten,
    ))
}

type Parts = Vec<(i32, i64, i64, i64, usize)>; // partition, high watermark, last stable offset, log start, bytes

/// The pieces of a response; the records go between them.
#[pyfunction]
fn answer_fetch<'py>(
    py: Python<'py>,
    version: i16,
    correlation: i32,
    session_id: i32,
    committed: bool,
    topics: Vec<(Bound<'py, PyAny>, Parts)>,
) -> PyResult<Option<Vec<Bound<'py, PyBytes>>>> {
    let pieces = fetch_pieces(version, correlation, session_id, committed, &topics)?;
    Ok(pieces.map(|pieces| pieces.iter().map(|piece| PyBytes::new(py, piece)).collect()))
}

/// The response with the records in it, which are read from these files, positions and sizes. None if they cannot be.
#[pyfunction]
fn answer_fetch_whole<'py>(
    py: Python<'py>,
    version: i16,
    correlation: i32,
    session_id: i32,
    committed: bool,
    topics: Vec<(Bound<'py, PyAny>, Parts)>,
    regions: Vec<(i32, i64, usize)>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let Some(pieces) = fetch_pieces(version, correlation, session_id, committed, &topics)? else {
        return Ok(None);
    };
    if pieces.len() != regions.len() + 1 {
        return Ok(None);
    }
    let size = pieces.iter().map(Vec::len).chain(regions.iter().map(|region| region.2)).sum();
    let fill = |mut out: &mut [u8]| {
        for (at, piece) in pieces.iter().enumerate() {
            let (place, rest) = out.split_at_mut(piece.len());
            place.copy_from_slice(piece);
            let Some(&(fd, position, size)) = regions.get(at) else {
                break;
            };
            let (place, rest) = rest.split_at_mut(size);
            if !files::fill(fd, place, position) {
                return false;
            }
            out = rest;
        }
        true
    };
    let answer = PyBytes::new_with(py, size, |out| {
        if py.detach(|| fill(out)) { Ok(()) } else { Err(PyValueError::new_err("less was read")) }
    });
    Ok(answer.ok())
}

fn fetch_pieces(
    version: i16,
    correlation: i32,
    session_id: i32,
    committed: bool,
    topics: &[(Bound<'_, PyAny>, Parts)],
) -> PyResult<Option<Vec<Vec<u8>>>> {
    let mut wanted = Vec::with_capacity(topics.len());
    for (topic, parts) in topics {
        let topic = match topic.cast::<PyBytes>() {
            Ok(id) => Topic::Id(id.as_bytes()),
            Err(_) => Topic::Name(topic.cast::<PyString>()?.to_str()?),
        };
        let part = |&(index, high, stable, start, size): &_| fetch::Part { index, high, stable, start, size };
        wanted.push((topic, parts.iter().map(part).collect()));
    }
    Ok(fetch::answer(version, correlation, session_id, committed, &wanted))
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn transcode<'py>(
    py: Python<'py>,
    data: View,
    asked: Asked,
    most: (u64, i64),
    release: bool,
    codec: u8,
    level: Option<i32>,
    size_max: usize,
) -> (Told, Bound<'py, PyBytes>) {
    let bytes = data.bytes();
    let (verdict, packed) =
        run(py, release, || validate::transcode(bytes, &rules(asked), limits(most), (codec, level), size_max));
    (told(verdict), PyBytes::new(py, &packed))
}

/// Why there is no result: as the first two of a verdict.
fn stopped(stop: Stop) -> (u8, String) {
    match stop {
        Stop::Wrong(reason) => (validate::WRONG, reason),
        Stop::Over => (validate::OVER, String::new()),
    }
}

type Sought = (u8, String, Option<(i64, i64)>);

#[pyfunction]
fn since(py: Python<'_>, data: View, timestamp: i64, start: i64, most: (u64, i64), release: bool) -> Sought {
    let bytes = data.bytes();
    match run(py, release, || seek::since(bytes, timestamp, start, limits(most))) {
        Ok(found) => (validate::SOUND, String::new(), found),
        Err(stop) => {
            let (state, detail) = stopped(stop);
            (state, detail, None)
        }
    }
}

/// A batch of the broker's own records, each a key and a value.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn own_batch<'py>(
    py: Python<'py>,
    records: Vec<(Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>)>,
    base_offset: i64,
    leader_epoch: i32,
    timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    attributes: i16,
) -> PyResult<Bound<'py, PyBytes>> {
    let head = own::Head { base_offset, leader_epoch, timestamp, producer_id, producer_epoch, attributes };
    let records: Vec<_> =
        records.iter().map(|(key, value)| (key.as_bytes(), value.as_ref().map(|value| value.as_bytes()))).collect();
    let data = own::build(&records, &head).ok_or_else(|| PyValueError::new_err("a batch of more than 2 GiB"))?;
    Ok(PyBytes::new(py, &data))
}

type Portion<'py> = (u8, String, Vec<(i64, i64, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>, u32)>);

#[pyfunction]
fn portion<'py>(
    py: Python<'py>,
    data: View,
    start: i64,
    records_max: usize,
    bytes_max: usize,
    most: (u64, i64),
) -> Portion<'py> {
    match seek::portion(data.bytes(), start, records_max, bytes_max, limits(most)) {
        Ok(found) => {
            let bytes = |blob: Option<Vec<u8>>| blob.map(|blob| PyBytes::new(py, &blob));
            let records = found
                .into_iter()
                .map(|(offset, time, key, value, count)| (offset, time, bytes(key), bytes(value), count));
            (validate::SOUND, String::new(), records.collect())
        }
        Err(stop) => {
            let (state, detail) = stopped(stop);
            (state, detail, Vec::new())
        }
    }
}

#[pymodule(name = "_native")]
fn ottla_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", 3)?; // version of these functions; `ottla.records.native` accepts no other
    module.add_class::<Region>()?;
    #[cfg(target_os = "linux")]
    module.add_class::<sender::Sender>()?;
    module.add_function(wrap_pyfunction!(decode, module)?)?;
    module.add_function(wrap_pyfunction!(encode, module)?)?;
    module.add_function(wrap_pyfunction!(digest, module)?)?;
    module.add_function(wrap_pyfunction!(walk_log, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(transcode, module)?)?;
    module.add_function(wrap_pyfunction!(sound, module)?)?;
    module.add_function(wrap_pyfunction!(sound_each, module)?)?;
    module.add_function(wrap_pyfunction!(write_planned, module)?)?;
    #[cfg(target_os = "linux")]
    module.add_function(wrap_pyfunction!(reserve_blocks, module)?)?;
    module.add_function(wrap_pyfunction!(read_produce, module)?)?;
    module.add_function(wrap_pyfunction!(read_fetch, module)?)?;
    module.add_function(wrap_pyfunction!(answer_fetch, module)?)?;
    module.add_function(wrap_pyfunction!(own_batch, module)?)?;
    module.add_function(wrap_pyfunction!(answer_fetch_whole, module)?)?;
    module.add_function(wrap_pyfunction!(since, module)?)?;
    module.add_function(wrap_pyfunction!(portion, module)?)?;
    module.add_function(wrap_pyfunction!(murmur2, module)?)
}
