// SPDX-License-Identifier: Apache-2.0
// Growth of the footprint. The interposer counts growth before it asks the arbiter. If the arbiter refuses,
// the interposer subtracts the growth again. Thread-safe.
#pragma once

#include <mutex>

#include "interposer/memory/swap_common.h"

namespace sharedgpu {

// With `tried`, the caller can do without the growth, so the user gets no message about a refusal.
enum class Wish { needed, tried };

class GrowthAccount {
 public:
  explicit GrowthAccount(SwapCommon& common) : common_(common) { read_host_limit(); }

  // Requests growth of one of the two counts of allocated memory. A refusal leaves the count unchanged.
  bool request(Residency::Count count, Bytes size, Wish wish);
  void take_back(Residency::Count count, Bytes size);  // subtracts `size` from the count, and reports the new
                                                       // use
  // The thread that requests growth holds this lock. Since requested amounts are counted before they are
  // granted, a request could otherwise be refused because of another thread's request. Taken before
  // SwapCommon::mutex.
  std::unique_lock<std::mutex> one_at_a_time() { return std::unique_lock(requests_); }

  // Counts host memory that the program creates with cuMemCreate, since no cgroup is charged for it.
  bool take_host(Bytes size);
  void give_host(Bytes size);

  void set_context_size(Bytes size);
  // Reads the limits of the host memory again. Returns true if the limits have changed.
  bool read_host_limit();
  ReportSource::Reading reading() const;
  Bytes uncharged() const;
  Bytes job_host_limit() const;

 private:
  Books::Answer ask();
  Books::Answer within_host_limit();
  Books::Answer within_host_room();
  bool has_host_room(Bytes size);
  bool open_window(Bytes size);
  void widen_window();
  bool shrink_window(Bytes size);

  SwapCommon& common_;
  std::mutex requests_;
  Bytes context_ GUARDED_BY(common_.mutex);
  Bytes host_ GUARDED_BY(common_.mutex);             // host memory that the program has created with
                                                     // cuMemCreate, except host_unreported_
  Bytes host_unreported_ GUARDED_BY(common_.mutex);  // such host memory that was created while the site did
                                                     // not permit away memory; never reported to the arbiter
  Bytes widening_ GUARDED_BY(common_.mutex);         // see ReportSource::Reading
  Bytes host_limit_ GUARDED_BY(common_.mutex);       // the limit on this process's host memory when it was
                                                     // last read; zero if there is none
  Bytes job_host_limit_ GUARDED_BY(common_.mutex);   // the limit that all steps of the job share, when it was
                                                     // last read; zero if there is none
  Bytes within_limit_ GUARDED_BY(common_.mutex);     // the largest value of Residency::swappable() known
                                                     // to be within host_limit_
};

}  // namespace sharedgpu
