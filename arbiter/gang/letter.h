// SPDX-License-Identifier: Apache-2.0
// The letters of arbiters to each other: reports of members to the coordinator of a gang, and the
// coordinator's orders and its questions to nodes that it has not heard.
//
// A letter is one datagram of text. If a letter is lost, comes late or comes twice, this does no harm: each
// report and each order has the whole state, writers repeat their letters, and readers ignore letters that
// are older than the newest one. Letters of an arbiter of another version are not understood, so that arbiter
// is out of contact. Pure functions; any thread.
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

// An answer to a report: the coordinator has no order yet.
struct GangPatience {
  bool operator==(const GangPatience&) const = default;
};

// Asks a node that the coordinator has never heard, or not for a while, whether the job has processes there.
struct GangQuestion {
  bool operator==(const GangQuestion&) const = default;
};

struct GangLetter {
  std::string node;  // Slurm's name of the writer's node
  std::uint32_t job = 0;
  std::uint64_t run = 0;     // how often the job was requeued; each run is a gang of its own
  std::uint64_t life = 0;    // the writer's number for this run of its arbiter, different at each start;
                             // never zero
  std::uint64_t number = 0;  // counts the letters that the writer has sent in this life
  std::uint64_t reader = 0;  // in an answer: the life of the arbiter whose report it answers
  std::uint32_t nodes = 0;   // in a report: number of nodes of the job
  bool is_new = false;       // in a report: no earlier coordinator can have given this member an order
  std::variant<GangReport, GangOrder, GangPatience, GangQuestion> what;

  bool operator==(const GangLetter&) const = default;
};

std::string format_letter(const GangLetter& letter);
// Returns nullopt if the text is no letter of this version.
std::optional<GangLetter> parse_letter(std::string_view text);
// Returns true if the text is a letter of another version.
bool is_of_another_version(std::string_view text);

// Decides which letters of one writer are newer than all earlier ones.
class NewestLetter {
 public:
  // Returns true if the letter is newer, and remembers it as the newest one. A letter from another life of
  // the writer always counts as newer.
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
