//! Verification of a segment's bytes as they come, in pieces of any size: every batch's header against its place, every CRC.
//! Holds a header at most, however large the batches are.

use protocol::record::BATCH_HEADER_BYTES;

use crate::log::batch::BatchHeader;
use crate::types::{LeaderEpoch, Offset};

/// Where the bytes begin that a batch's CRC covers.
const CRC_COVERS_FROM: usize = 21;

/// What a segment is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Bytes to be verified.
    pub(super) limit: u32,
    /// Bytes of the segment, also those that are not on disk yet.
    pub(super) size: u32,
    /// The limit is its end: no batch may be cut off there.
    pub(super) is_whole: bool,
    /// Where the next segment begins.
    pub(super) next_base: Option<Offset>,
}

/// Bytes that are not what they must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Where the batch begins.
    pub(super) position: u32,
    /// No offset below this is concerned.
    pub(super) first_offset: Offset,
    pub(super) expected: String,
    pub(super) found: String,
    /// Where the next batch begins if the header is right.
    pub(super) next: Option<u32>,
    /// Nothing can be said of the bytes below this position.
    pub(super) unknown_to: u32,
}

#[derive(Debug)]
enum Part {
    Header {
        bytes: [u8; BATCH_HEADER_BYTES],
        filled: usize,
    },
    Records {
        header: BatchHeader,
        left: u32,
        crc: u32,
    },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Walk {
    bounds: Bounds,
    /// Where the batch begins that is looked at.
    position: u32,
    /// Its least offset and epoch.
    offset: Offset,
    epoch: LeaderEpoch,
    part: Part,
    first_base: Option<Offset>,
}

impl Walk {
    /// A walk that begins with the batch at `position`, whose offset is not below `offset`.
    pub(super) fn new(bounds: Bounds, position: u32, offset: Offset) -> Self {
        Self {
            bounds,
            position,
            offset,
            epoch: LeaderEpoch::NONE,
            part: Part::start(),
            first_base: None,
        }
    }

    /// The next batch to come, or the one under way: position and least offset. Everything before is verified.
    pub(super) fn place(&self) -> (u32, Offset) {
        (self.position, self.offset)
    }

    /// The first offset that was found.
    pub(super) fn first_base(&self) -> Option<Offset> {
        self.first_base
    }

    /// The next bytes.
    ///
    /// # Errors
    /// The first fault; the walk is over then.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let taken = match &mut self.part {
                Part::Header { bytes: head, filled } => {
                    let taken = bytes.len().min(BATCH_HEADER_BYTES - *filled);
                    head[*filled..*filled + taken].copy_from_slice(&bytes[..taken]);
                    *filled += taken;
                    if *filled == BATCH_HEADER_BYTES {
                        let head = *head;
                        self.part = self.header(&head)?;
                    }
                    taken
                }
                Part::Records { left, crc, .. } => {
                    let taken = bytes.len().min(*left as usize);
                    *crc = crc32c::crc32c_append(*crc, &bytes[..taken]);
                    *left -= taken as u32;
                    taken
                }
            };
            bytes = &bytes[taken..];
            if let Part::Records { header, left: 0, crc } = &self.part {
                let (header, crc) = (*header, *crc);
                self.batch(&header, crc)?;
            }
        }
        Ok(())
    }

    /// There are no more bytes.
    ///
    /// # Errors
    /// A batch is cut off.
    pub(super) fn end(&self) -> Result<(), Fault> {
        if self.position >= self.bounds.limit || !self.bounds.is_whole {
            return Ok(());
        }
        let rest = self.bounds.limit - self.position;
        Err(self.fault(
            "a whole batch",
            format!("{rest} bytes, then the end of the segment"),
        ))
    }

    /// What is wrong at this place, of bytes that could not be read up to `unknown_to`.
    pub(super) fn unreadable(&self, found: String, unknown_to: u32) -> Fault {
        Fault {
            unknown_to,
            ..self.fault("bytes that can be read", found)
        }
    }

    fn fault(&self, expected: &str, found: String) -> Fault {
        Fault {
            position: self.position,
            first_offset: self.offset,
            expected: expected.to_owned(),
            found,
            next: None,
            unknown_to: self.position,
        }
    }

    fn header(&mut self, head: &[u8; BATCH_HEADER_BYTES]) -> Result<Part, Fault> {
        let Some(header) = BatchHeader::parse(head) else {
            return Err(self.fault(
                "the header of a version 2 batch",
                format!("the bytes {}", hex(head.get(..24).unwrap_or_default())),
            ));
        };
        let base = header.base_offset;
        if base < self.offset
            || self
                .bounds
                .next_base
                .is_some_and(|next| header.last_offset() >= next)
        {
            let expected = match self.bounds.next_base {
                Some(next) => format!("a batch of offsets from {} and below {next}", self.offset),
                None => format!("a batch of offsets from {}", self.offset),
            };
            let found = format!("one of offsets {base} to {}", header.last_offset());
            return Err(self.fault(&expected, found));
        }
        if header.leader_epoch < self.epoch {
            let expected = format!("a leader epoch from {} on", self.epoch);
            return Err(self.fault(&expected, format!("epoch {}", header.leader_epoch)));
        }
        let rest = self.bounds.size.saturating_sub(self.position);
        if header.size > rest {
            let expected = format!("a batch of at most the {rest} bytes that are left of the segment");
            return Err(self.fault(&expected, format!("the length of {} bytes", header.size)));
        }
        self.first_base.get_or_insert(base);
        Ok(Part::Records {
            header,
            left: header.size - BATCH_HEADER_BYTES as u32,
            crc: crc32c::crc32c(&head[CRC_COVERS_FROM..]),
        })
    }

    fn batch(&mut self, header: &BatchHeader, crc: u32) -> Result<(), Fault> {
        let next = self.position + header.size;
        if crc != header.wire.crc {
            return Err(Fault {
                next: Some(next),
                first_offset: header.base_offset,
                ..self.fault(
                    &format!("CRC {:#010x}", header.wire.crc),
                    format!("{crc:#010x} over the {} bytes of the batch", header.size),
                )
            });
        }
        self.position = next;
        self.offset = header.last_offset().plus(1);
        self.epoch = header.leader_epoch;
        self.part = Part::start();
        Ok(())
    }
}

impl Part {
    const fn start() -> Self {
        Self::Header {
            bytes: [0; BATCH_HEADER_BYTES],
            filled: 0,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::record::BatchHeader as WireHeader;

    fn batch(base: i64, records: i32, size: usize) -> Vec<u8> {
        let mut out = vec![0x5a; size];
        out[..8].copy_from_slice(&base.to_be_bytes());
        out[8..12].copy_from_slice(&(size as i32 - 12).to_be_bytes());
        out[12..16].copy_from_slice(&3i32.to_be_bytes());
        out[16] = 2;
        out[21..23].copy_from_slice(&[0, 0]);
        out[23..27].copy_from_slice(&(records - 1).to_be_bytes());
        out[57..61].copy_from_slice(&records.to_be_bytes());
        let head: &[u8; BATCH_HEADER_BYTES] = out.first_chunk().expect("longer than a header");
        let sealed = WireHeader::decode(head).sealed(&out[BATCH_HEADER_BYTES..]);
        out[..BATCH_HEADER_BYTES].copy_from_slice(&sealed.encode());
        out
    }

    /// Three batches: offsets 10 and 11, 12, and 20 to 24.
    fn segment() -> Vec<u8> {
        [batch(10, 2, 100), batch(12, 1, 300), batch(20, 5, 80)].concat()
    }

    fn bounds(limit: usize) -> Bounds {
        Bounds {
            limit: limit as u32,
            size: limit as u32,
            is_whole: true,
            next_base: Some(Offset(25)),
        }
    }

    fn walk(bytes: &[u8], piece: usize) -> Result<Walk, Fault> {
        let mut walk = Walk::new(bounds(bytes.len()), 0, Offset(10));
        for piece in bytes.chunks(piece) {
            walk.feed(piece)?;
        }
        walk.end()?;
        Ok(walk)
    }

    #[test]
    fn whole_batches_pass_however_they_are_cut_into_pieces() {
        for piece in [1, 7, 61, 100, 480, 1000] {
            let walk = walk(&segment(), piece).expect("nothing is wrong");
            assert_eq!(walk.place(), (480, Offset(25)));
            assert_eq!(walk.first_base(), Some(Offset(10)));
        }
    }

    #[test]
    fn every_flipped_bit_is_a_fault_of_its_batch_or_shows_in_the_next() {
        let good = segment();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                // Outside of what the CRC covers some other values could be right: offsets within the gap, some epochs.
                let fits = [12..16, 100..108, 400..408, 412..416]
                    .iter()
                    .any(|range| range.contains(&at));
                match walk(&bad, 64) {
                    Ok(_) => assert!(fits, "bit {bit} of byte {at} passes"),
                    Err(fault) => {
                        let own = [0, 100, 400].into_iter().rfind(|start| *start <= at).unwrap_or(0);
                        let may_be = [own, own + 300].contains(&(fault.position as usize))
                            || (own == 0 && fault.position == 100);
                        assert!(may_be, "byte {at} is a fault of {}", fault.position);
                    }
                }
            }
        }
    }

    #[test]
    fn a_fault_names_both_checksums_and_where_the_next_batch_begins() {
        let mut bad = segment();
        bad[350] ^= 4;
        let fault = walk(&bad, 4096).expect_err("a bit is flipped");
        assert_eq!((fault.position, fault.first_offset), (100, Offset(12)));
        assert_eq!(fault.next, Some(400));
        let stored = u32::from_be_bytes(bad[117..121].try_into().expect("four bytes"));
        assert_eq!(fault.expected, format!("CRC {stored:#010x}"));
        assert!(
            fault.found.ends_with("over the 300 bytes of the batch"),
            "{}",
            fault.found
        );
    }

    #[test]
    fn a_batch_may_be_cut_only_where_the_segment_goes_on() {
        let bytes = segment();
        let cut = &bytes[..450];
        let fault = walk(cut, 4096).expect_err("the last batch is not whole");
        assert_eq!(fault.position, 400);
        let mut going_on = Walk::new(
            Bounds {
                is_whole: false,
                next_base: None,
                size: 480,
                ..bounds(450)
            },
            0,
            Offset(10),
        );
        assert!(going_on.feed(cut).is_ok() && going_on.end().is_ok());
        assert_eq!(going_on.place(), (400, Offset(13)));
    }
}
