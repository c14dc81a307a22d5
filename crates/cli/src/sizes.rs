//! Sizes on the command line.

use headrace_ceilings::model;

/// Bytes from "512MB", "4GiB", "1000000", not 0. MB = 10^6, MiB = 2^20.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes_or_zero(text)? {
        0 => Err(usage(text)),
        bytes => Ok(bytes),
    }
}

/// No command works with less.
const MEMORY_BYTES_MIN: u64 = 4_000_000;

/// A memory limit.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes < MEMORY_BYTES_MIN => {
            Err(format!("nothing runs in less than {} MB of memory", MEMORY_BYTES_MIN / 1_000_000))
        }
        bytes => Ok(bytes),
    }
}

/// Like [`parse_bytes`], allowing 0.
pub fn parse_bytes_or_zero(text: &str) -> Result<u64, String> {
    model::parse_bytes(text).map_err(|_| usage(text))
}

fn usage(text: &str) -> String {
    format!("{text:?} is no size; write 512MB, 4GiB or a number of bytes")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("512MB").unwrap(), 512_000_000);
        assert_eq!(parse_bytes("1.5 GiB").unwrap(), 1_610_612_736);
        assert_eq!(parse_bytes("1000").unwrap(), 1000);
        assert_eq!(parse_bytes_or_zero("0").unwrap(), 0);
        assert_eq!(parse_memory("8MB").unwrap(), 8_000_000);
        assert!(parse_memory("10").unwrap_err().contains("4 MB"));
        for wrong in ["", "MB", "-1", "0", "0.2", "1 potato", "1e99GB"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
