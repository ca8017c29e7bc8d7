//! Fields of requests in their frames, and fields of responses: for requests that are read without Python's message
//! classes. Unusual requests are not read here (None).

use std::ops::RangeInclusive;
use std::str::from_utf8;

const STRING_SIZE_MAX: usize = 0x7FFF;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Topic<'a> {
    Name(&'a str),
    Id(&'a [u8]),
}

impl Topic<'_> {
    pub(crate) fn put(self, out: &mut Vec<u8>, flexible: bool) {
        match self {
            Topic::Id(id) => out.extend(id),
            Topic::Name(name) => {
                if flexible {
                    put_varint(out, name.len() + 1);
                } else {
                    out.extend((name.len() as u16).to_be_bytes());
                }
                out.extend(name.as_bytes());
            }
        }
    }
}

/// Reads the fields of a frame in order; None where it ends too early or has something unusual.
pub(crate) struct Fields<'a> {
    frame: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(frame: &'a [u8]) -> Self {
        Fields { frame, at: 0 }
    }

    /// The version and the correlation id, if the request is of this API and in a supported version.
    pub(crate) fn header(&mut self, key: i16, versions: RangeInclusive<i16>, flexible: i16) -> Option<(i16, i32)> {
        let (found, version, correlation) = (self.short()?, self.short()?, self.int()?);
        if found != key || !versions.contains(&version) {
            return None;
        }
        let client = self.short()?;
        if client >= 0 {
            from_utf8(self.take(client as usize)?).ok()?;
        }
        self.no_tags(version >= flexible)?;
        Some((version, correlation))
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.frame.len()
    }

    pub(crate) fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(size)?;
        let found = self.frame.get(self.at..end)?;
        self.at = end;
        Some(found)
    }

    pub(crate) fn array<const SIZE: usize>(&mut self) -> Option<[u8; SIZE]> {
        self.take(SIZE)?.try_into().ok()
    }

    pub(crate) fn short(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// At most 32 bits in at most five bytes.
    pub(crate) fn varint(&mut self) -> Option<usize> {
        let mut value: u64 = 0;
        for shift in 0..5 {
            let [byte] = self.array()?;
            value |= u64::from(byte & 127) << (7 * shift);
            if byte < 128 {
                return u32::try_from(value).ok().map(|value| value as usize);
            }
        }
        None
    }

    pub(crate) fn no_tags(&mut self, flexible: bool) -> Option<()> {
        (!flexible || self.array() == Some([0])).then_some(())
    }

    /// Some(None) is a null string.
    pub(crate) fn string(&mut self, flexible: bool) -> Option<Option<&'a str>> {
        let size = if flexible {
            self.varint()?.checked_sub(1)
        } else {
            usize::try_from(self.short()?).ok() // any negative length is null
        };
        match size {
            None => Some(None),
            Some(size) if size <= STRING_SIZE_MAX => from_utf8(self.take(size)?).ok().map(Some),
            Some(_) => None,
        }
    }

    /// Of a list or of records, neither of them null.
    pub(crate) fn count(&mut self, flexible: bool) -> Option<usize> {
        if flexible { self.varint()?.checked_sub(1) } else { usize::try_from(self.int()?).ok() }
    }
}

/// Of a list or of records, neither of them null.
pub(crate) fn put_count(out: &mut Vec<u8>, count: usize, flexible: bool) {
    if flexible {
        put_varint(out, count + 1);
    } else {
        out.extend((count as u32).to_be_bytes());
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value > 127 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}
