// SPDX-License-Identifier: Apache-2.0
// Launches one graph whose buffers are together maybe larger than the GPU. Its kernels multiply each buffer
// with its neighbour, one buffer after the other. About half of these kernels are in child graphs. The graph
// also has kernels that count its launches, a memset, a copy, an empty node and perhaps memory of its own.
// Nodes may be updated between the launches, and several threads may launch the graph at the same time.
// Verifies every word.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/expected.h"
#include "tests/programs/program.h"

using namespace sharedgpu;
using namespace sharedgpu::programs;

namespace {

constexpr std::size_t kGroup = 4;  // consecutive kernels in one child graph, or in none
constexpr unsigned kBlockThreads = 256;
constexpr unsigned kFilled = 0x01010101;

struct Options {
  unsigned count = 20;
  std::string bytes = "16MiB";
  unsigned launches = 6;
  unsigned threads = 1;
  std::string update = "none";
  bool watch = false;
  bool memory = false;
};

void depend(CUgraph graph, CUgraphNode from, CUgraphNode to) {
#if CUDA_VERSION >= 13000
  check(cuGraphAddDependencies(graph, &from, &to, nullptr, 1), "cuGraphAddDependencies");
#else
  check(cuGraphAddDependencies(graph, &from, &to, 1), "cuGraphAddDependencies");
#endif
}

void wait(CUstream stream) { check(cuStreamSynchronize(stream), "cuStreamSynchronize"); }

// The arguments of one product.
struct Product {
  CUdeviceptr memory;
  std::uint64_t words;
  CUdeviceptr operand;
  std::uint64_t number;

  CUDA_KERNEL_NODE_PARAMS parameters(CUfunction kernel, std::array<void*, 5>& values) {
    values = {&memory, &words, &operand, &words, &number};
    CUDA_KERNEL_NODE_PARAMS made = {};
    made.func = kernel;
    made.gridDimX = pattern::kProductBlocks;
    made.gridDimY = made.gridDimZ = 1;
    made.blockDimX = kBlockThreads;
    made.blockDimY = made.blockDimZ = 1;
    made.kernelParams = values.data();
    return made;
  }
};

// Two counts, to which the graph adds at its begin and at its end, and a word that the graph fills and copies
// to the host.
struct Side {
  CUdeviceptr counts = 0;  // two numbers of 32 bits
  CUdeviceptr filled = 0;
  unsigned* host = nullptr;  // pinned: the filled word
};

// A graph in which each node depends on the node before it. The last node is added first.
class Chain {
 public:
  Chain() { check(cuGraphCreate(&graph_, 0), "cuGraphCreate"); }
  CUgraph graph() const { return graph_; }
  // Adds a node that runs before all nodes so far. `add` is the driver call that adds it without
  // dependencies.
  template <class Add>
  CUgraphNode prepend(const char* call, Add add) {
    CUgraphNode node = nullptr;
    check(add(&node), call);
    if (first_ != nullptr) depend(graph_, node, first_);
    first_ = node;
    return node;
  }

 private:
  CUgraph graph_ = nullptr;
  CUgraphNode first_ = nullptr;
};

class Work {
 public:
  explicit Work(const Options& options)
      : options_(options), words_(parse_size(options.bytes, 0) / 8), stream_(new_stream()) {
    for (std::size_t i = 0; i < options.count; ++i) {
      CUdeviceptr memory = 0;
      check(cuMemAlloc(&memory, words_ * 8), "cuMemAlloc");
      const std::uint64_t seed = i + 1;
      const std::uint64_t first = 0;
      launch(kernels_["pattern_fill"], words_, stream_, {&memory, &words_, &seed, &first});
      buffers_.push_back(memory);
      expected_.emplace_back(seed, words_, true);
    }
    check(cuMemAlloc(&side_.counts, 8), "cuMemAlloc");
    check(cuMemAlloc(&side_.filled, 4), "cuMemAlloc");
    check(cuMemsetD8Async(side_.counts, 0, 8, stream_), "cuMemsetD8Async");
    check(cuMemHostAlloc(reinterpret_cast<void**>(&side_.host), 4, 0), "cuMemHostAlloc");
    wait(stream_);
    build(0);
    check(cuGraphInstantiateWithFlags(&exec_, chain_->graph(), 0), "cuGraphInstantiateWithFlags");
  }

  void run(CUcontext context) {
    std::atomic<bool> ended{false};
    std::thread watcher;
    if (options_.watch) watcher = std::thread([&] { watch(context, ended); });
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < options_.threads; ++i)
      threads.emplace_back([&, i] {
        use(context);
        const CUstream own = i == 0 ? stream_ : new_stream();
        for (unsigned n = 0; n < options_.launches; ++n) {
          if (n != 0) update(n);
          check(cuGraphLaunch(exec_, own), "cuGraphLaunch");
        }
        wait(own);
      });
    for (std::thread& thread : threads) thread.join();
    ended = true;
    if (watcher.joinable()) watcher.join();
    for (unsigned n = 0; n < options_.launches; ++n)
      for (unsigned i = 0; i < options_.threads; ++i) expect_launch(n);
  }

  void verify() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) verify(i);
    unsigned counts[2] = {};
    unsigned filled = 0;
    const unsigned all = options_.launches * options_.threads;
    check(cuMemcpyDtoH(counts, side_.counts, sizeof counts), "cuMemcpyDtoH");
    check(cuMemcpyDtoH(&filled, side_.filled, sizeof filled), "cuMemcpyDtoH");
    if (counts[0] != all || counts[1] != all) fail("a node did not run once a launch");
    if (filled != last_filled_ || *side_.host != last_filled_) fail("the filled word is wrong");
  }

  void free() {
    check(cuGraphLaunch(exec_, stream_), "cuGraphLaunch");
    check(cuGraphExecDestroy(exec_), "cuGraphExecDestroy");  // while it runs
    wait(stream_);
    check(cuGraphDestroy(chain_->graph()), "cuGraphDestroy");
    for (const CUdeviceptr buffer : buffers_) check(cuMemFree(buffer), "cuMemFree");
  }

 private:
  bool in_child(std::size_t i) const { return i / kGroup % 2 == 1; }
  std::uint64_t number(std::size_t i, unsigned launch) const {
    return i + (options_.update == "none" ? 0 : launch * buffers_.size());
  }
  unsigned filled(unsigned launch) const { return options_.update == "none" ? kFilled : kFilled + launch; }

  Product product(std::size_t i, unsigned launch) const {
    return {buffers_[i], words_, buffers_[(i + 1) % buffers_.size()], number(i, launch)};
  }
  CUgraphNode prepend_product(Chain& chain, std::size_t i, unsigned launch) {
    Product its = product(i, launch);
    std::array<void*, 5> values{};
    const CUDA_KERNEL_NODE_PARAMS parameters = its.parameters(kernels_["pattern_product"], values);
    return chain.prepend("cuGraphAddKernelNode", [&](CUgraphNode* node) {
      return cuGraphAddKernelNode(node, chain.graph(), nullptr, 0, &parameters);
    });
  }
  void prepend_count(Chain& chain, std::size_t which) {
    CUdeviceptr at = side_.counts + 4 * which;
    std::uint64_t words = 1;
    unsigned one = 1;
    std::array<void*, 3> values = {&at, &words, &one};
    CUDA_KERNEL_NODE_PARAMS parameters = {};
    parameters.func = kernels_["add_value"];
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = values.data();
    chain.prepend("cuGraphAddKernelNode", [&](CUgraphNode* node) {
      return cuGraphAddKernelNode(node, chain.graph(), nullptr, 0, &parameters);
    });
  }
  // The child graph with the products of a group.
  Chain child(std::size_t group, unsigned launch) {
    Chain made;
    const std::size_t end = std::min((group + 1) * kGroup, buffers_.size());
    for (std::size_t i = end; i-- > group * kGroup;) prepend_product(made, i, launch);
    return made;
  }

  CUDA_MEMSET_NODE_PARAMS fill(unsigned launch) const {
    CUDA_MEMSET_NODE_PARAMS made = {};
    made.dst = side_.filled;
    made.elementSize = 4;
    made.width = made.height = 1;
    made.value = filled(launch);
    return made;
  }
  CUDA_MEMCPY3D copy() const {
    CUDA_MEMCPY3D made = {};
    made.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    made.srcDevice = side_.filled;
    made.dstMemoryType = CU_MEMORYTYPE_HOST;
    made.dstHost = side_.host;
    made.WidthInBytes = 4;
    made.Height = made.Depth = 1;
    return made;
  }
  void build(unsigned launch) {
    chain_ = std::make_unique<Chain>();
    Chain& chain = *chain_;
    products_.assign(buffers_.size(), nullptr);
    children_.assign(buffers_.size() / kGroup + 1, nullptr);
    CUcontext context = nullptr;
    check(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    const CUDA_MEMSET_NODE_PARAMS its_fill = fill(launch);
    const CUDA_MEMCPY3D its_copy = copy();
    if (options_.memory) prepend_memory(chain);
    copy_ = chain.prepend("cuGraphAddMemcpyNode", [&](CUgraphNode* node) {
      return cuGraphAddMemcpyNode(node, chain.graph(), nullptr, 0, &its_copy, context);
    });
    prepend_count(chain, 1);
    for (std::size_t i = buffers_.size(); i-- > 0;) {
      if (!in_child(i)) {
        products_[i] = prepend_product(chain, i, launch);
      } else if (i % kGroup == 0) {
        const Chain group = child(i / kGroup, launch);
        children_[i / kGroup] = chain.prepend("cuGraphAddChildGraphNode", [&](CUgraphNode* node) {
          return cuGraphAddChildGraphNode(node, chain.graph(), nullptr, 0, group.graph());
        });
        check(cuGraphDestroy(group.graph()), "cuGraphDestroy");
      }
    }
    prepend_count(chain, 0);
    fill_ = chain.prepend("cuGraphAddMemsetNode", [&](CUgraphNode* node) {
      return cuGraphAddMemsetNode(node, chain.graph(), nullptr, 0, &its_fill, context);
    });
    chain.prepend("cuGraphAddEmptyNode",
                  [&](CUgraphNode* node) { return cuGraphAddEmptyNode(node, chain.graph(), nullptr, 0); });
  }

  // Adds nodes that allocate memory and free it again.
  static void prepend_memory(Chain& chain) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {};
    wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.bytesize = 2 << 20;
    CUgraphNode allocation = nullptr;
    check(cuGraphAddMemAllocNode(&allocation, chain.graph(), nullptr, 0, &wanted), "cuGraphAddMemAllocNode");
    const CUgraphNode release = chain.prepend("cuGraphAddMemFreeNode", [&](CUgraphNode* node) {
      return cuGraphAddMemFreeNode(node, chain.graph(), &allocation, 1, wanted.dptr);
    });
    static_cast<void>(release);
  }

  // Makes the executable graph do launch `n`.
  void update(unsigned n) {
    if (options_.update == "whole") {
      check(cuGraphDestroy(chain_->graph()), "cuGraphDestroy");
      build(n);
#if CUDA_VERSION >= 12000
      CUgraphExecUpdateResultInfo result = {};
      check(cuGraphExecUpdate(exec_, chain_->graph(), &result), "cuGraphExecUpdate");
#else
      CUgraphNode bad = nullptr;
      CUgraphExecUpdateResult result = {};
      check(cuGraphExecUpdate(exec_, chain_->graph(), &bad, &result), "cuGraphExecUpdate");
#endif
    } else if (options_.update == "nodes") {
      update_nodes(n);
    }
  }

  void update_nodes(unsigned n) {
    CUcontext context = nullptr;
    check(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (in_child(i)) continue;
      Product its = product(i, n);
      std::array<void*, 5> values{};
      const CUDA_KERNEL_NODE_PARAMS parameters = its.parameters(kernels_["pattern_product"], values);
      check(cuGraphExecKernelNodeSetParams(exec_, products_[i], &parameters),
            "cuGraphExecKernelNodeSetParams");
    }
    for (std::size_t group = 0; group < children_.size(); ++group) {
      if (children_[group] == nullptr) continue;
      const Chain changed = child(group, n);
      check(cuGraphExecChildGraphNodeSetParams(exec_, children_[group], changed.graph()),
            "cuGraphExecChildGraphNodeSetParams");
      check(cuGraphDestroy(changed.graph()), "cuGraphDestroy");
    }
    const CUDA_MEMSET_NODE_PARAMS its_fill = fill(n);
    check(cuGraphExecMemsetNodeSetParams(exec_, fill_, &its_fill, context), "cuGraphExecMemsetNodeSetParams");
    const CUDA_MEMCPY3D its_copy = copy();
    check(cuGraphExecMemcpyNodeSetParams(exec_, copy_, &its_copy, context), "cuGraphExecMemcpyNodeSetParams");
  }

  void expect_launch(unsigned n) {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      expected_[i].product(number(i, n), expected_[(i + 1) % buffers_.size()]);
    last_filled_ = filled(n);
  }

  // Copies both counts again and again in the stream of the launches. A copy must never run between two nodes
  // of a launch, so both counts must be equal.
  void watch(CUcontext context, const std::atomic<bool>& ended) const {
    use(context);
    unsigned* seen = nullptr;
    check(cuMemHostAlloc(reinterpret_cast<void**>(&seen), 8, 0), "cuMemHostAlloc");
    while (!ended) {
      check(cuMemcpyDtoHAsync(seen, side_.counts, 8, stream_), "cuMemcpyDtoHAsync");
      wait(stream_);
      if (seen[0] != seen[1]) fail("work of another thread came between the nodes of a graph");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    check(cuMemFreeHost(seen), "cuMemFreeHost");
  }

  void verify(std::size_t i) const {
    std::vector<std::uint64_t> host(words_);
    check(cuMemcpyDtoH(host.data(), buffers_[i], words_ * 8), "cuMemcpyDtoH");
    for (std::uint64_t at = 0; at < words_; ++at)
      if (host[at] != expected_[i](at))
        fail("word " + std::to_string(at) + " of buffer " + std::to_string(i) + " is wrong");
  }

  const Options& options_;
  const Kernels kernels_;
  const std::uint64_t words_;
  CUstream stream_;
  std::vector<CUdeviceptr> buffers_;
  std::vector<Expected> expected_;
  Side side_;
  unsigned last_filled_ = 0;
  std::unique_ptr<Chain> chain_;
  std::vector<CUgraphNode> products_;  // by buffer; null if the product is in a child graph
  std::vector<CUgraphNode> children_;  // by group
  CUgraphNode fill_ = nullptr;
  CUgraphNode copy_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

void run(const Options& options) {
  if (options.threads > 1 && options.update != "none")
    fail("--threads and --update exclude each other, since launches of several threads have no order");
  CUcontext context = start();
  Work work(options);
  work.run(context);
  work.verify();
  work.free();
  std::printf("large_graph: %u launches of a graph over %u buffers, every word verified\n",
              options.launches * options.threads, options.count);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app(
      "Launches a graph over many buffers, together maybe larger than the GPU, and verifies them.");
  Options options;
  app.add_option("--count", options.count, "number of buffers").positive();
  app.add_option("--bytes", options.bytes, "size of a buffer");
  app.add_option("--launches", options.launches, "launches of each thread").positive();
  app.add_option("--threads", options.threads, "threads that launch the graph, each in its own stream")
      .positive();
  app.add_option("--update", options.update, "what changes between the launches")
      .one_of({"none", "nodes", "whole"});
  app.add_flag("--watch", options.watch, "another thread copies memory of the graph in the same stream");
  app.add_flag("--memory", options.memory, "the graph also allocates memory of its own");
  app.parse(argc, argv);
  return status_of([&] { run(options); });
}
