//! The listening socket of the admin server with a bound on open connections: one more is closed at once, so that probes
//! gone wild cannot use up the process's descriptors.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Open connections to the admin address.
pub(super) const CONNECTIONS_MAX: usize = 128;

/// See the module.
pub(super) struct Door {
    listener: TcpListener,
    open: Arc<AtomicUsize>,
}

/// An admitted connection; its place is free again when it is dropped.
pub(super) struct Admitted {
    stream: TcpStream,
    open: Arc<AtomicUsize>,
}

impl Door {
    /// On a bound, non-blocking socket, within a tokio runtime.
    pub(super) fn new(listener: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::from_std(listener)?,
            open: Arc::default(),
        })
    }
}

impl Listener for Door {
    type Io = Admitted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Admitted, SocketAddr) {
        loop {
            // Waits out errors of accept(2), such as too few descriptors.
            let (stream, peer) = Listener::accept(&mut self.listener).await;
            if self.open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                continue;
            }
            self.open.fetch_add(1, Ordering::Relaxed);
            let open = self.open.clone();
            return (Admitted { stream, open }, peer);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsyncRead for Admitted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Admitted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
