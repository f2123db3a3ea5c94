//! `listeners`, `advertised.listeners` and what belongs to them: which sockets to open and what clients are told. The
//! rules are Kafka's: names come once, ports come once (but for an IPv4 and an IPv6 address), clients are never told an
//! address that nobody can connect to. PLAINTEXT is the only protocol served so far.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use shard::config::{BrokerLayers, Overrides};

use super::layers::{AsWritten, ConfigError};
use super::resolve::wrong;
use super::settings::ListenerSettings;

const LISTENERS: &str = "listeners";
const ADVERTISED: &str = "advertised.listeners";
const PROTOCOLS: &str = "listener.security.protocol.map";
const INTER_BROKER: &str = "inter.broker.listener.name";

/// Kafka's security protocols.
const SECURITY_PROTOCOLS: [&str; 4] = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"];

/// What the process opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The listeners for clients.
    pub(super) listeners: Vec<ListenerSettings>,
    /// Listeners of the controller plane, as written: not opened.
    pub(super) closed: Vec<String>,
}

/// One `NAME://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    name: String,
    host: String,
    port: u16,
}

/// The listeners of a checked configuration.
pub(super) fn resolve(
    written: &AsWritten,
    fixed: &Overrides,
    host_name: &str,
) -> Result<Opened, ConfigError> {
    let layers = BrokerLayers::of_file(fixed);
    let endpoints = read_all(written, &layers, LISTENERS)?;
    refuse_repeated(written, &endpoints)?;
    let controllers: Vec<String> = layers
        .list("controller.listener.names")
        .iter()
        .map(|n| n.to_ascii_uppercase())
        .collect();
    let (closed, open): (Vec<_>, Vec<_>) = endpoints.into_iter().partition(|e| controllers.contains(&e.name));
    if open.is_empty() {
        let what = "none is for clients; write one that controller.listener.names does not name, as in PLAINTEXT://127.0.0.1:9092";
        return Err(wrong(written, LISTENERS, what));
    }
    check_protocols(written, &layers, &open)?;
    let told = advertised(written, &layers, &open, &closed, &controllers)?;
    if let Some(name) = layers.text(INTER_BROKER)
        && !open.iter().any(|e| e.name == name.to_ascii_uppercase())
    {
        let what = format!(
            "'{name}' is none of the listeners for brokers and clients ({})",
            names(&open)
        );
        return Err(wrong(written, INTER_BROKER, &what));
    }
    let mut listeners = Vec::with_capacity(open.len());
    for endpoint in open {
        let told = told.get(&endpoint.name);
        let (host, port) = told.map_or((endpoint.host.as_str(), endpoint.port), |t| {
            (t.host.as_str(), t.port)
        });
        let host = if host.is_empty() { host_name } else { host };
        if told.is_none() && is_any_address(host) {
            let what = format!(
                "{} is bound to all addresses, and clients have to be told one of them; write {ADVERTISED}={}://<host>:{}",
                endpoint.name, endpoint.name, endpoint.port
            );
            return Err(wrong(written, LISTENERS, &what));
        }
        let advertised = (host.to_owned(), port);
        listeners.push(ListenerSettings {
            name: endpoint.name,
            host: endpoint.host,
            port: endpoint.port,
            advertised,
        });
    }
    let closed = closed.iter().map(Endpoint::to_string).collect();
    Ok(Opened { listeners, closed })
}

fn read_all(written: &AsWritten, layers: &BrokerLayers<'_>, key: &str) -> Result<Vec<Endpoint>, ConfigError> {
    let read = |text: &String| {
        Endpoint::parse(text).ok_or_else(|| {
            let what =
                format!("'{text}' is no listener; write NAME://host:port as in PLAINTEXT://127.0.0.1:9092");
            wrong(written, key, &what)
        })
    };
    layers.list(key).iter().map(read).collect()
}

fn refuse_repeated(written: &AsWritten, endpoints: &[Endpoint]) -> Result<(), ConfigError> {
    for (index, endpoint) in endpoints.iter().enumerate() {
        for earlier in endpoints.iter().take(index) {
            if earlier.name == endpoint.name {
                let what = format!(
                    "the name {} comes twice; each listener needs its own",
                    endpoint.name
                );
                return Err(wrong(written, LISTENERS, &what));
            }
            if earlier.port == endpoint.port && endpoint.port != 0 && !are_both_families(earlier, endpoint) {
                let what = format!(
                    "the port {} comes twice; each listener needs its own",
                    endpoint.port
                );
                return Err(wrong(written, LISTENERS, &what));
            }
        }
    }
    Ok(())
}

/// Kafka lets one IPv4 and one IPv6 address share a port.
fn are_both_families(a: &Endpoint, b: &Endpoint) -> bool {
    match (a.host.parse::<IpAddr>(), b.host.parse::<IpAddr>()) {
        (Ok(a), Ok(b)) => a.is_ipv4() != b.is_ipv4(),
        _ => false,
    }
}

fn check_protocols(
    written: &AsWritten,
    layers: &BrokerLayers<'_>,
    open: &[Endpoint],
) -> Result<(), ConfigError> {
    let map = protocol_map(written, layers)?;
    for endpoint in open {
        let name = &endpoint.name;
        match map.get(name).map(String::as_str) {
            Some("PLAINTEXT") => {}
            Some(protocol) => {
                let what = format!(
                    "{name} uses {protocol}, and only PLAINTEXT is served so far; remove this listener"
                );
                return Err(wrong(written, LISTENERS, &what));
            }
            None => {
                let what = format!("{name} has no security protocol; write {PROTOCOLS}={name}:PLAINTEXT");
                return Err(wrong(written, LISTENERS, &what));
            }
        }
    }
    Ok(())
}

/// Listener names with their protocols, upper case both.
fn protocol_map(
    written: &AsWritten,
    layers: &BrokerLayers<'_>,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let text = layers.text(PROTOCOLS).unwrap_or_default().to_ascii_uppercase();
    let mut map = BTreeMap::new();
    for entry in text.split(',').map(str::trim).filter(|e| !e.is_empty()) {
        let pair = entry
            .split_once(':')
            .map(|(name, protocol)| (name.trim(), protocol.trim()));
        match pair {
            Some((name, protocol)) if SECURITY_PROTOCOLS.contains(&protocol) && !name.is_empty() => {
                map.insert(name.to_owned(), protocol.to_owned());
            }
            _ => {
                let known = SECURITY_PROTOCOLS.join(", ");
                let what = format!("'{entry}' is not NAME:PROTOCOL with a protocol of {known}");
                return Err(wrong(written, PROTOCOLS, &what));
            }
        }
    }
    Ok(map)
}

/// What clients are told, by listener name.
fn advertised(
    written: &AsWritten,
    layers: &BrokerLayers<'_>,
    open: &[Endpoint],
    closed: &[Endpoint],
    controllers: &[String],
) -> Result<BTreeMap<String, Endpoint>, ConfigError> {
    let mut told = BTreeMap::new();
    for endpoint in read_all(written, layers, ADVERTISED)? {
        if controllers.contains(&endpoint.name) || closed.iter().any(|e| e.name == endpoint.name) {
            continue;
        }
        if !open.iter().any(|e| e.name == endpoint.name) {
            let what = format!("{} is none of the listeners ({})", endpoint.name, names(open));
            return Err(wrong(written, ADVERTISED, &what));
        }
        if is_any_address(&endpoint.host) {
            let what = format!(
                "no client can connect to {}; name an address or host that they can reach",
                endpoint.host
            );
            return Err(wrong(written, ADVERTISED, &what));
        }
        if let Some(before) = told.insert(endpoint.name.clone(), endpoint) {
            let what = format!("{} comes twice", before.name);
            return Err(wrong(written, ADVERTISED, &what));
        }
    }
    Ok(told)
}

fn is_any_address(host: &str) -> bool {
    host.parse::<IpAddr>()
        .is_ok_and(|address| address.is_unspecified())
}

fn names(endpoints: &[Endpoint]) -> String {
    endpoints
        .iter()
        .map(|e| e.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

impl Endpoint {
    fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once("://")?;
        let (host, port) = rest.rsplit_once(':')?;
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let is_host = match bare {
            // A zone (`fe80::1%eth0`) is left to the resolver.
            Some(v6) => v6.split('%').next()?.parse::<Ipv6Addr>().is_ok(),
            None => host
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')),
        };
        (is_name && is_host).then_some(())?;
        Some(Self {
            name: name.to_ascii_uppercase(),
            host: bare.unwrap_or(host).to_owned(),
            port: port.parse().ok()?,
        })
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, host, port } = self;
        if host.contains(':') {
            write!(f, "{name}://[{host}]:{port}")
        } else {
            write!(f, "{name}://{host}:{port}")
        }
    }
}
