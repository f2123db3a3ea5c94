//! Any bytes as a gzip stream: bounded output, the same from a reused context, and a way back.
#![no_main]

use protocol::compression::Codec;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    protocol_fuzz::check_codec(Codec::Gzip, input);
    protocol_fuzz::check_reuse(Codec::Gzip, input.split_at(input.len() / 2).into());
});
