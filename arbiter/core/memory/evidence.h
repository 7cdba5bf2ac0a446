// SPDX-License-Identifier: Apache-2.0
// The evidence for what a session claims of a GPU: the memory that surveys show of its process there.
//
// A survey is a moment older than the claims, and memory may be freed and taken while it looks. So a claim is
// doubted only if it is older than the survey before the last one, and neither of the two shows it. A session
// that surveys cannot tell of is believed. Pure; sizes in bytes.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "protocol/messages.h"
#include "protocol/units.h"

namespace sharedgpu {

// The memory that a session says it has.
struct Claimed {
  Bytes unevictable;  // pinned memory and contexts
  Bytes present;      // all that it says is on the GPU
  Bytes all;          // its whole footprint, on the GPU or not, and contexts
};

// The most that a session may have on the GPU, with what it may take at any moment.
struct Allowed {
  Bytes memory;
  Bytes context;  // as it says: nobody allows contexts

  void raise(const Allowed& other) {
    memory = std::max(memory, other.memory);
    context = std::max(context, other.context);
  }
};

class Evidence {
 public:
  // A survey shows `there`; `claimed` is what the session claims as the survey arrives. Amounts that differ
  // by less than `tolerance` and a sixteenth are the same: NVML counts in pages, and sizes of contexts are
  // guesses.
  void show(Bytes there, const Claimed& claimed, Bytes tolerance) {
    const Claimed held = shown_ ? held_by_both(claimed) : Claimed{};
    const Bytes seen = there + Bytes{there.count / 16} + tolerance;
    unevictable_.lacks(minus(held.unevictable, seen));
    present_.lacks(minus(held.present, seen));
    if (there != Bytes{})
      absences_ = 0;
    else if (held.all != Bytes{})
      absences_ = std::min(absences_ + 1, kAbsences);
    shown_ = there;
    claimed_ = claimed;
    untold_ = false;
  }
  // A survey cannot tell of it.
  void pass_over() {
    *this = {};
    untold_ = true;
  }
  // Nobody looks.
  void forget() { *this = {}; }

  // The memory of its process as the last survey shows it; none: it is not known.
  std::optional<Bytes> shown() const { return shown_; }
  // The part of a claim that is certain while surveys look: all of it where they cannot tell, and nothing
  // before the first one.
  Bytes certain(Bytes claim) const { return untold_ ? claim : std::min(claim, shown_.value_or(Bytes{})); }
  // The part of its unevictable memory that it does not have.
  Bytes doubted() const { return unevictable_.doubted; }
  // The part of all that it says is on the GPU that is not there.
  Bytes absent() const { return present_.doubted; }
  // Its process has no memory on the GPU, so it has no context and none of what it claims.
  bool nothing_there() const { return absences_ == kAbsences; }

 private:
  static constexpr unsigned kAbsences = 2;

  // An amount that both of the last two surveys speak for: the smaller one.
  struct Doubt {
    Bytes last;  // by the last survey alone
    Bytes doubted;
    void lacks(Bytes bytes) { doubted = std::min(bytes, std::exchange(last, bytes)); }
  };

  Claimed held_by_both(const Claimed& claimed) const {
    return {.unevictable = std::min(claimed_.unevictable, claimed.unevictable),
            .present = std::min(claimed_.present, claimed.present),
            .all = std::min(claimed_.all, claimed.all)};
  }

  std::optional<Bytes> shown_;
  bool untold_ = false;
  Claimed claimed_;  // when the last survey came
  Doubt unevictable_;
  Doubt present_;
  unsigned absences_ = 0;  // surveys in a row that show nothing of what is claimed
};

}  // namespace sharedgpu
