//! What the tests of metadata share: a runner for golden text scripts, and a controller whose decisions are committed at
//! once.
#![allow(dead_code, unreachable_pub)] // each test binary uses its part

pub mod cluster;
pub mod script;
