// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/settings.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "protocol/channel.h"

using namespace sharedgpu;
using namespace sharedgpu::session;

namespace {

std::map<std::string, std::string> environment;
std::vector<std::string> complaints;

Settings read() {
  complaints.clear();
  return read_settings(
      [](const char* name) -> const char* {
        auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
      },
      [](const char* name, const char* value, const char*) {
        complaints.push_back(std::string(name) + "=" + value);
      });
}

}  // namespace

TEST_CASE("an empty environment gives the defaults") {
  environment = {{"SHAREDGPU_TOKEN", ""}};
  Settings settings = read();
  CHECK(complaints.empty());
  CHECK(std::string(settings.socket) == kDefaultSocket);
  CHECK(settings.token == RunToken{});
  CHECK(settings.arbiter_timeout == std::chrono::seconds(5));
  CHECK(!settings.fail_without_arbiter);
}

TEST_CASE("good values are taken") {
  environment = {{"SHAREDGPU_SOCKET", "/tmp/x"},
                 {"SHAREDGPU_TOKEN", "000102030405060708090a0b0c0d0eff"},
                 {"SHAREDGPU_ARBITER_TIMEOUT", "0"},
                 {"SHAREDGPU_ON_NO_ARBITER", "fail"}};
  Settings settings = read();
  CHECK(complaints.empty());
  CHECK(std::string(settings.socket) == "/tmp/x");
  CHECK(settings.token.bytes[10] == 10);
  CHECK(settings.token.bytes[15] == 255);
  CHECK(settings.arbiter_timeout.count() == 0);
  CHECK(settings.fail_without_arbiter);
}

TEST_CASE("the batch system is that whose options the user knows") {
  const auto batch_of = [](std::map<std::string, std::string> variables) {
    environment = std::move(variables);
    return read().batch;
  };
  CHECK(batch_of({}) == BatchSystem::none);
  CHECK(batch_of({{"SLURM_JOB_ID", "7"}}) == BatchSystem::slurm);
  const std::string token(32, '1');
  CHECK(batch_of({{"SLURM_JOB_ID", "7"}, {"SHAREDGPU_TOKEN", token}}) == BatchSystem::none);
  CHECK(batch_of({{"SHAREDGPU_TOKEN", token}}) == BatchSystem::none);
  CHECK(batch_of({{"SHAREDGPU_TOKEN", token}, {"SHAREDGPU_GROUP", "1"}}) == BatchSystem::run);
  CHECK(batch_of({{"SHAREDGPU_GROUP", "1"}}) == BatchSystem::none);
  CHECK(batch_of({{"PBS_JOBID", "7.server"}, {"SHAREDGPU_TOKEN", token}}) == BatchSystem::openpbs);
  CHECK(batch_of({{"PBS_JOBID", "7.server"}, {"PBS_VERSION", "TORQUE-6.1.2"}}) == BatchSystem::torque);
  // qsub for Slurm sets PBS_JOBID, too.
  CHECK(batch_of({{"PBS_JOBID", "7"}, {"SLURM_JOB_ID", "7"}}) == BatchSystem::slurm);
}

TEST_CASE("bad values are named, and the defaults stay") {
  environment = {{"SHAREDGPU_SOCKET", std::string(108, 'x')},
                 {"SHAREDGPU_TOKEN", "000102030405060708090a0b0c0d0eFF"},
                 {"SHAREDGPU_ARBITER_TIMEOUT", "-1"},
                 {"SHAREDGPU_ON_NO_ARBITER", "maybe"}};
  Settings settings = read();
  CHECK(complaints.size() == 4);
  CHECK(std::string(settings.socket) == kDefaultSocket);
  CHECK(settings.token == RunToken{});
  CHECK(settings.arbiter_timeout == std::chrono::seconds(5));
  CHECK(!settings.fail_without_arbiter);
  for (const char* value : {"12 parsecs", "1e3", "99999999999999999999", "86400001", " 5"}) {
    environment = {{"SHAREDGPU_ARBITER_TIMEOUT", value}};
    CHECK(read().arbiter_timeout == std::chrono::seconds(5));
    CHECK(complaints.size() == 1);
  }
}
