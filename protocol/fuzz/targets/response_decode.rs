//! Any bytes as a response: API key and version (two bytes each) for what a client would know, then the frame without its
//! length.
#![no_main]

use bytes::Bytes;
use protocol::header::ResponseHeader;
use protocol::{ApiKey, Reader};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut reader = Reader::new(Bytes::copy_from_slice(input));
    let (Ok(key), Ok(version)) = (reader.i16(), reader.i16()) else {
        return;
    };
    let Some(api_key) = ApiKey::from_i16(key) else {
        return;
    };
    if ResponseHeader::decode(&mut reader, api_key, version).is_err() {
        return;
    }
    if let Some(message) = protocol_fuzz::message(key, "Response") {
        (message.decode)(reader.rest(), version);
    }
});
