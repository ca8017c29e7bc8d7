//! Memory shared with Python. It has `unsafe` twice, because a Python buffer is a pointer and a length.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A Python buffer, kept alive and in place.
pub(crate) struct View(PyUntypedBuffer);

impl View {
    /// Python forbids resizing while a view exists; the caller guarantees that nobody writes meanwhile.
    pub(crate) fn bytes(&self) -> &[u8] {
        let size = self.0.len_bytes();
        if size == 0 {
            return &[];
        }
        // SAFETY: contiguous (checked in `extract`), and alive for as long as the view is held.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), size) }
    }
}

impl<'py> FromPyObject<'_, 'py> for View {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("the buffer is not in one piece"));
        }
        Ok(View(buffer))
    }
}

/// A finished column, or a part of one, which Python reads in place and keeps alive.
#[pyclass(frozen)]
pub(crate) struct Region(Cells);

pub(crate) enum Cells {
    Bytes(Vec<u8>),
    Ints(Vec<i32>),
    Longs(Vec<i64>),
    Words(Vec<u64>),
}

impl Region {
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Cells::Bytes(cells) => cells,
            Cells::Ints(cells) => bytemuck::cast_slice(cells),
            Cells::Longs(cells) => bytemuck::cast_slice(cells),
            Cells::Words(cells) => bytemuck::cast_slice(cells),
        }
    }
}

#[pymethods]
impl Region {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        const READ_ONLY: c_int = 1;
        let bytes = slf.get().bytes();
        let start = bytes.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: Python gives a view to fill (or null, which the call refuses) and keeps the owner alive while it is in
        // use; the owner is frozen, so its cells stay where they are.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes.len() as isize, READ_ONLY, flags) };
        if filled < 0 { Err(PyErr::fetch(slf.py())) } else { Ok(()) }
    }
}

impl From<Vec<u8>> for Region {
    fn from(cells: Vec<u8>) -> Self {
        Region(Cells::Bytes(cells))
    }
}

impl From<Vec<i32>> for Region {
    fn from(cells: Vec<i32>) -> Self {
        Region(Cells::Ints(cells))
    }
}

impl From<Vec<i64>> for Region {
    fn from(cells: Vec<i64>) -> Self {
        Region(Cells::Longs(cells))
    }
}

impl From<Vec<u64>> for Region {
    fn from(cells: Vec<u64>) -> Self {
        Region(Cells::Words(cells))
    }
}
