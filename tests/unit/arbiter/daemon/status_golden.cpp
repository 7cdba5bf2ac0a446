// SPDX-License-Identifier: Apache-2.0
// Compares the fields of `sharedgpu status --json` and their types with status_fields.golden, because
// programs of sites read these fields.
#include <unistd.h>
#include <catch2/catch.hpp>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "arbiter/daemon/status_text.h"
#include "tests/unit/arbiter/core/bench.h"
#include "tests/unit/arbiter/daemon/systems.h"
#include "tests/unit/golden.h"

namespace sharedgpu {
namespace {

using Json = nlohmann::json;

// Adds the types of all values to `types`, by their paths such as ".gpus[].uuid".
void collect(const Json& value, const std::string& path,
             std::map<std::string, std::set<std::string>>& types) {
  types[path.empty() ? "." : path].insert(value.is_number_integer() ? "integer" : value.type_name());
  if (value.is_object())
    for (const auto& [name, member] : value.items()) {
      std::string longer = path;
      longer.append(".").append(name);
      collect(member, longer, types);
    }
  if (value.is_array())
    for (const Json& element : value) collect(element, path + "[]", types);
}

// Two GPUs and every kind of tenant: a job that holds a lease on one GPU and has reported deadlines, a run
// that waits for this GPU, a process that has not chosen a GPU, and a placed job without a process.
struct Scene {
  Bench bench;
  Tenants tenants;
  FigureBook figures;
  std::map<SessionId, pid_t> pids;
  std::set<SessionId> deaf;
  Settings settings;
  Overrides overrides;
  const std::vector<UnmanagedProcess> unmanaged = {
      {.gpu = kGpu, .pid = 41, .uid = 1000, .job = 7, .memory = Bytes{10}},
      {.gpu = kGpu, .pid = 42, .uid = 1000, .job = std::nullopt, .memory = Bytes{20}}};

  const std::map<GpuUuid, GpuState> health = {
      {kGpu, {.condition = GpuCondition::failing, .fault = "Xid 48", .drain = std::nullopt}},
      {kOther, {.condition = GpuCondition::healthy, .fault = {}, .drain = "the fan"}}};

  const std::map<GpuUuid, GpuMeters> meters = {{kGpu, {.energy = Energy{1500}, .utilization = 25}}};

  TenantInfo& add(const TenantName& name, const JobOptions& options) {
    TenantInfo& info = tenants.get(name, 1000);
    info.options = options;
    info.sessions = 1;
    return info;
  }
  static TenantName named(std::uint32_t job, std::uint8_t run, std::uint32_t pid) {
    TenantName name;
    name.job = job;
    name.run.bytes[0] = run;
    name.process = {.pid = pid, .started = pid};
    return name;
  }

  Scene() {
    overrides.change("[partition long]\nPolicy=fcfs\n");
    JobOptions options;
    options.units = 4;
    options.backend = Backend::managed;
    options.backend_given = 1;
    TenantInfo& job = add(named(17, 0, 0), options);
    job.element = {.array = 16, .index = 1};
    job.job_class = {.partition = "long", .qos = "high", .restarts = 1};
    add(named(0, 7, 0), {}).group_limit = gibibytes(3);
    add(named(0, 0, 4711), {});
    add(named(18, 0, 0), {}).sessions = 0;

    bench.handle(Place{.tenant = TenantId{4}, .demand = {}});
    bench.handle(SessionCame{.session = SessionId{1},
                             .tenant = TenantId{1},
                             .step = {.job = 17, .step = 0},
                             .cap = {},
                             .host_cap = gibibytes(1),
                             .claims = {},
                             .hello = {}});
    tenants.find(TenantId{1})->note_loss(kOther, "Xid 79");
    bench.attach(1);
    bench.grow(1, 60, 0);
    bench.tell(1, 60, 60);
    bench.say(1, Deadlines{.met = 3, .missed = 1});
    bench.queue_up(2, 2, 80);
    bench.come(3, 3);
    for (std::uint64_t session = 1; session <= 3; ++session) pids[SessionId{session}] = getpid();
    bench.handle(Surveyed{.gpu = kGpu,
                          .found = GpuSurvey{.unmanaged = Bytes{30},
                                             .limit = mebibytes(100),
                                             .reserve = {},
                                             .sessions = {{SessionId{1}, mebibytes(61)}}}});
    bench.pass(std::chrono::seconds(10));  // the turn of tenant 1 is over, but the tenant does not leave
    figures.observe(bench.core->sighting(), bench.now);
    figures.energy().carry({TenantId{1}, kGpu}, {1250});
  }
  Json status() const {
    HeardNodes heard(GangTimes{}.recent);
    const GangMembers gangs("n1", 1, GangTimes{}, heard);
    const Snapshot state = bench.core->snapshot();
    return Json::parse(format_status({.system = test::kHostSystem,
                                      .core = *bench.core,
                                      .state = state,
                                      .tenants = tenants,
                                      .figures = figures,
                                      .gpu_names = {{kGpu, "Test GPU"}},
                                      .pids = pids,
                                      .deaf = deaf,
                                      .refuted = {{SessionId{1}, gibibytes(9)}},
                                      .overreported = {},
                                      .settings = settings,
                                      .overrides = overrides,
                                      .now = bench.now,
                                      .unmanaged = unmanaged,
                                      .health = health,
                                      .meters = meters,
                                      .gangs = gangs}));
  }
};

TEST_CASE("golden: fields of the status") {
  const Json status = Scene().status();
  REQUIRE(status["gpus"].size() == 2);
  REQUIRE(status["tenants"].size() == 4);
  std::map<std::string, std::set<std::string>> types;
  collect(status, "", types);
  for (const char* list : {".gpus[].holders[]", ".tenants[].gpus[]", ".tenants[].placed[]",
                           ".tenants[].pids[]", ".tenants[].sessions[].step", ".tenants[].steps[].step"}) {
    INFO(list);
    CHECK(types.count(list) == 1);
  }
  std::string text =
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Made by status_golden.cpp; tests/golden says how to write it again.\n\n";
  for (const auto& [path, all] : types) {
    text += path + ":";
    for (const std::string& type : all) text += (type == *all.begin() ? " " : " or ") + type;
    text += "\n";
  }
  CHECK(test::is_golden("status_fields.golden", text));
}

}  // namespace
}  // namespace sharedgpu
