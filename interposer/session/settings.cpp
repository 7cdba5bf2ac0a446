// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/settings.h"

#include <cstring>

#include "protocol/channel.h"
#include "protocol/environment.h"
#include "protocol/run_token.h"
#include "protocol/split.h"

namespace sharedgpu::session {
namespace {

bool read_milliseconds(const char* text, Nanoseconds& time) {
  const auto value = parse_number<std::uint32_t>(text);
  if (!value || *value > 86'400'000) return false;
  time = std::chrono::milliseconds(*value);
  return true;
}

bool read_path(const char* text, char (&path)[108]) {
  std::size_t length = std::strlen(text);
  if (length >= sizeof path) return false;
  std::memcpy(path, text, length + 1);
  return true;
}

bool read_choice(const char* text, bool& fail) {
  fail = std::strcmp(text, "fail") == 0;
  return fail || std::strcmp(text, "plain") == 0;
}

// TORQUE and OpenPBS both set PBS_JOBID; only TORQUE sets PBS_VERSION. If a process in a Slurm job has a
// token, the token is that of a `sharedgpu run` inside the job.
BatchSystem batch_system(Lookup lookup, bool has_token) {
  const auto is_set = [&](const char* name) { return lookup(name) != nullptr; };
  if (is_set("PBS_JOBID") && !is_set("SLURM_JOB_ID"))
    return is_set("PBS_VERSION") ? BatchSystem::torque : BatchSystem::openpbs;
  if (is_set("SLURM_JOB_ID") && !has_token) return BatchSystem::slurm;
  return has_token && is_set(environment::kGroup) ? BatchSystem::run : BatchSystem::none;
}

}  // namespace

Settings read_settings(Lookup lookup, Complain complain) {
  Settings settings;
  std::memcpy(settings.socket, kDefaultSocket, sizeof kDefaultSocket);
  auto read = [&](const char* name, const char* expected, auto&& parse) {
    const char* value = lookup(name);
    if (value != nullptr && *value != '\0' && !parse(value)) complain(name, value, expected);
  };
  read(environment::kSocket, "a path of at most 107 bytes",
       [&](const char* value) { return read_path(value, settings.socket); });
  read(environment::kToken, "32 hexadecimal digits",
       [&](const char* value) { return parse_token(value, settings.token); });
  read(environment::kArbiterTimeout, "milliseconds, at most a day",
       [&](const char* value) { return read_milliseconds(value, settings.arbiter_timeout); });
  read(environment::kOnNoArbiter, "plain or fail",
       [&](const char* value) { return read_choice(value, settings.fail_without_arbiter); });
  read(environment::kDeadlineRead, "a descriptor and the number of its file",
       [&](const char* value) { return read_deadline_pipe(value, settings.deadlines); });
  settings.batch = batch_system(lookup, settings.token != RunToken{});
  return settings;
}

}  // namespace sharedgpu::session
