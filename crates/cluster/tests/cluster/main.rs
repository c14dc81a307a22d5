//! Schedulers and executors as processes of this machine, and their answers beside those of one process.

#![allow(clippy::unwrap_used)]

mod access;
mod answers;
mod data;
mod doors;
mod files;
mod losses;
mod programs;
mod versions;
