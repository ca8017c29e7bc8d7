//! Headers of lz4 and zstd frames: how large their content can be, before anything is decompressed.

use crate::varint::Claim;
use crate::xxhash::xxh32;

const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
pub(crate) const LZ4_STORED: u32 = 0x8000_0000;
const LZ4_RATIO_MAX: usize = 255;
/// Magic, flags (version 1, independent blocks, no checksums, no size), block size, hash of these two: the header that
/// the Java client and librdkafka write, for blocks of 64 KiB and for the three larger sizes.
const LZ4_PLAIN: [[u8; 7]; 4] = [
    [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82],
    [0x04, 0x22, 0x4d, 0x18, 0x60, 0x50, 0xfb],
    [0x04, 0x22, 0x4d, 0x18, 0x60, 0x60, 0x51],
    [0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73],
];
const LZ4_BLOCK_MIN: usize = 64 * 1024;

const ZSTD_MAGIC: u32 = 0xfd2f_b528;
const ZSTD_SKIPPABLE: u32 = 0x0184_d2a5; // without its lowest four bits, which are free
const ZSTD_BLOCK_MAX: usize = 128 * 1024;
const ZSTD_REPEAT: usize = 1;
const ZSTD_COMPRESSED: usize = 2;

/// The header of an lz4 frame as Kafka reads it: no dictionary, and independent blocks.
#[derive(Clone, Copy)]
pub(crate) struct Lz4Frame {
    pub(crate) header_size: usize,
    pub(crate) block_max: usize,
    pub(crate) block_hash: bool,
    pub(crate) content_hash: bool,
}

impl Lz4Frame {
    pub(crate) fn read(data: &[u8]) -> Claim<Self> {
        let &[flags, block] = data.strip_prefix(&LZ4_MAGIC).and_then(<[u8]>::first_chunk).ok_or("lz4: not a frame")?;
        if flags >> 6 != 1 || flags & 0b11 != 0 || block & 0b1000_1111 != 0 || block >> 4 < 4 {
            return Err("lz4: a frame of no known kind");
        }
        if flags & 0b10_0000 == 0 {
            return Err("lz4: blocks that depend on each other");
        }
        let hash_at = 6 + if flags & 0b1000 != 0 { 8 } else { 0 }; // the content size, ignored
        let hash = *data.get(hash_at).ok_or("lz4: the frame is cut short")?;
        if (xxh32(&data[4..hash_at]) >> 8) as u8 != hash {
            return Err("lz4: the header of the frame does not match its checksum");
        }
        Ok(Lz4Frame {
            header_size: hash_at + 1,
            block_max: 1 << (8 + 2 * (block >> 4)),
            block_hash: flags & 0b1_0000 != 0,
            content_hash: flags & 0b100 != 0,
        })
    }
}

/// Up to eight bytes, little-endian; bytes beyond the end count as zero.
fn number(data: &[u8], at: usize, size: usize) -> u64 {
    let found = data.get(at..).unwrap_or_default();
    found[..found.len().min(size)].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

pub(crate) fn lz4_bound(data: &[u8]) -> Claim<usize> {
    let (mut bound, mut at) = (0_usize, 0);
    while at < data.len() {
        if data.len() - at < 7 || data[at..at + 4] != LZ4_MAGIC {
            return Err("lz4: not a frame");
        }
        let (flags, block_max) = (data[at + 4], 1_usize << (8 + 2 * (data[at + 5] >> 4 & 7)));
        let flag = |bit: u8| usize::from(flags >> bit & 1);
        at += 7 + 8 * flag(3) + 4 * flag(0); // content size, dictionary
        loop {
            let word = number(data, at, 4) as u32;
            if word == 0 {
                break;
            }
            let length = (word & !LZ4_STORED) as usize;
            bound = bound.saturating_add(if word & LZ4_STORED != 0 {
                length
            } else {
                block_max.min(length.saturating_mul(LZ4_RATIO_MAX))
            });
            at += 4 + length + 4 * flag(4); // its checksum
            if at > data.len() {
                return Err("lz4: a block is cut short");
            }
        }
        at += 4 + 4 * flag(2); // end mark, content checksum
    }
    Ok(bound)
}

/// Decompresses a frame of the kind that nearly all producers write, block by block in place. None if it is of another
/// kind or invalid: the library's own frame reader then decides.
pub(crate) fn lz4_plain(data: &[u8], room: &mut [u8]) -> Option<usize> {
    let kind = LZ4_PLAIN.iter().position(|header| data.starts_with(header))?;
    let block_max = LZ4_BLOCK_MIN << (2 * kind);
    let (mut at, mut size) = (7, 0);
    loop {
        let word = u32::from_le_bytes(*data.get(at..)?.first_chunk()?);
        at += 4;
        if word == 0 {
            return (at == data.len()).then_some(size);
        }
        let length = (word & !LZ4_STORED) as usize;
        let block = data.get(at..at + length)?;
        if length > block_max {
            return None;
        }
        if word & LZ4_STORED != 0 {
            room.get_mut(size..size + length)?.copy_from_slice(block);
            size += length;
        } else {
            let left = room.len() - size;
            let most = left.min(block_max);
            size += lz4::block::decompress_to_buffer(block, Some(most as i32), &mut room[size..]).ok()?;
        }
        at += length;
    }
}

/// The most bytes that the frames can decompress to, and the largest window that one of them declares.
pub(crate) fn zstd_bound(data: &[u8]) -> Claim<(usize, u64)> {
    let (mut bound, mut at, mut window) = (0_usize, 0, 0);
    while at < data.len() {
        let left = data.len() - at;
        let magic = number(data, at, 4) as u32;
        if left >= 4 && magic >> 4 == ZSTD_SKIPPABLE {
            at = at.saturating_add(8 + number(data, at + 4, 4) as usize);
            continue;
        }
        if left < 6 || magic != ZSTD_MAGIC {
            return Err("zstd: not a frame");
        }
        window = window.max(zstd_window(data, at));
        let (frame, after) = zstd_frame(data, at)?;
        bound = bound.saturating_add(frame);
        at = after;
    }
    Ok((bound, window))
}

/// The most bytes that the frame at `at` can decompress to, and where it ends.
fn zstd_frame(data: &[u8], mut at: usize) -> Claim<(usize, usize)> {
    let descriptor = data[at + 4];
    let (single, size_flag) = (usize::from(descriptor >> 5 & 1), descriptor >> 6);
    at += 6 - single + [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_length = if size_flag == 0 { single } else { 1 << size_flag };
    let content = number(data, at, size_length).saturating_add(if size_flag == 1 { 256 } else { 0 });
    at += size_length;
    let mut blocks = 0_usize;
    loop {
        if at + 3 > data.len() {
            return Err("zstd: a block is cut short");
        }
        let block = number(data, at, 3) as usize;
        let (last, kind, length) = (block & 1, block >> 1 & 3, block >> 3);
        blocks = blocks.saturating_add(if kind == ZSTD_COMPRESSED { ZSTD_BLOCK_MAX } else { length });
        at += 3 + if kind == ZSTD_REPEAT { 1 } else { length };
        if last == 1 {
            break;
        }
    }
    let most =
        if size_length > 0 { usize::try_from(content).map_or(blocks, |content| blocks.min(content)) } else { blocks };
    Ok((most, at + 4 * usize::from(descriptor >> 2 & 1))) // content checksum
}

fn zstd_window(data: &[u8], at: usize) -> u64 {
    let descriptor = data[at + 4];
    if descriptor >> 5 & 1 == 1 {
        let at = at + 5 + [0, 1, 2, 4][usize::from(descriptor & 3)]; // single segment: the window is the whole content
        return number(data, at, 1 << (descriptor >> 6));
    }
    let window = data[at + 5];
    let base = 1_u64 << (10 + (window >> 3));
    base + base / 8 * u64::from(window & 7)
}
