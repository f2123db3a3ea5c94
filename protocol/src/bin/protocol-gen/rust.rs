//! Pieces of Rust that the emitter puts together: names, literals, calls, conditions on the version `v`.

use std::fmt::Write as _;

use super::schema::{Base, Field, Versions};

/// The reading method of a base type; for numbers also their Rust type.
pub(crate) fn method(base: &Base) -> &'static str {
    match base {
        Base::Bool => "bool",
        Base::I8 => "i8",
        Base::I16 | Base::Error => "i16",
        Base::U16 => "u16",
        Base::I32 => "i32",
        Base::U32 => "u32",
        Base::I64 => "i64",
        Base::F64 => "f64",
        Base::String => "string",
        Base::Bytes => "bytes",
        Base::Records => "records",
        Base::Uuid => "uuid",
        Base::Struct(_) => "structure",
    }
}

pub(crate) fn read_call(field: &Field, flex: &str, nullable: bool) -> String {
    let null = if nullable { "nullable_" } else { "" };
    match (&field.base, field.array) {
        (Base::Struct(_), true) => format!("r.{null}structs({flex}, v)?"),
        (_, true) => format!("r.{null}array({flex})?"),
        (Base::Struct(_), false) if nullable && field.tag.is_some() => {
            "r.tagged_nullable_struct(v)?".to_owned()
        }
        (Base::Struct(_), false) => {
            if nullable {
                "r.nullable_struct(v)?".to_owned()
            } else {
                "r.structure(v)?".to_owned()
            }
        }
        (Base::String | Base::Bytes | Base::Records, false) => {
            format!("r.{null}{}({flex})?", method(&field.base))
        }
        (Base::Error, false) => "ErrorCode(r.i16()?)".to_owned(),
        (base, false) => format!("r.{}()?", method(base)),
    }
}

/// The condition on `v` under which `inner` holds, given that `outer` does; `None` when it always does.
pub(crate) fn condition(inner: Versions, outer: Versions) -> Option<String> {
    match (inner.lo > outer.lo, inner.hi < outer.hi) {
        (false, false) => None,
        (true, false) => Some(format!("v >= {}", inner.lo)),
        (false, true) => Some(format!("v <= {}", inner.hi)),
        (true, true) if inner.lo == inner.hi => Some(format!("v == {}", inner.lo)),
        (true, true) => Some(format!("({}..={}).contains(&v)", inner.lo, inner.hi)),
    }
}

/// Statements, each under a condition or always, with what happens otherwise; neighbours under the same condition share
/// one `if`.
pub(crate) fn render(steps: &[(Option<String>, String, String)]) -> String {
    let mut out = String::new();
    for group in steps.chunk_by(|a, b| a.0 == b.0) {
        let join = |pick: fn(&(Option<String>, String, String)) -> &str| {
            group
                .iter()
                .map(pick)
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("\n")
        };
        let (then, otherwise) = (join(|step| &step.1), join(|step| &step.2));
        let _ = match &group[0].0 {
            None => writeln!(out, "{then}"),
            Some(cond) if otherwise.is_empty() => writeln!(out, "if {cond} {{\n{then}\n}}"),
            Some(cond) => writeln!(out, "if {cond} {{\n{then}\n}} else {{\n{otherwise}\n}}"),
        };
    }
    out
}

/// The opposite of [`condition`].
pub(crate) fn opposite(condition: &str) -> String {
    if let Some(lo) = condition.strip_prefix("v >= ") {
        format!("v < {lo}")
    } else if let Some(hi) = condition.strip_prefix("v <= ") {
        format!("v > {hi}")
    } else if let Some(only) = condition.strip_prefix("v == ") {
        format!("v != {only}")
    } else {
        format!("!{condition}")
    }
}

pub(crate) fn negate(expression: &str) -> String {
    if let Some((left, right)) = expression.split_once(" == ") {
        format!("{left} != {right}")
    } else if let Some(positive) = expression.strip_prefix('!') {
        positive.to_owned()
    } else if let Some(place) = expression.strip_suffix(".is_none()") {
        format!("{place}.is_some()")
    } else {
        format!("!{expression}")
    }
}

pub(crate) fn rust_literal(base: &Base, text: &str) -> String {
    match (base, text) {
        (Base::I32, "2147483647") => "i32::MAX".to_owned(),
        (Base::I32, "-2147483648") => "i32::MIN".to_owned(),
        (Base::I64, "9223372036854775807") => "i64::MAX".to_owned(),
        _ => text.to_owned(),
    }
}

/// What the Rust type does not say about a field: its versions, its tag, the schema's comment.
pub(crate) fn field_doc(field: &Field, outer: Versions) -> Option<String> {
    let mut parts = Vec::new();
    if !field.versions.covers(outer) {
        let Versions { lo, hi } = field.versions;
        parts.push(match (hi == outer.hi, lo == hi) {
            (true, _) => format!("Versions {lo}+."),
            (_, true) => format!("Version {lo}."),
            _ => format!("Versions {lo}-{hi}."),
        });
    }
    if let Some(tag) = field.tag {
        parts.push(format!("Tag {tag}."));
    }
    if !field.comment.is_empty() {
        parts.push(field.comment.clone());
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// `LogAppendTimeMs` to `log_append_time_ms`; runs of capitals are one word.
pub(crate) fn snake_case(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (i, c) in chars.iter().enumerate() {
        let previous = if i > 0 { chars[i - 1] } else { '_' };
        let before_small =
            previous.is_ascii_uppercase() && chars.get(i + 1).is_some_and(char::is_ascii_lowercase);
        let after_small = previous.is_ascii_lowercase();
        let after_v3 = previous.is_ascii_digit() && i > 1 && chars[i - 2].is_ascii_uppercase();
        if c.is_ascii_uppercase() && (after_small || before_small || after_v3)
            || c.is_ascii_digit() && after_small
        {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

pub(crate) fn rust_field(name: &str) -> String {
    let snake = snake_case(name);
    match snake.as_str() {
        "type" | "match" => format!("r#{snake}"),
        _ => snake,
    }
}
