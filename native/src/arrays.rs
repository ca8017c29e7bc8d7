//! Arrow arrays as input: every access to their buffers is checked, so that no malformed array can do harm.

const WRONG: &str = "an array does not have the buffers that it claims";

/// Bit `row` of a validity bitmap; all are set if there is none.
fn set(valid: Option<&[u8]>, row: usize) -> Result<bool, &'static str> {
    match valid {
        None => Ok(true),
        Some(bits) => Ok(bits.get(row >> 3).ok_or(WRONG)? >> (row & 7) & 1 == 1),
    }
}

fn int(data: &[u8], row: usize) -> Result<i32, &'static str> {
    let bytes = data.get(4 * row..).and_then(|rest| rest.first_chunk()).ok_or(WRONG)?;
    Ok(i32::from_ne_bytes(*bytes))
}

/// The range of row `row`: positions[row]..positions[row + 1].
fn span(positions: &[u8], row: usize) -> Result<std::ops::Range<usize>, &'static str> {
    let (start, end) = (int(positions, row)?, int(positions, row + 1)?);
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => Ok(start..end),
        _ => Err(WRONG),
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Blobs<'a> {
    pub(crate) valid: Option<&'a [u8]>,
    pub(crate) positions: &'a [u8],
    pub(crate) data: &'a [u8],
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl<'a> Blobs<'a> {
    /// The bytes of all rows together, without regard to nulls.
    pub(crate) fn size(&self) -> usize {
        let ends = (int(self.positions, self.first), int(self.positions, self.first + self.count));
        if let (Ok(start), Ok(end)) = ends {
            usize::try_from(i64::from(end) - i64::from(start)).unwrap_or(0)
        } else {
            0
        }
    }

    #[inline]
    pub(crate) fn get(&self, row: usize) -> Result<Option<&'a [u8]>, &'static str> {
        let row = self.first + row;
        if !set(self.valid, row)? {
            return Ok(None);
        }
        self.data.get(span(self.positions, row)?).map(Some).ok_or(WRONG)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Lists<'a> {
    pub(crate) valid: Option<&'a [u8]>,
    pub(crate) positions: &'a [u8],
    pub(crate) first: usize,
    pub(crate) keys: Blobs<'a>,
    pub(crate) values: Blobs<'a>,
}

impl<'a> Lists<'a> {
    /// Which of the keys and values belong to the row.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> Result<std::ops::Range<usize>, &'static str> {
        let row = self.first + row;
        if !set(self.valid, row)? {
            return Ok(0..0);
        }
        let found = span(self.positions, row)?;
        if found.end <= self.keys.count.min(self.values.count) { Ok(found) } else { Err(WRONG) }
    }

    #[inline]
    pub(crate) fn header(&self, at: usize) -> Result<(&'a [u8], Option<&'a [u8]>), &'static str> {
        Ok((self.keys.get(at)?.ok_or("a header has no key")?, self.values.get(at)?))
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Numbers<'a> {
    pub(crate) valid: Option<&'a [u8]>,
    pub(crate) data: &'a [u8],
    pub(crate) first: usize,
}

impl Numbers<'_> {
    #[inline]
    pub(crate) fn int(&self, row: usize) -> Result<Option<i32>, &'static str> {
        let row = self.first + row;
        if set(self.valid, row)? { int(self.data, row).map(Some) } else { Ok(None) }
    }

    #[inline]
    pub(crate) fn long(&self, row: usize) -> Result<Option<i64>, &'static str> {
        let row = self.first + row;
        if !set(self.valid, row)? {
            return Ok(None);
        }
        let bytes = self.data.get(8 * row..).and_then(|rest| rest.first_chunk()).ok_or(WRONG)?;
        Ok(Some(i64::from_ne_bytes(*bytes)))
    }
}
