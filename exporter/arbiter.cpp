// SPDX-License-Identifier: Apache-2.0
#include "exporter/arbiter.h"

#include <prometheus/metric_family.h>
#include <pwd.h>

#include <cstdio>
#include <exception>

#include "arbiter/cli/ask_status.h"
#include "exporter/families.h"

namespace sharedgpu::exporter {

std::vector<prometheus::MetricFamily> Arbiter::Collect() const {
  std::string text;
  std::string problem = cli::ask_status(socket_, patience_, text);
  if (problem.empty()) {
    try {
      auto families = families_of(read_status(text), [this](uid_t uid) { return user_name(uid); });
      note({});
      return families;
    } catch (const std::exception& failure) {
      problem = std::string("the arbiter's answer: ") + failure.what();
    }
  }
  note(problem);
  return families_without_arbiter();
}

// A user without a name is shown as a number. Names are looked up once, since the directory service may be
// slow.
std::string Arbiter::user_name(uid_t uid) const {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = names_.try_emplace(uid, std::to_string(uid));
  if (is_new)
    if (const passwd* user = getpwuid(uid)) entry->second = user->pw_name;
  return entry->second;
}

void Arbiter::note(const std::string& problem) const {
  const std::lock_guard lock(mutex_);
  if (problem == problem_) return;
  problem_ = problem;
  std::fprintf(stderr, "sharedgpu-exporter: %s\n",
               problem.empty() ? "the arbiter answers again" : problem.c_str());
}

}  // namespace sharedgpu::exporter
