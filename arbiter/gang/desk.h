// SPDX-License-Identifier: Apache-2.0
// The gangs that this node coordinates: hears the members of each, and writes orders to them.
//
// The members of a gang are the nodes that have reported, known by their addresses. One that has processes
// and is silent keeps the gang from beginning turns, until it has been silent for so long that it is given
// up. Each report is answered, and each order that changes is sent at once; the member's next report repeats
// one that is lost.
//
// Pure: no socket, clock or thread. One thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arbiter/gang/coordinator.h"
#include "arbiter/gang/letter.h"
#include "arbiter/gang/members.h"

namespace sharedgpu {

class GangDesk {
 public:
  // For whoever reports from the address.
  struct Sent {
    std::string address;
    GangLetter letter;
  };

  // A gang that begins to have turns, and not all nodes of its job have reported.
  struct Part {
    std::uint32_t job = 0;
    std::size_t heard = 0;
    std::uint32_t nodes = 0;
  };

  // An arbiter that has `started` lately may not have heard all members of a gang that has a turn. `wall`:
  // what to add to the times of this node for times that other nodes compare.
  GangDesk(std::uint64_t life, const GangTimes& times, const GangPace& pace, Nanoseconds started,
           Nanoseconds wall)
      : life_(life), times_(times), pace_(pace), knows_all_at_(started + times.hearing), wall_(wall) {}

  // A letter with a report has come.
  void hear(const std::string& address, const GangLetter& letter, Nanoseconds now);
  // Does what is due as of now. `now` never goes back.
  void advance(Nanoseconds now);
  // When to advance it again; none: there are no gangs.
  std::optional<Nanoseconds> wake() const;
  std::vector<Sent> take_letters() { return std::exchange(letters_, {}); }
  // Each gang is told once.
  std::vector<Part> take_parts() { return std::exchange(parts_, {}); }

 private:
  struct Member {
    unsigned number = 0;
    std::uint64_t life = 0;
    bool present = false;
    bool in_contact = true;
    bool given_up = false;
    Nanoseconds heard{};
    NewestLetter newest;
    std::optional<GangOrder> sent;
    bool owed = false;  // it has reported, and has no answer yet
  };
  using Run = std::pair<std::uint32_t, std::uint64_t>;  // the number of a job, and how often it was requeued
  struct Gang {
    GangCoordinator coordinator;
    std::map<std::string, Member> members;
    unsigned last_number = 0;
    std::uint32_t nodes = 0;  // so many does the job have
    bool has_orders = false;
  };
  static void follow(Gang& gang, const std::string& address, std::uint64_t life);
  // Returns whether any was lost.
  bool lose_silent(Gang& gang, Nanoseconds now) const;
  void decide(const Run& run, Gang& gang, Nanoseconds now);
  Nanoseconds patience(const Member& member) const;

  const std::uint64_t life_;
  const GangTimes times_;
  const GangPace pace_;
  const Nanoseconds knows_all_at_;  // the gangs of an earlier life
  const Nanoseconds wall_;
  std::uint64_t written_ = 0;
  std::map<Run, Gang> gangs_;
  std::vector<Sent> letters_;
  std::vector<Part> parts_;
};

}  // namespace sharedgpu
