// SPDX-License-Identifier: Apache-2.0
// The parts of Core that its files share and nobody else needs.
#pragma once

#include <algorithm>

#include "arbiter/core/core.h"

namespace sharedgpu {

template <class Body>
void Core::send(Session& session, const Body& body) {
  actions_.emplace_back(Send{.session = session.id, .message = Message::of(body)});
}

inline bool on_gpu(const Session* session) { return session->gpu != nullptr; }

inline bool attached(const Tenant& tenant) {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(), on_gpu);
}

// The step's lease on the session's GPU.
inline LeaseKey lease_of(const Session& session) {
  return {.tenant = session.tenant->id, .gpu = session.gpu->uuid, .step = session.step};
}

// Whether a session of it is one of those that hold it together, or would.
inline bool anybody_for(const LeaseKey& key, const Tenant& tenant) {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [&](const Session* session) { return on_gpu(session) && lease_of(*session) == key; });
}

// The GPU is done with what it submitted, and nothing passes its gate: its memory may be evicted.
inline bool drained(const Session& session) {
  const Phase phase = session.tenant->phase;
  return phase == Phase::out || (phase == Phase::leaving && session.released);
}

// A process of it that is not stopped has yet to say Released.
inline bool still_drains(const Tenant& tenant) {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [](const Session* session) {
    return on_gpu(session) && !session->released && !session->stopped;
  });
}

// What a tenant's way in takes, as measured, or guessed from its size where it has not been seen.
Nanoseconds expected_handoff(const Tenant& tenant);

// What it has on the GPU while its tenant runs.
Bytes demand_of(const Session& session);
// By how much it is likely to grow in the turn that it waits for.
Bytes put_off(const Session& session);

// What it asked for is not there yet.
inline bool lacks_room(const Session* session) {
  return session->use.swappable > session->allowed || session->use.pinned > session->pinned;
}

}  // namespace sharedgpu
