//! Peers that speak another protocol on the Kafka port: they are closed, and one line of the log names what they are.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use crate::support::{Broker, PATIENCE};

/// Sends bytes on a connection of its own and waits until the broker ends it.
fn visit(broker: &Broker, bytes: &[u8], is_all: bool) {
    let mut stream = TcpStream::connect(broker.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A broker that has closed already may reset the connection.
    let _ = stream.write_all(bytes);
    if is_all {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
}

#[test]
fn tls_and_http_on_the_kafka_port_are_named_in_the_log_once_a_second() {
    // A ClientHello of TLS 1.2 as it begins, with a session id and one cipher suite.
    let mut hello = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03".to_vec();
    hello.extend([7; 32]);
    hello.extend(b"\x00\x00\x02\xc0\x2f\x01\x00");
    let http = b"GET /metrics HTTP/1.1\r\nHost: broker:9092\r\n\r\n".to_vec();
    let default = "socket.request.max.bytes=104857600";
    // The length that the bytes seem to have is allowed here: what they are shows when no more comes.
    let large = "socket.request.max.bytes=400000000";
    for (name, bytes, limit, is_all) in [
        ("TLS", &hello, default, false),
        ("TLS", &hello, large, true),
        ("HTTP", &http, default, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let broker = Broker::start(dir.path(), &["penstock.shards=1", limit]);
        let began = Instant::now();
        for _ in 0..20 {
            visit(&broker, bytes, is_all);
        }
        let seconds = began.elapsed().as_secs() as usize;
        let lines = broker.logged(&["a connection was closed"]);
        assert!((1..=seconds + 1).contains(&lines.len()), "{seconds} s: {lines:?}");
        for line in lines {
            let named = format!("looks like {name}; this listener is PLAINTEXT");
            assert!(line.contains("WARN") && line.contains(&named), "{line}");
        }
        // Others are served as before.
        assert!(broker.get("/health/ready").0.contains("200"));
    }
}
