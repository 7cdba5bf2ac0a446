// SPDX-License-Identifier: Apache-2.0
// Models a GPU on which programs of a fixed size take turns: copies take time in proportion to their size,
// submitted work ends within a few milliseconds, and messages take a fraction of a millisecond. The arbiter's
// real core makes the decisions. bench/simulate and the property tests use this model to check shares, waits
// and losses of time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "arbiter/core/core.h"
#include "simulation/session.h"
#include "simulation/timeline.h"

namespace sharedgpu {

struct Program {
  unsigned size = 0;  // MiB; the GPU has 100 MiB
  // The program works for `burst`, then pauses for `pause`; each of these times is varied at random by up to
  // half. If `burst` is zero, the program always has work.
  Nanoseconds burst{};
  Nanoseconds pause{};
  Claims claims = {};
  Nanoseconds arrival{};
  Nanoseconds work{};  // GPU time after which the program ends; zero if it never ends
  // If set, a piece of work of exactly `burst` arrives in each period. A piece that arrives while another is
  // unfinished is skipped, like a frame of a camera. A piece meets its deadline if it finishes within
  // claims.deadline after its arrival. A skipped piece misses its deadline. If `period` is zero, `burst` and
  // `pause` apply as described above.
  Nanoseconds period{};
  // If not empty, the program has bursts of exactly these lengths, each followed by its pause, and then ends.
  struct Piece {
    Nanoseconds burst{};
    Nanoseconds pause{};
  };
  std::vector<Piece> pieces = {};
  Nanoseconds kernel = std::chrono::milliseconds(5);  // length of the longest kernel; a turn may end late by
                                                      // at most this length
};

class Stage : private simulation::Process {
 public:
  // `per_mib`: time to copy a MiB, in either direction.
  Stage(std::uint64_t seed, const TurnRules& turns, Nanoseconds per_mib, const std::vector<Program>& programs,
        const std::string& policy = "round-robin");
  ~Stage() override;

  // Runs for `time`, or until all programs have ended.
  void run(Nanoseconds time);
  // Restarts the measurements of lost(), measured() and seen(), except Seen::took and Seen::response.
  void begin_measuring();

  struct Seen {
    Nanoseconds lease{};
    std::vector<Nanoseconds> waits;
    std::vector<Nanoseconds> starts;  // the waits at the beginning of a burst
    unsigned turns = 0;
    std::optional<Nanoseconds> took;  // time from the program's arrival to its end; nullopt if it has not
                                      // ended
    unsigned met = 0;                 // number of met deadlines
    unsigned missed = 0;              // number of missed deadlines, including those that the current piece of
                                      // work has missed so far
    Nanoseconds response{};           // response time of the last piece of work that has ended, for programs
                                      // with a period
  };
  std::uint64_t events() const { return events_; }  // events passed to the core
  bool all_ended() const { return left_ == 0; }
  bool works(std::size_t program) const;  // true if the program has work, even if it waits for the GPU
  Nanoseconds measured() const { return now() - measured_since_; }
  Nanoseconds lost() const { return lost_; }  // time in which some program had work, but no program worked
  Seen seen(std::size_t program) const;
  // Returns the largest part of the GPU's time that the program may have now; 1 if the program has not come
  // yet or has ended.
  double part(std::size_t program) const;
  Snapshot::Gpu gpu() const { return core_->snapshot().gpus.front(); }

 private:
  struct Actor;

  void at(Nanoseconds time, std::function<void()> what);
  void tell(const Event& event);
  void perform(const Actions& actions);
  void count_loss();
  template <class Body>
  void say(Actor& actor, const Body& body);
  void hear(Actor& actor, const Message& message);
  void next_order(Actor& actor);
  void obey(Actor& actor);
  void end(Actor& actor);
  void gate_opened(Actor& actor);
  void begin_burst(Actor& actor);
  void end_burst(Actor& actor);
  void work_on(Actor& actor);
  void stop_work(Actor& actor);
  void watch_idle(Actor& actor, unsigned generation, Nanoseconds said);

  // Process
  Nanoseconds drain(simulation::Session& session, MessageType order) override;
  bool waits(const simulation::Session& session) const override;

  Nanoseconds now() const { return timeline_.now(); }
  Nanoseconds between(Nanoseconds least, Nanoseconds most) {
    return Nanoseconds(std::uniform_int_distribution<Nanoseconds::rep>(least.count(), most.count())(random_));
  }

  std::mt19937_64 random_;
  const Nanoseconds per_mib_;
  simulation::Timeline timeline_;
  std::uint64_t events_ = 0;
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<Core> core_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::size_t left_;  // number of actors that have not ended
  Nanoseconds measured_since_ = now();
  Nanoseconds counted_ = now();
  Nanoseconds lost_{};
};

}  // namespace sharedgpu
