// SPDX-License-Identifier: Apache-2.0
// Access of one device to the memory of another. For memory from the driver's own cuMemAlloc, peer access is
// given to a pair of contexts. Access to memory that cuMemMap has mapped, such as the interposer's memory,
// must be given to each device separately.
#include "interposer/hooks/peer.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "interposer/backlog/in_order.h"
#include "interposer/backlog/submission.h"
#include "interposer/driver/call.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/native.h"
#include "interposer/oversize/active.h"
#include "interposer/process/process.h"

using namespace sharedgpu;

namespace {

// The pairs of contexts for which the program has enabled peer access, and the pairs of devices to which
// open_to_peer() and open_to_current() have given access.
class Peers {
 public:
  void allow(CUcontext context, CUcontext peer) {
    Pair pair{context, peer, 0, 0};
    if (!locate(pair)) return;
    std::lock_guard lock(mutex_);
    add(pair);
  }
  void allow(CUdevice device, CUdevice owner) {
    std::lock_guard lock(mutex_);
    add({nullptr, nullptr, device, owner});
  }
  // Returns false if access was allowed already.
  bool allow_unless_allowed(CUdevice device, CUdevice owner) {
    std::lock_guard lock(mutex_);
    if (std::ranges::any_of(pairs_, Same{device, owner})) return false;
    add({nullptr, nullptr, device, owner});
    return true;
  }
  void forbid(CUcontext context, CUcontext peer) {
    Pair pair{context, peer, 0, 0};
    if (!locate(pair)) return;
    std::lock_guard lock(mutex_);
    std::erase_if(pairs_, [&](const Pair& each) { return each.context == context && each.peer == peer; });
    if (std::ranges::any_of(pairs_, Same{pair.device, pair.owner})) return;
    open(pair, false);
  }

 private:
  struct Pair {
    CUcontext context;  // null if the access is between devices, not contexts
    CUcontext peer;
    CUdevice device;  // the device of `context`
    CUdevice owner;   // the device of `peer`
  };
  struct Same {
    CUdevice device, owner;
    bool operator()(const Pair& each) const { return each.device == device && each.owner == owner; }
  };
  // Called with mutex_ held.
  void add(const Pair& pair) {
    pairs_.push_back(pair);
    open(pair, true);
  }
  static bool locate(Pair& pair) {
    const Process* mine = Process::get();
    return mine != nullptr && mine->contexts().device(pair.context, &pair.device) &&
           mine->contexts().device(pair.peer, &pair.owner);
  }
  // Gives work of `device` access to our memory on `owner`, or takes this access away.
  static void open(const Pair& pair, bool allowed) {
    if (auto* session = process::session_of(pair.owner)) session->set_peer(pair.device, allowed);
  }

  std::mutex mutex_;  // also held while open() gives or takes away access, so that the last change of pairs_
                      // takes effect last
  std::vector<Pair> pairs_;
};

Peers& peers() {
  static auto* made = new Peers;
  return *made;
}

// Makes a copy by calling `plain` or `peer`. `plain` makes the program's call. `peer` calls cuMemcpyPeer with
// a context of each device. It is called if the interposer has allocated the source and the destination on
// different devices. Without sharedgpu, CUDA copies memory of cuMemAlloc between devices even without peer
// access. Without access, mapped memory can be copied between devices only by cuMemcpyPeer.
template <class Plain, class Peer>
CUresult copy(CUdeviceptr to, CUdeviceptr from, CUstream stream, bool own, Plain plain, Peer peer) {
  const auto word = reinterpret_cast<backlog::StreamWord>(stream);
  std::optional<backlog::InOrder> in_order;
  if (oversize::is_active()) [[unlikely]]
    in_order.emplace(word, own);
  return hooks::copy_with_access([=] {
    backlog::Submission submission(word, own);
    const Process* mine = Process::get();
    if (mine == nullptr || mine->devices().memories().size() < 2) return plain();
    auto target = mine->devices().find(to);
    auto source = mine->devices().find(from);
    if (!target || !source || target->device == source->device) return plain();
    return peer(mine->contexts().any(target->device), mine->contexts().any(source->device));
  });
}

}  // namespace

void hooks::open_to_peer(CUdevice device, CUdevice owner) { peers().allow(device, owner); }

bool hooks::open_to_current() {
  CUdevice device = 0;
  if (process::memories().size() < 2 || SHAREDGPU_REAL(cuCtxGetDevice, &device) != CUDA_SUCCESS) return false;
  bool opened = false;
  for (const CUdevice owner : process::devices()) {
    int can = 0;
    if (owner == device || SHAREDGPU_REAL(cuDeviceCanAccessPeer, &can, device, owner) != CUDA_SUCCESS)
      continue;
    if (can != 0) opened |= peers().allow_unless_allowed(device, owner);
  }
  return opened;
}

SHAREDGPU_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  CUresult result = SHAREDGPU_REAL(cuCtxEnablePeerAccess, peer, flags);
  if (result == CUDA_SUCCESS) peers().allow(hooks::current_context(), peer);
  return result;
}

SHAREDGPU_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  CUresult result = SHAREDGPU_REAL(cuCtxDisablePeerAccess, peer);
  if (result == CUDA_SUCCESS) peers().forbid(hooks::current_context(), peer);
  return result;
}

// These macros define a copy function without a stream and one with a stream. `own` is true if stream 0 means
// the per-thread default stream.
#define COPY(name, own, peer_name)                                                                  \
  SHAREDGPU_EXPORT CUresult name(CUdeviceptr to, CUdeviceptr from, std::size_t size) {              \
    return copy(                                                                                    \
        to, from, nullptr, own, [=] { return SHAREDGPU_REAL(name, to, from, size); },               \
        [=](CUcontext a, CUcontext b) { return SHAREDGPU_REAL(peer_name, to, a, from, b, size); }); \
  }
#define COPY_ASYNC(name, own, peer_name)                                                                    \
  SHAREDGPU_EXPORT CUresult name(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream) {     \
    return copy(                                                                                            \
        to, from, stream, own, [=] { return SHAREDGPU_REAL(name, to, from, size, stream); },                \
        [=](CUcontext a, CUcontext b) { return SHAREDGPU_REAL(peer_name, to, a, from, b, size, stream); }); \
  }

COPY(cuMemcpy, false, cuMemcpyPeer)
COPY(cuMemcpy_ptds, true, cuMemcpyPeer_ptds)
COPY(cuMemcpyDtoD_v2, false, cuMemcpyPeer)
COPY(cuMemcpyDtoD_v2_ptds, true, cuMemcpyPeer_ptds)
COPY_ASYNC(cuMemcpyAsync, false, cuMemcpyPeerAsync)
COPY_ASYNC(cuMemcpyAsync_ptsz, true, cuMemcpyPeerAsync_ptsz)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, false, cuMemcpyPeerAsync)
COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, true, cuMemcpyPeerAsync_ptsz)
