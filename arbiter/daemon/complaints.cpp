// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/complaints.h"

#include <utility>

namespace sharedgpu {
namespace {

constexpr std::chrono::seconds kTellEvery{10};

}  // namespace

void Complaints::add(uid_t account, Cause cause, const std::string& line, void (*log)(std::string_view)) {
  if (const auto allowed = limits_.add(account, cause, line, system_.now())) return log(*allowed);
  tell_of_left_out_later();
}

void Complaints::tell_of_left_out_later() {
  if (!limits_.has_left_out() || std::exchange(timer_is_set_, true)) return;
  timer_.expires_after(kTellEvery);
  timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    timer_is_set_ = false;
    for (const std::string& line : limits_.take_left_out(system_.now())) log::warning(line);
    tell_of_left_out_later();
  });
}

}  // namespace sharedgpu
