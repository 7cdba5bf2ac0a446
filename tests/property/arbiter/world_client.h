// SPDX-License-Identifier: Apache-2.0
// A well-behaved client of the simulation, and constants for all parts of the simulation.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "world.h"

namespace sharedgpu::test {

// Memory of the GPU for contexts, in addition to its capacity. Contexts need no grant; in the simulation, all
// contexts fit into this memory.
constexpr unsigned kForContexts = 60;  // in MiB
constexpr Nanoseconds kQuantum = std::chrono::milliseconds(500);
constexpr Nanoseconds kMostOveruse = std::chrono::seconds(5);
// Settings of the core in simulations with hostile clients:
constexpr Nanoseconds kPatience = std::chrono::seconds(2);
constexpr Nanoseconds kCrowdPatience = std::chrono::seconds(5);

// The most memory that hostile clients really have on a GPU. Surveys show this memory, even if the clients do
// not report it.
inline Bytes held_by_hostile(const Scenario& scenario) {
  return mebibytes(2 * scenario.hostile * HostileClients::kMostSessions);
}

inline void must(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// One well-behaved process, with its real memory. `id` is the number of the client's session with the current
// arbiter.
struct World::Client : simulation::Session {
  SessionId key;  // the client's number, which stays the same when the arbiter restarts
  TenantId tenant;
  unsigned gpu = 0;
  bool attached = false;
  bool had_gate = false;   // the client held a lease when the arbiter died
  bool let_in = false;     // the gate was open at the last Ready or opened later, and no Released followed
  bool begun = false;      // has ever submitted
  bool computing = false;  // the GPU has unfinished work of the client
  unsigned submitted = 0;  // number of the last submission; counts on from other sessions of the tenant
  unsigned done = 0;       // number of the last submission that the GPU has finished
  bool busy = false;       // the GPU executes the first unfinished submission
  bool full = false;       // the program waits until a part of its work is done
  Bytes prepared;          // host memory for evictions, as in the last Prepare
  bool capturing = false;
  std::set<unsigned> holding;  // numbers of submissions that end only after the next submission
  Nanoseconds draining_since{};
  unsigned passed = 0;         // number of threads that passed the gate while the client drained
  std::uint32_t step = 0;      // number of the client's step in its job
  bool mute = false;           // the client obeys no order
  bool waiting = false;        // a thread waits at the gate
  bool asking = false;         // a request for growth waits for a Verdict
  bool hoarding = false;       // the session cannot evict, since it has no free host memory
  Nanoseconds barred_until{};  // the session cannot evict until this time, since its program needs the host
                               // memory
  Nanoseconds waiting_since{};
  Nanoseconds asking_since{};
  Nanoseconds idle_since{};
  std::uint64_t requests = 0;
  Bytes before_growth_swappable;
  Bytes before_growth_pinned;
  Bytes away;  // away memory, including growth for which a request waits
  Bytes before_growth_away;
  Nanoseconds line_free{};  // earliest arrival of the next message, so that messages keep their order
  unsigned generation = 0;
  Nanoseconds restored_at{};
  bool stopped = false;
  Nanoseconds went_on{};
  Nanoseconds came_back{};                     // time at which the client reconnected to a restarted arbiter
  std::vector<std::function<void()>> put_off;  // actions that wait until the process resumes
  // Delays the actions of a stopped process.
  bool puts_off(std::function<void()> what) {
    if (stopped) put_off.push_back(std::move(what));
    return stopped;
  }

  Bytes granted_away() const { return asking ? before_growth_away : away; }
  Bytes granted() const { return asking ? std::min(use.swappable, before_growth_swappable) : use.swappable; }
};

template <class Body>
void World::say(Client& client, const Body& body) {
  client.line_free = std::max(client.line_free, now() + delay(2));
  at(client.line_free, [this, key = client.key, life = life_, body] {
    auto entry = clients_.find(key);
    if (entry == clients_.end() || life != life_) return;
    if (std::is_same_v<Body, Attach> && scenario_.learned) find_gpu(entry->second->gpu, true);
    tell(From<Body>{.session = entry->second->id, .body = body});
  });
}

}  // namespace sharedgpu::test
