// SPDX-License-Identifier: Apache-2.0
// A program of the CUDA runtime: blocks on several streams, a graph, stream-ordered and pitched memory,
// arrays and textures, managed memory, pinned and mapped host memory, device variables, host functions,
// threads. Verifies all results in every round. Built with the static and with the shared runtime.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
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
#define CHECK(call) check(call, #call)

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocks = 1024;
constexpr unsigned kSteps = 6;

// ---- kernels: one thread per word, in a grid-stride loop ----

__device__ Word first_word() { return blockIdx.x * static_cast<Word>(blockDim.x) + threadIdx.x; }
__device__ Word stride() { return static_cast<Word>(gridDim.x) * blockDim.x; }

__global__ void fill(Word* data, Word count, Word seed) {
  for (Word i = first_word(); i < count; i += stride()) data[i] = pattern::fill(seed, i);
}

__global__ void step(Word* data, Word count, Word iteration) {
  for (Word i = first_word(); i < count; i += stride()) data[i] = pattern::step(data[i], iteration);
}

// Counts the wrong words, and computes the checksum of all words.
__global__ void inspect(const Word* data, Word count, Word seed, Word factor, Word sum, Word* found) {
  Word wrong = 0;
  Word total = 0;
  for (Word i = first_word(); i < count; i += stride()) {
    wrong += data[i] != pattern::fill(seed, i) * factor + sum;
    total += pattern::weigh(data[i], i);
  }
  atomicAdd(&found[0], wrong);
  atomicAdd(&found[1], total);
}

constexpr int kSide = 512;

__global__ void sample(cudaTextureObject_t texture, float* out) {
  for (Word i = first_word(); i < kSide * kSide; i += stride())
    out[i] =
        tex2D<float>(texture, static_cast<float>(i % kSide) + 0.5f, static_cast<float>(i / kSide) + 0.5f);
}

__global__ void paint(cudaSurfaceObject_t surface) {
  for (Word i = first_word(); i < kSide * kSide; i += stride())
    surf2Dwrite(static_cast<float>(i) * 2, surface, static_cast<int>(i % kSide * sizeof(float)),
                static_cast<int>(i / kSide));
}

__device__ Word device_words[1024];
__constant__ Word constant_words[16];

__global__ void use_variables() {
  for (Word i = first_word(); i < 1024; i += stride()) device_words[i] += constant_words[i % 16];
}

__global__ void add_rows(unsigned char* data, std::size_t pitch, int width, int height) {
  for (Word i = first_word(); i < static_cast<Word>(width) * height; i += stride())
    data[i / width * pitch + i % width] += static_cast<unsigned char>(i);
}

// ---- a buffer of words ----

struct Expected {
  pattern::History history;
  Expected() {
    for (unsigned i = 0; i < kSteps; ++i) history.add(i);
  }
};

class Inspector {
 public:
  Inspector() { CHECK(cudaMalloc(&found_, 2 * sizeof(Word))); }
  ~Inspector() { cudaFree(found_); }
  // Returns the checksum of a buffer after all steps; fails on a wrong word.
  Word operator()(const Word* data, Word count, Word seed, cudaStream_t stream) {
    static const Expected expected;
    Word found[2] = {};
    CHECK(cudaMemsetAsync(found_, 0, sizeof found, stream));
    inspect<<<kBlocks, kThreads, 0, stream>>>(data, count, seed, expected.history.factor,
                                              expected.history.sum, found_);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(found, found_, sizeof found, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (found[0] != 0) fail(std::to_string(found[0]) + " wrong words of " + std::to_string(count));
    return found[1];
  }

 private:
  Word* found_ = nullptr;
};

void fill_and_step(Word* data, Word count, Word seed, cudaStream_t stream) {
  fill<<<kBlocks, kThreads, 0, stream>>>(data, count, seed);
  for (unsigned i = 0; i < kSteps; ++i) step<<<kBlocks, kThreads, 0, stream>>>(data, count, i);
  CHECK(cudaGetLastError());
}

// ---- memory held during all rounds ----

constexpr int kStreams = 4;

struct Block {
  Word* data = nullptr;
  Word count = 0;
};

struct Held {
  std::vector<Block> blocks;
  cudaStream_t streams[kStreams] = {};
  cudaEvent_t events[kStreams] = {};
  Block captured;
  cudaGraphExec_t graph = nullptr;

  explicit Held(std::size_t bytes) {
    for (int i = 0; i < kStreams; ++i) {
      CHECK(cudaStreamCreateWithFlags(&streams[i], i % 2 == 0 ? cudaStreamNonBlocking : cudaStreamDefault));
      CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
    }
    captured = allocate(std::min<std::size_t>(bytes / 8, std::size_t{64} << 20));
    // Blocks of many sizes, small and large.
    for (std::size_t left = bytes - captured.count * sizeof(Word), size = left / 3; left >= 4096;
         left -= size) {
      size = std::min(left, std::max<std::size_t>(size * 3 / 4, std::size_t{1} << 20)) / 4096 * 4096;
      blocks.push_back(allocate(size));
    }
    cudaGraph_t made = nullptr;
    CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
    fill_and_step(captured.data, captured.count, 99, streams[0]);
    CHECK(cudaStreamEndCapture(streams[0], &made));
    CHECK(cudaGraphInstantiateWithFlags(&graph, made, 0));
    CHECK(cudaGraphDestroy(made));
  }

  static Block allocate(std::size_t bytes) {
    Block block;
    CHECK(cudaMalloc(&block.data, bytes));
    block.count = bytes / sizeof(Word);
    return block;
  }
};

// ---- the parts of a round ----

void use_blocks(Held& held, Inspector& inspector, Results& results) {
  for (std::size_t i = 0; i < held.blocks.size(); ++i) {
    // One stream fills the block, and the next stream changes it after an event.
    cudaStream_t first = held.streams[i % kStreams];
    cudaStream_t second = held.streams[(i + 1) % kStreams];
    const Block& block = held.blocks[i];
    fill<<<kBlocks, kThreads, 0, first>>>(block.data, block.count, i);
    CHECK(cudaEventRecord(held.events[i % kStreams], first));
    CHECK(cudaStreamWaitEvent(second, held.events[i % kStreams], 0));
    for (unsigned j = 0; j < kSteps; ++j) step<<<kBlocks, kThreads, 0, second>>>(block.data, block.count, j);
    CHECK(cudaGetLastError());
  }
  CHECK(cudaDeviceSynchronize());
  Word sum = 0;
  for (std::size_t i = 0; i < held.blocks.size(); ++i)
    sum = sum * 31 + inspector(held.blocks[i].data, held.blocks[i].count, i, held.streams[i % kStreams]);
  results.add("blocks", sum);
  results.add("number-of-blocks", held.blocks.size());
}

void use_graph(Held& held, Inspector& inspector, Results& results) {
  for (int i = 0; i < 10; ++i) CHECK(cudaGraphLaunch(held.graph, held.streams[1]));
  results.add("graph", inspector(held.captured.data, held.captured.count, 99, held.streams[1]));
}

void use_stream_order(Held& held, Inspector& inspector, Results& results) {
  constexpr Word kWords = Word{4} << 20;
  Word* data = nullptr;
  Word* other = nullptr;
  CHECK(cudaMallocAsync(&data, kWords * sizeof(Word), held.streams[2]));
  fill_and_step(data, kWords, 5, held.streams[2]);
  CHECK(cudaMallocAsync(&other, kWords * sizeof(Word), held.streams[2]));
  CHECK(cudaMemcpyAsync(other, data, kWords * sizeof(Word), cudaMemcpyDeviceToDevice, held.streams[2]));
  CHECK(cudaFreeAsync(data, held.streams[2]));
  results.add("stream-ordered", inspector(other, kWords, 5, held.streams[2]));
  CHECK(cudaFreeAsync(other, held.streams[2]));
}

void use_pitch(Results& results) {
  constexpr int kWidth = 1003;
  constexpr int kHeight = 700;
  unsigned char* data = nullptr;
  std::size_t pitch = 0;
  CHECK(cudaMallocPitch(&data, &pitch, kWidth, kHeight));
  std::vector<unsigned char> in(kWidth * kHeight);
  std::vector<unsigned char> out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7);
  CHECK(cudaMemcpy2D(data, pitch, in.data(), kWidth, kWidth, kHeight, cudaMemcpyHostToDevice));
  add_rows<<<64, kThreads>>>(data, pitch, kWidth, kHeight);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy2D(out.data(), kWidth, data, pitch, kWidth, kHeight, cudaMemcpyDeviceToHost));
  Word sum = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (out[i] != static_cast<unsigned char>(in[i] + i)) fail("pitched memory is wrong");
    sum = sum * 31 + out[i];
  }
  results.add("pitch", sum);
  CHECK(cudaFree(data));
}

void use_array(Results& results) {
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array = nullptr;
  CHECK(cudaMallocArray(&array, &format, kSide, kSide, cudaArraySurfaceLoadStore));
  std::vector<float> host(kSide * kSide);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i);
  CHECK(cudaMemcpy2DToArray(array, 0, 0, host.data(), kSide * sizeof(float), kSide * sizeof(float), kSide,
                            cudaMemcpyHostToDevice));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc how = {};
  how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
  how.filterMode = cudaFilterModePoint;
  how.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture = 0;
  CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  float* out = nullptr;
  CHECK(cudaMalloc(&out, host.size() * sizeof(float)));
  std::vector<float> seen(host.size());
  auto look = [&](float factor) {
    sample<<<64, kThreads>>>(texture, out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(seen.data(), out, seen.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (std::size_t i = 0; i < seen.size(); ++i)
      if (seen[i] != host[i] * factor) fail("a texture is wrong");
  };
  look(1);
  cudaSurfaceObject_t surface = 0;
  CHECK(cudaCreateSurfaceObject(&surface, &resource));
  paint<<<64, kThreads>>>(surface);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  look(2);
  results.add("texture", static_cast<Word>(seen.back()));
  CHECK(cudaDestroySurfaceObject(surface));
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
  CHECK(cudaFree(out));
}

void use_managed(Results& results) {
  constexpr Word kWords = 1 << 17;
  Word* data = nullptr;
  CHECK(cudaMallocManaged(&data, kWords * sizeof(Word)));
  for (Word i = 0; i < kWords; ++i) data[i] = i;
  step<<<64, kThreads>>>(data, kWords, 3);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  Word sum = 0;
  for (Word i = 0; i < kWords; ++i) {
    if (data[i] != pattern::step(i, 3)) fail("managed memory is wrong");
    sum += data[i];
  }
  results.add("managed", sum);
  CHECK(cudaFree(data));
}

// Kernels that write to host memory: memory that the driver allocated, and memory that is registered with the
// driver.
void use_host(Inspector& inspector, Results& results) {
  constexpr Word kWords = 1 << 20;
  constexpr std::size_t kBytes = kWords * sizeof(Word);
  Word* host = nullptr;
  Word* view = nullptr;
  CHECK(cudaHostAlloc(&host, kBytes, cudaHostAllocMapped | cudaHostAllocPortable));
  CHECK(cudaHostGetDevicePointer(&view, host, 0));
  fill_and_step(view, kWords, 11, nullptr);
  Word sum = inspector(view, kWords, 11, nullptr);
  static const Expected expected;
  for (Word i = 0; i < kWords; ++i)
    if (host[i] != expected.history(pattern::fill(11, i))) fail("mapped host memory is wrong");
  results.add("mapped", sum);
  CHECK(cudaFreeHost(host));

  auto* registered = static_cast<Word*>(std::aligned_alloc(4096, kBytes));
  CHECK(cudaHostRegister(registered, kBytes, cudaHostRegisterMapped));
  CHECK(cudaHostGetDevicePointer(&view, registered, 0));
  fill_and_step(view, kWords, 12, nullptr);
  results.add("registered", inspector(view, kWords, 12, nullptr));
  CHECK(cudaHostUnregister(registered));
  std::free(registered);
}

void use_device_variables(Results& results) {
  std::vector<Word> words(1024);
  for (Word i = 0; i < words.size(); ++i) words[i] = i;
  Word constants[16];
  for (Word i = 0; i < 16; ++i) constants[i] = i * i;
  CHECK(cudaMemcpyToSymbol(device_words, words.data(), sizeof(Word) * words.size()));
  CHECK(cudaMemcpyToSymbol(constant_words, constants, sizeof constants));
  use_variables<<<4, kThreads>>>();
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpyFromSymbol(words.data(), device_words, sizeof(Word) * words.size()));
  Word sum = 0;
  for (Word i = 0; i < words.size(); ++i) {
    if (words[i] != i + (i % 16) * (i % 16)) fail("a device variable is wrong");
    sum += words[i];
  }
  results.add("variables", sum);
}

// Threads that each have a stream, with host functions between their kernels.
void use_threads(Results& results) {
  constexpr Word kWords = 1 << 18;
  std::atomic<Word> sum{0};
  std::atomic<int> called{0};
  std::vector<std::thread> threads;
  for (Word i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      cudaStream_t stream = nullptr;
      Word* data = nullptr;
      CHECK(cudaStreamCreate(&stream));
      CHECK(cudaMalloc(&data, kWords * sizeof(Word)));
      Inspector inspector;
      fill_and_step(data, kWords, i, stream);
      CHECK(cudaLaunchHostFunc(
          stream, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &called));
      sum += inspector(data, kWords, i, stream);
      CHECK(cudaFree(data));
      CHECK(cudaStreamDestroy(stream));
    });
  for (std::thread& thread : threads) thread.join();
  if (called != 4) fail("a host function was not called");
  results.add("threads", sum);
}

void ask_for_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  CHECK(cudaMemGetInfo(&free, &total));
  if (free > total) fail("more memory is free than there is");
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  Held held(options.mib << 20);
  Inspector inspector;
  return run_rounds(options, [&](Results& results) {
    use_blocks(held, inspector, results);
    use_graph(held, inspector, results);
    use_stream_order(held, inspector, results);
    use_pitch(results);
    use_array(results);
    use_managed(results);
    use_host(inspector, results);
    use_device_variables(results);
    use_threads(results);
    ask_for_memory();
  });
}
