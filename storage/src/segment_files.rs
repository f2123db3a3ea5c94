//! The open segment files of a store: opened when they are written or read, closed when there are too many
//! ([`OpenFiles`]), and what may be allocated ahead in them ([`crate::segment::headroom`]).

use std::rc::Rc;

use crate::disk::{Disk, DiskError};
use crate::log::{Log, LogRef};
use crate::segment::file::SegmentFile;
use crate::segment::open_files::Victim;
use crate::store::Store;
use crate::types::Offset;

impl<D: Disk> Store<D> {
    /// The segment's file, opened if it is not; it exists. An error is not the store's end: the caller may only read.
    pub(crate) async fn segment_file(
        &self,
        log: &Rc<Log<D>>,
        base: Offset,
    ) -> Result<Rc<SegmentFile<D>>, DiskError> {
        let (open, ahead, version) = {
            let state = log.state.borrow();
            let segment = state.segment(base);
            segment.map_or((None, 0, 0), |segment| {
                (segment.file.clone(), segment.ahead_bytes, segment.version)
            })
        };
        if let Some(file) = open {
            return Ok(file);
        }
        let path = log.segment_path(base);
        let file = SegmentFile::open(&self.disk, &path, false, ahead, &self.headroom).await?;
        Ok(self.keep_open(log, base, version, file))
    }

    /// The file of this version of the segment was opened; returns the one to use, which is another if somebody was faster.
    pub(crate) fn keep_open(
        &self,
        log: &Rc<Log<D>>,
        base: Offset,
        version: u32,
        file: SegmentFile<D>,
    ) -> Rc<SegmentFile<D>> {
        let file = Rc::new(file);
        let mut state = log.state.borrow_mut();
        match state
            .segment_mut(base)
            .filter(|segment| segment.version == version)
        {
            Some(segment) => match &segment.file {
                Some(faster) => {
                    file.park(); // what is allocated ahead is charged through the other one
                    return Rc::clone(faster);
                }
                None => {
                    segment.exists = true;
                    segment.ahead_bytes = 0;
                    segment.file = Some(Rc::clone(&file));
                }
            },
            None => return file,
        }
        drop(state);
        self.opened(log.log_ref, base);
        file
    }

    /// A segment's file was opened: closes the longest unused ones beyond the limit.
    pub(crate) fn opened(&self, log: LogRef, base: Offset) {
        let mut files = self.files.borrow_mut();
        files.opened((log.slot, base));
        let logs = self.logs.borrow();
        files.shrink(|(slot, base)| logs.get(slot).map_or(Victim::Gone, |log| log.close_unused(base)));
    }
}

impl<D: Disk> Log<D> {
    /// Closes the segment's file unless it is in use or was lately.
    fn close_unused(&self, base: Offset) -> Victim {
        let Ok(mut state) = self.state.try_borrow_mut() else {
            return Victim::Busy;
        };
        let Some(segment) = state.segment_mut(base) else {
            return Victim::Gone;
        };
        let Some(file) = &segment.file else {
            return Victim::Gone;
        };
        if file.take_used() || self.flushing.get() || Rc::strong_count(file) > 1 {
            return Victim::Busy;
        }
        segment.ahead_bytes = file.park();
        segment.file = None;
        Victim::Gone
    }
}
