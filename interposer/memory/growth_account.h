// SPDX-License-Identifier: Apache-2.0
// Growth of the footprint: it is counted first and then requested, and a refusal takes it back. Thread-safe.
#pragma once

#include <mutex>

#include "interposer/memory/swap_common.h"

namespace sharedgpu {

// A refusal of a growth that is only tried is not reported to the user.
enum class Wish { needed, tried };

class GrowthAccount {
 public:
  explicit GrowthAccount(SwapCommon& common) : common_(common) { read_host_limit(); }

  // Requests growth of one of the counts that use() reports. A refusal leaves them unchanged.
  bool request(Residency::Count count, Bytes size, Wish wish);
  void take_back(Residency::Count count, Bytes size);  // and reports
  // Held by the one thread that requests growth: its request already counts and may be refused, and must not
  // affect another request meanwhile. Taken before the common lock.
  std::unique_lock<std::mutex> one_at_a_time() { return std::unique_lock(requests_); }

  void set_context_size(Bytes size);
  // Reads the limits of the host memory again.
  void read_host_limit();
  MemoryUse use() const;
  Bytes job_host_limit() const;

 private:
  Books::Answer within_host_limit();

  SwapCommon& common_;
  std::mutex requests_;
  Bytes context_ GUARDED_BY(common_.mutex);
  Bytes host_limit_ GUARDED_BY(common_.mutex);      // as last read; zero if there is none
  Bytes job_host_limit_ GUARDED_BY(common_.mutex);  // the same
  Bytes within_limit_ GUARDED_BY(common_.mutex);    // the largest footprint known to be within the limit
};

}  // namespace sharedgpu
