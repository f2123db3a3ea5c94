//! Writes one input per message and version, and those that follow from the fixtures, as seeds for the fuzz targets.
//! Usage: `seeds DIRECTORY`; each target gets a directory in it.

use std::path::Path;

use bytes::Bytes;
use protocol::header::{RequestHeader, ResponseHeader};
use protocol::record::BatchView;
use protocol::{ApiKey, Writer};

fn main() -> std::io::Result<()> {
    let out = std::env::args_os().nth(1).expect("usage: seeds DIRECTORY");
    let out = Path::new(&out);
    messages(out)?;
    batches(out)
}

fn write(out: &Path, target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let directory = out.join(target);
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join(name), bytes)
}

fn messages(out: &Path) -> std::io::Result<()> {
    for message in protocol_fuzz::MESSAGES {
        for version in message.versions.0..=message.versions.1 {
            let (Some(api_key), Some(body)) =
                (ApiKey::from_i16(message.key), (message.default_body)(version))
            else {
                continue;
            };
            let name = format!("{}-{version}", message.name);
            let mut writer = Writer::new();
            if message.name.ends_with("Request") {
                RequestHeader {
                    api_key,
                    api_version: version,
                    correlation_id: 1,
                    client_id: None,
                }
                .encode(&mut writer);
                write(out, "request_decode", &name, &joined(writer, &body))?;
            } else if message.name.ends_with("Response") {
                let mut input = [message.key.to_be_bytes(), version.to_be_bytes()].concat();
                ResponseHeader { correlation_id: 1 }.encode(&mut writer, api_key, version);
                input.extend_from_slice(&joined(writer, &body));
                write(out, "response_decode", &name, &input)?;
            }
        }
    }
    for (number, message) in protocol_fuzz::records().enumerate() {
        for version in message.versions.0..=message.versions.1 {
            if let Some(body) = (message.default_body)(version) {
                let input = [&[number as u8, version as u8], body.as_ref()].concat();
                write(
                    out,
                    "record_decode",
                    &format!("{}-{version}", message.name),
                    &input,
                )?;
            }
        }
    }
    Ok(())
}

fn joined(mut writer: Writer, body: &Bytes) -> Vec<u8> {
    writer.raw(body);
    writer.into_bytes().expect("a header and a body").to_vec()
}

/// The fixture batches as batches, under several rules, and what is compressed in them as streams.
fn batches(out: &Path) -> std::io::Result<()> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/batches");
    for entry in std::fs::read_dir(fixtures)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "batch") {
            continue;
        }
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let bytes = std::fs::read(&path)?;
        let Ok(batch) = BatchView::parse(&bytes, 0) else {
            continue;
        };
        let mut produced = batch.bytes().to_vec();
        produced[..8].fill(0);
        // Large batches slow a target down; two rules are enough for them.
        let rules: &[u8] = if name.contains("large") {
            &[0xf0, 0x40]
        } else {
            &[0xf0, 0xf9, 0x00, 0x40]
        };
        for flags in rules {
            let input = [&[*flags], produced.as_slice()].concat();
            write(out, "batch", &format!("{name}-{flags:02x}"), &input)?;
        }
        if let Some(codec) = batch.header().attributes.codec()
            && codec != protocol::compression::Codec::None
        {
            write(out, codec.name(), &name, batch.records_bytes())?;
        }
    }
    Ok(())
}
