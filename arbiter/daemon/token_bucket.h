// SPDX-License-Identifier: Apache-2.0
// Limits how often something may happen, or how much of something is used: at most `most` times in a burst,
// and `a_second` times in a second on average.
//
// Pure. Not thread-safe.
#pragma once

#include <algorithm>
#include <map>

#include "protocol/units.h"

namespace sharedgpu {

class TokenBucket {
 public:
  TokenBucket(double most, double a_second) : most_(most), tokens_(most), a_second_(a_second) {}

  // Takes a token at `now`. Returns false, and takes nothing, if there is no token.
  bool take(Nanoseconds now) {
    tokens_ = at(now);
    looked_ = now;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

  // Charges `used` even if it exceeds the tokens. Returns the time until the debt is paid.
  Nanoseconds charge(double used, Nanoseconds now) {
    tokens_ = at(now) - used;
    looked_ = now;
    const std::chrono::duration<double> left(std::max(0.0, -tokens_) / a_second_);
    return std::chrono::duration_cast<Nanoseconds>(left);
  }

  // Returns true if the bucket is full, as if it had never been used.
  bool is_full(Nanoseconds now) const { return at(now) >= most_; }

 private:
  double at(Nanoseconds now) const {
    return std::min(most_, tokens_ + a_second_ * std::chrono::duration<double>(now - looked_).count());
  }

  double most_;
  double tokens_;
  double a_second_;
  Nanoseconds looked_{};
};

// One bucket for each key. A full bucket is removed, since a new bucket is also full.
template <class Key>
class TokenBuckets {
 public:
  TokenBuckets(double most, double a_second) : fresh_(most, a_second) {}

  bool take(const Key& key, Nanoseconds now) { return of(key, now).take(now); }
  Nanoseconds charge(const Key& key, double used, Nanoseconds now) { return of(key, now).charge(used, now); }
  // The number of buckets kept.
  std::size_t size() const { return buckets_.size(); }

 private:
  TokenBucket& of(const Key& key, Nanoseconds now) {
    forget_full(now);
    return buckets_.try_emplace(key, fresh_).first->second;
  }
  // Checks all buckets only when their number has doubled since the last check. So the average cost of a call
  // stays small even with many keys.
  void forget_full(Nanoseconds now) {
    if (buckets_.size() < look_at_) return;
    std::erase_if(buckets_, [now](const auto& entry) { return entry.second.is_full(now); });
    look_at_ = std::max(kMany, 2 * buckets_.size());
  }

  static constexpr std::size_t kMany = 1024;
  const TokenBucket fresh_;
  std::map<Key, TokenBucket> buckets_;
  std::size_t look_at_ = kMany;
};

}  // namespace sharedgpu
