//! Kafka's record batches ↔ Arrow columns, for `ottla.records.native`, the only caller.
//!
//! Columns leave as plain buffers (`Region`) that pyarrow adopts in place, and arrays come in as theirs. That is smaller
//! than a library for Arrow or its C interface, and as fast: a call is a fetch of a megabyte or more, and making a dozen
//! buffer objects for it takes microseconds. The interpreter's lock is free while bytes are worked on.

mod arrays;
mod batch;
mod deflate;
mod frames;
#[cfg(test)]
mod fuzz;
mod hash;
mod inflate;
mod reader;
mod region;
mod varint;
mod walk;
mod writer;

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::region::{Region, View};

type Blobs = (Option<View>, View, View, usize, usize); // validity, positions, bytes, first row, number of rows
type Numbers = (Option<View>, View, usize); // validity, numbers, first row
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
    headers: Option<(Numbers, Blobs, Blobs)>,
    timestamps: Option<Numbers>,
    partitions: Option<Numbers>,
    target: Target,
) -> PyResult<Bound<'py, PyDict>> {
    let rows = writer::Rows {
        keys: blobs(&keys),
        values: blobs(&values),
        headers: headers.as_ref().map(|((valid, positions, first), keys, values)| arrays::Lists {
            valid: valid.as_ref().map(View::bytes),
            positions: positions.bytes(),
            first: *first,
            keys: blobs(keys),
            values: blobs(values),
        }),
        timestamps: timestamps.as_ref().map(numbers),
        partitions: partitions.as_ref().map(numbers),
    };
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

#[pymodule(name = "_native")]
fn ottla_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", 1)?; // of these functions; `ottla.records.native` uses no other
    module.add_class::<Region>()?;
    module.add_function(wrap_pyfunction!(decode, module)?)?;
    module.add_function(wrap_pyfunction!(encode, module)?)?;
    module.add_function(wrap_pyfunction!(walk_log, module)?)?;
    module.add_function(wrap_pyfunction!(murmur2, module)?)
}
