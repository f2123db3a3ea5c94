//! The numbers of the surface map, as far as this suite goes, that have no case of their own, and why; so, too, the bug reports
//! about groups and committed offsets. A test holds that every number is in the name of a case or in this list, and in one of
//! them only.

/// Areas of the surface map that the cases cover number by number: letters and the numbers that exist.
pub const AREAS: &[(&str, &[std::ops::RangeInclusive<u32>])] = &[
    ("CN", &[1..=13]),
    ("PR", &[1..=17, 20..=34, 40..=52]),
    ("FE", &[1..=17, 20..=25, 30..=32]),
    ("LO", &[1..=11]),
    ("LE", &[1..=4]),
    ("MD", &[1..=13]),
    ("AD", &[1..=19]),
    ("RT", &[1..=10]),
    ("CP", &[1..=9]),
];

/// The bug reports (`BR-…`) whose areas are groups or committed offsets.
pub const REPORTS: &[u32] = &[
    5, 6, 19, 23, 29, 31, 43, 44, 45, 46, 53, 55, 56, 57, 58, 59, 60, 63, 64, 68, 71, 87, 88, 89, 91, 92, 95,
    97, 100, 101, 110, 112, 123, 127, 129, 130, 133,
];

const REPLICAS: &str = "needs several brokers; comes with the cluster";
const QUOTAS: &str =
    "needs quotas, which are not served yet; the settings are known and marked so by `penstock config`";
const SECURITY: &str = "needs users and ACLs; PLAINTEXT knows none";

const SEGMENTS: &str =
    "when segments are rolled is not told over the wire; `storage/tests/retention.rs` holds it";

const TRANSACTIONS: &str = "needs transactions, which are not served yet";
const CONSUMER_GROUPS: &str = "needs the consumer groups of KIP-848, which are not served yet";

/// Numbers without a case and why.
pub const UNCOVERED: &[(&str, &str)] = &[
    (
        "CN-11",
        "the caps on connections and their rate are not served yet; the settings are known and marked so by `penstock config`",
    ),
    ("CN-12", QUOTAS),
    ("PR-12", REPLICAS),
    ("PR-14", REPLICAS),
    (
        "PR-15",
        "one broker leads everything, so nobody is told another leader; FE-15 shows the same fields in Fetch",
    ),
    (
        "PR-40",
        "the state as such is not visible; PR-41 to PR-49 show what it is for",
    ),
    (
        "FE-17",
        "needs a failing disk; `old_clients_are_told_what_they_know` beside Fetch holds it",
    ),
    ("FE-31", REPLICAS),
    ("LO-9", REPLICAS),
    ("LE-4", SECURITY),
    ("MD-2", SECURITY),
    ("AD-4", QUOTAS),
    ("AD-14", REPLICAS),
    ("RT-1", SEGMENTS),
    ("RT-2", SEGMENTS),
    ("RT-3", SEGMENTS),
    (
        "RT-8",
        "files are no client's business; `broker/tests/process/retention.rs` sees them renamed and removed",
    ),
    (
        "CP-5",
        "needs transactions, which are not served yet; on logs that have some `storage/tests/compaction.rs` holds it",
    ),
    (
        "CP-7",
        "files are not visible to clients; `storage/tests/compaction.rs` crashes in every step of it",
    ),
    (
        "CP-8",
        "needs damage on disk; `a_damaged_segment_stops_its_own_log_and_not_the_cleaner` of storage holds it",
    ),
    ("BR-029", TRANSACTIONS),
    ("BR-043", REPLICAS),
    ("BR-044", REPLICAS),
    ("BR-053", TRANSACTIONS),
    (
        "BR-058",
        "takes longer than a case may: Kafka keeps offsets for a minute at least; the clock is turned by \
         `shard/src/coordinator/group/tests/offsets.rs`",
    ),
    (
        "BR-068",
        "a race, not a dialogue: `broker/tests/process/group_reports.rs` holds that no commit is ahead of the end",
    ),
    ("BR-087", CONSUMER_GROUPS),
    ("BR-088", CONSUMER_GROUPS),
    (
        "BR-091",
        "needs transactions; the watermarks of it are in FE-9, FE-10 and AD-7",
    ),
    ("BR-100", TRANSACTIONS),
    ("BR-110", REPLICAS),
    (
        "BR-130",
        "a hundred members, a full group and large metadata are in `shard/src/coordinator/group/tests`; an answer at once \
         out of range is in BR-129",
    ),
];
