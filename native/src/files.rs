//! System calls on log files. `unsafe` is needed because they take pointers.

#![allow(unsafe_code)]

use std::io::{Error, ErrorKind};

/// Writes two pieces at a position. Returns how many bytes were written, or the system's error.
pub(crate) fn write(fd: i32, pieces: [&[u8]; 2], position: i64) -> Result<usize, i32> {
    let pieces = pieces.map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
    // SAFETY: both pieces are borrowed for longer than the call, which only reads them.
    again(|| unsafe { libc::pwritev(fd, pieces.as_ptr(), 2, position) })
}

/// Fills `out` from a position. False if there is less in the file, or it cannot be read.
pub(crate) fn fill(fd: i32, out: &mut [u8], position: i64) -> bool {
    let (start, size) = (out.as_mut_ptr(), out.len());
    // SAFETY: `out` is borrowed for longer than the call, which writes at most its size.
    again(|| unsafe { libc::pread(fd, start.cast(), size, position) }) == Ok(size)
}

/// Makes a system call, again if a signal interrupts it.
fn again(mut call: impl FnMut() -> isize) -> Result<usize, i32> {
    loop {
        if let Ok(size) = usize::try_from(call()) {
            return Ok(size);
        }
        let error = Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error.raw_os_error().unwrap_or(libc::EIO));
        }
    }
}
