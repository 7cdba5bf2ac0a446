// SPDX-License-Identifier: Apache-2.0
// Exchanges handles of an oversized process between the window and host memory. Both directions run at the
// same time. Implements AwayMemory. Used with both movers: managed memory keeps its addresses and its
// driver's pages, and moves while the program's work goes on.
#pragma once

#include <set>

#include "interposer/memory/away_memory.h"
#include "interposer/memory/swap_common.h"

namespace sharedgpu {

class SwapExchange final : public AwayMemory {
 public:
  explicit SwapExchange(SwapCommon& common) : common_(common) {}

  std::vector<AwayHandle> operands(CUdeviceptr address) override;
  std::vector<AwayHandle> within(CUdeviceptr address, Bytes size) const override;
  std::vector<AwayHandle> handles() const override;
  Bytes window() const override;
  Bytes room() const override;
  Bytes growth(Nanoseconds now) const override;
  Bytes excess() const override;
  bool moves_beside_work() const override { return common_.mover->moves_beside_work(); }
  using AwayMemory::exchange;
  bool exchange(const std::vector<CUdeviceptr>& out, const std::vector<CUdeviceptr>& in,
                const std::function<bool()>& stop) override;
  void schedule(const std::vector<CUdeviceptr>& handles) override;
  void cancel(const std::vector<CUdeviceptr>& handles) override;
  void wait_for(const std::vector<CUdeviceptr>& handles, Nanoseconds patience) override;
  // Maintenance, about once a second: releases host memory that exchanges do not need.
  void tend();
  // Maintenance, several times a second: makes the host memory of one handle for which it is only promised.
  // The turn thread waits for it, which takes some milliseconds.
  void keep_promise();

 private:
  // Some of the program's addresses that lie in one range: `begin` is where they lie as an address of the
  // range.
  struct Span {
    const Range* range = nullptr;
    CUdeviceptr begin = 0;
    Bytes size;
  };
  std::vector<Span> extent(CUdeviceptr address) REQUIRES(common_.mutex);
  void add_handles(const Span& span, std::vector<AwayHandle>& found) const REQUIRES(common_.mutex);
  bool is_moving(const Handle& handle) const REQUIRES(common_.mutex) {
    return handle.busy || scheduled_.contains(handle.address);
  }
  // The handle does not take part in the exchange any more.
  void done(CUdeviceptr address) REQUIRES(common_.mutex);
  Handle* claim(CUdeviceptr address, bool away) REQUIRES(common_.mutex);
  bool begin_leave(CUdeviceptr address, Lane lane, Handle** begun) REQUIRES(common_.mutex);
  bool begin_enter(CUdeviceptr address, Lane lane, Handle** begun) REQUIRES(common_.mutex);
  bool end_leave(Handle& handle, Lane lane) REQUIRES(common_.mutex);
  bool end_enter(Handle& handle, Lane lane) REQUIRES(common_.mutex);
  void keep_away(Handle& handle) REQUIRES(common_.mutex);
  bool in_window(CUdeviceptr address) REQUIRES(common_.mutex);

  SwapCommon& common_;
  std::set<CUdeviceptr> scheduled_
      GUARDED_BY(common_.mutex);  // handles of the exchange that is being made, or announced
};

}  // namespace sharedgpu
