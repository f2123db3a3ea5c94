//! Reading zstd frames through one streaming context. The window is capped at 2^27 bytes, what Kafka's clients may use
//! at level 22; libzstd reserves it by the frame's claim but touches only as much as is really produced, and
//! contexts that grew large are dropped after the stream.

use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::{Codec, DecompressError};

/// The largest window a frame may ask for: 2^27 bytes = 128 MiB, the limit of Java's and librdkafka's readers.
const WINDOW_LOG_MAX: u32 = 27;

/// Contexts with a larger window than this are not kept between streams.
const CONTEXT_KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;

const fn corrupt(reason: &'static str) -> DecompressError {
    DecompressError::Corrupt {
        codec: Codec::Zstd,
        reason,
    }
}

/// A reusable decompression context.
pub(super) struct Context(DCtx<'static>);

impl Context {
    /// Makes `context` ready for a new stream, creating it when it is not there.
    pub(super) fn prepare(context: &mut Option<Self>) -> Result<(), DecompressError> {
        if let Some(Self(existing)) = context {
            return match existing.reset(ResetDirective::SessionOnly) {
                Ok(_) => Ok(()),
                Err(_) => Err(corrupt("context reset failed")),
            };
        }
        let mut created = DCtx::try_create().ok_or(corrupt("no memory for a context"))?;
        created
            .set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))
            .map_err(|_| corrupt("window limit refused"))?;
        *context = Some(Self(created));
        Ok(())
    }

    pub(super) fn is_oversized(&self) -> bool {
        self.0.sizeof() > CONTEXT_KEPT_BYTES_MAX
    }
}

/// Position in a sequence of frames.
#[derive(Default)]
pub(super) struct Frames {
    /// A frame has been started and not finished.
    inside: bool,
    /// The context may hold decoded bytes that did not fit the last chunk.
    pending: bool,
}

impl Frames {
    /// Fills `out` (not empty) as far as one call can; 0 is the end of the last frame.
    pub(super) fn read(
        &mut self,
        context: &mut Context,
        src: &mut &[u8],
        out: &mut [u8],
    ) -> Result<usize, DecompressError> {
        let mut output = OutBuffer::around(out);
        while !src.is_empty() || self.pending {
            let mut input = InBuffer::around(src);
            let hint = context
                .0
                .decompress_stream(&mut output, &mut input)
                .map_err(|_| corrupt("invalid frame"))?;
            let (consumed, produced) = (input.pos(), output.pos());
            *src = src.get(consumed..).unwrap_or_default();
            self.inside = hint != 0;
            self.pending = self.inside && produced == output.capacity();
            if produced > 0 {
                return Ok(produced);
            }
            if consumed == 0 && !src.is_empty() {
                return Err(corrupt("frame without progress"));
            }
        }
        if self.inside {
            Err(DecompressError::Truncated { codec: Codec::Zstd })
        } else {
            Ok(0)
        }
    }
}
