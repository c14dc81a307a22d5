//! Random segments of one table with a column of every type.

use std::sync::Arc;

use arrow_array::StringArray;
use headrace_columns::repr::Dictionary;
use headrace_columns::segment::{ColumnView, SegmentView};
use headrace_cuda::SegmentLayout;
use headrace_cuda::parts::{ColumnForm, ColumnLayout};
use headrace_ir::{DataType, Encoding, Field, TimeUnit, ValueRange};
use headrace_pipeline::{SourceColumn, SourceInfo};

/// SplitMix64 (public domain, Sebastiano Vigna).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }
}

/// How a table is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub seed: u64,
    /// Whether nullable columns have NULLs, and bitmaps.
    pub nulls: bool,
    /// Bytes by which each buffer misses a 16-byte boundary.
    pub skew: usize,
    /// Of codes; decimals lie in as many or more.
    pub code_bytes: u8,
    pub remap: bool,
    /// Whether texts are plain: offsets into bytes, as a device has them in every other segment, and
    /// views of them in the rest.
    pub plain_texts: bool,
}

pub const DECIMAL: DataType = DataType::Decimal128 { precision: 12, scale: 2 };

fn moment(unit: TimeUnit) -> DataType {
    DataType::Timestamp { unit, timezone: None }
}

/// The columns: name, type, nullable.
pub fn fields() -> Vec<Field> {
    let f = Field::new;
    vec![
        f("a", DataType::Int32, false),
        f("b", DataType::Int32, true),
        f("c", DataType::Int64, true),
        f("d", DECIMAL, true),
        f("e", DataType::Float64, true),
        f("f", DataType::Utf8, true),
        f("g", DataType::Bool, true),
        f("h", DataType::Int8, false),
        f("u", DataType::UInt16, true),
        f("t", DataType::Date32, false),
        f("x", DataType::UInt64, false),
        f("y", DataType::Float32, true),
        f("k", DataType::Int32, false),
        f("w", DataType::Date32, true),
        f("m", moment(TimeUnit::Millisecond), true),
        f("n", moment(TimeUnit::Nanosecond), false),
        f("p", DataType::FixedBinary(32), true),
        f("q", DataType::FixedBinary(7), false),
        f("v", DataType::FloatList { item_bytes: 4, items: 12 }, true),
        f("z", DataType::FloatList { item_bytes: 8, items: 5 }, true),
        f("o", DataType::FixedBinary(144), true),
    ]
}

pub const TEXTS: usize = 40;

/// A long text, or one of 31 and of 32 bytes: the longest that lies within a key, and the shortest that does not.
pub fn long_text(number: usize) -> String {
    match number {
        34 => format!("{number:x>31}"),
        35 => format!("{number:x>32}"),
        _ => format!("text, one of those that are as long as an address: {number}"),
    }
}

/// One column of a segment: bytes with `skew` bytes before them.
#[derive(Clone)]
pub struct ColumnData {
    pub encoding: Encoding,
    pub values: Vec<u8>,
    /// As the others, for texts that `values` are the bytes of.
    pub offsets: Option<Vec<u8>>,
    /// What the offsets call the first byte.
    pub offsets_base: u32,
    pub validity: Option<Vec<u8>>,
    pub remap: Option<u32>,
}

impl ColumnData {
    /// Where a device has the values, and the bytes that they point into; `place` tells an address
    /// for bytes, at a multiple of 16.
    pub fn texts(
        &self,
        shape: Shape,
        are_views: bool,
        mut place: impl FnMut(&[u8]) -> u64,
    ) -> Option<(u64, Option<(u64, u64)>)> {
        let offsets = self.offsets.as_ref()?;
        let (skew, bytes) = (shape.skew, (self.values.len() - shape.skew) as u64);
        let at = place(&self.values) + skew as u64;
        if !are_views {
            return Some((place(offsets) + skew as u64, Some((at, bytes))));
        }
        let base = self.offsets_base;
        let offset = |offset: &[u8; 4]| u64::from(u32::from_le_bytes(*offset) - base);
        let offsets: Vec<u64> = offsets[skew..].as_chunks().0.iter().map(offset).collect();
        let views = offsets.windows(2).flat_map(|row| [at + row[0], row[1] - row[0]]);
        let views: Vec<u8> = views.flat_map(u64::to_le_bytes).collect();
        Some((place(&views), None))
    }
}

#[derive(Clone)]
pub struct SegmentData {
    pub rows: usize,
    pub columns: Vec<ColumnData>,
}

pub struct Table {
    pub shape: Shape,
    pub fields: Vec<Field>,
    pub source: SourceInfo,
    pub segments: Vec<SegmentData>,
}

impl Table {
    /// Segments of the given numbers of rows.
    pub fn random(shape: Shape, rows: &[usize]) -> Self {
        let mut random = Random(shape.seed);
        let fields = fields();
        let text =
            |i: usize| format!("text {i:02}{}", if i < 30 { "" } else { &"ééé"[..i % 4 * 2] });
        let mut texts: Vec<String> = (0..TEXTS).map(text).collect();
        if shape.plain_texts {
            // Of more bytes than a key of groups holds, and equal but for their ends.
            for (number, text) in texts.iter_mut().enumerate().skip(TEXTS - 6) {
                *text = long_text(number);
            }
        }
        let dictionary = Arc::new(Dictionary { values: StringArray::from(texts.clone()) });
        let columns = fields
            .iter()
            .map(|field| SourceColumn {
                dictionary: (field.data_type == DataType::Utf8 && !shape.plain_texts)
                    .then(|| Arc::clone(&dictionary)),
                range: range_of(&field.name),
                may_have_nulls: shape.nulls && field.nullable,
            })
            .collect();
        // Codes of the file in another order; the last stands for NULL if there are NULLs.
        let mut remap: Vec<i32> = (0..TEXTS as i32).map(|i| (i * 7 + 3) % TEXTS as i32).collect();
        if shape.nulls {
            remap.push(-1);
        }
        let source = SourceInfo {
            columns,
            rows_max: rows.iter().sum::<usize>() as u64,
            remaps: vec![remap.into()],
        };
        let segments = rows
            .iter()
            .map(|&rows| SegmentData {
                rows,
                columns: fields
                    .iter()
                    .map(|f| column(&mut random, shape, f, rows, &texts))
                    .collect(),
            })
            .collect::<Vec<SegmentData>>();
        let segments = without_some(segments, shape);
        Self { shape, fields, source, segments }
    }

    /// The layout that takes all segments.
    pub fn layout(&self) -> SegmentLayout {
        let column = |column: &ColumnData| ColumnLayout {
            form: ColumnForm::of(&column.encoding),
            validity: column.validity.is_some(),
        };
        let layout = |segment: &SegmentData| SegmentLayout {
            columns: segment.columns.iter().map(column).collect(),
        };
        SegmentLayout::merged(self.segments.iter().map(layout)).unwrap()
    }

    pub fn view<'a>(&'a self, segment: &'a SegmentData) -> SegmentView<'a> {
        let skew = self.shape.skew;
        let columns = segment
            .columns
            .iter()
            .map(|c| ColumnView {
                encoding: c.encoding.clone(),
                values: &c.values[skew..],
                offsets: c.offsets.as_ref().map(|offsets| &offsets[skew..]),
                offsets_base: c.offsets_base.into(),
                validity: c.validity.as_ref().map(|v| &v[skew..]),
                remap: c.remap.map(|i| &*self.source.remaps[i as usize]),
            })
            .collect();
        SegmentView { rows: segment.rows, columns }
    }
}

/// The second segment has no NULLs and no bitmaps, and codes that need no translation.
fn without_some(mut segments: Vec<SegmentData>, shape: Shape) -> Vec<SegmentData> {
    if let Some(second) = segments.get_mut(1) {
        for column in &mut second.columns {
            column.validity = None;
            if column.remap.take().is_some() {
                // The code that stands for NULL has no meaning here.
                let width = usize::from(shape.code_bytes);
                for code in column.values[shape.skew..].chunks_exact_mut(width) {
                    code[0] %= TEXTS as u8;
                }
            }
        }
    }
    segments
}

fn range_of(name: &str) -> Option<ValueRange> {
    let range = |min, max| Some(ValueRange { min, max });
    match name {
        "a" => range(-50, 50),
        "b" => range(0, 99),
        "h" => range(-128, 127),
        "u" => range(0, 300),
        "t" => range(8_000, 8_030),
        "k" => range(1, 500),
        _ => None,
    }
}

fn column(
    random: &mut Random,
    shape: Shape,
    field: &Field,
    rows: usize,
    texts: &[String],
) -> ColumnData {
    let nulls = shape.nulls && field.nullable;
    let mut values = vec![0xa5u8; shape.skew];
    let mut encoding = Encoding::Plain;
    let (mut remap, mut offsets, mut offsets_base) = (None, None, 0);
    match field.name.as_str() {
        "f" if shape.plain_texts => {
            encoding = Encoding::Offsets { offset_bytes: 4 };
            // The first offset need not be 0, nor what the bytes begin with.
            offsets_base = random.below(2) as u32 * 1_000_000_007;
            values.extend(b"xyz");
            let mut ends = vec![0xa5u8; shape.skew];
            ends.extend((offsets_base + 3).to_le_bytes());
            for _ in 0..rows {
                values.extend(texts[random.below(TEXTS as u64) as usize].bytes());
                let end = offsets_base + (values.len() - shape.skew) as u32;
                ends.extend(end.to_le_bytes());
            }
            offsets = Some(ends);
        }
        "f" => {
            encoding = Encoding::Dictionary { code_bytes: shape.code_bytes };
            remap = shape.remap.then_some(0);
            let codes = TEXTS as u64 + u64::from(shape.remap && nulls);
            for _ in 0..rows {
                let code = random.below(codes).to_le_bytes();
                values.extend_from_slice(&code[..usize::from(shape.code_bytes)]);
            }
        }
        "d" => {
            encoding = match shape.code_bytes {
                1 => Encoding::Deltas { base: -8_000_000, delta_bytes: 3 },
                2 => Encoding::Narrow { value_bytes: 4 },
                8 => Encoding::Narrow { value_bytes: 8 },
                // Differently in each segment.
                _ => match random.below(4) {
                    0 => Encoding::Plain,
                    1 => Encoding::Deltas { base: -9_999_999, delta_bytes: 4 },
                    which => Encoding::Narrow { value_bytes: [4, 8][which as usize - 2] },
                },
            };
            (0..rows).for_each(|_| {
                let value = random.between(-8_000_000, 8_000_000);
                values.extend(as_it_lies(&encoding, 16, value));
            });
        }
        "c" if shape.code_bytes != 1 => {
            encoding = match (shape.code_bytes, random.below(3)) {
                (2, _) => Encoding::Deltas { base: -1_000_000, delta_bytes: 3 },
                (8, _) | (_, 0) => Encoding::Narrow { value_bytes: 4 },
                // Differently in each segment.
                (_, 1) => Encoding::Deltas { base: -1_000_001, delta_bytes: 4 },
                _ => Encoding::Plain,
            };
            (0..rows).for_each(|_| {
                let value = random.between(-1_000_000, 1_000_000);
                values.extend(as_it_lies(&encoding, 8, value));
            });
        }
        name @ ("b" | "k") => {
            let narrow = |value_bytes| Encoding::Narrow { value_bytes };
            let deltas = |base, delta_bytes| Encoding::Deltas { base, delta_bytes };
            encoding = match (name, shape.code_bytes) {
                ("b", 1) => narrow(1),
                ("b", 2) | ("k", 8) => narrow(2),
                ("b", 4) => deltas(-100, 1),
                ("k", 1) => deltas(1, 2),
                ("k", 4) => deltas(-16_776_000, 3),
                // Differently in each segment.
                ("b", _) => match random.below(5) {
                    0 => Encoding::Plain,
                    which @ 1..=2 => narrow(which as u8),
                    which => deltas(-7, which as u8 - 1),
                },
                _ if random.below(2) == 0 => narrow(2),
                _ => Encoding::Plain,
            };
            let mut wide = Vec::new();
            (0..rows).for_each(|_| push_value(random, name, &mut wide));
            let wide = wide.as_chunks().0.iter().map(|value| i32::from_le_bytes(*value));
            values.extend(wide.flat_map(|value| as_it_lies(&encoding, 4, value.into())));
        }
        "g" => {
            encoding = Encoding::Bits;
            values.extend((0..rows.div_ceil(8)).map(|_| random.next() as u8));
        }
        name => (0..rows).for_each(|_| push_value(random, name, &mut values)),
    }
    let validity = nulls.then(|| {
        let mut bits = vec![0xa5u8; shape.skew];
        bits.extend((0..rows.div_ceil(8)).map(|_| (random.next() | random.next()) as u8));
        bits
    });
    ColumnData { encoding, values, offsets, offsets_base, validity, remap }
}

/// A value of a type of so many bytes.
fn as_it_lies(encoding: &Encoding, plain_bytes: u8, value: i64) -> Vec<u8> {
    let (value, bytes) = match *encoding {
        Encoding::Deltas { base, delta_bytes } => (value - base, delta_bytes),
        Encoding::Narrow { value_bytes } => (value, value_bytes),
        _ => (value, plain_bytes),
    };
    i128::from(value).to_le_bytes()[..usize::from(bytes)].to_vec()
}

fn push_value(random: &mut Random, name: &str, to: &mut Vec<u8>) {
    match name {
        "a" => to.extend((random.between(-50, 50) as i32).to_le_bytes()),
        "b" => to.extend((random.between(0, 99) as i32).to_le_bytes()),
        "c" => {
            let wide = random.below(16) == 0;
            let limit = if wide { 1 << 61 } else { 1_000_000 };
            to.extend(random.between(-limit, limit).to_le_bytes());
        }
        "e" => to.extend(float(random).to_le_bytes()),
        "h" => to.extend((random.next() as i8).to_le_bytes()),
        "u" => to.extend((random.between(0, 300) as u16).to_le_bytes()),
        "t" => to.extend((random.between(8_000, 8_030) as i32).to_le_bytes()),
        "x" => {
            let value = if random.below(8) == 0 { random.next() } else { random.below(1000) };
            to.extend(value.to_le_bytes());
        }
        "y" => to.extend((float(random) as f32).to_le_bytes()),
        "k" => to.extend((random.between(1, 500) as i32).to_le_bytes()),
        "w" => {
            let day = match random.below(4) {
                0 => random.next() as i32,
                1 => random.between(0, 400) as i32,
                _ => random.between(-100_000, 100_000) as i32,
            };
            to.extend(day.to_le_bytes());
        }
        "m" | "n" => {
            let moment = match random.below(64) {
                // Parts of these begin before time does.
                0 => i64::MIN + random.below(1000) as i64,
                _ => random.next() as i64 >> random.below(40),
            };
            to.extend(moment.to_le_bytes());
        }
        "p" => to.extend((0..4).flat_map(|_| random.next().to_le_bytes())),
        "o" => to.extend((0..18).flat_map(|_| random.next().to_le_bytes())),
        "q" => to.extend(&random.next().to_le_bytes()[..7]),
        // Not exact: the order of additions shows.
        "v" => to.extend((0..12).flat_map(|_| (random.next() as i32 as f32 / 1e7).to_le_bytes())),
        "z" => to.extend((0..5).flat_map(|_| (random.next() as i64 as f64 / 1e17).to_le_bytes())),
        other => panic!("column {other}"),
    }
}

/// Quarters, so that sums are exact in any order.
fn float(random: &mut Random) -> f64 {
    match random.below(64) {
        0 => -0.0,
        1 => 0.0,
        _ => random.between(-4000, 4000) as f64 / 4.0,
    }
}
