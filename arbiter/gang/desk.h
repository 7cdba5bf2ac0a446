// SPDX-License-Identifier: Apache-2.0
// The gangs that this node coordinates. GangDesk receives reports from the members of these gangs, and sends
// orders to the members.
//
// The members of a gang are the nodes of its job. Nodes with processes of the job report without being asked.
// GangDesk sends a question to each node that has not reported for a while. If some nodes of the job have
// never reported or are silent, GangDesk asks Slurm for the names of the job's nodes. GangDesk answers each
// report with an order, and sends a changed order at once. If an order is lost, the answer to the member's
// next report repeats it.
//
// A gang gets its first order when all of its nodes have reported, or when it comes apart (see below). A new
// gang also waits for processes on all nodes, for at most GangTimes::gathering. While a node is silent, the
// gang begins no turn. After a long silence GangDesk gives the node up, and sooner if no message about any
// job has come from the node lately. A gang with such a node is apart: until all nodes report again, each
// node gives the gang's tenant turns without orders. All nodes give the jobs that are apart their turns in
// the same order.
//
// Pure: no socket, clock or thread. One thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arbiter/gang/coordinator.h"
#include "arbiter/gang/members.h"
#include "arbiter/gang/message.h"

namespace sharedgpu {

class GangDesk {
 public:
  using Run = GangMembers::Run;
  // A message to the arbiter at `address`.
  struct Sent {
    std::string address;
    GangMessage message;
  };
  struct Listed {
    std::string node;
    std::string address;  // empty: Slurm does not know the address
  };
  // A gang that begins no turn as long as nodes are silent.
  struct Silent {
    std::uint32_t job = 0;
    std::vector<std::string> nodes;  // empty: the names are unknown, because Slurm has not named all nodes of
                                     // the job
  };
  // A gang that has come apart: each of its nodes gives the gang's tenant turns without orders.
  struct Apart {
    std::uint32_t job = 0;
    std::vector<std::string> silent;  // the nodes that were given up and whose names are known
    std::size_t answer = 0;           // number of nodes that answer
    std::uint32_t nodes = 0;          // number of nodes of the job
  };

  // `node`, `life` and `heard` are as for GangMembers. `wall` is the wall-clock time minus the time of the
  // clock of all arguments `now`. GangDesk adds `wall` to times that other nodes compare.
  GangDesk(std::string node, std::uint64_t life, const GangTimes& times, const GangPace& pace,
           Nanoseconds wall, HeardNodes& heard)
      : node_(std::move(node)), life_(life), times_(times), pace_(pace), wall_(wall), heard_(heard) {}

  void set_node(std::string node) { node_ = std::move(node); }
  // Call when a message has come from `address`. Messages that are not reports are ignored.
  void hear(const std::string& address, const GangMessage& message, Nanoseconds now);
  // Call when Slurm has named the nodes of a job that take_unlisted() returned.
  void list(const Run& run, const std::vector<Listed>& nodes, Nanoseconds now);
  // Does all work that is due at `now`. `now` never goes back.
  void advance(Nanoseconds now);
  // Returns when to call advance() again; nullopt: there are no gangs.
  std::optional<Nanoseconds> wake() const;
  std::vector<Sent> take_messages() { return std::exchange(messages_, {}); }
  // Returns jobs with unknown or silent nodes. The caller asks Slurm for the nodes of these jobs.
  std::vector<Run> take_unlisted() { return std::exchange(unlisted_, {}); }
  // Returns the gangs with nodes that have become silent since the last call. A node that has never reported
  // counts as silent after the time GangTimes::never.
  std::vector<Silent> take_silent() { return std::exchange(silent_, {}); }
  // Returns the gangs that have come apart since the last call.
  std::vector<Apart> take_apart() { return std::exchange(apart_, {}); }

 private:
  struct Member {
    unsigned number = 0;  // the member's number in `coordinator`
    std::string address;
    std::uint64_t life = 0;
    bool heard = false;
    bool present = false;
    bool in_contact = true;  // also true before the node's first report
    bool given_up = false;
    bool is_silent = false;  // take_silent() has returned the node, and the node has not reported after that
    Nanoseconds heard_at{};  // when the node's last report came; before the first report: when the node
                             // became known
    Nanoseconds ask_at{};
    NewestMessage newest;
    std::optional<GangOrder> sent;
    bool owed = false;     // the node's last report needs an answer and has none yet
    bool delayed = false;  // a message to the node waits, because the pause after the last message is not
                           // over
    Nanoseconds sent_at = kLongAgo;
  };
  struct Gang {
    GangCoordinator coordinator;
    Nanoseconds since{};
    std::uint32_t nodes = 0;                // number of nodes of the job
    std::map<std::string, Member> members;  // by node name
    unsigned last_number = 0;
    bool is_new = true;     // no member has received an order from an earlier coordinator
    bool gathered = false;  // the time GangTimes::gathering has passed since the gang began
    bool apart = false;
    bool is_listed = false;  // Slurm has named the job's nodes
    bool is_told = false;    // take_silent() has reported that Slurm has not named all nodes of the job
    Nanoseconds list_at{};
    Nanoseconds present_at{};  // when the last report of a node with processes came

    bool lacks_members() const { return members.size() < nodes; }
    bool all_heard() const;
    bool any_silent() const;
    bool all_present() const;
    bool any_present() const;
  };
  // Marks silent members as out of contact or given up. Returns true if it has marked a member.
  bool lose_silent(Gang& gang, Nanoseconds now) const;
  void name_silent(const Run& run, Gang& gang, Nanoseconds now);
  bool note_time(Gang& gang, Nanoseconds now) const;
  bool any_delayed_is_due(const Gang& gang, Nanoseconds now) const;
  void ask(const Run& run, Gang& gang, Nanoseconds now);
  void decide(const Run& run, Gang& gang, Nanoseconds now);
  void set_apart(const Run& run, Gang& gang, Nanoseconds now);
  GangMessage write(const Run& run, std::uint64_t reader, const decltype(GangMessage::what)& what);
  Nanoseconds patience(const std::string& node, const Member& member) const;
  // Like patience(), for nodes whose names are unknown because Slurm has not answered.
  Nanoseconds patience_with_unlisted(const Gang& gang) const {
    return gang.is_new ? times_.unlisted : times_.gone;
  }

  std::string node_;
  const std::uint64_t life_;
  const GangTimes times_;
  const GangPace pace_;
  const Nanoseconds wall_;
  HeardNodes& heard_;
  std::uint64_t written_ = 0;
  std::map<Run, Gang> gangs_;
  std::vector<Sent> messages_;
  std::vector<Run> unlisted_;
  std::vector<Silent> silent_;
  std::vector<Apart> apart_;
};

}  // namespace sharedgpu
