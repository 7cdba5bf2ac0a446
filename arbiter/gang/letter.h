// SPDX-License-Identifier: Apache-2.0
// The letters of arbiters to each other: reports of members to the coordinator of a gang, its questions to
// nodes that it has not heard, and its orders.
//
// A letter is one datagram of text. It may be lost, come late or come twice: reports and orders are whole
// states, the writers repeat them, and readers leave out what is older than what they have. An arbiter of
// another version is not understood, and so is out of contact. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "arbiter/core/model/gang.h"

namespace sharedgpu {

inline constexpr std::size_t kLongestLetter = 500;
inline constexpr std::size_t kLongestNodeName = 199;

// The coordinator is there, and has no order yet.
struct GangPatience {
  bool operator==(const GangPatience&) const = default;
};

// The coordinator has not heard the node for a while, or never: has the job processes there?
struct GangQuestion {
  bool operator==(const GangQuestion&) const = default;
};

struct GangLetter {
  std::string node;  // of the writer, as Slurm calls it
  std::uint32_t job = 0;
  std::uint64_t run = 0;     // of the job: how often it was requeued. Each run is a gang of its own
  std::uint64_t life = 0;    // of the writer: each start of an arbiter has another number, and none has zero
  std::uint64_t number = 0;  // counts what this life has written
  std::uint64_t reader = 0;  // of an answer: the life whose report it follows from
  std::uint32_t nodes = 0;   // of a report: so many does the job have
  bool is_new = false;       // of a report: no earlier coordinator can have given this member an order
  std::variant<GangReport, GangOrder, GangPatience, GangQuestion> what;

  bool operator==(const GangLetter&) const = default;
};

std::string format_letter(const GangLetter& letter);
// Nothing: it is not a letter that this version knows.
std::optional<GangLetter> parse_letter(std::string_view text);
// A letter, and of another version.
bool is_of_another_version(std::string_view text);

// Tells which letters of one writer are newer than those before.
class NewestLetter {
 public:
  // True if it is; it counts as the newest from then on. Another life of the writer is always newer.
  bool take(const GangLetter& letter) {
    if (letter.life == life_ && letter.number <= number_) return false;
    life_ = letter.life;
    number_ = letter.number;
    return true;
  }

 private:
  std::uint64_t life_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace sharedgpu
