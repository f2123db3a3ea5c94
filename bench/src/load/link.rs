//! One non-blocking connection: pieces of frames go out with vectored writes, without copying batches; whole frames come in, read
//! in a buffer that is kept. Nothing here waits.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;

use bytes::{Buf, Bytes};

/// Pieces of one write; the system takes 1,024.
const PIECES_MAX: usize = 256;

/// Memory for what comes in, at first.
const INPUT_BYTES: usize = 64 << 10;

/// Bytes that are read before others have their turn.
const TURN_BYTES_MAX: usize = 2 << 20;

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("the broker closed the connection")]
    Closed,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("a frame of {0} bytes came, at most {1} were asked for")]
    TooLong(usize, usize),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    /// Pieces that were not written yet.
    out: VecDeque<Bytes>,
    /// Bytes that were ever queued and written.
    queued: u64,
    written: u64,
    input: Vec<u8>,
    /// What was read and not taken.
    start: usize,
    end: usize,
    frame_bytes_max: usize,
}

impl Link {
    /// Takes over a connection that was made; frames that come in have `frame_bytes_max` bytes at most.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(stream: TcpStream, frame_bytes_max: usize) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            out: VecDeque::new(),
            queued: 0,
            written: 0,
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            frame_bytes_max,
        })
    }

    pub(super) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Queues a frame and returns the place of its end in all that is ever written.
    pub(super) fn queue(&mut self, pieces: Vec<Bytes>) -> u64 {
        for piece in pieces {
            self.queued += piece.len() as u64;
            self.out.push_back(piece);
        }
        self.queued
    }

    /// Bytes written so far.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Whether something waits for the socket.
    pub(super) fn is_blocked(&self) -> bool {
        !self.out.is_empty()
    }

    /// Writes as much as the socket takes.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn flush(&mut self) -> Result<(), LinkError> {
        while !self.out.is_empty() {
            let slices: Vec<IoSlice<'_>> = self
                .out
                .iter()
                .take(PIECES_MAX)
                .map(|piece| IoSlice::new(piece))
                .collect();
            match self.stream.write_vectored(&slices) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(written) => self.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn advance(&mut self, mut bytes: usize) {
        self.written += bytes as u64;
        while let Some(first) = self.out.front_mut() {
            if bytes < first.len() {
                first.advance(bytes);
                return;
            }
            bytes -= first.len();
            self.out.pop_front();
        }
    }

    /// Reads what has come, up to a turn's worth.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn fill(&mut self) -> Result<(), LinkError> {
        let mut turn = 0;
        while turn < TURN_BYTES_MAX {
            self.make_room()?;
            let room = self.input.len() - self.end;
            match self.stream.read(&mut self.input[self.end..]) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(read) => {
                    self.end += read;
                    turn += read;
                    if read < room {
                        return Ok(()); // the socket is empty
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
            if self.has_frame()? {
                return Ok(()); // it is taken before more is read
            }
        }
        Ok(())
    }

    /// The next whole frame without its length.
    ///
    /// # Errors
    /// Its length is more than can be.
    pub(super) fn frame(&mut self) -> Result<Option<&[u8]>, LinkError> {
        if !self.has_frame()? {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            }
            return Ok(None);
        }
        let from = self.start + 4;
        let until = from + self.frame_bytes()?.unwrap_or(0);
        self.start = until;
        Ok(self.input.get(from..until))
    }

    fn has_frame(&self) -> Result<bool, LinkError> {
        let bytes = self.frame_bytes()?;
        Ok(bytes.is_some_and(|bytes| self.end - self.start >= 4 + bytes))
    }

    /// The length of the frame that has begun, once it is known.
    fn frame_bytes(&self) -> Result<Option<usize>, LinkError> {
        let Some(head) = self.input[self.start..self.end].first_chunk::<4>() else {
            return Ok(None);
        };
        let bytes = u32::from_be_bytes(*head) as usize;
        if bytes > self.frame_bytes_max {
            return Err(LinkError::TooLong(bytes, self.frame_bytes_max));
        }
        Ok(Some(bytes))
    }

    /// Makes room for the rest of the frame that has begun, and some.
    fn make_room(&mut self) -> Result<(), LinkError> {
        let needed = 4 + self.frame_bytes()?.unwrap_or(0);
        let is_short = self.input.len() - self.start < needed;
        if self.start > 0 && (is_short || self.end == self.input.len()) {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.input.len() < needed {
            self.input.resize(needed.next_power_of_two(), 0);
        } else if self.end == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair(frame_bytes_max: usize) -> (Link, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let ours = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
        let (theirs, _) = listener.accept().expect("it connects");
        (Link::new(ours, frame_bytes_max).expect("a socket"), theirs)
    }

    fn frame(len: usize, fill: u8) -> Vec<u8> {
        let mut bytes = u32::try_from(len).expect("short").to_be_bytes().to_vec();
        bytes.resize(4 + len, fill);
        bytes
    }

    #[test]
    fn frames_of_all_lengths_come_out_whole() {
        let (mut link, mut peer) = pair(10 << 20);
        let lengths = [0usize, 1, 70_000, 5, (3 << 20) + 1, 2, INPUT_BYTES - 4, 9];
        let writer = std::thread::spawn(move || {
            for len in lengths {
                peer.write_all(&frame(len, len as u8)).expect("it reads");
            }
            peer
        });
        let mut found = Vec::new();
        while found.len() < lengths.len() {
            link.fill().expect("it is open");
            while let Some(frame) = link.frame().expect("in bounds") {
                assert!(frame.iter().all(|byte| *byte == frame.len() as u8));
                found.push(frame.len());
            }
        }
        assert_eq!(found, lengths);
        drop(writer.join());
        while link.fill().is_ok() {}
        assert!(matches!(link.fill(), Err(LinkError::Closed)));
    }

    #[test]
    fn a_frame_that_nobody_asked_for_ends_the_connection() {
        let (mut link, mut peer) = pair(100);
        peer.write_all(&[1, 0, 0, 0]).expect("it reads");
        let error = loop {
            match link
                .fill()
                .and_then(|()| link.frame().map(|frame| frame.is_some()))
            {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, LinkError::TooLong(16_777_216, 100)), "{error}");
    }

    #[test]
    fn what_the_socket_does_not_take_waits_and_nothing_is_lost() {
        let (mut link, mut peer) = pair(100);
        let pieces: Vec<Bytes> = (0..2000u32).map(|n| Bytes::from(vec![n as u8; 10_000])).collect();
        let total = link.queue(pieces.clone());
        assert_eq!(total, 20_000_000);
        link.flush().expect("it is open");
        assert!(link.is_blocked() && link.written() < total);
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; 20_000_000];
            peer.read_exact(&mut bytes).expect("all of it comes");
            bytes
        });
        while link.is_blocked() {
            link.flush().expect("it is open");
        }
        assert_eq!(link.written(), total);
        assert!(reader.join().expect("it reads") == pieces.concat());
    }
}
