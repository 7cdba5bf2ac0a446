// SPDX-License-Identifier: Apache-2.0
// The gangs that have tenants on this node. GangMembers sends the reports of these tenants to the
// coordinators, and hands the coordinators' orders to the core.
//
// A report that is not answered is repeated every 100 ms for a second. After that, and after an answer, it is
// repeated every second. So member and coordinator each notice when the other is silent. A gang whose
// coordinator is silent begins no turn. If the coordinator stays silent for long, it is given up and the gang
// is apart (docs/multi-node.md, "Words"). Otherwise a job could wait forever for a node that is gone, or for
// arbiters that cannot reach each other. The tenants of a gang that is apart have turns on each node without
// orders. Jobs that are apart have their turns one after the other, in the order in which Slurm started these
// jobs (apart_line.h). If a coordinator asks about a job without processes on this node, the answer is a
// report with `present` false.
//
// Pure: no socket, clock or thread. One thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arbiter/core/model/gang.h"
#include "arbiter/gang/apart_line.h"
#include "arbiter/gang/heard_nodes.h"
#include "arbiter/gang/message.h"

namespace sharedgpu {

struct GangTimes {
  Nanoseconds repeat = std::chrono::milliseconds(100);  // pause before an unanswered report is repeated
  Nanoseconds heartbeat = std::chrono::seconds(1);      // pause before any other report is repeated
  // Least time between two messages of a gang to one node, except answers to questions. This pause bounds the
  // number of messages if processes change their state all the time.
  Nanoseconds pause = std::chrono::milliseconds(10);
  Nanoseconds silence = std::chrono::seconds(5);  // a node that is silent for this time is out of contact
  // A node from which no message about any job came lately is given up after this time.
  Nanoseconds never = std::chrono::seconds(10);
  // A node that had sent a message in the time `recent` before its silence is given up after this time.
  // Before that, no other node can know whether a turn has begun or ended on the silent node. Nodes that
  // decided by themselves could decide differently: two jobs could have turns on different nodes and wait for
  // each other. If the node is really gone, Slurm ends the job within minutes.
  Nanoseconds gone = std::chrono::hours(1);
  Nanoseconds recent = std::chrono::hours(1);  // a message that is older did not come "lately"
  // The maximum time for which a new gang waits for processes on nodes that have none. The processes of a job
  // usually all come within this time. A longer wait would delay jobs whose steps use only some of their
  // nodes.
  Nanoseconds gathering = std::chrono::seconds(2);
  // If a job has had no order yet at this time after its first report, the user may have named a wrong node
  // as the coordinator's node. Slurm is then asked for the job's first node.
  Nanoseconds doubt = std::chrono::seconds(3);
  // Pause between two questions to Slurm for a job's nodes, after Slurm has answered once.
  Nanoseconds listing = std::chrono::minutes(1);
  Nanoseconds rarely = std::chrono::seconds(10);  // pause between two questions to a node that is given up
  Nanoseconds line = std::chrono::seconds(20);    // pause between two questions to Slurm for ApartLine
  // At this time after a job's first report, Slurm's list has all jobs that started in the same second as the
  // job.
  Nanoseconds started = std::chrono::seconds(2);
  // A job that is apart waits this long for Slurm to list it. A new gang waits this long for the names of its
  // nodes.
  Nanoseconds unlisted = std::chrono::minutes(5);
};

inline constexpr Nanoseconds kLongAgo = Nanoseconds::min() / 2;

class GangMembers {
 public:
  using Run = std::pair<std::uint32_t, std::uint64_t>;  // the number of a job, and how often it was requeued
  enum class Contact : std::uint8_t { sought, held, lost, given_up };
  struct Job {
    std::uint32_t number = 0;
    std::uint64_t run = 0;    // how often the job was requeued
    std::uint32_t nodes = 0;  // number of the job's nodes
    std::string coordinator;
    bool is_new = false;  // no earlier arbiter of this node knew the job
  };
  struct Gang {
    Job job;
    Contact contact = Contact::sought;
    std::optional<GangOrder> order;  // the last order
    bool alone = false;              // the coordinator is given up, and the core was told that the tenant has
                                     // turns without orders
  };
  // A message to the arbiter of `node`.
  struct Sent {
    std::string node;
    GangMessage message;
  };

  // `node`: Slurm's name of this node. `life`: not zero, and a different number at each start of the arbiter.
  // `heard` must outlive this object.
  GangMembers(std::string node, std::uint64_t life, const GangTimes& times, HeardNodes& heard)
      : node_(std::move(node)), life_(life), times_(times), heard_(heard), line_(times.line) {}

  // Sets Slurm's name of this node.
  void set_node(std::string node) { node_ = std::move(node); }
  // Call when the core has a new report about the tenant (TellGang).
  void report(TenantId tenant, const Job& job, const GangReport& report, Nanoseconds now);
  // Call when a message of a coordinator has come. `all_known`: all processes that were here before the
  // arbiter started have reconnected or are gone.
  void hear(const GangMessage& message, bool all_known, Nanoseconds now);
  // Call when Slurm has named the nodes of a job that take_doubtful() returned. `nodes` is the number of
  // these nodes, and `coordinator` the name of the first one.
  void correct(const Run& run, std::uint32_t nodes, const std::string& coordinator, Nanoseconds now);
  // Call when the message could not be sent. If the coordinator has given no order yet, the time until `now`
  // then does not count as the coordinator's silence.
  void excuse(const GangMessage& message, Nanoseconds now);
  // Call when Slurm has answered the question that was asked at `asked`, see ApartLine.
  void list(std::vector<StartedJob> jobs, Nanoseconds asked) { line_.list(std::move(jobs), asked); }
  // Does all work that is due at `now`. `now` never goes back.
  void advance(Nanoseconds now);
  // Returns when to call advance() again; nullopt: there are no gangs.
  std::optional<Nanoseconds> wake() const;

  // The messages to send, and the orders for the core. Each message and each order is returned once.
  std::vector<Sent> take_messages() { return std::exchange(messages_, {}); }
  std::vector<GangOrdered> take_orders() { return std::exchange(orders_, {}); }
  // Returns tenants whose `contact` has changed since the last call. Returns a tenant once, too, if its
  // coordinator has not answered in the time GangTimes::never.
  std::vector<TenantId> take_changes() { return std::exchange(changes_, {}); }
  // Returns jobs whose coordinators have given no order in the time GangTimes::doubt; each job once. The user
  // may have named a wrong node, so the caller asks Slurm for the nodes of these jobs.
  std::vector<Run> take_doubtful() { return std::exchange(doubtful_, {}); }
  // Returns the time of the question if the caller should ask Slurm for the jobs on this node; otherwise
  // nullopt.
  std::optional<Nanoseconds> take_line_question() { return line_.take_question(); }

  // Returns null if the tenant is in no gang, or the core has not reported about it.
  const Gang* find(TenantId tenant) const;

 private:
  struct Row : Gang {
    GangReport report;
    Nanoseconds reported{};       // when the core made the report
    Nanoseconds heard{};          // when the coordinator's last message came; before its first message: when
                                  // the core made the first report, or the last correct() or excuse()
    Nanoseconds due{};            // when to send the next message
    Nanoseconds sent = kLongAgo;  // when the last message was sent
    Nanoseconds sought_since{};
    Nanoseconds apart_since{};  // if the gang is apart: when it came apart, but at least GangTimes::started
                                // after the first report
    bool began = false;         // the tenant had work on the GPU when the coordinator was given up
    Nanoseconds started{};      // if the tenant has turns without orders: when Slurm started the job; zero:
                                // unknown
    bool is_doubted = false;    // take_doubtful() has named the job
    bool is_corrected = false;  // Slurm has named the job's nodes
    bool is_told = false;  // take_changes() has returned the tenant because its coordinator has not answered
    NewestMessage newest;
  };
  void answer(const GangMessage& question, bool all_known);
  GangMessage write(const Job& job, const GangReport& report);
  void give_up(TenantId tenant, Row& row, Nanoseconds now);
  void begin_alone(TenantId tenant, Row& row, Nanoseconds started);
  void advance_line(Nanoseconds now);
  std::optional<Nanoseconds> place_in_line(const Row& row, Nanoseconds now) const;
  bool has_passed(std::uint32_t job) const;
  bool any_waits() const;
  void set_contact(TenantId tenant, Row& row, Contact contact);
  void send(Row& row, Nanoseconds now);
  Nanoseconds patience(const Row& row) const;

  std::string node_;
  const std::uint64_t life_;
  const GangTimes times_;
  HeardNodes& heard_;
  ApartLine line_;
  std::uint64_t written_ = 0;
  std::map<TenantId, Row> rows_;
  std::vector<Sent> messages_;
  std::vector<GangOrdered> orders_;
  std::vector<TenantId> changes_;
  std::vector<Run> doubtful_;
};

}  // namespace sharedgpu
