//! The records of a batch in windows: decompressed piece by piece, never as a whole.
//!
//! No buffer size comes from a length that a frame declares. The buffer is 4 MiB, the largest lz4 block, and belongs to
//! the thread; untouched pages take no memory. Two kinds of frames need more, and get it only up to `WHOLE_MAX` and only
//! while they are read: a raw snappy block, which cannot be decompressed in parts (but holds at most 22 times its own
//! size), and a zstd frame whose window is larger than `WINDOW_LOG_MAX`, which only its highest levels write.

use std::cell::Cell;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

use crate::frames::{LZ4_STORED, Lz4Frame, zstd_bound};
use crate::inflate::{GZIP, LZ4, SNAPPY, SNAPPY_RATIO_MAX, XERIAL, XERIAL_HEADER_SIZE, ZSTD};
use crate::xxhash::{Hash, xxh32};

const ROOM_SIZE: usize = 4 << 20;
const WHOLE_MAX: usize = 64 << 20;
const WINDOW_LOG_MAX: u32 = 25; // 32 MiB
const READABLE_WINDOW_LOG: u32 = 27; // 128 MiB: no client decompresses larger ones by default
const GZIP_MAGIC: &[u8] = b"\x1f\x8b";
const GZIP_WINDOW: u8 = 15;
const GZIP_STEP: usize = 256 << 10;
const ZSTD_STEP: usize = 128 << 10; // a zstd block: step size for content that does not fit the buffer

/// Why reading ended before the records did.
#[derive(Debug, PartialEq)]
pub(crate) enum Stop {
    Wrong(String), // the bytes are malformed
    Over,          // they may be valid, but a limit was reached
}

impl From<&str> for Stop {
    fn from(reason: &str) -> Self {
        Stop::Wrong(reason.into())
    }
}

impl From<String> for Stop {
    fn from(reason: String) -> Self {
        Stop::Wrong(reason)
    }
}

pub(crate) trait Windows {
    /// The current window.
    fn window(&self) -> &[u8];
    /// Replaces the window by the next one, which may be empty; false after the last.
    fn next(&mut self) -> Result<bool, Stop>;
}

/// Uncompressed records: one window, in place.
pub(crate) struct Plain<'a>(pub(crate) &'a [u8]);

impl Windows for Plain<'_> {
    #[inline(always)]
    fn window(&self) -> &[u8] {
        self.0
    }

    fn next(&mut self) -> Result<bool, Stop> {
        self.0 = &[];
        Ok(false)
    }
}

/// State that a thread keeps between batches.
struct Kept {
    room: Vec<u8>,
    zstd: DCtx<'static>,
}

thread_local! {
    static KEPT: Cell<Option<Kept>> = const { Cell::new(None) };
}

pub(crate) struct Inflated<'a> {
    kept: Option<Kept>, // None only once dropped
    whole: Vec<u8>,     // replaces the buffer for content that must be decompressed at once and does not fit
    filled: usize,
    made: u64, // bytes decompressed, including this window
    limit: u64,
    stream: Stream<'a>,
}

enum Stream<'a> {
    Gzip(Option<Box<Decompress>>, &'a [u8]), // None after the last member
    Snappy(&'a [u8]),
    Lz4(Lz4Frame, &'a [u8], Option<Hash>),
    Zstd(DCtx<'static>, &'a [u8], bool), // whether a frame is open
    End,
}

impl<'a> Inflated<'a> {
    /// `limit` is the most bytes to decompress, give or take a window.
    pub(crate) fn new(codec: u8, data: &'a [u8], limit: u64) -> Result<Self, Stop> {
        let kept = KEPT.take().unwrap_or_else(|| Kept { room: vec![0; ROOM_SIZE], zstd: DCtx::create() });
        let mut found =
            Inflated { kept: Some(kept), whole: Vec::new(), filled: 0, made: 0, limit, stream: Stream::End };
        if data.is_empty() {
            return Err("there is nothing to inflate".into());
        }
        found.stream = match codec {
            GZIP => Stream::Gzip(Some(Box::new(Decompress::new_gzip(GZIP_WINDOW))), data),
            SNAPPY => found.snappy(data)?,
            LZ4 => {
                let frame = Lz4Frame::read(data)?;
                let hash = frame.content_hash.then(Hash::default);
                Stream::Lz4(frame, &data[frame.header_size..], hash)
            }
            ZSTD => found.zstd(data)?,
            _ => return Err(format!("unknown compression codec {codec}").into()),
        };
        Ok(found)
    }

    fn room(&mut self) -> &mut [u8] {
        match &mut self.kept {
            Some(kept) if self.whole.is_empty() => &mut kept.room,
            _ => &mut self.whole,
        }
    }

    /// A contiguous buffer of `size` bytes.
    fn make_room(&mut self, size: usize) -> Result<&mut [u8], Stop> {
        if size as u64 > self.limit.saturating_sub(self.made) || size > WHOLE_MAX {
            return Err(Stop::Over);
        }
        if size > self.room().len() {
            self.whole = vec![0; size];
        }
        Ok(self.room())
    }

    fn fill(&mut self, size: usize) {
        self.filled = size;
        self.made += size as u64;
    }

    fn snappy(&mut self, data: &'a [u8]) -> Result<Stream<'a>, Stop> {
        if data.starts_with(XERIAL) {
            return Ok(Stream::Snappy(data.get(XERIAL_HEADER_SIZE..).ok_or("snappy: the header is cut short")?));
        }
        self.snappy_block(data)?;
        Ok(Stream::End)
    }

    fn snappy_block(&mut self, block: &[u8]) -> Result<(), Stop> {
        let size = snap::raw::decompress_len(block).map_err(|error| error.to_string())?;
        if size > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
            return Err(format!("snappy: {} bytes cannot hold {size}", block.len()).into());
        }
        let room = self.make_room(size)?;
        let made = snap::raw::Decoder::new().decompress(block, &mut room[..size]).map_err(|error| error.to_string())?;
        self.fill(made);
        Ok(())
    }

    fn zstd(&mut self, data: &'a [u8]) -> Result<Stream<'a>, Stop> {
        let (bound, window) = zstd_bound(data)?;
        if window > 1 << READABLE_WINDOW_LOG {
            return Err("zstd: a window that readers refuse".into());
        }
        if bound > ROOM_SIZE && window <= 1 << WINDOW_LOG_MAX {
            let mut context = DCtx::create(); // its window is freed with it
            context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).map_err(zstd_error)?;
            return Ok(Stream::Zstd(context, data, false));
        }
        if bound > ROOM_SIZE {
            let size = bound.min(WHOLE_MAX).min(usize::try_from(self.limit).unwrap_or(WHOLE_MAX));
            self.whole = vec![0; size];
        }
        let Some(kept) = &mut self.kept else { return Ok(Stream::End) };
        let room = if self.whole.is_empty() { &mut kept.room } else { &mut self.whole };
        let size = match kept.zstd.decompress(&mut room[..], data) {
            Ok(size) => size,
            Err(_) if bound > room.len() => return Err(Stop::Over),
            Err(code) => return Err(zstd_error(code)),
        };
        self.fill(size);
        Ok(Stream::End)
    }
}

fn zstd_error(code: usize) -> Stop {
    format!("zstd: {}", get_error_name(code)).into()
}

impl Drop for Inflated<'_> {
    fn drop(&mut self) {
        KEPT.set(self.kept.take());
    }
}

impl Windows for Inflated<'_> {
    #[inline(always)]
    fn window(&self) -> &[u8] {
        let room = match &self.kept {
            Some(kept) if self.whole.is_empty() => &kept.room,
            _ => &self.whole,
        };
        &room[..self.filled]
    }

    fn next(&mut self) -> Result<bool, Stop> {
        if self.made > self.limit {
            return Err(Stop::Over);
        }
        self.filled = 0;
        let mut stream = std::mem::replace(&mut self.stream, Stream::End);
        let more = match &mut stream {
            Stream::Gzip(member, rest) => self.next_gzip(member, rest),
            Stream::Snappy(rest) => self.next_snappy(rest),
            Stream::Lz4(frame, rest, hash) => self.next_lz4(frame, rest, hash),
            Stream::Zstd(context, rest, open) => self.next_zstd(context, rest, open),
            Stream::End => Ok(false),
        }?;
        if more {
            self.stream = stream;
        }
        Ok(more)
    }
}

impl Inflated<'_> {
    /// Several members in a row are one stream; bytes after the last are ignored.
    fn next_gzip(&mut self, stream: &mut Option<Box<Decompress>>, rest: &mut &[u8]) -> Result<bool, Stop> {
        let Some(member) = stream else { return Ok(false) };
        let room = &mut self.room()[..GZIP_STEP];
        let (read, written) = (member.total_in(), member.total_out());
        // "Finish" avoids copying through the codec's own window when everything fits into ours.
        let status =
            member.decompress(rest, room, FlushDecompress::Finish).map_err(|error| format!("gzip: {error}"))?;
        *rest = &rest[(member.total_in() - read) as usize..];
        let made = (member.total_out() - written) as usize;
        self.fill(made);
        if status == Status::StreamEnd {
            *stream = rest.starts_with(GZIP_MAGIC).then(|| Box::new(Decompress::new_gzip(GZIP_WINDOW)));
        } else if made == 0 && rest.is_empty() {
            return Err("gzip: the stream ends early".into());
        }
        Ok(true)
    }

    fn next_snappy(&mut self, rest: &mut &[u8]) -> Result<bool, Stop> {
        while rest.starts_with(XERIAL) {
            *rest = rest.get(XERIAL_HEADER_SIZE..).unwrap_or_default(); // concatenated streams
        }
        if rest.is_empty() {
            return Ok(false);
        }
        let (length, after) = rest.split_at(rest.len().min(4));
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let block = after.get(..length).ok_or("snappy: a block is cut short")?;
        *rest = &after[length..];
        self.snappy_block(block)?;
        Ok(true)
    }

    fn next_lz4(&mut self, frame: &Lz4Frame, rest: &mut &[u8], hash: &mut Option<Hash>) -> Result<bool, Stop> {
        let word = take_word(rest)?;
        if word == 0 {
            if let Some(hash) = hash
                && hash.finish() != take_word(rest)?
            {
                return Err("lz4: the content does not match its checksum".into());
            }
            return if rest.is_empty() { Ok(false) } else { Err("lz4: bytes follow the frame".into()) };
        }
        let length = (word & !LZ4_STORED) as usize;
        if length == 0 || length > frame.block_max {
            return Err("lz4: a block is empty or larger than the frame allows".into());
        }
        let block = rest.get(..length).ok_or("lz4: a block is cut short")?;
        *rest = &rest[length..];
        if frame.block_hash && xxh32(block) != take_word(rest)? {
            return Err("lz4: a block does not match its checksum".into());
        }
        let room = &mut self.room()[..frame.block_max];
        let size = if word & LZ4_STORED != 0 {
            room[..length].copy_from_slice(block);
            length
        } else {
            lz4::block::decompress_to_buffer(block, Some(frame.block_max as i32), room)
                .map_err(|_| "lz4: a block does not inflate")?
        };
        if let Some(hash) = hash {
            hash.add(&self.room()[..size]);
        }
        self.fill(size);
        Ok(true)
    }

    fn next_zstd(&mut self, context: &mut DCtx<'static>, rest: &mut &[u8], open: &mut bool) -> Result<bool, Stop> {
        if rest.is_empty() && !*open {
            return Ok(false);
        }
        let (hint, read, made) = {
            let mut input = InBuffer::around(rest);
            let mut output = OutBuffer::around(&mut self.room()[..ZSTD_STEP]);
            let hint = context.decompress_stream(&mut output, &mut input).map_err(zstd_error)?;
            (hint, input.pos(), output.pos())
        };
        *rest = &rest[read..];
        *open = hint != 0;
        if *open && rest.is_empty() && made == 0 {
            return Err("zstd: a frame is cut short".into());
        }
        self.fill(made);
        Ok(true)
    }
}

fn take_word(rest: &mut &[u8]) -> Result<u32, Stop> {
    let (word, after) = rest.split_first_chunk::<4>().ok_or("lz4: the frame is cut short")?;
    *rest = after;
    Ok(u32::from_le_bytes(*word))
}
