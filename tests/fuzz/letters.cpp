// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as a letter, a message from the arbiter of another node of a gang. The result is no
// letter, or a letter that yields the same text when it is written. The classes of arbiter/gang/members.h and
// desk.h must accept the letter.
#include "arbiter/gang/desk.h"
#include "arbiter/gang/letter.h"
#include "arbiter/gang/members.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const auto letter = parse_letter(fuzz::text_of(data, size));
  if (!letter) return 0;
  const std::string text = format_letter(*letter);
  fuzz::require(text.size() <= kLongestLetter, "a letter that fits no datagram");
  fuzz::require(parse_letter(text) == letter, "a letter reads otherwise");

  const GangTimes times;
  HeardNodes heard(times.recent);
  GangMembers members("n2", letter->reader, times, heard);
  GangDesk desk("n1", 1, times, GangPace{}, {}, heard);
  members.report(
      TenantId{1},
      {.number = letter->job, .nodes = letter->nodes, .coordinator = "n1", .is_new = letter->is_new},
      {.present = true}, {});
  for (int second = 0; second < 3; ++second) {
    const Nanoseconds now = std::chrono::seconds(second);
    members.hear(*letter, true, now);
    desk.hear("10.0.0.1", *letter, now);
    members.advance(now);
    desk.advance(now);
    fuzz::require(desk.take_letters().size() <= 2, "more than an answer and a question for a letter");
    for (const auto wake : {members.wake(), desk.wake()})
      fuzz::require(!wake || *wake > now, "it is to wake in the past");
  }
  return 0;
}
