// SPDX-License-Identifier: Apache-2.0
// The gangs that have tenants on this node: sends their reports to the coordinators, and passes orders on to
// the core.
//
// A report is repeated until it is answered, and then every second, so that each side knows whether the other
// is there. A gang whose coordinator is silent begins no turn. Where it is silent for long, the gang is
// apart: a job must not wait for ever for a node that is gone, or for arbiters that cannot reach each other.
// Until an order comes, its tenant has its turns on this node by itself, as soon as its place in the line of
// such jobs has come (apart_line.h). A coordinator that asks for a job without processes on this node is told
// so.
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
#include "arbiter/gang/letter.h"

namespace sharedgpu {

struct GangTimes {
  Nanoseconds repeat = std::chrono::milliseconds(100);  // of a report that is not answered
  Nanoseconds heartbeat = std::chrono::seconds(1);      // of one that is
  // Between two letters of a gang to one node, except answers to questions: processes may change their minds
  // as fast as they like.
  Nanoseconds pause = std::chrono::milliseconds(10);
  Nanoseconds silence = std::chrono::seconds(5);  // after which a node is out of contact
  // After which one is given up that was never heard, where the gang is new.
  Nanoseconds never = std::chrono::seconds(10);
  // The same for one that was heard, now or by an earlier arbiter: as long as Slurm waits for a node by
  // default.
  Nanoseconds gone = std::chrono::minutes(5);
  // For which a gang that is new waits for processes on nodes that have none: as long as those of a job
  // usually come one after another. No longer, since a step may use only some of the job's nodes.
  Nanoseconds gathering = std::chrono::seconds(2);
  // After which Slurm is asked for the first node of a job that has had no order: users name it.
  Nanoseconds doubt = std::chrono::seconds(3);
  // Between two questions to Slurm for a job's nodes, after it has told them.
  Nanoseconds listing = std::chrono::minutes(1);
  Nanoseconds rarely = std::chrono::seconds(10);  // between two questions to a node that is given up
  Nanoseconds line = std::chrono::seconds(20);    // between two questions to Slurm for the line of jobs
  // After the first report of a job: by then Slurm's list has all jobs that have started in the same second.
  Nanoseconds started = std::chrono::seconds(2);
  Nanoseconds unlisted = std::chrono::minutes(5);  // after which a job begins without Slurm's list
};

inline constexpr Nanoseconds kLongAgo = Nanoseconds::min() / 2;

class GangMembers {
 public:
  using Run = std::pair<std::uint32_t, std::uint64_t>;  // the number of a job, and how often it was requeued
  enum class Contact : std::uint8_t { sought, held, lost, given_up };
  struct Job {
    std::uint32_t number = 0;
    std::uint64_t run = 0;    // how often it was requeued
    std::uint32_t nodes = 0;  // so many does it have
    std::string coordinator;
    bool is_new = false;  // no earlier arbiter of this node knew it
  };
  struct Gang {
    Job job;
    Contact contact = Contact::sought;
    std::optional<GangOrder> order;  // the last one
    bool alone = false;              // given up: the core knows that it has its turns by itself
  };
  // For the arbiter of the node.
  struct Sent {
    std::string node;
    GangLetter letter;
  };

  // `node`: this one, as Slurm calls it. `life`: not zero, and another one for each start of the arbiter.
  GangMembers(std::string node, std::uint64_t life, const GangTimes& times)
      : node_(std::move(node)), life_(life), times_(times), line_(times.line) {}

  // Slurm calls this node so.
  void set_node(std::string node) { node_ = std::move(node); }
  // The core has said this of the tenant, by TellGang.
  void report(TenantId tenant, const Job& job, const GangReport& report, Nanoseconds now);
  // A letter of a coordinator has come. `all_known`: no process can come back that was here before the
  // arbiter started.
  void hear(const GangLetter& letter, bool all_known, Nanoseconds now);
  // Slurm has told that the job, which take_doubtful() named, has so many nodes, and which one is the first.
  void correct(const Run& run, std::uint32_t nodes, const std::string& coordinator, Nanoseconds now);
  // The letter could not be sent yet, which is not the coordinator's silence.
  void excuse(const GangLetter& letter, Nanoseconds now);
  // Slurm has answered the question of `asked`, see ApartLine.
  void list(std::vector<StartedJob> jobs, Nanoseconds asked) { line_.list(std::move(jobs), asked); }
  // Does what is due as of now. `now` never goes back.
  void advance(Nanoseconds now);
  // When to advance it again; none: there are no gangs.
  std::optional<Nanoseconds> wake() const;

  // The letters to send, and the orders for the core; each is told once.
  std::vector<Sent> take_letters() { return std::exchange(letters_, {}); }
  std::vector<GangOrdered> take_orders() { return std::exchange(orders_, {}); }
  // Tenants of gangs whose contact is another one than before.
  std::vector<TenantId> take_changes() { return std::exchange(changes_, {}); }
  // Jobs whose coordinators give no orders: users name them, and Slurm should be asked.
  std::vector<Run> take_doubtful() { return std::exchange(doubtful_, {}); }
  // Slurm should be asked for the jobs on this node: the time of the question.
  std::optional<Nanoseconds> take_line_question() { return line_.take_question(); }

  // None: the tenant is of no gang, or has not reported.
  const Gang* find(TenantId tenant) const;

 private:
  struct Row : Gang {
    GangReport report;
    Nanoseconds reported{};       // when it became so
    Nanoseconds heard{};          // when the coordinator was, last; if never, when the first report was sent
    Nanoseconds due{};            // the next letter
    Nanoseconds sent = kLongAgo;  // the last one
    Nanoseconds sought_since{};
    Nanoseconds apart_since{};  // given up
    bool began = false;         // given up in a turn, which may have submitted work
    Nanoseconds started{};      // alone: when Slurm started the job; zero: it is not known
    bool is_doubted = false;
    bool is_corrected = false;  // the job's nodes are those that Slurm has told
    NewestLetter newest;
  };
  void answer(const GangLetter& question, bool all_known);
  GangLetter write(const Job& job, const GangReport& report);
  void give_up(TenantId tenant, Row& row, Nanoseconds now);
  void begin_alone(TenantId tenant, Row& row, Nanoseconds started);
  void advance_line(Nanoseconds now);
  std::optional<Nanoseconds> place_in_line(const Row& row, Nanoseconds now) const;
  bool has_passed(std::uint32_t job) const;
  bool any_waits() const;
  static bool may_have_begun(const Row& row);
  void set_contact(TenantId tenant, Row& row, Contact contact);
  void send(Row& row, Nanoseconds now);
  Nanoseconds patience(const Row& row) const;

  std::string node_;
  const std::uint64_t life_;
  const GangTimes times_;
  ApartLine line_;
  std::uint64_t written_ = 0;
  std::map<TenantId, Row> rows_;
  std::vector<Sent> letters_;
  std::vector<GangOrdered> orders_;
  std::vector<TenantId> changes_;
  std::vector<Run> doubtful_;
};

}  // namespace sharedgpu
