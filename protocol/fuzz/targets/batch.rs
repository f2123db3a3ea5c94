//! Any bytes as the records of a Produce request, under rules taken from the first byte.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocol_fuzz::check_batch(input));
