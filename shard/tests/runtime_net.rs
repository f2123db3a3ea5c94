//! Sockets of a shard against plain blocking sockets of a test thread.
#![cfg(feature = "runtime")]
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test says what it measured

mod support;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream as Client};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use shard::env::Env;
use shard::net::{ByteReader, ByteStream, ByteWriter};
use shard::runtime::net::{Acceptor, Door, Doors, ListenOptions, Listener, Net, TcpStream, doors};
use shard::runtime::{Runtime, RuntimeEnv};

fn listen(doors: &Doors) -> (Acceptor, SocketAddr) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let addr = listener.local();
    (Acceptor::start(listener, 7, doors.clone()).unwrap(), addr)
}

/// One shard that hands its first `connections` streams to `serve`, each in a task, while `client` runs here.
fn serve_with<S, T, C>(connections: usize, serve: S, client: C)
where
    S: Fn(RuntimeEnv, TcpStream) -> T + Clone + Send + 'static,
    T: Future<Output = ()> + 'static,
    C: FnOnce(SocketAddr),
{
    let (doors, mut receivers) = doors(1, usize::MAX);
    let (acceptor, addr) = listen(&doors);
    let (done_tx, done_rx) = flume::bounded::<()>(connections);
    let runtime = Runtime::start(
        &support::options(1),
        vec![(receivers.remove(0), done_tx)],
        move |env, (door, done): (Door, flume::Sender<()>)| {
            let serve = serve.clone();
            async move {
                let net = Net::new(env.clone());
                let (ended_tx, ended_rx) = flume::bounded::<()>(connections);
                for _ in 0..connections {
                    let accepted = door.accept().await.expect("the acceptor runs");
                    assert_eq!(accepted.listener, 7);
                    let served = serve(env.clone(), net.adopt(accepted));
                    let (done, ended) = (done.clone(), ended_tx.clone());
                    env.spawn(async move {
                        served.await;
                        let _ = done.send(());
                        let _ = ended.send(());
                    });
                }
                for _ in 0..connections {
                    ended_rx.recv_async().await.unwrap();
                }
                assert_eq!(net.open(), 0, "every stream has been dropped");
            }
        },
    )
    .unwrap();
    client(addr);
    for _ in 0..connections {
        done_rx
            .recv_timeout(Duration::from_secs(30))
            .expect("the connection ends");
    }
    runtime.join();
    assert_eq!(doors.open(), [0]);
    assert_eq!(
        acceptor.counters().accepted.load(Ordering::Relaxed),
        connections as u64
    );
}

async fn echo(env: RuntimeEnv, stream: TcpStream) {
    let (mut reader, mut writer) = stream.split();
    let mut chunks = VecDeque::new();
    loop {
        let mut buf = BytesMut::with_capacity(256 << 10);
        if reader.read(&mut buf).await.unwrap() == 0 {
            return;
        }
        chunks.push_back(buf.freeze());
        writer.write_all(&mut chunks).await.unwrap();
        assert!(chunks.is_empty());
        env.yield_to_reactor().await;
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn echoes_small_and_large_messages_unchanged() {
    serve_with(2, echo, |addr| {
        for sizes in [
            vec![1, 100, 4095, 4096, 4097, 70_000],
            vec![300_000, 5_000_000, 3],
        ] {
            let mut client = Client::connect(addr).unwrap();
            for size in sizes {
                let sent = pattern(size);
                let mut writer = client.try_clone().unwrap();
                let copy = sent.clone();
                let send = thread::spawn(move || writer.write_all(&copy).unwrap());
                let mut received = vec![0; size];
                client.read_exact(&mut received).unwrap();
                send.join().unwrap();
                assert!(sent == received, "{size} bytes came back changed");
            }
        }
    });
}

/// Trap D8: glommio's `write_vectored` sends the first slice only. All slices of many chunks arrive, in order, also empty ones
/// and also when a slow reader makes every send partial.
#[test]
fn d8_a_vectored_write_sends_every_chunk_to_a_slow_reader() {
    let chunks: Vec<Bytes> = (0..1000)
        .map(|i| Bytes::from(pattern((i * 37) % 40_000)))
        .collect();
    let expected: Vec<u8> = chunks.iter().flatten().copied().collect();
    assert!(expected.len() > 15 << 20, "larger than the socket buffers");
    let serve = move |_: RuntimeEnv, stream: TcpStream| {
        let mut chunks = VecDeque::from(chunks.clone());
        async move {
            let (_reader, mut writer) = stream.split();
            writer.write_all(&mut chunks).await.unwrap();
            writer.shutdown();
        }
    };
    serve_with(1, serve, |addr| {
        let mut client = Client::connect(addr).unwrap();
        let mut received = Vec::with_capacity(expected.len());
        let mut part = vec![0; 64 << 10];
        loop {
            let n = client.read(&mut part).unwrap();
            if n == 0 {
                break;
            }
            received.extend_from_slice(&part[..n]);
            if received.len() % 5 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(
            received == expected,
            "{} of {} bytes, or changed",
            received.len(),
            expected.len()
        );
    });
}

#[test]
fn both_halves_wait_at_the_same_time_in_two_tasks() {
    let serve = |env: RuntimeEnv, stream: TcpStream| async move {
        let (mut reader, mut writer) = stream.split();
        let (tx, rx) = flume::bounded::<()>(1);
        env.spawn(async move {
            // Fills the peer's buffers, so it waits for room while the other task waits for bytes.
            let mut chunks: VecDeque<_> = (0..400).map(|_| Bytes::from(vec![7; 64 << 10])).collect();
            writer.write_all(&mut chunks).await.unwrap();
            tx.send(()).unwrap();
        });
        let mut buf = BytesMut::with_capacity(16);
        assert_eq!(reader.read(&mut buf).await.unwrap(), 2);
        assert_eq!(&buf[..], b"ok");
        rx.recv_async().await.unwrap();
    };
    serve_with(1, serve, |addr| {
        let mut client = Client::connect(addr).unwrap();
        thread::sleep(Duration::from_millis(100));
        client.write_all(b"ok").unwrap();
        let mut received = vec![0; 400 * (64 << 10)];
        client.read_exact(&mut received).unwrap();
        assert!(received.iter().all(|b| *b == 7));
    });
}

#[test]
fn a_read_takes_no_more_than_the_spare_capacity() {
    let serve = |_: RuntimeEnv, stream: TcpStream| async move {
        let (mut reader, _writer) = stream.split();
        let mut total = Vec::new();
        loop {
            let mut buf = BytesMut::with_capacity(10);
            let room = buf.capacity();
            let n = reader.read(&mut buf).await.unwrap();
            assert!(n <= room);
            if n == 0 {
                break;
            }
            total.extend_from_slice(&buf);
        }
        assert_eq!(total, pattern(1000));
        let mut full = BytesMut::new();
        assert_eq!(
            reader.read(&mut full).await.unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    };
    serve_with(1, serve, |addr| {
        Client::connect(addr).unwrap().write_all(&pattern(1000)).unwrap()
    });
}

#[test]
fn a_silent_peer_meets_the_read_deadline_and_a_late_set_one_counts() {
    let serve = |env: RuntimeEnv, stream: TcpStream| async move {
        let (mut reader, _writer) = stream.split();
        let began = Instant::now();
        reader.set_deadline(Some(env.now().after(Duration::from_millis(600))));
        let error = reader.read(&mut BytesMut::with_capacity(100)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(600), "after {took:?}");
    };
    serve_with(1, serve, |addr| {
        let mut client = Client::connect(addr).unwrap();
        assert_eq!(client.read(&mut [0; 10]).unwrap(), 0, "the connection is closed");
    });
}

#[test]
fn a_reader_that_never_reads_meets_the_write_deadline() {
    let serve = |env: RuntimeEnv, stream: TcpStream| async move {
        let (_reader, mut writer) = stream.split();
        writer.set_deadline(Some(env.now().after(Duration::from_millis(300))));
        let mut chunks: VecDeque<_> = (0..1000).map(|_| Bytes::from(vec![1; 64 << 10])).collect();
        let error = writer.write_all(&mut chunks).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(chunks.len() < 1000, "what was sent is dropped");
    };
    serve_with(1, serve, |addr| {
        let client = Client::connect(addr).unwrap();
        thread::sleep(Duration::from_millis(1500));
        drop(client);
    });
}

#[test]
fn a_deadline_that_passes_while_nobody_waits_harms_nothing() {
    let serve = |env: RuntimeEnv, stream: TcpStream| async move {
        let (mut reader, _writer) = stream.split();
        reader.set_deadline(Some(env.now().after(Duration::from_millis(1))));
        // Backpressure: the connection is not read for a while.
        env.sleep(Duration::from_millis(1200)).await;
        reader.set_deadline(None);
        let mut buf = BytesMut::with_capacity(100);
        assert_eq!(reader.read(&mut buf).await.unwrap(), 5);
    };
    serve_with(1, serve, |addr| {
        let mut client = Client::connect(addr).unwrap();
        client.write_all(b"hello").unwrap();
        thread::sleep(Duration::from_millis(1500));
    });
}

/// A wait that has timed out loses nothing: what comes later is read, what was not sent can be sent.
#[test]
fn a_connection_can_go_on_after_a_timeout() {
    let serve = |env: RuntimeEnv, stream: TcpStream| async move {
        let (mut reader, mut writer) = stream.split();
        let soon = |ms| Some(env.now().after(Duration::from_millis(ms)));
        let mut buf = BytesMut::with_capacity(100);
        reader.set_deadline(soon(1));
        assert_eq!(
            reader.read(&mut buf).await.unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        // The deadline has been met once and is gone.
        assert_eq!(reader.read(&mut buf).await.unwrap(), 4);
        assert_eq!(&buf[..], b"late");
        let mut chunks: VecDeque<_> = (0..200_u8).map(|i| Bytes::from(vec![i; 64 << 10])).collect();
        writer.set_deadline(soon(1));
        assert_eq!(
            writer.write_all(&mut chunks).await.unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        writer.write_all(&mut chunks).await.unwrap();
        writer.shutdown();
    };
    serve_with(1, serve, |addr| {
        let mut client = Client::connect(addr).unwrap();
        thread::sleep(Duration::from_millis(800));
        client.write_all(b"late").unwrap();
        thread::sleep(Duration::from_millis(1200));
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), 200 * (64 << 10));
        let whole = received
            .chunks(64 << 10)
            .zip(0_u8..)
            .all(|(chunk, i)| chunk.iter().all(|b| *b == i));
        assert!(whole, "every byte once and in order");
    });
}

#[test]
fn abort_ends_a_waiting_read_of_the_other_half() {
    let serve = |env: RuntimeEnv, stream: TcpStream| async move {
        let (mut reader, mut writer) = stream.split();
        let sleeper = env.clone();
        env.spawn(async move {
            sleeper.sleep(Duration::from_millis(50)).await;
            writer.abort();
        });
        assert_eq!(reader.read(&mut BytesMut::with_capacity(100)).await.unwrap(), 0);
    };
    serve_with(1, serve, |addr| {
        let mut client = Client::connect(addr).unwrap();
        assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
    });
}

#[test]
fn connections_go_to_the_shard_with_the_fewest() {
    let (doors, receivers) = doors(2, usize::MAX);
    let (acceptor, addr) = listen(&doors);
    let clients: Vec<_> = (0..8).map(|_| Client::connect(addr).unwrap()).collect();
    wait_until(|| doors.open().iter().sum::<usize>() == 8);
    assert_eq!(doors.open(), [4, 4]);
    // The first shard's connections close; the next four go there.
    let runtime_less: Vec<_> = receivers
        .iter()
        .map(|door| futures_lite::future::block_on(door.accept()))
        .collect();
    drop(runtime_less);
    assert_eq!(doors.open(), [3, 3], "a dropped connection leaves its seat");
    drop(futures_lite::future::block_on(receivers[0].accept()));
    assert_eq!(doors.open(), [2, 3]);
    let _one_more = Client::connect(addr).unwrap();
    wait_until(|| doors.open().iter().sum::<usize>() == 6);
    assert_eq!(doors.open(), [3, 3]);
    drop((clients, acceptor));
}

#[test]
fn a_second_listener_on_the_port_fails_and_a_restart_does_not() {
    let (doors, _receivers) = doors(1, usize::MAX);
    let (acceptor, addr) = listen(&doors);
    let Err(error) = Listener::bind(addr, &ListenOptions::default()) else {
        panic!("two brokers on one port");
    };
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    // A connection closed by this side leaves TIME_WAIT behind.
    let client = Client::connect(addr).unwrap();
    wait_until(|| doors.open() == [1]);
    drop(_receivers);
    drop(acceptor);
    drop(client);
    let again = Listener::bind(addr, &ListenOptions::default()).unwrap();
    assert_eq!(again.local(), addr);
}

#[test]
fn an_unspecified_ipv6_address_takes_ipv4_too() {
    let Ok(listener) = Listener::bind("[::]:0".parse().unwrap(), &ListenOptions::default()) else {
        // A host without IPv6 has nothing to show.
        return;
    };
    let port = listener.local().port();
    let (doors, _receivers) = doors(1, usize::MAX);
    let _acceptor = Acceptor::start(listener, 0, doors.clone()).unwrap();
    let _four = Client::connect(("127.0.0.1", port)).unwrap();
    wait_until(|| doors.open() == [1]);
}

/// Timeouts of connections must not cancel tasks: a cancelled task leaks its whole allocation (trap D4). Thousands of
/// connections that end by their deadline leave the process as small as the first thousand did.
#[test]
fn d4_connections_that_time_out_leave_no_memory_behind() {
    if !support::is_child() {
        support::passes_in_child("d4_connections_that_time_out_leave_no_memory_behind");
        return;
    }
    let rounds: usize = 6;
    let per_round = 500;
    let (doors, mut receivers) = doors(1, usize::MAX);
    let (acceptor, addr) = listen(&doors);
    let door = receivers.remove(0);
    let runtime = Runtime::start(&support::options(1), vec![door], |env, door: Door| async move {
        let net = Net::new(env.clone());
        while let Some(accepted) = door.accept().await {
            let stream = net.adopt(accepted);
            let env = env.clone();
            env.clone().spawn(async move {
                // A future as large as a real connection's.
                let ballast = [1_u8; 16 << 10];
                let (mut reader, _writer) = stream.split();
                reader.set_deadline(Some(env.now().after(Duration::from_millis(1))));
                let read = reader.read(&mut BytesMut::with_capacity(100)).await;
                assert_eq!(read.unwrap_err().kind(), ErrorKind::TimedOut);
                assert_eq!(
                    ballast.iter().map(|b| usize::from(*b)).sum::<usize>(),
                    ballast.len()
                );
            });
        }
    })
    .unwrap();
    let mut after = Vec::new();
    for _ in 0..rounds {
        let clients: Vec<_> = (0..per_round).map(|_| Client::connect(addr).unwrap()).collect();
        wait_until(|| doors.open() == [0]);
        drop(clients);
        after.push(resident_bytes());
    }
    let grown = after[rounds - 1].saturating_sub(after[1]);
    let ended = (rounds - 2) * per_round;
    assert!(
        grown < ended * (16 << 10) / 4,
        "{grown} bytes more after {ended} connections, their tasks held {} each: {after:?}",
        16 << 10
    );
    drop(acceptor);
    drop(doors);
    runtime.join();
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn wait_until(condition: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < give_up, "not within ten seconds");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A port that is out of descriptors keeps its clients waiting and serves them when some are free again.
#[test]
fn an_acceptor_that_runs_out_of_descriptors_goes_on_when_there_are_some() {
    use nix::sys::resource::{Resource, setrlimit};
    if !support::is_child() {
        support::passes_in_child("an_acceptor_that_runs_out_of_descriptors_goes_on_when_there_are_some");
        return;
    }
    let (doors, receivers) = doors(1, usize::MAX);
    let (acceptor, addr) = listen(&doors);
    // The clients' own ends are there before the descriptors run out.
    let clients: Vec<_> = (0..3)
        .map(|_| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap())
        .collect();
    setrlimit(Resource::RLIMIT_NOFILE, 100, 100).unwrap();
    let mut hoard = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        hoard.push(file);
    }
    for client in &clients {
        client.connect(&addr.into()).unwrap();
    }
    wait_until(|| acceptor.counters().exhausted.load(Ordering::Relaxed) > 0);
    // accept(2) takes its descriptor before it waits, so one connection may still have got in.
    assert!(doors.open()[0] <= 1);
    drop(hoard);
    wait_until(|| doors.open() == [3]);
    drop((clients, receivers, acceptor));
}

/// Clients cannot take what the process needs for itself: beyond their share they wait in the backlog.
#[test]
fn connections_beyond_their_share_wait_until_others_have_left() {
    let (doors, receivers) = doors(2, 4);
    let (acceptor, addr) = listen(&doors);
    let clients: Vec<_> = (0..7).map(|_| Client::connect(addr).unwrap()).collect();
    wait_until(|| acceptor.counters().exhausted.load(Ordering::Relaxed) > 2);
    assert_eq!(doors.open().iter().sum::<usize>(), 4);
    assert_eq!(acceptor.counters().accepted.load(Ordering::Relaxed), 4);
    for door in &receivers {
        drop(futures_lite::future::block_on(door.accept()));
    }
    wait_until(|| acceptor.counters().accepted.load(Ordering::Relaxed) == 6);
    assert_eq!(doors.open(), [2, 2]);
    drop((clients, receivers, acceptor));
}
