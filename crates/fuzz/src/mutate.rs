//! Changed copies of inputs, the same for the same number: bytes anywhere, or tokens of a text.

/// Numbers that readers trip over.
const NUMBERS: [i64; 14] = [
    0,
    1,
    -1,
    2,
    7,
    8,
    127,
    255,
    256,
    65_535,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
];

/// Changes of one copy at most.
const CHANGES_MAX: u64 = 5;

/// Bytes or tokens that are moved at once at most.
const MOVED_MAX: usize = 64;

/// A sequence of numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`; 0 if that is 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// A short range within so many.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len);
        let longest = MOVED_MAX.min(len - start);
        start..(start + 1 + self.below(longest)).min(len)
    }
}

/// Changes bytes: single ones, numbers of 1, 2, 4 and 8, ranges, words, pieces of another input.
pub fn bytes(data: &[u8], other: &[u8], words: &[&str], seed: u64) -> Vec<u8> {
    let (mut random, mut data) = (Random(seed), data.to_vec());
    for _ in 0..=random.next() % CHANGES_MAX {
        let (at, len) = (random.below(data.len()), data.len());
        match random.below(10) {
            0 | 1 if len > 0 => data[at] ^= 1 << random.below(8),
            2 if len > 0 => data[at] = random.next() as u8,
            3..=5 if len > 8 => {
                let width = 1 << random.below(4);
                // Numbers of formats lie where they are aligned.
                let at = random.below(len - width) / width * width;
                let old = i64::from(data[at]);
                let near = [old - 1, old + 1, old * 2][random.below(3)];
                let number = [NUMBERS[random.below(NUMBERS.len())], near][random.below(2)];
                data[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
            }
            6 => drop(data.drain(random.range(len))),
            7 => {
                let piece = data[random.range(len)].to_vec();
                data.splice(at..at, piece);
            }
            8 if !words.is_empty() => {
                let word = words[random.below(words.len())].bytes();
                data.splice(at..at, word);
            }
            _ => {
                let piece = other[random.range(other.len())].to_vec();
                let end = (at + piece.len() * random.below(2)).min(len);
                data.splice(at..end, piece);
            }
        }
    }
    data
}

/// Changes tokens: mostly one for another of its kind, also leaves out, doubles, exchanges, takes words and pieces of
/// another text.
pub fn tokens(data: &[u8], other: &[u8], words: &[&str], seed: u64) -> Vec<u8> {
    let (Ok(text), Ok(other)) = (std::str::from_utf8(data), std::str::from_utf8(other)) else {
        return bytes(data, other, words, seed);
    };
    let (mut random, mut tokens, other) = (Random(seed), split(text), split(other));
    // Most texts with many changes are no statements.
    let changes = if random.below(4) == 0 { random.below(CHANGES_MAX as usize) } else { 0 };
    for _ in 0..=changes {
        let (at, len) = (random.below(tokens.len()), tokens.len());
        match random.below(16) {
            0..=7 if len > 0 => {
                let pool = if random.below(3) == 0 { other.as_slice() } else { words };
                // Of the same kind, if there is one among a few.
                let alike = (0..20).map(|_| pool.get(random.below(pool.len())));
                let alike = alike.flatten().find(|token| kind_of(token) == kind_of(tokens[at]));
                tokens[at] = alike.copied().unwrap_or("1");
            }
            8 => drop(tokens.drain(random.range(len))),
            9 => {
                let piece = tokens[random.range(len)].to_vec();
                tokens.splice(at..at, piece);
            }
            10 if len > 1 => tokens.swap(at, random.below(len)),
            11 => tokens.insert(at, words.get(random.below(words.len())).copied().unwrap_or(" ")),
            12 => {
                let range = at..(at + 1 + random.below(3)).min(len);
                let inner = tokens.drain(range.clone()).collect::<Vec<_>>();
                let around = [
                    ("(", ")"),
                    ("(select ", ")"),
                    ("not (", ")"),
                    ("-(", ")"),
                    ("abs(", ")"),
                    ("(", ") + 1"),
                ];
                let (open, close) = around[random.below(around.len())];
                tokens.splice(
                    range.start..range.start,
                    [&[open], inner.as_slice(), &[close]].concat(),
                );
            }
            _ => {
                let piece = other[random.range(other.len())].to_vec();
                let end = (at + piece.len() * random.below(2)).min(len);
                tokens.splice(at..end, piece);
            }
        }
    }
    tokens.concat().into_bytes()
}

/// Names and numbers, spaces, or anything else.
fn kind_of(token: &str) -> u8 {
    token.trim().chars().next().map_or(2, kind)
}

fn kind(c: char) -> u8 {
    match c {
        '_' | '.' => 1,
        c if c.is_alphanumeric() => 1,
        c if c.is_whitespace() => 2,
        _ => 0,
    }
}

/// Words, numbers and spaces in one piece, everything else character by character.
fn split(text: &str) -> Vec<&str> {
    let (mut tokens, mut start, mut last) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        if at > start && (kind(c) != last || last == 0) {
            tokens.push(&text[start..at]);
            start = at;
        }
        last = kind(c);
    }
    if start < text.len() {
        tokens.push(&text[start..]);
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_text() {
        let text = "select a.b, 'é''x'  from t where a<=1.5e3--x\n";
        assert_eq!(split(text).concat(), text);
        assert_eq!(split("ab <=7"), ["ab", " ", "<", "=", "7"]);
    }

    #[test]
    fn the_same_number_makes_the_same_change() {
        let (data, other) = (b"select 1 from t".as_slice(), b"where x = 2".as_slice());
        let words = &["null", "sum("];
        let changed = |seed| (bytes(data, other, words, seed), tokens(data, other, words, seed));
        let different = (0..1000).filter(|seed| changed(*seed).1 != data).count();
        assert!((0..1000).all(|seed| changed(seed) == changed(seed)));
        assert!(different > 900, "{different} of 1000 differ");
        for seed in 0..1000 {
            bytes(&[], &[], &[], seed);
            tokens(&[], &[], words, seed);
        }
    }
}
