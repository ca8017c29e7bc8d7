//! Writes batches of one request to the log files of several partitions. `ottla.log.planned_write` has the Python version.

use crate::batch::LOG_OVERHEAD;
use crate::files;

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

/// Writes the batches in order, up to the first that fails. Returns how many were written completely, and for the next
/// one how many of its bytes were written, or the system's error.
pub(crate) fn write_planned(frame: &[u8], writes: &[PlannedWrite]) -> (usize, Result<usize, i32>) {
    for (at, write) in writes.iter().enumerate() {
        let Some(batch) = frame.get(write.start..write.end).filter(|batch| batch.len() >= STAMP_SIZE) else {
            return (at, Err(libc::EINVAL));
        };
        match stamp_and_write(write, batch) {
            Ok(written) if written == batch.len() => (),
            other => return (at, other),
        }
    }
    (writes.len(), Ok(0))
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
}
