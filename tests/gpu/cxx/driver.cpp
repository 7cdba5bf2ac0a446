// SPDX-License-Identifier: Apache-2.0
// Uses only the driver API: two contexts, blocks on several streams, a graph, stream-ordered, pitched,
// managed and mapped memory, an array, and physical memory that the program maps itself. Every round verifies
// the contents of all this memory.
#include <cuda.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "tests/gpu/cxx/options.h"
#include "tests/programs/kernels_ptx.h"
#include "tests/programs/pattern.h"

namespace {

namespace pattern = sharedgpu::pattern;
using Word = std::uint64_t;

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  fail(std::string(call) + ": " + name);
}
#define CHECK(call) check(call, #call)

constexpr unsigned kSteps = 6;

class Kernels {
 public:
  Kernels() {
    CHECK(cuModuleLoadData(&module_, sharedgpu::programs::kKernelsPtx));
    fill_ = get("pattern_fill");
    step_ = get("pattern_step");
    checksum_ = get("pattern_checksum");
    CHECK(cuMemAlloc(&sum_, sizeof(Word)));
  }
  ~Kernels() {
    cuMemFree(sum_);
    cuModuleUnload(module_);
  }

  void fill_and_step(CUdeviceptr data, Word count, Word seed, CUstream stream) const {
    Word first = 0;
    launch(fill_, stream, {&data, &count, &seed, &first});
    for (Word i = 0; i < kSteps; ++i) step(data, count, i, stream);
  }
  void step(CUdeviceptr data, Word count, Word iteration, CUstream stream) const {
    launch(step_, stream, {&data, &count, &iteration});
  }

  // Compares the checksum of the result of fill_and_step() on the GPU with the checksum that the host
  // computes. The host computes its checksum once for each size and seed.
  Word inspect(CUdeviceptr data, Word count, Word seed, CUstream stream) {
    Word found = 0;
    Word first = 0;
    CHECK(cuMemsetD8Async(sum_, 0, sizeof found, stream));
    launch(checksum_, stream, {&data, &count, &sum_, &first});
    CHECK(cuMemcpyDtoHAsync(&found, sum_, sizeof found, stream));
    CHECK(cuStreamSynchronize(stream));
    auto [known, fresh] = wanted_.emplace(std::make_pair(count, seed), 0);
    if (fresh) known->second = checksum(count, seed);
    if (found != known->second) fail("wrong data in a buffer of " + std::to_string(count) + " words");
    return found;
  }

  static Word word(Word seed, Word index) {
    static const pattern::History history = [] {
      pattern::History made;
      for (unsigned i = 0; i < kSteps; ++i) made.add(i);
      return made;
    }();
    return history(pattern::fill(seed, index));
  }

 private:
  CUfunction get(const char* name) const {
    CUfunction function = nullptr;
    CHECK(cuModuleGetFunction(&function, module_, name));
    return function;
  }

  static void launch(CUfunction kernel, CUstream stream, std::initializer_list<const void*> arguments) {
    std::vector<void*> parameters;
    for (const void* argument : arguments) parameters.push_back(const_cast<void*>(argument));
    CHECK(cuLaunchKernel(kernel, 1024, 1, 1, 256, 1, 1, 0, stream, parameters.data(), nullptr));
  }

  static Word checksum(Word count, Word seed) {
    Word sum = 0;
    for (Word i = 0; i < count; ++i) sum += pattern::weigh(word(seed, i), i);
    return sum;
  }

  CUmodule module_ = nullptr;
  CUfunction fill_ = nullptr;
  CUfunction step_ = nullptr;
  CUfunction checksum_ = nullptr;
  CUdeviceptr sum_ = 0;
  std::map<std::pair<Word, Word>, Word> wanted_;
};

constexpr std::size_t kStreams = 4;

struct Block {
  CUdeviceptr data = 0;
  Word count = 0;
};

Block allocate(std::size_t bytes) {
  Block block;
  CHECK(cuMemAlloc(&block.data, bytes));
  block.count = bytes / sizeof(Word);
  return block;
}

// The memory that is held during all rounds.
struct Held {
  std::vector<Block> blocks;
  CUstream streams[kStreams] = {};
  CUevent events[kStreams] = {};
  Block captured;
  CUgraphExec graph = nullptr;

  Held(std::size_t bytes, const Kernels& kernels) {
    for (std::size_t i = 0; i < kStreams; ++i) {
      CHECK(cuStreamCreate(&streams[i], i % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
      CHECK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    }
    captured = allocate(std::min<std::size_t>(bytes / 8, std::size_t{64} << 20));
    constexpr std::size_t kBlock = std::size_t{96} << 20;
    for (std::size_t left = bytes - captured.count * sizeof(Word); left >= 4096;) {
      const std::size_t size = std::min(left, kBlock) / 4096 * 4096;
      blocks.push_back(allocate(size));
      left -= size;
    }
    CUgraph made = nullptr;
    CHECK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    kernels.fill_and_step(captured.data, captured.count, 99, streams[0]);
    CHECK(cuStreamEndCapture(streams[0], &made));
    CHECK(cuGraphInstantiateWithFlags(&graph, made, 0));
    CHECK(cuGraphDestroy(made));
  }
};

void use_blocks(Held& held, Kernels& kernels, Results& results) {
  // Blocks of one size share a seed, so that the host computes their checksum once.
  for (std::size_t i = 0; i < held.blocks.size(); ++i) {
    CUstream first = held.streams[i % kStreams];
    CUstream second = held.streams[(i + 1) % kStreams];
    CHECK(cuEventRecord(held.events[i % kStreams], first));
    CHECK(cuStreamWaitEvent(second, held.events[i % kStreams], 0));
    kernels.fill_and_step(held.blocks[i].data, held.blocks[i].count, 7, second);
  }
  CHECK(cuCtxSynchronize());
  Word sum = 0;
  for (const Block& block : held.blocks)
    sum = sum * 31 + kernels.inspect(block.data, block.count, 7, held.streams[0]);
  results.add("blocks", sum);
  results.add("number-of-blocks", held.blocks.size());
}

void use_graph(Held& held, Kernels& kernels, Results& results) {
  for (int i = 0; i < 10; ++i) CHECK(cuGraphLaunch(held.graph, held.streams[1]));
  results.add("graph", kernels.inspect(held.captured.data, held.captured.count, 99, held.streams[1]));
}

void use_stream_order(Held& held, Kernels& kernels, Results& results) {
  constexpr Word kWords = Word{1} << 20;
  CUdeviceptr data = 0;
  CUdeviceptr copy = 0;
  CUstream stream = held.streams[2];
  CHECK(cuMemAllocAsync(&data, kWords * sizeof(Word), stream));
  kernels.fill_and_step(data, kWords, 5, stream);
  CHECK(cuMemAllocAsync(&copy, kWords * sizeof(Word), stream));
  CHECK(cuMemcpyDtoDAsync(copy, data, kWords * sizeof(Word), stream));
  CHECK(cuMemFreeAsync(data, stream));
  results.add("stream-ordered", kernels.inspect(copy, kWords, 5, stream));
  CHECK(cuMemFreeAsync(copy, stream));
}

CUDA_MEMCPY2D rows(std::size_t width, std::size_t height) {
  CUDA_MEMCPY2D copy = {};
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

// Copies data from the host to pitched memory, from pitched memory to an array, and back.
void use_pitch_and_array(Results& results) {
  constexpr std::size_t kWidth = 1024;
  constexpr std::size_t kHeight = 600;
  std::vector<unsigned char> in(kWidth * kHeight);
  std::vector<unsigned char> out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7 + i / kWidth);
  CUdeviceptr data = 0;
  std::size_t pitch = 0;
  CHECK(cuMemAllocPitch(&data, &pitch, kWidth, kHeight, 4));
  CUDA_ARRAY_DESCRIPTOR wanted = {};
  wanted.Width = kWidth;
  wanted.Height = kHeight;
  wanted.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  wanted.NumChannels = 1;
  CUarray array = nullptr;
  CHECK(cuArrayCreate(&array, &wanted));

  CUDA_MEMCPY2D copy = rows(kWidth, kHeight);
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = in.data();
  copy.srcPitch = kWidth;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = data;
  copy.dstPitch = pitch;
  CHECK(cuMemcpy2D(&copy));
  copy = rows(kWidth, kHeight);
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = data;
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  CHECK(cuMemcpy2D(&copy));
  copy = rows(kWidth, kHeight);
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = out.data();
  copy.dstPitch = kWidth;
  CHECK(cuMemcpy2D(&copy));
  if (in != out) fail("pitched memory or an array is wrong");
  results.add("pitch-and-array", in.size());
  CHECK(cuArrayDestroy(array));
  CHECK(cuMemFree(data));
}

void use_managed(Kernels& kernels, Results& results) {
  constexpr Word kWords = 1 << 17;
  CUdeviceptr data = 0;
  CHECK(cuMemAllocManaged(&data, kWords * sizeof(Word), CU_MEM_ATTACH_GLOBAL));
  auto* host = reinterpret_cast<Word*>(data);
  for (Word i = 0; i < kWords; ++i) host[i] = i;
  kernels.step(data, kWords, 3, nullptr);
  CHECK(cuCtxSynchronize());
  for (Word i = 0; i < kWords; ++i)
    if (host[i] != pattern::step(i, 3)) fail("managed memory is wrong");
  results.add("managed", host[kWords - 1]);
  CHECK(cuMemFree(data));
}

void use_mapped_host_memory(Kernels& kernels, Results& results) {
  constexpr Word kWords = 1 << 18;
  void* host = nullptr;
  CUdeviceptr view = 0;
  CHECK(cuMemHostAlloc(&host, kWords * sizeof(Word), CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
  CHECK(cuMemHostGetDevicePointer(&view, host, 0));
  kernels.fill_and_step(view, kWords, 11, nullptr);
  results.add("mapped", kernels.inspect(view, kWords, 11, nullptr));
  for (Word i = 0; i < kWords; ++i)
    if (static_cast<Word*>(host)[i] != Kernels::word(11, i)) fail("mapped host memory is wrong");
  CHECK(cuMemFreeHost(host));
}

// Maps memory as PyTorch's expandable segments do.
void use_own_mapping(CUdevice device, Kernels& kernels, Results& results) {
  CUmemAllocationProp wanted = {};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  std::size_t granule = 0;
  CHECK(cuMemGetAllocationGranularity(&granule, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  const std::size_t size = (std::size_t{20} << 20) / granule * granule;
  CUdeviceptr range = 0;
  CUmemGenericAllocationHandle handles[2] = {};
  CUmemAccessDesc access = {};
  access.location = wanted.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemAddressReserve(&range, 2 * size, 0, 0, 0));
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(cuMemCreate(&handles[i], size, &wanted, 0));
    CHECK(cuMemMap(range + i * size, size, 0, handles[i], 0));
    CHECK(cuMemSetAccess(range + i * size, size, &access, 1));
    CHECK(cuMemRelease(handles[i]));
  }
  kernels.fill_and_step(range, 2 * size / sizeof(Word), 13, nullptr);
  results.add("own-mapping", kernels.inspect(range, 2 * size / sizeof(Word), 13, nullptr));
  CHECK(cuCtxSynchronize());
  CHECK(cuMemUnmap(range, size));
  CHECK(cuMemUnmap(range + size, size));
  CHECK(cuMemAddressFree(range, 2 * size));
}

// Creates a second context, and destroys the context while it has memory.
void use_other_context(CUdevice device, Results& results) {
  CUcontext context = nullptr;
#if CUDA_VERSION >= 13000
  CHECK(cuCtxCreate(&context, nullptr, 0, device));
#else
  CHECK(cuCtxCreate(&context, 0, device));
#endif
  {
    Kernels kernels;
    Block block = allocate(std::size_t{8} << 20);
    kernels.fill_and_step(block.data, block.count, 17, nullptr);
    results.add("other-context", kernels.inspect(block.data, block.count, 17, nullptr));
  }
  CHECK(cuCtxDestroy(context));
}

void ask_about_memory(const Held& held) {
  std::size_t free = 0;
  std::size_t total = 0;
  CHECK(cuMemGetInfo(&free, &total));
  if (free > total) fail("more memory is free than there is");
  const Block& block = held.blocks.front();
  CUdeviceptr base = 0;
  std::size_t size = 0;
  CHECK(cuMemGetAddressRange(&base, &size, block.data + 100));
  if (base != block.data || size < block.count * sizeof(Word)) fail("an address range is wrong");
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  CUdevice device = 0;
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  Kernels kernels;
  Held held(options.mib << 20, kernels);
  return run_rounds(options, [&](Results& results) {
    use_blocks(held, kernels, results);
    use_graph(held, kernels, results);
    use_stream_order(held, kernels, results);
    use_pitch_and_array(results);
    use_managed(kernels, results);
    use_mapped_host_memory(kernels, results);
    use_own_mapping(device, kernels, results);
    use_other_context(device, results);
    ask_about_memory(held);
  });
}
