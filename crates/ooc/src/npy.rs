//! The header of `.npy` files: read in versions 1 to 3, written in version 1.
//!
//! ```text
//! 93 'NUMPY' | major minor | length (u16, from version 2 on u32) | a Python dictionary, padded | values
//! ```

use headrace_io::ReadAt;

use crate::{NumberType, OocError, Result};

/// The first bytes of every file.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Longest accepted header: no shape of numbers needs more.
const HEADER_BYTES_MAX: u64 = 64 << 10;

/// Values in files written here begin at a multiple of this.
const ALIGN_BYTES: usize = 64;

/// The content of the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Npy {
    /// Of each value.
    pub number: NumberType,
    /// Whether the first index runs fastest.
    pub is_fortran: bool,
    /// Values along each axis.
    pub shape: Vec<u64>,
    /// Where the values begin in the file.
    pub data_offset: u64,
}

/// The problem of a header, and the remedy.
type Fault = (String, String);

impl Npy {
    /// Reads the header, and checks that the file has all values. Trailing bytes are ignored, as in NumPy.
    ///
    /// # Errors
    /// [`OocError::Input`] for a file that is not a `.npy` file, is shorter than it says, or has values
    /// other than little-endian numbers; errors of the read.
    pub fn of(file: &dyn ReadAt) -> Result<Npy> {
        Npy::within(file, 0, file.size_bytes())
    }

    /// Like [`of`](Npy::of), for a `.npy` file that is some of a file's bytes, which exist. Offsets are those in the
    /// whole file.
    ///
    /// # Errors
    /// Those of [`of`](Npy::of).
    pub fn within(file: &dyn ReadAt, begin: u64, bytes: u64) -> Result<Npy> {
        let fault = |(what, remedy): Fault| OocError::input(file.path(), what, remedy);
        let mut start = vec![0; bytes.min(12) as usize];
        file.read_exact_at(begin, &mut start)?;
        let data_offset = data_offset(&start).map_err(fault)?;
        let mut header = vec![0; data_offset.min(bytes) as usize];
        file.read_exact_at(begin, &mut header)?;
        let npy = Npy::parse(&header).map_err(fault)?;
        match npy.data_bytes().and_then(|data_bytes| data_bytes.checked_add(npy.data_offset)) {
            Some(needed) if needed <= bytes => Ok(Npy { data_offset: begin + data_offset, ..npy }),
            _ => {
                let (shape, from, end) = (&npy.shape, begin + data_offset, begin + bytes);
                let what = format!(
                    "its header promises values of {} of shape {shape:?} from byte {from} on, the \
                     file ends at byte {end}",
                    npy.number
                );
                Err(fault((what, "the file was cut short: write it anew".to_string())))
            }
        }
    }

    /// Parses a header: the bytes of a file from its first to its first value, or more.
    ///
    /// # Errors
    /// The problem, and the remedy.
    pub fn parse(start: &[u8]) -> std::result::Result<Npy, Fault> {
        let data_offset = data_offset(start)?;
        let Some(header) = start.get(..data_offset as usize) else {
            return Err(broken("the file ends within its header"));
        };
        let text = &header[prefix_bytes(start)..];
        let mut npy = Dictionary { text, at: 0 }.parse()?;
        npy.data_offset = data_offset;
        Ok(npy)
    }

    /// Bytes of all values, if they fit in a file.
    pub fn data_bytes(&self) -> Option<u64> {
        let of_value = self.number.bytes() as u64;
        // An axis of no values makes it 0, however long the others are.
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape.iter().try_fold(of_value, |bytes, &values| bytes.checked_mul(values))
    }
}

/// The header of a file of such values, with the first index running slowest.
///
/// # Panics
/// For [`NumberType::Bf16`], which has no name in NumPy.
pub fn header(number: NumberType, shape: &[u64]) -> Vec<u8> {
    let values = match number {
        NumberType::I32 => "<i4",
        NumberType::U32 => "<u4",
        NumberType::I64 => "<i8",
        NumberType::U64 => "<u8",
        NumberType::F32 => "<f4",
        NumberType::F64 => "<f8",
        NumberType::Bf16 => panic!("a .npy file cannot have bf16"),
    };
    let axes: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if axes.len() == 1 { "," } else { "" };
    let mut dictionary = format!(
        "{{'descr': '{values}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        axes.join(", ")
    );
    let prefix_bytes = MAGIC.len() + 4;
    let bytes = (prefix_bytes + dictionary.len() + 1).next_multiple_of(ALIGN_BYTES);
    dictionary.extend(std::iter::repeat_n(' ', bytes - prefix_bytes - dictionary.len() - 1));
    dictionary.push('\n');
    let length = u16::try_from(dictionary.len()).expect("a shape of few axes");
    [MAGIC, &[1, 0], &length.to_le_bytes(), dictionary.as_bytes()].concat()
}

fn broken(what: &str) -> Fault {
    (format!("no .npy header: {what}"), "write the file anew with numpy.save".to_string())
}

fn prefix_bytes(start: &[u8]) -> usize {
    if start.get(MAGIC.len()) == Some(&1) { 10 } else { 12 }
}

/// Offset of the values, from the first 12 bytes.
fn data_offset(start: &[u8]) -> std::result::Result<u64, Fault> {
    if !start.starts_with(MAGIC) {
        return Err(broken("the file does not begin as one"));
    }
    let length = match start[MAGIC.len()..] {
        [1, _, a, b, ..] => u64::from(u16::from_le_bytes([a, b])),
        [2 | 3, _, a, b, c, d, ..] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [version @ (0 | 4..), _, ..] => {
            return Err(broken(&format!("version {version}, versions 1 to 3 are known")));
        }
        _ => return Err(broken("the file ends within it")),
    };
    if length > HEADER_BYTES_MAX {
        return Err(broken(&format!("{length} bytes long, {HEADER_BYTES_MAX} are the most")));
    }
    Ok(prefix_bytes(start) as u64 + length)
}

/// The Python dictionary of a header.
struct Dictionary<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Dictionary<'a> {
    fn parse(mut self) -> std::result::Result<Npy, Fault> {
        let (mut number, mut is_fortran, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.takes(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            let is_new = match key {
                b"descr" => number.replace(self.number()?).is_none(),
                b"fortran_order" => is_fortran.replace(self.boolean()?).is_none(),
                b"shape" => shape.replace(self.shape()?).is_none(),
                _ => return Err(self.broken("an entry that is not known")),
            };
            if !is_new {
                return Err(self.broken("an entry for the second time"));
            }
            if !self.takes(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.skip_blanks();
        match (number, is_fortran, shape) {
            (Some(number), Some(is_fortran), Some(shape)) if self.at == self.text.len() => {
                Ok(Npy { number, is_fortran, shape, data_offset: 0 })
            }
            _ => Err(self.broken("descr, fortran_order or shape is missing, or something follows")),
        }
    }

    fn broken(&self, what: &str) -> Fault {
        broken(&format!("{what}, at byte {} of its dictionary", self.at))
    }

    fn skip_blanks(&mut self) {
        while self.text.get(self.at).is_some_and(|byte| b" \t\r\n".contains(byte)) {
            self.at += 1;
        }
    }

    fn takes(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> std::result::Result<(), Fault> {
        let found = self.takes(byte);
        found.then_some(()).ok_or_else(|| self.broken(&format!("no {:?}", char::from(byte))))
    }

    fn string(&mut self) -> std::result::Result<&'a [u8], Fault> {
        let quote = if self.takes(b'"') { b'"' } else { b'\'' };
        if quote == b'\'' {
            self.expect(quote)?;
        }
        let rest = &self.text[self.at..];
        let Some(length) = rest.iter().position(|&byte| byte == quote) else {
            return Err(self.broken("a text that does not end"));
        };
        self.at += length + 1;
        Ok(&rest[..length])
    }

    /// The meaning of a run of letters and digits.
    fn word(&mut self) -> &'a [u8] {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        self.at += length;
        &rest[..length]
    }

    fn boolean(&mut self) -> std::result::Result<bool, Fault> {
        match self.word() {
            b"True" => Ok(true),
            b"False" => Ok(false),
            _ => Err(self.broken("neither True nor False")),
        }
    }

    fn number(&mut self) -> std::result::Result<NumberType, Fault> {
        self.skip_blanks();
        if self.text.get(self.at) == Some(&b'[') {
            let remedy = "save its fields as arrays of their own";
            return Err(("values that are records".to_string(), remedy.to_string()));
        }
        Ok(match self.string()? {
            b"<f4" => NumberType::F32,
            b"<f8" => NumberType::F64,
            b"<i4" => NumberType::I32,
            b"<i8" => NumberType::I64,
            b"<u4" => NumberType::U32,
            b"<u8" => NumberType::U64,
            other => {
                let what = format!("values of type {:?}", String::from_utf8_lossy(other));
                let remedy = "<f4, <f8, <i4, <i8, <u4, <u8 are known (array.astype('<f4')); bf16 only as a \
                              raw file";
                return Err((what, remedy.to_string()));
            }
        })
    }

    fn shape(&mut self) -> std::result::Result<Vec<u64>, Fault> {
        self.expect(b'(')?;
        let mut shape = Vec::new();
        while !self.takes(b')') {
            let word = self.word();
            // Python 2 wrote 3L.
            let digits = word.strip_suffix(b"L").unwrap_or(word);
            let axis = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            shape.push(axis.ok_or_else(|| self.broken("no length of an axis"))?);
            if !self.takes(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn version_1(dictionary: &str) -> Vec<u8> {
        let length = (dictionary.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &length, dictionary.as_bytes()].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        for shape in [vec![], vec![7], vec![3, 4], vec![0, u64::MAX]] {
            for number in NumberType::ALL.into_iter().filter(|n| *n != NumberType::Bf16) {
                let header = header(number, &shape);
                assert!(header.len().is_multiple_of(64) && header.ends_with(b"\n"));
                let data_offset = header.len() as u64;
                let (shape, is_fortran) = (shape.clone(), false);
                let npy = Npy { number, is_fortran, shape, data_offset };
                assert_eq!(Npy::parse(&header), Ok(npy));
            }
        }
    }

    #[test]
    fn numpy_and_its_ancestors_are_read() {
        let old = "{'descr': '<f4', 'fortran_order': True, 'shape': (3L, 4L)}  \n";
        let npy = Npy::parse(&version_1(old)).unwrap();
        assert_eq!(
            (npy.is_fortran, npy.shape, npy.data_offset),
            (true, vec![3, 4], 10 + old.len() as u64)
        );
        let dictionary = br#"{"shape":(5,),"descr":"<f8","fortran_order":False}"#;
        for major in [2, 3] {
            let length = (dictionary.len() as u32).to_le_bytes();
            let bytes = [MAGIC, &[major, 0], &length, dictionary].concat();
            let npy = Npy::parse(&bytes).unwrap();
            assert_eq!((npy.number, npy.shape), (NumberType::F64, vec![5]));
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_with_what_helps() {
        let fault = |dictionary: &str| {
            let (what, remedy) = Npy::parse(&version_1(dictionary)).unwrap_err();
            format!("{what}; {remedy}")
        };
        let big_endian = fault("{'descr': '>f4', 'fortran_order': False, 'shape': (3,)}");
        assert!(big_endian.contains(">f4") && big_endian.contains("astype"), "{big_endian}");
        let records = fault("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}");
        assert!(records.contains("records"), "{records}");
        for wrong in [
            "",
            "{",
            "{}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x",
        ] {
            assert!(fault(wrong).contains("no .npy header"), "{wrong}");
        }
        let mut longer = MAGIC.to_vec();
        longer.extend([2, 0, 255, 255, 255, 255]);
        assert!(Npy::parse(&longer).unwrap_err().0.contains("bytes long"));
        assert!(Npy::parse(&[MAGIC, &[9, 0, 0, 0, 0, 0]].concat()).is_err());
        assert!(Npy::parse(b"\x93NUMPY\x01").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_an_error(
            major in 0u8..5,
            length in any::<u32>(),
            text in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = Npy::parse(&text);
            let _ = Npy::parse(&[MAGIC, &[major, 0], &length.to_le_bytes(), &text].concat());
            let short = (text.len() as u16).to_le_bytes();
            let _ = Npy::parse(&[MAGIC, &[1, 0], &short, &text].concat());
        }

        #[test]
        fn a_header_with_any_change_is_a_header_or_an_error(
            at in any::<proptest::sample::Index>(),
            by in any::<u8>(),
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut bytes = header(NumberType::F32, &[12, 34]);
            let at = at.index(bytes.len());
            bytes[at] = by;
            if let Ok(npy) = Npy::parse(&bytes) {
                prop_assert!(npy.data_offset <= bytes.len() as u64);
            }
            bytes.truncate(cut.index(bytes.len()));
            let _ = Npy::parse(&bytes);
        }
    }
}
