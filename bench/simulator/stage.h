// SPDX-License-Identifier: Apache-2.0
// A GPU on which programs of a fixed size take turns, as a model: what is moved takes its time, what is
// submitted ends within a few milliseconds, messages are on their way for a part of one. The arbiter's own
// core decides. For what it promises about time: shares, waits, losses; in bench/simulate and in the property
// tests.
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
  unsigned size = 0;  // MiB of the 100 that the GPU has
  // Works for `burst`, then pauses for `pause`, each time half as long to half as long again. No burst: it
  // always has work.
  Nanoseconds burst{};
  Nanoseconds pause{};
  Claims claims = {};
  Nanoseconds arrival{};
  Nanoseconds work{};  // on the GPU; then it ends. None: it never does
  // A piece of work, exactly `burst` of it, comes in each period; those that come while one is not done are
  // left out, as a camera's frames are. It meets claims.deadline, if there is one, where it is done so long
  // after it came; who is left out misses it. None: as above.
  Nanoseconds period{};
  // Bursts of exactly that length, each with the pause after it, and then it ends. None: as above.
  struct Piece {
    Nanoseconds burst{};
    Nanoseconds pause{};
  };
  std::vector<Piece> pieces = {};
  Nanoseconds kernel = std::chrono::milliseconds(5);  // the longest, which a turn's end waits for
};

class Stage : private simulation::Process {
 public:
  // `per_mib`: how long it takes to move a MiB, each way.
  Stage(std::uint64_t seed, const TurnRules& turns, Nanoseconds per_mib, const std::vector<Program>& programs,
        const std::string& policy = "round-robin");
  ~Stage() override;

  // For so long, or until all have ended.
  void run(Nanoseconds time);
  // Forgets what was measured so far.
  void begin_measuring();

  struct Seen {
    Nanoseconds lease{};
    std::vector<Nanoseconds> waits;
    std::vector<Nanoseconds> starts;  // the waits with which bursts began
    unsigned turns = 0;
    std::optional<Nanoseconds> took;  // from its arrival to its end
    unsigned met = 0;                 // deadlines
    unsigned missed = 0;              // those included that the piece of work at hand has missed by now
    Nanoseconds response{};           // of the last piece of work with a deadline
  };
  std::uint64_t events() const { return events_; }  // that the core was told
  bool all_ended() const { return left_ == 0; }
  bool works(std::size_t program) const;  // has work, or waits for the GPU with some
  Nanoseconds measured() const { return now() - measured_since_; }
  Nanoseconds lost() const { return lost_; }  // nobody worked, and somebody wanted to
  Seen seen(std::size_t program) const;
  // The part of the time that it may have now.
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
  std::size_t left_;  // of them, who have not ended
  Nanoseconds measured_since_ = now();
  Nanoseconds counted_ = now();
  Nanoseconds lost_{};
};

}  // namespace sharedgpu
