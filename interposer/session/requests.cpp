// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/requests.h"

namespace sharedgpu::session {

void Requests::add(Request& request) {
  std::lock_guard lock(mutex_);
  request.id = ++last_id_;
  Request** end = &first_;
  while (*end != nullptr) end = &(*end)->next;
  *end = &request;
}

void Requests::remove(Request& request) {
  std::lock_guard lock(mutex_);
  for (Request** link = &first_; *link != nullptr; link = &(*link)->next) {
    if (*link != &request) continue;
    *link = request.next;
    return;
  }
}

bool Requests::answered(const Request& request) const {
  std::lock_guard lock(mutex_);
  return request.answered;
}

bool Requests::next_unsent(Unsent& unsent) {
  std::lock_guard lock(mutex_);
  for (Request* request = first_; request != nullptr; request = request->next) {
    if (request->sent || request->answered) continue;
    request->sent = true;
    unsent = {.question = request->question, .id = request->id, .borrow = request->borrow};
    return true;
  }
  return false;
}

void Requests::unsend() {
  std::lock_guard lock(mutex_);
  for (Request* request = first_; request != nullptr; request = request->next) request->sent = false;
}

void Requests::answer(MessageType question, std::uint64_t id, const Message& message, UniqueFd descriptor) {
  std::lock_guard lock(mutex_);
  for (Request* request = first_; request != nullptr; request = request->next) {
    if (request->question != question || (id != 0 && request->id != id)) continue;
    request->answer = message;
    if (descriptor) request->descriptor = static_cast<UniqueFd&&>(descriptor);
    request->answered = true;
    request->done.raise();
  }
}

}  // namespace sharedgpu::session
