// SPDX-License-Identifier: Apache-2.0
// Moves one handle between the GPU and the host. Eviction and restore each have two functions, which begin
// and end an asynchronous copy. After any failure the handle is in one of the states of handle.h, and no byte
// is lost.
//
// The caller has marked the handle as busy, and holds no lock. Only the thread that has called
// Device::enter() calls begin_out(), end_out(), begin_in() and end_in(). Each lane carries only one handle at
// a time.
#pragma once

#include <optional>
#include <span>

#include "interposer/memory/device.h"
#include "interposer/memory/handle.h"
#include "interposer/memory/memory.h"

namespace sharedgpu {

// A handle to evict, and the fingerprint of its contents if one was computed.
struct Leaver {
  Handle* handle = nullptr;
  std::optional<Fingerprint> seen;
};

class Mover {
 public:
  virtual ~Mover() = default;

  // Gives physical memory to a handle that has none. After a failure the handle has no physical memory, or
  // only inaccessible memory.
  virtual CUresult back(Handle& handle) = 0;
  // Unmaps and frees the physical memory of a handle. Contents that are not on the host are lost.
  virtual CUresult unback(Handle& handle) = 0;
  // Releases the host memory of the handle. Call it if the evicted contents or the clean copy in this memory
  // are not needed any more.
  virtual void forget(Handle& handle) = 0;
  // Maps the memory of an accessible handle at all of its views. After a failure, some of the views may not
  // be mapped.
  virtual CUresult show(Handle& handle) = 0;
  // Unmaps the view.
  virtual CUresult hide(Handle& handle, View& view) = 0;

  // Waits for copies that may still be running after a failure. Must return true before the first move of a
  // turn.
  virtual bool settle() = 0;
  // Returns true if a copy may still be running after a failure. Thread-safe.
  virtual bool unsettled() const = 0;

  // Computes fingerprints of handles that are to be evicted, of at most Device::kMostLooked bytes together. A
  // handle that gets no fingerprint is copied. Returns false if the kernel may still be reading the handles,
  // so that none of them may be evicted.
  virtual bool look(std::span<Leaver> /*leavers*/) { return true; }
  // Returns true if the handle can be evicted without more host memory.
  virtual bool has_room(const Handle& /*handle*/) const { return true; }

  // Returns true if the eviction of `leaver.handle` copies the contents, and the handle has no clean copy
  // whose host memory the eviction can use.
  virtual bool needs_room(const Leaver& /*leaver*/) const { return false; }

  // Eviction. begin_out() allocates host memory and starts the copy; end_out() releases the device memory
  // once the contents have arrived. If one of the two functions fails, the handle stays as it was, except
  // that it may lose its clean copy.
  enum class Begun { yes, no_room, failed };
  virtual Begun begin_out(const Leaver& leaver, Lane lane) = 0;
  virtual bool end_out(Handle& handle, Lane lane) = 0;

  // Restore. On failure the contents are still on the host.
  virtual CUresult begin_in(Handle& handle, Lane lane) = 0;
  virtual bool end_in(Handle& handle, Lane lane) = 0;

  // The handle leaves the window: its contents are copied to host memory, which then replaces the device
  // memory at the handle's addresses. begin_leave() allocates the host memory and starts the copy;
  // end_leave() exchanges the memory. The handle enters the window: begin_enter() replaces the host memory by
  // device memory and starts the copy; end_enter() waits for it. After a failure the handle is where it was.
  // No work may use the handle from begin to end. The caller keeps Handle::away and the counts up to date: it
  // sets `away` after end_leave() and before begin_enter(), and sets it back after a failure.
  virtual Begun begin_leave(Handle& /*handle*/, Lane /*lane*/) { return Begun::failed; }
  virtual bool end_leave(Handle& /*handle*/, Lane /*lane*/) { return false; }
  virtual bool begin_enter(Handle& /*handle*/, Lane /*lane*/) { return false; }
  virtual bool end_enter(Handle& /*handle*/, Lane /*lane*/) { return false; }
  // Ends an exchange: frees device memory that end_leave() has kept for handles that enter. Until then, no
  // count includes this memory (SwapCommon::has_spare).
  virtual void free_spare() {}

  // The bytes copied to the host, and back from the host, so far. Thread-safe.
  virtual Traffic moved() const { return {}; }
  // Returns the result of all evictions since the last call.
  virtual Eviction take_left() { return {}; }

  // host_held(): all host memory that the mover holds. host_used(): the part with evicted contents.
  // host_kept(): the part with clean copies. Thread-safe.
  virtual Bytes host_held() const = 0;
  virtual Bytes host_used() const = 0;
  virtual Bytes host_kept() const { return {}; }
};

}  // namespace sharedgpu
