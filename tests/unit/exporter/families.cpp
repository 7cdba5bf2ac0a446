// SPDX-License-Identifier: Apache-2.0
// The conversion of the status to metrics: the text, which programs of sites read, and the values.
#include "exporter/families.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "exporter/text_file.h"
#include "tests/unit/golden.h"

namespace sharedgpu::exporter {
namespace {

using Json = nlohmann::json;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

std::string user_name(uid_t uid) { return uid == 1000 ? "ann" : std::to_string(uid); }

Json gpu(unsigned number) {
  const std::string name = "GPU-0" + std::to_string(number) + "000000-0000-0000-0000-000000000000";
  return {{"uuid", name},
          {"name", "Test \"GPU\""},
          {"number", number},
          {"units", 8},
          {"condition", "healthy"},
          {"drained", false},
          {"total_bytes", 85899345920},
          {"capacity_bytes", 81604378624},
          {"usable_bytes", 81604378000},
          {"unmanaged_bytes", 1048576},
          {"utilization", 0.25},
          {"energy_joules", 123456.789},
          {"unleased_energy_joules", 1234.5},
          {"promised_bytes", 7},
          {"footprint_bytes", 96636764160},
          {"resident_bytes", 81604370000},
          {"context_bytes", 536870912},
          {"host_bytes", 15032385536},
          {"contended", true},
          {"policy", "round-robin"},
          {"quantum_seconds", 7.5},
          {"handoff_seconds", 0.4},
          {"holders", {1}}};
}

Json tenant(unsigned id, bool holds) {
  return {{"id", id},
          {"name", "job " + std::to_string(40 + id)},
          {"job", 40 + id},
          {"uid", 1000},
          {"units", 4},
          {"partition", "long"},
          {"qos", "high"},
          {"state", holds ? "running" : "out"},
          {"wants", true},
          {"lease", holds},
          {"lease_seconds", 3600.25},
          {"waited_seconds", 1800.5},
          {"overuse_seconds", 0.125},
          {"handoffs", 480},
          {"evicted_bytes", 10995116277760},
          {"restored_bytes", 10995116277761},
          {"deadline_seconds", 0.0},
          {"deadlines_met", 0},
          {"deadlines_missed", 0},
          {"overdue", nullptr},
          {"stuck", false},
          {"footprint_bytes", 48318382080},
          {"resident_bytes", 40802185000},
          {"host_bytes", 7516192768},
          {"away_bytes", 3221225472},
          {"host_budget_bytes", 68719476736},
          {"gpus", {gpu(0)["uuid"]}},
          {"placed", {gpu(0)["uuid"]}},
          {"exchanges", nullptr},
          {"energy", {{{"gpu", gpu(0)["uuid"]}, {"joules", 5000.5}}}}};
}

// A status with a GPU of which all values are known, a lost GPU of which some values are unknown, a job that
// holds a lease, a job that waits, and an overdue run with a deadline.
Json status() {
  Json other = gpu(1);
  for (const char* name : {"utilization", "energy_joules", "unmanaged_bytes"}) other[name] = nullptr;
  other["handoff_seconds"] = 0;
  other["holders"] = Json::array();
  other["condition"] = "lost";
  Json run = tenant(3, false);
  for (const char* name : {"job", "partition", "qos", "host_budget_bytes"}) run[name] = nullptr;
  run["name"] = "run 3";
  run["uid"] = 1001;
  run["deadline_seconds"] = 0.033;
  run["deadlines_met"] = 90;
  run["deadlines_missed"] = 10;
  run["wants"] = false;
  run["overdue"] = {{"seconds", 12.5}, {"gpu", gpu(1)["uuid"]}};
  run["exchanges"] = {{"evicted_bytes", 4294967296}, {"restored_bytes", 4294967297},
                      {"moving_seconds", 0.25},      {"best_seconds", 0.125},
                      {"waited_seconds", 0.5},       {"slowed_seconds", 0.75}};
  run["gpus"] = Json::array();
  run["placed"] = {gpu(0)["uuid"], gpu(1)["uuid"]};
  run["energy"] = Json::array();
  return {{"version", "0.1.0"},
          {"recovering", false},
          {"gpus", {gpu(0), other}},
          {"tenants", {tenant(1, true), tenant(2, false), run}}};
}

std::vector<MetricFamily> metrics_of(const Json& status) {
  return families_of(read_status(status.dump()), user_name);
}

// The value of the series with exactly these labels; nullopt if there is none.
std::optional<double> value(const std::vector<MetricFamily>& families, const std::string& name,
                            std::vector<ClientMetric::Label> labels) {
  for (const MetricFamily& family : families)
    if (family.name == name)
      for (const ClientMetric& metric : family.metric)
        if (metric.label == labels)
          return family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value;
  return std::nullopt;
}

TEST_CASE("golden: the text of the metrics") {
  const std::string text = text_of(metrics_of(status()));
  CHECK(test::is_golden("metrics.golden", "# SPDX-License-Identifier: Apache-2.0\n" + text));
}

TEST_CASE("Hostile names are escaped, and bytes that are not UTF-8 are replaced") {
  Json hostile = status();
  hostile["tenants"][0]["partition"] = "a\"b\\c\nd} 1\n";
  hostile["tenants"][0]["qos"] = "\u00fc";
  const auto families =
      families_of(read_status(hostile.dump()), [](uid_t) { return std::string("j\xfcrgen\xc3"); });
  const std::string text = text_of(families);
  CHECK(text.find(R"(user="j)"
                  "\xEF\xBF\xBDrgen\xEF\xBF\xBD"
                  R"(",)") != text.npos);
  CHECK(text.find(R"(partition="a\"b\\c\nd} 1\n",qos=")"
                  "\u00fc"
                  R"("})") != text.npos);
}

TEST_CASE("Metrics of an arbiter that does not answer") {
  const auto families = families_without_arbiter();
  CHECK(value(families, "sharedgpu_up", {}) == 0);
  CHECK(value(families, "sharedgpu_build_info", {{"version", SHAREDGPU_VERSION}}) == 1);
  CHECK(families.size() == 2);
}

TEST_CASE("A value that the arbiter does not know has no series") {
  const auto families = metrics_of(status());
  for (const char* name : {"sharedgpu_gpu_unmanaged_bytes", "sharedgpu_gpu_utilization_ratio",
                           "sharedgpu_gpu_energy_joules_total", "sharedgpu_gpu_handoff_seconds"}) {
    INFO(name);
    CHECK(value(families, name, {{"gpu", "0"}}));
    CHECK_FALSE(value(families, name, {{"gpu", "1"}}));
  }
  CHECK_FALSE(value(families, "sharedgpu_tenant_host_budget_bytes", {{"tenant", "3"}}));
  CHECK(value(families, "sharedgpu_tenant_deadlines_met_total", {{"tenant", "3"}}) == 90);
  CHECK_FALSE(value(families, "sharedgpu_tenant_deadlines_met_total", {{"tenant", "1"}}));
}

TEST_CASE("The queue of a GPU has the tenants that wait there and hold no lease") {
  const auto families = metrics_of(status());
  CHECK(value(families, "sharedgpu_gpu_queue_length", {{"gpu", "0"}}) == 1);
  CHECK(value(families, "sharedgpu_gpu_queue_length", {{"gpu", "1"}}) == 0);
  CHECK(value(families, "sharedgpu_tenant_waits", {{"tenant", "1"}}) == 0);
  CHECK(value(families, "sharedgpu_tenant_waits", {{"tenant", "2"}}) == 1);
  CHECK(value(families, "sharedgpu_tenant_waits", {{"tenant", "3"}}) == 0);
}

TEST_CASE("Fields that an older arbiter lacks have no series, and the others do") {
  Json old = status();
  for (Json& each : old["gpus"])
    for (const char* name : {"utilization", "energy_joules", "unleased_energy_joules"}) each.erase(name);
  for (Json& each : old["tenants"]) each.erase("energy");
  const auto families = metrics_of(old);
  CHECK_FALSE(value(families, "sharedgpu_gpu_energy_joules_total", {{"gpu", "0"}}));
  CHECK(value(families, "sharedgpu_gpu_capacity_bytes", {{"gpu", "0"}}) == 81604378624);
}

TEST_CASE("A status of another form is an error, not a wrong metric") {
  CHECK_THROWS_AS(metrics_of(Json::object()), std::runtime_error);
  Json wrong = status();
  wrong["gpus"][0]["units"] = "many";
  CHECK_THROWS_AS(metrics_of(wrong), std::runtime_error);
}

TEST_CASE("Only the info metrics have labels that describe, and each tenant's series end with the tenant") {
  Json fewer = status();
  fewer["tenants"].erase(1);
  for (const MetricFamily& family : metrics_of(fewer))
    for (const ClientMetric& metric : family.metric)
      for (const ClientMetric::Label& label : metric.label) {
        INFO(family.name << " " << label.name);
        const bool is_info = family.name.ends_with("_info");
        CHECK((is_info || std::set<std::string>{"gpu", "tenant", "condition"}.count(label.name) == 1));
        CHECK_FALSE((label.name == "tenant" && label.value == "2"));
      }
}

TEST_CASE("The page on metrics has the table of the metrics") {
  const std::map<MetricType, const char*> types = {{MetricType::Gauge, "gauge"},
                                                   {MetricType::Counter, "counter"}};
  std::string table = "| metric | type | labels | meaning |\n|---|---|---|---|\n";
  for (const MetricFamily& family : metrics_of(status())) {
    std::string labels;
    for (const ClientMetric::Label& label : family.metric.at(0).label)
      labels += (labels.empty() ? "`" : ", `") + label.name + "`";
    table += "| `" + family.name + "` | " + types.at(family.type) + " | " + labels +
             (labels.empty() ? "| " : " | ") + family.help + " |\n";
  }
  std::ifstream file(METRICS_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  const std::string text = page.str();
  const std::size_t begin = text.find("| metric |");
  REQUIRE(begin != text.npos);
  CHECK(text.substr(begin, text.find("\n\n", begin) + 1 - begin) == table);
}

}  // namespace
}  // namespace sharedgpu::exporter
