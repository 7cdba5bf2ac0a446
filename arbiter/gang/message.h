// SPDX-License-Identifier: Apache-2.0
// The messages (GangMessage) between arbiters: a gang's members send reports to its coordinator. The
// coordinator sends orders to members, and questions to nodes from which no report has come.
//
// A message is one datagram of text. A message that is lost, comes late or comes twice does no harm. Each
// report and each order has the whole state, and senders repeat their messages. Receivers ignore a message
// that is older than one that they have received. An arbiter does not understand messages in another version
// of this format, so arbiters with different versions are out of contact. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "arbiter/core/model/gang.h"

namespace sharedgpu {

inline constexpr std::size_t kLongestGangMessage = 500;
inline constexpr std::size_t kLongestNodeName = 199;

// The answer to a report if the coordinator has no order yet.
struct GangPatience {
  bool operator==(const GangPatience&) const = default;
};

// Asks a node whether the job has processes there. The coordinator sends this to nodes that have never
// reported, or have not reported for a while.
struct GangQuestion {
  bool operator==(const GangQuestion&) const = default;
};

struct GangMessage {
  std::string node;  // Slurm's name of the sender's node
  std::uint32_t job = 0;
  std::uint64_t run = 0;     // how often the job was requeued; each run is a gang of its own
  std::uint64_t life = 0;    // a random number that the sender's arbiter draws at each start; never zero
  std::uint64_t number = 0;  // counts the messages that the sender (GangMembers or GangDesk) has written
  std::uint64_t reader = 0;  // in an order or a GangPatience: the `life` of the last report's sender
  std::uint32_t nodes = 0;   // in a report: number of nodes of the job
  bool is_new = false;       // in a report: this member cannot have an order from an earlier coordinator
  std::variant<GangReport, GangOrder, GangPatience, GangQuestion> what;

  bool operator==(const GangMessage&) const = default;
};

std::string format_message(const GangMessage& message);
// Returns nullopt if the text is no message in this version of the format.
std::optional<GangMessage> parse_message(std::string_view text);
// Returns true if the text is a message in another version of the format.
bool is_of_another_version(std::string_view text);

// Tells which messages of one sender are newer than all messages received from it before.
class NewestMessage {
 public:
  // Returns true and remembers the message if it is newer than the newest known message. A message with
  // another `life` (from before or after a restart of the sender's arbiter) always counts as newer.
  bool take(const GangMessage& message) {
    if (message.life == life_ && message.number <= number_) return false;
    life_ = message.life;
    number_ = message.number;
    return true;
  }

 private:
  std::uint64_t life_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace sharedgpu
