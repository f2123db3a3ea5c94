//! What the fuzz targets share: a table of all messages, and the checks that hold for any input. A target panics when one
//! of them does not hold; that, a crash, more than 1 GiB of memory or ten seconds is a finding.

use std::cell::RefCell;
use std::io::Read;

use bytes::Bytes;
use protocol::compression::{Codec, CodecContexts, Decompressor};
use protocol::message::Message;
use protocol::record::{
    BATCH_HEADER_BYTES, BATCH_LENGTH_OVERHEAD_BYTES, BatchHeader, BatchView, Batches, ProduceRules,
    RecordStream, TimestampType, TopicCompression, Walk, validate,
};
use protocol::{DecodeLimits, Reader};

/// Decompressed bytes a target may produce from one input.
const DECOMPRESSED_BYTES_MAX: u64 = 1 << 20;

/// A message type, by its name, key and versions.
pub struct MessageType {
    /// Kafka's name.
    pub name: &'static str,
    /// API key, record type number, or −1.
    pub key: i16,
    /// Lowest and highest version.
    pub versions: (i16, i16),
    /// Decodes the body in a version as one of a client, and checks it.
    pub decode: fn(Bytes, i16),
    /// The body of a default message.
    pub default_body: fn(i16) -> Option<Bytes>,
}

/// What decodes must encode, to bytes that decode to the same message.
fn decode<M: Message>(body: Bytes, version: i16) {
    let mut reader = Reader::with_limits(body, DecodeLimits::CLIENT);
    let Ok(message) = M::decode(&mut reader, version) else {
        return;
    };
    let encoded = match message.to_bytes(version) {
        Ok(encoded) => encoded,
        Err(error) => panic!(
            "{} version {version} decodes to what it cannot encode: {error}",
            M::NAME
        ),
    };
    let again = M::decode(&mut Reader::with_limits(encoded, DecodeLimits::TRUSTED), version);
    // Compared as text, in which not-a-number equals itself.
    assert_eq!(
        again.map(|again| format!("{again:?}")).ok(),
        Some(format!("{message:?}")),
        "{} version {version}",
        M::NAME
    );
}

fn default_body<M: Message>(version: i16) -> Option<Bytes> {
    M::default().to_bytes(version).ok()
}

macro_rules! table {
    ($($name:ident)*) => {
        /// Every message.
        pub static MESSAGES: &[MessageType] = &[$(MessageType {
            name: <protocol::messages::$name as Message>::NAME,
            key: <protocol::messages::$name as Message>::API_KEY,
            versions: (
                <protocol::messages::$name as Message>::MIN_VERSION,
                <protocol::messages::$name as Message>::MAX_VERSION,
            ),
            decode: decode::<protocol::messages::$name>,
            default_body: default_body::<protocol::messages::$name>,
        }),*];
    };
}

protocol::with_all_messages!(table);

/// The request or response of an API.
pub fn message(key: i16, suffix: &str) -> Option<&'static MessageType> {
    MESSAGES
        .iter()
        .find(|message| message.key == key && message.name.ends_with(suffix))
}

/// Messages that are neither requests nor responses, in the order of the table.
pub fn records() -> impl Iterator<Item = &'static MessageType> {
    MESSAGES
        .iter()
        .filter(|message| !message.name.ends_with("Request") && !message.name.ends_with("Response"))
}

thread_local! {
    /// Contexts that are reused from input to input, as a shard does.
    static CONTEXTS: RefCell<CodecContexts> = RefCell::default();
}

/// Validates `input` as one partition's records under rules taken from its first byte; what is accepted must be readable.
pub fn check_batch(input: &[u8]) {
    let Some((flags, bytes)) = input.split_first() else {
        return;
    };
    let mut bytes = bytes.to_vec();
    if flags & 0x01 == 0 {
        seal(&mut bytes);
    }
    let codec = Codec::ALL.get(usize::from(flags >> 4)).copied();
    let rules = ProduceRules {
        version: if flags & 0x02 == 0 { 12 } else { 6 },
        now_ms: 1_700_000_000_000,
        max_message_bytes: 1 << 20,
        timestamp_type: if flags & 0x04 == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        },
        compacted: flags & 0x08 != 0,
        compression: codec.map_or(TopicCompression::Producer, |codec| TopicCompression::Codec {
            codec,
            level: 1,
        }),
        decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
        ..ProduceRules::default()
    };
    CONTEXTS.with_borrow_mut(|contexts| validate_and_read(&Bytes::from(bytes), &rules, contexts));
}

fn validate_and_read(sent: &Bytes, rules: &ProduceRules, contexts: &mut CodecContexts) {
    let _ = validate(
        sent,
        &ProduceRules {
            walk: Walk::Header,
            ..*rules
        },
        contexts,
    );
    if let Ok(validated) = validate(sent, rules, contexts) {
        let stored = [validated.head(5, 7).as_slice(), &validated.records].concat();
        let view = BatchView::parse(&stored, 0).expect("what is accepted is a batch");
        view.check_crc(0).expect("its CRC is right");
        let mut stream =
            RecordStream::new(&view, &mut contexts.decompressor, DECOMPRESSED_BYTES_MAX).expect("readable");
        let mut count = 0;
        while let Some(record) = stream.next_record().expect("each record is readable") {
            assert_eq!(record.offset_delta, count);
            assert_eq!(record.headers.iter().count(), record.headers.len());
            count += 1;
        }
        assert_eq!(count, view.header().record_count);
    }
    for batch in Batches::new(sent, 0) {
        let Ok((_, batch)) = batch else { break };
        let Ok(mut stream) = RecordStream::new(&batch, &mut contexts.decompressor, DECOMPRESSED_BYTES_MAX)
        else {
            continue;
        };
        while let Ok(Some(_)) = stream.next_record() {}
    }
}

/// Makes length and CRC right, which no fuzzer would find.
fn seal(bytes: &mut [u8]) {
    let length = (bytes.len().saturating_sub(BATCH_LENGTH_OVERHEAD_BYTES)) as i32;
    if let Some((head, records)) = bytes.split_first_chunk_mut::<BATCH_HEADER_BYTES>() {
        let mut header = BatchHeader {
            batch_length: length,
            magic: 2,
            ..BatchHeader::decode(head)
        };
        header.crc = header.computed_crc(records);
        *head = header.encode();
    }
}

/// Decompresses `input` in one go and in two limits; what comes out must be the same and must come back.
pub fn check_codec(codec: Codec, input: &[u8]) {
    CONTEXTS.with_borrow_mut(|contexts| decompress_and_back(codec, input, contexts));
}

fn decompress_and_back(codec: Codec, input: &[u8], contexts: &mut CodecContexts) {
    let mut out = Vec::new();
    let Ok(len) = contexts
        .decompressor
        .decompress(codec, input, DECOMPRESSED_BYTES_MAX, &mut out)
    else {
        return;
    };
    assert_eq!(len, out.len());
    if let Some(limit) = (len as u64).checked_sub(1) {
        assert!(
            contexts
                .decompressor
                .decompress(codec, input, limit, &mut Vec::new())
                .is_err()
        );
    }
    let mut packed = Vec::new();
    contexts
        .compressor
        .compress(codec, codec.level_default(), &out, &mut packed);
    let mut again = Vec::new();
    contexts
        .decompressor
        .decompress(codec, &packed, len as u64, &mut again)
        .expect("our own stream");
    assert!(again == out);
    second_opinion(codec, input, &out);
}

/// Where another implementation reads the input too, it must read the same.
fn second_opinion(codec: Codec, input: &[u8], out: &[u8]) {
    let mut theirs = Vec::new();
    let read = match codec {
        Codec::Gzip => flate2::read::MultiGzDecoder::new(input).read_to_end(&mut theirs),
        Codec::Lz4 => lz4_flex::frame::FrameDecoder::new(input).read_to_end(&mut theirs),
        _ => return,
    };
    if read.is_ok() {
        assert!(
            theirs == out,
            "{codec}: {} bytes, another reader {}",
            out.len(),
            theirs.len()
        );
    }
}

/// Decompresses into chunks with a context that is reused, as a shard does.
pub fn check_reuse(codec: Codec, inputs: [&[u8]; 2]) {
    let mut shared = Decompressor::new();
    for input in inputs {
        let mut fresh = Vec::new();
        let expected = Decompressor::new().decompress(codec, input, DECOMPRESSED_BYTES_MAX, &mut fresh);
        let mut reused = Vec::new();
        assert_eq!(
            shared.decompress(codec, input, DECOMPRESSED_BYTES_MAX, &mut reused),
            expected
        );
        assert!(reused == fresh);
    }
}
