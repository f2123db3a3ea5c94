//! From the schema directory to the text of all generated files.

use std::collections::BTreeMap;
use std::path::Path;

use super::schema::{self, Kind, SchemaFile};
use super::{emit, emit::NameCounts};

/// Reads every schema file: by module name, with its path below `protocol/`.
pub(crate) fn read_schema(dir: &Path) -> Result<BTreeMap<String, (String, SchemaFile)>, String> {
    let mut files = BTreeMap::new();
    for (sub, place) in [
        (dir.to_owned(), "schema"),
        (dir.join("internal"), "schema/internal"),
    ] {
        let entries = std::fs::read_dir(&sub).map_err(|e| format!("{}: {e}", sub.display()))?;
        for path in entries.filter_map(|entry| entry.ok().map(|e| e.path())) {
            let Some(stem) = path.file_stem().and_then(|s| s.to_str()) else {
                continue;
            };
            if path.extension().is_none_or(|ext| ext != "msg") {
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let file = schema::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
            let module = stem
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '_')
                .to_owned();
            if files
                .insert(module, (format!("{place}/{stem}.msg"), file))
                .is_some()
            {
                return Err(format!("{}: a second file of this name", path.display()));
            }
        }
    }
    Ok(files)
}

/// The generated files by name, not yet formatted.
pub(crate) fn generate(dir: &Path) -> Result<BTreeMap<String, String>, String> {
    let mut files = read_schema(dir)?;
    // Headers are written by hand in `header.rs`.
    files.retain(|_, (_, file)| file.messages.iter().all(|m| m.kind != Kind::Header));
    let names: NameCounts = emit::count_names(files.values().map(|(_, file)| file));
    let mut out = BTreeMap::new();
    for (module, (source, file)) in &files {
        out.insert(format!("{module}.rs"), emit::emit_file(source, file, &names));
    }
    let modules = files
        .into_iter()
        .map(|(module, (_, file))| (module, file))
        .collect();
    out.insert("mod.rs".to_owned(), emit::emit_mod(&modules));
    Ok(out)
}
