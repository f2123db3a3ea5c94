//! Any bytes as a key or value of an internal topic, or another message that is no request or response: its number in the
//! table and its version (a byte each), then its body.
#![no_main]

use bytes::Bytes;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let [number, version, body @ ..] = input
        && let Some(message) = protocol_fuzz::records().nth(usize::from(*number))
    {
        (message.decode)(Bytes::copy_from_slice(body), i16::from(*version));
    }
});
