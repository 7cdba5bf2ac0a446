// SPDX-License-Identifier: Apache-2.0
// How many connections each user may have. A connection takes a place.
#include <catch2/catch.hpp>
#include <vector>

#include "arbiter/daemon/admission.h"

namespace sharedgpu {
namespace {

using Rank = Admission::Rank;
using Places = std::vector<std::shared_ptr<Admission::Place>>;

// Takes places for the user until the admission refuses one, at most `most` places. Returns their number.
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

TEST_CASE("Any user has at most 1024 places, and root any number") {
  Admission admission(100'000);
  Places places;
  CHECK(enter_all(admission, 1, Rank::stranger, places) == 1024);
  CHECK(enter_all(admission, 2, Rank::member, places) == 1024);
  CHECK(enter_all(admission, 1, Rank::member, places) == 0);
  CHECK(enter_all(admission, 0, Rank::root, places) == 10'000);
}

TEST_CASE("Strangers leave places for registered jobs, and strangers and jobs leave places for root") {
  Admission admission(800);
  Places strangers, members, root;
  CHECK(enter_all(admission, 1, Rank::stranger, strangers, 150) == 150);
  CHECK(enter_all(admission, 2, Rank::stranger, strangers) == 50);
  CHECK(enter_all(admission, 3, Rank::member, members) == 400);  // a user gets at most half of all places
  CHECK(enter_all(admission, 4, Rank::member, members) == 100);
  CHECK(enter_all(admission, 5, Rank::member, members) == 0);
  CHECK(enter_all(admission, 0, Rank::root, root, 100) == 100);
}

TEST_CASE("A newcomer can become a member, but no stranger, while strangers have all their places") {
  Admission admission(800);
  Places strangers, newcomers;
  REQUIRE(enter_all(admission, 1, Rank::stranger, strangers) == 200);
  REQUIRE(enter_all(admission, 2, Rank::newcomer, newcomers) == 256);
  CHECK_FALSE(admission.settle(*newcomers[0], Rank::stranger));
  CHECK(admission.settle(*newcomers[0], Rank::member));
  CHECK(enter_all(admission, 2, Rank::newcomer, newcomers) == 1);  // the first connection is a member's, so
                                                                   // one more newcomer gets a place
  strangers.pop_back();
  CHECK(admission.settle(*newcomers[1], Rank::stranger));
  CHECK_FALSE(admission.settle(*newcomers[2], Rank::stranger));
  newcomers.clear();
  CHECK(enter_all(admission, 3, Rank::stranger, strangers) == 1);
}

TEST_CASE("Newcomers of one user leave places for newcomers of other users") {
  Admission admission(800);
  Places one, other, members;
  CHECK(enter_all(admission, 1, Rank::newcomer, one) == 256);
  CHECK(enter_all(admission, 2, Rank::newcomer, other) == 256);
  CHECK(enter_all(admission, 3, Rank::member, members) == 188);
}

TEST_CASE("A place that is given up is free again, even if the admission no longer exists") {
  Places kept;
  {
    Admission admission(8);
    Places strangers, members;
    CHECK(enter_all(admission, 1, Rank::stranger, strangers) == 2);
    strangers.pop_back();
    CHECK(enter_all(admission, 2, Rank::stranger, strangers) == 1);
    CHECK(enter_all(admission, 3, Rank::member, members) == 4);
    CHECK(enter_all(admission, 4, Rank::member, members) == 1);
    strangers.clear();
    members.clear();
    CHECK(enter_all(admission, 1, Rank::member, kept) == 4);
  }
  kept.clear();
}

std::size_t wait_often(Admission::Place& place, std::size_t times) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < times; ++i) count += place.add_waiting() ? 1 : 0;
  return count;
}

TEST_CASE(
    "At most 4096 messages wait in all places of a user, as many in those of its jobs, any number in "
    "root's") {
  Admission admission(100);
  const auto one = admission.enter(1, Rank::stranger), another = admission.enter(1, Rank::stranger);
  const auto member = admission.enter(1, Rank::member), other = admission.enter(2, Rank::stranger);
  const auto root = admission.enter(0, Rank::root);
  CHECK(wait_often(*one, 4000) == 4000);
  CHECK(wait_often(*another, 1000) == 96);
  CHECK(wait_often(*member, 5000) == 4096);
  CHECK(wait_often(*other, 5000) == 4096);
  CHECK(wait_often(*root, 10'000) == 10'000);
}

TEST_CASE("Messages that were sent, or whose place was given up, no longer count as queued") {
  Admission admission(100);
  auto one = admission.enter(1, Rank::stranger);
  const auto another = admission.enter(1, Rank::stranger);
  CHECK(wait_often(*one, 5000) == 4096);
  one->remove_waiting(10);
  CHECK(wait_often(*another, 100) == 10);
  one.reset();
  CHECK(wait_often(*another, 5000) == 4086);
}

}  // namespace
}  // namespace sharedgpu
