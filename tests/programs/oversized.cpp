// SPDX-License-Identifier: Apache-2.0
// Works on many buffers, together maybe larger than the GPU. In each iteration, kernels change all buffers in
// the same order. The option --kind chooses the kernel: it streams through a buffer, multiplies a buffer with
// its neighbour and reads the neighbour again and again, or finds its buffers through a table of pointers in
// device memory. Verifies every word.
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/expected.h"
#include "tests/programs/program.h"

using namespace sharedgpu;
using namespace sharedgpu::programs;

namespace {

constexpr std::size_t kGroup = 4;        // buffers of one launch through the table
constexpr std::size_t kChurn = 8;        // after an iteration, one in kChurn buffers is replaced
constexpr unsigned kBlockThreads = 256;  // threads of a block, as launch() of program.h makes them

struct Options {
  unsigned count = 12;
  std::string bytes = "16MiB";
  unsigned iterations = 5;
  unsigned threads = 1;
  std::string kind = "stream";
  bool pool = false;
  bool own = false;
  bool graph = false;
  bool churn = false;
};

// Allocates buffers of one size, in one of three ways.
class Memory {
 public:
  Memory(const Options& options, std::size_t bytes, CUstream stream)
      : pool_(options.pool), own_(options.own), bytes_(bytes), stream_(stream) {}

  CUdeviceptr allocate() const {
    CUdeviceptr memory = 0;
    if (own_)
      memory = map();
    else if (pool_)
      check(cuMemAllocAsync(&memory, bytes_, stream_), "cuMemAllocAsync");
    else
      check(cuMemAlloc(&memory, bytes_), "cuMemAlloc");
    return memory;
  }

  void free(CUdeviceptr memory) const {
    if (own_) {
      check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
      check(cuMemUnmap(memory, bytes_), "cuMemUnmap");
      check(cuMemAddressFree(memory, bytes_), "cuMemAddressFree");
    } else if (pool_) {
      check(cuMemFreeAsync(memory, stream_), "cuMemFreeAsync");
    } else {
      check(cuMemFree(memory), "cuMemFree");
    }
  }

 private:
  // Creates and maps memory as PyTorch's expandable segments do.
  CUdeviceptr map() const {
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr memory = 0;
    check(cuMemAddressReserve(&memory, bytes_, 0, 0, 0), "cuMemAddressReserve");
    check(cuMemCreate(&handle, bytes_, &wanted, 0), "cuMemCreate");
    check(cuMemMap(memory, bytes_, 0, handle, 0), "cuMemMap");
    check(cuMemRelease(handle), "cuMemRelease");
    CUmemAccessDesc access = {};
    access.location = wanted.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(cuMemSetAccess(memory, bytes_, &access, 1), "cuMemSetAccess");
    return memory;
  }

  bool pool_;
  bool own_;
  std::size_t bytes_;
  CUstream stream_;
};

struct Part {
  CUdeviceptr memory;
  Expected expected;
};

// The buffers of one thread.
class Ring {
 public:
  Ring(const Options& options, const Kernels& kernels, std::size_t bytes, unsigned first, unsigned count)
      : options_(options),
        kernels_(kernels),
        words_(bytes / 8),
        seed_(std::uint64_t{first} << 32),
        stream_(new_stream()),
        memory_(options, bytes, stream_) {
    for (unsigned i = 0; i < count; ++i) parts_.push_back(make_part());
    if (options.kind == "hidden") check(cuMemAlloc(&table_, count * sizeof(CUdeviceptr)), "cuMemAlloc");
    write_table();
    wait();
  }

  void run() {
    for (unsigned iteration = 0; iteration < options_.iterations; ++iteration) {
      if (options_.graph) {
        if (graph_ == nullptr) capture();
        check(cuGraphLaunch(graph_, stream_), "cuGraphLaunch");
      } else {
        launch_all();
      }
      expect_all();
      if (options_.churn && iteration + 1 < options_.iterations) churn(iteration);
    }
    wait();
  }

  void verify() const {
    for (const Part& part : parts_) verify(part);
  }

  void free() {
    for (const Part& part : parts_) memory_.free(part.memory);
    if (table_ != 0) check(cuMemFree(table_), "cuMemFree");
    if (graph_ != nullptr) check(cuGraphExecDestroy(graph_), "cuGraphExecDestroy");
    check(cuStreamDestroy(stream_), "cuStreamDestroy");
  }

 private:
  void wait() const { check(cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

  Part make_part() {
    const std::uint64_t seed = ++seed_;
    const std::uint64_t first = 0;
    const Part part{memory_.allocate(), {seed, words_, options_.kind == "product"}};
    launch(kernels_["pattern_fill"], words_, stream_, {&part.memory, &words_, &seed, &first});
    return part;
  }

  void write_table() const {
    if (table_ == 0) return;
    std::vector<CUdeviceptr> table;
    for (const Part& part : parts_) table.push_back(part.memory);
    check(cuMemcpyHtoDAsync(table_, table.data(), table.size() * sizeof table[0], stream_),
          "cuMemcpyHtoDAsync");
    wait();
  }

  // The number that a kernel mixes into the words of part `i`. It does not depend on the iteration, since a
  // graph repeats its arguments.
  std::uint64_t mark(std::size_t i) const { return options_.kind == "hidden" ? i / kGroup : i; }
  std::size_t operand(std::size_t i) const { return (i + 1) % parts_.size(); }

  // One iteration.
  void launch_all() const {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::uint64_t number = mark(i);
      const CUdeviceptr memory = parts_[i].memory;
      if (options_.kind == "stream") {
        launch(kernels_["pattern_step"], words_, stream_, {&memory, &words_, &number});
      } else if (options_.kind == "product") {
        const CUdeviceptr other = parts_[operand(i)].memory;
        launch(kernels_["pattern_product"], pattern::kProductBlocks * kBlockThreads, stream_,
               {&memory, &words_, &other, &words_, &number});
      } else if (i % kGroup == 0) {
        const CUdeviceptr table = table_ + i * sizeof(CUdeviceptr);
        const std::uint64_t count = std::min(kGroup, parts_.size() - i);
        launch(kernels_["pattern_hidden"], words_, stream_, {&table, &count, &words_, &number});
      }
    }
  }

  void expect_all() {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (options_.kind == "product")
        parts_[i].expected.product(mark(i), parts_[operand(i)].expected);
      else
        parts_[i].expected.step(mark(i));
    }
  }

  void capture() {
    CUgraph graph = nullptr;
    check(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    launch_all();
    check(cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    check(cuGraphInstantiateWithFlags(&graph_, graph, 0), "cuGraphInstantiateWithFlags");
    check(cuGraphDestroy(graph), "cuGraphDestroy");
  }

  // Verifies, frees and replaces some parts. A graph with their addresses is no longer valid.
  void churn(unsigned iteration) {
    wait();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if ((i + iteration) % kChurn != 0) continue;
      verify(parts_[i]);
      memory_.free(parts_[i].memory);
      parts_[i] = make_part();
      if (graph_ != nullptr) check(cuGraphExecDestroy(graph_), "cuGraphExecDestroy");
      graph_ = nullptr;
    }
    write_table();
  }

  void verify(const Part& part) const {
    constexpr std::uint64_t kPiece = 1 << 20;  // number of words
    std::vector<std::uint64_t> host(std::min(words_, kPiece));
    for (std::uint64_t begin = 0; begin < words_; begin += kPiece) {
      const std::uint64_t count = std::min(kPiece, words_ - begin);
      check(cuMemcpyDtoHAsync(host.data(), part.memory + begin * 8, count * 8, stream_), "cuMemcpyDtoHAsync");
      wait();
      for (std::uint64_t i = 0; i < count; ++i) {
        if (host[i] == part.expected(begin + i)) continue;
        char text[128];
        std::snprintf(text, sizeof text, "word %llu of the buffer at %#llx is %016llx, not %016llx",
                      static_cast<unsigned long long>(begin + i),
                      static_cast<unsigned long long>(part.memory), static_cast<unsigned long long>(host[i]),
                      static_cast<unsigned long long>(part.expected(begin + i)));
        fail(text);
      }
    }
  }

  const Options& options_;
  const Kernels& kernels_;
  const std::uint64_t words_;
  std::uint64_t seed_;
  CUstream stream_;
  Memory memory_;
  std::vector<Part> parts_;
  CUdeviceptr table_ = 0;
  CUgraphExec graph_ = nullptr;
};

// Calls `work` for each ring, each in a thread of its own.
template <class Work>
void for_each(CUcontext context, std::vector<std::unique_ptr<Ring>>& rings, Work work) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < rings.size(); ++i)
    threads.emplace_back([&, i] {
      use(context);
      work(i);
    });
  for (std::thread& thread : threads) thread.join();
}

void run(const Options& options) {
  using Clock = std::chrono::steady_clock;
  const unsigned each = options.count / options.threads;
  const unsigned least = options.kind == "product" ? 2 : 1;  // a product needs a neighbour
  if (each < least)
    fail("each thread needs at least " + std::to_string(least) + " buffers: give --count a larger value");
  if (options.pool && options.own) fail("--pool and --own exclude each other");
  constexpr std::size_t kGranularity = std::size_t{2} << 20;
  const std::size_t bytes = parse_size(options.bytes, 0);
  if (bytes < 8 || bytes % (options.own ? kGranularity : 8) != 0)
    fail(options.own ? "--bytes with --own is no multiple of 2 MiB" : "--bytes is no multiple of 8");
  CUcontext context = start();
  const Kernels kernels;
  std::vector<std::unique_ptr<Ring>> rings(options.threads);
  for_each(context, rings, [&](std::size_t i) {
    const auto first = static_cast<unsigned>(i) * each;
    const unsigned count = i + 1 < rings.size() ? each : options.count - first;
    rings[i] = std::make_unique<Ring>(options, kernels, bytes, first, count);
  });
  const auto begin = Clock::now();
  for_each(context, rings, [&](std::size_t i) { rings[i]->run(); });
  const std::chrono::duration<double> time = Clock::now() - begin;
  for_each(context, rings, [&](std::size_t i) { rings[i]->verify(); });
  for_each(context, rings, [&](std::size_t i) { rings[i]->free(); });
  std::printf(
      "oversized: %u iterations of %s over %u buffers of %zu bytes took %.3f s, every word verified\n",
      options.iterations, options.kind.c_str(), options.count, bytes, time.count());
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Works on many buffers, together maybe larger than the GPU, and verifies them.");
  Options options;
  app.add_option("--count", options.count, "number of buffers").positive();
  app.add_option("--bytes", options.bytes, "size of a buffer");
  app.add_option("--iterations", options.iterations, "how often to change all buffers").positive();
  app.add_option("--threads", options.threads, "threads, each with a stream and its part of the buffers")
      .positive();
  app.add_option("--kind", options.kind, "what the kernels do").one_of({"stream", "product", "hidden"});
  app.add_flag("--pool", options.pool, "allocate in stream order");
  app.add_flag("--own", options.own, "create and map the memory, as expandable segments do");
  app.add_flag("--graph", options.graph, "launch each iteration as a graph");
  app.add_flag("--churn", options.churn, "replace some buffers after each iteration");
  app.parse(argc, argv);
  return status_of([&] { run(options); });
}
