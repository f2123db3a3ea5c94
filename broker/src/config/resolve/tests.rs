//! What a written configuration becomes, and which sentence a wrong one gets.

use super::*;
use crate::config::report;

/// `config/server.properties` of a Kafka 4 distribution, as its users start from it: the settings without the comments.
const KAFKA_SERVER_PROPERTIES: &str = "\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
";

fn around() -> Surroundings<'static> {
    Surroundings {
        directory: Path::new("/srv"),
        host_name: "box",
    }
}

fn written(text: &str) -> (tempfile::TempDir, AsWritten) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("server.properties");
    std::fs::write(&path, text).expect("written");
    let written = AsWritten::read(Some(&path), std::iter::empty(), &[], is_known).expect("readable");
    (dir, written)
}

fn resolved(text: &str) -> Resolved {
    resolve(&written(text).1, around()).expect("a right configuration")
}

fn refused(text: &str) -> String {
    resolve(&written(text).1, around())
        .expect_err("a wrong configuration")
        .0
}

#[test]
fn without_configuration_the_defaults_are_the_documented_ones() {
    let resolved = resolved("");
    let documented = Settings::default();
    let settings = resolved.settings;
    assert_eq!(settings.listeners, documented.listeners);
    assert_eq!(settings.admin, documented.admin);
    assert_eq!(settings.log_dirs, [Path::new("/srv/data")]);
    assert_eq!(settings.node_id, documented.node_id);
    assert_eq!(settings.request_bytes_max, documented.request_bytes_max);
    assert_eq!(settings.idle_max, documented.idle_max);
    assert_eq!(settings.fetch_bytes_max, documented.fetch_bytes_max);
    assert_eq!(settings.fetch_session_slots, documented.fetch_session_slots);
    assert_eq!(settings.group_series_max, documented.group_series_max);
    assert_eq!(settings.listen_backlog, documented.listen_backlog);
    assert!(settings.auto_create_topics);
    assert!(settings.shards.is_none() && settings.memory_bytes.is_none());
    assert!(settings.receive_buffer_bytes.is_none() && settings.send_buffer_bytes.is_none());
    assert_eq!(resolved.remarks, Remarks::default());
}

#[test]
fn a_kafka_server_properties_is_accepted_as_it_is() {
    let Resolved { settings, remarks } = resolved(KAFKA_SERVER_PROPERTIES);
    assert_eq!(remarks.warnings, Vec::<String>::new());
    assert_eq!(
        remarks.inert,
        [
            "num.io.threads",
            "num.network.threads",
            "num.recovery.threads.per.data.dir"
        ]
    );
    assert_eq!(remarks.closed_listeners, ["CONTROLLER://:9093"]);
    let [listener] = settings.listeners.as_slice() else {
        panic!("one listener: {:?}", settings.listeners)
    };
    assert_eq!((listener.host.as_str(), listener.port), ("", 9092));
    assert_eq!(listener.advertised, ("localhost".to_owned(), 9092));
    assert_eq!(settings.log_dirs, [Path::new("/tmp/kraft-combined-logs")]);
    assert_eq!(
        settings.send_buffer_bytes, None,
        "the sample's value leaves it to the system"
    );
    assert_eq!(
        settings.fixed.get("log.retention.hours").map(String::as_str),
        Some("168")
    );
}

/// Kafka's meaning, as far as there is one directory for both.
#[test]
fn the_directory_of_the_metadata_log_comes_first() {
    let of = |text: &str| resolved(text).settings.log_dirs;
    let dirs = ["/b", "/a", "/c"].map(Path::new);
    assert_eq!(of("log.dirs=/a,/b,/c\nmetadata.log.dir=/b/\n"), dirs);
    assert_eq!(of("log.dirs=/b,/a,/c\n"), dirs);
    assert_eq!(of("metadata.log.dir=data\n"), [Path::new("/srv/data")]);
    let sentence = refused("log.dirs=/a,/b\nmetadata.log.dir=/m\n");
    for part in ["metadata.log.dir", "line 2", "'/m'", "log.dirs"] {
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
}

#[test]
fn a_bad_value_is_named_with_its_line_and_what_would_be_right() {
    let sentence = refused("node.id=1\n\nnum.partitions=many\n");
    for part in [
        "server.properties, line 3",
        "num.partitions",
        "many",
        "whole number",
    ] {
        assert!(sentence.contains(part), "{part} is missing in: {sentence}");
    }
    let sentence = refused("log.segment.bytes=10");
    assert!(sentence.contains("at least 1048576"), "{sentence}");
    let sentence = refused("compression.type=brotli");
    assert!(sentence.contains("zstd"), "{sentence}");
}

#[test]
fn an_unknown_key_is_a_warning_with_the_nearest_known_one() {
    let remarks = resolved("log.retention.hour=1\nfoo.bar.baz.qux=1\nzookeeper.connect=a:2181\n").remarks;
    assert_eq!(remarks.warnings.len(), 3);
    assert!(
        remarks
            .warnings
            .iter()
            .any(|w| w.contains("did you mean log.retention.hours?"))
    );
    assert!(
        remarks
            .warnings
            .iter()
            .any(|w| w.contains("foo.bar.baz.qux") && w.contains("penstock config"))
    );
    assert!(
        remarks
            .warnings
            .iter()
            .any(|w| w.contains("zookeeper.connect") && w.contains("dropped by Kafka 4"))
    );
}

#[test]
fn several_listeners_have_names_ports_and_addresses_of_their_own() {
    let settings = resolved(
        "listeners=INSIDE://10.0.0.1:9092,OUTSIDE://:9094,SIX://[::1]:9092\n\
         advertised.listeners=OUTSIDE://kafka.example:19094\n\
         listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:plaintext,SIX:PLAINTEXT\n",
    )
    .settings;
    let told: Vec<_> = settings
        .listeners
        .iter()
        .map(|l| {
            (
                l.name.as_str(),
                l.host.as_str(),
                l.port,
                l.advertised.0.as_str(),
                l.advertised.1,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("INSIDE", "10.0.0.1", 9092, "10.0.0.1", 9092),
            ("OUTSIDE", "", 9094, "kafka.example", 19094),
            ("SIX", "::1", 9092, "::1", 9092),
        ]
    );
    assert_eq!(
        resolved("listeners=PLAINTEXT://:9092").settings.listeners[0].advertised,
        ("box".to_owned(), 9092),
        "a listener without a host tells the host's name"
    );
}

#[test]
fn wrong_listeners_are_refused_with_what_to_write() {
    for (text, part) in [
        ("listeners=9092", "NAME://host:port"),
        ("listeners=PLAINTEXT://localhost:99999", "NAME://host:port"),
        ("listeners=PLAINTEXT://lo cal:9092", "NAME://host:port"),
        (
            "listeners=PLAINTEXT://:9092,PLAINTEXT://:9093",
            "name PLAINTEXT comes twice",
        ),
        (
            "listeners=A://:9092,B://:9092\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
            "port 9092 comes twice",
        ),
        ("listeners=SSL://:9093", "only PLAINTEXT is served so far"),
        (
            "listeners=SASL_PLAINTEXT://:9093",
            "only PLAINTEXT is served so far",
        ),
        (
            "listeners=INTERNAL://:9093",
            "listener.security.protocol.map=INTERNAL:PLAINTEXT",
        ),
        ("listeners=CONTROLLER://:9093", "none is for clients"),
        (
            "listeners=PLAINTEXT://0.0.0.0:9092",
            "advertised.listeners=PLAINTEXT://<host>:9092",
        ),
        (
            "listeners=PLAINTEXT://[::]:9092",
            "advertised.listeners=PLAINTEXT://<host>:9092",
        ),
        (
            "listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://0.0.0.0:9092",
            "no client can connect to 0.0.0.0",
        ),
        (
            "listeners=PLAINTEXT://:9092\nadvertised.listeners=OTHER://a:9092",
            "OTHER is none of the listeners (PLAINTEXT)",
        ),
        (
            "listener.security.protocol.map=PLAINTEXT:TLS",
            "not NAME:PROTOCOL",
        ),
        ("inter.broker.listener.name=INSIDE", "none of the listeners"),
        ("penstock.admin.listener=nowhere", "host:port"),
        (
            "group.min.session.timeout.ms=60000\ngroup.max.session.timeout.ms=1000",
            "must be at least group.min.session.timeout.ms (60000)",
        ),
    ] {
        let sentence = refused(text);
        assert!(
            sentence.contains(part),
            "{text}: {part} is missing in: {sentence}"
        );
        assert!(sentence.contains("line "), "{sentence}");
    }
}

#[test]
fn what_this_version_cannot_do_is_refused_and_not_left_out() {
    for (text, part) in [
        ("process.roles=controller", "process.roles=broker,controller"),
        (
            "controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093",
            "clusters are not supported so far",
        ),
        (
            "authorizer.class.name=org.example.Authorizer",
            "no access control",
        ),
        ("broker.id=1\nnode.id=2", "old name of node.id"),
        ("broker.id=-1", "node.id"),
    ] {
        let sentence = refused(text);
        assert!(
            sentence.contains(part),
            "{text}: {part} is missing in: {sentence}"
        );
    }
    assert_eq!(resolved("broker.id=7").settings.node_id, BrokerId(7));
    assert_eq!(resolved("process.roles=broker").settings.node_id, BrokerId(1));
}

#[test]
fn times_sizes_and_addresses_reach_their_settings() {
    let settings = resolved(
        "connections.max.idle.ms=-1\nsocket.receive.buffer.bytes=1048576\nsocket.send.buffer.bytes=-1\n\
         log.dirs=a,/b\nlog.dir=/c\npenstock.shards=3\npenstock.memory.bytes=1073741824\n\
         penstock.admin.listener=\nbroker.rack=r1\nauto.create.topics.enable=FALSE\nsocket.listen.backlog.size=7\n",
    )
    .settings;
    assert!(settings.idle_max > Duration::from_secs(1 << 30));
    assert_eq!(settings.receive_buffer_bytes, Some(1 << 20));
    assert_eq!(settings.send_buffer_bytes, None);
    assert_eq!(settings.log_dirs, [Path::new("/srv/a"), Path::new("/b")]);
    assert_eq!((settings.shards, settings.memory_bytes), (Some(3), Some(1 << 30)));
    assert_eq!((settings.admin, settings.rack.as_deref()), (None, Some("r1")));
    assert!(!settings.auto_create_topics);
    assert_eq!(settings.listen_backlog, 7);
}

#[test]
fn the_report_names_the_origin_of_each_value_and_hides_secrets() {
    let (_dir, written) = written("num.partitions=3\nssl.keystore.password=secret\nbroker.id=4\n");
    let settings = resolve(&written, around()).expect("fine").settings;
    let report = report::report(&written, &settings);
    let of = |name: &str| report.iter().find(|e| e.name == name).expect("listed");
    let partitions = of("num.partitions");
    assert_eq!(partitions.value.as_deref(), Some("3"));
    assert!(
        partitions.origin.ends_with("server.properties, line 1"),
        "{}",
        partitions.origin
    );
    assert_eq!(of("log.retention.hours").origin, "default");
    assert_eq!(of("node.id").value.as_deref(), Some("4"));
    assert!(of("node.id").origin.starts_with("broker.id: "));
    let table = report::as_table(&report);
    assert!(
        !table.contains("secret\n") && !table.contains(" secret "),
        "{table}"
    );
    let line = table
        .lines()
        .find(|l| l.starts_with("ssl.keystore.password"))
        .expect("listed");
    assert!(line.contains("[hidden]") && line.contains("line 2"), "{line}");
    assert!(report.windows(2).all(|pair| pair[0].name < pair[1].name));
}
