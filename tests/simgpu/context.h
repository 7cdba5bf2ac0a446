// SPDX-License-Identifier: Apache-2.0
// CUDA contexts of this process, and each thread's stack of contexts.
#pragma once

#include <cuda.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/simgpu/heap.h"
#include "tests/simgpu/kernels.h"
#include "tests/simgpu/stream.h"

namespace sharedgpu::simgpu {

struct Module;

struct Function {
  const Kernel* kernel = nullptr;
  Module* module = nullptr;  // null: the function belongs to a library
};

struct Module {
  std::shared_ptr<Context> context;
  std::map<std::string, std::shared_ptr<Function>> functions;
};

// A kernel of a CUlibrary. It belongs to no context: all contexts use the same function.
struct LibraryKernel {
  const Kernel* kernel = nullptr;
  std::shared_ptr<Function> function;
};

struct Library {
  std::map<std::string, std::shared_ptr<LibraryKernel>> kernels;
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  // Takes the memory that a context needs (SIMGPU_CONTEXT) from the device.
  static std::shared_ptr<Context> create(unsigned flags, int device);
  // Waits for all work, ends the streams, and returns all memory of the context to the device.
  void destroy();
  ~Context();

  StreamPtr legacy_stream();
  StreamPtr thread_stream();  // the default stream of the calling thread
  void end_thread(std::thread::id thread);
  StreamPtr make_stream(Stream::Kind kind, unsigned flags, int priority);

  int device() const { return device_; }
  bool destroyed() const { return destroyed_; }
  unsigned flags() const { return flags_; }
  void set_flags(unsigned flags) { flags_ = flags; }
  std::uint64_t id() const { return id_; }
  Heap& heap() { return heap_; }

  std::set<StreamPtr> streams;  // guarded by order_lock()

 private:
  Context(unsigned flags, int device);

  std::atomic<unsigned> flags_;
  int device_;
  std::uint64_t id_;
  Heap heap_;
  std::atomic<bool> destroyed_{false};
  StreamPtr legacy_;
  std::map<std::thread::id, StreamPtr> thread_streams_;
};
using ContextPtr = std::shared_ptr<Context>;

// The calling thread's stack of contexts; the last one is current. Null entries are allowed.
std::vector<ContextPtr>& context_stack();
// Throws CUDA_ERROR_INVALID_CONTEXT or CUDA_ERROR_CONTEXT_IS_DESTROYED.
ContextPtr current_context();

}  // namespace sharedgpu::simgpu
