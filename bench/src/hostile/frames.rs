//! Frames, headers and bodies that are not what they claim: sizes, API keys, versions, lengths of arrays and strings.

use std::time::Duration;

use super::Input;
use super::probe::{Answer, Step};
use super::wire::{Bytes, TOPIC, api, api_versions, flexible, frame, request};

/// `socket.request.max.bytes` by default.
const REQUEST_BYTES_MAX: i32 = 100 << 20;
/// Garbage that is the same in every run.
const GARBAGE: [u8; 24] =
    *b"\xff\xfe\x80\x7f\x00\x13\x37\xde\xad\xbe\xef\xff\xff\xff\xff\x0f\x81\x82\x83\x84\x85\x86\x87\x88";

pub(super) fn inputs() -> Vec<Input> {
    let mut all = sizes();
    all.extend(headers());
    all.extend(claims());
    all
}

fn sizes() -> Vec<Input> {
    let size = |value: i32| Bytes::default().i32(value).0;
    let start = api_versions();
    vec![
        Input::raw("frame size 2147483647", size(i32::MAX)),
        Input::raw("frame size -1", size(-1)),
        Input::raw("frame size -2147483648", size(i32::MIN)),
        Input::raw("frame size 0", size(0)),
        Input::raw("frame of 3 bytes", frame(&[0, 18, 0])),
        Input::raw(
            "frame size one above socket.request.max.bytes",
            size(REQUEST_BYTES_MAX + 1),
        ),
        Input::raw(
            "frame size of socket.request.max.bytes, then silence",
            size(REQUEST_BYTES_MAX),
        ),
        Input::raw("half a size, then silence", vec![0, 0]),
        Input::new(
            "half a request, then the end of the stream",
            vec![Step::Send(start[..9].to_vec()), Step::End],
        ),
        Input::new(
            "half a request, then silence",
            vec![Step::Send(start[..9].to_vec())],
        ),
        Input::new(
            "a request, one byte every 100 ms",
            vec![Step::Drip(api_versions(), Duration::from_millis(100))],
        ),
        Input::raw("TLS client hello", tls_hello()),
        Input::raw("HTTP GET", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        Input::raw("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        Input::raw("SSH greeting", b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()),
        Input::new("nothing, then the end of the stream", vec![Step::End]),
    ]
}

/// The first bytes that a TLS 1.2 or 1.3 client sends.
fn tls_hello() -> Vec<u8> {
    let mut hello = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    hello.resize(517, 0x5a);
    hello
}

fn headers() -> Vec<Input> {
    let header = || Bytes::default().i16(api::METADATA).i16(1).i32(7);
    let versions_99 = flexible(api::API_VERSIONS, 99, &[]);
    vec![
        Input::raw("unknown API key 9999", request(9999, 0, &[])),
        Input::raw("API key -1", request(-1, 0, &[])),
        Input::raw("Metadata version 99", request(api::METADATA, 99, &[0; 8])),
        Input::raw("Metadata version -1", request(api::METADATA, -1, &[0; 8])),
        Input::raw(
            "Fetch version 0, no longer spoken",
            request(api::FETCH, 0, &[0; 16]),
        ),
        Input::raw("ApiVersions version 99", versions_99).answer(Answer::ApiVersions),
        Input::raw("ApiVersions version -1", request(api::API_VERSIONS, -1, &[])).answer(Answer::ApiVersions),
        Input::raw(
            "client id longer than the frame",
            frame(&header().i16(30_000).raw(b"short").0),
        ),
        Input::raw("client id of length -2", frame(&header().i16(-2).i32(0).0)),
        Input::raw(
            "null client id",
            frame(&Bytes::default().i16(api::API_VERSIONS).i16(0).i32(7).i16(-1).0),
        ),
        Input::raw(
            "client id that is not UTF-8",
            frame(&Bytes::default().i16(18).i16(0).i32(7).i16(2).raw(&[0xff, 0xfe]).0),
        ),
        Input::raw(
            "header without its end",
            frame(&Bytes::default().i16(api::METADATA).i16(1).0),
        ),
        Input::raw(
            "garbage after a valid header (Metadata 1)",
            request(api::METADATA, 1, &GARBAGE),
        ),
        Input::raw(
            "garbage after a valid header (Metadata 12)",
            flexible(api::METADATA, 12, &GARBAGE),
        ),
        Input::raw(
            "garbage after a valid header (Produce 8)",
            request(api::PRODUCE, 8, &GARBAGE),
        ),
        Input::raw(
            "garbage after a valid header (Fetch 4)",
            request(api::FETCH, 4, &GARBAGE),
        ),
        Input::raw(
            "a valid request with 24 bytes behind it",
            request(api::API_VERSIONS, 0, &GARBAGE),
        ),
        Input::raw(
            "an empty body where one is due (Metadata 1)",
            request(api::METADATA, 1, &[]),
        ),
    ]
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn claims() -> Vec<Input> {
    let huge = i32::MAX;
    let tag_bomb = Bytes::default().uvarint(1).i8(1).uvarint(u64::from(u32::MAX)).0;
    vec![
        Input::raw(
            "Metadata 1 claims 2147483647 topics",
            request(api::METADATA, 1, &Bytes::default().i32(huge).0),
        ),
        Input::raw(
            "Metadata 1 claims -2 topics",
            request(api::METADATA, 1, &Bytes::default().i32(-2).0),
        ),
        Input::raw(
            "Metadata 12 claims 4294967294 topics",
            flexible(
                api::METADATA,
                12,
                &Bytes::default().uvarint(u64::from(u32::MAX)).0,
            ),
        ),
        Input::raw(
            "Metadata 12 with a varint of 11 bytes",
            flexible(api::METADATA, 12, &[0xff; 11]),
        ),
        Input::raw(
            "Metadata 12 claims 4294967295 tagged fields",
            flexible(api::METADATA, 12, &tag_bomb),
        ),
        Input::raw(
            "Metadata 12: a tagged field longer than the request",
            flexible(
                api::METADATA,
                12,
                &Bytes::default()
                    .uvarint(1)
                    .i8(1)
                    .i8(0)
                    .uvarint(1)
                    .uvarint(0)
                    .uvarint(1 << 31)
                    .0,
            ),
        ),
        Input::raw(
            "Produce 8 claims 2147483647 topics",
            request(
                api::PRODUCE,
                8,
                &Bytes::default().i16(-1).i16(1).i32(100).i32(huge).0,
            ),
        ),
        Input::raw(
            "Produce 8 claims 2147483647 bytes of records",
            request(
                api::PRODUCE,
                8,
                &Bytes::default()
                    .i16(-1)
                    .i16(1)
                    .i32(100)
                    .i32(1)
                    .string(TOPIC)
                    .i32(1)
                    .i32(0)
                    .i32(huge)
                    .0,
            ),
        ),
        Input::raw(
            "Fetch 4 claims 2147483647 partitions",
            request(
                api::FETCH,
                4,
                &Bytes::default()
                    .i32(-1)
                    .i32(0)
                    .i32(1)
                    .i32(1 << 20)
                    .i8(0)
                    .i32(1)
                    .string(TOPIC)
                    .i32(huge)
                    .0,
            ),
        ),
        Input::raw(
            "topic name of length -2",
            request(api::METADATA, 1, &Bytes::default().i32(1).i16(-2).0),
        ),
        Input::raw(
            "null topic name",
            request(api::METADATA, 1, &Bytes::default().i32(1).i16(-1).0),
        ),
        Input::raw(
            "topic name that is not UTF-8",
            request(
                api::METADATA,
                1,
                &Bytes::default().i32(1).i16(2).raw(&[0xff, 0xfe]).0,
            ),
        ),
        Input::raw(
            "topic name that is not allowed",
            request(api::METADATA, 1, &Bytes::default().i32(1).string("../etc/x y").0),
        ),
        Input::raw("fetch of an offset far beyond the end", fetch_at(i64::MAX)).answer(Answer::Fetch),
        Input::raw("fetch of offset -5", fetch_at(-5)).answer(Answer::Fetch),
        Input::raw("ListOffsets of timestamp -99", list_offsets(-99)).answer(Answer::ListOffsets),
    ]
}

fn fetch_at(offset: i64) -> Vec<u8> {
    let body = Bytes::default().i32(-1).i32(0).i32(0).i32(1 << 20).i8(0);
    request(
        api::FETCH,
        4,
        &body.i32(1).string(TOPIC).i32(1).i32(0).i64(offset).i32(1 << 20).0,
    )
}

fn list_offsets(timestamp: i64) -> Vec<u8> {
    request(
        api::LIST_OFFSETS,
        1,
        &Bytes::default()
            .i32(-1)
            .i32(1)
            .string(TOPIC)
            .i32(1)
            .i32(0)
            .i64(timestamp)
            .0,
    )
}
