//! Writes batches of one request to the log files of several partitions. `ottla.log.planned_write` has the Python version.

use std::sync::{Mutex, PoisonError};

use crate::batch::LOG_OVERHEAD;
use crate::{files, helper};

/// Base offset, length and leader epoch: the fields that the broker fills in.
const STAMP_SIZE: usize = 16;

/// A batch in the frame, and where it goes.
pub(crate) struct PlannedWrite {
    pub(crate) fd: i32,
    pub(crate) position: i64,
    pub(crate) base: i64,
    pub(crate) epoch: i32,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Writing fewer bytes takes not much longer than waking the helper.
const SHARED_SIZE_MIN: usize = 256 * 1024;

/// Writes the batches, many bytes on two threads: each batch has a file of its own. Returns how many were written
/// completely before the first that was not, and for that one how many of its bytes were written, or the system's error.
/// A batch after it may have been written, too.
pub(crate) fn write_planned(frame: &[u8], writes: &[PlannedWrite]) -> (usize, Result<usize, i32>) {
    let first_failure = Mutex::new((writes.len(), Ok(0))); // so far
    let write = |at: usize| {
        if at > first_failure.lock().unwrap_or_else(PoisonError::into_inner).0 {
            return;
        }
        let place = &writes[at];
        let batch = frame.get(place.start..place.end).filter(|batch| batch.len() >= STAMP_SIZE);
        let written = batch.ok_or(libc::EINVAL).and_then(|batch| stamp_and_write(place, batch));
        if batch.is_none_or(|batch| written != Ok(batch.len())) {
            let mut failure = first_failure.lock().unwrap_or_else(PoisonError::into_inner);
            if at < failure.0 {
                *failure = (at, written);
            }
        }
    };
    if writes.iter().map(|write| write.end.saturating_sub(write.start)).sum::<usize>() >= SHARED_SIZE_MIN {
        helper::share(writes.len(), write);
    } else {
        (0..writes.len()).for_each(write);
    }
    first_failure.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn stamp_and_write(write: &PlannedWrite, batch: &[u8]) -> Result<usize, i32> {
    let mut stamp = [0; STAMP_SIZE];
    stamp[..8].copy_from_slice(&write.base.to_be_bytes());
    stamp[8..12].copy_from_slice(&((batch.len() - LOG_OVERHEAD) as u32).to_be_bytes());
    stamp[12..].copy_from_slice(&write.epoch.to_be_bytes());
    files::write(write.fd, [&stamp, &batch[STAMP_SIZE..]], write.position)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_batch_outside_of_the_frame_is_not_written() {
        for (start, end) in [(0, 15), (90, 101), (50, 40), (101, 117)] {
            let write = PlannedWrite { fd: -1, position: 0, base: 0, epoch: 0, start, end };
            assert_eq!(write_planned(&[0; 100], &[write]), (0, Err(libc::EINVAL)));
        }
    }

    #[test]
    fn a_closed_file_is_an_error_of_its_batch() {
        let write = PlannedWrite { fd: -1, position: 0, base: 0, epoch: 0, start: 0, end: 100 };
        assert_eq!(write_planned(&[0; 100], &[write]), (0, Err(libc::EBADF)));
    }

    #[test]
    fn two_threads_report_the_first_failure() {
        let path = std::env::temp_dir().join(format!("ottla-planned-write-{}", std::process::id()));
        let file = std::fs::File::create(&path).expect("a file for the test");
        let _ = std::fs::remove_file(&path);
        let size = SHARED_SIZE_MIN / 4;
        let frame = vec![0; 8 * size];
        for _ in 0..100 {
            let writes: Vec<PlannedWrite> = (0..8)
                .map(|at| {
                    let fd = if at == 2 || at == 5 { -1 } else { file.as_raw_fd() };
                    let start = at * size;
                    PlannedWrite { fd, position: start as i64, base: 0, epoch: 0, start, end: start + size }
                })
                .collect();
            assert_eq!(write_planned(&frame, &writes), (2, Err(libc::EBADF)));
            assert_eq!(write_planned(&frame, &writes[..2]), (2, Ok(0)));
        }
    }
}
