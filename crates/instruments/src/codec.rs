//! Binary messages: values with a fixed big-endian form, and structs of such values.

use bytes::{Buf, BufMut};

/// A value that always takes the same number of bytes in a message.
pub(crate) trait Wire {
    /// Writes the value.
    fn put(&self, to: &mut impl BufMut);

    /// Reads a value.
    ///
    /// # Panics
    /// Panics if too few bytes are left. Callers check the length of a message before they read its fields.
    fn get(from: &mut impl Buf) -> Self;
}

/// Reserved bytes, which are zero when sent and ignored when received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserved<const BYTES: usize>;

/// Implements [`Wire`] for a struct. The fields are listed in their order in the message.
macro_rules! wire_order {
    ($type:ty: $($field:ident),+ $(,)?) => {
        impl $crate::codec::Wire for $type {
            fn put(&self, to: &mut impl ::bytes::BufMut) {
                $($crate::codec::Wire::put(&self.$field, to);)+
            }

            fn get(from: &mut impl ::bytes::Buf) -> Self {
                Self { $($field: $crate::codec::Wire::get(from)),+ }
            }
        }
    };
}
pub(crate) use wire_order;

/// Returns the folded sum of 16-bit words of RFC 1071. It is 0xffff if the bytes include their own correct checksum.
pub(crate) fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes
        .chunks(2)
        .map(|pair| u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))
        .map(u32::from)
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

/// Implements serde for a type through its text, which [`Display`](std::fmt::Display) writes and
/// [`FromStr`](std::str::FromStr) reads.
macro_rules! as_text {
    ($type:ty) => {
        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
                target.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(source)?;
                text.parse().map_err(::serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use as_text;

macro_rules! integer {
    ($type:ty, $put:ident, $get:ident) => {
        impl Wire for $type {
            fn put(&self, to: &mut impl BufMut) {
                to.$put(*self);
            }

            fn get(from: &mut impl Buf) -> Self {
                from.$get()
            }
        }
    };
}

integer!(u8, put_u8, get_u8);
integer!(u16, put_u16, get_u16);
integer!(u32, put_u32, get_u32);
integer!(i32, put_i32, get_i32);
integer!(u64, put_u64, get_u64);

/// A byte; every value except 0 is true.
impl Wire for bool {
    fn put(&self, to: &mut impl BufMut) {
        to.put_u8((*self).into());
    }

    fn get(from: &mut impl Buf) -> Self {
        from.get_u8() != 0
    }
}

impl<const BYTES: usize> Wire for Reserved<BYTES> {
    fn put(&self, to: &mut impl BufMut) {
        to.put_bytes(0, BYTES);
    }

    fn get(from: &mut impl Buf) -> Self {
        from.advance(BYTES);
        Self
    }
}
