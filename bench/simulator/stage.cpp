// SPDX-License-Identifier: Apache-2.0
#include "bench/simulator/stage.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "arbiter/policy/registry.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kCapacity = 100;
constexpr Bytes kChunk = mebibytes(2);
constexpr Nanoseconds kFirstIdle = 1ms;

}  // namespace

struct Stage::Actor : simulation::Session {
  Program program;
  bool has_work = false;  // has unfinished work
  bool working = false;   // true while the program works on the GPU, and while it drains
  bool waiting = false;   // waits at the gate
  bool starting = false;  // the program is at the beginning of a burst
  Nanoseconds waiting_since{};
  Nanoseconds left{};  // remaining GPU time of the burst
  Nanoseconds work_since{};
  Nanoseconds idle_since{};
  unsigned generation = 0;  // number of the current piece of work; events planned for earlier pieces are
                            // ignored
  Nanoseconds line_free{};  // earliest arrival of the next message, so that messages keep their order
  std::optional<Nanoseconds> drained_at;  // the time at which the program's drain ends; nullopt if it does
                                          // not drain
  std::vector<Nanoseconds> waits;
  std::vector<Nanoseconds> starts;
  unsigned turns = 0;
  Nanoseconds lease_before{};
  Nanoseconds came{};  // arrival of the current piece of work, for programs with a period
  unsigned met = 0;
  unsigned missed = 0;
  Nanoseconds response{};

  Nanoseconds worked{};
  Nanoseconds arrived{};
  std::optional<Nanoseconds> ended;
  std::size_t piece = 0;

  bool hog() const { return program.burst == Nanoseconds{} && program.pieces.empty(); }
  bool for_ever() const { return hog() && program.work == Nanoseconds{}; }

  struct Deadlines {
    Nanoseconds::rep periods = 1;  // number of periods since the current piece of work arrived, rounded up;
                                   // at least 1
    bool met = false;              // true if finishing now would meet the deadline of the current piece
    unsigned missed = 0;
  };
  Deadlines deadlines(Nanoseconds now) const {
    const Nanoseconds took = now - came;
    const Nanoseconds period = program.period;
    Deadlines count;
    count.periods = std::max<Nanoseconds::rep>((took + period - Nanoseconds(1)) / period, 1);
    if (program.claims.deadline == Nanoseconds{}) return count;
    count.met = took <= program.claims.deadline;
    count.missed = static_cast<unsigned>(count.periods) - (count.met ? 1 : 0);
    return count;
  }
};

Stage::Stage(std::uint64_t seed, const TurnRules& turns, Nanoseconds per_mib,
             const std::vector<Program>& programs, const std::string& policy)
    : random_(seed), per_mib_(per_mib), policy_(make_policy(policy)), left_(programs.size()) {
  Tuning tuning;
  tuning.turns = turns;
  tuning.evict_step = kChunk;
  core_ = std::make_unique<Core>(tuning, *policy_, Recovered{}, now());
  GpuUuid uuid;
  uuid.bytes[0] = 1;
  tell(GpuFound{
      .gpu = uuid, .total = mebibytes(kCapacity), .capacity = mebibytes(kCapacity), .learned = false});
  for (const Program& program : programs) {
    auto actor = std::make_unique<Actor>();
    actor->id = SessionId{actors_.size() + 1};
    actor->program = program;
    Actor& its = *actor;
    actors_.push_back(std::move(actor));
    at(now() + program.arrival + between(0ms, 100ms), [this, &its, uuid] {
      its.arrived = now();
      tell(SessionCame{.session = its.id,
                       .tenant = TenantId{its.id.value},
                       .step = {.job = static_cast<std::uint32_t>(its.id.value), .step = 0},
                       .cap = {},
                       .claims = its.program.claims,
                       .expected = false,
                       .hello = {}});
      say(its, Attach{.gpu = uuid, .total = {}, .name = {}});
    });
  }
}

Stage::~Stage() = default;

void Stage::at(Nanoseconds time, std::function<void()> what) { timeline_.at(time, std::move(what)); }

void Stage::run(Nanoseconds time) {
  const Nanoseconds end = now() + time;
  while (!all_ended() && timeline_.next() && *timeline_.next() <= end) {
    const auto happen = timeline_.go_on();
    count_loss();
    happen();
  }
  if (!all_ended()) timeline_.skip_to(end);
  count_loss();
}

// Adds the time lost since the last call. Call at each event: nothing changes between two events.
void Stage::count_loss() {
  const auto any = [this](bool Actor::*flag) {
    return std::any_of(actors_.begin(), actors_.end(), [flag](const auto& actor) { return (*actor).*flag; });
  };
  if (any(&Actor::has_work) && !any(&Actor::working)) lost_ += now() - counted_;
  counted_ = now();
}

void Stage::begin_measuring() {
  measured_since_ = now();
  lost_ = {};
  for (auto& actor : actors_) {
    actor->waits.clear();
    actor->starts.clear();
    actor->turns = actor->met = actor->missed = 0;
    actor->lease_before = core_->leases().of_tenant(TenantId{actor->id.value}, now());
  }
}

Stage::Seen Stage::seen(std::size_t program) const {
  const Actor& actor = *actors_.at(program);
  Seen seen;
  seen.lease = core_->leases().of_tenant(TenantId{actor.id.value}, now()) - actor.lease_before;
  seen.waits = actor.waits;
  seen.starts = actor.starts;
  if (actor.waiting) seen.waits.push_back(now() - actor.waiting_since);
  seen.turns = actor.turns;
  if (actor.ended) seen.took = *actor.ended - actor.arrived;
  seen.met = actor.met;
  seen.missed = actor.missed;
  if (actor.has_work && actor.program.period > Nanoseconds{}) seen.missed += actor.deadlines(now()).missed;
  seen.response = actor.response;
  return seen;
}

double Stage::part(std::size_t program) const {
  const Snapshot state = core_->snapshot();
  const Snapshot::Tenant* tenant = state.find(TenantId{actors_.at(program)->id.value});
  return tenant == nullptr ? 1 : tenant->claims.limit;
}

bool Stage::works(std::size_t program) const { return actors_.at(program)->has_work; }

void Stage::tell(const Event& event) {
  ++events_;
  perform(core_->handle(event, now()));
}

void Stage::end(Actor& actor) {
  actor.ended = now();
  --left_;
  actor.page.open = false;
  actor.orders.clear();
  tell(SessionGone{.session = actor.id});
}

void Stage::perform(const Actions& actions) {
  const auto actor_of = [this](SessionId id) -> Actor& { return *actors_.at(id.value - 1); };
  for (const Action& action : actions) {
    if (const auto* send = std::get_if<Send>(&action)) {
      Actor& actor = actor_of(send->session);
      actor.line_free = std::max(actor.line_free, now() + between(50us, 500us));
      at(actor.line_free, [this, &actor, message = send->message] { hear(actor, message); });
    } else if (const auto* gate = std::get_if<SetGate>(&action)) {
      Actor& actor = actor_of(gate->session);
      actor.page.set(*gate);
      if (gate->open) gate_opened(actor);
    } else if (const auto* contended = std::get_if<SetContended>(&action)) {
      Actor& actor = actor_of(contended->session);
      actor.page.set(*contended);
      if (actor.page.contended) watch_idle(actor, actor.generation, {});
    } else if (const auto* timer = std::get_if<ArmTimer>(&action)) {
      timeline_.set_alarm(timer->at, [this] { tell(TimerFired{}); });
    } else if (std::get_if<Drop>(&action) != nullptr) {
      throw std::logic_error("the core dropped a session that followed the protocol");
    }
  }
}

template <class Body>
void Stage::say(Actor& actor, const Body& body) {
  at(now() + 200us, [this, &actor, body] { tell(From<Body>{.session = actor.id, .body = body}); });
}

void Stage::hear(Actor& actor, const Message& message) {
  if (actor.ended) return;
  if (actor.receive(message)) return next_order(actor);
  switch (message.type) {
    case MessageType::attached:
      actor.use.swappable = mebibytes(actor.program.size);
      return say(actor, Usage{.request = 1, .use = actor.use, .stuck = 0});
    case MessageType::verdict:
      if (message.as<Verdict>().granted == 0) throw std::logic_error("memory that fits was refused");
      actor.take(message.as<Verdict>());
      return begin_burst(actor);
    default:
      return;
  }
}

void Stage::next_order(Actor& actor) {
  if (actor.begin_order()) obey(actor);
}

// Carries out one part of the current order, and schedules the next part.
void Stage::obey(Actor& actor) {
  if (actor.ended) return;
  const simulation::Piece piece = carry_out(actor, *this, kChunk);
  if (piece.report) std::visit([&](const auto& what) { say(actor, what); }, *piece.report);
  if (piece.finished) return next_order(actor);
  const bool copied = piece.copied != Bytes{};
  at(now() + (copied ? per_mib_ * static_cast<long>(piece.copied.count >> 20) : piece.pause),
     [this, &actor] { obey(actor); });
}

Nanoseconds Stage::drain(simulation::Session& session, MessageType) {
  auto& actor = static_cast<Actor&>(session);
  if (!actor.drained_at) {
    Nanoseconds time = actor.working ? between(0ms, actor.program.kernel) : 0ms;
    if (!actor.for_ever()) time = std::min(time, actor.work_since + actor.left - now());
    actor.drained_at = now() + std::max(time, Nanoseconds{});
  }
  if (now() < *actor.drained_at) return *actor.drained_at - now();
  actor.drained_at.reset();
  stop_work(actor);
  if (actor.has_work && !actor.waiting) {
    actor.waiting = true;
    actor.waiting_since = now();
  }
  return {};
}

bool Stage::waits(const simulation::Session& session) const {
  return static_cast<const Actor&>(session).waiting;
}

void Stage::gate_opened(Actor& actor) {
  ++actor.turns;
  if (actor.waiting) actor.waits.push_back(now() - actor.waiting_since);
  if (actor.waiting && actor.starting) actor.starts.push_back(now() - actor.waiting_since);
  actor.waiting = actor.starting = false;
  actor.in_turn = true;
  actor.idle_since = now();
  if (actor.has_work) return work_on(actor);
  watch_idle(actor, ++actor.generation, {});
}

void Stage::begin_burst(Actor& actor) {
  actor.has_work = true;
  const bool paced = actor.program.period > Nanoseconds{};
  actor.left = paced ? actor.program.burst : between(actor.program.burst / 2, actor.program.burst * 3 / 2);
  if (paced && actor.came == Nanoseconds{}) actor.came = now();
  if (!actor.program.pieces.empty()) actor.left = actor.program.pieces[actor.piece].burst;
  const Nanoseconds rest = actor.program.work - actor.worked;
  if (actor.program.work > Nanoseconds{}) actor.left = actor.hog() ? rest : std::min(actor.left, rest);
  if (actor.page.open && actor.use.resident == actor.use.swappable) return work_on(actor);
  actor.waiting = actor.starting = true;
  actor.waiting_since = now();
  say(actor, Want{});
}

void Stage::work_on(Actor& actor) {
  actor.working = true;
  actor.work_since = now();
  const unsigned generation = ++actor.generation;
  if (actor.for_ever()) return;
  at(now() + actor.left, [this, &actor, generation] {
    if (actor.generation != generation) return;
    stop_work(actor);
    actor.has_work = false;
    if (actor.program.work > Nanoseconds{} && actor.worked >= actor.program.work) return end(actor);
    if (!actor.program.pieces.empty() && ++actor.piece == actor.program.pieces.size()) return end(actor);
    end_burst(actor);
  });
}

void Stage::end_burst(Actor& actor) {
  const Program& program = actor.program;
  Nanoseconds next = now() + between(program.pause / 2, program.pause * 3 / 2);
  if (!program.pieces.empty()) next = now() + program.pieces[actor.piece - 1].pause;
  if (program.period > Nanoseconds{}) {
    const auto [periods, met, missed] = actor.deadlines(now());
    actor.response = now() - actor.came;
    if (program.claims.deadline > Nanoseconds{})
      say(actor, Deadlines{.met = met ? 1u : 0u, .missed = met ? 0u : 1u});
    actor.met += met ? 1 : 0;
    actor.missed += missed;
    next = actor.came += periods * program.period;
  }
  at(next, [this, &actor] { begin_burst(actor); });
}

void Stage::stop_work(Actor& actor) {
  if (!actor.working) return;
  actor.working = false;
  actor.worked += now() - actor.work_since;
  actor.left = std::max(actor.left - (now() - actor.work_since), Nanoseconds(1us));
  actor.idle_since = now();
  watch_idle(actor, ++actor.generation, {});
}

// Polls like the interposer's IdleWatch: after a millisecond, then at growing intervals.
void Stage::watch_idle(Actor& actor, unsigned generation, Nanoseconds said) {
  const Nanoseconds next = actor.idle_since + said + std::max(kFirstIdle, said / 4);
  at(next, [this, &actor, generation] {
    if (actor.generation != generation || !actor.page.open || !actor.page.contended || actor.working) return;
    const Nanoseconds idle = now() - actor.idle_since;
    say(actor, Idle{.epoch = actor.epoch, .idle = idle});
    watch_idle(actor, generation, idle);
  });
}

}  // namespace sharedgpu
