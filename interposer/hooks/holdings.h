// SPDX-License-Identifier: Apache-2.0
// The program's holdings on the attached devices, as far as the driver cannot report them: the context of
// each of our allocations, and the size of each allocation that counts as pinned.
//
// Thread-safe.
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
    unsigned long long id = 0;  // never reused, as CU_POINTER_ATTRIBUTE_BUFFER_ID promises
    bool sync_memops = false;   // the value to which the program set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  };
  // `context` is null for stream-ordered memory, which belongs to no context.
  void add(CUdeviceptr base, CUcontext context);
  // Removes the allocation only if it has the number `id`, since its address may already belong to another
  // allocation.
  void remove(CUdeviceptr base, unsigned long long id);
  void set_sync_memops(CUdeviceptr base, bool on);
  std::optional<Origin> origin(CUdeviceptr base) const;
  // The allocations that are freed with the context.
  using All = std::map<CUdeviceptr, Origin>;
  All of(CUcontext context) const;

 private:
  mutable std::mutex mutex_;
  All origins_;
  unsigned long long last_id_ = 1ull << 32;  // far above the numbers of the driver, which begin at 1
};

// Memory that the driver has allocated for the program in a context and that cannot be swapped. The keys are
// the driver's own handles.
class Pinned {
 public:
  enum class Kind { pointer, array, mipmap };
  struct Held {
    Bytes size;
    CUcontext context = nullptr;
    Pinning* memory = nullptr;  // the accounting that counts this memory
  };
  void add(Kind kind, unsigned long long key, const Held& held);
  // Removes the entry of this memory, and returns the entry. Called before the driver frees the memory, since
  // the memory's handle may be reused afterwards. If the driver does not free the memory, the caller calls
  // add() again.
  std::optional<Held> take(Kind kind, unsigned long long key);
  // Removes the entries of all memory of a context, and returns these entries. Frees no memory.
  using All = std::map<std::pair<Kind, unsigned long long>, Held>;
  All take(CUcontext context);

 private:
  std::mutex mutex_;
  All held_;
};

Allocations& allocations();
Pinned& pinned();

}  // namespace sharedgpu::hooks
