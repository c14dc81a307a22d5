// Blocks of threads on the cores, and a device that is told over pipes what to do.
//
// A thread of a block is a fiber, a block under way a thread of the machine. One of all runs at a time, until it waits
// or, at random, between any two of its basic blocks; then any other goes on that may. Who relies on lanes in step, or
// on an order of blocks, is found out, and a run can be had again by its seed.
#include "cuda_on_cpu.h"

#include <sanitizer/asan_interface.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

typedef unsigned long long u64;
thread_local Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {
#define SWITCHES __attribute__((noinline, no_sanitize("address", "undefined")))
constexpr size_t STACK_BYTES = 64 << 10;

void fail(const char* format, ...) {
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    _exit(3);
}

struct Random {
    u64 state;
    u64 below(u64 end) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (state >> 33) % end;
    }
};

struct Fiber {
    void* at[5];
    ucontext_t start;
    std::unique_ptr<char[]> stack;
    bool is_new, is_done;
    // Where it waits, and whether for its block.
    int line;
    bool at_barrier;
};

struct Warp {
    unsigned mask, arrived;
    int line;
    // Of exchanges: values are there until the next one but one begins, which none begins that has not read them.
    unsigned long number;
    u64 values[2][32];
};

struct Block {
    const Kernel* kernel;
    const void* params;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::vector<unsigned> ready;
    unsigned now, live, at_barrier;
    struct Launch* launch;
    Random random;
    void* home[5];

    void run();
    [[noreturn]] void stuck();
};

thread_local Block block;

__attribute__((noreturn)) SWITCHES void jump(void** to) { __builtin_longjmp(to, 1); }

SWITCHES void wait() {
    void** const here = block.fibers[block.now].at;
    if (__builtin_setjmp(here) == 0) jump(block.home);
}

SWITCHES void resume(Fiber& fiber) {
    if (__builtin_setjmp(block.home)) return;
    if (!fiber.is_new) jump(fiber.at);
    fiber.is_new = false;
    setcontext(&fiber.start);
    abort();
}

SWITCHES void fiber_main() {
    for (;;) {
        block.kernel->call(block.params);
        block.fibers[block.now].is_done = true;
        wait();
    }
}

void barrier(int line) {
    Fiber& fiber = block.fibers[block.now];
    fiber.line = line;
    fiber.at_barrier = true;
    block.at_barrier++;
    wait();
}

const u64* exchange(unsigned mask, u64 value, int line) {
    const unsigned lane = block.now % 32, first = block.now - lane;
    Warp& warp = block.warps[block.now / 32];
    if (!(mask >> lane & 1)) fail("line %d: lane %u is not in the mask %#x that it gives", line, lane, mask);
    if (warp.arrived == 0) {
        warp.mask = mask;
        warp.line = line;
    } else if (warp.mask != mask || warp.line != line) {
        fail("line %d: lane %u comes here while others of its warp wait at line %d", line, lane, warp.line);
    }
    u64* const values = warp.values[warp.number % 2];
    values[lane] = value;
    warp.arrived |= 1u << lane;
    block.fibers[block.now].line = line;
    if (warp.arrived == mask) {
        warp.arrived = 0;
        warp.number++;
        for (unsigned other = 0; other < 32; other++)
            if (mask >> other & 1) block.ready.push_back(first + other);
    }
    wait();
    return values;
}

void Block::stuck() {
    fprintf(stderr, "%s: threads wait for others that do not come:\n", kernel->name);
    unsigned told = 0;
    for (size_t i = 0; i < fibers.size() && told < 40; i++) {
        const Fiber& fiber = fibers[i];
        const bool same = i > 0 && fiber.line == fibers[i - 1].line && fiber.is_done == fibers[i - 1].is_done;
        if (same && fiber.at_barrier == fibers[i - 1].at_barrier) continue;
        told++;
        if (fiber.is_done) fprintf(stderr, "  from thread %zu on: have left\n", i);
        else fprintf(stderr, "  from thread %zu on: line %d, of their %s\n", i, fiber.line, fiber.at_barrier ? "block" : "warp");
    }
    _exit(3);
}

void Block::run() {
    live = fibers.size();
    at_barrier = 0;
    ready.clear();
    warps.assign((live + 31) / 32, Warp{});
    for (unsigned i = 0; i < live; i++) {
        fibers[i].is_done = fibers[i].at_barrier = false;
        fibers[i].line = 0;
        ready.push_back(i);
    }
    while (live > 0) {
        if (ready.empty()) stuck();
        std::swap(ready[random.below(ready.size())], ready.back());
        now = ready.back();
        ready.pop_back();
        threadIdx.x = now;
        resume(fibers[now]);
        live -= fibers[now].is_done;
        if (live == 0 || at_barrier < live) continue;
        int line = 0;
        for (unsigned i = 0; i < fibers.size(); i++) {
            if (fibers[i].is_done) continue;
            if (line && fibers[i].line != line) stuck();
            line = fibers[i].line;
            fibers[i].at_barrier = false;
            ready.push_back(i);
        }
        at_barrier = 0;
    }
}

struct Launch {
    const Kernel* kernel;
    unsigned blocks, threads;
    u64 shared_bytes, seed;
    const void* params;
    // Of what is below; held by none while a block runs.
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<unsigned> order;
    // Who may take blocks, and who of them runs.
    std::vector<unsigned> workers;
    unsigned runs;
    Random random;

    // Chooses who runs.
    void choose() {
        if (!workers.empty()) runs = workers[random.below(workers.size())];
        changed.notify_all();
    }
};

thread_local unsigned worker;
// Basic blocks until the next `preempt`.
thread_local u64 rest = 1;

// Lets another worker or, more often, another thread of the block go on.
void preempt() {
    rest = 1 + block.random.below(1ull << block.random.below(16));
    // Not a kernel, but what leads to one.
    if (block.live == 0) return;
    Launch& launch = *block.launch;
    if (launch.workers.size() > 1 && block.random.below(3) == 0) {
        std::unique_lock<std::mutex> lock(launch.mutex);
        launch.choose();
        launch.changed.wait(lock, [&] { return launch.runs == worker; });
    } else {
        block.ready.push_back(block.now);
        wait();
    }
}

// Runs blocks until there are no more.
void work(Launch& launch, unsigned number) {
    worker = number;
    block.random.state = launch.seed + number;
    block.launch = &launch;
    block.kernel = launch.kernel;
    block.params = launch.params;
    if (block.fibers.size() != launch.threads) {
        block.fibers = std::vector<Fiber>(launch.threads);
        for (Fiber& fiber : block.fibers) {
            fiber.stack.reset(new char[STACK_BYTES]);
            getcontext(&fiber.start);
            fiber.start.uc_stack.ss_sp = fiber.stack.get();
            fiber.start.uc_stack.ss_size = STACK_BYTES;
            makecontext(&fiber.start, fiber_main, 0);
            fiber.is_new = true;
        }
    }
    blockDim.x = launch.threads;
    gridDim.x = launch.blocks;
    unsigned char* const shared = launch.kernel->shared();
    ASAN_UNPOISON_MEMORY_REGION(shared, SHARED_BYTES);
    std::unique_lock<std::mutex> lock(launch.mutex);
    launch.changed.wait(lock, [&] { return launch.runs == worker; });
    while (!launch.order.empty()) {
        blockIdx.x = launch.order.back();
        launch.order.pop_back();
        lock.unlock();
        memset(shared, 0xa5, SHARED_BYTES);
        ASAN_POISON_MEMORY_REGION(shared + launch.shared_bytes, SHARED_BYTES - launch.shared_bytes);
        block.run();
        ASAN_UNPOISON_MEMORY_REGION(shared, SHARED_BYTES);
        lock.lock();
    }
    launch.workers.erase(std::find(launch.workers.begin(), launch.workers.end(), worker));
    launch.choose();
}

void run(Launch& launch, unsigned workers) {
    launch.random.state = launch.seed;
    for (unsigned i = 0; i < launch.blocks; i++) launch.order.push_back(i);
    for (unsigned i = launch.blocks; i > 1; i--) std::swap(launch.order[i - 1], launch.order[launch.random.below(i)]);
    for (unsigned i = 0; i < std::min(workers, launch.blocks); i++) launch.workers.push_back(i);
    launch.choose();
    std::vector<std::thread> others;
    for (unsigned i = launch.workers.size(); i-- > 1;) others.emplace_back(work, std::ref(launch), i);
    work(launch, 0);
    for (std::thread& other : others) other.join();
}
}  // namespace emulated

using namespace emulated;

// Kernels call it in each of their basic blocks.
extern "C" void __sanitizer_cov_trace_pc() {
    if (--rest == 0) preempt();
}

static void take(void* to, size_t bytes) {
    if (fread(to, 1, bytes, stdin) != bytes) _exit(0);
}

static u64 take_word() {
    u64 word;
    take(&word, sizeof word);
    return word;
}

static void give(const void* from, size_t bytes) {
    fwrite(from, 1, bytes, stdout);
    fflush(stdout);
}

int main() {
    std::vector<void*> memory;
    for (;;) switch (take_word()) {
        case 'a': {  // bytes: memory of exactly so many, full of rubbish; its address
            const u64 bytes = take_word();
            void* at;
            if (posix_memalign(&at, 256, bytes)) fail("no memory for %llu bytes", bytes);
            memset(at, 0xa5, bytes);
            memory.push_back(at);
            give(&at, sizeof at);
            break;
        }
        case 'c':  // all memory is free
            for (void* at : memory) free(at);
            memory.clear();
            break;
        case 'w': {  // address, bytes, these
            void* const at = (void*)take_word();
            take(at, take_word());
            break;
        }
        case 'r': {  // address, bytes; these
            const void* const at = (const void*)take_word();
            give(at, take_word());
            break;
        }
        case 'l': {  // kernel, blocks, threads, bytes of shared memory, workers, seed, bytes of parameters, these
            Launch launch;
            launch.kernel = nullptr;
            char name[64] = {};
            take(name, sizeof name - 1);
            for (u64 i = 0; i < kernels_count; i++)
                if (!strcmp(kernels[i].name, name)) launch.kernel = &kernels[i];
            launch.blocks = take_word();
            launch.threads = take_word();
            launch.shared_bytes = take_word();
            const unsigned workers = take_word();
            launch.seed = take_word();
            const u64 bytes = take_word();
            alignas(16) char params[512];
            if (!launch.kernel) fail("there is no kernel %s", name);
            if (bytes != launch.kernel->params_bytes || bytes > sizeof params)
                fail("%s has parameters of %lu bytes, not %llu", name, launch.kernel->params_bytes, bytes);
            if (launch.blocks < 1 || launch.threads < 1 || launch.threads > 1024 || launch.shared_bytes > SHARED_BYTES)
                fail("%s cannot be launched like this", name);
            take(params, bytes);
            launch.params = params;
            alarm(100);  // For kernels that never end.
            run(launch, workers);
            alarm(0);
            give("done", 4);
            break;
        }
        default: fail("no such command");
    }
}
