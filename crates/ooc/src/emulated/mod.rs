//! CUDA kernels on the CPU, for tests of their results, not of their speed.
//!
//! ```text
//! sources, as the device compiles them ─► c++ with sanitizers ─► a program ◄── pipes ──► Emulated, in the test
//!                   cuda_on_cpu.h ─────────┘
//! ```
//!
//! Detected: wrong answers, accesses outside of a buffer or an array, unaligned addresses, parameters of a wrong size,
//! barriers that not all threads reach, lanes that are missing in a warp operation, and most reliance on lock-step
//! lanes or on an order of threads and blocks. Not detected: faults that need a weaker memory order than the machine's
//! (a missing `__syncwarp` before a vote that waits anyway), non-atomic operations that should be atomic, faults that
//! need more than a few concurrent blocks, register limits.
//!
//! A thread is a fiber; which one runs next is chosen at random between any two basic blocks.

use std::fmt::Write as _;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// Sources of kernels, with the kernels' names. Kernel `k` of source `n` becomes `k_n`.
pub(crate) type Sources<'a> = [(String, &'a [&'a str])];

/// A device with kernels, with memory separate from this process.
pub(crate) struct Emulated {
    program: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    folder: TempDir,
    /// Seed of the thread order; changes with each launch.
    seed: u64,
    /// Blocks that run concurrently.
    pub workers: u64,
}

const FLAGS: [&str; 7] = [
    "-std=c++17", "-O1", "-g1", "-w", "-pthread", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
];

impl Emulated {
    pub fn new(sources: &Sources<'_>) -> Emulated {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("cuda_on_cpu.h"), include_str!("cuda_on_cpu.h")).unwrap();
        std::fs::write(path("cuda_on_cpu.cpp"), include_str!("cuda_on_cpu.cpp")).unwrap();
        let mut text = String::from("#include \"cuda_on_cpu.h\"\n");
        let mut table = String::new();
        for (number, (source, kernels)) in sources.iter().enumerate() {
            std::fs::write(path(&format!("{number}.cu")), source).unwrap();
            writeln!(text, "namespace source_{number} {{\nDYNAMIC_SHARED").unwrap();
            for kernel in *kernels {
                writeln!(text, "#define {kernel} {kernel}_{number}").unwrap();
                writeln!(table, "    KERNEL(source_{number}, {kernel}_{number}),").unwrap();
            }
            writeln!(text, "#include \"{number}.cu\"\n}}").unwrap();
            kernels.iter().for_each(|kernel| writeln!(text, "#undef {kernel}").unwrap());
        }
        writeln!(
            text,
            "const emulated::Kernel emulated::kernels[] = {{\n{table}}};\n\
             const unsigned long emulated::kernels_count = sizeof kernels / sizeof *kernels;"
        )
        .unwrap();
        std::fs::write(path("kernels.cpp"), text).unwrap();
        compile(folder.path());
        let errors = std::fs::File::create(path("errors")).unwrap();
        let mut program = Command::new(path("program"))
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let (to, from) = (program.stdin.take().unwrap(), program.stdout.take().unwrap());
        Emulated { program, to, from: BufReader::new(from), folder, seed: 1, workers: 1 }
    }

    /// Memory with exactly these bytes.
    pub fn upload(&mut self, bytes: &[u8]) -> u64 {
        let address = self.alloc(bytes.len());
        self.write(address, bytes);
        address
    }

    /// This many uninitialised bytes, aligned to 256.
    pub fn alloc(&mut self, bytes: usize) -> u64 {
        self.tell(&[u64::from(b'a'), bytes as u64], &[]);
        u64::from_le_bytes(self.answer(8).try_into().unwrap())
    }

    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        self.tell(&[u64::from(b'w'), address, bytes.len() as u64], bytes);
    }

    pub fn read(&mut self, address: u64, bytes: usize) -> Vec<u8> {
        self.tell(&[u64::from(b'r'), address, bytes as u64], &[]);
        self.answer(bytes)
    }

    /// Frees all memory.
    pub fn clear(&mut self) {
        self.tell(&[u64::from(b'c')], &[]);
    }

    /// Runs a kernel in blocks of this many threads, with this many bytes of shared memory.
    pub fn launch(
        &mut self,
        kernel: &str,
        (blocks, threads, shared): (u32, u32, u32),
        args: &[u8],
    ) {
        let mut name = [0; 63];
        name[..kernel.len()].copy_from_slice(kernel.as_bytes());
        self.tell(&[u64::from(b'l')], &name);
        self.seed += 1;
        let (workers, seed, bytes) = (self.workers, self.seed, args.len() as u64);
        let grid = [blocks, threads, shared].map(u64::from);
        self.tell(&[grid[0], grid[1], grid[2], workers, seed, bytes], args);
        self.answer(4);
    }

    fn tell(&mut self, words: &[u64], bytes: &[u8]) {
        let told = self.to.write_all(bytemuck::cast_slice(words));
        if told.and_then(|()| self.to.write_all(bytes)).is_err() {
            self.failed();
        }
    }

    fn answer(&mut self, bytes: usize) -> Vec<u8> {
        let mut answer = vec![0; bytes];
        if self.from.read_exact(&mut answer).is_err() {
            self.failed();
        }
        answer
    }

    fn failed(&mut self) -> ! {
        let status = self.program.wait();
        let errors = std::fs::read_to_string(self.folder.path().join("errors")).unwrap();
        let errors = errors.split("Shadow bytes").next().unwrap_or_default();
        panic!("the emulated device ended, {status:?}, seed {}:\n{errors}", self.seed);
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn compile(folder: &Path) {
    let runtime = ["-c", "cuda_on_cpu.cpp"];
    let kernels = ["-fsanitize-coverage=trace-pc", "kernels.cpp", "cuda_on_cpu.o", "-oprogram"];
    for args in [&runtime[..], &kernels] {
        let output = Command::new("c++").args(FLAGS).args(args).current_dir(folder).output();
        let output = output.expect("c++ is needed: scripts/setup installs it (build-essential)");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kernels do not compile for the cores:\n{errors}");
    }
}
