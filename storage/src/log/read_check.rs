//! Batches that are read from disk are checked before they leave: a client that does not look at checksums would take damaged
//! bytes for records (docs/decisions/0053). What lies before the damage is served; each damaged place is reported once.

use std::collections::BTreeSet;

use super::batch::BatchHeader;
use super::window::Window;
use crate::disk::Disk;
use crate::error::Damage;
use crate::store::Store;
use crate::types::{LogId, Offset};

/// Damaged places that are remembered; more are reported each time they are met.
const PLACES_MAX: usize = 1000;

/// What readers of a store have met that is damaged.
#[derive(Debug, Default)]
pub(crate) struct ReadDamage {
    places: BTreeSet<(LogId, String, u64)>,
    reads: u64,
}

impl ReadDamage {
    /// Different damaged places, and reads that met one, since the start.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.places.len(), self.reads)
    }
}

/// The batches from `from` to `to` of a window, as far as they are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checked {
    /// Behind the last batch that is right, bytes.
    pub(super) to: usize,
    /// The offset behind it, if there is one.
    pub(super) end: Option<Offset>,
    /// The batch there, whose checksum is not that of its bytes, and which one those have.
    pub(super) fault: Option<(BatchHeader, u32)>,
}

/// Looks at each batch.
pub(super) fn check(window: &Window, from: usize, to: usize) -> Checked {
    let mut checked = Checked {
        to: from,
        end: None,
        fault: None,
    };
    while checked.to < to {
        let Some(header) = window.header(checked.to) else {
            break;
        };
        let end = checked.to + header.size as usize;
        let found = window.batch_crc(checked.to, end);
        if found != header.wire.crc {
            checked.fault = Some((header, found));
            break;
        }
        checked.to = end;
        checked.end = Some(header.last_offset().plus(1));
    }
    checked
}

impl<D: Disk> Store<D> {
    /// A read of `log` met damage: said the first time.
    pub(crate) fn met_damage(&self, log: LogId, damage: &Damage) {
        let file = damage.path.file_name().unwrap_or_default().to_string_lossy();
        let place = (log, file.into_owned(), damage.position);
        let mut met = self.read_damage.borrow_mut();
        met.reads += 1;
        if met.places.contains(&place) {
            return;
        }
        if met.places.len() < PLACES_MAX {
            met.places.insert(place);
        }
        tracing::error!(%damage, "a batch on disk is damaged: fetches of it are refused, the rest of the log is served");
    }
}
