// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as a message from the arbiter of another node of a gang. A message that is written
// and parsed again must stay the same, and the classes of arbiter/gang/members.h and desk.h must accept it.
#include "arbiter/gang/desk.h"
#include "arbiter/gang/members.h"
#include "arbiter/gang/message.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const auto message = parse_message(fuzz::text_of(data, size));
  if (!message) return 0;
  const std::string text = format_message(*message);
  fuzz::require(text.size() <= kLongestGangMessage, "a message that fits no datagram");
  fuzz::require(parse_message(text) == message, "a message that is written and parsed again differs");

  const GangTimes times;
  HeardNodes heard(times.recent);
  GangMembers members("n2", message->reader, times, heard);
  GangDesk desk("n1", 1, times, GangPace{}, {}, heard);
  members.report(
      TenantId{1},
      {.number = message->job, .nodes = message->nodes, .coordinator = "n1", .is_new = message->is_new},
      {.present = true}, {});
  for (int second = 0; second < 3; ++second) {
    const Nanoseconds now = std::chrono::seconds(second);
    members.hear(*message, true, now);
    desk.hear("10.0.0.1", *message, now);
    members.advance(now);
    desk.advance(now);
    fuzz::require(desk.take_messages().size() <= 2, "more than an answer and a question for a message");
    for (const auto wake : {members.wake(), desk.wake()})
      fuzz::require(!wake || *wake > now, "it is to wake in the past");
  }
  return 0;
}
