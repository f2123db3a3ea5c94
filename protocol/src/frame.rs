//! Frames: a four-byte length, then that many bytes. Splits complete frames off a receive buffer without copying.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

/// Bytes of the length field.
pub const FRAME_LENGTH_BYTES: usize = 4;

/// A length field that cannot be followed: the connection has to be closed (CN-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The length is below zero.
    #[error("a frame of negative size {0}")]
    Negative(i32),
    /// The length is above the limit.
    #[error("a frame of {size} bytes, {max} are allowed")]
    TooLarge {
        /// Bytes that the frame claims.
        size: usize,
        /// Bytes that are allowed.
        max: usize,
    },
}

/// What the start of a receive buffer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameState {
    /// Not even a whole length field.
    Empty,
    /// Part of a frame.
    Partial {
        /// Bytes of the frame, without the length field.
        size: usize,
        /// How many of them are still to come.
        missing: usize,
    },
    /// At least one whole frame.
    Complete {
        /// Bytes of the frame, without the length field.
        size: usize,
    },
}

/// Looks at the first frame in `buf`, of which at most `max_bytes` are allowed.
///
/// # Errors
/// When its length is negative or above `max_bytes`, as soon as the length field is there: nothing needs to be
/// reserved for a frame that will be refused.
pub fn peek_frame(buf: &[u8], max_bytes: usize) -> Result<FrameState, FrameError> {
    let Some(length) = buf.first_chunk::<FRAME_LENGTH_BYTES>() else {
        return Ok(FrameState::Empty);
    };
    let length = i32::from_be_bytes(*length);
    let size = usize::try_from(length).map_err(|_| FrameError::Negative(length))?;
    if size > max_bytes {
        return Err(FrameError::TooLarge { size, max: max_bytes });
    }
    match size.saturating_sub(buf.len() - FRAME_LENGTH_BYTES) {
        0 => Ok(FrameState::Complete { size }),
        missing => Ok(FrameState::Partial { size, missing }),
    }
}

/// Splits the first frame off `buf`, without its length field and without copying; `None` when it is not complete.
///
/// # Errors
/// As [`peek_frame`].
pub fn split_frame(buf: &mut BytesMut, max_bytes: usize) -> Result<Option<Bytes>, FrameError> {
    let FrameState::Complete { size } = peek_frame(buf, max_bytes)? else {
        return Ok(None);
    };
    buf.advance(FRAME_LENGTH_BYTES);
    Ok(Some(buf.split_to(size).freeze()))
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bad_length_is_refused_as_soon_as_it_is_read() {
        let negative = peek_frame(&[0xff, 0xff, 0xff, 0xfe], 100);
        assert_eq!(negative, Err(FrameError::Negative(-2)));
        let large = peek_frame(&[0, 0, 0, 101], 100);
        assert_eq!(large, Err(FrameError::TooLarge { size: 101, max: 100 }));
        assert_eq!(
            peek_frame(&[0, 0, 0, 100], 100),
            Ok(FrameState::Partial {
                size: 100,
                missing: 100
            })
        );
        assert_eq!(peek_frame(&[0, 0, 0], 100), Ok(FrameState::Empty));
        assert_eq!(
            peek_frame(&[0, 0, 0, 0], 100),
            Ok(FrameState::Complete { size: 0 })
        );
    }

    #[test]
    fn frames_are_slices_of_the_receive_buffer() {
        let mut buf = BytesMut::from(&[0, 0, 0, 2, 1, 2, 0, 0, 0, 1][..]);
        let start = buf.as_ptr();
        let frame = split_frame(&mut buf, 10).unwrap().unwrap();
        assert_eq!(frame.as_ptr(), start.wrapping_add(4));
        assert_eq!(split_frame(&mut buf, 10), Ok(None));
    }

    proptest! {
        #[test]
        fn frames_survive_any_way_of_being_cut(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..8),
            cut in 1usize..7,
        ) {
            let mut wire = Vec::new();
            for frame in &frames {
                wire.put_i32(frame.len() as i32);
                wire.extend_from_slice(frame);
            }
            let (mut buf, mut got) = (BytesMut::new(), Vec::new());
            for piece in wire.chunks(cut) {
                buf.extend_from_slice(piece);
                while let Some(frame) = split_frame(&mut buf, 20).unwrap() {
                    got.push(frame.to_vec());
                }
            }
            prop_assert_eq!(got, frames);
            prop_assert!(buf.is_empty());
        }
    }
}
