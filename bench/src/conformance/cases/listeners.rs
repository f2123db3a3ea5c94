//! Two listeners that tell clients different addresses: each answer names that of the listener through which it was asked.

use std::time::Duration;

use protocol::messages::describe_cluster::DescribeClusterRequest;
use protocol::messages::find_coordinator::FindCoordinatorRequest;
use protocol::messages::metadata::MetadataRequest;
use protocol::{ErrorCode, Str};

use super::super::Case;
use super::super::dialogue::Dialogue;
use super::super::target::Setup;
use super::super::wire::Wire;
use crate::error::{Result, failed};

/// Neither listener tells where it is bound.
static LISTENERS: Setup = Setup {
    name: "listeners",
    overrides: &[
        "listeners=PLAINTEXT://127.0.0.1:{port},OTHER://127.0.0.1:{other},CONTROLLER://127.0.0.1:{next}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "advertised.listeners=PLAINTEXT://inside.example:1111,OTHER://[2001:db8::1]:2222",
        "controller.listener.names=CONTROLLER",
    ],
    restarts: false,
};

pub(super) const CASES: &[Case] = &[Case::new(
    "BR-094 each listener names its own address, in every API (CN-13)",
    addresses,
)
.on(&LISTENERS)];

/// Asks on a connection and waits for the answer.
macro_rules! ask {
    ($wire:expr, $request:ty, $version:expr, $body:expr) => {{
        let id = $wire.send($version, &$body)?;
        $wire.receive::<$request>($version, id)
    }};
}

fn addresses(d: &mut Dialogue<'_>) -> Result<()> {
    let group = d.name("g");
    let found = |keys: &[&Str], version: i16| FindCoordinatorRequest {
        key: if version < 4 { group.clone() } else { Str::new() },
        coordinator_keys: keys.iter().map(|&key| key.clone()).collect(),
        ..Default::default()
    };
    coordinator_is_there(d, &found(&[&group], 4))?;
    let places = [
        d.target().address().to_owned(),
        d.target().other_address()?.to_owned(),
    ];
    for (listener, place) in ["the first", "the second"].into_iter().zip(places) {
        let mut wire = Wire::connect(&place)?;
        for version in [0, 1, 8, 9, 12, 13] {
            let wanted = MetadataRequest {
                topics: if version == 0 { Some(vec![]) } else { None },
                ..Default::default()
            };
            for broker in ask!(wire, MetadataRequest, version, wanted)?.brokers {
                d.note(&format!(
                    "{listener}: Metadata v{version} {}:{}",
                    broker.host, broker.port
                ));
            }
        }
        for version in 0..=2 {
            let wanted = DescribeClusterRequest {
                endpoint_type: 1,
                ..Default::default()
            };
            for broker in ask!(wire, DescribeClusterRequest, version, wanted)?.brokers {
                d.note(&format!(
                    "{listener}: DescribeCluster v{version} {}:{}",
                    broker.host, broker.port
                ));
            }
        }
        for version in 0..=6 {
            let wanted = if version < 4 {
                found(&[], version)
            } else {
                found(&[&group], version)
            };
            let told = ask!(wire, FindCoordinatorRequest, version, wanted)?;
            if version < 4 {
                d.note(&format!(
                    "{listener}: FindCoordinator v{version} {}:{}",
                    told.host, told.port
                ));
            }
            for one in told.coordinators {
                d.note(&format!(
                    "{listener}: FindCoordinator v{version} {}:{}",
                    one.host, one.port
                ));
            }
        }
    }
    Ok(())
}

/// Waits until the group's coordinator is told.
fn coordinator_is_there(d: &mut Dialogue<'_>, find: &FindCoordinatorRequest) -> Result<()> {
    for _ in 0..200 {
        let found = d.quiet(4, find)?;
        if found.coordinators.iter().all(|c| c.error_code == ErrorCode::NONE) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    failed("no coordinator after ten seconds")
}
