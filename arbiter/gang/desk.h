// SPDX-License-Identifier: Apache-2.0
// The gangs that this node coordinates: hears the members of each, and writes orders to them.
//
// The members of a gang are the nodes of its job. Those that have processes report by themselves; a node that
// is not heard for a while is asked, and Slurm is asked which nodes there are where fewer have reported. A
// gang has orders as soon as all of its nodes have been heard. A node that has processes and is silent keeps
// the gang from beginning turns. One that is silent for so long that it is given up, or that was never heard,
// makes the gang apart: each node has turns by itself, in the same order of jobs, until all are heard. Each
// report is answered, and each order that changes is sent at once; the member's next report repeats one that
// is lost.
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
  using Run = GangMembers::Run;
  // For the arbiter at the address.
  struct Sent {
    std::string address;
    GangLetter letter;
  };
  struct Listed {
    std::string node;
    std::string address;  // empty: Slurm does not tell it
  };
  // A gang whose nodes have turns by themselves from now on.
  struct Apart {
    std::uint32_t job = 0;
    std::vector<std::string> silent;  // nodes, as far as they are known
    std::size_t answer = 0;
    std::uint32_t nodes = 0;
  };

  // `node` and `life`: as of GangMembers. `wall`: what to add to the times of this node for times that other
  // nodes compare.
  GangDesk(std::string node, std::uint64_t life, const GangTimes& times, const GangPace& pace,
           Nanoseconds wall)
      : node_(std::move(node)), life_(life), times_(times), pace_(pace), wall_(wall) {}

  void set_node(std::string node) { node_ = std::move(node); }
  // A letter with a report has come.
  void hear(const std::string& address, const GangLetter& letter, Nanoseconds now);
  // Slurm has told the nodes of a job that take_unlisted() named.
  void list(const Run& run, const std::vector<Listed>& nodes, Nanoseconds now);
  // Does what is due as of now. `now` never goes back.
  void advance(Nanoseconds now);
  // When to advance it again; none: there are no gangs.
  std::optional<Nanoseconds> wake() const;
  std::vector<Sent> take_letters() { return std::exchange(letters_, {}); }
  // Slurm should be asked for the nodes of these.
  std::vector<Run> take_unlisted() { return std::exchange(unlisted_, {}); }
  // Each is told when it begins.
  std::vector<Apart> take_apart() { return std::exchange(apart_, {}); }

 private:
  struct Member {
    unsigned number = 0;  // for the coordinator
    std::string address;
    std::uint64_t life = 0;
    bool heard = false;
    bool present = false;
    bool in_contact = true;  // or was never heard
    bool given_up = false;
    Nanoseconds heard_at{};  // last; if never, since when it is known
    Nanoseconds ask_at{};
    NewestLetter newest;
    std::optional<GangOrder> sent;
    bool owed = false;     // it has reported, and has no answer yet
    bool delayed = false;  // there is a letter to it, too soon after the last one
    Nanoseconds sent_at = kLongAgo;
  };
  struct Gang {
    GangCoordinator coordinator;
    Nanoseconds since{};
    std::uint32_t nodes = 0;                // so many does the job have
    std::map<std::string, Member> members;  // by the names of their nodes
    unsigned last_number = 0;
    bool is_new = true;     // no member has had an order of an earlier coordinator
    bool gathered = false;  // it no longer waits for processes on nodes that have none
    bool apart = false;
    bool is_listed = false;  // Slurm has told its nodes
    Nanoseconds list_at{};
    Nanoseconds present_at{};  // when a report of processes came last

    bool lacks_members() const { return members.size() < nodes; }
    bool all_heard() const;
    bool any_silent() const;
    bool all_present() const;
    bool any_present() const;
  };
  // Returns whether any is another one than before.
  bool lose_silent(Gang& gang, Nanoseconds now) const;
  bool note_time(Gang& gang, Nanoseconds now) const;
  bool any_delayed_is_due(const Gang& gang, Nanoseconds now) const;
  void ask(const Run& run, Gang& gang, Nanoseconds now);
  void decide(const Run& run, Gang& gang, Nanoseconds now);
  void set_apart(const Run& run, Gang& gang, Nanoseconds now);
  GangLetter write(const Run& run, std::uint64_t reader, const decltype(GangLetter::what)& what);
  Nanoseconds patience_with_unheard(const Gang& gang) const {
    return gang.is_new ? times_.never : times_.gone;
  }
  Nanoseconds patience(const Gang& gang, const Member& member) const;

  std::string node_;
  const std::uint64_t life_;
  const GangTimes times_;
  const GangPace pace_;
  const Nanoseconds wall_;
  std::uint64_t written_ = 0;
  std::map<Run, Gang> gangs_;
  std::vector<Sent> letters_;
  std::vector<Run> unlisted_;
  std::vector<Apart> apart_;
};

}  // namespace sharedgpu
