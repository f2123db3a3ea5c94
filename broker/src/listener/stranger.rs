//! What else than Kafka's protocol a peer may speak on a listener: the first bytes of a connection tell TLS and HTTP, so that
//! whoever set a client or a health check up wrongly finds the reason in the log. Pure.

/// A request line begins so; the last is the preface of HTTP/2.
const HTTP_METHODS: [&[u8]; 10] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"PRI * ",
];

/// The first bytes of a connection that are looked at: the longest method.
const LOOK_BYTES: usize = 8;

/// What `first`, the first bytes of a connection, look like when it is no request of Kafka's, as a sentence with what to do.
pub(super) fn looks_like(first: &[u8]) -> Option<&'static str> {
    let first = first.get(..LOOK_BYTES).unwrap_or(first);
    // A record of type handshake, of any version that is in use (RFC 8446, 5.1), with a ClientHello in it.
    if matches!(first, [0x16, 0x03, 0..=4, _, _, 0x01, ..]) {
        return Some(
            "looks like TLS; this listener is PLAINTEXT: let the client have security.protocol=PLAINTEXT, or use another port",
        );
    }
    let is_http = HTTP_METHODS.iter().any(|method| first.starts_with(method));
    is_http.then_some(
        "looks like HTTP; this listener is PLAINTEXT and speaks Kafka's protocol: health and metrics are at penstock.admin.listener",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_and_http_are_told_apart_from_requests() {
        let tls = |bytes: &[u8]| looks_like(bytes).is_some_and(|s| s.starts_with("looks like TLS"));
        let http = |bytes: &[u8]| looks_like(bytes).is_some_and(|s| s.starts_with("looks like HTTP"));
        // Versions 1.0 to 1.3 on the record, as OpenSSL, Java and Go send it.
        assert!(tls(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") && tls(b"\x16\x03\x03\x00\xc5\x01"));
        assert!(
            http(b"GET / HTTP/1.1\r\n") && http(b"OPTIONS * HTTP/1.1") && http(b"PRI * HTTP/2.0\r\n\r\nSM")
        );
        // Too little to say, another record, and ApiVersions of version 3 with its length.
        for other in [
            &b""[..],
            b"\x16\x03\x01\x02\x00",
            b"GET",
            b"\x15\x03\x01\x00\x02\x02\x28",
            b"\0\0\0\x25\0\x12\0\x03",
            b"GETS / HT",
        ] {
            assert_eq!(looks_like(other), None, "{other:x?}");
        }
    }
}
