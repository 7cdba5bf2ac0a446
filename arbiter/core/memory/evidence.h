// SPDX-License-Identifier: Apache-2.0
// Compares the memory that a session claims to have on a GPU with the memory that surveys show for its
// process.
//
// A survey is slightly older than the claims, and memory may be freed and allocated during the survey. So a
// claim is doubted only if it is older than the last two surveys and neither of them shows the memory.
// Between two surveys, evictable memory may leave the GPU and return. So a claim of evictable memory is
// disproved only if the session has claimed this memory during the whole time between the two surveys. If
// surveys cannot see the process of a session, the session's claims are believed. Pure; sizes in bytes.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "protocol/messages.h"
#include "protocol/units.h"

namespace sharedgpu {

// The memory that a session has, by its reports.
struct Claimed {
  Bytes unevictable;  // pinned memory and contexts
  Bytes present;      // all memory that the session reports as being on the GPU
  Bytes evictable;  // the evictable part of `present`; zero with the backend `managed`, whose memory surveys
                    // do not show
  Bytes all;        // the session's whole footprint, on the GPU or evicted, and its contexts
};

// The most memory that a session may have on the GPU, including memory that it may allocate at any moment.
struct Allowed {
  Bytes memory;
  Bytes context;  // as reported, since contexts need no grant

  void raise(const Allowed& other) {
    memory = std::max(memory, other.memory);
    context = std::max(context, other.context);
  }
};

class Evidence {
 public:
  // Call when a survey shows that the session's process has the memory `there` on the GPU; `claimed` are the
  // session's claims when the survey arrives. Claims that exceed `there` by less than `tolerance` plus a
  // sixteenth of `there` are not doubted: NVML counts in pages, and sizes of contexts are estimates.
  void show(Bytes there, const Claimed& claimed, Bytes tolerance) {
    const Claimed held = shown_ ? held_by_both(claimed) : Claimed{};
    const Bytes seen = there + Bytes{there.count / 16} + tolerance;
    unevictable_.lacks(minus(held.unevictable, seen));
    present_.lacks(minus(held.present, seen));
    evictable_.lacks(minus(held.evictable, seen));
    if (there != Bytes{})
      absences_ = 0;
    else if (held.all != Bytes{})
      absences_ = std::min(absences_ + 1, kAbsences);
    shown_ = there;
    claimed_ = claimed;
    untold_ = false;
  }
  // Call whenever the claims may have changed. `evictable` is the evictable memory that the session claims
  // now.
  void between_surveys(Bytes evictable) { claimed_.evictable = std::min(claimed_.evictable, evictable); }
  // Call if a survey could not see the session's process.
  void pass_over() {
    *this = {};
    untold_ = true;
  }
  // Call if a survey did not contain the GPU.
  void forget() { *this = {}; }

  // The memory of the session's process in the last survey; none if unknown.
  std::optional<Bytes> shown() const { return shown_; }
  // The certain part of a claim: at most the memory that the last survey shows, and nothing before the first
  // survey. If surveys cannot see the session's process, the whole claim counts as certain.
  Bytes certain(Bytes claim) const { return untold_ ? claim : std::min(claim, shown_.value_or(Bytes{})); }
  // The part of the session's claimed unevictable memory that surveys contradict.
  Bytes doubted() const { return unevictable_.doubted; }
  // The part of the reported memory on the GPU that surveys contradict.
  Bytes absent() const { return present_.doubted; }
  // The part of absent() that is certainly not on the GPU: evictable memory that the session reports beyond
  // all memory that surveys show for its process. The rest of absent() may be pinned memory.
  Bytes disproved() const { return evictable_.doubted; }
  // Returns true if surveys show no memory of the session's process on the GPU: no context, and none of the
  // memory that the session claims.
  bool nothing_there() const { return absences_ == kAbsences; }

 private:
  static constexpr unsigned kAbsences = 2;

  // Claimed memory that was missing in both of the last two surveys: the smaller of the two missing amounts.
  struct Doubt {
    Bytes last;  // the amount that was missing in the last survey
    Bytes doubted;
    void lacks(Bytes bytes) { doubted = std::min(bytes, std::exchange(last, bytes)); }
  };

  Claimed held_by_both(const Claimed& claimed) const {
    return {.unevictable = std::min(claimed_.unevictable, claimed.unevictable),
            .present = std::min(claimed_.present, claimed.present),
            .evictable = std::min(claimed_.evictable, claimed.evictable),
            .all = std::min(claimed_.all, claimed.all)};
  }

  std::optional<Bytes> shown_;
  bool untold_ = false;
  Claimed claimed_;  // the claims at the last survey; `evictable` is the least claim since then
  Doubt unevictable_;
  Doubt present_;
  Doubt evictable_;
  unsigned absences_ = 0;  // number of consecutive surveys that show none of the claimed memory
};

}  // namespace sharedgpu
