//! Compression of a batch's records, in the framings that every Kafka client reads.

use flate2::{Compress, Compression, FlushCompress, Status};
use lz4::block::CompressionMode;

pub(crate) use crate::frames::LZ4_STORED;
use crate::inflate::{GZIP, LZ4, SNAPPY, ZSTD};

const GZIP_WINDOW: u8 = 15;
pub(crate) const XERIAL_HEADER: &[u8] = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01";
pub(crate) const XERIAL_BLOCK: usize = 32 * 1024; // the block size of the Java writer
pub(crate) const LZ4_HEADER: &[u8] = b"\x04\x22\x4d\x18\x60\x40\x82"; // independent blocks of 64 KiB, no checksums
pub(crate) const LZ4_BLOCK: usize = 64 * 1024;
const LZ4_DEFAULT: i32 = 9; // Kafka's default level, for which its writer uses the fast compressor
const LZ4_DENSE: i32 = 3; // from this level on the library's own frame writer uses the dense compressor
pub(crate) const ZSTD_DEFAULT: i32 = 3;

/// Codec state that is reused from one batch to the next.
pub(crate) struct Deflater {
    codec: u8,
    level: Option<i32>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    room: Vec<u8>,
}

impl Deflater {
    pub(crate) fn new(codec: u8, level: Option<i32>) -> Self {
        Deflater { codec, level, zstd: None, room: Vec::new() }
    }

    /// Appends the compressed `data` to `out`.
    pub(crate) fn deflate(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        match self.codec {
            0 => out.extend_from_slice(data),
            GZIP => self.gzip(data, out)?,
            SNAPPY => self.snappy(data, out)?,
            LZ4 => self.lz4(data, out)?,
            ZSTD => self.zstd(data, out)?,
            codec => return Err(format!("no codec {codec}")),
        }
        Ok(())
    }

    fn gzip(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let level =
            self.level.and_then(|level| u32::try_from(level).ok()).map_or(Compression::default(), Compression::new);
        let mut stream = Compress::new_gzip(level, GZIP_WINDOW);
        let mut rest = data;
        loop {
            out.reserve(rest.len() / 2 + 1024);
            let read = stream.total_in();
            let status =
                stream.compress_vec(rest, out, FlushCompress::Finish).map_err(|error| format!("gzip: {error}"))?;
            if status == Status::StreamEnd {
                return Ok(());
            }
            rest = &rest[(stream.total_in() - read) as usize..];
        }
    }

    fn snappy(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(XERIAL_HEADER);
        let mut encoder = snap::raw::Encoder::new();
        self.room.resize(snap::raw::max_compress_len(XERIAL_BLOCK), 0);
        for block in data.chunks(XERIAL_BLOCK) {
            let size = encoder.compress(block, &mut self.room).map_err(|error| error.to_string())?;
            out.extend_from_slice(&(size as u32).to_be_bytes());
            out.extend_from_slice(&self.room[..size]);
        }
        Ok(())
    }

    fn lz4(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let mode = lz4_mode(self.level);
        out.extend_from_slice(LZ4_HEADER);
        self.room.resize(lz4_room()?, 0);
        for block in data.chunks(LZ4_BLOCK) {
            let size = lz4_block(block, mode, &mut self.room)?;
            if size < block.len() {
                out.extend_from_slice(&(size as u32).to_le_bytes());
                out.extend_from_slice(&self.room[..size]);
            } else {
                out.extend_from_slice(&(block.len() as u32 | LZ4_STORED).to_le_bytes());
                out.extend_from_slice(block);
            }
        }
        out.extend_from_slice(&[0; 4]);
        Ok(())
    }

    fn zstd(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        if self.zstd.is_none() {
            let level = self.level.unwrap_or(ZSTD_DEFAULT);
            self.zstd = Some(zstd::bulk::Compressor::new(level).map_err(|error| error.to_string())?);
        }
        let encoder = self.zstd.as_mut().ok_or("zstd: no encoder")?;
        out.extend_from_slice(&encoder.compress(data).map_err(|error| format!("zstd: {error}"))?);
        Ok(())
    }
}

pub(crate) fn lz4_mode(level: Option<i32>) -> CompressionMode {
    match level.unwrap_or(LZ4_DEFAULT) {
        level if level == LZ4_DEFAULT || level < LZ4_DENSE => CompressionMode::DEFAULT,
        level => CompressionMode::HIGHCOMPRESSION(level),
    }
}

/// The most bytes that a block can take when compressed.
pub(crate) fn lz4_room() -> Result<usize, String> {
    lz4::block::compress_bound(LZ4_BLOCK).map_err(|error| error.to_string())
}

pub(crate) fn lz4_block(block: &[u8], mode: CompressionMode, room: &mut [u8]) -> Result<usize, String> {
    lz4::block::compress_to_buffer(block, Some(mode), false, room).map_err(|error| format!("lz4: {error}"))
}
