//! Decompression of pages.

use std::io::{self, Read};

use parquet::basic::Compression;

use super::bad::Bad;

/// How the pages of a column chunk are compressed, with what its decompression keeps.
pub(super) enum Codec {
    Plain,
    Snappy(snap::raw::Decoder),
    Gzip,
    Zstd(Box<zstd::bulk::Decompressor<'static>>),
    Lz4,
}

/// Whether pages of a compression are read.
pub(super) fn is_read(compression: Compression) -> bool {
    use Compression::{GZIP, LZ4_RAW, SNAPPY, UNCOMPRESSED, ZSTD};
    matches!(compression, UNCOMPRESSED | SNAPPY | GZIP(_) | ZSTD(_) | LZ4_RAW)
}

impl Codec {
    pub fn new(compression: Compression) -> Result<Self, Bad> {
        Ok(match compression {
            Compression::UNCOMPRESSED => Self::Plain,
            Compression::SNAPPY => Self::Snappy(snap::raw::Decoder::new()),
            Compression::GZIP(_) => Self::Gzip,
            Compression::ZSTD(_) => {
                let decompressor = zstd::bulk::Decompressor::new();
                Self::Zstd(Box::new(
                    decompressor.map_err(|cause| Bad::new(format!("ZSTD: {cause}")))?,
                ))
            }
            Compression::LZ4_RAW => Self::Lz4,
            other => return Err(Bad::new(format!("compression {other} is not read"))),
        })
    }

    /// Fills `out` with the bytes that are compressed, which must be as many.
    pub fn decompress(&mut self, stored: &[u8], out: &mut [u8]) -> Result<(), Bad> {
        let wanted = out.len();
        let made = match self {
            Self::Plain => {
                if stored.len() == wanted {
                    out.copy_from_slice(stored);
                }
                Ok(stored.len())
            }
            Self::Snappy(decoder) => decoder.decompress(stored, out).map_err(|e| e.to_string()),
            Self::Gzip => unpacked(stored, out).map_err(|e| e.to_string()),
            Self::Zstd(decoder) => {
                decoder.decompress_to_buffer(stored, out).map_err(|e| e.to_string())
            }
            Self::Lz4 => lz4_flex::block::decompress_into(stored, out).map_err(|e| e.to_string()),
        };
        match made {
            Ok(made) if made == wanted => Ok(()),
            Ok(made) => Err(Bad::new(format!("a page of {made} bytes is said to have {wanted}"))),
            Err(cause) => Err(Bad::new(format!("a page does not decompress: {cause}"))),
        }
    }
}

/// All that was packed, to its checksum.
fn unpacked(stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
    let mut packed = flate2::read::MultiGzDecoder::new(stored);
    packed.read_exact(out)?;
    Ok(out.len() + packed.read(&mut [0])?)
}
