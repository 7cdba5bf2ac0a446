// SPDX-License-Identifier: Apache-2.0
// Exchanges handles of an oversized process between the window and host memory. Both directions run at the
// same time. Implements AwayMemory.
#pragma once

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
  Bytes growth(Bytes device, Nanoseconds now) const override;
  Bytes excess() const override;
  bool exchange(const std::vector<CUdeviceptr>& out, const std::vector<CUdeviceptr>& in) override;
  // Maintenance, about once a second: releases host memory that exchanges do not need.
  void tend();

 private:
  // A part of the program's memory that lies in one range. `begin` is its address in the range. The program
  // may use another address: that of its own mapping.
  struct Span {
    const Range* range = nullptr;
    CUdeviceptr begin = 0;
    Bytes size;
  };
  std::vector<Span> extent(CUdeviceptr address) REQUIRES(common_.mutex);
  static void add_handles(const Span& span, std::vector<AwayHandle>& found);
  Handle* claim(CUdeviceptr address, bool away) REQUIRES(common_.mutex);
  bool begin_leave(CUdeviceptr address, Lane lane, Handle** begun) REQUIRES(common_.mutex);
  bool begin_enter(CUdeviceptr address, Lane lane, Handle** begun) REQUIRES(common_.mutex);
  bool end_leave(Handle& handle, Lane lane) REQUIRES(common_.mutex);
  bool end_enter(Handle& handle, Lane lane) REQUIRES(common_.mutex);
  void keep_away(Handle& handle) REQUIRES(common_.mutex);
  bool in_window(CUdeviceptr address) REQUIRES(common_.mutex);

  SwapCommon& common_;
};

}  // namespace sharedgpu
