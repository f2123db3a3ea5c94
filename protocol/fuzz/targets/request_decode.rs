//! Any bytes as a request frame without its length: header, then the body of that API and version.
#![no_main]

use bytes::Bytes;
use protocol::Reader;
use protocol::header::RequestHeader;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut reader = Reader::new(Bytes::copy_from_slice(input));
    let Ok(header) = RequestHeader::decode(&mut reader) else {
        return;
    };
    if let Some(message) = protocol_fuzz::message(header.api_key.as_i16(), "Request") {
        (message.decode)(reader.rest(), header.api_version);
    }
});
