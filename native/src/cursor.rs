//! Reads one record after the other from windows; a record may span several windows.

use crate::varint::{CUT, signed, signed_long};
use crate::windows::{Stop, Windows};

pub(crate) struct Cursor<W> {
    windows: W,
    at: usize,   // in the window
    before: u64, // bytes of the windows before it
    limit: u64,
}

/// A record's metadata; offset and timestamp are deltas.
pub(crate) struct Seen {
    pub(crate) offset_delta: i32,
    pub(crate) time_delta: i64,
    pub(crate) has_key: bool,
}

/// The same, with key and value. `headers` is their number.
pub(crate) struct Taken {
    pub(crate) offset_delta: i32,
    pub(crate) time_delta: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: u32,
}

impl<W: Windows> Cursor<W> {
    pub(crate) fn new(windows: W, limit: u64) -> Self {
        Cursor { windows, at: 0, before: 0, limit }
    }

    #[inline(always)]
    pub(crate) fn position(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Whether nothing follows. Reads more windows until that is known.
    pub(crate) fn ended(&mut self) -> Result<bool, Stop> {
        Ok(self.at == self.windows.window().len() && !self.more()?)
    }

    /// The window is used up: get another one.
    #[cold]
    fn more(&mut self) -> Result<bool, Stop> {
        loop {
            self.before += self.windows.window().len() as u64;
            self.at = 0;
            let more = self.windows.next()?;
            let size = self.windows.window().len();
            if self.before + size as u64 > self.limit {
                return Err(Stop::Over);
            }
            if size > 0 || !more {
                return Ok(more);
            }
        }
    }

    #[inline(always)]
    fn byte(&mut self) -> Result<u8, Stop> {
        if let Some(found) = self.windows.window().get(self.at) {
            self.at += 1;
            return Ok(*found);
        }
        self.next_byte()
    }

    #[cold]
    fn next_byte(&mut self) -> Result<u8, Stop> {
        if !self.more()? {
            return Err(CUT.into());
        }
        self.at = 1;
        Ok(self.windows.window()[0])
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<i32, Stop> {
        let low = self.byte()?;
        Ok(signed(if low < 128 { u32::from(low) } else { self.rest(low, 5)? as u32 }))
    }

    #[inline(always)]
    fn varlong(&mut self) -> Result<i64, Stop> {
        let low = self.byte()?;
        Ok(signed_long(if low < 128 { u64::from(low) } else { self.rest(low, 10)? }))
    }

    /// Bits beyond the type are dropped, as Java does.
    #[inline]
    fn rest(&mut self, low: u8, size_max: u32) -> Result<u64, Stop> {
        let mut value = u64::from(low & 127);
        for shift in 1..size_max {
            let next = self.byte()?;
            value |= u64::from(next & 127) << (7 * shift);
            if next < 128 {
                return Ok(value);
            }
        }
        Err("a varint is too long".into())
    }

    #[inline(always)]
    fn skip(&mut self, size: usize) -> Result<(), Stop> {
        if size <= self.windows.window().len() - self.at {
            self.at += size;
            return Ok(());
        }
        self.skip_far(size)
    }

    #[cold]
    fn skip_far(&mut self, mut size: usize) -> Result<(), Stop> {
        loop {
            let here = self.windows.window().len() - self.at;
            if size <= here {
                self.at += size;
                return Ok(());
            }
            size -= here;
            if !self.more()? {
                return Err(CUT.into());
            }
        }
    }

    fn take(&mut self, size: usize) -> Result<Vec<u8>, Stop> {
        let mut found = Vec::new(); // grows with the bytes read, not with the declared length
        loop {
            let here = &self.windows.window()[self.at..];
            let wanted = (size - found.len()).min(here.len());
            found.extend_from_slice(&here[..wanted]);
            self.at += wanted;
            if found.len() == size {
                return Ok(found);
            }
            if !self.more()? {
                return Err(CUT.into());
            }
        }
    }

    /// The length of a key or value that must end before `end`; None for null.
    #[inline(always)]
    fn length(&mut self, end: u64) -> Result<Option<usize>, Stop> {
        let size = self.varint()?;
        if size < 0 {
            return if size == -1 { Ok(None) } else { Err("a length is below -1".into()) };
        }
        if size as u64 > end.saturating_sub(self.position()) {
            return Err("a length reaches past its record".into());
        }
        Ok(Some(size as usize))
    }

    #[inline(always)]
    fn skip_blob(&mut self, end: u64) -> Result<bool, Stop> {
        match self.length(end)? {
            Some(size) => self.skip(size).map(|()| true),
            None => Ok(false),
        }
    }

    fn take_blob(&mut self, end: u64) -> Result<Option<Vec<u8>>, Stop> {
        self.length(end)?.map(|size| self.take(size)).transpose()
    }

    /// Reads the size of the record and its attributes, which are unused so far; returns where it must end.
    #[inline(always)]
    fn begin(&mut self) -> Result<u64, Stop> {
        let size = self.varint()?;
        if size < 0 {
            return Err("a record has a negative size".into());
        }
        let end = self.position() + size as u64;
        self.byte()?;
        Ok(end)
    }

    #[inline(always)]
    fn end(&mut self, end: u64) -> Result<u32, Stop> {
        let count = self.varint()?;
        if count != 0 {
            self.skip_headers(count, end)?;
        }
        if self.position() != end { Err("a record does not end where its size says".into()) } else { Ok(count as u32) }
    }

    #[inline(never)]
    fn skip_headers(&mut self, count: i32, end: u64) -> Result<(), Stop> {
        if count < 0 || count as u64 > end.saturating_sub(self.position()) {
            return Err(format!("a record cannot have {count} headers").into());
        }
        for _ in 0..count {
            if !self.skip_blob(end)? {
                return Err("a header key cannot be null".into());
            }
            self.skip_blob(end)?;
        }
        Ok(())
    }

    /// Walks over every field of one record.
    #[inline(always)]
    pub(crate) fn record(&mut self) -> Result<Seen, Stop> {
        let end = self.begin()?;
        let (time_delta, offset_delta) = (self.varlong()?, self.varint()?);
        let has_key = self.skip_blob(end)?;
        self.skip_blob(end)?;
        self.end(end)?;
        Ok(Seen { offset_delta, time_delta, has_key })
    }

    /// The same, with a copy of the key and the value.
    pub(crate) fn take_record(&mut self) -> Result<Taken, Stop> {
        let end = self.begin()?;
        let (time_delta, offset_delta) = (self.varlong()?, self.varint()?);
        let (key, value) = (self.take_blob(end)?, self.take_blob(end)?);
        let headers = self.end(end)?;
        Ok(Taken { offset_delta, time_delta, key, value, headers })
    }
}
