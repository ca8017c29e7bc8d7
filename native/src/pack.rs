//! Compression of records that arrive in windows. The output has a limit, and besides it there is only one block or the
//! codec's state: memory does not grow with the input.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use lz4::block::CompressionMode;
use zstd::stream::write::Encoder;

use crate::deflate::{
    LZ4_BLOCK, LZ4_HEADER, LZ4_STORED, XERIAL_BLOCK, XERIAL_HEADER, ZSTD_DEFAULT, lz4_block, lz4_mode, lz4_room,
};
use crate::inflate::{GZIP, LZ4, SNAPPY, ZSTD};

/// Bytes up to a limit; beyond it, writing fails.
struct Bounded {
    data: Vec<u8>,
    size_max: usize,
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.len() > self.size_max - self.data.len() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.data.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Packer {
    writer: Option<Writer>, // None once the output was too large
}

enum Writer {
    Plain(Bounded),
    Gzip(GzEncoder<Bounded>),
    Zstd(Encoder<'static, Bounded>),
    Blocks(Blocks),
}

impl Packer {
    pub(crate) fn new(codec: u8, level: Option<i32>, size_max: usize) -> Result<Self, String> {
        let out = Bounded { data: Vec::new(), size_max };
        let writer = match codec {
            0 => Writer::Plain(out),
            GZIP => {
                let level = level.and_then(|level| u32::try_from(level).ok());
                Writer::Gzip(GzEncoder::new(out, level.map_or(Compression::default(), Compression::new)))
            }
            ZSTD => Writer::Zstd(Encoder::new(out, level.unwrap_or(ZSTD_DEFAULT)).map_err(|error| error.to_string())?),
            SNAPPY | LZ4 => Writer::Blocks(Blocks::new(codec == LZ4, level, out)?),
            _ => return Err(format!("no codec {codec}")),
        };
        Ok(Packer { writer: Some(writer) })
    }

    /// Once the output would be larger than allowed, everything is dropped.
    pub(crate) fn add(&mut self, data: &[u8]) {
        let written = match &mut self.writer {
            Some(Writer::Plain(out)) => out.write_all(data),
            Some(Writer::Gzip(out)) => out.write_all(data),
            Some(Writer::Zstd(out)) => out.write_all(data),
            Some(Writer::Blocks(out)) => out.add(data),
            None => Ok(()),
        };
        if written.is_err() {
            self.writer = None;
        }
    }

    /// The compressed output; None if it is too large.
    pub(crate) fn finish(&mut self) -> Option<Vec<u8>> {
        let finished = match self.writer.take()? {
            Writer::Plain(out) => Ok(out),
            Writer::Gzip(out) => out.finish(),
            Writer::Zstd(out) => out.finish(),
            Writer::Blocks(out) => out.finish(),
        };
        finished.ok().map(|out| out.data)
    }
}

/// Snappy in the Java framing, or an lz4 frame: a header, then blocks with their sizes.
struct Blocks {
    lz4: bool,
    mode: CompressionMode,
    block: Vec<u8>, // bytes that do not fill a block yet
    room: Vec<u8>,
    out: Bounded,
}

impl Blocks {
    fn new(lz4: bool, level: Option<i32>, mut out: Bounded) -> Result<Self, String> {
        let (header, room) =
            if lz4 { (LZ4_HEADER, lz4_room()?) } else { (XERIAL_HEADER, snap::raw::max_compress_len(XERIAL_BLOCK)) };
        out.size_max = out.size_max.max(header.len());
        out.data.extend_from_slice(header);
        Ok(Blocks { lz4, mode: lz4_mode(level), block: Vec::new(), room: vec![0; room], out })
    }

    fn add(&mut self, mut data: &[u8]) -> io::Result<()> {
        let size = if self.lz4 { LZ4_BLOCK } else { XERIAL_BLOCK };
        while !data.is_empty() {
            let taken = data.len().min(size - self.block.len());
            self.block.extend_from_slice(&data[..taken]);
            data = &data[taken..];
            if self.block.len() == size {
                self.close_block()?;
            }
        }
        Ok(())
    }

    fn close_block(&mut self) -> io::Result<()> {
        if self.lz4 {
            let size = lz4_block(&self.block, self.mode, &mut self.room).map_err(io::Error::other)?;
            if size < self.block.len() {
                self.out.write_all(&(size as u32).to_le_bytes())?;
                self.out.write_all(&self.room[..size])?;
            } else {
                self.out.write_all(&(self.block.len() as u32 | LZ4_STORED).to_le_bytes())?;
                self.out.write_all(&self.block)?;
            }
        } else {
            let size = snap::raw::Encoder::new().compress(&self.block, &mut self.room).map_err(io::Error::other)?;
            self.out.write_all(&(size as u32).to_be_bytes())?;
            self.out.write_all(&self.room[..size])?;
        }
        self.block.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<Bounded> {
        if !self.block.is_empty() {
            self.close_block()?;
        }
        if self.lz4 {
            self.out.write_all(&[0; 4])?;
        }
        Ok(self.out)
    }
}
