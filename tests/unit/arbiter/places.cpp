// SPDX-License-Identifier: Apache-2.0
// The places that users have for connections.
#include <catch2/catch.hpp>
#include <vector>

#include "arbiter/daemon/admission.h"

namespace sharedgpu {
namespace {

using Rank = Admission::Rank;
using Places = std::vector<std::shared_ptr<void>>;

// Enters as often as there are places, at most `most` times.
std::size_t enter_all(Admission& admission, uid_t user, Rank rank, Places& places,
                      std::size_t most = 10'000) {
  std::size_t count = 0;
  for (; count < most; ++count) {
    auto place = admission.enter(user, rank);
    if (!place) break;
    places.push_back(std::move(place));
  }
  return count;
}

TEST_CASE("A user has 1024 places at most, whatever it is, and root any number") {
  Admission admission(100'000);
  Places places;
  CHECK(enter_all(admission, 1, Rank::stranger, places) == 1024);
  CHECK(enter_all(admission, 2, Rank::member, places) == 1024);
  CHECK(enter_all(admission, 1, Rank::member, places) == 0);
  CHECK(enter_all(admission, 0, Rank::root, places) == 10'000);
}

TEST_CASE("Strangers leave places for registered jobs, and both leave some for root") {
  Admission admission(800);
  Places strangers, members, root;
  CHECK(enter_all(admission, 1, Rank::stranger, strangers, 150) == 150);
  CHECK(enter_all(admission, 2, Rank::stranger, strangers) == 50);
  CHECK(enter_all(admission, 3, Rank::member, members) == 500);
  CHECK(enter_all(admission, 4, Rank::member, members) == 0);
  CHECK(enter_all(admission, 0, Rank::root, root, 100) == 100);
}

TEST_CASE("A place that is left is free again, also when the admission is gone") {
  Places kept;
  {
    Admission admission(8);
    Places strangers, members;
    CHECK(enter_all(admission, 1, Rank::stranger, strangers) == 2);
    strangers.pop_back();
    CHECK(enter_all(admission, 2, Rank::stranger, strangers) == 1);
    CHECK(enter_all(admission, 3, Rank::member, members) == 5);
    strangers.clear();
    members.clear();
    CHECK(enter_all(admission, 1, Rank::member, kept) == 7);
  }
  kept.clear();
}

}  // namespace
}  // namespace sharedgpu
