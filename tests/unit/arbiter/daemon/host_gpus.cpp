// SPDX-License-Identifier: Apache-2.0
// GPUs that the arbiter knows only from sessions: how many it accepts, and from which users.
#include <catch2/catch.hpp>
#include <list>
#include <string>

#include "host.h"

namespace sharedgpu::test {
namespace {

GpuUuid made_up(unsigned number) {
  GpuUuid gpu{{9}};
  gpu.bytes[1] = static_cast<std::uint8_t>(number);
  return gpu;
}

// Sessions that attach to invented GPUs, each to a different one.
struct Tellers {
  Host host;
  std::list<Guest> guests;
  unsigned next = 0;

  Tellers() { host.start(); }
  // Returns how many of `count` sessions are accepted.
  unsigned attach(unsigned count, uid_t uid, std::optional<StepName> step = {}) {
    unsigned taken = 0;
    for (unsigned i = 0; i < count; ++i) {
      Guest& guest = guests.emplace_back(host, uid, step);
      REQUIRE(guest.say(Hello{}).find<Welcome>());
      const auto reaction = guest.say(Attach{.gpu = made_up(next++), .total = gibibytes(1), .name = {}});
      if (reaction.find<Attached>())
        ++taken;
      else
        CHECK(std::string(reaction.find<Refused>().value().reason) ==
              "too many GPUs that only sessions report and the arbiter does not find");
    }
    return taken;
  }
  StepName job_of(uid_t uid) {
    const StepName step{.job = uid, .step = 0};
    Guest slurmstepd(host);
    REQUIRE(slurmstepd.say(RegisterJob{.step = step, .uid = uid, .options = {}})
                .find<RegisterReply>()
                ->accepted == 1);
    return step;
  }
};

TEST_CASE("The number of GPUs that a user can invent is limited, and leaves room for jobs and root") {
  Tellers tellers;
  CHECK(tellers.attach(20, kUser) == 16);
  CHECK(tellers.attach(20, kUser + 1) == 8);
  CHECK(tellers.attach(2, kUser + 2) == 0);
  CHECK(tellers.attach(20, kUser + 3, tellers.job_of(kUser + 3)) == 16);
  CHECK(tellers.attach(20, kUser + 4, tellers.job_of(kUser + 4)) == 8);
  CHECK(tellers.attach(40, 0) == 15);  // the host's own GPU takes one entry
  // A GPU that the arbiter knows is accepted, even if no entry is free.
  Guest& known = tellers.guests.emplace_back(tellers.host, kUser + 5);
  REQUIRE(known.say(Hello{}).find<Welcome>());
  CHECK(known.say(Attach{.gpu = made_up(0), .total = gibibytes(1), .name = {}}).find<Attached>());
}

TEST_CASE("GPUs that nobody uses any longer make room for others of the user") {
  Tellers tellers;
  REQUIRE(tellers.attach(17, kUser) == 16);
  for (Guest& guest : tellers.guests) guest.channel.close();
  tellers.host.run_until([&] { return tellers.host.status()["gpus"].size() == 1; });
  CHECK(tellers.attach(17, kUser) == 16);
}

}  // namespace
}  // namespace sharedgpu::test
