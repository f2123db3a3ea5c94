//! Topic names: which are allowed, and which collide because metrics treat `.` and `_` alike (MD-5, AD-1).

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::ErrorCode;

use crate::error::ApiError;
use crate::image::TopicsImage;

/// The longest topic name, bytes: with a partition number it must fit a directory name.
pub const NAME_BYTES_MAX: usize = 249;

/// Whether a topic may have that name.
///
/// # Errors
/// INVALID_TOPIC_EXCEPTION.
pub fn check_name(name: &str) -> Result<(), ApiError> {
    let refuse = |reason: &str| {
        Err(ApiError::new(
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            format!("Topic name is invalid: {reason}"),
        ))
    };
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    match name {
        "" => refuse("it is empty"),
        "." | ".." => refuse(&format!("'{name}' means a directory")),
        name if name.len() > NAME_BYTES_MAX => refuse(&format!(
            "it has {} characters, {NAME_BYTES_MAX} are allowed",
            name.len()
        )),
        name if !name.bytes().all(allowed) => refuse(&format!(
            "'{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
        )),
        _ => Ok(()),
    }
}

/// The existing names that others may collide with, made once per request.
pub(super) struct Collisions(BTreeMap<String, Arc<str>>);

impl Collisions {
    /// Those of `topics`, if any of the new `names` could collide at all.
    pub(super) fn of<'a>(topics: &TopicsImage, mut names: impl Iterator<Item = &'a str>) -> Self {
        let mut unified = BTreeMap::new();
        if names.any(can_collide) {
            for topic in topics.iter().filter(|topic| can_collide(&topic.name)) {
                unified
                    .entry(unify(&topic.name))
                    .or_insert_with(|| Arc::clone(&topic.name));
            }
        }
        Self(unified)
    }

    /// # Errors
    /// INVALID_TOPIC_EXCEPTION when `name` differs from an existing one only in `.` and `_`.
    pub(super) fn check(&self, name: &str) -> Result<(), ApiError> {
        match self.0.get(&unify(name)) {
            Some(existing) if can_collide(name) => Err(ApiError::new(
                ErrorCode::INVALID_TOPIC_EXCEPTION,
                format!(
                    "Topic '{name}' collides with the existing topic {existing}: '.' and '_' count as one"
                ),
            )),
            _ => Ok(()),
        }
    }
}

fn can_collide(name: &str) -> bool {
    name.contains(['.', '_'])
}

fn unify(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_follow_kafkas_rules() {
        for good in ["a", "A.b_c-1", "__consumer_offsets", &"x".repeat(249)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "é", "a\0", &"x".repeat(250)] {
            assert_eq!(
                check_name(bad).unwrap_err().code,
                ErrorCode::INVALID_TOPIC_EXCEPTION,
                "{bad}"
            );
        }
    }
}
