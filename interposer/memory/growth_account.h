// SPDX-License-Identifier: Apache-2.0
// Growth of the footprint. It is first counted and then requested; if it is refused, it is subtracted again.
// Thread-safe.
#pragma once

#include <mutex>

#include "interposer/memory/swap_common.h"

namespace sharedgpu {

// If growth is only tried, a refusal is not reported to the user.
enum class Wish { needed, tried };

class GrowthAccount {
 public:
  explicit GrowthAccount(SwapCommon& common) : common_(common) { read_host_limit(); }

  // Requests growth of one of the counts that use() reports. A refusal leaves them unchanged.
  bool request(Residency::Count count, Bytes size, Wish wish);
  void take_back(Residency::Count count, Bytes size);  // and reports
  // Held by the one thread that requests growth. Its request already counts, and may still be refused; no
  // other request may be judged before that is known. Taken before the common lock.
  std::unique_lock<std::mutex> one_at_a_time() { return std::unique_lock(requests_); }

  void set_context_size(Bytes size);
  // Reads the limits of the host memory again. Returns true if they have changed.
  bool read_host_limit();
  MemoryUse use() const;
  Bytes job_host_limit() const;

 private:
  Books::Answer within_host_limit();

  SwapCommon& common_;
  std::mutex requests_;
  Bytes context_ GUARDED_BY(common_.mutex);
  Bytes host_limit_ GUARDED_BY(common_.mutex);      // the limit as last read; zero if there is none
  Bytes job_host_limit_ GUARDED_BY(common_.mutex);  // the same
  Bytes within_limit_ GUARDED_BY(common_.mutex);    // the largest footprint known to be within the limit
};

}  // namespace sharedgpu
