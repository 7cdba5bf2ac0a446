// SPDX-License-Identifier: Apache-2.0
// Works on several GPUs at once: fills memory on each GPU, changes it, copies it from GPU to GPU, and
// verifies every byte at the end.
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

struct Options {
  int devices = 2;
  std::string bytes = "128MiB";
  std::uint64_t iterations = 10;
  double kernel_ms = 0;
  double gap_ms = 0;
  std::string own;
  bool peers = false;
  bool pools = false;
  bool elsewhere = false;
  bool cooperative = false;
  bool progress = false;
};

// One GPU: its context, a buffer that kernels work on, and a buffer for the data that a neighbour sends.
struct Gpu {
  CUcontext context = nullptr;
  std::unique_ptr<Kernels> kernels;
  std::unique_ptr<Buffer> buffer;
  CUdeviceptr inbox = 0;
  CUstream stream = nullptr;  // cooperative launches need a stream that is no default stream
  CUdeviceptr own = 0;        // memory that the program creates and maps itself
};

CUdeviceptr create_on(int device, std::size_t bytes) {
  CUmemAllocationProp wanted = {};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr memory = 0;
  check(cuMemCreate(&handle, bytes, &wanted, 0), "cuMemCreate");
  check(cuMemAddressReserve(&memory, bytes, 0, 0, 0), "cuMemAddressReserve");
  check(cuMemMap(memory, bytes, 0, handle, 0), "cuMemMap");
  check(cuMemRelease(handle), "cuMemRelease");
  CUmemAccessDesc access = {};
  access.location = wanted.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(cuMemSetAccess(memory, bytes, &access, 1), "cuMemSetAccess");
  return memory;
}

// Checks that the driver reports the right GPU for each address of memory that the program has created,
// whichever context is current.
void ask_whose(const std::vector<Gpu>& gpus, std::size_t bytes) {
  constexpr std::size_t kStep = std::size_t{2} << 20;
  for (const Gpu& current : gpus) {
    use(current.context);
    for (std::size_t i = 0; i < gpus.size(); ++i)
      for (CUdeviceptr at = gpus[i].own; at < gpus[i].own + bytes; at += kStep) {
        int device = -1;
        unsigned type = 0;
        check(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at), "the ordinal");
        check(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at), "the memory type");
        if (device != static_cast<int>(i) || type != CU_MEMORYTYPE_DEVICE)
          fail("wrong attributes of the memory of a GPU");
        CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
        void* answers[] = {&type, &device};
        device = -1;
        type = 0;
        check(cuPointerGetAttributes(2, asked, answers, at), "cuPointerGetAttributes");
        if (device != static_cast<int>(i) || type != CU_MEMORYTYPE_DEVICE)
          fail("wrong attributes, asked together, of the memory of a GPU");
      }
  }
}

// Every GPU sends the first part of its buffer to the next GPU, which must then have the same contents. Both
// kinds of copies between GPUs work with and without peer access.
void send_round(const std::vector<Gpu>& gpus, std::size_t bytes, bool by_address) {
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& from = gpus[i];
    const Gpu& to = gpus[(i + 1) % gpus.size()];
    use(from.context);
    if (by_address)
      check(cuMemcpyDtoD(to.inbox, from.buffer->memory(), bytes), "cuMemcpyDtoD");
    else
      check(cuMemcpyPeer(to.inbox, to.context, from.buffer->memory(), from.context, bytes), "cuMemcpyPeer");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    std::vector<unsigned char> sent(bytes);
    std::vector<unsigned char> arrived(bytes);
    check(cuMemcpyDtoH(sent.data(), from.buffer->memory(), bytes), "cuMemcpyDtoH");
    use(to.context);
    check(cuMemcpyDtoH(arrived.data(), to.inbox, bytes), "cuMemcpyDtoH");
    if (sent != arrived) fail("what one GPU sent is not what the next one got");
  }
}

// Gives all other devices access to the device's default pool.
void open_pool(int device, int devices) {
  CUmemoryPool pool = nullptr;
  check(cuDeviceGetDefaultMemPool(&pool, device), "cuDeviceGetDefaultMemPool");
  for (int other = 0; other < devices; ++other) {
    if (other == device) continue;
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = other;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(cuMemPoolSetAccess(pool, &access, 1), "cuMemPoolSetAccess");
  }
}

// A memset of one GPU fills memory of the next GPU, to which it has access.
void fill_neighbours(const std::vector<Gpu>& gpus, std::size_t bytes) {
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& to = gpus[(i + 1) % gpus.size()];
    use(gpus[i].context);
    check(cuMemsetD8(to.inbox, static_cast<unsigned char>(i + 1), bytes), "cuMemsetD8 of a peer");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    unsigned char last = 0;
    use(to.context);
    check(cuMemcpyDtoH(&last, to.inbox + bytes - 1, 1), "cuMemcpyDtoH");
    if (last != i + 1) fail("a peer's memset is not to be seen");
  }
}

// Copies to, from and within memory of another GPU than that of the current context. CUDA carries out such
// copies without peer access.
void copy_elsewhere(const std::vector<Gpu>& gpus, std::size_t bytes) {
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const CUdeviceptr memory = gpus[(i + 1) % gpus.size()].inbox;
    use(gpus[i].context);
    const std::vector<unsigned char> sent(bytes / 2, static_cast<unsigned char>(i + 1));
    std::vector<unsigned char> arrived(bytes / 2);
    check(cuMemcpyHtoD(memory, sent.data(), bytes / 2), "cuMemcpyHtoD elsewhere");
    check(cuMemcpyDtoDAsync(memory + bytes / 2, memory, bytes / 2, nullptr), "cuMemcpyDtoDAsync elsewhere");
    CUDA_MEMCPY2D rows = {};
    rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = memory + bytes / 2;
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = arrived.data();
    rows.WidthInBytes = rows.srcPitch = rows.dstPitch = 512;
    rows.Height = bytes / 2 / 512;
    check(cuMemcpy2D(&rows), "cuMemcpy2D elsewhere");
    if (sent != arrived) fail("what was copied with another GPU's context is not what was there");
  }
}

// Launches one cooperative kernel, which begins and ends on all GPUs together. Each GPU works on its own
// memory.
void step_together(const std::vector<Gpu>& gpus, std::uint64_t iteration) {
  struct Arguments {
    CUdeviceptr memory;
    std::uint64_t words;
    void* pointers[3];
  };
  std::vector<Arguments> arguments(gpus.size());
  std::vector<CUDA_LAUNCH_PARAMS> launches;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    Arguments& its = arguments[i];
    its.memory = gpus[i].buffer->memory();
    its.words = gpus[i].buffer->bytes() / 8;
    its.pointers[0] = &its.memory;
    its.pointers[1] = &its.words;
    its.pointers[2] = &iteration;
    use(gpus[i].context);
    launches.push_back(
        {(*gpus[i].kernels)["pattern_step"], 8, 1, 1, 256, 1, 1, 0, gpus[i].stream, its.pointers});
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // deprecated, but programs use it
  check(cuLaunchCooperativeKernelMultiDevice(launches.data(), static_cast<unsigned>(launches.size()), 0),
        "cuLaunchCooperativeKernelMultiDevice");
#pragma GCC diagnostic pop
}

void run(const Options& options) {
  constexpr std::size_t kSent = std::size_t{1} << 20;
  std::size_t bytes = parse_size(options.bytes, 0);
  const std::size_t own = options.own.empty() ? 0 : parse_size(options.own, 0);
  check(cuInit(0), "cuInit");
  std::vector<Gpu> gpus(static_cast<std::size_t>(options.devices));
  for (int i = 0; i < options.devices; ++i) {
    Gpu& gpu = gpus[static_cast<std::size_t>(i)];
    check(cuDevicePrimaryCtxRetain(&gpu.context, i), "cuDevicePrimaryCtxRetain");
    use(gpu.context);
    gpu.kernels = std::make_unique<Kernels>();
    gpu.buffer = std::make_unique<Buffer>(*gpu.kernels, bytes, static_cast<std::uint64_t>(i + 1));
    if (options.pools && i % 2 == 1) open_pool(i, options.devices);
    if (options.pools)
      check(cuMemAllocAsync(&gpu.inbox, kSent, nullptr), "cuMemAllocAsync");
    else
      check(cuMemAlloc(&gpu.inbox, kSent), "cuMemAlloc");
    if (options.cooperative) check(cuStreamCreate(&gpu.stream, CU_STREAM_DEFAULT), "cuStreamCreate");
    if (options.pools && i % 2 == 0) open_pool(i, options.devices);
    if (own != 0) gpu.own = create_on(i, own);
  }
  if (options.peers)
    for (const Gpu& gpu : gpus)
      for (const Gpu& peer : gpus) {
        use(gpu.context);
        if (peer.context != gpu.context)
          check(cuCtxEnablePeerAccess(peer.context, 0), "cuCtxEnablePeerAccess");
      }
  auto spin = static_cast<std::uint64_t>(options.kernel_ms * 1e6);
  for (std::uint64_t iteration = 0; iteration < options.iterations; ++iteration) {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options.gap_ms));
    if (options.cooperative) step_together(gpus, iteration);
    for (const Gpu& gpu : gpus) {
      use(gpu.context);
      if (!options.cooperative) gpu.buffer->step(iteration, nullptr);
      if (spin > 0) launch((*gpu.kernels)["spin"], 1, nullptr, {&spin});
    }
    for (const Gpu& gpu : gpus) {
      use(gpu.context);
      check(cuCtxSynchronize(), "cuCtxSynchronize");
    }
    send_round(gpus, kSent, iteration % 2 == 0);
    if (options.elsewhere) copy_elsewhere(gpus, kSent);
    if (own != 0) ask_whose(gpus, own);
    if (options.peers || options.pools) fill_neighbours(gpus, kSent);
    if (options.progress) {
      std::printf("devices: iteration %llu\n", static_cast<unsigned long long>(iteration));
      std::fflush(stdout);
    }
  }
  bool right = true;
  for (const Gpu& gpu : gpus) {
    use(gpu.context);
    right = gpu.buffer->verify(options.iterations, nullptr) && right;
    gpu.buffer->free();
    check(cuMemFree(gpu.inbox), "cuMemFree");
  }
  if (!right) fail("the device memory is not what the kernels made of it");
  std::printf("devices: %llu iterations on %d GPUs, every byte verified\n",
              static_cast<unsigned long long>(options.iterations), options.devices);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Works on several GPUs at once and verifies their memory.");
  Options options;
  app.add_option("--devices", options.devices, "how many GPUs").between(1, 64);
  app.add_option("--bytes", options.bytes, "device memory to hold on each");
  app.add_option("--iterations", options.iterations, "how often to change the memory");
  app.add_option("--kernel-ms", options.kernel_ms, "extra time on each GPU per iteration");
  app.add_option("--gap-ms", options.gap_ms, "pause before each iteration");
  app.add_option("--own", options.own, "further memory to create and map on each, and to ask about");
  app.add_flag("--peers", options.peers, "enable peer access, and use it");
  app.add_flag("--pools", options.pools, "let the GPUs at each other's pools, and use them");
  app.add_flag("--elsewhere", options.elsewhere, "copy each GPU's memory with another GPU's context, too");
  app.add_flag("--cooperative", options.cooperative, "launch each kernel on all GPUs at once");
  app.add_flag("--progress", options.progress, "print a line an iteration");
  app.parse(argc, argv);
  return status_of([&] { run(options); });
}
