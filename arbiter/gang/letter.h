// SPDX-License-Identifier: Apache-2.0
// The messages ("letters") between arbiters: a gang's members send reports to its coordinator, and the
// coordinator sends orders to members and questions to nodes that it has not heard.
//
// A letter is one datagram of text. A letter that is lost, comes late or comes twice does no harm: each
// report and each order has the whole state, writers repeat their letters, and readers ignore a letter that
// is older than one that they have read. An arbiter does not understand letters of another version, so
// arbiters of different versions are out of contact. Pure functions; any thread.
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

// The answer to a report if the coordinator has no order yet.
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
  bool is_new = false;       // in a report: this member cannot have an order from an earlier coordinator
  std::variant<GangReport, GangOrder, GangPatience, GangQuestion> what;

  bool operator==(const GangLetter&) const = default;
};

std::string format_letter(const GangLetter& letter);
// Returns nullopt if the text is no letter of this version.
std::optional<GangLetter> parse_letter(std::string_view text);
// Returns true if the text is a letter of another version.
bool is_of_another_version(std::string_view text);

// Finds the letters of one writer that are newer than all its letters before.
class NewestLetter {
 public:
  // Returns true if the letter is newer than the newest known letter, and remembers it. A letter that the
  // writer's arbiter sent in another life, before or after a restart, always counts as newer.
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
