//! The wire types below messages: integers of variable width, strings, arrays, UUIDs and tagged fields, each in the
//! classic form and in the compact form of flexible versions (KIP-482). They extend [`Reader`](crate::Reader) and
//! [`Writer`](crate::Writer).

pub(crate) mod array;
pub(crate) mod blob;
pub(crate) mod string;
pub(crate) mod tagged;
pub(crate) mod uuid;
pub(crate) mod varint;
