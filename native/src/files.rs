//! System calls on log files. `unsafe` is needed because they take pointers.

#![allow(unsafe_code)]

use std::io::{Error, ErrorKind};
#[cfg(target_os = "linux")]
use std::{
    mem::MaybeUninit,
    sync::Mutex,
    time::{Duration, Instant},
};

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

/// A reservation that takes this long is followed by a rest, in which nothing is reserved.
#[cfg(target_os = "linux")]
const SLOW: Duration = Duration::from_millis(1);
/// How many times as long as the reservation the rest is.
#[cfg(target_os = "linux")]
const REST: u32 = 100;
#[cfg(target_os = "linux")]
static RESTS_UNTIL: Mutex<Option<Instant>> = Mutex::new(None);

/// Allocates blocks for a region after the end of a file, which keeps its size. False if nothing was allocated: on other
/// file systems than ext4, which do this by themselves or cannot, where less than `free_min` bytes are free, or because
/// it would take too long.
#[cfg(target_os = "linux")]
pub(crate) fn reserve(fd: i32, position: i64, size: i64, free_min: u64) -> bool {
    let Ok(mut rests_until) = RESTS_UNTIL.try_lock() else {
        return false; // another thread waits for its disk
    };
    let begun = Instant::now();
    if rests_until.is_some_and(|until| begun < until) {
        return false;
    }
    let mut found = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `found` lives for longer than the call, which fills it if it succeeds.
    let found = unsafe {
        if libc::fstatfs(fd, found.as_mut_ptr()) != 0 {
            return false;
        }
        found.assume_init()
    };
    let free = found.f_bavail.saturating_mul(found.f_bsize as u64);
    if found.f_type as i64 != i64::from(libc::EXT4_SUPER_MAGIC) || free < free_min {
        return false;
    }
    // SAFETY: no pointer is passed.
    let whole = unsafe { libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, position, size) } == 0;
    let error = Error::last_os_error().raw_os_error();
    let now = Instant::now();
    if now - begun >= SLOW {
        *rests_until = Some(now + REST * (now - begun));
    }
    // A call that fails in the middle leaves the blocks that it has allocated.
    whole || matches!(error, Some(libc::ENOSPC | libc::EDQUOT | libc::EINTR | libc::EIO))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn reserve(_: i32, _: i64, _: i64, _: u64) -> bool {
    false
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
