//! The binary form of single values: numbers in groups of seven bits, the lowest first; sequences after their length.

use crate::After;

/// The bytes are no program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are no program: they break off, or are damaged, at {at}")]
pub struct Damaged {
    /// Offset in bytes.
    pub at: usize,
}

/// A value in bytes.
pub trait Field: Sized {
    /// Appends the value.
    fn write(&self, out: &mut Vec<u8>);
    /// Reads a value.
    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged>;
}

/// The unread bytes.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The bytes are invalid.
    pub const fn damaged(&self) -> Damaged {
        Damaged { at: self.at }
    }

    /// Fails if bytes follow a program.
    pub const fn end(&self) -> Result<(), Damaged> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.damaged()) }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Damaged> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count)).ok_or(self.damaged())?;
        self.at += count;
        Ok(taken)
    }

    /// A byte.
    pub fn byte(&mut self) -> Result<u8, Damaged> {
        let byte = *self.bytes.get(self.at).ok_or(self.damaged())?;
        self.at += 1;
        Ok(byte)
    }
}

impl Field for u64 {
    fn write(&self, out: &mut Vec<u8>) {
        let mut left = *self;
        while left >= 0x80 {
            out.push(left as u8 | 0x80);
            left >>= 7;
        }
        out.push(left as u8);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut value = 0;
        for shift in (0..Self::BITS).step_by(7) {
            let byte = from.byte()?;
            value |= Self::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(from.damaged())
    }
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn write(&self, out: &mut Vec<u8>) {
                (*self as u64).write(out);
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
                <$type>::try_from(u64::read(from)?).map_err(|_| from.damaged())
            }
        }
    )*};
}

number!(u32, usize);

impl Field for bool {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(from.byte()? != 0)
    }
}

impl Field for f64 {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let damaged = from.damaged();
        from.take(8)?.try_into().map(Self::from_le_bytes).map_err(|_| damaged)
    }
}

impl Field for String {
    fn write(&self, out: &mut Vec<u8>) {
        self.len().write(out);
        out.extend(self.as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let len = usize::read(from)?;
        let damaged = from.damaged();
        Self::from_utf8(from.take(len)?.to_vec()).map_err(|_| damaged)
    }
}

impl<T: Field> Field for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.len().write(out);
        for each in self {
            each.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let len = usize::read(from)?;
        // Each takes a byte at least: nothing is allocated for values that cannot be there.
        let mut read = Self::with_capacity(len.min(from.bytes.len() - from.at));
        values(from, len, |value| read.push(value))?;
        Ok(read)
    }
}

impl Field for After {
    fn write(&self, out: &mut Vec<u8>) {
        self.len().write(out);
        for each in self {
            each.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let (len, mut read) = (usize::read(from)?, Self::new());
        values(from, len, |value| read.push(value))?;
        Ok(read)
    }
}

fn values<T: Field>(from: &mut Reader<'_>, len: usize, mut push: impl FnMut(T)) -> Result<(), Damaged> {
    for _ in 0..len {
        // A length alone may not grow memory.
        if from.at == from.bytes.len() {
            return Err(from.damaged());
        }
        push(T::read(from)?);
    }
    Ok(())
}

impl<T: Field> Field for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        bool::read(from)?.then(|| T::read(from)).transpose()
    }
}
