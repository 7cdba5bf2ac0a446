// SPDX-License-Identifier: Apache-2.0
// bench_decision: measures the cost of an event in the arbiter's core, by numbers of tenants and GPUs. Each
// tenant fills more than half of its GPU, and all want to run. Turns follow one another; each turn causes a
// timer event and the events Released, Usage and Ready. A tenant uses one GPU, or `span` neighbouring GPUs.
// In the second case, all GPUs form one domain.
#include <benchmark/benchmark.h>

#include <map>

#include "arbiter/core/core.h"
#include "arbiter/policy/registry.h"
#include "simulation/session.h"

namespace {

using namespace sharedgpu;

// All sessions of the benchmark. Drains and copies of memory take no time.
struct Crowd : simulation::Process {
  std::unique_ptr<Policy> policy;
  std::unique_ptr<Core> core;
  Nanoseconds now = std::chrono::seconds(1000);
  std::uint64_t events = 0;

  unsigned gpus;
  unsigned span;
  Claims claims;

  Crowd(const char* name, unsigned tenants, unsigned its_gpus, const Claims& its_claims,
        Nanoseconds quantum = {}, unsigned its_span = 1)
      : policy(make_policy(name)), gpus(its_gpus), span(its_span), claims(its_claims) {
    core = std::make_unique<Core>(Tuning{.turns = {.fixed = quantum}}, *policy, Recovered{}, now);
    for (unsigned i = 0; i < gpus; ++i)
      handle(GpuFound{.gpu = gpu(i), .total = mebibytes(1200), .capacity = mebibytes(1000)});
    for (unsigned i = 1; i <= tenants; ++i) come(i);
  }
  void come(unsigned number) {
    for (unsigned i = 0; i < span; ++i) {
      const SessionId session{number * span + i};
      now += std::chrono::milliseconds(1);
      handle(SessionCame{.session = session,
                         .tenant = TenantId{number},
                         .step = {.job = number, .step = 0},
                         .cap = {},
                         .claims = claims,
                         .hello = {}});
      handle(From<Attach>{session, {.gpu = gpu((number + i) % gpus), .total = {}, .name = {}}});
      sessions[session.value].use = use(size_of(session.value));
      handle(From<Usage>{session, {.request = 1, .use = use(size_of(session.value)), .stuck = 0}});
      answer_all();
      handle(From<Want>{session, {}});
      answer_all();
    }
  }
  static GpuUuid gpu(unsigned number) { return {{static_cast<std::uint8_t>(number + 1)}}; }
  static Bytes size_of(std::uint64_t session) { return mebibytes(510 + session * 37 % 400); }
  static MemoryUse use(Bytes swappable) {
    return {.swappable = swappable, .resident = {}, .pinned = {}, .context = {}, .host = {}};
  }

  void handle(const Event& event) {
    ++events;
    for (const Action& action : core->handle(event, now))
      if (const auto* send = std::get_if<Send>(&action)) answers.push_back(*send);
  }
  // Carries out the order immediately, and reports its completion to the core.
  void answer(const Send& sent) {
    simulation::Session& session = sessions[sent.session.value];
    if (!session.receive(sent.message)) return;
    simulation::Piece piece;
    while (!piece.finished) piece = carry_out(session, *this, session.use.swappable);
    if (piece.report)
      std::visit(
          [&](const auto& body) {
            handle(From<std::decay_t<decltype(body)>>{sent.session, body});
          },
          *piece.report);
  }
  Nanoseconds drain(simulation::Session&, MessageType) override { return {}; }
  bool waits(const simulation::Session&) const override { return true; }
  void answer_all() {
    while (!answers.empty()) {
      const Send sent = answers.back();
      answers.pop_back();
      now += std::chrono::microseconds(100);
      answer(sent);
    }
  }
  void count(benchmark::State& state, std::uint64_t before) const {
    state.counters["per_event"] = benchmark::Counter(
        static_cast<double>(events - before), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  }
  std::vector<Send> answers;
  std::map<std::uint64_t, simulation::Session> sessions;
};

void decide(benchmark::State& state, const char* policy, const Claims& claims = {}, Nanoseconds quantum = {},
            unsigned span = 1) {
  Crowd crowd(policy, static_cast<unsigned>(state.range(0)), static_cast<unsigned>(state.range(1)), claims,
              quantum, span);
  crowd.answer_all();
  const std::uint64_t before = crowd.events;
  for (auto _ : state) {
    crowd.now += std::chrono::seconds(1);
    crowd.handle(TimerFired{});
    crowd.answer_all();
  }
  crowd.count(state, before);
}

void sizes(benchmark::internal::Benchmark* each) {
  for (const int tenants : {10, 100, 1000})
    for (const int gpus : {1, 8}) each->Args({tenants, gpus});
  each->Args({128, 1})->Args({128, 16});
}

constexpr Claims kShare{.request = 0.0005, .timed = true};

BENCHMARK_CAPTURE(decide, round_robin, "round-robin")->Apply(sizes);
// A turn of fcfs ends after Quantum, or earlier when the tenant's work is done, which never happens here.
BENCHMARK_CAPTURE(decide, fcfs, "fcfs", Claims{}, std::chrono::seconds(1))->Apply(sizes);
BENCHMARK_CAPTURE(decide, shortest_first, "shortest-first")->Apply(sizes);
BENCHMARK_CAPTURE(decide, credit, "credit")->Apply(sizes);
BENCHMARK_CAPTURE(decide, priority, "priority")->Apply(sizes);
BENCHMARK_CAPTURE(decide, elastic, "elastic", kShare)->Apply(sizes);
BENCHMARK_CAPTURE(decide, deadline, "deadline", kShare)->Apply(sizes);

// Each tenant uses two GPUs, so that all GPUs of the host form one domain.
BENCHMARK_CAPTURE(decide, round_robin_spanning, "round-robin", Claims{}, Nanoseconds{}, 2u)->Args({128, 16});
BENCHMARK_CAPTURE(decide, elastic_spanning, "elastic", kShare, Nanoseconds{}, 2u)->Args({128, 16});

// Measures the events of one more tenant that arrives, allocates, waits and leaves.
void pass_by(benchmark::State& state, const char* policy, const Claims& claims = {}) {
  const auto tenants = static_cast<unsigned>(state.range(0));
  Crowd crowd(policy, tenants, static_cast<unsigned>(state.range(1)), claims);
  crowd.answer_all();
  const std::uint64_t before = crowd.events;
  for (auto _ : state) {
    crowd.come(tenants + 1);
    crowd.handle(SessionGone{SessionId{(tenants + 1) * crowd.span}});
    crowd.answer_all();
  }
  crowd.count(state, before);
}
BENCHMARK_CAPTURE(pass_by, round_robin, "round-robin")->Apply(sizes);
BENCHMARK_CAPTURE(pass_by, elastic, "elastic", kShare)->Apply(sizes);

// Measures reports on deadlines. Each report changes the limits of all other tenants.
void bound(benchmark::State& state) {
  Crowd crowd("deadline", static_cast<unsigned>(state.range(0)), 1, {.request = 0.0005, .timed = true});
  crowd.handle(CapSet{.tenant = TenantId{1},
                      .cap = {},
                      .claims = {.priority = 1, .timed = true, .deadline = std::chrono::milliseconds(33)}});
  crowd.answer_all();
  bool met = false;
  for (auto _ : state) {
    crowd.now += std::chrono::microseconds(100);
    crowd.handle(From<Deadlines>{SessionId{1}, {.met = met ? 1u : 0u, .missed = met ? 0u : 1u}});
    met = !met;
    state.PauseTiming();
    crowd.answer_all();
    state.ResumeTiming();
  }
}
BENCHMARK(bound)->Arg(10)->Arg(100)->Arg(1000);

}  // namespace

BENCHMARK_MAIN();
