//! Heap pages as columns: the kernel on the host's compiler, against the decoder of the CPU. Whatever
//! the pages are, both take the same ones, and their columns are the same byte for byte.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use headrace_cuda::parts::{
    ColumnForm, NOT_TAKEN, PAGE_ENTRY_BYTES, PAGE_VERDICT_BYTES, PageDecoding, PagePass,
    page_entry, page_verdict,
};
use headrace_format::heap::{self, Align, Attribute, HeapType, Length, Relation, Reroute};
use headrace_ir::pages::{PageFlaw, PageVerdict};

// The pages that the decoder's own tests are made of.
#[allow(dead_code)]
#[path = "../../../format/src/heap/tests/build.rs"]
mod build;
mod machine;
mod random;

use build::*;
use machine::Machine;
use random::Random;

/// Values and validity of a column.
type Bytes = (Vec<u8>, Option<Vec<u8>>);

/// The number of the first page.
const FIRST_BLOCK: u32 = 131_072 + 5;

/// Verdicts on pages, and the columns of those that are taken, with their rows.
fn decode(
    machine: &Machine,
    decoding: &PageDecoding,
    pages: &[Vec<u8>],
) -> (Vec<PageVerdict>, Vec<Bytes>, usize) {
    let mut memory: Vec<_> = pages.iter().map(|page| machine.memory(page)).collect();
    let page_addresses: Vec<u64> = memory.iter_mut().map(|page| page.address()).collect();
    let mut steps = machine.memory(&words(decoding.words()));
    let step_address = steps.address();
    let launch = |first_rows: &[u32], pass| {
        let entries = page_addresses.iter().zip(first_rows).enumerate();
        let bytes: Vec<u8> = entries
            .flat_map(|(i, (at, first))| page_entry(*at, FIRST_BLOCK + i as u32, *first))
            .collect();
        assert_eq!(bytes.len(), pages.len() * PAGE_ENTRY_BYTES);
        let mut table = machine.memory(&bytes);
        let at = (table.address(), pages.len() as u32);
        machine.run(&decoding.params(at, step_address, pass), decoding.shared_bytes());
    };
    let verdict_bytes = pages.len() * PAGE_VERDICT_BYTES;
    let mut verdicts = machine.memory(&vec![0; verdict_bytes]);
    launch(&vec![NOT_TAKEN; pages.len()], PagePass::Check(verdicts.address()));
    let bytes = machine.bytes(&verdicts, verdict_bytes);
    let verdicts: Vec<_> = bytes.as_chunks().0.iter().map(|v| page_verdict(*v)).collect();
    let mut rows = 0;
    let first_rows: Vec<u32> = verdicts
        .iter()
        .map(|verdict| match verdict {
            PageVerdict::Rows(count) => {
                assert!(u64::from(*count) <= decoding.rows_max());
                rows += count;
                rows - count
            }
            _ => NOT_TAKEN,
        })
        .collect();
    let places = decoding.places(rows.into());
    // Whatever was there before, bitmaps aside.
    let mut before = vec![0xA5; places.bytes as usize];
    before[..places.bitmap_bytes as usize].fill(0);
    let mut columns = machine.memory(&before);
    let base = columns.address();
    let addresses = places.columns.iter().flat_map(|(values, validity)| {
        [base + values, validity.map_or(0, |validity| base + validity)]
    });
    let mut column_table = machine.memory(&words(&addresses.collect::<Vec<_>>()));
    launch(&first_rows, PagePass::Decode(column_table.address()));
    let bytes = machine.bytes(&columns, places.bytes as usize);
    let from = |at: u64| bytes[at as usize..].to_vec();
    let step_bytes = words(decoding.words());
    let places = places.columns.iter().zip(decoding.columns());
    let columns = places.map(|((values, validity), column)| {
        let values = match column.form {
            ColumnForm::Text => {
                let pages = page_addresses.iter().copied().zip(pages.iter().map(Vec::as_slice));
                let regions: Vec<_> = pages.chain([(step_address, &step_bytes[..])]).collect();
                texts(&from(*values), rows as usize, &regions)
            }
            _ => from(*values),
        };
        (values, validity.map(from))
    });
    (verdicts, columns.collect(), rows as usize)
}

/// Texts, each with 8 bytes of its length before it, of addresses and lengths that must lie within a
/// region.
fn texts(views: &[u8], rows: usize, regions: &[(u64, &[u8])]) -> Vec<u8> {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let mut texts = Vec::new();
    for view in views.chunks_exact(16).take(rows) {
        let (address, bytes) = (word(&view[..8]), word(&view[8..]));
        let text = regions.iter().find_map(|(at, region)| {
            let start = usize::try_from(address.checked_sub(*at)?).unwrap();
            region.get(start..start.checked_add(bytes as usize)?)
        });
        let text = if bytes == 0 { &[] } else { text.expect("a text within its page") };
        texts.extend(bytes.to_le_bytes());
        texts.extend(text);
    }
    texts
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Attributes that a device decodes.
fn decodable(relation: &Relation) -> Vec<usize> {
    let is_wanted = |attribute: &Attribute| {
        let is_bytes = matches!(attribute.kind, Some(HeapType::Bytea | HeapType::Uuid));
        attribute.kind.is_some() && !attribute.dropped && !is_bytes
    };
    let attributes = relation.attributes.iter().enumerate();
    attributes.filter(|(_, attribute)| is_wanted(attribute)).map(|(index, _)| index).collect()
}

fn decoding(relation: &Relation, wanted: &[usize]) -> PageDecoding {
    let blocks = heap::HeapBlocks {
        relation: relation.clone(),
        files: vec!["0".into()],
        blocks_per_file: 131_072,
        direct: Vec::new(),
        stamps: None,
    };
    let all: Vec<usize> = (0..wanted.len()).collect();
    PageDecoding::new(&blocks.page_plan(wanted).unwrap(), &all).unwrap()
}

/// Decodes pages both ways; the verdicts.
fn compare(
    machine: &Machine,
    relation: &Relation,
    wanted: &[usize],
    pages: &[Vec<u8>],
) -> Vec<PageVerdict> {
    let mut decoder = heap::Decoder::new(relation, wanted).unwrap();
    let decoding = decoding(relation, wanted);
    let (verdicts, columns, rows) = decode(machine, &decoding, pages);
    for (number, (page, verdict)) in pages.iter().zip(&verdicts).enumerate() {
        if let PageVerdict::Flawed(PageFlaw::Compressed(_)) = verdict {
            continue;
        }
        let decoded = decoder.decode(page, FIRST_BLOCK + number as u32);
        match (&decoded, verdict) {
            (Ok(rows), PageVerdict::Rows(same)) => assert_eq!(*rows, *same as usize),
            (Err(reroute), PageVerdict::Flawed(flaw)) => assert_kind(reroute, *flaw),
            _ => panic!("page {number} of {relation:?}: {decoded:?}, but {verdict:?}"),
        }
    }
    let batch = decoder.finish().unwrap();
    assert_eq!(batch.num_rows(), rows);
    for (number, (values, validity)) in columns.iter().enumerate() {
        assert_column(&batch, number, values, validity.as_deref(), relation);
    }
    verdicts
}

/// Whether both blame the same part of the page.
fn assert_kind(reroute: &Reroute, flaw: PageFlaw) {
    let is_same = match (reroute, flaw) {
        (Reroute::Checksum { stored, computed }, flaw) => {
            flaw == PageFlaw::Checksum { stored: *stored, computed: *computed }
        }
        (Reroute::NewPage, PageFlaw::New)
        | (Reroute::Header { .. }, PageFlaw::Header)
        | (Reroute::NotAllVisible, PageFlaw::NotAllVisible)
        | (Reroute::LinePointer { .. }, PageFlaw::Line(_)) => true,
        // Of several rows another may be blamed.
        (
            Reroute::Tuple { .. } | Reroute::External { .. } | Reroute::Value { .. },
            PageFlaw::Tuple(_) | PageFlaw::External(_) | PageFlaw::Value(_),
        ) => true,
        _ => false,
    };
    assert!(is_same, "{reroute:?}, but {flaw:?}");
}

fn assert_column(
    batch: &RecordBatch,
    number: usize,
    values: &[u8],
    validity: Option<&[u8]>,
    relation: &Relation,
) {
    let (rows, array) = (batch.num_rows(), batch.column(number).to_data());
    let what = || format!("column {number} of {relation:?}");
    let bit = |bits: &[u8], row: usize| bits[row / 8] >> (row % 8) & 1 == 1;
    for row in 0..rows {
        let is_there = validity.is_none_or(|validity| bit(validity, row));
        assert_eq!(is_there, array.is_valid(row), "row {row} of {}", what());
    }
    match array.data_type().primitive_width() {
        Some(width) => {
            let expected = &array.buffers()[0].as_slice()[..rows * width];
            assert_eq!(&values[..rows * width], expected, "{}", what());
        }
        None if *array.data_type() == DataType::Utf8 => {
            let texts = batch.column(number).as_string::<i32>();
            let text = |row| if texts.is_valid(row) { texts.value(row) } else { "" };
            let expected = (0..rows)
                .map(text)
                .flat_map(|text| (text.len() as u64).to_le_bytes().into_iter().chain(text.bytes()));
            assert_eq!(values, expected.collect::<Vec<_>>(), "{}", what());
        }
        None => {
            let bits = array.buffers()[0].as_slice();
            for row in (0..rows).filter(|row| array.is_valid(*row)) {
                assert_eq!(bit(values, row), bit(bits, row), "row {row} of {}", what());
            }
        }
    }
}

fn rows_of(verdicts: &[PageVerdict]) -> Vec<Option<u32>> {
    let rows = |verdict: &PageVerdict| match verdict {
        PageVerdict::Rows(rows) => Some(*rows),
        _ => None,
    };
    verdicts.iter().map(rows).collect()
}

fn pages_of_all_lengths_and_alignments_are_decoded(machine: &Machine) {
    let (relation, page) = mixed();
    let wanted = decodable(&relation);
    assert_eq!(wanted, [0, 1, 2, 3, 4, 6]);
    let empty = Page::new().bytes;
    let pages = [page.bytes.clone(), empty, page.bytes.clone(), vec![0; BLOCK]];
    for wanted in [&wanted[..], &[6], &[2, 0], &[3], &[]] {
        let verdicts = compare(machine, &relation, wanted, &pages);
        assert_eq!(rows_of(&verdicts), [Some(40), Some(0), Some(40), None]);
        assert_eq!(verdicts[3], PageVerdict::Flawed(PageFlaw::New));
    }
}

/// Each bit of all that is looked at.
fn pages_with_a_flipped_bit_are_judged_as_by_the_cpu(machine: &Machine) {
    let (relation, page) = mixed();
    let wanted = decodable(&relation);
    let (lower, upper) = (usize::from(page.get(12)), usize::from(page.get(14)));
    let places = (0..lower).chain(upper..upper + 300).chain(BLOCK - 300..BLOCK);
    let flipped: Vec<Vec<u8>> = places
        .flat_map(|at| (0..8).map(move |bit| (at, bit)))
        .map(|(at, bit)| {
            let mut bytes = page.bytes.clone();
            bytes[at] ^= 1 << bit;
            bytes
        })
        .collect();
    let verdicts = compare(machine, &relation, &wanted, &flipped);
    let taken = rows_of(&verdicts).iter().flatten().count();
    assert!(taken > 1000 && verdicts.len() - taken > 1000, "{taken} of {}", verdicts.len());
}

fn pages_at_another_place_or_with_another_checksum_are_not_taken(machine: &Machine) {
    let (mut relation, page) = mixed();
    relation.checksums = true;
    let mut signer = heap::Decoder::new(&relation, &[]).unwrap();
    let mut sign = |block: u32, page: &Page| match signer.decode(&page.bytes, block) {
        Err(Reroute::Checksum { computed, .. }) => {
            let mut bytes = page.bytes.clone();
            bytes[8..10].copy_from_slice(&computed.to_le_bytes());
            bytes
        }
        other => panic!("{other:?}"),
    };
    let blocks = [0, 1, 9, 3].map(|block| FIRST_BLOCK + block);
    let mut pages: Vec<_> = blocks.into_iter().map(|block| sign(block, &page)).collect();
    pages[3][BLOCK - 1] ^= 0x10;
    let verdicts = compare(machine, &relation, &decodable(&relation), &pages);
    assert_eq!(rows_of(&verdicts), [Some(40), Some(40), None, None]);
    assert!(matches!(verdicts[2], PageVerdict::Flawed(PageFlaw::Checksum { .. })));
}

/// One value a page: what Arrow has, and what it has not.
fn values_at_the_edges_are_as_on_the_cpu(machine: &Machine) {
    let fixed = |bytes: &[u8]| Datum::Fixed(bytes.to_vec());
    const DAY_US: i64 = 86_400_000_000;
    let days = [0, 1, -1, i32::MIN, i32::MIN + 1, i32::MAX, i32::MAX - 10_957, i32::MAX - 10_956];
    let micros = [0, -1, DAY_US - 1, DAY_US, i64::MIN, i64::MIN + 1, i64::MAX];
    let last = i64::MAX - 10_957 * DAY_US;
    let stamps = micros.into_iter().chain([last, last + 1]);
    let stamps: Vec<Datum> = stamps.map(|us| fixed(&us.to_le_bytes())).collect();
    let cases = [
        (HeapType::Bool, (0..=255).map(|byte| fixed(&[byte])).collect(), 2),
        (HeapType::Date, days.iter().map(|day| fixed(&day.to_le_bytes())).collect(), 5),
        (HeapType::Time, stamps.clone(), 2),
        (HeapType::Timestamp, stamps, 6),
        (HeapType::Numeric { precision: 6, scale: 2 }, numerics(), 0),
        (HeapType::Numeric { precision: 38, scale: 0 }, numerics(), 0),
        (HeapType::Numeric { precision: 38, scale: 38 }, numerics(), 0),
        (HeapType::Numeric { precision: 38, scale: -38 }, numerics(), 0),
        (HeapType::Numeric { precision: 3, scale: -2 }, numerics(), 0),
    ];
    for (kind, data, taken) in cases {
        let attributes = vec![attribute("a", kind)];
        let page = |datum| Page::of(&[tuple(&attributes, &[datum])]).bytes;
        let pages: Vec<_> = data.into_iter().map(page).collect();
        let verdicts = compare(machine, &relation(attributes.clone()), &[0], &pages);
        let rows = rows_of(&verdicts).iter().flatten().count();
        assert!(rows > 0 && rows < pages.len(), "{kind:?}: {rows}");
        assert!(taken == 0 || rows == taken, "{kind:?}: {rows}");
    }
}

/// Heads, weights and digits of all kinds, sound or not, with short and long headers of a value.
fn numerics() -> Vec<Datum> {
    let digits: [&[u16]; 12] = [
        &[],
        &[1],
        &[9999],
        &[10_000],
        &[12, 3400],
        &[12, 3450],
        &[1, 0, 0, 5000],
        &[9999; 9],
        &[9999; 10],
        &[17, 141, 1834, 6046, 9231, 7316, 8730, 3715, 8841, 5727],
        &[0; 12],
        &[0, 0, 1200],
    ];
    let mut all = vec![
        Datum::Null,
        Datum::External,
        Datum::Compressed { method: 0, raw_bytes: 4, bytes: vec![0, 1, 2, 3, 4] },
    ];
    for digits in digits {
        for weight in [-64_i16, -10, -2, -1, 0, 1, 2, 7, 8, 9, 63] {
            for sign in [0, 1] {
                let short = 0x8000 | sign << 13 | (weight as u16 & 0x7F);
                let heads = [vec![short], vec![sign << 14, weight as u16], vec![0xC000], vec![]];
                for head in heads {
                    let words = head.iter().chain(digits);
                    let mut bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
                    all.push(Datum::Short(bytes.clone()));
                    all.push(Datum::Long(bytes.clone()));
                    bytes.push(0);
                    all.push(Datum::Short(bytes));
                }
            }
        }
    }
    all
}

/// Texts of all lengths and headers, of UTF-8 and of what is nearly that, compressed and elsewhere.
fn texts_are_as_on_the_cpu(machine: &Machine) {
    let attributes = vec![attribute("a", HeapType::Int2), attribute("b", HeapType::Text)];
    let page = |datum: Datum| {
        let rows = [text("before"), datum, Datum::Null]
            .map(|text| tuple(&attributes, &[Datum::Fixed(vec![1, 0]), text]));
        Page::of(&rows).bytes
    };
    let ascii = |bytes: usize| (0..bytes).map(|at| b'a' + (at % 26) as u8).collect::<Vec<_>>();
    let short = (0..127).map(|bytes| Datum::Short(ascii(bytes)));
    let long = [0, 1, 3, 4, 126, 127, 300, 7000].map(|bytes| Datum::Long(ascii(bytes)));
    let sound: Vec<_> = short.chain(long).map(page).collect();
    let verdicts = compare(machine, &relation(attributes.clone()), &[1, 0], &sound);
    assert!(rows_of(&verdicts).iter().all(|rows| *rows == Some(3)));
    // Every sequence that may begin, go on or end wrongly, at each place of a word.
    let firsts =
        [0x7F, 0x80, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF];
    let others = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0];
    let mut pages = Vec::new();
    for (number, first) in firsts.into_iter().enumerate() {
        for second in others {
            for rest in [&[][..], &[0x80], &[0xBF, 0x80], &[0x80, 0xC0], &[0x41, 0x80]] {
                let before = &b"xyz"[..number % 4];
                let bytes = [before, &[first, second], rest].concat();
                pages.push(page(Datum::Short(bytes.clone())));
                pages.push(page(Datum::Long([&bytes[..], b"tail"].concat())));
            }
        }
    }
    let verdicts = compare(machine, &relation(attributes.clone()), &[1], &pages);
    let taken = rows_of(&verdicts).iter().flatten().count();
    assert!(taken > 80, "{taken} of {}", verdicts.len());
    // Nobody asks what is in a text that is stepped over.
    assert!(
        rows_of(&compare(machine, &relation(attributes.clone()), &[0], &pages))
            .iter()
            .all(Option::is_some)
    );
    let elsewhere = [
        Datum::External,
        Datum::Compressed { method: 0, raw_bytes: 4, bytes: vec![0, b'a', b'b', b'c', b'd'] },
    ];
    let verdicts = compare(machine, &relation(attributes.clone()), &[1], &elsewhere.map(page));
    let flaws = [PageFlaw::External(1), PageFlaw::Compressed(1)].map(PageVerdict::Flawed);
    assert_eq!(verdicts, flaws);
}

/// What older tuples have of columns that were added later.
fn missing_values_are_as_on_the_cpu(machine: &Machine) {
    let numeric = HeapType::Numeric { precision: 12, scale: 2 };
    let kinds: [(HeapType, &[u8]); 12] = [
        (HeapType::Bool, &[1]),
        (HeapType::Int2, &[0xFE, 0xFF]),
        (HeapType::Date, &[1, 0, 0, 0]),
        (HeapType::Date, &[0xFF, 0xFF, 0xFF, 0x7F]),
        (HeapType::Timestamp, &[1; 8]),
        (HeapType::Int8, &[1, 2, 3]),
        (numeric, &[0x00, 0x81, 12, 0, 0x48, 0x0D]),
        (numeric, &[0x00, 0x81, 12, 0, 0x49, 0x0D]),
        (HeapType::Text, b"old"),
        (HeapType::Text, "ält, und länger als sechzehn Bytes".as_bytes()),
        (HeapType::Text, b"\xC3"),
        (HeapType::Bytea, b"old"),
    ];
    for not_null in [true, false] {
        let added = |(kind, missing): &(HeapType, &[u8])| Attribute {
            missing: (!missing.is_empty()).then(|| missing.to_vec()),
            not_null,
            ..attribute("added", *kind)
        };
        for (number, kind) in kinds.iter().enumerate() {
            let attributes = vec![attribute("a", HeapType::Int4), added(kind)];
            let old = tuple(&attributes, &[int4(1)]);
            let relation = relation(attributes);
            let page = Page::of(&[old.clone(), old]).bytes;
            let verdicts = compare(machine, &relation, &decodable(&relation), &[page]);
            let is_sound = ![3, 5, 7, 10].contains(&number);
            assert_eq!(rows_of(&verdicts), [is_sound.then_some(2)], "{kind:?}");
        }
        // Without a default it is NULL.
        let attributes = vec![attribute("a", HeapType::Int4), added(&(HeapType::Int2, &[]))];
        let page = Page::of(&[tuple(&attributes, &[int4(1)])]).bytes;
        let verdicts = compare(machine, &relation(attributes), &[0, 1], &[page]);
        assert_eq!(rows_of(&verdicts), [(!not_null).then_some(1)]);
    }
}

/// Values that nobody wants are sound as well, or there is no telling where the next begins.
fn values_that_are_stepped_over_are_looked_at(machine: &Machine) {
    let attributes = vec![
        attribute("a", HeapType::Text),
        opaque(Length::CString, Align::Char),
        attribute("b", HeapType::Int4),
    ];
    let zero = || Datum::CString(Vec::new());
    let page = |datum, change: &dyn Fn(&mut Vec<u8>)| {
        let mut tuple = tuple(&attributes, &[datum, zero(), int4(7)]);
        change(&mut tuple);
        Page::of(&[tuple]).bytes
    };
    let external = |tag: u8| page(Datum::External, &|tuple| tuple[25] = tag);
    let pages = [
        external(18),
        page(text("short"), &|_| ()),
        page(Datum::Long(vec![1; 200]), &|_| ()),
        // Pointers of other kinds have other lengths.
        external(1),
        external(2),
        // A tuple that ends within a pointer, a value, the last value; without its last zero.
        page(Datum::External, &|tuple| tuple.truncate(25)),
        page(text("short"), &|tuple| tuple.truncate(28)),
        page(text("short"), &|tuple| tuple.truncate(tuple.len() - 1)),
        page(text("short"), &|tuple| tuple[30..].fill(1)),
        // A long value of no bytes at all; values of variable length, and a header that denies it.
        page(Datum::Long(vec![1; 200]), &|tuple| tuple[24..28].fill(0)),
        page(text("short"), &|tuple| tuple[20] &= !2),
    ];
    let verdicts = compare(machine, &relation(attributes.clone()), &[2], &pages);
    let expected: Vec<_> = [Some(1); 3].into_iter().chain([None; 8]).collect();
    assert_eq!(rows_of(&verdicts), expected);
    let strings = attributes[1..].to_vec();
    let mut tuple = tuple(&strings, &[zero(), int4(7)]);
    let sound = Page::of(&[tuple.clone()]).bytes;
    tuple[20] &= !2;
    let pages = [sound, Page::of(&[tuple]).bytes];
    assert_eq!(rows_of(&compare(machine, &relation(strings), &[1], &pages)), [Some(1), None]);
}

/// Line pointers that are no tuples', and some that no sound page has.
fn line_pointers_of_all_kinds_are_as_on_the_cpu(machine: &Machine) {
    let attributes = vec![attribute("a", HeapType::Int4)];
    let tuples: Vec<_> = (0..70).map(|i| tuple(&attributes, &[int4(i)])).collect();
    let sound = Page::of(&tuples);
    let changed = |change: &dyn Fn(&mut Page)| {
        let mut page = Page { bytes: sound.bytes.clone() };
        change(&mut page);
        page.bytes
    };
    let (start, bytes) = sound.line(70);
    let swapped = |page: &mut Page| {
        let (first, second) = (page.line(3), page.line(60));
        page.set_line(3, second.0, 1, second.1);
        page.set_line(60, first.0, 1, first.1);
    };
    let pages = [
        sound.bytes.clone(),
        changed(&|page| (0..40).for_each(|line| page.set_line(line + 1, 0, 0, 0))),
        changed(&|page| page.set_line(35, 7, 2, 0)),
        changed(&swapped),
        changed(&|page| page.set_line(35, 71, 2, 0)),
        changed(&|page| page.set_line(35, 35, 2, 0)),
        changed(&|page| page.set_line(35, 0, 3, 0)),
        changed(&|page| page.set_line(35, start, 1, bytes)),
        changed(&|page| page.set_line(70, start + 8, 1, bytes)),
        changed(&|page| page.set_line(70, start + 4, 1, bytes)),
        changed(&|page| page.set_line(70, start - 8, 1, bytes)),
        changed(&|page| page.set_line(1, BLOCK - 8, 1, bytes)),
        changed(&|page| page.set_line(70, start, 1, 23)),
    ];
    let verdicts = compare(machine, &relation(attributes), &[0], &pages);
    let taken = [Some(70), Some(30), Some(69), Some(70)].into_iter();
    let expected: Vec<_> = taken.chain([None; 9]).collect();
    assert_eq!(rows_of(&verdicts), expected);
}

/// Tables, rows and damage of all kinds.
fn random_pages_are_as_on_the_cpu(machine: &Machine) {
    let (mut taken, mut flawed) = (0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let relation = random.relation();
        let wanted: Vec<usize> =
            decodable(&relation).into_iter().filter(|_| !random.one_in(4)).collect();
        let pages: Vec<_> = (0..8).map(|_| random.page(&relation)).collect();
        for verdict in compare(machine, &relation, &wanted, &pages) {
            match verdict {
                PageVerdict::Rows(rows) => taken += u32::from(rows > 0),
                _ => flawed += 1,
            }
        }
    }
    assert!(taken > 800 && flawed > 800, "{taken} taken, {flawed} not");
}

/// What a stream is told before a page is seen.
#[test]
fn rows_of_a_page_are_bounded_by_what_must_be_in_a_tuple() {
    let not_null = |kind| Attribute { not_null: true, ..attribute("a", kind) };
    let bound = |attributes: Vec<Attribute>, wanted: &[usize]| {
        decoding(&relation(attributes), wanted).rows_max()
    };
    assert_eq!(bound(vec![], &[]), (8192 - 24) / 28);
    assert_eq!(bound(vec![attribute("a", HeapType::Int8)], &[0]), (8192 - 24) / 28);
    let seventeen: Vec<_> = (0..17).map(|_| not_null(HeapType::Int4)).collect();
    assert_eq!(bound(seventeen.clone(), &[11]), (8192 - 24) / (24 + 48 + 4));
    let added = Attribute { missing: Some(vec![1; 4]), ..not_null(HeapType::Int4) };
    assert_eq!(bound(vec![added, seventeen[0].clone()], &[1]), (8192 - 24) / (32 + 4));
    let opaque = Attribute { not_null: true, ..opaque(Length::CString, Align::Char) };
    assert_eq!(bound(vec![opaque, not_null(HeapType::Int8)], &[1]), (8192 - 24) / (40 + 4));
}

#[test]
fn a_column_that_the_plan_has_not_is_refused() {
    let blocks = heap::HeapBlocks {
        relation: relation(vec![attribute("a", HeapType::Bytea)]),
        files: Vec::new(),
        blocks_per_file: 1,
        direct: Vec::new(),
        stamps: None,
    };
    let plan = Arc::new(blocks.page_plan(&[0]).unwrap());
    let why = PageDecoding::new(&plan, &[0]).unwrap_err().to_string();
    assert!(why.contains("column 0 of heap pages is not decoded on a GPU"), "{why}");
    assert!(PageDecoding::new(&plan, &[]).is_ok());
}

type Case = fn(&Machine);

/// The cases, one after the other: [`Machine`]s are costly.
const CASES: [(&str, Case); 9] = [
    (
        "pages_of_all_lengths_and_alignments_are_decoded",
        pages_of_all_lengths_and_alignments_are_decoded,
    ),
    (
        "pages_with_a_flipped_bit_are_judged_as_by_the_cpu",
        pages_with_a_flipped_bit_are_judged_as_by_the_cpu,
    ),
    (
        "pages_at_another_place_or_with_another_checksum_are_not_taken",
        pages_at_another_place_or_with_another_checksum_are_not_taken,
    ),
    ("values_at_the_edges_are_as_on_the_cpu", values_at_the_edges_are_as_on_the_cpu),
    ("values_that_are_stepped_over_are_looked_at", values_that_are_stepped_over_are_looked_at),
    ("texts_are_as_on_the_cpu", texts_are_as_on_the_cpu),
    ("missing_values_are_as_on_the_cpu", missing_values_are_as_on_the_cpu),
    ("line_pointers_of_all_kinds_are_as_on_the_cpu", line_pointers_of_all_kinds_are_as_on_the_cpu),
    ("random_pages_are_as_on_the_cpu", random_pages_are_as_on_the_cpu),
];

#[test]
fn host_shim_heap_pages_are_decoded_as_on_the_cpu() {
    let machine = Machine::host();
    for (name, case) in CASES {
        println!("{name}");
        case(&machine);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_heap_pages_are_decoded_as_on_the_cpu() {
    let machine = Machine::gpu();
    for (name, case) in CASES {
        println!("{name}");
        case(&machine);
    }
}

/// GB/s of pages of a table like `lineorder` that lie in device memory, both passes.
#[test]
#[ignore = "needs a GPU"]
fn gpu_timing_heap_pages() {
    const PAGES: usize = 32_768;
    let not_null = |kind| Attribute { not_null: true, ..attribute("a", kind) };
    let kind = |number| match number {
        6 | 7 | 16 => HeapType::Text,
        _ => HeapType::Int4,
    };
    let attributes: Vec<_> = (0..17).map(|number| not_null(kind(number))).collect();
    let row = |row: i32| {
        let value = |attribute: &Attribute| match attribute.kind {
            Some(HeapType::Text) => text("5-LOW MAIL"),
            _ => int4(row),
        };
        tuple(&attributes, &attributes.iter().map(value).collect::<Vec<_>>())
    };
    let rows = (BLOCK - 24) / (row(0).len().next_multiple_of(8) + 4);
    let page = Page::of(&(0..rows as i32).map(row).collect::<Vec<_>>()).bytes;
    let machine = Machine::gpu();
    let mut memory = machine.memory(&page.repeat(PAGES));
    for (what, checksums) in [("without checksums", false), ("with checksums", true)] {
        for wanted in [&[5, 8, 9, 11][..], &[0, 2, 3, 4, 5, 8, 9, 12, 13]] {
            let relation = Relation { checksums, ..relation(attributes.clone()) };
            let decoding = decoding(&relation, wanted);
            let mut steps = machine.memory(&words(decoding.words()));
            let places = decoding.places((PAGES * rows) as u64);
            let mut columns = machine.memory(&vec![0; places.bytes as usize]);
            let base = columns.address();
            let table = places.columns.iter().flat_map(|(values, _)| [base + values, 0]);
            let mut column_table = machine.memory(&words(&table.collect::<Vec<_>>()));
            let first = memory.address();
            let entry = |number: usize| {
                page_entry(first + (number * BLOCK) as u64, number as u32, (number * rows) as u32)
            };
            let mut table = machine.memory(&(0..PAGES).flat_map(entry).collect::<Vec<_>>());
            let mut verdicts = machine.memory(&vec![0; PAGES * PAGE_VERDICT_BYTES]);
            let passes = [
                ("check", PagePass::Check(verdicts.address())),
                ("decode", PagePass::Decode(column_table.address())),
            ];
            let mut both_s = 0.0;
            for (pass_name, pass) in passes {
                let at = (table.address(), PAGES as u32);
                let params = decoding.params(at, steps.address(), pass);
                let mut best_s = f64::INFINITY;
                for _ in 0..10 {
                    let started = std::time::Instant::now();
                    machine.run(&params, decoding.shared_bytes());
                    best_s = best_s.min(started.elapsed().as_secs_f64());
                }
                both_s += best_s;
                let gb_per_s = (PAGES * BLOCK) as f64 / best_s / 1e9;
                println!("{what}, {} columns, {pass_name}: {gb_per_s:.0} GB/s", wanted.len());
            }
            let gb_per_s = (PAGES * BLOCK) as f64 / both_s / 1e9;
            println!("{what}, {} columns, both: {gb_per_s:.0} GB/s", wanted.len());
            assert!(gb_per_s > 60.0, "slower than the link");
        }
    }
}
