//! The engines, each in each mode: what every test of readers or writers goes through.

use headrace_io::ReadMode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Pool(ReadMode),
    Uring(ReadMode),
    UringUnregistered(ReadMode),
}

pub const KINDS: [Kind; 6] = [
    Kind::Pool(ReadMode::Buffered),
    Kind::Pool(ReadMode::Direct),
    Kind::Uring(ReadMode::Buffered),
    Kind::Uring(ReadMode::Direct),
    Kind::UringUnregistered(ReadMode::Buffered),
    Kind::UringUnregistered(ReadMode::Direct),
];

impl Kind {
    pub fn mode(self) -> ReadMode {
        match self {
            Kind::Pool(mode) | Kind::Uring(mode) | Kind::UringUnregistered(mode) => mode,
        }
    }
}

/// Small, so that a small file is cut into many segments.
pub const SEGMENT_BYTES: usize = 8192;
