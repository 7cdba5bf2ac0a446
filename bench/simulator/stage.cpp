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

struct Stage::Actor {
  SessionId id;
  Program program;
  MemoryUse use;
  Bytes allowed;
  Epoch epoch;
  bool gate = false;
  bool contended = false;
  bool has_work = false;  // yet to be done
  bool working = false;   // on the GPU, what drains included
  bool waiting = false;   // at the gate
  bool starting = false;  // with nothing of the burst done yet
  Nanoseconds waiting_since{};
  Nanoseconds left{};  // of the burst
  Nanoseconds work_since{};
  Nanoseconds idle_since{};
  unsigned generation = 0;  // of its work: what was planned for an earlier one is void
  Nanoseconds line_free{};  // messages keep their order
  std::deque<Message> jobs;
  bool at_job = false;
  std::vector<Nanoseconds> waits;
  std::vector<Nanoseconds> starts;
  unsigned turns = 0;
  Nanoseconds lease_before{};
  Nanoseconds came{};  // the piece of work at hand, of one that has a period
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
    Nanoseconds::rep periods = 1;  // since the piece of work at hand came
    bool met = false;              // where it is done now
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
  core_ = std::make_unique<Core>(tuning, *policy_, Recovered{}, now_);
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
    at(now_ + program.arrival + between(0ms, 100ms), [this, &its, uuid] {
      its.arrived = now_;
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

void Stage::at(Nanoseconds time, std::function<void()> what) {
  moments_.push_back(Moment{.at = std::max(time, now_), .order = ++order_, .what = std::move(what)});
  std::push_heap(moments_.begin(), moments_.end());
}

void Stage::run(Nanoseconds time) {
  const Nanoseconds end = now_ + time;
  while (!all_ended() && !moments_.empty() && moments_.front().at <= end) {
    std::pop_heap(moments_.begin(), moments_.end());
    const Moment moment = std::move(moments_.back());
    moments_.pop_back();
    now_ = moment.at;
    count_loss();
    moment.what();
  }
  if (!all_ended()) now_ = end;
  count_loss();
}

// Nothing changes between two moments.
void Stage::count_loss() {
  const auto any = [this](bool Actor::*flag) {
    return std::any_of(actors_.begin(), actors_.end(), [flag](const auto& actor) { return (*actor).*flag; });
  };
  if (any(&Actor::has_work) && !any(&Actor::working)) lost_ += now_ - counted_;
  counted_ = now_;
}

void Stage::begin_measuring() {
  measured_since_ = now_;
  lost_ = {};
  for (auto& actor : actors_) {
    actor->waits.clear();
    actor->starts.clear();
    actor->turns = actor->met = actor->missed = 0;
    actor->lease_before = core_->leases().of_tenant(TenantId{actor->id.value}, now_);
  }
}

Stage::Seen Stage::seen(std::size_t program) const {
  const Actor& actor = *actors_.at(program);
  Seen seen;
  seen.lease = core_->leases().of_tenant(TenantId{actor.id.value}, now_) - actor.lease_before;
  seen.waits = actor.waits;
  seen.starts = actor.starts;
  if (actor.waiting) seen.waits.push_back(now_ - actor.waiting_since);
  seen.turns = actor.turns;
  if (actor.ended) seen.took = *actor.ended - actor.arrived;
  seen.met = actor.met;
  seen.missed = actor.missed;
  if (actor.has_work && actor.program.period > Nanoseconds{}) seen.missed += actor.deadlines(now_).missed;
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
  perform(core_->handle(event, now_));
}

void Stage::end(Actor& actor) {
  actor.ended = now_;
  --left_;
  actor.gate = false;
  actor.jobs.clear();
  tell(SessionGone{.session = actor.id});
}

void Stage::perform(const Actions& actions) {
  const auto actor_of = [this](SessionId id) -> Actor& { return *actors_.at(id.value - 1); };
  for (const Action& action : actions) {
    if (const auto* send = std::get_if<Send>(&action)) {
      Actor& actor = actor_of(send->session);
      actor.line_free = std::max(actor.line_free, now_ + between(50us, 500us));
      at(actor.line_free, [this, &actor, message = send->message] { hear(actor, message); });
    } else if (const auto* gate = std::get_if<SetGate>(&action)) {
      Actor& actor = actor_of(gate->session);
      actor.gate = gate->open;
      if (gate->open) gate_opened(actor);
    } else if (const auto* contended = std::get_if<SetContended>(&action)) {
      Actor& actor = actor_of(contended->session);
      actor.contended = contended->contended;
      if (actor.contended) watch_idle(actor, actor.generation, {});
    } else if (const auto* timer = std::get_if<ArmTimer>(&action)) {
      timer_ = timer->at;
      at(timer_, [this, time = timer_] {
        if (timer_ == time) tell(TimerFired{});
      });
    } else if (std::get_if<Drop>(&action) != nullptr) {
      throw std::logic_error("a session that behaves was dropped");
    }
  }
}

template <class Body>
void Stage::say(Actor& actor, const Body& body) {
  at(now_ + 200us, [this, &actor, body] { tell(From<Body>{.session = actor.id, .body = body}); });
}

void Stage::hear(Actor& actor, const Message& message) {
  if (actor.ended) return;
  switch (message.type) {
    case MessageType::welcome:
      actor.epoch = message.as<Welcome>().epoch;
      return;
    case MessageType::attached:
      actor.use.swappable = mebibytes(actor.program.size);
      return say(actor, Usage{.request = 1, .use = actor.use, .stuck = 0});
    case MessageType::verdict:
      if (message.as<Verdict>().granted == 0) throw std::logic_error("what fits was refused");
      actor.allowed = message.as<Verdict>().allowed;
      if (actor.gate) actor.use.resident = std::min(actor.allowed, actor.use.swappable);
      return begin_burst(actor);
    case MessageType::restore:
      actor.epoch = message.as<Restore>().epoch;
      [[fallthrough]];
    case MessageType::evict:
    case MessageType::revoke:
      actor.jobs.push_back(message);
      return next_job(actor);
    default:
      return;
  }
}

void Stage::next_job(Actor& actor) {
  if (actor.at_job || actor.jobs.empty()) return;
  actor.at_job = true;
  const Message& job = actor.jobs.front();
  if (job.type != MessageType::revoke) return move(actor);
  Nanoseconds drain = actor.working ? between(0ms, actor.program.kernel) : 0ms;
  if (!actor.for_ever()) drain = std::min(drain, actor.work_since + actor.left - now_);
  at(now_ + drain, [this, &actor, order = job.as<Revoke>().order] {
    if (actor.ended) return;
    stop_work(actor);
    if (actor.has_work && !actor.waiting) {
      actor.waiting = true;
      actor.waiting_since = now_;
    }
    say(actor,
        Released{
            .epoch = actor.epoch, .order = order, .wants = actor.waiting, .overuse = {}, .use = actor.use});
    finish_job(actor);
  });
}

void Stage::finish_job(Actor& actor) {
  if (actor.ended) return;
  actor.jobs.pop_front();
  actor.at_job = false;
  next_job(actor);
}

// A chunk of the restore or eviction at hand, and then the next.
void Stage::move(Actor& actor) {
  if (actor.ended) return;
  const Message& job = actor.jobs.front();
  const bool in = job.type == MessageType::restore;
  actor.allowed = in ? job.as<Restore>().allowed : job.as<Evict>().allowed;
  const Bytes bound = in ? std::min(actor.allowed, actor.use.swappable) : actor.allowed;
  const Bytes rest = in ? minus(bound, actor.use.resident) : minus(actor.use.resident, bound);
  const Bytes chunk = std::min(rest, kChunk);
  if (chunk == Bytes{}) {
    if (in && actor.use.resident == actor.use.swappable)
      say(actor, Ready{.epoch = job.as<Restore>().epoch, .use = actor.use});
    if (!in) say(actor, Usage{.request = 0, .use = actor.use, .stuck = 0});
    return finish_job(actor);
  }
  at(now_ + per_mib_ * static_cast<long>(chunk.count >> 20), [this, &actor, in, chunk] {
    if (in) {
      actor.use.resident += chunk;
    } else {
      actor.use.resident -= chunk;
      say(actor, Usage{.request = 0, .use = actor.use, .stuck = 0});
    }
    move(actor);
  });
}

void Stage::gate_opened(Actor& actor) {
  ++actor.turns;
  if (actor.waiting) actor.waits.push_back(now_ - actor.waiting_since);
  if (actor.waiting && actor.starting) actor.starts.push_back(now_ - actor.waiting_since);
  actor.waiting = actor.starting = false;
  actor.idle_since = now_;
  if (actor.has_work) return work_on(actor);
  watch_idle(actor, ++actor.generation, {});
}

void Stage::begin_burst(Actor& actor) {
  actor.has_work = true;
  const bool paced = actor.program.period > Nanoseconds{};
  actor.left = paced ? actor.program.burst : between(actor.program.burst / 2, actor.program.burst * 3 / 2);
  if (paced && actor.came == Nanoseconds{}) actor.came = now_;
  if (!actor.program.pieces.empty()) actor.left = actor.program.pieces[actor.piece].burst;
  const Nanoseconds rest = actor.program.work - actor.worked;
  if (actor.program.work > Nanoseconds{}) actor.left = actor.hog() ? rest : std::min(actor.left, rest);
  if (actor.gate && actor.use.resident == actor.use.swappable) return work_on(actor);
  actor.waiting = actor.starting = true;
  actor.waiting_since = now_;
  say(actor, Want{});
}

void Stage::work_on(Actor& actor) {
  actor.working = true;
  actor.work_since = now_;
  const unsigned generation = ++actor.generation;
  if (actor.for_ever()) return;
  at(now_ + actor.left, [this, &actor, generation] {
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
  Nanoseconds next = now_ + between(program.pause / 2, program.pause * 3 / 2);
  if (!program.pieces.empty()) next = now_ + program.pieces[actor.piece - 1].pause;
  if (program.period > Nanoseconds{}) {
    const auto [periods, met, missed] = actor.deadlines(now_);
    actor.response = now_ - actor.came;
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
  actor.worked += now_ - actor.work_since;
  actor.left = std::max(actor.left - (now_ - actor.work_since), Nanoseconds(1us));
  actor.idle_since = now_;
  watch_idle(actor, ++actor.generation, {});
}

// As the interposer's IdleWatch: after a millisecond, then ever more rarely.
void Stage::watch_idle(Actor& actor, unsigned generation, Nanoseconds said) {
  const Nanoseconds next = actor.idle_since + said + std::max(kFirstIdle, said / 4);
  at(next, [this, &actor, generation] {
    if (actor.generation != generation || !actor.gate || !actor.contended || actor.working) return;
    const Nanoseconds idle = now_ - actor.idle_since;
    say(actor, Idle{.epoch = actor.epoch, .idle = idle});
    watch_idle(actor, generation, idle);
  });
}

}  // namespace sharedgpu
