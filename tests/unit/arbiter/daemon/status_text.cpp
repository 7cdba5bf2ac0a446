// SPDX-License-Identifier: Apache-2.0
// The values of `sharedgpu status --json`: each number of the state must be in the right field.
#include "arbiter/daemon/status_text.h"

#include <fcntl.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/arbiter/core/bench.h"
#include "tests/unit/arbiter/daemon/systems.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

// The state that the status shows: tenant 1 is a job with two sessions on two GPUs. Tenant 2 has held a lease
// since 1000 s.
struct View {
  static Recovered past() {
    Recovered recovered;
    recovered.leases.carry(TenantId{1}, {.job = 17, .step = 0}, 5s);
    recovered.leases.carry(TenantId{1}, {.job = 17, .step = 3}, 4s);
    recovered.leases.carry(TenantId{1}, kGpu, 6s);
    return recovered;
  }
  Bench bench{past()};
  Tenants tenants;
  FigureBook figures;
  Snapshot state;
  std::map<SessionId, pid_t> pids;
  std::set<SessionId> deaf;
  std::map<SessionId, Bytes> refuted;
  std::map<TenantId, Overreported> overreported;
  Settings settings;
  Overrides overrides;
  Nanoseconds now = 1003s;
  std::vector<UnmanagedProcess> unmanaged;
  std::map<GpuUuid, GpuState> health;
  std::map<GpuUuid, GpuMeters> meters;
  std::optional<uid_t> viewer;

  TenantInfo& job() { return *tenants.find(TenantId{1}); }
  Snapshot::Tenant& tenant() { return state.tenants[0]; }

  View() {
    TenantName name;
    name.job = 17;
    tenants.get(name, 1234).sessions = 2;
    name.job = 0;
    name.run.bytes[0] = 1;
    tenants.get(name, 4321).sessions = 1;
    bench.settle_in(3, 2, 10);
    REQUIRE(bench.core->leases().holds(TenantId{2}));

    for (const GpuUuid& uuid : {kGpu, kOther}) {
      Snapshot::Gpu& gpu = state.gpus.emplace_back();
      gpu.uuid = uuid;
      gpu.policy = bench.policy.get();
    }
    for (std::uint64_t id = 1; id <= 3; ++id) {
      Snapshot::Session& session = state.sessions.emplace_back();
      session.id = {id};
      session.tenant = TenantId{id == 3 ? 2u : 1u};
      session.gpu = id == 2 ? kOther : kGpu;
      session.step = {.job = 17, .step = static_cast<std::uint32_t>(id)};
    }
    state.gpus[0].sessions = {{1}, {3}};
    state.gpus[1].sessions = {{2}};
    for (std::uint64_t id : {1, 2}) state.tenants.emplace_back().id = TenantId{id};
    state.tenants[0].sessions = {{1}, {2}};
    state.tenants[1].sessions = {{3}};
  }
  HeardNodes heard{GangTimes{}.recent};
  GangMembers gangs{"n1", 1, GangTimes{}, heard};
  Json read() const {
    return Json::parse(format_status({.system = test::kHostSystem,
                                      .core = *bench.core,
                                      .state = state,
                                      .tenants = tenants,
                                      .figures = figures,
                                      .gpu_names = {{kGpu, "Test GPU"}},
                                      .pids = pids,
                                      .deaf = deaf,
                                      .refuted = refuted,
                                      .overreported = overreported,
                                      .settings = settings,
                                      .overrides = overrides,
                                      .now = now,
                                      .unmanaged = unmanaged,
                                      .health = health,
                                      .meters = meters,
                                      .gangs = gangs,
                                      .viewer = viewer}));
  }
};

// Returns only the fields that are expected, so that a failed check shows no others.
Json fields(const Json& json, const Json& expected) {
  Json found = Json::object();
  for (const auto& [name, value] : expected.items()) found[name] = json.value(name, Json("missing"));
  return found;
}

constexpr char kFirstName[] = "GPU-01000000-0000-0000-0000-000000000000";
constexpr char kSecondName[] = "GPU-02000000-0000-0000-0000-000000000000";

TEST_CASE("The status has the settings of the node") {
  View view;
  view.settings.socket = "/run/s.sock";
  view.settings.policy = "credit";
  view.settings.quantum = 7s;
  view.settings.max_swap_overhead = 25;
  view.settings.max_wait = 8s;
  view.settings.swap_per_unit = *parse_typed_sizes("9KiB", true);
  view.state.recovering = true;
  const Json expected = {{"socket", "/run/s.sock"}, {"policy", "credit"},
                         {"quantum_seconds", 7.0},  {"max_swap_overhead", 0.25},
                         {"max_wait_seconds", 8.0}, {"swap_per_unit_bytes", 9216},
                         {"recovering", true},      {"version", SHAREDGPU_VERSION},
                         {"pid", getpid()},         {"swap_per_unit", "9KiB"}};
  CHECK(fields(view.read(), expected) == expected);
  view.settings.swap_per_unit = *parse_typed_sizes("a100:1KiB,h100:auto", true);
  CHECK(view.read()["swap_per_unit"] == "a100:1KiB,h100:auto");
  CHECK(view.read()["swap_per_unit_bytes"] == 0);
  view.settings.swap_per_unit = {};
  CHECK(view.read()["swap_per_unit"] == "unlimited");
}

TEST_CASE("The status has the health of each GPU, and the tenants of a lost GPU") {
  View view;
  view.state.gpus[0].condition = GpuCondition::lost;
  view.state.gpus[1].drained = true;
  view.health = {{kGpu, {.condition = GpuCondition::lost, .fault = "Xid 79", .drain = std::nullopt}},
                 {kOther, {.condition = GpuCondition::healthy, .fault = {}, .drain = "the fan"}}};
  view.tenants.find(TenantId{2})->note_loss(kOther, "Xid 48");
  view.tenants.find(TenantId{2})->note_loss(kGpu, "lost to its driver");
  view.tenants.find(TenantId{2})->note_loss(kGpu, "Xid 79");
  const Json status = view.read();
  const Json lost = {
      {"condition", "lost"}, {"fault", "Xid 79"}, {"drained", false}, {"drain_reason", nullptr}};
  CHECK(fields(status["gpus"][0], lost) == lost);
  const Json drained = {
      {"condition", "healthy"}, {"fault", nullptr}, {"drained", true}, {"drain_reason", "the fan"}};
  CHECK(fields(status["gpus"][1], drained) == drained);
  view.state.gpus[0].condition = GpuCondition::failing;
  CHECK(view.read()["gpus"][0]["condition"] == "failing");
  CHECK(status["tenants"][0]["lost_gpu"] == nullptr);
  CHECK(status["tenants"][1]["lost_gpu"] == Json{{"gpu", kFirstName}, {"fault", "Xid 79"}});
}

TEST_CASE("The status has the coordinator of a job on several nodes, and its last order") {
  View view;
  view.gangs.report(TenantId{1}, {.number = 5, .nodes = 2, .coordinator = "n1"}, {.present = true}, {});
  const Json sought = {{"coordinator", "n1"}, {"nodes", 2}, {"contact", "sought"}, {"command", nullptr}};
  CHECK(view.read()["tenants"][0]["gang"] == sought);
  CHECK(view.read()["tenants"][1]["gang"] == nullptr);
  view.gangs.hear({.node = "n1",
                   .job = 5,
                   .life = 9,
                   .number = 1,
                   .reader = 1,
                   .what = GangOrder{.command = GangCommand::run}},
                  true, {});
  const Json held = {{"coordinator", "n1"}, {"nodes", 2}, {"contact", "held"}, {"command", "run"}};
  CHECK(view.read()["tenants"][0]["gang"] == held);
}

TEST_CASE("The status has the data of each GPU, and the sums of the GPU's sessions") {
  View view;
  Snapshot::Gpu& gpu = view.state.gpus[0];
  gpu.number = 4;
  gpu.total = Bytes{100};
  gpu.capacity = Bytes{90};
  gpu.usable = Bytes{80};
  gpu.promised = Bytes{70};
  gpu.turn = {.length = 3s, .rule = TurnRule::max_wait};
  gpu.handoff = 2s;
  gpu.threads_left = 0.5;
  view.state.sessions[0].use = {.swappable = Bytes{1},
                                .resident = Bytes{2},
                                .pinned = Bytes{4},
                                .context = Bytes{8},
                                .host = Bytes{16}};
  view.state.sessions[1].use = {
      .swappable = Bytes{1000}, .resident = Bytes{1000}, .pinned = {}, .context = {}, .host = {}};
  view.state.sessions[2].use = {.swappable = Bytes{32},
                                .resident = Bytes{64},
                                .pinned = Bytes{128},
                                .context = Bytes{256},
                                .host = Bytes{512}};
  view.state.sessions[0].away = Bytes{1024};
  view.state.sessions[2].away = Bytes{2048};
  view.state.sessions[2].contended = true;
  view.state.placements = {{TenantId{1}, {.units = 2, .gpus = {kOther, kGpu}}},
                           {TenantId{2}, {.units = 3, .gpus = {kGpu}}}};
  view.state.gpus[1].learned = true;
  const Json status = view.read();
  const Json expected = {{"uuid", kFirstName},
                         {"name", "Test GPU"},
                         {"number", 4},
                         {"units", 5},
                         {"total_bytes", 100},
                         {"verified", true},
                         {"capacity_bytes", 90},
                         {"usable_bytes", 80},
                         {"promised_bytes", 70},
                         {"footprint_bytes", 1 + 4 + 32 + 128},
                         {"resident_bytes", 2 + 4 + 64 + 128},
                         {"pinned_bytes", 4 + 128},
                         {"context_bytes", 8 + 256},
                         {"host_bytes", 16 + 512},
                         {"away_bytes", 1024 + 2048},
                         {"contended", true},
                         {"policy", "round-robin"},
                         {"quantum_seconds", 3.0},
                         {"quantum_rule", "max-wait"},
                         {"handoff_seconds", 2.0},
                         {"holders", {2}},
                         {"threads_left", 0.5}};
  CHECK(fields(status["gpus"][0], expected) == expected);
  const Json other = {{"uuid", kSecondName},      {"name", ""},        {"units", 2}, {"verified", false},
                      {"holders", Json::array()}, {"contended", false}};
  CHECK(fields(status["gpus"][1], other) == other);
}

TEST_CASE("The status has the energy of each GPU, its tenants' parts and the utilization, where known") {
  View view;
  view.meters = {{kGpu, {.energy = Energy{123'456}, .utilization = 37}}};
  EnergyBook& energy = view.figures.energy();
  energy.carry({TenantId{1}, kGpu}, {1500});
  energy.carry({TenantId{1}, kOther}, {250});
  energy.read(kGpu, {0}, 1000s);
  energy.read(kGpu, {4500}, 1001s);
  const Json status = view.read();
  const Json known = {{"energy_joules", 123.456}, {"unleased_energy_joules", 4.5}, {"utilization", 0.37}};
  CHECK(fields(status["gpus"][0], known) == known);
  const Json unknown = {
      {"energy_joules", nullptr}, {"unleased_energy_joules", 0.0}, {"utilization", nullptr}};
  CHECK(fields(status["gpus"][1], unknown) == unknown);
  CHECK(status["tenants"][0]["energy"] ==
        Json{{{"gpu", kFirstName}, {"joules", 1.5}}, {{"gpu", kSecondName}, {"joules", 0.25}}});
  CHECK(status["tenants"][1]["energy"] == Json::array());
}

TEST_CASE("Each rule of a turn's length and each state of a tenant has its name") {
  View view;
  const std::pair<TurnRule, const char*> rules[] = {{TurnRule::fixed, "fixed"},
                                                    {TurnRule::swap_overhead, "swap-overhead"},
                                                    {TurnRule::max_wait, "max-wait"},
                                                    {TurnRule::work, "work"}};
  for (const auto& [rule, name] : rules) {
    view.state.gpus[0].turn.rule = rule;
    CHECK(view.read()["gpus"][0]["quantum_rule"] == name);
  }
  const std::pair<Phase, const char*> phases[] = {{Phase::out, "out"},
                                                  {Phase::entering, "entering"},
                                                  {Phase::running, "running"},
                                                  {Phase::leaving, "leaving"}};
  view.tenant().gates_closed = 1001s;
  for (const auto& [phase, name] : phases) {
    view.tenant().phase = phase;
    const Json tenant = view.read()["tenants"][0];
    CHECK(tenant["state"] == name);
    CHECK(tenant["leaving_seconds"] == (phase == Phase::leaving ? 2.0 : 0.0));
  }
}

TEST_CASE("The status has a job's requests, what it gets, and its met and missed deadlines") {
  View view;
  TenantInfo& job = view.job();
  job.job_class = {.partition = "long", .qos = "high", .restarts = 0};
  job.options.units = 3;
  job.options.deadline = 33ms;
  job.options.memory = Bytes{55};
  job.options.backend = Backend::managed;
  job.options.backend_given = 1;
  Snapshot::Tenant& tenant = view.tenant();
  tenant.stated = {.units = 3, .priority = -2, .request = 0.25, .limit = 0.75, .timed = true, .deadline = {}};
  tenant.claims.limit = 0.5;
  tenant.due_now = 0.125;
  tenant.deadlines = {.met = 6, .missed = 7};
  tenant.host = {.units = Bytes{67}, .job = Bytes{68}, .budget = Bytes{66}};
  tenant.lag = -3s;
  tenant.epoch = Epoch{12};
  tenant.wants = true;
  view.state.placements = {{TenantId{1}, {.units = 2, .gpus = {kOther, kGpu}}}};
  const Json status = view.read();
  const Json expected = {{"id", 1},
                         {"name", "job 17"},
                         {"job", 17},
                         {"uid", 1234},
                         {"partition", "long"},
                         {"qos", "high"},
                         {"units", 3},
                         {"priority", -2},
                         {"share_request", 0.25},
                         {"share_limit", 0.75},
                         {"share_allowed", 0.5},
                         {"share_due", 0.125},
                         {"deadline_seconds", 0.033},
                         {"deadlines_met", 6},
                         {"deadlines_missed", 7},
                         {"memory_limit_bytes", 55},
                         {"host_budget_bytes", 66},
                         {"units_memory_bytes", 67},
                         {"job_memory_bytes", 68},
                         {"credit_seconds", -3.0},
                         {"epoch", 12},
                         {"wants", true},
                         {"placed", {kSecondName, kFirstName}},
                         {"backend", "managed"}};
  CHECK(fields(status["tenants"][0], expected) == expected);
  const Json run = {{"id", 2},
                    {"name", "run 2"},
                    {"job", nullptr},
                    {"uid", 4321},
                    {"partition", nullptr},
                    {"qos", nullptr},
                    {"units", 1},
                    {"placed", Json::array()},
                    {"backend", nullptr},
                    {"steps", Json::array()},
                    {"host_budget_bytes", nullptr},
                    {"units_memory_bytes", nullptr},
                    {"job_memory_bytes", nullptr}};
  CHECK(fields(status["tenants"][1], run) == run);
}

TEST_CASE("The status names an element of a job array") {
  View view;
  const Json none = {{"array_job", nullptr}, {"array_index", nullptr}};
  CHECK(fields(view.read()["tenants"][0], none) == none);
  view.job().element = {.array = 15, .index = 0};
  const Json element = {{"name", "job 15_0"}, {"array_job", 15}, {"array_index", 0}};
  CHECK(fields(view.read()["tenants"][0], element) == element);
}

TEST_CASE("A job leaves the status when Slurm has told that it is over") {
  View view;
  view.job().sessions = 0;
  view.job().last_seen = 1002s;
  CHECK(view.read()["tenants"].size() == 2);
  view.job().over = true;
  CHECK(view.read()["tenants"].size() == 1);
}

TEST_CASE("A user that may see only its own tenants sees the sums of all tenants on each GPU") {
  View view;
  view.unmanaged = {{.gpu = kGpu, .pid = 41, .uid = 1234, .job = 7, .memory = Bytes{10}},
                    {.gpu = kGpu, .pid = 42, .uid = 4321, .job = 8, .memory = Bytes{20}}};
  view.state.gpus[0].surveyed = true;
  CHECK(view.read()["own_tenants_only"] == false);
  CHECK(view.read()["gpus"][0]["holders"] == Json{2});
  view.viewer = 1234;
  const Json status = view.read();
  CHECK(status["own_tenants_only"] == true);
  REQUIRE(status["tenants"].size() == 1);
  CHECK(status["tenants"][0]["uid"] == 1234);
  const Json& gpu = status["gpus"][0];
  CHECK(gpu["holders"] == Json{0});
  CHECK(gpu["hidden_tenants"] == 1);
  CHECK(gpu["unmanaged_bytes"] == 30);
  REQUIRE(gpu["unmanaged"].size() == 1);
  CHECK(gpu["unmanaged"][0]["pid"] == 41);
  CHECK(status["gpus"][1]["hidden_tenants"] == 0);
}

TEST_CASE("The status has the totals of a tenant and of each of its steps up to now") {
  View view;
  view.figures.carry({TenantId{1}, {}}, {.moved = {.evicted = Bytes{1}, .restored = Bytes{2}},
                                         .waited = 3s,
                                         .overuse = 4s,
                                         .handoffs = 5,
                                         .footprint = Bytes{6},
                                         .resident = Bytes{7},
                                         .exchanges = {.moved = {.evicted = Bytes{10}, .restored = Bytes{11}},
                                                       .moving = 12s,
                                                       .waited = 13s,
                                                       .copied = Bytes{30},
                                                       .fastest = Bytes{3},
                                                       .slowed = 14s}});
  view.figures.carry({TenantId{1}, {.job = 17, .step = 3}},
                     {.moved = {.evicted = Bytes{8}, .restored = Bytes{9}}});
  const Json status = view.read();
  const Json expected = {
      {"lease", false},
      {"lease_seconds", 6.0},
      {"waited_seconds", 3.0},
      {"overuse_seconds", 4.0},
      {"handoffs", 5},
      {"evicted_bytes", 1},
      {"restored_bytes", 2},
      {"exchanges",
       {{"evicted_bytes", 10},
        {"restored_bytes", 11},
        {"moving_seconds", 12.0},
        {"best_seconds", 10.0},
        {"waited_seconds", 13.0},
        {"slowed_seconds", 14.0}}},
      {"highest_footprint_bytes", 6},
      {"highest_resident_bytes", 7},
      {"steps",
       {{{"step", "0"}, {"lease_seconds", 5.0}, {"evicted_bytes", 0}, {"restored_bytes", 0}},
        {{"step", "3"}, {"lease_seconds", 4.0}, {"evicted_bytes", 8}, {"restored_bytes", 9}}}}};
  CHECK(fields(status["tenants"][0], expected) == expected);
  CHECK(status["tenants"][1]["lease"] == true);
  CHECK(status["tenants"][1]["lease_seconds"] == 3.0);
  CHECK(status["tenants"][1]["exchanges"].is_null());
}

TEST_CASE("The status has each session of a tenant, and their sums") {
  View view;
  Snapshot::Session& first = view.state.sessions[0];
  first.use = {.swappable = Bytes{1},
               .resident = Bytes{2},
               .pinned = Bytes{4},
               .context = Bytes{8},
               .host = Bytes{16}};
  first.away = Bytes{300};
  first.resident_limit = Bytes{77};
  first.gate_open = true;
  Snapshot::Session& second = view.state.sessions[1];
  second.use.swappable = Bytes{100};
  second.use.host = Bytes{200};
  second.away = Bytes{4};
  second.stuck = true;
  view.pids = {{{1}, getpid()}, {{2}, getpid()}};
  const Json status = view.read();
  const Json sums = {{"footprint_bytes", 105}, {"resident_bytes", 6}, {"pinned_bytes", 4},
                     {"context_bytes", 8},     {"host_bytes", 216},   {"away_bytes", 304},
                     {"stuck", true},          {"stopped", false},    {"gpus", {kFirstName, kSecondName}},
                     {"pids", {getpid()}}};
  CHECK(fields(status["tenants"][0], sums) == sums);
  const Json each = {{{"pid", getpid()},
                      {"step", "1"},
                      {"gpu", kFirstName},
                      {"footprint_bytes", 5},
                      {"resident_bytes", 6},
                      {"allowed_bytes", 77},
                      {"device_bytes", nullptr},
                      {"unseen_bytes", nullptr},
                      {"host_bytes", 16},
                      {"away_bytes", 300},
                      {"gate_open", true},
                      {"stuck", false},
                      {"stopped", false}},
                     {{"pid", getpid()},
                      {"step", "2"},
                      {"gpu", kSecondName},
                      {"footprint_bytes", 100},
                      {"resident_bytes", 0},
                      {"allowed_bytes", 0},
                      {"device_bytes", nullptr},
                      {"unseen_bytes", nullptr},
                      {"host_bytes", 200},
                      {"away_bytes", 4},
                      {"gate_open", false},
                      {"stuck", true},
                      {"stopped", false}}};
  CHECK(status["tenants"][0]["sessions"] == each);
  CHECK(status["tenants"][1]["sessions"][0]["pid"] == 0);
  CHECK(status["tenants"][1]["sessions"][0]["step"] == nullptr);
  CHECK(status["tenants"][1]["stuck"] == false);
}

TEST_CASE("The status shows what an overdue tenant has not done") {
  View view;
  view.state.sessions[0].drained = true;
  view.state.tenants[0].overdue = Overdue{.gpu = kOther, .since = view.now - std::chrono::milliseconds(2500)};
  const auto overdue = [&] { return view.read()["tenants"][0]["overdue"]; };
  CHECK(overdue() ==
        Json{{"seconds", 2.5}, {"gpu", kSecondName}, {"waits_for", "work"}, {"free_host_bytes", nullptr}});
  view.refuted = {{{1}, Bytes{7}}, {{2}, Bytes{5}}, {{3}, Bytes{1}}};
  CHECK(overdue()["free_host_bytes"] == 5);
  view.deaf = {{1}, {3}};  // session 1 has drained, and session 3 belongs to another tenant
  CHECK(overdue()["waits_for"] == "work");
  view.deaf = {{2}};
  CHECK(overdue()["waits_for"] == "answer");
  view.state.tenants[0].overdue->evicts = true;
  CHECK(overdue()["waits_for"] == "eviction");
  view.state.tenants[0].overdue->stopped = true;
  CHECK(overdue()["waits_for"] == "stopped");
  CHECK(view.read()["tenants"][1]["overdue"] == nullptr);
}

TEST_CASE("A tenant whose process is stopped is shown as such") {
  struct Stopped : System {
    Status read_file(const std::string& path, std::string& text) const override {
      text = path.starts_with("/proc/7/") ? "7 (a) T 1 7" : "8 (a) S 1 8";
      return {};
    }
    std::optional<std::vector<std::string>> list_folder(const std::string&, std::size_t) const override {
      return std::vector<std::string>{"7"};
    }
  };
  View view;
  view.pids = {{{1}, 8}, {{2}, 7}, {{3}, 8}};
  const Stopped system;
  const Json tenants = Json::parse(format_status({.system = system,
                                                  .core = *view.bench.core,
                                                  .state = view.state,
                                                  .tenants = view.tenants,
                                                  .figures = view.figures,
                                                  .gpu_names = {},
                                                  .pids = view.pids,
                                                  .deaf = view.deaf,
                                                  .refuted = view.refuted,
                                                  .overreported = {},
                                                  .settings = view.settings,
                                                  .overrides = view.overrides,
                                                  .now = view.now,
                                                  .unmanaged = {},
                                                  .health = {},
                                                  .meters = {},
                                                  .gangs = view.gangs}))["tenants"];
  CHECK(tenants[0]["stopped"] == true);
  CHECK(tenants[0]["sessions"][0]["stopped"] == false);
  CHECK(tenants[0]["sessions"][1]["stopped"] == true);
  CHECK(tenants[0]["pids"] == Json{7, 8});
  CHECK(tenants[1]["stopped"] == false);
}

TEST_CASE(
    "A tenant without sessions is shown while it is placed, and for ten minutes after its last session") {
  View view;
  TenantInfo& job = view.job();
  const auto shown = [&] { return view.read()["tenants"].size() == 2; };
  CHECK(shown());
  job.sessions = 0;
  CHECK_FALSE(shown());
  job.last_seen = 500s;
  view.now = 1100s - 1ns;
  CHECK(shown());
  view.now = 1100s;
  CHECK_FALSE(shown());
  view.state.placements = {{TenantId{1}, {.units = 2, .gpus = {kGpu}}}};
  CHECK(shown());
}

TEST_CASE("A tenant that the core does not know has no share, no credit and no sessions") {
  View view;
  view.state.tenants.erase(view.state.tenants.begin());
  const Json expected = {
      {"state", "out"},        {"wants", false},     {"credit_seconds", 0},   {"epoch", 0},
      {"share_due", 0},        {"deadlines_met", 0}, {"deadlines_missed", 0}, {"sessions", Json::array()},
      {"leaving_seconds", 0.0}};
  CHECK(fields(view.read()["tenants"][0], expected) == expected);
}

TEST_CASE("The status shows unmanaged memory, by GPU and process, if surveys show it") {
  View view;
  CHECK(fields(view.read()["gpus"][0],
               {{"surveyed", false}, {"unmanaged_bytes", nullptr}, {"unmanaged", Json::array()}}) ==
        Json({{"surveyed", false}, {"unmanaged_bytes", nullptr}, {"unmanaged", Json::array()}}));
  view.state.gpus[1].surveyed = true;
  view.state.sessions[0].evidence.show(Bytes{5}, {}, {});
  view.unmanaged = {{.gpu = kOther, .pid = 41, .uid = 1000, .job = 7, .memory = Bytes{10}},
                    {.gpu = kOther, .pid = 42, .uid = 0, .job = std::nullopt, .memory = Bytes{20}}};
  const Json status = view.read();
  CHECK(status["gpus"][0]["unmanaged"].empty());
  CHECK(status["gpus"][1]["surveyed"] == true);
  CHECK(status["gpus"][1]["unmanaged_bytes"] == 30);
  CHECK(
      status["gpus"][1]["unmanaged"] ==
      Json::parse(
          R"([{"pid": 41, "uid": 1000, "job": 7, "bytes": 10}, {"pid": 42, "uid": 0, "job": null, "bytes": 20}])"));
  CHECK(status["tenants"][0]["sessions"][0]["device_bytes"] == 5);
  CHECK(status["tenants"][0]["sessions"][1]["device_bytes"].is_null());
}

TEST_CASE("The status of a tenant shows how far its reports of memory differ from its real memory") {
  View view;
  const Json none = view.read()["tenants"][0];
  for (const char* field :
       {"unreported_bytes", "unseen_bytes", "overreported_bytes", "overreported_host_bytes"})
    CHECK(none[field] == 0);
  CHECK(none["sessions"][0]["unseen_bytes"].is_null());
  view.unmanaged = {
      {.gpu = kGpu, .pid = 41, .job = {}, .memory = Bytes{10}, .has_session = true, .tenant = {1}},
      {.gpu = kOther, .pid = 41, .job = {}, .memory = Bytes{20}, .has_session = true, .tenant = {1}},
      {.gpu = kGpu, .pid = 42, .job = {}, .memory = Bytes{40}, .has_session = true, .tenant = {2}},
      {.gpu = kGpu, .pid = 43, .job = {}, .memory = Bytes{80}}};
  view.overreported[TenantId{1}] = {.device = {.unseen = Bytes{5}, .disproved = Bytes{3}}, .host = Bytes{7}};
  for (int i = 0; i < 3; ++i)
    view.state.sessions[0].evidence.show(
        {}, {.unevictable = {}, .present = Bytes{6}, .evictable = {}, .all = {}}, {});
  const Json tenants = view.read()["tenants"];
  CHECK(tenants[0]["unreported_bytes"] == 30);
  CHECK(tenants[0]["unseen_bytes"] == 5);
  CHECK(tenants[0]["overreported_bytes"] == 3);
  CHECK(tenants[0]["overreported_host_bytes"] == 7);
  CHECK(tenants[0]["sessions"][0]["unseen_bytes"] == 6);
  CHECK(tenants[1]["unreported_bytes"] == 40);
  CHECK(tenants[1]["unseen_bytes"] == 0);
}

TEST_CASE("A process that has a session since the last survey is not shown as unmanaged") {
  View view;
  view.state.gpus[1].surveyed = true;
  view.pids = {{SessionId{1}, 42}, {SessionId{2}, 41}};
  view.unmanaged = {
      {.gpu = kOther, .pid = 41, .job = std::nullopt, .memory = Bytes{10}},
      {.gpu = kOther, .pid = 42, .job = std::nullopt, .memory = Bytes{20}},
      {.gpu = kOther, .pid = 41, .job = std::nullopt, .memory = Bytes{40}, .has_session = true}};
  const Json status = view.read();
  CHECK(status["gpus"][1]["unmanaged"].size() == 2);
  CHECK(status["gpus"][1]["unmanaged_bytes"] == 60);
}

}  // namespace
}  // namespace sharedgpu
