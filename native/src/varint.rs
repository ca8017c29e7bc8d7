//! Zigzag varints: seven bits per byte, lowest first, the sign in the lowest bit.

/// Malformed bytes, and why.
pub(crate) type Claim<T> = Result<T, &'static str>;

pub(crate) const CUT: &str = "a record is cut short";

/// The byte at `at`; advances `at`.
#[inline(always)]
pub(crate) fn byte(data: &[u8], at: &mut usize) -> Claim<u8> {
    let found = *data.get(*at).ok_or(CUT)?;
    *at += 1;
    Ok(found)
}

/// 32 bits, still zigzag: an odd number is negative. Nearly all have one byte.
#[inline(always)]
pub(crate) fn unsigned(data: &[u8], at: &mut usize) -> Claim<u32> {
    let low = byte(data, at)?;
    if low < 128 { Ok(u32::from(low)) } else { Ok(rest::<5>(low, data, at)? as u32) }
}

#[inline(always)]
pub(crate) fn unsigned_long(data: &[u8], at: &mut usize) -> Claim<u64> {
    let low = byte(data, at)?;
    if low < 128 { Ok(u64::from(low)) } else { rest::<10>(low, data, at) }
}

/// Bits beyond the type are dropped, as Java does.
fn rest<const SIZE_MAX: u32>(low: u8, data: &[u8], at: &mut usize) -> Claim<u64> {
    let mut value = u64::from(low & 127);
    for shift in 1..SIZE_MAX {
        let next = byte(data, at)?;
        value |= u64::from(next & 127) << (7 * shift);
        if next < 128 {
            return Ok(value);
        }
    }
    Err("a varint is too long")
}

#[inline(always)]
pub(crate) fn signed(zigzag: u32) -> i32 {
    (zigzag >> 1) as i32 ^ -((zigzag & 1) as i32)
}

#[inline(always)]
pub(crate) fn signed_long(zigzag: u64) -> i64 {
    (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)
}

#[inline(always)]
pub(crate) fn put(value: i64, out: &mut Vec<u8>) {
    let mut zigzag = (value << 1 ^ value >> 63) as u64;
    while zigzag > 127 {
        out.push(zigzag as u8 | 128);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

#[inline(always)]
pub(crate) fn size(value: i64) -> usize {
    let zigzag = (value << 1 ^ value >> 63) as u64;
    (70 - (zigzag | 1).leading_zeros() as usize) / 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_read_again() {
        for power in 0..64 {
            for value in [1_i64 << power, (1_i64 << power).wrapping_neg(), (1_i64 << power).wrapping_sub(1), 0] {
                let mut out = Vec::new();
                put(value, &mut out);
                assert_eq!(out.len(), size(value), "{value}");
                let mut at = 0;
                assert_eq!(signed_long(unsigned_long(&out, &mut at).unwrap()), value);
                assert_eq!(at, out.len());
                if i32::try_from(value).is_ok() {
                    assert_eq!(i64::from(signed(unsigned(&out, &mut 0).unwrap())), value);
                }
            }
        }
    }

    #[test]
    fn a_varint_ends() {
        assert!(unsigned(&[0xff; 6], &mut 0).is_err());
        assert!(unsigned_long(&[0xff; 11], &mut 0).is_err());
        assert_eq!(unsigned(&[0x80], &mut 0), Err(CUT));
        assert_eq!(unsigned(&[], &mut 0), Err(CUT));
        assert_eq!(unsigned(&[0xff, 0xff, 0xff, 0xff, 0x7f], &mut 0), Ok(u32::MAX));
    }
}
