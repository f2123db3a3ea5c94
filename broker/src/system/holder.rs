//! Which process has what another one wants: a port, a lock. Whoever is refused is told whom to look at. Processes of other users and of
//! other pid namespaces may not be seen.

use std::fs;
use std::path::Path;

use crate::client::clean;

/// The state of a listening socket in `/proc/net/tcp` (TCP_LISTEN of the kernel's `tcp_states.h`).
const LISTENING: &str = "0A";

/// A process as sentences name it: `process 12, penstock`.
pub(crate) fn process(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim() {
        "" => format!("process {pid}"),
        name => format!("process {pid}, {}", clean(name)),
    }
}

/// Who listens on a TCP port of this host, as far as that can be seen: ` (process 12, penstock)`, or nothing.
pub(crate) fn of_port(port: u16) -> String {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let sockets = tables.iter().flat_map(|table| listening(table, port));
    let found = sockets
        .map(|inode| format!("socket:[{inode}]"))
        .find_map(|socket| owner(&socket));
    found.map_or_else(String::new, |pid| format!(" ({})", process(pid)))
}

/// The inodes of sockets that listen on a port, in a table of proc_net(5).
fn listening(table: &str, port: u16) -> impl Iterator<Item = &str> {
    let ending = format!(":{port:04X}");
    table.lines().filter_map(move |line| {
        let mut words = line.split_ascii_whitespace();
        let is_local = words.nth(1)?.ends_with(&ending);
        let listens = words.nth(1)? == LISTENING;
        words.nth(5).filter(|inode| is_local && listens && *inode != "0")
    })
}

/// The process that has a socket open.
fn owner(socket: &str) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?;
    let mut pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut links = open
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        links.any(|link| link == Path::new(socket))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_listens_on_a_port_is_named() {
        let this = format!(" ({})", process(std::process::id()));
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A host without IPv6 has nothing to be found there.
            if let Ok(listener) = TcpListener::bind(address) {
                let port = listener.local_addr().unwrap().port();
                assert_eq!(of_port(port), this);
                drop(listener);
                assert_ne!(of_port(port), this);
            }
        }
        assert!(this.contains(&std::process::id().to_string()), "{this}");
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \u{20}  0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000 100\n\
            \u{20}  1: 0100007F:2384 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0000 20\n\
            \u{20}  2: 0100007F:0016 00000000:2384 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000 100\n\
            cut";
        assert_eq!(listening(table, 9092).collect::<Vec<_>>(), ["4711"]);
        assert_eq!(listening(table, 22).collect::<Vec<_>>(), ["4713"]);
        assert_eq!(listening(table, 9093).count(), 0);
    }
}
