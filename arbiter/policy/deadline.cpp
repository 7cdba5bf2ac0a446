// SPDX-License-Identifier: Apache-2.0
// deadline: the shares of elastic, where tenants with deadlines take from those of lower priority what they
// need (CudaMon, section 3.4). Each deadline that one misses halves the part of the time that each tenant of
// a lower priority may have; each that it meets gives them a hundredth of the time more, up to their own
// limit. So their part goes up and down about what leaves the deadlines met, as the congestion window of TCP.
//
// A part is a limit: who has had it waits, also while nobody uses the GPU, for it would be in the way of the
// next piece of work. Tenants with deadlines have the GPU for themselves while they run.
//
// Nobody starves: each keeps its own request at least, or a twentieth of the time where that is more, and
// waits no longer for that than elastic says. Who has told of no deadline for a while bounds nobody any more;
// see arbiter/core/deadlines.cpp.
#include <algorithm>
#include <cmath>

#include "arbiter/policy/elastic.h"

namespace sharedgpu {
namespace {

constexpr double kDecrease = 0.5;
constexpr double kIncrease = 0.01;
constexpr double kLeast = 0.05;

class Deadline final : public Elastic {
 public:
  std::string_view name() const override { return "deadline"; }

  bool rules_time(const Claims& claims) const override {
    return Elastic::rules_time(claims) || claims.deadline > Nanoseconds{};
  }

  double part_after(double part, const Claims& stated, const DeadlinesSeen& seen) const override {
    const double least = std::min(std::max(kLeast, stated.request), stated.limit);
    const double lowered = std::max(part * std::pow(kDecrease, static_cast<double>(seen.missed)), least);
    return std::clamp(lowered + kIncrease * static_cast<double>(seen.met), least, stated.limit);
  }
};

}  // namespace

std::unique_ptr<Policy> make_deadline() { return std::make_unique<Deadline>(); }

}  // namespace sharedgpu
