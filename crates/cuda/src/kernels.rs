//! Loaded kernels, and which of them a pipeline gets.
//!
//! The text of a kernel does not depend on constants, but on how many rows the steps are expected to
//! keep: that orders them, and says what is loaded ahead and what waits in a queue. So a constant
//! may ask for a text that nobody compiled. Its pipeline then borrows: it takes the kernel of a
//! relative, one that differs in constants and names alone, by expecting what that one expected. Answers never
//! depend on it. A text that is asked for again and again is compiled.
//!
//! A full kernel takes NVRTC a second or more, as several are tried. A query that is the first to want it gets a hasty one in
//! its place: compiled with few optimisations, in a fifth of a second. The full one is compiled [`behind`](crate::behind) it.

mod wanted;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use headrace_gpu::{Compiler, CubinCache, Device, DeviceInfo, Function, GpuError, Module, Source};
use headrace_pipeline::ExecError;
use headrace_pipeline::bound::Bound;
use parking_lot::Mutex;

use crate::behind;
use crate::error::CudaError;
use crate::headers::{COMPILE_OPTIONS, HASTY_OPTIONS, HASTY_SINCE};
use crate::layout::SegmentLayout;
use crate::program::{CudaProgram, KERNEL_NAME, pipeline_source};
use crate::tuning::Tuning;
use wanted::{Rung, RungKey, Search, Wanted, tunings};

/// Loaded kernels that are kept; more and all are dropped.
const KERNELS_MAX: usize = 256;

/// Rungs that are compiled at the same time. Most kernels spill on the first two, and not on the third.
const RUNGS_TOGETHER: usize = 3;

/// A kernel that a device can launch.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What it was generated from.
    pub program: Arc<CudaProgram>,
    /// The loaded function.
    pub function: Function,
    /// Blocks that run at a time on the whole device.
    pub blocks_max: u32,
    /// Whether a later run may have a better one: this is that of a relative, or a hasty one.
    pub is_borrowed: bool,
}

#[derive(Default)]
struct State {
    functions: HashMap<String, Function>,
    rungs: HashMap<RungKey, Tuning>,
    /// By the text without expectations.
    families: HashMap<String, Family>,
    /// Hasty ones by text.
    hasty: HashMap<String, Function>,
    /// Whose full kernel is compiled behind the queries, or could not be.
    behind: HashMap<RungKey, Behind>,
}

/// What became of a full kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    IsCompiled,
    HasFailed,
}

/// Pipelines that differ in constants, and in what columns and tables are called.
#[derive(Default)]
struct Family {
    /// What the one expected that was compiled last.
    selectivities: Vec<f64>,
    /// How often texts were asked for that are not compiled.
    borrows: HashMap<String, u32>,
}

/// The kernels of a device.
pub(crate) struct Kernels {
    compiler: Compiler,
    cubins: CubinCache,
    /// In place of [`Tuning::LADDER`].
    tuning: Option<Tuning>,
    /// How often a text may be asked for before it is compiled.
    borrows_max: u32,
    /// Whether a query gets a hasty kernel at first.
    is_hasty: AtomicBool,
    state: Mutex<State>,
    loaded: AtomicU64,
}

impl Kernels {
    /// # Errors
    /// [`GpuError`] without NVRTC.
    pub(crate) fn new(
        tuning: Option<Tuning>,
        borrows_max: u32,
        is_hasty: bool,
    ) -> Result<Self, GpuError> {
        let compiler = Compiler::load(None)?;
        let is_hasty = AtomicBool::new(is_hasty && compiler.version() >= HASTY_SINCE);
        Ok(Self {
            compiler,
            cubins: CubinCache::open_default(),
            tuning,
            borrows_max,
            is_hasty,
            state: Mutex::default(),
            loaded: AtomicU64::new(0),
        })
    }

    /// Kernels that were compiled, or found compiled on disk, and loaded so far.
    pub(crate) fn loaded(&self) -> u64 {
        self.loaded.load(Ordering::Relaxed)
    }

    /// As [`CudaDevice::kernel`](crate::CudaDevice::kernel).
    pub(crate) fn get(
        self: &Arc<Self>,
        device: &Arc<Device>,
        bound: &Arc<Bound>,
        layout: &SegmentLayout,
    ) -> Result<Kernel, CudaError> {
        let wanted = Wanted::new(self.ladder(device.info()), bound, layout)?;
        if let Some(kernel) = self.known(device, &wanted)? {
            return Ok(kernel);
        }
        let family = wanted.family()?;
        if let Some(relative) = self.relative(&family, &wanted)?
            && let Some(kernel) = self.known(device, &relative)?
        {
            return Ok(Kernel { is_borrowed: true, ..kernel });
        }
        let programs = wanted.programs()?;
        let search = Search::new(&wanted, family, &programs);
        if let Some(kernel) = self.in_haste(device, &search.key, &programs)? {
            self.begin_full(device, search);
            return Ok(kernel);
        }
        self.find(device, search)?;
        let kernel = self.known(device, &wanted)?;
        Ok(kernel.ok_or_else(|| ExecError::Internal("a kernel that was found is gone".into()))?)
    }

    /// Finds the rung of a pipeline that never had one, with its kernel loaded.
    fn find(&self, device: &Arc<Device>, search: Search) -> Result<(), CudaError> {
        let tuning = self.first_that_fits(device, &search.rungs)?;
        let mut state = self.state.lock();
        state.make_room();
        let family = state.families.entry(search.family).or_default();
        family.selectivities = search.selectivities;
        family.borrows.remove(&search.key.0);
        state.rungs.insert(search.key, tuning);
        Ok(())
    }

    /// A kernel that is there soon; `None` where the full one is, too, or there is no other.
    fn in_haste(
        &self,
        device: &Arc<Device>,
        key: &RungKey,
        programs: &[Arc<CudaProgram>],
    ) -> Result<Option<Kernel>, CudaError> {
        let has_failed = self.state.lock().behind.get(key) == Some(&Behind::HasFailed);
        if !self.is_hasty.load(Ordering::Relaxed) || has_failed {
            return Ok(None);
        }
        let arch = device.info().arch();
        let is_known = |program: &Arc<CudaProgram>| {
            let is_loaded = self.state.lock().functions.contains_key(&program.source);
            is_loaded
                || self.cubins.knows(&self.compiler, &program.source(), &arch, &COMPILE_OPTIONS)
        };
        // Registers are no concern here: of the last rung a thread has most.
        let Some(program) = programs
            .last()
            .filter(|_| !programs[..programs.len().min(RUNGS_TOGETHER)].iter().all(is_known))
        else {
            return Ok(None);
        };
        let known = self.state.lock().hasty.get(&program.source).cloned();
        let function = match known {
            Some(function) => function,
            None => match self.load_with(device, &program.source(), KERNEL_NAME, &HASTY_OPTIONS) {
                Ok(function) => function,
                Err(error) => {
                    // Another NVRTC than was tried: it is as slow as ever.
                    tracing::warn!(%error, "no hasty kernels");
                    self.is_hasty.store(false, Ordering::Relaxed);
                    return Ok(None);
                }
            },
        };
        allow_shared(&function, program.tuning.shared_bytes_max)?;
        let mut state = self.state.lock();
        state.make_room();
        state.hasty.insert(program.source.clone(), function.clone());
        drop(state);
        let kernel = self.kernel_of(device, Arc::clone(program), function)?;
        tracing::debug!(registers = kernel.function.info().registers, "a hasty kernel");
        Ok(Some(Kernel { is_borrowed: true, ..kernel }).filter(|kernel| kernel.blocks_max > 0))
    }

    /// Has a full kernel compiled while queries run, unless it is already.
    fn begin_full(self: &Arc<Self>, device: &Arc<Device>, search: Search) {
        let key = search.key.clone();
        if self.state.lock().behind.insert(key.clone(), Behind::IsCompiled).is_some() {
            return;
        }
        let (kernels, device) = (Arc::clone(self), Arc::clone(device));
        behind::begin(move || {
            let found = kernels.find(&device, search);
            let mut state = kernels.state.lock();
            match found {
                Ok(()) => _ = state.behind.remove(&key),
                // The next query asks for it itself, and hears of it.
                Err(_) => _ = state.behind.insert(key, Behind::HasFailed),
            }
        });
    }

    fn ladder(&self, info: &DeviceInfo) -> Vec<Tuning> {
        self.tuning.map_or_else(|| tunings(info), |only| vec![only])
    }

    /// The kernel of a pipeline that had one before.
    fn known(&self, device: &Arc<Device>, wanted: &Wanted) -> Result<Option<Kernel>, CudaError> {
        let rung = self.state.lock().rungs.get(&wanted.rung_key()).copied();
        let Some(tuning) = rung else { return Ok(None) };
        let kernel = self.kernel(device, wanted.program(tuning)?)?;
        Ok(Some(kernel).filter(|kernel| kernel.blocks_max > 0))
    }

    /// The pipeline with the expectations of a relative, if that has another text and this one was
    /// not asked for often.
    fn relative(&self, family: &str, wanted: &Wanted) -> Result<Option<Wanted>, CudaError> {
        let selectivities = {
            let mut state = self.state.lock();
            let Some(family) = state.families.get_mut(family) else { return Ok(None) };
            let borrows = family.borrows.entry(wanted.roomiest.source.clone()).or_default();
            *borrows += 1;
            if *borrows > self.borrows_max {
                return Ok(None);
            }
            family.selectivities.clone()
        };
        let relative = wanted.expecting(&selectivities)?;
        Ok(Some(relative).filter(|other| other.roomiest.source != wanted.roomiest.source))
    }

    /// The first rung whose kernel does not spill registers; its kernel is loaded.
    fn first_that_fits(&self, device: &Arc<Device>, rungs: &[Rung]) -> Result<Tuning, CudaError> {
        let mut last = None;
        for some in rungs.chunks(RUNGS_TOGETHER) {
            if behind::has_ended() {
                break;
            }
            // What comes after the one that fits was only compiled beside it.
            for (rung, function) in some.iter().zip(self.compiled(device, some)) {
                let (function, tuning) = (function?, rung.tuning);
                let threads = tuning.block_threads;
                if function.max_active_blocks_per_sm(threads, rung.shared_bytes)? == 0 {
                    continue;
                }
                let (registers, local_bytes) =
                    (function.info().registers, function.info().local_bytes);
                tracing::debug!(registers, local_bytes, ?tuning, "kernel");
                if local_bytes == 0 {
                    return Ok(tuning);
                }
                last = Some(tuning);
            }
        }
        let none = || ExecError::Internal("a kernel of which no block fits".into());
        Ok(last.ok_or_else(none)?)
    }

    fn kernel(&self, device: &Arc<Device>, program: Arc<CudaProgram>) -> Result<Kernel, GpuError> {
        let function = self.function(device, &Rung::of(&program))?;
        self.kernel_of(device, program, function)
    }

    fn kernel_of(
        &self,
        device: &Arc<Device>,
        program: Arc<CudaProgram>,
        function: Function,
    ) -> Result<Kernel, GpuError> {
        let threads = program.tuning.block_threads;
        let per_sm = function.max_active_blocks_per_sm(threads, program.shared_bytes)?;
        let blocks_max = per_sm * device.info().sm_count;
        Ok(Kernel { program, function, blocks_max, is_borrowed: false })
    }

    /// The kernels of some rungs, compiled at the same time: which of them spill is known only then.
    fn compiled(&self, device: &Arc<Device>, rungs: &[Rung]) -> Vec<Result<Function, CudaError>> {
        let compile = |rung: &Rung| self.function(device, rung).map_err(CudaError::from);
        let [first, others @ ..] = rungs else { return Vec::new() };
        std::thread::scope(|scope| {
            let compile = &compile;
            let others: Vec<_> = others
                .iter()
                .map(|rung| {
                    scope.spawn(move || {
                        headrace_io::block_signals();
                        compile(rung)
                    })
                })
                .collect();
            let panicked =
                |_| Err(ExecError::Internal("compiling a kernel panicked".into()).into());
            let others = others.into_iter();
            let first = compile(first);
            let others = others.map(|other| other.join().unwrap_or_else(panicked));
            std::iter::once(first).chain(others).collect()
        })
    }

    /// The loaded function of a rung.
    fn function(&self, device: &Arc<Device>, rung: &Rung) -> Result<Function, GpuError> {
        if let Some(known) = self.state.lock().functions.get(&rung.text) {
            return Ok(known.clone());
        }
        self.loaded.fetch_add(1, Ordering::Relaxed);
        let function = self.load(device, &pipeline_source(&rung.text), KERNEL_NAME)?;
        // Programs of the same source differ in what of it they use.
        allow_shared(&function, rung.tuning.shared_bytes_max)?;
        let mut state = self.state.lock();
        state.make_room();
        state.functions.insert(rung.text.clone(), function.clone());
        Ok(function)
    }

    /// Compiles a source, unless that was done before, and loads a function of it.
    ///
    /// # Errors
    /// [`GpuError`] when it does not compile or load.
    pub(crate) fn load(
        &self,
        device: &Arc<Device>,
        source: &Source<'_>,
        name: &str,
    ) -> Result<Function, GpuError> {
        self.load_with(device, source, name, &COMPILE_OPTIONS)
    }

    /// Has kernels compiled that most queries want, if none was before, while the first one begins.
    pub(crate) fn begin_fixed(
        self: &Arc<Self>,
        device: &Arc<Device>,
        sources: impl IntoIterator<Item = Source<'static>>,
    ) {
        let arch = device.info().arch();
        for source in sources {
            let is_known = self.cubins.knows(&self.compiler, &source, &arch, &COMPILE_OPTIONS);
            if is_known || !self.is_hasty.load(Ordering::Relaxed) || self.cubins.folder().is_none()
            {
                continue;
            }
            let (kernels, arch) = (Arc::clone(self), arch.clone());
            behind::begin(move || {
                // Whoever wants it hears of what is wrong.
                let _ = kernels.cubins.compile(&kernels.compiler, &source, &arch, &COMPILE_OPTIONS);
            });
        }
    }

    fn load_with(
        &self,
        device: &Arc<Device>,
        source: &Source<'_>,
        name: &str,
        options: &[&str],
    ) -> Result<Function, GpuError> {
        let arch = device.info().arch();
        let (cubin, _) = self.cubins.compile(&self.compiler, source, &arch, options)?;
        Module::load(device, &cubin)?.function(name)
    }
}

impl State {
    /// Forgets all before it becomes too much.
    fn make_room(&mut self) {
        let counts =
            [self.functions.len(), self.rungs.len(), self.families.len(), self.hasty.len()];
        if counts.into_iter().any(|count| count >= KERNELS_MAX) {
            *self = Self::default();
        }
    }
}

/// Lets a function have so much dynamic shared memory, or what its own leaves.
fn allow_shared(function: &Function, bytes: u32) -> Result<(), GpuError> {
    function.set_max_dynamic_shared_bytes(bytes.min(function.dynamic_shared_bytes_max()))
}
