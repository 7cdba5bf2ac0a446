// SPDX-License-Identifier: Apache-2.0
// A GPU on which programs of a fixed size take turns, as a model: what is moved takes its time, what is
// submitted ends within a few milliseconds, messages are on their way for a part of one. The arbiter's own
// core decides. For what it promises about time: shares, waits, losses; in bench/simulate and in the property
// tests.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "arbiter/core/core.h"

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

class Stage {
 public:
  // `per_mib`: how long it takes to move a MiB, each way.
  Stage(std::uint64_t seed, const TurnRules& turns, Nanoseconds per_mib, const std::vector<Program>& programs,
        const std::string& policy = "round-robin");
  ~Stage();

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
  Nanoseconds measured() const { return now_ - measured_since_; }
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
  void next_job(Actor& actor);
  void move(Actor& actor);
  void finish_job(Actor& actor);
  void end(Actor& actor);
  void gate_opened(Actor& actor);
  void begin_burst(Actor& actor);
  void end_burst(Actor& actor);
  void work_on(Actor& actor);
  void stop_work(Actor& actor);
  void watch_idle(Actor& actor, unsigned generation, Nanoseconds said);

  Nanoseconds between(Nanoseconds least, Nanoseconds most) {
    return Nanoseconds(std::uniform_int_distribution<Nanoseconds::rep>(least.count(), most.count())(random_));
  }

  struct Moment {
    Nanoseconds at;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const Moment& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  std::mt19937_64 random_;
  const Nanoseconds per_mib_;
  Nanoseconds now_ = std::chrono::seconds(1000);
  Nanoseconds timer_ = Nanoseconds::max();
  std::uint64_t order_ = 0;
  std::uint64_t events_ = 0;
  std::vector<Moment> moments_;  // a heap
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<Core> core_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::size_t left_;  // of them, who have not ended
  Nanoseconds measured_since_ = now_;
  Nanoseconds counted_ = now_;
  Nanoseconds lost_{};
};

}  // namespace sharedgpu
