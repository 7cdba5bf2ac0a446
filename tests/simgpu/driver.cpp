// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/driver.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/simgpu/identity.h"

namespace sharedgpu::simgpu {
namespace {

std::atomic<Driver*> the_driver{nullptr};
std::atomic<bool> forked{false};
std::atomic<std::uint64_t> calls{0};

std::mutex& init_lock() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// Counts a call, and throws if SIMGPU_FAIL makes it fail.
void inject(const Driver& d, const char* name) {
  if (d.settings.call_faults.empty()) return;
  static auto* counts = new std::map<std::string, std::uint64_t>;
  static auto* mutex = new std::mutex;
  std::uint64_t count;
  {
    std::lock_guard lock(*mutex);
    count = ++(*counts)[name];
  }
  for (const CallFault& fault : d.settings.call_faults) {
    if (fault.function != name || (fault.onwards ? count < fault.first : count != fault.first)) continue;
    if (d.settings.verbose)
      std::fprintf(stderr, "simgpu: call %llu of %s fails\n", static_cast<unsigned long long>(count), name);
    throw Error{fault.error};
  }
}

void check_lost(Driver& d) {
  std::uint64_t count = calls.fetch_add(1) + 1;
  if (d.settings.lost_after != 0 && count > d.settings.lost_after) d.lost = true;
  if (!d.settings.lost_file.empty() && access(d.settings.lost_file.c_str(), F_OK) == 0) d.lost = true;
}

Nanoseconds time_of(Bytes size, double rate, double slowdown) {
  if (rate <= 0) return {};
  return Nanoseconds(static_cast<std::int64_t>(static_cast<double>(size.count) / rate * 1e9 * slowdown));
}

}  // namespace

Nanoseconds Driver::copy_time(Bytes size) const { return time_of(size, settings.pcie, settings.slowdown); }

Nanoseconds Driver::memory_time(Bytes size) const {
  return time_of(size, settings.bandwidth, settings.slowdown);
}

Gpu& Driver::gpu(int number) const {
  require(number >= 0 && static_cast<std::size_t>(number) < gpus.size(), CUDA_ERROR_INVALID_DEVICE);
  return *gpus[static_cast<std::size_t>(number)];
}

Gpu& Driver::gpu_of(const SharedPiece& piece) const {
  for (const auto& gpu : gpus)
    if (gpu->shared->is_held(piece)) return *gpu;
  return *gpus.front();
}

Managed* Driver::managed_at(Address at) const {
  for (const auto& gpu : gpus)
    if (gpu->managed->find(at)) return gpu->managed;
  return nullptr;
}

Gpu& Driver::current_gpu() const { return gpu(current_context()->device()); }

Driver& driver() {
  Driver* d = the_driver.load();
  require(d != nullptr && !forked, CUDA_ERROR_NOT_INITIALIZED);
  return *d;
}

void initialize() {
  require(!forked, CUDA_ERROR_NOT_INITIALIZED);
  std::lock_guard lock(init_lock());
  if (the_driver.load() != nullptr) return;
  // These three objects are never destroyed once they are in use: threads may still run when the program
  // ends.
  auto space = std::make_unique<AddressSpace>();
  auto graph_memory = std::make_unique<GraphMemory>(*space);
  auto d = std::make_unique<Driver>();
  std::string problem;
  if (!read_settings(d->settings, problem)) {
    std::fprintf(stderr, "simgpu: %s\n", problem.c_str());
    throw Error{CUDA_ERROR_INVALID_VALUE};
  }
  if (d->settings.forbid_conflicts) space->forbid_conflicts();
  d->space = space.get();
  d->graph_memory = graph_memory.get();
  for (const std::string& state : visible_states(d->settings.state, d->settings.devices)) {
    auto gpu = std::make_unique<Gpu>();
    gpu->number = static_cast<int>(d->gpus.size());
    gpu->state = state;
    gpu->shared = SharedDevice::open(state, &d->settings.memory, problem);
    if (gpu->shared == nullptr) {
      std::fprintf(stderr, "simgpu: %s\n", problem.c_str());
      throw Error{CUDA_ERROR_OPERATING_SYSTEM};
    }
    gpu->generation = gpu->shared->generation();
    if (gpu->lost()) continue;
    gpu->store = std::make_shared<PhysicalStore>(*gpu->shared, gpu->number, PhysicalStore::Charge::device,
                                                 d->settings.board);
    gpu->managed = new Managed(*d->space, *gpu->shared, gpu->number);
    gpu->default_pool = gpu->current_pool = std::make_shared<Pool>(*d->space, *gpu->store);
    d->pools.add(gpu->default_pool);
    if (d->settings.verbose)
      std::fprintf(stderr, "simgpu: a simulated GPU of %llu MiB, state %s\n",
                   static_cast<unsigned long long>(gpu->shared->total().count >> 20), state.c_str());
    d->gpus.push_back(std::move(gpu));
  }
  require(!d->gpus.empty(), CUDA_ERROR_NO_DEVICE);
  // A real driver charges this memory to no memory cgroup (measured, 580).
  d->host_store = std::make_shared<PhysicalStore>(*d->gpus.front()->shared, kHostNumber,
                                                  PhysicalStore::Charge::none, d->settings.board);
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  space.release();
  graph_memory.release();
  the_driver = d.release();
}

CUresult lost_error() { return CUDA_ERROR_UNKNOWN; }

void enter(const char* name, Needs needs) {
  if (needs == Needs::nothing) return;
  Driver& d = driver();
  inject(d, name);
  check_lost(d);
  if (needs == Needs::init) return;
  require(!d.lost, lost_error());
  const auto& stack = context_stack();
  require(stack.empty() || !d.is_lost(stack.back()->device()), lost_error());
  require(sticky_error() == CUDA_SUCCESS, sticky_error());
  if (needs == Needs::context) current_context();
}

void count_allocation() {
  Driver& d = driver();
  std::uint64_t count = ++d.allocations;
  require(count != d.settings.allocation_fault, CUDA_ERROR_OUT_OF_MEMORY);
}

StreamPtr find_stream(DefaultStream zero, CUstream handle) {
  if (handle == CU_STREAM_LEGACY || (handle == nullptr && zero == DefaultStream::legacy))
    return current_context()->legacy_stream();
  if (handle == CU_STREAM_PER_THREAD || handle == nullptr) return current_context()->thread_stream();
  return driver().streams.get(handle);
}

}  // namespace sharedgpu::simgpu
