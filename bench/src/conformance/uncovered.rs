//! The numbers of the surface map, as far as this suite goes, that have no case of their own, and why. A test holds that every
//! number is in the name of a case or in this list, and in one of them only.

/// Areas of the surface map that the cases cover number by number: letters and the numbers that exist.
pub const AREAS: &[(&str, &[std::ops::RangeInclusive<u32>])] = &[
    ("CN", &[1..=13]),
    ("PR", &[1..=17, 20..=34, 40..=52]),
    ("FE", &[1..=17, 20..=25, 30..=32]),
    ("LO", &[1..=11]),
    ("LE", &[1..=4]),
    ("MD", &[1..=13]),
    ("AD", &[1..=19]),
];

const REPLICAS: &str = "needs several brokers; comes with the cluster";
const QUOTAS: &str =
    "needs quotas, which are not served yet; the settings are known and marked so by `penstock config`";
const SECURITY: &str = "needs users and ACLs; PLAINTEXT knows none";

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
];
