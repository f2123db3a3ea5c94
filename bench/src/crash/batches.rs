//! Batches for the workload: any bytes as records for data, which the log engine does not look into, and whole control records
//! for markers, which it does.

use bytes::Bytes;

/// Bytes of a batch header.
const HEADER_BYTES: usize = 61;
/// Where the bytes begin that a batch's checksum is over.
const CRC_START: usize = 21;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

/// Who writes a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Its id; −1 for none.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// The batch's first sequence.
    pub sequence: i32,
    /// Whether the batch is a part of a transaction.
    pub is_transactional: bool,
}

/// No producer id.
pub const PLAIN: Producer = Producer {
    id: -1,
    epoch: -1,
    sequence: -1,
    is_transactional: false,
};

/// A batch of `records` records, `size` bytes in all (at least 69), whose records are `fill`.
pub fn data(records: i32, size: usize, timestamp: i64, producer: Producer, fill: u8) -> Bytes {
    let attributes = if producer.is_transactional {
        TRANSACTIONAL
    } else {
        0
    };
    let body = vec![fill; size.max(HEADER_BYTES + 8) - HEADER_BYTES];
    batch(records, timestamp, producer, attributes, &body)
}

/// The marker that ends a transaction.
pub fn marker(timestamp: i64, id: i64, epoch: i16, is_abort: bool) -> Bytes {
    let producer = Producer {
        id,
        epoch,
        sequence: -1,
        is_transactional: true,
    };
    let kind = i16::from(!is_abort);
    // attributes, timestamp delta, offset delta, key length 4 (zigzag), key: version and type
    let mut record = vec![0, 0, 0, 8, 0, 0];
    record.extend_from_slice(&kind.to_be_bytes());
    // value length 6 (zigzag): version, coordinator epoch; no headers
    record.extend_from_slice(&[12, 0, 0, 0, 0, 0, 0, 0]);
    let mut body = vec![(record.len() * 2) as u8];
    body.extend_from_slice(&record);
    batch(1, timestamp, producer, TRANSACTIONAL | CONTROL, &body)
}

fn batch(records: i32, timestamp: i64, producer: Producer, attributes: i16, body: &[u8]) -> Bytes {
    let mut out = vec![0; HEADER_BYTES];
    let length = (HEADER_BYTES + body.len() - 12) as i32;
    out[8..12].copy_from_slice(&length.to_be_bytes());
    out[12..16].copy_from_slice(&(-1i32).to_be_bytes());
    out[16] = 2;
    out[21..23].copy_from_slice(&attributes.to_be_bytes());
    out[23..27].copy_from_slice(&(records - 1).to_be_bytes());
    out[27..35].copy_from_slice(&timestamp.to_be_bytes());
    out[35..43].copy_from_slice(&timestamp.to_be_bytes());
    out[43..51].copy_from_slice(&producer.id.to_be_bytes());
    out[51..53].copy_from_slice(&producer.epoch.to_be_bytes());
    out[53..57].copy_from_slice(&producer.sequence.to_be_bytes());
    out[57..61].copy_from_slice(&records.to_be_bytes());
    out.extend_from_slice(body);
    let crc = crc32c::crc32c(&out[CRC_START..]);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(out)
}

/// What is compared between what was sent and what is in the log: everything behind the 16-byte prefix, which the log sets.
pub fn content(batch: &[u8]) -> Bytes {
    Bytes::copy_from_slice(batch.get(16..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::log::batch::{BatchHeader, crc_matches};
    use storage::producer_state::BatchKind;

    #[test]
    fn markers_are_markers_and_data_are_data() {
        for is_abort in [false, true] {
            let bytes = marker(1, 7, 3, is_abort);
            let header = BatchHeader::parse(&bytes).expect("a batch");
            assert!(crc_matches(&header, &bytes));
            match header.producer_facts(&bytes).kind {
                BatchKind::Marker(marker) => assert_eq!(marker.aborted, is_abort),
                other => panic!("{other:?}"),
            }
        }
        let bytes = data(3, 200, 1, PLAIN, 9);
        let header = BatchHeader::parse(&bytes).expect("a batch");
        assert!(crc_matches(&header, &bytes) && bytes.len() == 200);
        assert_eq!(header.producer_facts(&bytes).kind, BatchKind::Plain);
    }
}
