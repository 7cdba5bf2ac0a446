// SPDX-License-Identifier: Apache-2.0
// What the program holds of the attached devices, as far as the driver could not be asked: which context each
// of our allocations belongs to, and the size of what is counted as pinned.
//
// Safe from all threads.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "interposer/memory/memory.h"

namespace sharedgpu::hooks {

// Our allocations, by address.
class Allocations {
 public:
  struct Origin {
    CUcontext context = nullptr;
    unsigned long long id = 0;  // never used twice, as CU_POINTER_ATTRIBUTE_BUFFER_ID promises
    bool sync_memops = false;   // as the program set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  };
  // `context` null: it belongs to none, as stream-ordered memory does.
  void add(CUdeviceptr base, CUcontext context);
  // Only the allocation with this number: its address may have been given out again meanwhile.
  void remove(CUdeviceptr base, unsigned long long id);
  void set_sync_memops(CUdeviceptr base, bool on);
  std::optional<Origin> origin(CUdeviceptr base) const;
  // Those that go when the context does.
  using All = std::map<CUdeviceptr, Origin>;
  All of(CUcontext context) const;

 private:
  mutable std::mutex mutex_;
  All origins_;
  unsigned long long last_id_ = 1ull << 32;  // the driver counts from 1
};

// What the driver allocated for the program in a context and cannot be swapped, by the driver's own handle.
class Pinned {
 public:
  enum class Kind { pointer, array, mipmap };
  struct Held {
    Bytes size;
    CUcontext context = nullptr;
    Pinning* memory = nullptr;  // that it is counted in
  };
  void add(Kind kind, unsigned long long key, const Held& held);
  // Before the driver frees it: then its handle may be given out again. Where it does not free it, add()
  // again.
  std::optional<Held> take(Kind kind, unsigned long long key);
  // All of a context; the same.
  using All = std::map<std::pair<Kind, unsigned long long>, Held>;
  All take(CUcontext context);

 private:
  std::mutex mutex_;
  All held_;
};

Allocations& allocations();
Pinned& pinned();

}  // namespace sharedgpu::hooks
