//! The notation of `protocol/schema/*.msg` and its parser.
//!
//! A file holds messages, one after the other. `#` starts a comment; the comment at the top becomes the module's text,
//! one behind a field the field's. Blocks are indented by two spaces.
//!
//! ```text
//! api 0 Produce versions 3-13 flexible 9+ listener broker      names and versions of the two messages that follow
//! request                                                      fields of ProduceRequest
//!   Name: TYPE[?[VERSIONS]] [VERSIONS] [tag N] [= DEFAULT] [ignorable] [classic] [private]
//!     ...                                                      fields of the struct, if TYPE is one not seen before
//!   struct Name [VERSIONS]                                     a struct that several fields use
//! response
//! key|value|record N Name versions 0 [flexible 0+]             parts of records in internal topics
//! data Name versions 0-3                                       anything else
//! ```
//!
//! TYPE is `bool i8 i16 u16 i32 u32 i64 f64 string bytes records uuid error` or a struct's name, `[]` before it makes
//! an array. `?` allows null, in some versions only if versions follow it. VERSIONS are `3`, `3-5` or `3+`, and left
//! out when a field exists wherever its struct does. `tag N` makes a tagged field. A default is needed where it is not
//! zero, empty or false. `ignorable` drops the field where the version has no place for it, otherwise a value there is
//! an error. `classic` keeps the classic form in flexible versions. `private` marks a tagged field of Penstock's own,
//! with a tag of at least [`PRIVATE_TAG_MIN`]. `unstable N` behind the versions says which of them is not released.

use std::collections::BTreeMap;

/// Tags below this are Kafka's to give.
pub(crate) const PRIVATE_TAG_MIN: u32 = 10_000;

/// A range of versions, both ends included; `hi` is `i16::MAX` for "and later".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) lo: i16,
    pub(crate) hi: i16,
}

impl Versions {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (lo, hi) = if let Some(lo) = text.strip_suffix('+') {
            (lo.parse().ok()?, i16::MAX)
        } else if let Some((lo, hi)) = text.split_once('-') {
            (lo.parse().ok()?, hi.parse().ok()?)
        } else {
            let only = text.parse().ok()?;
            (only, only)
        };
        (lo >= 0 && lo <= hi).then_some(Self { lo, hi })
    }

    /// The versions in both, if any.
    pub(crate) fn intersect(self, other: Self) -> Option<Self> {
        let (lo, hi) = (self.lo.max(other.lo), self.hi.min(other.hi));
        (lo <= hi).then_some(Self { lo, hi })
    }

    pub(crate) fn covers(self, other: Self) -> bool {
        self.lo <= other.lo && other.hi <= self.hi
    }

    pub(crate) fn contains(self, version: i16) -> bool {
        self.lo <= version && version <= self.hi
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    Bool,
    I8,
    I16,
    U16,
    I32,
    U32,
    I64,
    F64,
    String,
    Bytes,
    Records,
    Uuid,
    Error,
    Struct(String),
}

impl Base {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "bool" => Self::Bool,
            "i8" => Self::I8,
            "i16" => Self::I16,
            "u16" => Self::U16,
            "i32" => Self::I32,
            "u32" => Self::U32,
            "i64" => Self::I64,
            "f64" => Self::F64,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "records" => Self::Records,
            "uuid" => Self::Uuid,
            "error" => Self::Error,
            name if name.starts_with(|c: char| c.is_ascii_uppercase()) => Self::Struct(name.to_owned()),
            _ => return None,
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) base: Base,
    pub(crate) array: bool,
    /// Versions that have the field, within those of its struct.
    pub(crate) versions: Versions,
    /// Versions in which it may be null, within `versions`.
    pub(crate) nullable: Option<Versions>,
    pub(crate) tag: Option<u32>,
    /// As written; absent for zero, empty and false.
    pub(crate) default: Option<String>,
    pub(crate) ignorable: bool,
    pub(crate) classic: bool,
    pub(crate) private: bool,
    pub(crate) comment: String,
}

#[derive(Debug, Clone)]
pub(crate) struct StructDef {
    pub(crate) name: String,
    pub(crate) versions: Versions,
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Response,
    Key,
    Value,
    Record,
    Data,
    Header,
}

#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) key: Option<i16>,
    pub(crate) versions: Versions,
    /// The highest version, if it is not released.
    #[allow(dead_code)] // for the comparison with Kafka
    pub(crate) unstable: Option<i16>,
    pub(crate) flexible: Option<i16>,
    /// The listener of an API.
    #[allow(dead_code)]
    pub(crate) listener: String,
    /// The message itself.
    pub(crate) body: StructDef,
    /// The structs inside it, in the order in which they first appear.
    pub(crate) structs: Vec<StructDef>,
}

#[derive(Debug, Clone)]
pub(crate) struct SchemaFile {
    pub(crate) comment: Vec<String>,
    pub(crate) messages: Vec<Message>,
}

/// Parses a file. Errors name the line.
pub(crate) fn parse(text: &str) -> Result<SchemaFile, String> {
    let mut parser = Parser {
        lines: Vec::new(),
        at: 0,
        api: None,
    };
    let mut comment = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let (code, note) = line.split_once('#').unwrap_or((line, ""));
        let body = code.trim_start();
        if body.is_empty() {
            if parser.lines.is_empty() && line.starts_with('#') {
                comment.push(note.trim().to_owned());
            }
            continue;
        }
        let spaces = code.len() - body.len();
        if spaces % 2 != 0 {
            return Err(format!("line {}: odd indentation", i + 1));
        }
        parser.lines.push(Line {
            number: i + 1,
            depth: spaces / 2,
            words: body.split_whitespace().map(str::to_owned).collect(),
            comment: note.trim().to_owned(),
        });
    }
    let mut messages = Vec::new();
    while parser.at < parser.lines.len() {
        let number = parser.lines[parser.at].number;
        match parser.declaration() {
            Ok(message) => messages.extend(message),
            Err(e) => {
                let number = parser.lines.get(parser.at).map_or(number, |l| l.number);
                return Err(format!("line {number}: {e}"));
            }
        }
    }
    Ok(SchemaFile { comment, messages })
}

struct Line {
    number: usize,
    depth: usize,
    words: Vec<String>,
    comment: String,
}

struct Parser {
    lines: Vec<Line>,
    at: usize,
    /// The `api` line above a request and a response.
    api: Option<Message>,
}

impl Parser {
    fn declaration(&mut self) -> Result<Option<Message>, String> {
        let line = &self.lines[self.at];
        if line.depth != 0 {
            return Err("a field outside of a message".to_owned());
        }
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        let mut message = match words.as_slice() {
            ["api", key, name, rest @ ..] => {
                self.api = Some(header(Kind::Request, Some(key), name, rest)?);
                self.at += 1;
                return Ok(None);
            }
            ["request"] | ["response"] => {
                let mut message = self.api.clone().ok_or("no api line above")?;
                if words[0] == "request" {
                    message.body.name.push_str("Request");
                } else {
                    message.kind = Kind::Response;
                    message.body.name.push_str("Response");
                }
                message
            }
            ["key", key, name, rest @ ..] => header(Kind::Key, Some(key), name, rest)?,
            ["value", key, name, rest @ ..] => header(Kind::Value, Some(key), name, rest)?,
            ["record", key, name, rest @ ..] => header(Kind::Record, Some(key), name, rest)?,
            ["data", name, rest @ ..] => header(Kind::Data, None, name, rest)?,
            ["header", name, rest @ ..] => header(Kind::Header, None, name, rest)?,
            _ => {
                return Err("expected api, request, response, key, value, record, data or header".to_owned());
            }
        };
        self.at += 1;
        let versions = message.versions;
        message.body.fields = self.fields(1, versions, &mut message.structs)?;
        check_references(&message)?;
        Ok(Some(message))
    }

    /// The fields at `depth`, with their structs added to `structs`.
    fn fields(
        &mut self,
        depth: usize,
        outer: Versions,
        structs: &mut Vec<StructDef>,
    ) -> Result<Vec<Field>, String> {
        let mut fields = Vec::new();
        while let Some(line) = self.lines.get(self.at).filter(|line| line.depth >= depth) {
            if line.depth > depth {
                return Err("indented too far".to_owned());
            }
            let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
            let (name, versions, owner) = if let ["struct", name, rest @ ..] = words.as_slice() {
                let versions = match rest {
                    [] => outer,
                    [text] => versions_in(text, outer)?,
                    _ => return Err("struct NAME [VERSIONS]".to_owned()),
                };
                ((*name).to_owned(), versions, true)
            } else {
                let field = field(&words, &line.comment, outer)?;
                let name = if let Base::Struct(name) = &field.base {
                    name.clone()
                } else {
                    String::new()
                };
                let versions = field.versions;
                fields.push(field);
                (name, versions, false)
            };
            self.at += 1;
            if owner || self.lines.get(self.at).is_some_and(|next| next.depth > depth) {
                if name.is_empty() || structs.iter().any(|s| s.name == name) {
                    return Err("fields inside something that is no struct, or a second time".to_owned());
                }
                let place = structs.len();
                structs.push(StructDef {
                    name,
                    versions,
                    fields: Vec::new(),
                });
                structs[place].fields = self.fields(depth + 1, versions, structs)?;
            }
        }
        Ok(fields)
    }
}

fn versions_in(text: &str, outer: Versions) -> Result<Versions, String> {
    let versions = Versions::parse(text).ok_or_else(|| format!("{text}: not versions"))?;
    versions
        .intersect(outer)
        .ok_or_else(|| format!("{text}: outside of the struct's versions"))
}

fn header(kind: Kind, key: Option<&str>, name: &str, rest: &[&str]) -> Result<Message, String> {
    let key = key
        .map(|k| k.parse().map_err(|_| format!("{k}: not a key")))
        .transpose()?;
    let options: BTreeMap<&str, &str> = rest
        .chunks(2)
        .map(|w| (w[0], w.get(1).copied().unwrap_or("")))
        .collect();
    if let Some(unknown) = options
        .keys()
        .find(|o| !["versions", "flexible", "unstable", "listener"].contains(o))
    {
        return Err(format!("{unknown}: unknown"));
    }
    let versions = options
        .get("versions")
        .and_then(|v| Versions::parse(v))
        .ok_or("versions are missing")?;
    let flexible = match options.get("flexible") {
        Some(text) => Some(
            Versions::parse(text)
                .ok_or_else(|| format!("{text}: not versions"))?
                .lo,
        ),
        None => None,
    };
    let unstable = options
        .get("unstable")
        .map(|v| v.parse().map_err(|_| format!("{v}: not a version")));
    Ok(Message {
        kind,
        key,
        versions,
        unstable: unstable.transpose()?,
        flexible,
        listener: options.get("listener").copied().unwrap_or_default().to_owned(),
        body: StructDef {
            name: name.to_owned(),
            versions,
            fields: Vec::new(),
        },
        structs: Vec::new(),
    })
}

fn field(words: &[&str], comment: &str, outer: Versions) -> Result<Field, String> {
    let [name, ty, rest @ ..] = words else {
        return Err("NAME: TYPE".to_owned());
    };
    let name = name
        .strip_suffix(':')
        .ok_or("a colon is missing behind the name")?;
    let (ty, null) = match ty.split_once('?') {
        Some((ty, null)) => (ty, Some(null)),
        None => (*ty, None),
    };
    let array = ty.starts_with("[]");
    let base = Base::parse(ty.trim_start_matches("[]")).ok_or_else(|| format!("{ty}: unknown type"))?;
    let mut field = Field {
        name: name.to_owned(),
        base,
        array,
        versions: outer,
        nullable: None,
        tag: None,
        default: None,
        ignorable: false,
        classic: false,
        private: false,
        comment: comment.to_owned(),
    };
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match *word {
            "tag" => {
                let tag = words.next().and_then(|w| w.parse().ok()).ok_or("tag N")?;
                field.tag = Some(tag);
            }
            "=" => field.default = Some((*words.next().ok_or("a default is missing behind =")?).to_owned()),
            "ignorable" => field.ignorable = true,
            "classic" => field.classic = true,
            "private" => field.private = true,
            versions => field.versions = versions_in(versions, outer)?,
        }
    }
    field.nullable = match null {
        None => None,
        Some("") => Some(field.versions),
        Some(text) => Some(versions_in(text, field.versions)?),
    };
    if field.default.as_deref() == Some("null") && field.nullable.is_none() {
        return Err(format!(
            "{name}: null is no default of a field that may not be null"
        ));
    }
    if field.private != field.tag.is_some_and(|tag| tag >= PRIVATE_TAG_MIN) {
        return Err(format!(
            "{name}: private fields, and only they, have tags from {PRIVATE_TAG_MIN}"
        ));
    }
    Ok(field)
}

fn check_references(message: &Message) -> Result<(), String> {
    for def in std::iter::once(&message.body).chain(&message.structs) {
        for field in &def.fields {
            if let Base::Struct(name) = &field.base
                && !message.structs.iter().any(|s| s.name == *name)
            {
                return Err(format!("{}.{}: no struct {name}", def.name, field.name));
            }
        }
    }
    Ok(())
}
