// SPDX-License-Identifier: Apache-2.0
// The effects and the time of the current event. All parts of the core put their actions here.
//
// The shell performs actions in the order in which they were put.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "arbiter/core/model/actions.h"
#include "arbiter/core/model/model.h"

namespace sharedgpu {

class Effects {
 public:
  Nanoseconds now() const { return now_; }
  void begin(Nanoseconds now) { now_ = now; }

  template <class Body>
  void send(const Session& session, const Body& body) {
    actions_.emplace_back(Send{.session = session.id, .message = Message::of(body)});
  }
  void put(Action action) { actions_.push_back(std::move(action)); }
  void note(const Tenant& tenant, std::string text) {
    put(Note{.tenant = tenant.id, .text = std::move(text)});
  }
  void drop(const Session& session, std::string reason) {
    put(Drop{.session = session.id, .reason = std::move(reason)});
  }

  // Requests that the domain being advanced is advanced again at that time. A time in the past is ignored.
  void wake_at(Nanoseconds at) {
    if (at > now_) wake_ = std::min(wake_, at);
  }
  // Requests another pass. Call it when a running set has changed or its turn has ended, since more may
  // follow from that.
  void advance_again() { again_ = true; }

  // Call before a domain is advanced. Afterwards wake() returns when the domain is to be advanced again, and
  // again() returns true if that is at once.
  void begin_domain(Nanoseconds wake) {
    wake_ = wake;
    again_ = false;
  }
  Nanoseconds wake() const { return wake_; }
  bool again() const { return again_; }

  Actions take() { return std::exchange(actions_, {}); }

 private:
  Nanoseconds now_{};
  Nanoseconds wake_{};
  bool again_ = false;
  Actions actions_;
};

}  // namespace sharedgpu
