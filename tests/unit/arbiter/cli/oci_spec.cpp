// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/oci_spec.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>

namespace sharedgpu::cli {
namespace {

using nlohmann::json;

constexpr char kLibrary[] = "/opt/x/lib/sharedgpu/libsharedgpu.so";

JobReach job_with(std::map<std::string, std::string> variables) {
  return read_reach(
      [variables](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      kLibrary);
}

JobReach job() {
  return job_with({{"SHAREDGPU_SOCKET", "/run/sharedgpu/sharedgpud.sock"},
                   {"SHAREDGPU_ON_NO_ARBITER", "plain"},
                   {"CUDA_VISIBLE_DEVICES", "GPU-1"},
                   {"SHAREDGPU_DEADLINE_FD", "7"},
                   {"HOME", "/home/u"}});
}

json edited(json spec, const JobReach& job, Stated stated = Stated::wins) {
  CHECK(add_job(spec, job, stated).empty());
  return spec;
}

json with_env(std::vector<std::string> env) { return {{"process", {{"env", env}}}}; }

TEST_CASE("A container of a job gets the two folders, the variables and the preload") {
  const json spec = edited(with_env({"PATH=/bin"}), job());
  CHECK(spec["process"]["env"] == json({"PATH=/bin", "LD_PRELOAD=" + std::string(kLibrary),
                                        "SHAREDGPU_SOCKET=/run/sharedgpu/sharedgpud.sock",
                                        "SHAREDGPU_ON_NO_ARBITER=plain", "CUDA_VISIBLE_DEVICES=GPU-1"}));
  REQUIRE(spec["mounts"].size() == 2);
  CHECK(spec["mounts"][0]["destination"] == "/opt/x/lib/sharedgpu");
  CHECK(spec["mounts"][0]["source"] == "/opt/x/lib/sharedgpu");
  CHECK(spec["mounts"][1]["destination"] == "/run/sharedgpu");
}

TEST_CASE("A configuration without process and mounts gets both") {
  const json spec = edited(json::object(), job());
  CHECK(spec["process"]["env"].size() == 4);
  CHECK(spec["mounts"].size() == 2);
}

TEST_CASE("A second edit changes nothing") {
  const json once = edited(with_env({"LD_PRELOAD=/lib/mine.so:/elsewhere/libsharedgpu.so"}), job());
  CHECK(edited(once, job())["mounts"] == once["mounts"]);
  json again = edited(once, job());
  for (json* spec : {&again, const_cast<json*>(&once)}) {
    auto& env = (*spec)["process"]["env"];
    std::sort(env.begin(), env.end());
  }
  CHECK(again["process"]["env"] == once["process"]["env"]);
}

TEST_CASE("The user's other preloads stay, before the library") {
  const json spec = edited(with_env({"LD_PRELOAD=/lib/mine.so /elsewhere/libsharedgpu.so"}), job());
  CHECK(spec["process"]["env"][0] == "LD_PRELOAD=/lib/mine.so:" + std::string(kLibrary));
}

TEST_CASE(
    "A user's empty LD_PRELOAD keeps the library out, but one that a batch step has handed down does not") {
  const json empty = with_env({"LD_PRELOAD=/lib/mine.so", "LD_PRELOAD="});
  CHECK(edited(empty, job(), Stated::wins) == empty);
  CHECK(edited(empty, job(), Stated::yields)["process"]["env"][0] == "LD_PRELOAD=" + std::string(kLibrary));
}

TEST_CASE("A variable that the configuration states wins over the job's variable, or yields to it") {
  const json stated = with_env({"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"});
  const auto count = [](const json& spec, const char* entry) {
    const auto& env = spec["process"]["env"];
    return std::count(env.begin(), env.end(), entry);
  };
  const json won = edited(stated, job(), Stated::wins);
  CHECK(count(won, "CUDA_VISIBLE_DEVICES=1") == 1);
  CHECK(count(won, "CUDA_VISIBLE_DEVICES=GPU-1") == 0);
  const json yielded = edited(stated, job(), Stated::yields);
  CHECK(count(yielded, "CUDA_VISIBLE_DEVICES=0") + count(yielded, "CUDA_VISIBLE_DEVICES=1") == 0);
  CHECK(count(yielded, "CUDA_VISIBLE_DEVICES=GPU-1") == 1);
}

TEST_CASE("Outside of jobs a container stays as it is") {
  const json spec = {{"process", {{"env", {"PATH=/bin", "LD_PRELOAD=/lib/mine.so"}}}},
                     {"root", {{"path", "/r"}}}};
  CHECK(edited(spec, JobReach{}) == spec);
}

TEST_CASE("Outside of jobs an inherited preload is removed") {
  const std::string ours = kLibrary;
  CHECK(edited(with_env({"LD_PRELOAD=" + ours, "A=b"}), JobReach{}) == with_env({"A=b"}));
  CHECK(edited(with_env({"A=b", "LD_PRELOAD=" + ours + ":/lib/mine.so"}), JobReach{}) ==
        with_env({"A=b", "LD_PRELOAD=/lib/mine.so"}));
}

TEST_CASE("A container belongs to a job only with the variables of a tenant") {
  CHECK(job_with({}).library.empty());
  CHECK(job_with({{"SHAREDGPU_SOCKET", "/run/x/s"}}).library.empty());  // outside of jobs, a user may set
                                                                        // this variable
  CHECK(job_with({{"SHAREDGPU_SOCKET", ""}, {"SHAREDGPU_ON_NO_ARBITER", "plain"}}).library.empty());
  CHECK_FALSE(
      job_with({{"SHAREDGPU_SOCKET", "/run/x/s"}, {"SHAREDGPU_ON_NO_ARBITER", "plain"}}).library.empty());
}

TEST_CASE("A folder that each container has itself, such as the root or /tmp, is not mounted") {
  for (const char* socket : {"/socket", "/tmp/socket", "/run/socket", "/var/run/socket", "/dev/shm/socket",
                             "relative/socket", "/tmp//socket", "/run/x/../socket"}) {
    INFO(socket);
    const JobReach odd = job_with({{"SHAREDGPU_SOCKET", socket}, {"SHAREDGPU_ON_NO_ARBITER", "plain"}});
    CHECK(odd.library.empty());
    CHECK(odd.obstacle == "the folder of " + std::string(socket) + " is not for sharedgpu alone");
  }
  CHECK(job().obstacle.empty());
}

TEST_CASE("A mount that the configuration states stays, however its path is written") {
  json spec = {{"mounts", {{{"destination", "/run//sharedgpu/"}, {"source", "/mine"}}, 1, json::object()}}};
  spec = edited(spec, job());
  REQUIRE(spec["mounts"].size() == 4);
  CHECK(spec["mounts"][3]["destination"] == "/opt/x/lib/sharedgpu");
}

TEST_CASE("A text that is not a container's configuration is left unchanged, with a reason") {
  for (const json& odd : {json(1), json::array(), json{{"process", 1}}, json{{"process", {{"env", "A=b"}}}},
                          json{{"process", {{"env", {1}}}}}, json{{"mounts", json::object()}}}) {
    json spec = odd;
    CHECK_FALSE(add_job(spec, job(), Stated::wins).empty());
    CHECK(spec == odd);
  }
}

}  // namespace
}  // namespace sharedgpu::cli
