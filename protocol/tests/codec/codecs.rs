//! The generated messages as values, for tests that go over all of them. One test
//! binary holds these tests because each would compile all of this again.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::{DecodeError, DecodeLimits, Message, Reader};

/// What a test can do with a message type.
#[derive(Clone, Copy)]
pub(crate) struct Codec {
    pub(crate) name: &'static str,
    /// Decodes, drops the message, and says how many bytes were left.
    pub(crate) decode: fn(Bytes, i16, DecodeLimits) -> Result<usize, DecodeError>,
    /// Decodes in one version and encodes in another; nothing may be left over.
    pub(crate) recode: fn(Bytes, i16, i16) -> Result<Bytes, String>,
    /// Decodes the bytes of both, which must give equal messages, and the same again after encoding.
    pub(crate) equal: fn(Bytes, Bytes, i16) -> Result<(), String>,
    /// Encodes the default message, which must come back.
    pub(crate) default_survives: fn(i16) -> Result<(), String>,
}

fn decode<T: Message>(bytes: Bytes, version: i16, limits: DecodeLimits) -> Result<usize, DecodeError> {
    let mut r = Reader::with_limits(bytes, limits);
    T::decode(&mut r, version).map(|_| r.remaining())
}

fn recode<T: Message>(bytes: Bytes, decode: i16, encode: i16) -> Result<Bytes, String> {
    let message = T::from_bytes(bytes, decode).map_err(|e| format!("decoding: {e}"))?;
    message.to_bytes(encode).map_err(|e| format!("encoding: {e}"))
}

fn equal<T: Message>(one: Bytes, other: Bytes, version: i16) -> Result<(), String> {
    let (one, other) = (T::from_bytes(one, version), T::from_bytes(other, version));
    let (one, other) = (one.map_err(|e| e.to_string())?, other.map_err(|e| e.to_string())?);
    let again = one.to_bytes(version).map_err(|e| e.to_string())?;
    let again = T::from_bytes(again, version).map_err(|e| e.to_string())?;
    if one == other && one == again {
        Ok(())
    } else {
        Err("not equal".to_owned())
    }
}

fn default_survives<T: Message>(version: i16) -> Result<(), String> {
    let bytes = T::default().to_bytes(version).map_err(|e| e.to_string())?;
    let back = T::from_bytes(bytes, version).map_err(|e| e.to_string())?;
    if back == T::default() {
        Ok(())
    } else {
        Err("not equal".to_owned())
    }
}

fn codec<T: Message>() -> (&'static str, Codec) {
    let codec = Codec {
        name: T::NAME,
        decode: decode::<T>,
        recode: recode::<T>,
        equal: equal::<T>,
        default_survives: default_survives::<T>,
    };
    (T::NAME, codec)
}

macro_rules! all_codecs {
    ($($name:ident)*) => {
        /// Every generated message by name.
        pub(crate) fn codecs() -> BTreeMap<&'static str, Codec> {
            BTreeMap::from([$(codec::<protocol::messages::$name>()),*])
        }
    };
}

protocol::with_all_messages!(all_codecs);
