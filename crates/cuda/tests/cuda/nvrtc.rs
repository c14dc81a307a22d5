//! Every kind of generated kernel compiles, and those of the benchmark keep to 64 registers.

use std::sync::Arc;

use headrace_cuda::parts::{
    COMPILE_OPTIONS, first_groups_source, gather_source, group_column_source, hash_table_source,
    narrow_source, pages_source, rehash_source,
};
use headrace_cuda::{CudaProgram, Tuning, check_function};
use headrace_gpu::{Compiler, Cubin};
use headrace_ir::{CudaFunction, DataType};
use headrace_pipeline::BuildTable;

use crate::corpus::Case;
use crate::data::Table;
use crate::differential::{bound_of, failed_of, shapes, text_shapes};
use crate::{corpus, ssb};

fn compile(compiler: &Compiler, program: &CudaProgram) -> Cubin {
    match compiler.compile(&program.source(), "sm_90", &COMPILE_OPTIONS) {
        Ok(cubin) => cubin,
        Err(error) => panic!("{error}\n{}", program.source),
    }
}

/// Registers a thread and bytes of its stack (spills), from the attributes that the assembler
/// leaves in the cubin's `.nv.info` section: entries of a format byte, an attribute byte, a
/// `u16` size and that many bytes, here a symbol and a value of four bytes each.
pub fn registers_and_stack_bytes(cubin: &Cubin) -> (u32, u32) {
    const FORMAT_SIZED: u8 = 4;
    const REGISTER_COUNT: u8 = 0x2f;
    const FRAME_SIZE: u8 = 0x11;
    let info = section(&cubin.image, ".nv.info");
    let mut found = (None, None);
    let mut at = 0;
    while at + 4 <= info.len() {
        let (format, attribute) = (info[at], info[at + 1]);
        let size = if format == FORMAT_SIZED { number(info, at + 2, 2) as usize } else { 0 };
        match (format, attribute) {
            (FORMAT_SIZED, REGISTER_COUNT) => found.0 = Some(number(info, at + 8, 4) as u32),
            (FORMAT_SIZED, FRAME_SIZE) => found.1 = Some(number(info, at + 8, 4) as u32),
            _ => {}
        }
        at += 4 + size;
    }
    (found.0.unwrap(), found.1.unwrap())
}

fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |value, b| value << 8 | u64::from(*b))
}

/// A section of an ELF64 image by its name.
fn section<'a>(image: &'a [u8], name: &str) -> &'a [u8] {
    let number = |at, width| number(image, at, width) as usize;
    let (table, size, count, names) = (number(40, 8), number(58, 2), number(60, 2), number(62, 2));
    let names_at = number(table + names * size + 24, 8);
    let wanted = format!("{name}\0");
    let header = (0..count)
        .map(|i| table + i * size)
        .find(|&h| image[names_at + number(h, 4)..].starts_with(wanted.as_bytes()))
        .unwrap();
    &image[number(header + 24, 8)..][..number(header + 32, 8)]
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_compiles_the_star_schema_benchmark_within_64_registers() {
    let compiler = Compiler::load(None).unwrap();
    let queries = || ssb::queries(&ssb::SF100).into_iter();
    for (query, layout) in queries().flat_map(|q| {
        let layouts = [q.layout.clone(), ssb::narrow_layout(&q)];
        layouts.map(|layout| (ssb::Query { layout: layout.clone(), ..q.clone() }, layout))
    }) {
        let program = CudaProgram::compile(query.bound, &layout, Tuning::FULL).unwrap();
        let started = std::time::Instant::now();
        let cubin = compile(&compiler, &program);
        let (registers, stack_bytes) = registers_and_stack_bytes(&cubin);
        println!(
            "{}: {registers} registers, {stack_bytes} bytes of stack, {} bytes of shared memory, \
             {} bytes of code, {} ms",
            query.name,
            program.shared_bytes,
            cubin.image.len(),
            started.elapsed().as_millis()
        );
        assert!((1..=64).contains(&registers) && stack_bytes == 0, "{}", query.name);
    }
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_compiles_the_kernels_that_narrow_columns_and_gather_texts() {
    let compiler = Compiler::load(None).unwrap();
    let groups =
        [group_column_source(), rehash_source(), first_groups_source(), hash_table_source()];
    for source in [narrow_source(), gather_source()].into_iter().chain(groups) {
        let cubin = compiler.compile(&source, "sm_90", &COMPILE_OPTIONS).unwrap();
        assert_eq!(registers_and_stack_bytes(&cubin).1, 0);
    }
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_compiles_the_kernel_of_heap_pages_within_64_registers() {
    let compiler = Compiler::load(None).unwrap();
    for arch in ["sm_80", "sm_90"] {
        let cubin = compiler.compile(&pages_source(), arch, &COMPILE_OPTIONS).unwrap();
        let (registers, stack_bytes) = registers_and_stack_bytes(&cubin);
        println!("{arch}: {registers} registers, {stack_bytes} bytes of stack");
        assert!((1..=64).contains(&registers) && stack_bytes == 0);
    }
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_compiles_every_case_of_the_corpus_without_spills_on_some_rung() {
    let builds = corpus::builds();
    let compiler = Compiler::load(None).unwrap();
    let tables = [shapes()[0], shapes()[2]].map(|shape| Table::random(shape, &[10]));
    let only = std::env::var("HEADRACE_CASE").ok();
    let cases = corpus::cases().into_iter();
    let cases: Vec<Case> =
        cases.filter(|case| only.as_ref().is_none_or(|only| only == case.name)).collect();
    let work = tables.iter().flat_map(|table| {
        cases.iter().map(move |case| (case.name.to_string(), (table, case.clone())))
    });
    let failed = failed_of(work, |(table, case)| {
        assert_compiles_without_spills(&compiler, &case, table, &builds);
    });
    assert!(failed.is_empty(), "{failed:#?}");
}

/// On some rung.
fn assert_compiles_without_spills(
    compiler: &Compiler,
    case: &Case,
    table: &Table,
    builds: &[Arc<BuildTable>],
) {
    let bound = bound_of(case, table, builds).unwrap();
    let compiled = |tuning: &Tuning| {
        let bound = Arc::clone(&bound);
        let program = CudaProgram::compile(bound, &table.layout(), *tuning).unwrap();
        let (registers, stack_bytes) = registers_and_stack_bytes(&compile(compiler, &program));
        println!(
            "{}: {} threads, {registers} registers, {stack_bytes} bytes of stack, {} of shared memory",
            case.name, tuning.block_threads, program.shared_bytes
        );
        stack_bytes
    };
    let fits = Tuning::LADDER.iter().map(compiled).any(|stack_bytes| stack_bytes == 0);
    assert!(fits, "{} spills on every rung", case.name);
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_compiles_plain_texts_without_spills_on_some_rung() {
    let compiler = Compiler::load(None).unwrap();
    let (shape, builds) = (text_shapes()[0], corpus::builds());
    let table = Table::random(shape, &[10]);
    let work = corpus::plain_texts().into_iter().map(|case| (case.name.to_string(), case));
    let failed = failed_of(work, |case| {
        assert_compiles_without_spills(&compiler, &case, &table, &builds);
    });
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_tells_what_is_wrong_with_a_function_by_its_own_lines() {
    let function = |body: &str| CudaFunction {
        name: "alike".into(),
        parameters: vec![("a".into(), DataType::FixedBinary(8)), ("n".into(), DataType::Int32)],
        result: DataType::Float64,
        body: body.into(),
    };
    let check = |body: &str| check_function(&function(body)).map_err(|error| error.to_string());
    assert_eq!(check("uint64_t sum = n;\nfor (auto x : a) sum += x;\nreturn sum;"), Ok(()));
    let misspelt = check("int x = n;\nretrun x;\nreturn x;").unwrap_err();
    assert!(misspelt.contains("function alike(2): error"), "{misspelt}");
    assert!(misspelt.contains("\n>     2 | retrun x;\n      3 | return x;"), "{misspelt}");
    assert!(check("return n").unwrap_err().contains("expected a \";\""));
    assert!(check("return a;").unwrap_err().contains("function alike(1): error"));
    let endless = check("for (;;) {}\n}\nextern \"C\" __global__ void pipeline() {");
    assert!(endless.is_ok() || endless.unwrap_err().contains("error"));
}
