//! Many bad clients at once: idle connections, readers that do not read, claims of large requests that never come.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::probe::{connect, read_frame};
use super::wire::{Batch, Bytes, TOPIC, api_versions, fetch, produce};
use crate::error::{Doing, Result, failed};

/// Idle connections, fewer where the limit of open files does not allow them.
const IDLE_CONNECTIONS: usize = 10_000;
/// Descriptors that this process needs besides.
const DESCRIPTORS_RESERVED: u64 = 200;
/// Connections that ask and do not read.
const SLOW_READERS: usize = 16;
/// Requests that each of them sends.
const FETCHES: usize = 300;
/// What each request asks for; together 4.8 GB, which a broker without bounds would hold in memory.
const FETCH_BYTES: i32 = 1 << 20;
/// How long a slow reader goes on sending against a full socket.
const SLOW_READER_TIME: Duration = Duration::from_secs(3);
/// Connections that claim a request of the largest size and send its beginning.
const CLAIMS: usize = 8;
const CLAIM_BYTES: i32 = 100 << 20;

/// Connections of the larger crowds.
const CROWD: usize = 500;
/// How long a well-behaved client among them waits at most; Kafka takes milliseconds, a loaded machine some more.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a reader waits for memory that readers hold who do not read.
const SHED_TIME_MAX: Duration = Duration::from_secs(30);

/// What came of a crowd, in the words of the table.
pub(super) type Outcome = Result<String>;

/// Opens connections, leaves them idle, and asks on the first and last one.
pub(super) fn idle_connections(bootstrap: &str, during: &mut dyn FnMut()) -> Outcome {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(std::io::Error::from)
        .unwrap_or((1024, 1024));
    // Refused only above the hard limit, which it is not.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    let allowed = usize::try_from(hard.saturating_sub(DESCRIPTORS_RESERVED)).unwrap_or(usize::MAX);
    let wanted = IDLE_CONNECTIONS.min(allowed);
    let mut open = Vec::with_capacity(wanted);
    for _ in 0..wanted {
        match connect(bootstrap) {
            Ok(stream) => open.push(stream),
            Err(_) => break,
        }
    }
    during();
    let first = open.first_mut().and_then(ask);
    let last = open.last_mut().and_then(ask);
    let answered = first.into_iter().chain(last).count();
    Ok(if open.len() == wanted && answered == 2 {
        "all accepted, first and last answered".into()
    } else {
        format!("{} of {wanted} accepted, {answered} of 2 answered", open.len())
    })
}

fn ask(stream: &mut TcpStream) -> Option<()> {
    stream.write_all(&api_versions()).ok()?;
    read_frame(stream).ok().map(|_| ())
}

/// Fills the topic, then asks for it again and again without reading what comes.
pub(super) fn slow_readers(bootstrap: &str, during: &mut dyn FnMut()) -> Outcome {
    let batch = Batch::of(&vec![b'x'; 900_000]).bytes();
    let mut writer = connect(bootstrap)?;
    for _ in 0..4 {
        if writer.write_all(&produce(TOPIC, &batch)).is_err() || read_frame(&mut writer).is_err() {
            return failed("the topic for slow readers could not be filled");
        }
    }
    let mut readers = (0..SLOW_READERS)
        .map(|_| connect(bootstrap))
        .collect::<Result<Vec<_>>>()?;
    let request = fetch(TOPIC, FETCH_BYTES);
    let started = Instant::now();
    for stream in &mut readers {
        // A broker that stops reading fills our send buffer: then it has had enough.
        let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
        for _ in 0..FETCHES {
            if stream.write_all(&request).is_err() {
                break;
            }
        }
    }
    std::thread::sleep(SLOW_READER_TIME.saturating_sub(started.elapsed()));
    during();
    // Whoever starts to read gets whole answers.
    let read = readers
        .iter_mut()
        .map(|stream| usize::from(read_frame(stream).is_ok()))
        .sum::<usize>();
    Ok(if read == SLOW_READERS {
        "held back, answered when read".into()
    } else {
        format!("{read} of {SLOW_READERS} answered when read")
    })
}

/// Claims large requests and sends only their beginnings.
pub(super) fn large_claims(bootstrap: &str, during: &mut dyn FnMut()) -> Outcome {
    let start = Bytes::default()
        .i32(CLAIM_BYTES)
        .i16(0)
        .i16(8)
        .i32(7)
        .string("hostile")
        .0;
    let mut open = Vec::new();
    for _ in 0..CLAIMS {
        let mut stream = connect(bootstrap)?;
        if stream.write_all(&start).is_ok() {
            open.push(stream);
        }
    }
    std::thread::sleep(Duration::from_secs(1));
    during();
    let waiting = open.iter_mut().filter(|stream| {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
        let mut byte = [0];
        !matches!(stream.peek(&mut byte), Ok(0))
    });
    Ok(format!("{} of {CLAIMS} kept open", waiting.count()))
}

/// Many claim a request and send ten bytes of it: a producer between them is answered as ever.
pub(super) fn many_claims(bootstrap: &str, during: &mut dyn FnMut()) -> Outcome {
    let start = Bytes::default().i32(50_000_000).raw(&[b'x'; 10]).0;
    let mut open = Vec::new();
    for _ in 0..CROWD {
        let mut stream = connect(bootstrap)?;
        stream.write_all(&start).doing("a claim")?;
        open.push(stream);
    }
    let began = Instant::now();
    let batch = Batch::of(&vec![b'x'; 900_000]).bytes();
    let mut writer = connect(bootstrap)?;
    writer.write_all(&produce(TOPIC, &batch)).doing("a produce")?;
    let answered = read_frame(&mut writer).is_ok();
    let took = began.elapsed();
    during();
    Ok(if answered && took < PATIENCE {
        "the producer answered".into()
    } else {
        format!("the producer answered: {answered}, after {} ms", took.as_millis())
    })
}

/// Many ask for much and read nothing: others are answered, a reader that reads within the time it takes to shed them.
pub(super) fn many_slow_readers(bootstrap: &str, during: &mut dyn FnMut()) -> Outcome {
    let request = fetch(TOPIC, 50_000_000);
    let mut slow = Vec::new();
    for _ in 0..CROWD {
        let mut stream = connect(bootstrap)?;
        for _ in 0..5 {
            stream.write_all(&request).doing("a fetch")?;
        }
        slow.push(stream);
    }
    let began = Instant::now();
    let mut other = connect(bootstrap)?;
    let asked = ask(&mut other).is_some();
    let took = began.elapsed();
    other.set_read_timeout(Some(SHED_TIME_MAX)).doing("a timeout")?;
    other.write_all(&request).doing("a fetch")?;
    let read = read_frame(&mut other).is_ok();
    during();
    Ok(if asked && took < PATIENCE && read {
        "others answered".into()
    } else {
        format!("asked: {asked} after {} ms, read: {read}", took.as_millis())
    })
}
