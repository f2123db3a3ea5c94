//! The endpoints of brokers that an answer names as leaders (KIP-951), on the listener the request came in on.

use protocol::Str;
use shard::ids::BrokerId;

use crate::view::View;

/// A broker's address as clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaderEndpoint {
    /// The broker's id.
    pub id: i32,
    /// Its host.
    pub host: Str,
    /// Its port.
    pub port: i32,
    /// Its rack.
    pub rack: Option<Str>,
}

/// The endpoints of `leaders`, each once, by rising id; brokers without that listener are left out.
pub(super) fn endpoints(
    view: &View,
    listener: &str,
    mut leaders: Vec<BrokerId>,
) -> impl Iterator<Item = LeaderEndpoint> {
    leaders.sort_unstable();
    leaders.dedup();
    leaders.into_iter().filter_map(move |id| {
        let broker = view.image.brokers.get(id)?;
        let endpoint = broker.endpoint(listener)?;
        Some(LeaderEndpoint {
            id: id.0,
            host: Str::from(endpoint.host.to_string()),
            port: i32::from(endpoint.port),
            rack: broker.rack.as_ref().map(|rack| Str::from(rack.to_string())),
        })
    })
}
