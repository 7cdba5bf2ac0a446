// SPDX-License-Identifier: Apache-2.0
// Uses functions that few programs use: a conditional graph node, graph memory, launches from the device, a
// cooperative launch, a green context, copies of boxes within and between GPUs, copies in batches, and an
// assertion that fails on the device. The assertion is tested once, before the rounds. All other results are
// verified in every round. Other memory is held during all rounds, and every eighth block of it is verified
// at the end.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>
#include <vector>

#include "tests/gpu/cxx/options.h"
#include "tests/programs/pattern.h"

namespace {

namespace pattern = sharedgpu::pattern;
using Word = unsigned long long;

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess)
    fail(std::string(call) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}
void check(CUresult result, const char* call) {
  const char* name = "?";
  if (result == CUDA_SUCCESS) return;
  cuGetErrorName(result, &name);
  fail(std::string(call) + ": " + name);
}
#define CHECK(call) check(call, #call)

constexpr unsigned kThreads = 256;
constexpr Word kWords = 1 << 20;

__device__ Word first_word() { return blockIdx.x * static_cast<Word>(blockDim.x) + threadIdx.x; }
__device__ Word stride() { return static_cast<Word>(gridDim.x) * blockDim.x; }

__global__ void fill(Word* data, Word count, Word seed) {
  for (Word i = first_word(); i < count; i += stride()) data[i] = pattern::fill(seed, i);
}

__global__ void step(Word* data, Word count, Word iteration) {
  for (Word i = first_word(); i < count; i += stride()) data[i] = pattern::step(data[i], iteration);
}

std::vector<Word> fetch(const Word* data, Word count) {
  std::vector<Word> words(count);
  CHECK(cudaMemcpy(words.data(), data, count * sizeof(Word), cudaMemcpyDefault));
  return words;
}

// Verifies that the words have the values of fill(seed), followed by `steps` steps.
void verify(const Word* data, Word count, Word seed, Word steps, const char* what, Results& results) {
  const std::vector<Word> words = fetch(data, count);
  Word sum = 0;
  for (Word i = 0; i < count; ++i) {
    Word expected = pattern::fill(seed, i);
    for (Word s = 0; s < steps; ++s) expected = pattern::step(expected, s);
    if (words[i] != expected) fail(std::string(what) + ": word " + std::to_string(i) + " is wrong");
    sum += pattern::weigh(words[i], i);
  }
  results.add(what, sum);
}

class Buffer {
 public:
  explicit Buffer(Word words = kWords) { CHECK(cudaMalloc(&data_, words * sizeof(Word))); }
  ~Buffer() { cudaFree(data_); }
  operator Word*() const { return data_; }

 private:
  Word* data_ = nullptr;
};

// ---- a graph whose loop is a conditional node, with memory that it allocates and frees itself ----

__global__ void next_round(cudaGraphConditionalHandle more, Word* rounds, Word most) {
  cudaGraphSetConditional(more, ++*rounds < most);
}
__global__ void step_by_count(Word* data, Word count, const Word* rounds) {
  for (Word i = first_word(); i < count; i += stride()) data[i] = pattern::step(data[i], *rounds);
}

void use_conditional_node(Results& results) {
  constexpr Word kRounds = 5;
  Buffer data;
  Buffer rounds(1);
  CHECK(cudaMemset(rounds, 0, sizeof(Word)));
  fill<<<256, kThreads>>>(data, kWords, 21);
  cudaGraph_t graph = nullptr;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle more;
  CHECK(cudaGraphConditionalHandleCreate(&more, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams loop = {};
  loop.type = cudaGraphNodeTypeConditional;
  loop.conditional.handle = more;
  loop.conditional.type = cudaGraphCondTypeWhile;
  loop.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
#if CUDART_VERSION >= 13000
  CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &loop));
#else
  CHECK(cudaGraphAddNode(&node, graph, nullptr, 0, &loop));
#endif
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCaptureToGraph(stream, loop.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                      cudaStreamCaptureModeThreadLocal));
  step_by_count<<<256, kThreads, 0, stream>>>(data, kWords, rounds);
  next_round<<<1, 1, 0, stream>>>(more, rounds, kRounds);
  CHECK(cudaStreamEndCapture(stream, nullptr));
  cudaGraphExec_t made = nullptr;
  CHECK(cudaGraphInstantiate(&made, graph, 0));
  CHECK(cudaGraphLaunch(made, stream));
  CHECK(cudaStreamSynchronize(stream));
  verify(data, kWords, 21, kRounds, "conditional", results);
  CHECK(cudaGraphExecDestroy(made));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
}

void use_graph_memory(Results& results) {
  Buffer out;
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  Word* inner = nullptr;
  CHECK(cudaMallocAsync(&inner, kWords * sizeof(Word), stream));
  fill<<<256, kThreads, 0, stream>>>(inner, kWords, 22);
  step<<<256, kThreads, 0, stream>>>(inner, kWords, 0);
  CHECK(cudaMemcpyAsync(out, inner, kWords * sizeof(Word), cudaMemcpyDeviceToDevice, stream));
  CHECK(cudaFreeAsync(inner, stream));
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t made = nullptr;
  CHECK(cudaGraphInstantiate(&made, graph, 0));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(made, stream));
  CHECK(cudaStreamSynchronize(stream));
  verify(out, kWords, 22, 1, "graph memory", results);
  CHECK(cudaGraphExecDestroy(made));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
}

// ---- launches from the device ----

__global__ void parent(Word* data, Word count, Word steps) {
  for (Word s = 0; s < steps; ++s) step<<<256, kThreads>>>(data, count, s);
}

void use_device_launch(Results& results) {
  Buffer data;
  fill<<<256, kThreads>>>(data, kWords, 23);
  parent<<<1, 1>>>(data, kWords, 4);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  verify(data, kWords, 23, 4, "device launch", results);
}

// ---- a cooperative launch: each step of the whole grid waits for the previous step ----

__global__ void all_steps(Word* data, Word* mirror, Word count, Word steps) {
  auto grid = cooperative_groups::this_grid();
  for (Word s = 0; s < steps; ++s) {
    for (Word i = first_word(); i < count; i += stride()) mirror[count - 1 - i] = pattern::step(data[i], s);
    grid.sync();
    for (Word i = first_word(); i < count; i += stride()) data[i] = mirror[count - 1 - i];
    grid.sync();
  }
}

void use_cooperative_launch(Results& results) {
  Buffer data;
  Buffer mirror;
  fill<<<256, kThreads>>>(data, kWords, 24);
  Word* first = data;
  Word* second = mirror;
  Word count = kWords;
  Word steps = 3;
  void* arguments[] = {&first, &second, &count, &steps};
  CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(all_steps), dim3(64), dim3(kThreads), arguments, 0, nullptr));
  CHECK(cudaDeviceSynchronize());
  verify(data, kWords, 24, steps, "cooperative", results);
}

// ---- a green context: a part of the SMs ----

void use_green_context(Results& results) {
#if CUDA_VERSION >= 12050
  CUdevice device = 0;
  CHECK(cuDeviceGet(&device, 0));
  CUdevResource all = {};
  CUdevResource part = {};
  CUdevResource rest = {};
  unsigned parts = 1;
  CHECK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(cuDevSmResourceSplitByCount(&part, &parts, &all, &rest, 0, 16));
  CUdevResourceDesc description = nullptr;
  CHECK(cuDevResourceGenerateDesc(&description, &part, 1));
  CUgreenCtx green = nullptr;
  CHECK(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
  CUstream stream = nullptr;
  CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  Buffer data;
  fill<<<256, kThreads, 0, stream>>>(data, kWords, 25);
  for (Word s = 0; s < 4; ++s) step<<<256, kThreads, 0, stream>>>(data, kWords, s);
  CHECK(cudaGetLastError());
  CHECK(cuStreamSynchronize(stream));
  verify(data, kWords, 25, 4, "green context", results);
  CHECK(cuStreamDestroy(stream));
  CHECK(cuGreenCtxDestroy(green));
#else
  static_cast<void>(results);
#endif
}

// ---- copies of boxes, row by row and layer by layer, within a GPU and between two GPUs ----

constexpr std::size_t kWide = 200 * sizeof(Word);
constexpr std::size_t kHigh = 90;
constexpr std::size_t kDeep = 30;

cudaPitchedPtr make_box() {
  cudaPitchedPtr box = {};
  CHECK(cudaMalloc3D(&box, make_cudaExtent(kWide, kHigh, kDeep)));
  return box;
}

void inspect_box(const cudaPitchedPtr& box, const char* what, Results& results) {
  std::vector<Word> words(kWide / sizeof(Word) * kHigh * kDeep);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = box;
  copy.dstPtr = make_cudaPitchedPtr(words.data(), kWide, kWide, kHigh);
  copy.extent = make_cudaExtent(kWide, kHigh, kDeep);
  copy.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3D(&copy));
  Word sum = 0;
  for (Word i = 0; i < words.size(); ++i) {
    if (words[i] != pattern::fill(26, i)) fail(std::string(what) + ": word " + std::to_string(i) + " is wrong");
    sum += pattern::weigh(words[i], i);
  }
  results.add(what, sum);
}

void use_boxes(Results& results) {
  std::vector<Word> words(kWide / sizeof(Word) * kHigh * kDeep);
  for (Word i = 0; i < words.size(); ++i) words[i] = pattern::fill(26, i);
  cudaPitchedPtr first = make_box();
  cudaPitchedPtr second = make_box();
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(words.data(), kWide, kWide, kHigh);
  copy.dstPtr = first;
  copy.extent = make_cudaExtent(kWide, kHigh, kDeep);
  copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3DAsync(&copy, nullptr));
  copy.srcPtr = first;
  copy.dstPtr = second;
  copy.kind = cudaMemcpyDeviceToDevice;
  CHECK(cudaMemcpy3D(&copy));
  inspect_box(second, "box", results);

  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  if (devices > 1) {
    CHECK(cudaSetDevice(1));
    cudaPitchedPtr far = make_box();
    cudaMemcpy3DPeerParms peer = {};
    peer.srcPtr = first;
    peer.srcDevice = 0;
    peer.dstPtr = far;
    peer.dstDevice = 1;
    peer.extent = make_cudaExtent(kWide, kHigh, kDeep);
    CHECK(cudaMemcpy3DPeer(&peer));
    CHECK(cudaDeviceSynchronize());
    inspect_box(far, "box on the other GPU", results);
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemset3D(second, 0, make_cudaExtent(kWide, kHigh, kDeep)));
    peer.srcPtr = far;
    peer.srcDevice = 1;
    peer.dstPtr = second;
    peer.dstDevice = 0;
    CHECK(cudaMemcpy3DPeerAsync(&peer, nullptr));
    CHECK(cudaDeviceSynchronize());
    inspect_box(second, "box there and back", results);
    CHECK(cudaFree(far.ptr));
  }
  CHECK(cudaFree(first.ptr));
  CHECK(cudaFree(second.ptr));
}

// ---- copies in a batch ----

void use_batch(Results& results) {
#if CUDA_VERSION >= 13000
  constexpr std::size_t kPieces = 64;
  constexpr Word kPiece = kWords / kPieces;
  Buffer from;
  Buffer to;
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  fill<<<256, kThreads, 0, stream>>>(from, kWords, 27);
  std::vector<CUdeviceptr> sources;
  std::vector<CUdeviceptr> targets;
  std::vector<std::size_t> sizes(kPieces, kPiece * sizeof(Word));
  for (std::size_t i = 0; i < kPieces; ++i) {
    const std::size_t place = (i * 7 + 3) % kPieces * kPiece;
    sources.push_back(reinterpret_cast<CUdeviceptr>(from + place));
    targets.push_back(reinterpret_cast<CUdeviceptr>(to + place));
  }
  CUmemcpyAttributes how = {};
  how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::size_t first = 0;
  CHECK(cuMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(), kPieces, &how, &first, 1, stream));
  CHECK(cudaStreamSynchronize(stream));
  verify(to, kWords, 27, 0, "batch", results);
  CHECK(cudaStreamDestroy(stream));
#else
  static_cast<void>(results);
#endif
}

// ---- an assertion that fails ends the context, so it is tested in a separate process ----

__global__ void assert_small(const Word* data) { assert(data[threadIdx.x] < 8); }

// Returns 0 if the assertion fails as it should, else the number of the step that went wrong.
int fail_an_assertion() {
  Word* data = nullptr;
  if (cudaMalloc(&data, kThreads * sizeof(Word)) != cudaSuccess) return 1;
  fill<<<1, kThreads>>>(data, kThreads, 28);
  if (cudaDeviceSynchronize() != cudaSuccess) return 2;
  assert_small<<<1, kThreads>>>(data);
  if (cudaDeviceSynchronize() != cudaErrorAssert) return 3;
  if (cudaFree(data) != cudaErrorAssert) return 4;
  return cudaMalloc(&data, 8) == cudaErrorAssert ? 0 : 5;
}

void use_assertion(const char* self, Results& results) {
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(6);  // the driver prints a line for each thread
    execl(self, self, "--assertion", "1", static_cast<char*>(nullptr));
    _exit(7);
  }
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child) fail("no child");
  if (status != 0) fail("the assertion's process ended with status " + std::to_string(status));
  results.add("assertion", static_cast<Word>(status));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--assertion") == 0) return fail_an_assertion();
  const Options options = read_options(argc, argv);
  constexpr std::size_t kBlock = 64ul << 20;
  std::vector<Word*> held(options.mib * (1ul << 20) / kBlock);
  Results once;
  use_assertion("/proc/self/exe", once);
  for (std::size_t i = 0; i < held.size(); ++i) {
    CHECK(cudaMalloc(&held[i], kBlock));
    fill<<<256, kThreads>>>(held[i], kBlock / sizeof(Word), i);
  }
  CHECK(cudaDeviceSynchronize());
  const int status = run_rounds(options, [&](Results& results) {
    use_conditional_node(results);
    use_graph_memory(results);
    use_device_launch(results);
    use_cooperative_launch(results);
    use_green_context(results);
    use_boxes(results);
    use_batch(results);
  });
  Results blocks;
  for (std::size_t i = 0; i < held.size(); i += 8)
    verify(held[i], kBlock / sizeof(Word), i, 0, ("block " + std::to_string(i)).c_str(), blocks);
  blocks.print();
  once.print();
  return status;
}
