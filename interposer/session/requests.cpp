// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/requests.h"

#include <algorithm>

namespace sharedgpu::session {

void Requests::add(Request& request) {
  std::lock_guard lock(mutex_);
  request.id = ++last_id_;
  all_.push_back(&request);
}

void Requests::remove(Request& request) {
  std::lock_guard lock(mutex_);
  std::erase(all_, &request);
}

bool Requests::answered(const Request& request) const {
  std::lock_guard lock(mutex_);
  return request.answered;
}

bool Requests::any(MessageType question) const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(all_,
                             [question](const Request* request) { return request->question == question; });
}

bool Requests::next_unsent(Unsent& unsent) {
  std::lock_guard lock(mutex_);
  for (Request* request : all_) {
    if (request->sent || request->answered) continue;
    request->sent = true;
    unsent = {.question = request->question,
              .id = request->id,
              .borrow = request->borrow,
              .refusal = request->refusal};
    return true;
  }
  return false;
}

void Requests::unsend() {
  std::lock_guard lock(mutex_);
  for (Request* request : all_) request->sent = false;
}

void Requests::answer(MessageType question, std::uint64_t id, const Message& message, UniqueFd descriptor) {
  std::lock_guard lock(mutex_);
  for (Request* request : all_) {
    if (request->question != question || (id != 0 && request->id != id)) continue;
    request->answer = message;
    if (descriptor) request->descriptor = static_cast<UniqueFd&&>(descriptor);
    request->answered = true;
    request->done.raise();
  }
}

}  // namespace sharedgpu::session
