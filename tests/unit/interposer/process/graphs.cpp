// SPDX-License-Identifier: Apache-2.0
// Tests graphs of a process larger than the simulated GPU, with an arbiter: which graphs the library launches
// node by node, and that this makes no difference to programs.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "interposer/backlog/in_order.h"
#include "interposer/driver/call.h"
#include "interposer/gate/clock.h"
#include "interposer/hooks/graph_launch.h"
#include "interposer/hooks/graph_records.h"
#include "interposer/process/process.h"
#include "tests/programs/kernels_ptx.h"
#include "tests/programs/pattern.h"
#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using driver::Function;
using test::ScriptedArbiter;

namespace {

constexpr Bytes kSize = mebibytes(16);  // a single handle
constexpr std::uint64_t kCount = kSize.count / sizeof(std::uint64_t);
constexpr unsigned kBuffers = 4;  // the window holds two buffers

// Counts the interposer's calls to the real driver. A test may make some of these calls fail.
struct Calls {
  std::atomic<unsigned> whole{0};
  std::atomic<unsigned> kernels{0};
  std::atomic<unsigned> destroyed{0};
  std::atomic<unsigned> queries{0};           // number of queries of events
  unsigned refused = ~0u;                     // index of the kernel launch that the driver refuses; ~0u: none
  std::vector<CUlaunchAttribute> attributes;  // attributes of the last kernel launch
};
Calls calls;

void* real_whole = nullptr;
void* real_kernel = nullptr;
void* real_destroy = nullptr;
void* real_query = nullptr;

CUresult count_whole(CUgraphExec graph, CUstream stream) {
  ++calls.whole;
  return reinterpret_cast<CUresult (*)(CUgraphExec, CUstream)>(real_whole)(graph, stream);
}
CUresult count_kernel(const CUlaunchConfig* config, CUfunction kernel, void** values, void** extra) {
  if (calls.kernels++ == calls.refused) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  calls.attributes.assign(config->attrs, config->attrs + config->numAttrs);
  return reinterpret_cast<CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**)>(real_kernel)(
      config, kernel, values, extra);
}
CUresult count_destroyed(CUgraphExec graph) {
  ++calls.destroyed;
  return reinterpret_cast<CUresult (*)(CUgraphExec)>(real_destroy)(graph);
}

CUresult count_query(CUevent event) {
  ++calls.queries;
  return reinterpret_cast<CUresult (*)(CUevent)>(real_query)(event);
}

void watch_calls() {
  real_query = driver::replace(Function::cuEventQuery, reinterpret_cast<void*>(&count_query));
  real_whole = driver::replace(Function::cuGraphLaunch, reinterpret_cast<void*>(&count_whole));
  real_kernel = driver::replace(Function::cuLaunchKernelEx, reinterpret_cast<void*>(&count_kernel));
  real_destroy = driver::replace(Function::cuGraphExecDestroy, reinterpret_cast<void*>(&count_destroyed));
}

template <class Work>
void beside_the(ScriptedArbiter& arbiter, Work work) {
  auto result = std::async(std::launch::async, work);
  arbiter.serve_until([&] { return result.wait_for(0s) == std::future_status::ready; });
  result.get();
}

// A graph that fills each of the first `count` buffers with a different pattern.
struct Fills {
  Fills(const std::vector<CUdeviceptr>& its, CUfunction its_kernel, unsigned count)
      : buffers(its), kernel(its_kernel) {
    REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    CUgraphNode before = nullptr;
    for (unsigned i = 0; i < count; ++i) {
      with_parameters(i, i + 1, [&](const CUDA_KERNEL_NODE_PARAMS_v1& parameters) {
        CUgraphNode node = nullptr;
        REQUIRE(cuGraphAddKernelNode(&node, graph, &before, before == nullptr ? 0 : 1, &parameters) ==
                CUDA_SUCCESS);
        nodes.push_back(before = node);
      });
    }
  }
  ~Fills() {
    if (executable != nullptr) CHECK(cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
  }
  Fills(const Fills&) = delete;
  Fills& operator=(const Fills&) = delete;

  template <class Use>
  void with_parameters(unsigned buffer, std::uint64_t seed, Use use) const {
    CUdeviceptr data = buffers[buffer];
    std::uint64_t count = kCount;
    std::uint64_t first = 0;
    void* values[] = {&data, &count, &seed, &first};
    CUDA_KERNEL_NODE_PARAMS_v1 parameters = {};
    parameters.func = kernel;
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = values;
    use(parameters);
  }
  void instantiate(unsigned long long flags = 0) {
    REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, flags) == CUDA_SUCCESS);
  }
  void set_attribute(unsigned node, unsigned id, unsigned value) const {
    CUlaunchAttributeValue attribute = {};
    std::memcpy(&attribute, &value, sizeof value);
    REQUIRE(cuGraphKernelNodeSetAttribute(nodes[node], static_cast<CUlaunchAttributeID>(id), &attribute) ==
            CUDA_SUCCESS);
  }
  CUresult set_seed(CUgraphExec target, unsigned buffer, std::uint64_t seed) const {
    CUresult result = CUDA_ERROR_UNKNOWN;
    with_parameters(buffer, seed, [&](const CUDA_KERNEL_NODE_PARAMS_v1& parameters) {
      result = cuGraphExecKernelNodeSetParams(target, nodes[buffer], &parameters);
    });
    return result;
  }

  const std::vector<CUdeviceptr>& buffers;
  CUfunction kernel;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  std::vector<CUgraphNode> nodes;
};

class Graphs {
 public:
  void begin() {
    REQUIRE(cuDevicePrimaryCtxRetain(&context_, 0) == CUDA_SUCCESS);
    enter();
    CUmodule code = nullptr;
    REQUIRE(cuModuleLoadData(&code, programs::kKernelsPtx) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&fill_, code, "pattern_fill") == CUDA_SUCCESS);
    REQUIRE(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    for (unsigned i = 0; i < kBuffers; ++i) {
      buffers_.push_back(0);
      REQUIRE(cuMemAlloc_v2(&buffers_.back(), kSize.count) == CUDA_SUCCESS);
    }
    REQUIRE(cuMemAlloc_v2(&small_, 4096) == CUDA_SUCCESS);
    watch_calls();
  }
  void enter() const { REQUIRE(cuCtxSetCurrent(context_) == CUDA_SUCCESS); }
  // Prevents the timing of launches for a minute. Without learned costs, all operands may be needed on the
  // GPU, and the window cannot hold them.
  static void learn_nothing() {
    for (int i = 0; i < 10; ++i) process::session_of(0)->residence()->did_not_end({}, {}, gate::now());
  }
  static void learn() { process::session_of(0)->residence()->ran({}, {}); }
  CUstream stream() const { return stream_; }
  CUdeviceptr small() const { return small_; }
  Fills fills(unsigned count = kBuffers) const { return Fills(buffers_, fill_, count); }

  // Launches the graph, and checks the buffers. `seeds`: the seed of each buffer's pattern after the launch.
  void launch(const Fills& graph, bool whole, const std::vector<std::uint64_t>& seeds = {1, 2, 3, 4}) const {
    launch_and_check(graph, seeds);
    CHECK(calls.whole == (whole ? 1 : 0));
  }
  void launch_and_check(const Fills& graph, const std::vector<std::uint64_t>& seeds) const {
    for (const CUdeviceptr each : buffers_)
      REQUIRE(cuMemsetD8Async(each, 0, kSize.count, stream_) == CUDA_SUCCESS);
    calls.whole = calls.kernels = 0;
    CHECK(cuGraphLaunch(graph.executable, stream_) == CUDA_SUCCESS);
    CHECK(cuStreamSynchronize(stream_) == CUDA_SUCCESS);
    for (unsigned i = 0; i < kBuffers; ++i) CHECK(filled_with(i) == seeds[i]);
  }
  // The seed of the buffer's pattern; 0 if the buffer has the pattern of no seed from 1 to 49.
  std::uint64_t filled_with(unsigned buffer) const {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    constexpr std::size_t kWord = sizeof first;
    REQUIRE(cuMemcpyDtoH_v2(&first, buffers_[buffer], kWord) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoH_v2(&last, buffers_[buffer] + kSize.count - kWord, kWord) == CUDA_SUCCESS);
    for (std::uint64_t seed = 1; seed < 50; ++seed)
      if (first == pattern::fill(seed, 0) && last == pattern::fill(seed, kCount - 1)) return seed;
    return 0;
  }

 private:
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUfunction fill_ = nullptr;
  std::vector<CUdeviceptr> buffers_;
  CUdeviceptr small_ = 0;
};

void follows_updates(const Graphs& t) {
  Fills graph = t.fills();
  graph.instantiate();
  t.launch(graph, false);
  CHECK(calls.kernels == kBuffers);
  CHECK(graph.set_seed(graph.executable, 2, 30) == CUDA_SUCCESS);
  t.launch(graph, false, {1, 2, 30, 4});
  // An update of the whole executable graph undoes changes of its single nodes.
  CUgraphExecUpdateResult result{};
  CHECK(cuGraphExecUpdate(graph.executable, graph.graph, nullptr, &result) == CUDA_SUCCESS);
  t.launch(graph, false);
  // A call that the driver refuses changes nothing.
  CHECK(graph.set_seed(graph.executable, 1, 20) == CUDA_SUCCESS);
  Fills other = t.fills();
  CHECK(other.set_seed(graph.executable, 1, 40) == CUDA_ERROR_INVALID_VALUE);
  t.launch(graph, false, {1, 20, 3, 4});
}

void updates_that_cannot_be_followed(const Graphs& t) {
  Fills graph = t.fills();
  graph.instantiate();
  Fills other = t.fills();
  // After the update, the driver still identifies nodes by the handles of the first graph.
  CUgraphExecUpdateResult result{};
  CHECK(cuGraphExecUpdate(graph.executable, other.graph, nullptr, &result) == CUDA_SUCCESS);
  t.launch(graph, false);
  CHECK(graph.set_seed(graph.executable, 3, 40) == CUDA_SUCCESS);
  t.launch(graph, true, {1, 2, 3, 40});
  t.launch(graph, true, {1, 2, 3, 40});

  Fills disabled = t.fills();
  disabled.instantiate();
  CHECK(cuGraphNodeSetEnabled(disabled.executable, disabled.nodes[3], 0) == CUDA_SUCCESS);
  t.launch(disabled, true, {1, 2, 3, 0});
  CHECK(cuGraphNodeSetEnabled(disabled.executable, disabled.nodes[3], 1) == CUDA_SUCCESS);
  t.launch(disabled, true);
#if CUDA_VERSION >= 12020
  Fills changed = t.fills();
  changed.instantiate();
  changed.with_parameters(2, 31, [&](const CUDA_KERNEL_NODE_PARAMS_v1& parameters) {
    CUgraphNodeParams any = {};
    any.type = CU_GRAPH_NODE_TYPE_KERNEL;
    std::memcpy(&any.kernel, &parameters, sizeof parameters);
    CHECK(cuGraphExecNodeSetParams(changed.executable, changed.nodes[2], &any) == CUDA_SUCCESS);
  });
  t.launch(changed, true, {1, 2, 31, 4});
#endif
}

void children_are_replaced(const Graphs& t) {
  Fills child = t.fills();
  Fills other = t.fills();
  CUgraph parent = nullptr;
  CUgraphNode node = nullptr;
  REQUIRE(cuGraphCreate(&parent, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphAddChildGraphNode(&node, parent, nullptr, 0, child.graph) == CUDA_SUCCESS);
  Fills launched = t.fills();  // only the executable graph is used
  REQUIRE(cuGraphInstantiateWithFlags(&launched.executable, parent, 0) == CUDA_SUCCESS);
  t.launch(launched, false);
  // The nodes of the child graph have other handles than the nodes of the original graph.
  CUgraph inner = nullptr;
  std::size_t count = kBuffers;
  std::vector<CUgraphNode> nodes(count);
  REQUIRE(cuGraphChildGraphNodeGetGraph(node, &inner) == CUDA_SUCCESS);
  REQUIRE(cuGraphGetNodes(inner, nodes.data(), &count) == CUDA_SUCCESS);
  child.with_parameters(0, 10, [&](const CUDA_KERNEL_NODE_PARAMS_v1& parameters) {
    CHECK(cuGraphExecKernelNodeSetParams(launched.executable, nodes[0], &parameters) == CUDA_SUCCESS);
  });
  t.launch(launched, false, {10, 2, 3, 4});
  CHECK(cuGraphExecChildGraphNodeSetParams(launched.executable, node, other.graph) == CUDA_SUCCESS);
  t.launch(launched, false);
  // The library does not know which node this call changes, so it launches the graph as a whole.
  child.with_parameters(0, 10, [&](const CUDA_KERNEL_NODE_PARAMS_v1& parameters) {
    CHECK(cuGraphExecKernelNodeSetParams(launched.executable, nodes[0], &parameters) == CUDA_SUCCESS);
  });
  t.launch(launched, true, {10, 2, 3, 4});
  CHECK(cuGraphDestroy(parent) == CUDA_SUCCESS);
}

void graphs_that_need_to_be_whole(const Graphs& t) {
  const auto runs_whole = [&](const std::function<void(Fills&)>& change) {
    Fills graph = t.fills();
    change(graph);
    graph.instantiate();
    t.launch(graph, true);
  };
  runs_whole([](const Fills& graph) { graph.set_attribute(1, 13, 1); });  // the attribute allows updates of
                                                                          // the node from the device
  runs_whole([](const Fills& graph) { graph.set_attribute(3, 15, 1); });  // an unknown attribute
  std::vector<char> pageable(16);
  runs_whole([&](const Fills& graph) {
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = t.small();
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = pageable.data();
    copy.WidthInBytes = pageable.size();
    copy.Height = copy.Depth = 1;
    CUgraphNode node = nullptr;
    CHECK(cuGraphAddMemcpyNode(&node, graph.graph, nullptr, 0, &copy, nullptr) == CUDA_SUCCESS);
  });

  CUevent event = nullptr;
  CUgraphNode node = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CUDA_HOST_NODE_PARAMS host = {};
  host.fn = [](void* /*unused*/) {};
  runs_whole([&](const Fills& graph) {
    CHECK(cuGraphAddHostNode(&node, graph.graph, nullptr, 0, &host) == CUDA_SUCCESS);
  });
  runs_whole([&](const Fills& graph) {
    CHECK(cuGraphAddEventRecordNode(&node, graph.graph, nullptr, 0, event) == CUDA_SUCCESS);
  });
  runs_whole([&](const Fills& graph) {
    CHECK(cuGraphAddEventWaitNode(&node, graph.graph, nullptr, 0, event) == CUDA_SUCCESS);
  });

  Fills captured = t.fills();
  captured.instantiate();
  CUgraph graph = nullptr;
  calls.whole = calls.kernels = 0;
  CHECK(cuStreamBeginCapture_v2(t.stream(), CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(cuGraphLaunch(captured.executable, t.stream()) == CUDA_SUCCESS);
  CHECK(cuStreamEndCapture(t.stream(), &graph) == CUDA_SUCCESS);
  CHECK(calls.whole == 1);
  CHECK(calls.kernels == 0);
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
}

void attributes_follow(const Graphs& t) {
  Fills graph = t.fills();
  graph.set_attribute(3, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1);
  graph.set_attribute(3, CU_LAUNCH_ATTRIBUTE_PRIORITY, 2);
  graph.instantiate();
  t.launch(graph, false);
  // No attribute states a priority, so the launch has the priority of the stream.
  REQUIRE(calls.attributes.size() == 1);
  CHECK(calls.attributes.front().id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  CHECK(calls.attributes.front().value.cooperative == 1);
  CHECK(graph.set_seed(graph.executable, 3, 40) == CUDA_SUCCESS);
  t.launch(graph, false, {1, 2, 3, 40});
  CHECK(calls.attributes.size() == 1);

  Fills with_priorities = t.fills();
  with_priorities.set_attribute(3, CU_LAUNCH_ATTRIBUTE_PRIORITY, 2);
  with_priorities.instantiate(8);  // CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
  t.launch(with_priorities, false);
  REQUIRE(calls.attributes.size() == 1);
  CHECK(calls.attributes.front().value.priority == 2);
}

void a_single_kernel(const Graphs& t) {
  Fills graph = t.fills(1);
  graph.instantiate();
  t.launch(graph, false, {1, 0, 0, 0});
  CHECK(calls.kernels == 1);
}

// One thread updates a graph while two others launch it in streams of their own.
void several_threads(const Graphs& t) {
  Fills graph = t.fills();
  graph.instantiate();
  std::atomic<unsigned> failures{0};
  const auto expect = [&](CUresult result) { failures += result != CUDA_SUCCESS; };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      t.enter();
      CUstream own = nullptr;
      expect(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
      for (unsigned n = 0; n < 4; ++n) expect(cuGraphLaunch(graph.executable, own));
      expect(cuStreamSynchronize(own));
      expect(cuStreamDestroy_v2(own));
    });
  threads.emplace_back([&] {
    t.enter();
    for (unsigned n = 0; n < 40; ++n) {
      expect(graph.set_seed(graph.executable, n % kBuffers, 10 + n));
      std::this_thread::sleep_for(1ms);
    }
  });
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  for (unsigned i = 0; i < kBuffers; ++i) CHECK(t.filled_with(i) != 0);
  t.launch_and_check(graph, {46, 47, 48, 49});
}

void refused_nodes(const Graphs& t) {
  Fills graph = t.fills();
  graph.instantiate();
  calls.refused = 0;
  t.launch(graph, true);  // no kernel has run yet, so the graph is launched as a whole instead
  calls.refused = 2;
  calls.whole = calls.kernels = 0;
  CHECK(cuGraphLaunch(graph.executable, t.stream()) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  CHECK(calls.whole == 0);
  CHECK(calls.kernels == 3);
  calls.refused = ~0u;
  t.launch(graph, false);
}

// Objects that the graph keeps alive are destroyed as with plain CUDA: when the nodes have ended, without
// another call of the program.
void destroyed_while_it_runs(const Graphs& t) {
  static std::atomic<bool> blocked;
  Fills graph = t.fills(1);
  graph.instantiate();
  t.launch(graph, false, {1, 0, 0, 0});
  blocked = true;
  const auto block = [](void* /*unused*/) {
    while (blocked) std::this_thread::sleep_for(1ms);
  };
  CHECK(cuLaunchHostFunc(t.stream(), block, nullptr) == CUDA_SUCCESS);
  calls.destroyed = calls.whole = 0;
  CHECK(cuGraphLaunch(graph.executable, t.stream()) == CUDA_SUCCESS);
  CHECK(calls.whole == 0);
  auto destroyed = std::async(std::launch::async, [&] {
    t.enter();
    return cuGraphExecDestroy(graph.executable);
  });
  destroyed.wait_for(50ms);
  CHECK(calls.destroyed == 0);
  blocked = false;
  CHECK(cuStreamSynchronize(t.stream()) == CUDA_SUCCESS);
  CHECK(destroyed.get() == CUDA_SUCCESS);
  CHECK(calls.destroyed == 1);
  graph.executable = nullptr;
}

void its_context_is_destroyed(const Graphs& t) {
  Fills graph = t.fills();
  graph.instantiate();
  CUcontext other = nullptr;
  CUstream stream = nullptr;
  REQUIRE(cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuGraphLaunch(graph.executable, stream) == CUDA_SUCCESS);
  CHECK(cuCtxDestroy_v2(other) == CUDA_SUCCESS);
  t.enter();
  calls.queries = 0;
  CHECK(cuGraphExecDestroy(graph.executable) == CUDA_SUCCESS);
  CHECK(calls.queries == 0);  // the context's events no longer exist
  graph.executable = nullptr;
}

// In the child of a fork, no call waits for a thread of the parent.
void the_process_forks(const Graphs& t) {
  Fills graph = t.fills();
  graph.instantiate();
  std::promise<void> held;
  std::promise<void> forked;
  std::thread other([&] {
    const auto stream = reinterpret_cast<backlog::StreamWord>(t.stream());
    const backlog::InOrder sequence(stream, false, backlog::InOrder::Extent::sequence);
    hooks::graph_records().change(reinterpret_cast<std::uintptr_t>(graph.executable),
                                  reinterpret_cast<std::uintptr_t>(graph.nodes[0]), [&](hooks::GraphNode&) {
                                    held.set_value();
                                    forked.get_future().wait();
                                  });
  });
  held.get_future().wait();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const CUresult results[] = {cuMemsetD8Async(t.small(), 1, 16, t.stream()),
                                cuGraphLaunch(graph.executable, t.stream()),
                                cuGraphExecDestroy(graph.executable)};
    for (const CUresult result : results)
      if (result != CUDA_ERROR_NOT_INITIALIZED) _exit(1);
    _exit(0);
  }
  forked.set_value();
  other.join();
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace

TEST_CASE("graphs of a process larger than the GPU are launched node by node, or whole") {
  const std::string socket = "/tmp/sharedgpu-graphs-test-" + std::to_string(getpid());
  setenv("SHAREDGPU_SOCKET", socket.c_str(), 1);
  setenv("SIMGPU_MEMORY", "192MiB", 1);
  ScriptedArbiter arbiter(socket);
  arbiter.capacity = mebibytes(128);
  arbiter.allowed = arbiter.device_most = {2 * kSize.count};
  arbiter.away_most = mebibytes(128);
  REQUIRE(arbiter.begin([] { return cuInit(0); }) == CUDA_SUCCESS);
  // Before the process is oversized, the library records nothing about graphs.
  hooks::graph_records().instantiated(1, {});
  CHECK_FALSE(hooks::graph_records().launches(1)->known);
  Graphs t;
  beside_the(arbiter, [&] { t.begin(); });
  hooks::graph_records().instantiated(1, {});
  CHECK(hooks::graph_records().launches(1)->known);

  for (const auto& story : {follows_updates, updates_that_cannot_be_followed, children_are_replaced,
                            graphs_that_need_to_be_whole, attributes_follow, a_single_kernel, refused_nodes,
                            destroyed_while_it_runs, its_context_is_destroyed, the_process_forks})
    beside_the(arbiter, [&] {
      t.enter();
      Graphs::learn_nothing();
      story(t);
    });

  beside_the(arbiter, [&] {
    t.enter();
    Graphs::learn();
    several_threads(t);
  });

  // After this instantiation, kernels of any graph may launch graphs.
  beside_the(arbiter, [&] {
    t.enter();
    Fills device = t.fills();
    device.instantiate(4);  // CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH
    Fills graph = t.fills();
    graph.instantiate();
    t.launch(graph, true);
  });
}
