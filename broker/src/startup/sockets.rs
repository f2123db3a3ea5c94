//! The sockets for clients: every listener is bound before anything else is started, and accepts when everything is.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use shard::runtime::net::{Acceptor, ListenOptions, Listener};

use crate::config::resolve::prefer_ipv4;
use crate::config::settings::{ListenerSettings, Settings};
use crate::exit::{Failure, Status};
use crate::system::holder;

/// Binds every listener; what the kernel chose for port 0 is told to clients.
pub(super) fn bind(settings: &mut Settings) -> Result<Vec<Listener>, Failure> {
    let options = ListenOptions {
        backlog: settings.listen_backlog,
        receive_buffer_bytes: settings.receive_buffer_bytes,
        send_buffer_bytes: settings.send_buffer_bytes,
    };
    let bind = |listener| bind_one(listener, &options);
    settings.listeners.iter_mut().map(bind).collect()
}

fn bind_one(listener: &mut ListenerSettings, options: &ListenOptions) -> Result<Listener, Failure> {
    let shown = format!("{}://{}:{}", listener.name, listener.host, listener.port);
    let no_address = |why: String| {
        let sentence = format!("listener {shown} has no address{why}; correct `listeners`");
        Failure::new(Status::Config, sentence)
    };
    // As Java: no host is every address, of both families where the host has both.
    let address = if listener.host.is_empty() {
        any_address(listener.port)
    } else {
        let found = (listener.host.as_str(), listener.port).to_socket_addrs();
        prefer_ipv4(found.map_err(|e| no_address(format!(": {e}")))?)
            .ok_or_else(|| no_address(String::new()))?
    };
    let bound = Listener::bind(address, options).map_err(|e| {
        let (holder, advice) = match e.kind() {
            io::ErrorKind::AddrInUse => (
                holder::of_port(listener.port),
                "stop the process that has the port, or choose another one with `listeners`",
            ),
            io::ErrorKind::PermissionDenied => (String::new(), "choose a port above 1023 with `listeners`"),
            _ => (String::new(), "correct `listeners`"),
        };
        Failure::new(
            Status::Unavailable,
            format!("listener {shown} cannot be opened: {e}{holder}; {advice}"),
        )
    })?;
    if listener.port == 0 {
        listener.port = bound.local().port();
    }
    if listener.advertised.1 == 0 {
        listener.advertised.1 = listener.port;
    }
    Ok(bound)
}

/// `[::]`, which takes IPv4 as well; `0.0.0.0` on a host without IPv6.
fn any_address(port: u16) -> SocketAddr {
    let has_ipv6 = std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    if has_ipv6 {
        (Ipv6Addr::UNSPECIFIED, port).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, port).into()
    }
}

pub(super) fn accept(
    listeners: Vec<Listener>,
    doors: &shard::runtime::net::Doors,
) -> Result<Vec<Acceptor>, Failure> {
    let start = |(index, listener)| {
        Acceptor::start(listener, index, doors.clone()).map_err(|e| {
            Failure::new(
                Status::System,
                format!("no thread for accepting connections: {e}"),
            )
        })
    };
    (0u16..).zip(listeners).map(start).collect()
}
