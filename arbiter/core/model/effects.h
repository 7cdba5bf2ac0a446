// SPDX-License-Identifier: Apache-2.0
// Collects the actions of all parts of the core while the core handles an event, and knows the time of the
// event.
//
// The daemon performs the actions in the order in which they were added.
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
  void note_routine(const Tenant& tenant, std::string text) {
    put(Note{.tenant = tenant.id, .text = std::move(text), .routine = true});
  }
  void drop(const Session& session, std::string reason) {
    put(Drop{.session = session.id, .reason = std::move(reason)});
  }

  // Requests another advance of the current domain at the time `at`. A time in the past is ignored.
  void wake_at(Nanoseconds at) {
    if (at > now_) wake_ = std::min(wake_, at);
  }
  // Requests another advance of the current domain with the next event, or soon if no event comes. Call when
  // further changes may follow, for example because a running set has changed.
  void advance_again() { again_ = true; }

  // Call before a domain is advanced. After the advance, wake() returns the earliest of `wake` and the times
  // that wake_at() has requested, and again() returns true if advance_again() was called.
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
