//! Allocates blocks ahead of the writes: `ottla.log.reservation` says why. `unsafe` is needed for the system calls.

#![allow(unsafe_code)]

use std::io::Error;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A call that takes this long is followed by a rest, in which nothing is reserved.
const SLOW: Duration = Duration::from_millis(1);
/// How many times as long as the call the rest is.
const REST: u32 = 100;

static RESTS_UNTIL: Mutex<Option<Instant>> = Mutex::new(None);

/// Allocates blocks for a region after the end of a file, which keeps its size. False if nothing was allocated: on other
/// file systems than ext4, which do this by themselves or cannot, where less than `free_min` bytes are free, and during
/// a rest.
pub(crate) fn reserve(fd: i32, position: i64, size: i64, free_min: u64) -> bool {
    let Ok(mut rests_until) = RESTS_UNTIL.try_lock() else {
        return false; // another thread waits for its disk
    };
    let begun = Instant::now();
    if rests_until.is_some_and(|until| begun < until) || !is_ext4_with(fd, free_min) {
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

/// Whether the file is on ext4, with so many bytes free.
fn is_ext4_with(fd: i32, free_min: u64) -> bool {
    let mut found = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `found` lives for longer than the call, which fills it if it succeeds.
    let found = unsafe {
        if libc::fstatfs(fd, found.as_mut_ptr()) != 0 {
            return false;
        }
        found.assume_init()
    };
    let free = found.f_bavail.saturating_mul(found.f_bsize as u64);
    found.f_type as i64 == i64::from(libc::EXT4_SUPER_MAGIC) && free >= free_min
}
