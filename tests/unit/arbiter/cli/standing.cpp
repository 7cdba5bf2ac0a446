// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/standing.h"

#include <catch2/catch.hpp>

#include "tests/unit/arbiter/cli/some_status.h"

namespace sharedgpu::cli {
namespace {

std::string told(const NodeStatus& status, std::size_t tenant) {
  return sentences(standing_of(status, status.tenants[tenant], name_of_user));
}

TEST_CASE("The sentences state a waiting tenant's place, the holder of the GPU and the rest of its turn") {
  const NodeStatus status = some_status();
  CHECK(told(status, 1) ==
        "Job 22 waits for GPU 0, as number 2 of 2 in the queue. Job 21 (ann) has the GPU, and the turn may "
        "last "
        "another 3.2 s.");
  CHECK(told(status, 0) == "Job 21 has GPU 0; 2 others wait. The turn may last another 3.2 s.");
}

TEST_CASE("The sentences name a tenant that keeps others waiting, with the reason") {
  NodeStatus status = some_status();
  status.tenants[0].phase = "leaving";
  status.tenants[0].overdue = {.seconds = 75, .waits_for = "work"};
  CHECK(told(status, 2) ==
        "Job 23 waits for GPU 0, as number 1 of 2 in the queue. Job 21 (ann) has kept the GPU for 1 min 15 s "
        "after its "
        "turn: its work there is not finished.");
  status.tenants[0].overdue.reset();
  CHECK(told(status, 2).ends_with("Job 21 (ann) finishes its work at the end of the turn."));
  CHECK(told(status, 0).starts_with("The turn of job 21 on GPU 0 is over"));
}

TEST_CASE("The sentences state the memory that is being moved") {
  NodeStatus status = some_status();
  status.gpus[0].holders = {};
  status.gpus[0].queue = {2};
  status.gpus[0].turn_left = {};
  status.tenants[0].phase = "out";
  status.tenants[0].wants = false;
  status.tenants[0].to_evict = gibibytes(30);
  CHECK(told(status, 1) ==
        "Job 22 waits for GPU 0, and is next in the queue. 30 GiB of memory of job 21 (ann) still has to be "
        "moved off "
        "the GPU.");
  status.tenants[2].phase = "entering";
  status.tenants[2].resident = gibibytes(20);
  CHECK(told(status, 1).ends_with(
      "Job 23 (bob) goes first: 30 GiB of memory still has to be moved to the GPU."));
  CHECK(told(status, 2) ==
        "Job 23 gets GPU 0 now: 30 GiB of its memory still has to be moved to the GPU. Memory of job 21 "
        "(ann) is being "
        "moved off the GPU for it.");
  CHECK(told(status, 0) ==
        "Job 21 has no work for GPU 0 at this moment; 50 GiB of its 50 GiB are on the GPU.");
}

TEST_CASE("The sentences begin with the reason that keeps a tenant from having turns") {
  NodeStatus status = some_status();
  status.tenants[1].nodes = 4;
  CHECK(told(status, 1).ends_with("Its turn begins on all of its 4 nodes together."));
  status.tenants[1].stopped = true;
  CHECK(told(status, 1) == "Job 22 is stopped: it gets no turn until its processes go on.");
  status.recovering = true;
  CHECK(told(status, 1).starts_with("The arbiter has just started"));
  status.gpus[0].condition = "lost";
  status.gpus[0].fault = "Xid 79";
  CHECK(told(status, 1) == "GPU 0 of job 22 is lost: Xid 79.");
  status.tenants[1].gpus.clear();
  CHECK(told(status, 1) == "Job 22 has not used a shared GPU of this node yet.");
}

TEST_CASE("Of many other tenants, three are named") {
  NodeStatus status = some_status();
  status.gpus[0].turn_left = {};
  for (std::uint64_t id = 4; id <= 9; ++id) {
    status.tenants.push_back(status.tenants[0]);
    status.tenants.back().id = id;
    status.gpus[0].holders.push_back(id);
  }
  CHECK(told(status, 1).ends_with("Job 21 (ann), job 21 (ann), job 21 (ann) and 4 others have the GPU."));
}

TEST_CASE("Holders that the user may not see are counted") {
  NodeStatus status = some_status();
  status.gpus[0].holders = {0};
  status.gpus[0].queue = {0, 2};
  status.tenants.erase(status.tenants.begin() + 2);
  status.tenants.erase(status.tenants.begin());
  const std::string start = "Job 22 waits for GPU 0, as number 2 of 2 in the queue. ";
  CHECK(told(status, 0) == start + "Another job has the GPU, and the turn may last another 3.2 s.");
  status.gpus[0].holders = {0, 0};
  CHECK(told(status, 0) == start + "2 other jobs have the GPU, and the turn may last another 3.2 s.");
  status.gpus[0].holders = {0, 1};
  status.tenants.push_back(some_status().tenants[0]);
  CHECK(told(status, 0) ==
        start + "Job 21 (ann) and another job have the GPU, and the turn may last another 3.2 s.");
  CHECK(json_of(standing_of(status, status.tenants[0], name_of_user))["gpus"][0]["hidden_holders"] == 1);
}

TEST_CASE(
    "The asker counts as its job, or else as its run, or as its user if it is in no job and in no run") {
  const NodeStatus status = some_status();
  const auto ids = [&](const Asker& asker) {
    std::vector<std::uint64_t> found;
    for (const NodeStatus::Tenant* tenant : tenants_of(status, asker)) found.push_back(tenant->id);
    return found;
  };
  using Ids = std::vector<std::uint64_t>;
  CHECK(ids({.job = 22, .run = 1, .uid = 1}) == Ids{2});
  CHECK(ids({.job = 99, .run = 3, .uid = 1}) == Ids{3});
  CHECK(ids({.job = 99, .run = {}, .uid = 1}).empty());
  CHECK(ids({.job = {}, .run = {}, .uid = 2}) == Ids{2, 3});
}

TEST_CASE("The JSON has what the sentences say") {
  const NodeStatus status = some_status();
  const auto json = json_of(standing_of(status, status.tenants[1], name_of_user));
  CHECK(json["name"] == "job 22");
  CHECK(json["state"] == "waiting");
  CHECK(json["gpus"][0]["place"] == 2);
  CHECK(json["gpus"][0]["waiting"] == 2);
  CHECK(json["gpus"][0]["turn_left_seconds"] == 3.25);
  CHECK(json["gpus"][0]["holders"][0]["name"] == "job 21");
  CHECK(json["gpus"][0]["holders"][0]["user"] == "ann");
  CHECK(json["text"] == told(status, 1));
}

TEST_CASE("An answer that is no status is an error, and the status of an older arbiter is accepted") {
  NodeStatus status;
  CHECK(parse_status("{", status).starts_with("the arbiter's answer is not understood"));
  CHECK(parse_status("[]", status) != "");
  CHECK(parse_status(R"({"gpus": [{"number": "x"}], "tenants": []})", status) != "");
  CHECK(parse_status(R"({"gpus": [{"number": 1}], "tenants": [{"id": 7, "job": null}]})", status) == "");
  CHECK(status.gpus[0].number == 1);
  CHECK(status.find(7)->state() == "idle");
  CHECK(status.find(8) == nullptr);
}

}  // namespace
}  // namespace sharedgpu::cli
