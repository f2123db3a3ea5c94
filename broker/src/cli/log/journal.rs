//! A journal file as lines: its header, its commits, their frames. Valid commits behind the first block that is none are
//! counted: they are of no effect, but tell what was durable.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::{Value, json};
use storage::disk::{BLOCK_BYTES, align_up};
use storage::journal::frame::{self, CommitHeader, FileHeader, Frame, FrameKind, HEADER_BYTES, OpenPayload};

use super::dump::Out;
use super::io_failed;
use crate::exit::{Failure, Status};

/// Prints the journal file.
pub(super) fn dump(path: &Path, out: &Out) -> Result<(), Failure> {
    let failed = |error: std::io::Error| io_failed(path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut head = [0; HEADER_BYTES];
    file.read_exact(&mut head).map_err(failed)?;
    let header = FileHeader::decode(&head).map_err(|invalid| {
        let sentence = format!("{} has no journal header: {invalid:?}", super::shown(path));
        Failure::new(Status::Data, sentence)
    })?;
    let fields = [
        ("shard", json!(header.shard)),
        ("run", json!(frame::run_of(header.generation))),
        ("generation", json!(header.generation)),
        ("bytes", json!(size)),
    ];
    out.fields("journal", &fields);
    let mut position = BLOCK_BYTES as u64;
    let stop = loop {
        match commit(&file, position, size, header.generation) {
            Ok((commit, bytes)) => {
                print_commit(&commit, position, &bytes, out);
                position = align_up(position + commit.commit_bytes() as u64);
            }
            Err(why) => break why,
        }
    };
    let mut behind = 0;
    let mut at = position + BLOCK_BYTES as u64;
    while at + BLOCK_BYTES as u64 <= size {
        behind += u64::from(commit(&file, at, size, header.generation).is_ok());
        at += BLOCK_BYTES as u64;
    }
    out.fields(
        "end",
        &[
            ("position", json!(position)),
            ("because", json!(stop)),
            ("valid_commits_behind", json!(behind)),
        ],
    );
    Ok(())
}

/// The valid commit at a position, or why there is none.
fn commit(file: &File, position: u64, size: u64, generation: u64) -> Result<(CommitHeader, Vec<u8>), String> {
    let read = |at: u64, len: usize| {
        if at + len as u64 > size {
            return Err("the end of the file".to_owned());
        }
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at)
            .map_err(|error| error.to_string())?;
        Ok(bytes)
    };
    let header =
        CommitHeader::decode(&read(position, HEADER_BYTES)?).map_err(|invalid| format!("{invalid:?}"))?;
    if header.generation != generation {
        return Err(format!("a commit of generation {}", header.generation));
    }
    let bytes = read(position + HEADER_BYTES as u64, header.frames_bytes as usize)?;
    frame::frames(&header, &bytes).map_err(|invalid| format!("{invalid:?}"))?;
    Ok((header, bytes))
}

fn print_commit(header: &CommitHeader, position: u64, bytes: &[u8], out: &Out) {
    let fields = [
        ("sequence", json!(header.sequence)),
        ("durable_sequence", json!(header.durable_sequence)),
        ("position", json!(position)),
        ("bytes", json!(header.commit_bytes())),
        ("frames", json!(header.frames)),
    ];
    out.fields("commit", &fields);
    for frame in frame::frames(header, bytes).unwrap_or_default() {
        print_frame(&frame, out);
    }
}

fn print_frame(frame: &Frame<'_>, out: &Out) {
    let header = &frame.header;
    let kind = json!(format!("{:?}", header.kind));
    let mut fields = vec![("kind", kind), ("incarnation", json!(header.incarnation.0))];
    let of_data = |fields: &mut Vec<(&'static str, Value)>| {
        fields.extend([
            ("base_offset", json!(header.base_offset.0)),
            ("end_offset", json!(header.end_offset.0)),
            ("segment", json!(header.segment.0)),
            ("position", json!(header.position)),
            ("payload_bytes", json!(header.payload_bytes)),
        ]);
    };
    match header.kind {
        FrameKind::Open => match OpenPayload::decode(frame.payload) {
            Ok(open) => fields.push(("directory", json!(open.directory))),
            Err(invalid) => fields.push(("error", json!(format!("{invalid:?}")))),
        },
        FrameKind::Append => of_data(&mut fields),
        FrameKind::Extent => {
            of_data(&mut fields);
            fields.push(("extent_bytes", json!(header.auxiliary)));
        }
        FrameKind::Truncate | FrameKind::Start => fields.push(("offset", json!(header.base_offset.0))),
        FrameKind::Epoch => {
            fields.push(("epoch", json!(header.auxiliary)));
            fields.push(("offset", json!(header.base_offset.0)));
        }
        FrameKind::Retire | FrameKind::Delete => {}
    }
    if header.is_loose {
        fields.push(("loose", json!(true)));
    }
    out.fields("  frame", &fields);
}
