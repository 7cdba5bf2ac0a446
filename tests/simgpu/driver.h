// SPDX-License-Identifier: Apache-2.0
// The driver of this process: created by cuInit, never destroyed, unusable in a child of fork().
#pragma once

#include <cuda.h>

#include <atomic>
#include <map>
#include <new>
#include <set>

#include "tests/simgpu/address_space.h"
#include "tests/simgpu/array.h"
#include "tests/simgpu/context.h"
#include "tests/simgpu/graph_memory.h"
#include "tests/simgpu/handles.h"
#include "tests/simgpu/managed.h"
#include "tests/simgpu/semaphore.h"

namespace sharedgpu::simgpu {

struct Pool {
  Pool(AddressSpace& space, PhysicalStore& store) : heap(space, store) {}
  Heap heap;
  std::atomic<bool> destroyed{false};  // the program has destroyed the pool; blocks in use stay valid
};

// One of the devices that the process sees.
struct Gpu {
  int number = 0;
  std::string state;
  SharedDevice* shared = nullptr;
  std::uint64_t generation = 0;  // generation of the device when this process started
  std::shared_ptr<PhysicalStore> store;
  Managed* managed = nullptr;

  bool lost() const {
    const Presence now = shared->presence();
    return shared->generation() != generation || now == Presence::lost || now == Presence::absent;
  }

  // Guarded by the driver's mutex.
  ContextPtr primary;
  unsigned primary_users = 0;
  unsigned primary_flags = 0;
  std::shared_ptr<Pool> default_pool;
  std::shared_ptr<Pool> current_pool;
};

struct Driver {
  Settings settings;
  std::vector<std::unique_ptr<Gpu>> gpus;  // the visible GPUs (CUDA_VISIBLE_DEVICES), without lost ones
  AddressSpace* space = nullptr;
  GraphMemory* graph_memory = nullptr;
  std::shared_ptr<PhysicalStore> host_store;  // host memory that cuMemCreate creates

  Handles<Context> contexts;
  Handles<Stream> streams;
  Handles<Event> events;
  Handles<Module> modules;
  Handles<Function> functions;
  Handles<Library> libraries;
  Handles<LibraryKernel> kernels;
  Handles<Graph> graphs;
  Handles<GraphExec> graph_execs;
  Handles<Pool> pools;
  Handles<Array> arrays;
  Handles<MipmappedArray> mipmaps;
  Handles<Semaphore> semaphores;

  std::mutex mutex;  // guards the members below
  struct Handle {
    PhysicalPtr physical;
    unsigned references = 1;
    CUmemAllocationProp properties = {};
  };
  std::map<CUmemGenericAllocationHandle, Handle> handles;
  CUmemGenericAllocationHandle next_handle = 1;
  // Memory that cuIpcOpenMemHandle has opened, by its address in this process.
  struct Opened {
    SharedPiece piece;
    Address mapping = 0;
    Bytes size;
    unsigned times = 1;
  };
  std::map<Address, Opened> opened;
  std::set<Address> sync_memops;  // base addresses of allocations with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS

  std::atomic<bool> lost{false};
  std::atomic<std::uint64_t> allocations{0};
  std::atomic<std::uint64_t> launches{0};

  // Throws CUDA_ERROR_INVALID_DEVICE if there is no device with this number.
  Gpu& gpu(int number) const;
  Gpu& current_gpu() const;  // the GPU of the current context
  // Returns true if the process has lost this device, or all devices.
  bool is_lost(int number) const { return lost || gpu(number).lost(); }
  // The device whose managed memory `at` lies in; null if none.
  Managed* managed_at(Address at) const;
  // The device on which any process holds the piece; the first device of this process if no process holds it.
  Gpu& gpu_of(const SharedPiece& piece) const;

  Nanoseconds copy_time(Bytes size) const;    // the time of a copy over PCIe
  Nanoseconds memory_time(Bytes size) const;  // the time of an access to device memory
};

// The driver after cuInit. Throws CUDA_ERROR_NOT_INITIALIZED before cuInit, and in a child of fork().
Driver& driver();
// Implements cuInit.
void initialize();

// The conditions for a call.
enum class Needs {
  nothing,
  init,     // cuInit was called
  device,   // also checks that the current context's device is not lost, and that there is no sticky error
  context,  // also checks that a context is current
};
// Counts the call, injects faults and checks the conditions of the call. Throws Error.
void enter(const char* name, Needs needs);
// Throws CUDA_ERROR_OUT_OF_MEMORY if SIMGPU_OOM_AT makes this allocation fail.
void count_allocation();
CUresult lost_error();

// Every exported function runs its body by this function, which turns exceptions into error codes.
template <class Body>
CUresult call(const char* name, Needs needs, Body&& body) noexcept {
  try {
    enter(name, needs);
    if constexpr (std::is_same_v<decltype(body()), CUresult>) {
      return body();
    } else {
      body();
      return CUDA_SUCCESS;
    }
  } catch (const Error& error) {
    return error.code;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

// The meaning of stream 0 in a function: the legacy stream, or the per-thread stream in the _ptds and _ptsz
// variants.
enum class DefaultStream { legacy, per_thread };
StreamPtr find_stream(DefaultStream zero, CUstream handle);

// Defines both variants of an exported function. `implementation` gets the variant as its first argument, a
// DefaultStream.
#define SIMGPU_BOTH(symbol, suffix, implementation, parameters, ...)             \
  CUresult CUDAAPI symbol parameters {                                           \
    return implementation(DefaultStream::legacy __VA_OPT__(, ) __VA_ARGS__);     \
  }                                                                              \
  CUresult CUDAAPI symbol##suffix parameters {                                   \
    return implementation(DefaultStream::per_thread __VA_OPT__(, ) __VA_ARGS__); \
  }

}  // namespace sharedgpu::simgpu
