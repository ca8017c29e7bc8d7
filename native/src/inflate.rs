//! The records of a compressed batch. Never decompresses more than a given number of bytes, whatever the input says:
//! gzip and snappy are stopped at the limit, and the block headers of lz4 and zstd give an upper bound beforehand.

use std::io::Read;

use flate2::{Decompress, FlushDecompress, Status};

use zstd::zstd_safe::DCtx;

use crate::frames::{lz4_bound, lz4_plain, zstd_bound};

pub(crate) const GZIP: u8 = 1;
pub(crate) const SNAPPY: u8 = 2;
pub(crate) const LZ4: u8 = 3;
pub(crate) const ZSTD: u8 = 4;

pub(crate) const XERIAL: &[u8] = b"\x82SNAPPY\x00";
pub(crate) const XERIAL_HEADER_SIZE: usize = 16;
pub(crate) const SNAPPY_RATIO_MAX: usize = 32; // a copy of 3 bytes yields at most 64: no valid input declares more
const GZIP_MAGIC: &[u8] = b"\x1f\x8b";
const GZIP_WINDOW: u8 = 15;
const STEP: usize = 8 * 1024; // as Python's library reads: a frame that ends within the first step escapes some checks

type Inflated = Result<usize, String>;

/// A buffer reused from batch to batch, and reused codec state.
#[derive(Default)]
pub(crate) struct Inflater {
    room: Vec<u8>, // never shrinks, so that it is zeroed only once
    zstd: Option<DCtx<'static>>,
}

impl Inflater {
    pub(crate) fn inflate(&mut self, codec: u8, data: &[u8], size_max: usize) -> Result<&[u8], String> {
        if data.is_empty() {
            return Err("there is nothing to inflate".into());
        }
        let size = match codec {
            GZIP => self.gzip(data, size_max),
            SNAPPY => self.snappy(data, size_max),
            LZ4 => self.lz4(data, size_max),
            ZSTD => self.zstd(data, size_max),
            _ => Err(format!("unknown compression codec {codec}")),
        }?;
        Ok(&self.room[..size])
    }

    fn grow(&mut self, size: usize) {
        if self.room.len() < size {
            self.room.resize(size, 0);
        }
    }

    /// Several members in a row are one stream; bytes after the last are ignored.
    fn gzip(&mut self, data: &[u8], size_max: usize) -> Inflated {
        let (mut size, mut rest) = (0, data);
        loop {
            let mut member = Decompress::new_gzip(GZIP_WINDOW);
            loop {
                self.grow((size + 4 * rest.len() + 64).max(2 * size).min(size_max + 1));
                let (read, written) = (member.total_in(), member.total_out());
                let status = member
                    .decompress(rest, &mut self.room[size..], FlushDecompress::None)
                    .map_err(|error| format!("gzip: {error}"))?;
                rest = &rest[(member.total_in() - read) as usize..];
                let made = (member.total_out() - written) as usize;
                size += made;
                if size > size_max {
                    return Err(too_large(size_max));
                }
                if status == Status::StreamEnd {
                    break;
                }
                if rest.is_empty() && size < self.room.len() {
                    return Err("gzip: the stream ends early".into());
                }
            }
            if !rest.starts_with(GZIP_MAGIC) {
                return Ok(size);
            }
        }
    }

    fn snappy(&mut self, data: &[u8], size_max: usize) -> Inflated {
        if !data.starts_with(XERIAL) {
            return self.snappy_block(data, 0, size_max);
        }
        let mut rest = data.get(XERIAL_HEADER_SIZE..).ok_or("snappy: the header is cut short")?;
        let mut size = 0;
        while !rest.is_empty() {
            if rest.starts_with(XERIAL) {
                rest = rest.get(XERIAL_HEADER_SIZE..).unwrap_or_default(); // concatenated streams
                continue;
            }
            let (length, after) = rest.split_at(rest.len().min(4));
            let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            let block = after.get(..length).ok_or("snappy: a block is cut short")?;
            size = self.snappy_block(block, size, size_max)?;
            rest = &after[length..];
        }
        Ok(size)
    }

    /// Appends after the first `start` bytes; returns the new size.
    fn snappy_block(&mut self, block: &[u8], start: usize, size_max: usize) -> Inflated {
        let size = snap::raw::decompress_len(block).map_err(|error| error.to_string())?;
        if size > block.len() * SNAPPY_RATIO_MAX {
            return Err(format!("snappy: {} bytes cannot hold {size}", block.len()));
        }
        if size > size_max - start {
            return Err(too_large(size_max));
        }
        self.grow(start + size);
        let made = snap::raw::Decoder::new().decompress(block, &mut self.room[start..start + size]);
        Ok(start + made.map_err(|error| error.to_string())?)
    }

    fn lz4(&mut self, data: &[u8], size_max: usize) -> Inflated {
        let limit = lz4_bound(data)?.min(size_max);
        self.grow(limit);
        if let Some(size) = lz4_plain(data, &mut self.room[..limit]) {
            return Ok(size);
        }
        let (mut rest, mut size) = (data, 0);
        while !rest.is_empty() {
            let mut frame = lz4::Decoder::new(&mut rest).map_err(|error| error.to_string())?;
            size = drain(&mut frame, &mut self.room[..limit], size)?; // several in a row are one stream
            frame.finish().1.map_err(|_| "lz4: a frame is cut short")?;
        }
        Ok(size)
    }

    fn zstd(&mut self, data: &[u8], size_max: usize) -> Inflated {
        let limit = zstd_bound(data)?.0.min(size_max);
        self.grow(limit);
        let context = self.zstd.get_or_insert_with(DCtx::create);
        drain(&mut zstd::stream::read::Decoder::with_context(data, context), &mut self.room[..limit], 0)
    }
}

/// Reads everything into `room`, after its first `size` bytes; returns the new size.
fn drain(reader: &mut impl Read, room: &mut [u8], mut size: usize) -> Inflated {
    loop {
        // One byte more than allowed, to distinguish the end from the limit.
        let mut spill = [0];
        let end = room.len().min(size + STEP);
        let step = if size < end { &mut room[size..end] } else { &mut spill[..] };
        match reader.read(step).map_err(|error| error.to_string())? {
            0 => return Ok(size),
            _ if size == room.len() => return Err(too_large(size)),
            made => size += made,
        }
    }
}

fn too_large(size_max: usize) -> String {
    format!("records inflate to more than {size_max} bytes")
}
