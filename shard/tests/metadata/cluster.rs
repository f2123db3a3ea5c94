//! A cluster of registered brokers with a controller whose every decision is committed at once.

use protocol::messages::broker_heartbeat::BrokerHeartbeatRequest;
use protocol::messages::broker_registration::{
    BrokerRegistrationRequest, BrokerRegistrationRequestFeature, BrokerRegistrationRequestListener,
};
use protocol::{Str, Uuid};
use shard::config::{BrokerLayers, Overrides};
use shard::controller::features::SUPPORTED;
use shard::controller::{
    Context, ControllerCommand, ControllerResponse, Decision, MetadataRecord, decide, initial_records,
};
use shard::ids::BrokerId;
use shard::image::{ImageDelta, ImagePosition, MetadataImage};

/// A controller and its metadata.
pub struct Cluster {
    pub image: MetadataImage,
    pub fixed: Overrides,
    pub node: BrokerId,
    /// Every record ever committed, entry by entry.
    pub log: Vec<Vec<MetadataRecord>>,
    seed: u64,
}

impl Cluster {
    /// A new cluster whose controller's node is `node`; no broker yet.
    pub fn new(node: i32) -> Self {
        let mut cluster = Self {
            image: MetadataImage::empty("penstock-test-cluster"),
            fixed: Overrides::new(),
            node: BrokerId(node),
            log: Vec::new(),
            seed: 7,
        };
        let none = Overrides::new();
        cluster.commit(initial_records(&BrokerLayers::of_file(&none)));
        cluster
    }

    /// The decision on a command, without committing it.
    pub fn decide(&mut self, command: &ControllerCommand) -> Decision<ControllerResponse> {
        let mut seed = self.seed;
        let mut random = || {
            // SplitMix64.
            seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        };
        let decision = decide(
            &mut Context {
                image: &self.image,
                node: self.node,
                fixed: &self.fixed,
                next_index: self.image.position.index + 1,
                random: &mut random,
            },
            command,
        );
        self.seed = seed;
        decision
    }

    /// Decides and commits; the records come back too.
    pub fn run(&mut self, command: &ControllerCommand) -> (ControllerResponse, Vec<MetadataRecord>) {
        let decision = self.decide(command);
        self.commit(decision.records.clone());
        (decision.response, decision.records)
    }

    fn commit(&mut self, records: Vec<MetadataRecord>) {
        if records.is_empty() {
            return;
        }
        let mut delta = ImageDelta::new(&self.image);
        delta.apply_all(&records).expect("the controller's records fit");
        let index = self.image.position.index + 1;
        self.image = delta.finish(ImagePosition { index, term: 1 }).0;
        self.log.push(records);
    }

    /// Registers broker `id` in `rack` (none when empty) and lets it serve.
    pub fn join(&mut self, id: i32, rack: &str) {
        let incarnation = u128::from(id.unsigned_abs()) + 500 + u128::from(self.image.position.index) * 1000;
        self.run(&ControllerCommand::RegisterBroker(registration(
            id,
            rack,
            incarnation,
            -1,
        )));
        self.heartbeat(id, false, false);
    }

    /// A heartbeat of broker `id`.
    pub fn heartbeat(&mut self, id: i32, want_fence: bool, want_shut_down: bool) -> Vec<MetadataRecord> {
        let epoch = self
            .image
            .brokers
            .get(BrokerId(id))
            .map_or(-1, |broker| broker.epoch);
        let (_, records) = self.run(&ControllerCommand::BrokerHeartbeat(BrokerHeartbeatRequest {
            broker_id: id,
            broker_epoch: epoch,
            current_metadata_offset: i64::MAX,
            want_fence,
            want_shut_down,
            ..BrokerHeartbeatRequest::default()
        }));
        records
    }
}

/// A registration of broker `id`.
pub fn registration(
    id: i32,
    rack: &str,
    incarnation: u128,
    previous_epoch: i64,
) -> BrokerRegistrationRequest {
    BrokerRegistrationRequest {
        broker_id: id,
        cluster_id: Str::from_static("penstock-test-cluster"),
        incarnation_id: Uuid::from_u128(incarnation),
        listeners: vec![BrokerRegistrationRequestListener {
            name: Str::from_static("PLAINTEXT"),
            host: Str::from_static("127.0.0.1"),
            port: 9092,
            security_protocol: 0,
        }],
        features: SUPPORTED
            .iter()
            .map(|feature| BrokerRegistrationRequestFeature {
                name: Str::from_static(feature.name),
                min_supported_version: feature.min,
                max_supported_version: feature.max,
            })
            .collect(),
        rack: (!rack.is_empty()).then(|| Str::from(rack.to_owned())),
        is_migrating_zk_broker: false,
        log_dirs: vec![Uuid::from_u128(1000 + u128::from(id.unsigned_abs()))],
        previous_broker_epoch: previous_epoch,
    }
}
