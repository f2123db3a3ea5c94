//! Waiting for sockets and for a moment, with a timer of nanoseconds: the 1 ms of `epoll_wait` and of tokio's wheel would send ten
//! messages of a 10,000 messages/s schedule at once and call the rest of a millisecond latency.

use std::net::TcpStream;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// The name of the timer among the sockets.
const TIMER: u64 = u64::MAX;

/// Sockets of one wait.
const EVENTS_MAX: usize = 256;

/// A socket that is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    /// Its name.
    pub(super) name: usize,
    /// Something came, or the connection ended.
    pub(super) readable: bool,
    /// It takes something.
    pub(super) writable: bool,
}

/// Sockets of one thread.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: Epoll,
    timer: TimerFd,
    events: Vec<EpollEvent>,
}

impl Poller {
    /// # Errors
    /// The system's, as of all functions here.
    pub(super) fn new() -> std::io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        Ok(Self {
            epoll,
            timer,
            events: vec![EpollEvent::empty(); EVENTS_MAX],
        })
    }

    /// Watches a socket for what comes.
    pub(super) fn add(&self, stream: &TcpStream, name: usize) -> std::io::Result<()> {
        Ok(self
            .epoll
            .add(stream, EpollEvent::new(EpollFlags::EPOLLIN, name as u64))?)
    }

    /// Watches it also for room to write, or no longer.
    pub(super) fn watch_room(&self, stream: &TcpStream, name: usize, wanted: bool) -> std::io::Result<()> {
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLOUT, wanted);
        Ok(self
            .epoll
            .modify(stream, &mut EpollEvent::new(flags, name as u64))?)
    }

    /// Waits until a socket is ready or the time is over, and adds the ready ones to `ready`.
    pub(super) fn wait(&mut self, time: Duration, ready: &mut Vec<Ready>) -> std::io::Result<()> {
        let timeout = if time.is_zero() {
            EpollTimeout::ZERO
        } else {
            // Setting it anew also takes back that it went off before.
            let time = Expiration::OneShot(TimeSpec::from_duration(time));
            self.timer.set(time, TimerSetTimeFlags::empty())?;
            EpollTimeout::NONE
        };
        let count = match self.epoll.wait(&mut self.events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let writable = EpollFlags::EPOLLOUT;
        for event in self
            .events
            .iter()
            .take(count)
            .filter(|event| event.data() != TIMER)
        {
            ready.push(Ready {
                name: usize::try_from(event.data()).unwrap_or(usize::MAX),
                readable: !(event.events() & !writable).is_empty(),
                writable: event.events().contains(writable),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::Instant;

    #[test]
    fn it_wakes_for_sockets_and_for_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let ours = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
        let (mut theirs, _) = listener.accept().expect("it connects");
        let mut poller = Poller::new().expect("the system has them");
        poller.add(&ours, 7).expect("a socket");
        let mut ready = Vec::new();
        let began = Instant::now();
        poller
            .wait(Duration::from_micros(1500), &mut ready)
            .expect("waits");
        assert!(ready.is_empty() && began.elapsed() >= Duration::from_micros(1500));
        theirs.write_all(b"x").expect("it is open");
        poller.wait(Duration::from_secs(60), &mut ready).expect("waits");
        assert!(ready.len() == 1 && ready[0].name == 7 && ready[0].readable && !ready[0].writable);
        poller.watch_room(&ours, 7, true).expect("a socket");
        ready.clear();
        poller.wait(Duration::ZERO, &mut ready).expect("waits");
        assert!(ready[0].writable);
    }
}
