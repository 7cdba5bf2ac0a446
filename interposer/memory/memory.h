// SPDX-License-Identifier: Apache-2.0
// The device memory of one process on one GPU, as a backend implements it.
//
// An allocation keeps its address range until it is freed. Its handles have device memory only while they are
// neither evicted nor away. Other parts of the interposer use the memory through four interfaces: the
// wrappers of driver calls use Allocator and Pinning, the service thread uses ReportSource, the turn thread
// uses TurnMemory. evict() is called only while the gate is closed and every context is drained. restore()
// may also be called during a turn, while work of the process runs. All functions return driver error codes
// and never throw. No function waits for the arbiter while it holds a lock that evict() needs.
#pragma once

#include <cuda.h>

#include <optional>
#include <vector>

#include "interposer/memory/away_memory.h"
#include "interposer/memory/program_memory.h"
#include "protocol/messages.h"

namespace sharedgpu {

// The session's functions that the memory backends call. The session passes the memory's requests and reports
// to the arbiter, and knows whether a stream is being captured. Callers must hold none of the memory's locks.
//
// The service thread calls use() or reading() at the moment when it sends a message. So no message reports an
// older state than the message before it, and the last message reports the newest state.
class Books {
 public:
  struct Answer {
    bool granted = false;  // false: the program gets CUDA_ERROR_OUT_OF_MEMORY
    Bytes host_most = {};  // after a refusal for lack of host memory: the most evicted data that host memory
                           // could hold; otherwise zero
    bool lost = false;     // true: the arbiter is lost, and `granted` is set although no arbiter has answered
  };
  virtual ~Books() = default;
  // Requests a growth that reading() already counts; if the arbiter refuses, the caller undoes the growth.
  // Blocks until the arbiter answers or is lost. If the arbiter is lost, the function returns as if the
  // growth was granted, and only the driver limits the program's memory; the session reports the growth when
  // an arbiter answers again. Before this function returns, set_allowed() has been called with the resident
  // limit that the arbiter has sent.
  virtual Answer grow() = 0;
  // Returns true if the site permits programs larger than the GPU. Memory that the GPU cannot hold is then
  // away (handle.h).
  virtual bool may_be_oversized() { return false; }
  // Called when the process becomes oversized, for the first time or again, and before make_room().
  virtual void went_oversized() {}
  // Called after went_oversized(). Moves handles out of the window until AwayMemory::excess() is zero. May
  // wait for the process's turn, and for the process's work on the GPU. Returns false if not enough handles
  // could leave.
  virtual bool make_room() { return false; }
  // Requests a growth that has already happened and cannot be undone, so the function does not wait for the
  // answer.
  virtual void claim() {}
  // Tells the user why an allocation of the program is refused. The message states the option that would
  // permit the allocation, or that no option permits it. May ask the arbiter.
  struct Refusal {
    Bytes size;           // size of the refused allocation
    Bytes host_most;      // `host_most` of the Answer that refused the growth
    Bytes host_used;      // host memory that the job uses now, for its own data and for evicted data
    bool pinned = false;  // the memory could not be evicted, so a limit on host memory is not the reason
  };
  virtual void refused(const Refusal&) {}
  // Reports the present use(): after shrinking, after a change of the contexts' size, and during evict() and
  // restore(). Does not wait for an answer. `stuck`: an eviction has failed.
  virtual void report(bool stuck) = 0;
  // Returns true if a stream of this process is being captured. No thread of the interposer may then
  // synchronize.
  virtual bool capturing() = 0;
  // Returns true if the GPU has certainly finished all work of this process. Does not wait.
  virtual bool idle() = 0;
  // Called when the allocation at `base` is being freed; from now on no other process can open the
  // allocation. Returns true if another process still has the allocation open: the caller then keeps the
  // memory, and calls this function again later.
  virtual bool still_lent(CUdeviceptr /*base*/) { return false; }
};

// A limit beyond the memory of any GPU (64 TiB). Sums of sizes below this limit cannot overflow, and the
// arbiter does not reject them as implausible.
inline constexpr Bytes kLargestAllocation{1ull << 46};

struct AddressRange {
  CUdeviceptr base = 0;
  Bytes size;  // the size that the program requested
};

// A part of an exported allocation: one piece of physical memory, with a descriptor by which another process
// can map it.
struct Piece {
  int descriptor = -1;  // the caller must close it
  Bytes size;
  Bytes offset;        // offset of the allocation in its first piece
  Bytes total;         // total size of all pieces
  unsigned count = 0;  // number of the allocation's pieces
};

// The result of one evict() for the contents of the evicted handles.
struct Eviction {
  Bytes copied;
  Bytes unchanged;       // not copied, since host memory has a valid copy
  Bytes uniform;         // not copied, since all words are equal and one word suffices
  bool no_room = false;  // true: some handles stayed on the GPU for lack of host memory
};

// The destruction of a context, which the driver may refuse.
class Destruction {
 public:
  explicit Destruction(CUcontext context) : context_(context) {}
  virtual ~Destruction() = default;
  virtual CUresult carry_out() = 0;
  CUcontext context() const { return context_; }

 private:
  const CUcontext context_;
};

// Allocations of the program. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;

  // Allocates `size` > 0 bytes, aligned as by cuMemAlloc (at least 512 bytes). If the session holds the lease
  // and the resident limit is large enough, the memory is backed with physical memory when this function
  // returns; otherwise the next restore() backs it.
  virtual CUresult allocate(CUdeviceptr* address, Bytes size) = 0;
  // Frees memory from allocate(). Waits for the GPU as cuMemFree does. During a stream capture, does not
  // wait: the memory is released later, when the GPU is idle, a turn ends, or memory is short. Memory that
  // another process has open is released later, too. Returns CUDA_ERROR_INVALID_VALUE if the memory has been
  // freed already but is not yet released, nullopt if the backend has no allocation at `address`.
  virtual std::optional<CUresult> free(CUdeviceptr address) = 0;
  // Does the same as free() for memory that no GPU work uses, but does not wait. If the driver would wait for
  // the GPU, the memory is released later.
  virtual std::optional<CUresult> free_unused(CUdeviceptr address) = 0;
  // Returns true if free_unused() always releases memory later.
  virtual bool frees_late() const { return false; }
  // Carries out the destruction of the context in which `blocks` were allocated. If the destruction succeeds,
  // the blocks are freed; otherwise they are unchanged.
  virtual CUresult free_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks) = 0;
  // Returns true if the driver frees a context's allocations when it destroys the context.
  virtual bool goes_with_contexts() const { return false; }
  // Returns true if the interposer serves the program's memory pools (cuMemPool) from this memory, false if
  // the driver serves them.
  virtual bool serves_pools() const { return true; }
  // Returns the allocation that contains `address`; nullopt if no allocation of the interposer contains it.
  virtual std::optional<AddressRange> find(CUdeviceptr address) const = 0;
};

// Memory that does not leave the GPU. Thread-safe.
class Pinning {
 public:
  virtual ~Pinning() = default;

  // pin() and unpin() count growth and shrinking of pinned memory on this GPU: arrays, pools, and memory of
  // cuMemCreate that cannot be swapped. pin() first asks the arbiter. It fails if the arbiter refuses, or if
  // the pinned memory would exceed kLargestAllocation.
  virtual CUresult pin(Bytes size) = 0;
  virtual void unpin(Bytes size) = 0;
  // Counts and reports growth that has already happened; does not wait.
  virtual void pin_unasked(Bytes /*size*/) {}

  // take_host() counts host memory that the program is about to create with cuMemCreate, since no cgroup is
  // charged for it. give_host() subtracts it when the program frees it. take_host() fails if the job's host
  // memory has no room.
  virtual CUresult take_host(Bytes /*size*/) { return CUDA_SUCCESS; }
  virtual void give_host(Bytes /*size*/) {}

  // Pins in place the memory that holds the `size` bytes at `address`: the memory stays where it is until it
  // is freed, and counts as pinned. The bytes must lie in one allocation, or in one mapping that the program
  // has made itself. Waits for the arbiter. If the backend never moves memory, does nothing and returns
  // CUDA_SUCCESS. Returns CUDA_ERROR_NOT_READY if a part of the memory is not on the GPU, or if to_merge()
  // returns a range. Returns CUDA_ERROR_OUT_OF_MEMORY if the arbiter refuses to pin this amount,
  // CUDA_ERROR_INVALID_VALUE if the bytes do not lie in one allocation or mapping, and
  // CUDA_ERROR_NOT_SUPPORTED if the backend cannot pin memory in place.
  virtual CUresult settle(CUdeviceptr /*address*/, Bytes /*size*/) { return CUDA_SUCCESS; }
  // The range around `address` that must become one handle before settle() can pin a part of it; nullopt if
  // there is none. Only memory that the program has created for export must be one handle.
  // TurnMemory::merge() makes the range one handle.
  virtual std::optional<AddressRange> to_merge(CUdeviceptr /*address*/) const { return std::nullopt; }
  // Returns true if export_piece() is supported.
  virtual bool exportable() const { return false; }
  // Exports a piece of the allocation at `base`, which must be pinned in place as a whole.
  virtual CUresult export_piece(CUdeviceptr /*base*/, unsigned /*index*/, Piece* /*piece*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
};

// The memory figures that the session reports to the arbiter. Thread-safe; never waits for the GPU.
class ReportSource {
 public:
  virtual ~ReportSource() = default;
  virtual MemoryUse use() const = 0;
  // The same as use().host_limit, but computed from the host memory limits that all steps of the job share.
  virtual Bytes job_host_limit() const { return {}; }
  struct Reading {
    MemoryUse use;
    // Not a part of `use`: the allocated bytes beyond the window (residency.h), and the bytes of host memory
    // that the program has created with cuMemCreate.
    Bytes beyond;
    // The part of use.swappable by which the process asks to widen its window. This part stays beyond the
    // window if the arbiter refuses it.
    Bytes widening;
  };
  virtual Reading reading() const { return {.use = use(), .beyond = {}, .widening = {}}; }
  // The host memory of this process for which no cgroup is charged; zero if the site does not permit away
  // memory.
  virtual Bytes uncharged() const { return {}; }
  // The bytes that evict(), restore() and exchanges have copied so far.
  virtual Traffic moved() const { return {}; }
};

// Eviction and restore. Only the turn thread calls these functions, unless the comment of a function says
// otherwise.
class TurnMemory {
 public:
  virtual ~TurnMemory() = default;

  // Sets the resident limit, which the arbiter sends with Verdict, Restore, Step and Evict. Thread-safe, even
  // during evict() and restore(), which use the newest value. allowed() is thread-safe, too.
  virtual void set_allowed(Bytes allowed) = 0;
  virtual Bytes allowed() const = 0;

  // Evicts handles, least recently used first, until at most allowed() bytes are resident. If more memory has
  // to stay on the GPU, returns false, and reports `stuck` to the arbiter unless the process is ending. Never
  // loses contents.
  virtual bool evict() = 0;
  // The result of the last evict().
  virtual Eviction last_eviction() const { return {}; }
  // Restores as much memory as allowed() permits, and reports the new use if it has changed. Returns true if
  // all of the process's memory, except away memory, is resident, or if the device is lost. On a lost device
  // no work can run, use() counts only resident memory, and the program gets the driver's error. Returns
  // false if allowed() is too small, or if the driver has failed, for example because it has not yet freed
  // the memory of other tenants. In the second case, fewer than allowed() bytes are resident although the
  // footprint is larger, and the caller tries again soon.
  virtual bool restore() = 0;
  // Makes the range that to_merge() returns for `address` one handle, at the same addresses and with the same
  // contents. Meanwhile, needs host memory for all contents of the range. No work of the process may be
  // running. Returns CUDA_SUCCESS if nothing is left to merge, CUDA_ERROR_NOT_READY if a part of the memory
  // is not on the GPU, and otherwise an error. After an error some memory may be evicted; restore() brings it
  // back.
  virtual CUresult merge(CUdeviceptr /*address*/) { return CUDA_SUCCESS; }
  // Prepares for evictions that need `size` bytes of host memory at once. Up to `sharers` sessions of the
  // job, this one included, may allocate host memory at the same time. Thread-safe; does not wait.
  virtual void prepare_host(Bytes /*size*/, unsigned /*sharers*/) {}
  // Maintenance, several times a second, whether the gate is open or closed: carries out deferred frees if
  // the GPU is idle.
  virtual void tend_freed() {}
  // Maintenance, about once a second: releases unused host memory, if no eviction is expected to need it or
  // if the job runs short of host memory.
  virtual void tend() = 0;
  // Maintenance, several times a second: if the job runs short of host memory, releases at once all host
  // memory that can be released. Returns true if the released memory is not enough, so that evicted memory
  // has to be restored before the Linux kernel kills the job.
  virtual bool watch_host() { return false; }
};

// All four interfaces together. Code that needs only one of the interfaces should take only that interface.
class Memory : public Allocator, public Pinning, public ReportSource, public TurnMemory {
 public:
  // Sets the size of the process's contexts on this GPU, which use() reports. Thread-safe, as are the other
  // functions that this class adds.
  virtual void set_context_size(Bytes size) = 0;
  // Called when another device has got access to this memory. Updates the access rights of all mapped memory.
  virtual void renew_access() {}
  // The bytes that the program has freed, and that the interposer has not released yet. The interposer
  // releases them when memory is short.
  virtual Bytes due() const { return {}; }
  // The interface for physical memory that the program creates itself; null if the program's calls go to the
  // driver.
  virtual ProgramMemory* program_memory() { return nullptr; }
  // The interface for memory beyond the window; null if the backend cannot be oversized.
  virtual AwayMemory* away_memory() { return nullptr; }
};

}  // namespace sharedgpu
