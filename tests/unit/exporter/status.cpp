// SPDX-License-Identifier: Apache-2.0
// Reading the status: the exporter skips all fields that it does not need, whatever they contain.
#include "exporter/status.h"

#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>

namespace sharedgpu::exporter {
namespace {

TEST_CASE("Fields are read only at their places") {
  const Status status = read_status(R"({
    "version": "1.2", "recovering": true, "units": 3, "overrides": [{"section": "", "key": "a"}],
    "gpus": [
      {"number": 0, "uuid": "GPU-a", "unmanaged": [{"units": 9, "uuid": "no"}], "units": 8, "holders": [4, 0]},
      {"number": 1, "uuid": "GPU-b", "units": null, "deep": [[[{"units": [1]}]]], "holders": []}],
    "tenants": [
      {"id": 4, "sessions": [{"id": 9, "host_bytes": 1, "gpus": ["no"]}], "host_bytes": 7, "gpus": ["GPU-a", "GPU-b"],
       "overdue": {"seconds": 1.5, "gpu": "GPU-a"}, "energy": [{"gpu": "GPU-a", "joules": 2}, {"gpu": "GPU-b", "joules": 3.5}]},
      {"id": 5, "overdue": null, "name": null, "energy": []}]})");
  CHECK(status.version == "1.2");
  CHECK(status.recovering == 1);
  REQUIRE(status.gpus.size() == 2);
  CHECK(status.gpus[0].uuid == "GPU-a");
  CHECK(status.gpus[0].units == 8);
  CHECK(status.gpus[0].holders == std::vector<std::string>{"4", "0"});
  CHECK(status.gpus[1].number == "1");
  CHECK_FALSE(status.gpus[1].units);
  REQUIRE(status.tenants.size() == 2);
  const Status::Tenant& first = status.tenants[0];
  CHECK(first.id == "4");
  CHECK(first.host_bytes == 7);
  CHECK(first.gpus == std::vector<std::string>{"GPU-a", "GPU-b"});
  CHECK(first.overdue_seconds == 1.5);
  REQUIRE(first.energy.size() == 2);
  CHECK(first.energy[1].gpu == "GPU-b");
  CHECK(first.energy[1].joules == 3.5);
  CHECK(status.tenants[1].id == "5");
  CHECK(status.tenants[1].name.empty());
  CHECK_FALSE(status.tenants[1].overdue_seconds);
}

TEST_CASE("A text of another form is an error") {
  for (const char* text : {"", "nothing", "7", "[]", "{}", R"({"gpus": []})", R"({"gpus": 1, "tenants": []})",
                           R"({"gpus": [], "tenants": [)", R"({"gpus": [{"units": "many"}], "tenants": []})",
                           R"({"gpus": [{"uuid": 1.5}], "tenants": []})", R"({"gpus": {}, "tenants": {}})"}) {
    INFO(text);
    CHECK_THROWS_AS(read_status(text), std::runtime_error);
  }
  CHECK(read_status(R"({"gpus": [], "tenants": [1, [2], null, "3"]})").tenants.empty());
}

}  // namespace
}  // namespace sharedgpu::exporter
