// SPDX-License-Identifier: Apache-2.0
// The device memory of one process on one GPU, as a backend gives it.
//
// An allocation's address range lives as long as the allocation; the physical handles under it come and go.
// Its users know it by four interfaces: the wrappers an Allocator and Pinning, the sender of messages a
// ReportSource, the turn thread TurnMemory. evict() and restore() are called only while the gate is closed
// and every context is drained. All functions return driver error codes; nothing throws, nothing blocks on
// the arbiter while it holds a lock that evict() needs.
#pragma once

#include <cuda.h>

#include <optional>
#include <vector>

#include "interposer/memory/program_memory.h"
#include "protocol/messages.h"

namespace sharedgpu {

// What the memory needs of the session: the arbiter's leave to grow, a place to report, and whether a stream
// is being captured. Called without any lock of the memory held.
//
// The session sends what use() says at the moment it sends, read under its own send lock: so the last message
// sent is the newest state, and no older number overtakes a newer one.
class Books {
 public:
  struct Answer {
    bool granted = false;  // false: CUDA_ERROR_OUT_OF_MEMORY
    Bytes host_most = {};  // refused since host memory can never hold more of what is evicted; zero: not so
  };
  virtual ~Books() = default;
  // Asks leave for a growth that use() counts already; if it is refused, the memory takes it back. Blocks
  // until the arbiter answers or is gone (then granted: plain CUDA's own limit decides). The arbiter's
  // `allowed` reaches the memory by set_allowed() before this returns.
  virtual Answer grow() = 0;
  // The same for a growth that nobody can take back: does not wait for the answer.
  virtual void claim() {}
  // The program is not to have what it asked for, `wanted` together with what it has, since host memory can
  // never hold more than `most` of what is evicted.
  virtual void refused_by_host(Bytes /*most*/, Bytes /*wanted*/) {}
  // Tells of shrinking and of progress in evict() and restore(). Never blocks for an answer.
  virtual void report(bool stuck) = 0;
  // Whether a stream of this process is being captured now: then nothing may synchronize.
  virtual bool capturing() = 0;
  // Whether the GPU has done all that this process gave it. Never waits; where it cannot be known, no.
  virtual bool idle() = 0;
  // The allocation at `base` is being freed: nobody else gets at it from now on. Whether another process
  // still has it open; then its memory stays, and is asked for again later.
  virtual bool still_lent(CUdeviceptr /*base*/) { return false; }
};

// No GPU has as much; sums of sizes stay far from wrapping, and from what the arbiter takes for nonsense.
inline constexpr Bytes kLargestAllocation{1ull << 46};

struct AddressRange {
  CUdeviceptr base = 0;
  Bytes size;  // as the program asked for it
};

// A part of an allocation that another process can map.
struct Piece {
  int descriptor = -1;  // the caller's to close
  Bytes size;
  Bytes offset;        // of the allocation in its first piece
  Bytes total;         // of all its pieces
  unsigned count = 0;  // of the allocation's pieces
};

// What an eviction did with contents.
struct Eviction {
  Bytes copied;
  Bytes unchanged;       // the host still had them
  Bytes uniform;         // one word says them
  bool no_room = false;  // some stayed, since there was no host memory for it
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

// Allocations of the program. From any thread.
class Allocator {
 public:
  virtual ~Allocator() = default;

  // Allocates `size` > 0 bytes, aligned as cuMemAlloc aligns (at least 512 bytes). Physical memory is there
  // on return where the lease is held and `allowed` has room; else it comes with the next restore().
  virtual CUresult allocate(CUdeviceptr* address, Bytes size) = 0;
  // Frees what allocate() gave: waits for the GPU as cuMemFree does, but never during a stream capture. Then
  // the memory goes back when the GPU is idle, a turn ends, or memory is short. CUDA_ERROR_INVALID_VALUE: it
  // has been freed. nullopt: not ours.
  virtual std::optional<CUresult> free(CUdeviceptr address) = 0;
  // The same for memory that no work uses any more: waits for nothing. Where the driver would wait, the
  // memory goes back later too.
  virtual std::optional<CUresult> free_unused(CUdeviceptr address) = 0;
  // Whether that always is so.
  virtual bool frees_late() const { return false; }
  // Carries out the destruction of the context in which `blocks` were allocated. They are freed where it
  // succeeds, and else as they were.
  virtual CUresult free_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks) = 0;
  // Whether the driver takes what was allocated in a context when it destroys that.
  virtual bool goes_with_contexts() const { return false; }
  // Whether the program's pools get their memory here; else they are left to the driver.
  virtual bool serves_pools() const { return true; }
  // The allocation that `address` lies in; nullopt: not ours.
  virtual std::optional<AddressRange> find(CUdeviceptr address) const = 0;
};

// Memory that does not leave the GPU. From any thread.
class Pinning {
 public:
  virtual ~Pinning() = default;

  // Device memory that is not swappable grew or shrank by this much on this GPU (arrays, pools, the program's
  // own VMM). Growth asks the arbiter first and may be refused; it is where all would be more than
  // kLargestAllocation.
  virtual CUresult pin(Bytes size) = 0;
  virtual void unpin(Bytes size) = 0;
  // The same growth where it has happened already: tells of it, and waits for nothing.
  virtual void pin_unasked(Bytes /*size*/) {}

  // What lies under this part of an allocation, or of what the program has mapped itself, stays where it is
  // until it is freed, and counts as pinned.
  // CUDA_ERROR_NOT_READY: not all of it is on the GPU now; it is in the next turn. CUDA_ERROR_OUT_OF_MEMORY:
  // so much may not be pinned. CUDA_ERROR_INVALID_VALUE: not in one of them. Waits for the arbiter.
  // CUDA_SUCCESS where nothing moves.
  virtual CUresult settle(CUdeviceptr /*address*/, Bytes /*size*/) { return CUDA_SUCCESS; }
  // Whether export_piece() may be asked at all.
  virtual bool exportable() const { return false; }
  // Exports a piece of the allocation at `base`, all of which has been settled.
  virtual CUresult export_piece(CUdeviceptr /*base*/, unsigned /*index*/, Piece* /*piece*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
};

// The figures that the arbiter is told. Safe from any thread, the sender of a message included; never waits
// for the GPU.
class ReportSource {
 public:
  virtual ~ReportSource() = default;
  virtual MemoryUse use() const = 0;
  // As use().host_limit, of what all steps of the job have together.
  virtual Bytes job_host_limit() const { return {}; }
  // The bytes that evict() and restore() have copied so far.
  virtual Traffic moved() const { return {}; }
};

// Eviction and restore. For the turn thread, unless a function says otherwise.
class TurnMemory {
 public:
  virtual ~TurnMemory() = default;

  // How much may be resident from now on (Verdict, Restore, Evict). From any thread, also in evict() and
  // restore(), which go by the newest.
  virtual void set_allowed(Bytes allowed) = 0;
  virtual Bytes allowed() const = 0;

  // Evicts, least recently used first, until at most allowed() is resident. True: done. False: some had to
  // stay (reported as stuck); not a byte is lost either way.
  virtual bool evict() = 0;
  // The last evict() did this.
  virtual Eviction last_eviction() const { return {}; }
  // Makes resident as much as allowed() lets in, and reports if that changed anything. True: all of the
  // process's memory is resident, or the device is lost: then no work will ever find anything, use() tells of
  // no more than is resident, and the program is to meet the driver's error. False: allowed() is too little,
  // or the driver has not yet freed what others gave up: then, where resident < allowed() and the footprint
  // is larger, the caller tries again soon.
  virtual bool restore() = 0;
  // So much host memory may be needed at once; so many sessions of the job, this one included, may take some
  // at the same time. From any thread; waits for nothing.
  virtual void prepare_host(Bytes /*size*/, unsigned /*sharers*/) {}
  // Several times a second, the gate open or closed: frees what was to be freed later, where the GPU is idle.
  virtual void tend_freed() {}
  // The same, every second or so: gives idle host memory back that is not expected to be needed, or when the
  // job runs short of it.
  virtual void tend() = 0;
  // The same several times a second: gives back at once what host memory can go, where the job runs short of
  // it. True: that is not enough, and what was evicted has to come back before the job is ended for it.
  virtual bool watch_host() { return false; }
};

// All of it. Who uses a part of it takes one of the four.
class Memory : public Allocator, public Pinning, public ReportSource, public TurnMemory {
 public:
  // The contexts of the GPU take so much. From any thread, as the rest here.
  virtual void set_context_size(Bytes size) = 0;
  // The device lets others at its memory since: gives access anew to all that is mapped.
  virtual void renew_access() {}
  // The part of the footprint that the program has freed, and gets back where memory is short.
  virtual Bytes due() const { return {}; }
  // For the physical memory that the program makes itself; null: that is left to the driver.
  virtual ProgramMemory* program_memory() { return nullptr; }
};

}  // namespace sharedgpu
