//! The snapshot file: Kafka's version 1, what we add to it, and what is refused.

use proptest::prelude::*;

use super::*;

#[test]
fn a_snapshot_is_kafkas_version_1_and_extends_it_only_where_it_must() {
    let mut log = Log::new();
    log.plain(7, 2, 40, 3).unwrap();
    let file = log.state.encode_snapshot();
    let entry = [
        &7i64.to_be_bytes()[..],
        &2i16.to_be_bytes(),
        &42i32.to_be_bytes(),
        &2i64.to_be_bytes(),
        &2i32.to_be_bytes(),
        &log.now.to_be_bytes(),
        &(-1i32).to_be_bytes(),
        &(-1i64).to_be_bytes(),
    ]
    .concat();
    assert_eq!(file[..2], [0, 1]);
    assert_eq!(file[6..10], [0, 0, 0, 1]);
    assert_eq!(file[10..], entry);
    assert_eq!(file[2..6], crc32c::crc32c(&file[6..]).to_be_bytes());
    log.plain(7, 2, 43, 1).unwrap();
    let file = log.state.encode_snapshot();
    assert_eq!(file.len(), 10 + 46 + 8 + 17 + 24);
    assert_eq!(&file[56..60], b"PSW1");
}

/// The file with a change and a CRC that fits it.
fn changed(file: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut file = file.to_vec();
    change(&mut file);
    let crc = crc32c::crc32c(&file[6..]).to_be_bytes();
    file[2..6].copy_from_slice(&crc);
    file
}

#[test]
fn corrupt_snapshots_are_refused() {
    let mut log = Log::new();
    for (producer, sequence) in [(7, 0), (7, 1), (8, 0), (8, 1)] {
        log.plain(producer, 0, sequence, 1).unwrap();
    }
    let file = log.state.encode_snapshot();
    assert_eq!(snapshot::decode(&file).unwrap().len(), 2);
    for len in 0..file.len() {
        assert!(snapshot::decode(&file[..len]).is_err(), "cut at {len}");
    }
    for byte in 0..file.len() {
        let mut bad = file.clone();
        bad[byte] ^= 0x10;
        assert!(snapshot::decode(&bad).is_err(), "flipped at {byte}");
    }
    let error = |change: &dyn Fn(&mut Vec<u8>)| snapshot::decode(&changed(&file, change)).unwrap_err();
    let truncated = SnapshotError::Truncated { len: file.len() };
    assert_eq!(error(&|f| f[1] = 2), SnapshotError::Version(2));
    assert_eq!(error(&|f| f[6] = 0x7f), truncated);
    assert_eq!(error(&|f| f[6] = 0xff), truncated);
    assert_eq!(
        error(&|f| f[10] = 0xff),
        SnapshotError::Entry { entry: 0 },
        "negative producer id"
    );
    assert_eq!(
        error(&|f| f[56 + 7] = 7),
        SnapshotError::Entry { entry: 1 },
        "the same producer twice"
    );
    assert_eq!(
        error(&|f| f[32] = 0xff),
        SnapshotError::Entry { entry: 0 },
        "negative offset delta"
    );
    assert_eq!(
        error(&|f| f[102 + 7] = 3),
        truncated,
        "more in the trailer than follows"
    );
    assert_eq!(error(&|f| f[110 + 7] = 9), truncated, "a trailer for nobody");
    assert_eq!(
        error(&|f| f[126] = 5),
        truncated,
        "more older batches than a window has"
    );
    // What follows in a file of someone else's is not ours to judge.
    let foreign = changed(&file, |f| f[102] = b'X');
    assert!(
        snapshot::decode(&foreign)
            .unwrap()
            .iter()
            .all(|entry| entry.older.is_empty())
    );
}

proptest! {
    #[test]
    fn decoding_a_snapshot_never_panics(body in proptest::collection::vec(any::<u8>(), 0..300), count in 0u8..6) {
        let mut file = vec![0, 1, 0, 0, 0, 0, 0, 0, 0, count];
        file.extend_from_slice(&body);
        let file = changed(&file, |_| {});
        if let Ok(entries) = snapshot::decode(&file) {
            let mut state = ProducerState::new(Offset::ZERO, PRODUCERS_MAX);
            state.load(Offset::ZERO, &entries, 0, i64::MAX);
            prop_assert_eq!(state.len(), entries.len());
        }
    }
}
