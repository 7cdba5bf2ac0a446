// SPDX-License-Identifier: Apache-2.0
// Blocks that the program has freed and whose memory is released later. Guarded by SwapCommon::mutex.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

class DeferredFrees {
 public:
  struct Entry {
    CUdeviceptr address = 0;
    CUcontext context = nullptr;  // if not null, the driver frees the memory when it destroys this context
    Bytes due;                    // bytes that the free will release if no other process uses the memory
    std::uint64_t number = 0;
    bool taken = false;  // a thread is freeing the block now
  };

  void add(CUdeviceptr address, CUcontext context, Bytes due) {
    all_.push_back({.address = address, .context = context, .due = due, .number = ++last_});
  }
  bool empty() const { return all_.empty(); }
  Bytes due() const {
    Bytes sum;
    for (const Entry& each : all_) sum += each.due;
    return sum;
  }

  // The number of the entry that was added last.
  std::uint64_t last() const { return last_; }
  // Returns the entries whose number is at most `last`, except the entries that a thread is already freeing.
  // Only the caller may free the returned entries, until it calls done().
  std::vector<Entry> take(std::uint64_t last) {
    std::vector<Entry> taken;
    for (Entry& each : all_)
      if (each.number <= last && !std::exchange(each.taken, true)) taken.push_back(each);
    return taken;
  }
  void done(const Entry& entry, bool freed) {
    const auto its = std::ranges::find(all_, entry.number, &Entry::number);
    if (freed)
      all_.erase(its);
    else
      its->taken = false;
  }

  // Returns true if a thread is freeing memory of this context.
  bool any_taken(CUcontext context) const {
    return std::ranges::any_of(all_,
                               [=](const Entry& each) { return each.context == context && each.taken; });
  }
  // take_out() removes all entries of the context; put_back() adds them again.
  std::vector<Entry> take_out(CUcontext context) {
    std::vector<Entry> its;
    const auto is_its = [=](const Entry& each) { return each.context == context; };
    std::ranges::copy_if(all_, std::back_inserter(its), is_its);
    std::erase_if(all_, is_its);
    return its;
  }
  void put_back(const std::vector<Entry>& entries) {
    all_.insert(all_.end(), entries.begin(), entries.end());
  }

 private:
  std::vector<Entry> all_;
  std::uint64_t last_ = 0;
};

}  // namespace sharedgpu
