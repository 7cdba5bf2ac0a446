// SPDX-License-Identifier: Apache-2.0
// The parts of Core that its files share and nobody else needs.
#pragma once

#include "arbiter/core/core.h"

namespace sharedgpu {

template <class Body>
void Core::send(Session& session, const Body& body) {
  actions_.emplace_back(Send{.session = session.id, .message = Message::of(body)});
}

inline bool on_gpu(const Session* session) { return session->gpu != nullptr; }

}  // namespace sharedgpu
