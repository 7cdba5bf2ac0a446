// SPDX-License-Identifier: Apache-2.0
// The swap backend's mover. Eviction copies contents to pinned host memory and unmaps the physical memory;
// restore copies them to new physical memory at the same address.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "interposer/memory/host_pool.h"
#include "interposer/memory/mover.h"

namespace sharedgpu {

class SwapMover final : public Mover {
 public:
  SwapMover(Device& device, HostPool& pool, AwayBlocks& blocks)
      : device_(device), pool_(pool), blocks_(blocks) {}

  CUresult back(Handle& handle) override;
  CUresult unback(Handle& handle) override;
  void forget(Handle& handle) override;
  CUresult show(Handle& handle) override;
  CUresult hide(Handle& handle, View& view) override;
  bool settle() override;
  bool unsettled() const override {
    return std::any_of(unsettled_.begin(), unsettled_.end(), [](const auto& lane) { return lane.load(); });
  }
  bool look(std::span<Leaver> leavers) override;
  bool has_room(const Handle& handle) const override;
  bool needs_room(const Leaver& leaver) const override {
    return way_of(leaver) == Way::copied && !leaver.handle->has_copy();
  }
  Begun begin_out(const Leaver& leaver, Lane lane) override;
  bool end_out(Handle& handle, Lane lane) override;
  CUresult begin_in(Handle& handle, Lane lane) override;
  bool end_in(Handle& handle, Lane lane) override;
  Begun begin_leave(Handle& handle, Lane lane) override;
  bool end_leave(Handle& handle, Lane lane) override;
  bool begin_enter(Handle& handle, Lane lane) override;
  bool end_enter(Handle& handle, Lane lane) override;
  void free_spare() override;
  Bytes host_held() const override { return pool_.held(); }
  Bytes host_used() const override { return minus(pool_.used(), host_kept()); }
  Bytes host_kept() const override { return {kept_.load(std::memory_order_relaxed)}; }
  Traffic moved() const override {
    return {.evicted = {evicted_.load(std::memory_order_relaxed)},
            .restored = {restored_.load(std::memory_order_relaxed)}};
  }
  Eviction take_left() override { return std::exchange(left_, {}); }

 private:
  // How a handle is evicted. `empty`: the handle has no contents on the GPU. A handle without a fingerprint
  // is copied.
  enum class Way : std::uint8_t { empty, copied, unchanged, uniform };
  struct Leaving {
    Way way = Way::empty;
    HostRoom room;  // the destination of the copy
    std::optional<Fingerprint> seen;
  };
  // Device memory of a handle that has left, and the handle's size and kind.
  struct Spare {
    Physical physical = 0;
    Bytes size;
    std::optional<CUmemAllocationProp> kind;  // by value: the program may free its allocation meanwhile
  };
  static void note_change(Handle& handle, bool changed);
  static Way way_of(const Leaver& leaver);
  Begun begin_copy(Handle& handle, Lane lane);
  HostRoom take_host(Handle& handle);
  CUresult map(Handle& handle);
  CUresult map_away(Handle& handle);
  void give_block_back(Handle& handle);
  CUresult hide_all(Handle& handle);
  bool put(Handle& handle, Physical physical);
  bool put_block(Handle& handle);
  void undo_enter(Handle& handle, Lane lane);
  void give_back(Physical physical);
  CUresult take_memory(Physical* physical, const Handle& handle);
  bool settle(Lane lane);

  Device& device_;
  HostPool& pool_;
  AwayBlocks& blocks_;
  std::atomic<std::uint64_t> kept_{0};     // bytes of clean copies
  std::atomic<std::uint64_t> evicted_{0};  // bytes copied to the host so far
  std::atomic<std::uint64_t> restored_{0};
  std::array<std::atomic<bool>, Lane::kAll> unsettled_{};  // true: work of a failed operation may still be
                                                           // running on the lane

  // Used by the turn thread only.
  std::array<std::optional<AwayBlock>, Lane::kAll> targets_;  // the blocks to which contents are being
                                                              // copied
  std::array<Leaving, Lane::kAll> leaving_;
  std::vector<Spare> spare_;  // empty between exchanges
  Eviction left_;
};

}  // namespace sharedgpu
