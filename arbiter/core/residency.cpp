// SPDX-License-Identifier: Apache-2.0
// Which memory moves. A session's `allowed` and `pinned` are promises: the sum of all of them, of what is
// resident above them, and of contexts stays within the GPU. Room is given only when it is there.
#include <algorithm>

#include "arbiter/core/actions.h"

namespace sharedgpu {

Bytes Core::usable(const Gpu& gpu) const {
  Bytes contexts;
  for (const Session* session : gpu.sessions) contexts += session->use.context;
  return std::min(gpu.capacity, minus(gpu.total, contexts));
}

// A session outside a turn only ever loses memory, so what it told last is the most that it can have.
Bytes Core::promised(const Session& session) const {
  Bytes resident = session.use.resident;
  if (session.tenant->phase != Phase::out)
    resident = std::max({resident, session.allowed, session.under_way});
  return resident + session.pinned;
}

Bytes Core::promised(const Gpu& gpu) const {
  Bytes sum;
  for (const Session* session : gpu.sessions) sum += promised(*session);
  return sum;
}

Nanoseconds Core::patience_for(Bytes moving) const {
  return tuning_.patience + std::chrono::seconds(moving.count >> 30);
}

// What a session has on the GPU once it has all of its memory.
Bytes Core::whole(const Session& session) const {
  return std::max(promised(session) - session.pinned, session.use.swappable) +
         std::max(session.pinned, session.use.pinned);
}

// What of a session outside the running set must be reckoned to stay on the GPU.
Bytes Core::unevictable(const Session& session) const {
  Bytes pinned = std::max(session.pinned, session.use.pinned);
  const Tenant& tenant = *session.tenant;
  if (starved(tenant)) return whole(session);
  const bool drains = tenant.phase == Phase::leaving && !(tenant.taken && session.released);
  const bool overdue = drains && (session.stopped || now_ - tenant.left >= tuning_.patience);
  if (overdue) return promised(session) - session.pinned + pinned;
  return session.stuck(now_) ? session.use.resident + pinned : pinned;
}

// Gives up, for a while, on sessions that were told to evict and do not.
void Core::notice_stuck(Gpu& gpu) {
  for (Session* session : gpu.sessions) {
    if (session->stuck(now_)) wake_at(session->stuck_until);
    if (session->tenant->phase == Phase::leaving) {
      wake_at(session->tenant->left + tuning_.step_after);
      wake_at(session->tenant->left + tuning_.patience);
    }
    if (!drained(*session) || session->allowed >= session->use.resident) continue;
    Nanoseconds due = session->news + patience_for(Bytes{});
    wake_at(due);
    if (now_ < due) continue;
    session->stuck_until = now_ + tuning_.patience;
    session->allowed = session->use.resident;
    wake_at(session->stuck_until);
    actions_.emplace_back(Note{.tenant = session->tenant->id, .text = "does not evict; planning around it"});
  }
}

// Hands free room to those who need it, in the order: what cannot wait for a turn (pinned), who runs, who
// needs it to leave, who asks for it on the way out, for whom the turn is, who was taken along. Evicts for
// what is missing.
void Core::make_room(Gpu& gpu) {
  const std::vector<Session*>& sessions = gpu.sessions;
  Bytes missing = settle_pinned(gpu);
  const Bytes promised_now = promised(gpu);
  Bytes room = minus(gpu.usable, promised_now);
  missing += minus(promised_now, gpu.usable);
  Bytes growing;
  auto lacks = [](const Session* session) {
    return minus(session->use.swappable,
                 std::max({session->allowed, session->use.resident, session->under_way}));
  };
  // All that it lacks, or nothing yet: two that had a part each, and were told of none, could wait for ever.
  auto fill = [&](Session* session) {
    const Bytes costs = lacks(session);
    if (costs <= room) session->allowed = std::max(session->allowed, session->use.swappable);
    missing += minus(costs, room);
    room = minus(room, costs);
  };
  auto give = [&](Bytes& bound, Bytes target, Bytes already_counted) {
    if (target <= bound) return;
    Bytes costs = minus(target, std::max(bound, already_counted));
    Bytes given = std::min(costs, room);
    room -= given;
    missing += costs - given;
    bound = std::max(bound, std::min(target, std::max(bound, already_counted) + given));
  };
  for (Session* session : sessions) give(session->pinned, session->use.pinned, Bytes{});
  for (Session* session : sessions)
    if (session->tenant->phase == Phase::running) {
      Bytes before = missing;
      fill(session);
      growing += missing - before;
    }
  // One at a time gets what it lacks, also from others that leave.
  const Tenant* first = first_starved(gpu);
  for (Session* session : sessions)
    if (session->tenant == first && starved(*session)) fill(session);
  for (Session* session : sessions)
    if (waits_to_grow(*session) && lacks(session) <= room && can_be_filled(*session->tenant)) fill(session);
  Bytes grows_then;
  for (bool leads : {true, false})
    for (Session* session : sessions)
      if (session->tenant->phase == Phase::entering && session->tenant->leads == leads) {
        grows_then += session->surge.put_off();
        give(session->allowed, session->use.swappable, std::max(session->use.resident, session->under_way));
      }

  missing += minus(grows_then, room);
  if (growing != Bytes{}) missing += minus(growth_ahead(gpu), growing);
  if (missing != Bytes{}) evict(gpu, missing, first);
  send_restores(gpu);
  evict_for_the_unknown(gpu);
}

Bytes put_off(const Session& session) { return session.tenant->wants() ? session.surge.put_off() : Bytes{}; }

// By how much those who run are likely to grow soon: that is evicted at once, and host memory made ready for
// it, as for what others will grow by in their turns.
Bytes Core::growth_ahead(const Gpu& gpu) const {
  Bytes sum;
  for (const Session* session : gpu.sessions) {
    if (session->tenant->phase != Phase::running) continue;
    sum += std::min(session->surge.to_come(now_), minus(gpu.usable, session->use.footprint()));
  }
  return std::max(sum, tuning_.evict_step);
}

// What is resident already becomes pinned where it is: the same memory under another name. While a session
// brings memory back, messages that cross could let it fill the old bound beside what it pinned: then there
// must be room for both. A turn that ends may wait for the answer, so that is not kept back for ever.
// Returns the room that is missing for it.
Bytes Core::settle_pinned(Gpu& gpu) {
  Bytes missing;
  for (Session* session : gpu.sessions) {
    if (session->settling == Bytes{}) continue;
    if (at_work(*session) || drained(*session)) {
      const Bytes settling = std::min({session->settling, session->use.swappable, session->use.resident});
      const Session before = *session;
      session->use.swappable -= settling;
      session->use.resident -= settling;
      session->use.pinned += settling;
      session->pinned += settling;
      if (has_arrived(*session)) session->allowed = minus(session->allowed, settling);
      if (drained(*session)) session->allowed = std::min(session->allowed, session->use.resident);
      session->settling = {};
      // Nothing arrives while it settles: what it was told to bring and has not, it will not bring.
      if (session->tenant->phase == Phase::running)
        session->under_way = std::min(session->under_way, session->use.swappable);
      const Bytes lacks = minus(promised(gpu), gpu.usable);
      if (lacks == Bytes{} || promised(*session) <= promised(before)) continue;
      *session = before;
      missing += lacks;
    }
    if (session->tenant->phase != Phase::leaving || drained(*session)) continue;
    const Nanoseconds due = session->asked_to_grow + tuning_.settle;
    wake_at(due);
    if (now_ >= due) refuse(*session);
  }
  return missing;
}

// The books know of contexts what sessions guess, and nothing of programs outside. Where they promise more
// than there is, the driver refuses a restore that they allow; then those that wait give up memory by steps.
void Core::evict_for_the_unknown(Gpu& gpu) {
  Bytes shortage;
  for (Session* session : gpu.sessions) {
    if (session->tenant->phase != Phase::entering || session->ready || !session->told_all) continue;
    // A session that tries in vain goes on telling of it: what counts is that it is not ready.
    Nanoseconds begun = std::max(session->told_all_at, session->pressed);
    Nanoseconds due = begun + tuning_.shortage + std::chrono::seconds(session->use.swappable.count >> 30);
    if (now_ >= due) {
      session->pressed = now_;
      due = now_ + tuning_.shortage;
      actions_.emplace_back(
          Note{.tenant = session->tenant->id, .text = "finds less memory than the books say"});
      // What it is just trying to back it may have told as resident.
      shortage += std::max(minus(session->use.swappable, session->use.resident), tuning_.evict_step);
    }
    wake_at(due);
  }
  if (shortage != Bytes{}) evict(gpu, shortage, nullptr);
}

// Who is to get the memory that it needs to leave: of those for whom there is enough beside what nobody can
// give up now, the one that has waited longest. Null: nobody.
const Tenant* Core::first_starved(const Gpu& gpu) const {
  const Tenant* first = nullptr;
  for (const Session* session : gpu.sessions) {
    const Tenant* tenant = session->tenant;
    if (!starved(*session)) continue;
    if ((first == nullptr || tenant->left < first->left) && can_be_filled(*tenant)) first = tenant;
  }
  return first;
}

// Whether all of a tenant's memory can be on its GPUs beside that of all who have not drained, or that cannot
// be evicted for the time being.
bool Core::can_be_filled(const Tenant& tenant) const {
  auto fits_on = [&](const Gpu& gpu) {
    Bytes needed;
    for (const Session* session : gpu.sessions) {
      if (session->tenant == &tenant)
        needed += whole(*session);
      else if (!drained(*session))
        needed += promised(*session);
      else
        needed += session->pinned + (session->stuck(now_) ? session->use.resident : Bytes{});
    }
    return needed <= usable(gpu);
  };
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [&](const Session* session) { return !on_gpu(session) || fits_on(*session->gpu); });
}

// Asks tenants without a lease, least recently run first, for what is not on its way already. Where that is
// for a tenant that cannot leave without it, those that are on their way out with it give what they can.
void Core::evict(Gpu& gpu, Bytes shortage, const Tenant* first) {
  std::vector<Session*> victims;
  for (Session* session : gpu.sessions) {
    if (!drained(*session) || session->stuck(now_)) continue;
    const bool leaving = session->tenant->phase == Phase::leaving && !session->tenant->taken;
    if (leaving && (first == nullptr || session->tenant == first)) continue;
    shortage = minus(shortage, minus(session->use.resident, session->allowed));
    victims.push_back(session);
  }
  std::stable_sort(victims.begin(), victims.end(), [](const Session* a, const Session* b) {
    const Tenant& one = *a->tenant;
    const Tenant& other = *b->tenant;
    if (one.phase != other.phase) return one.phase == Phase::out;
    return one.last_ran < other.last_ran;
  });
  for (Session* victim : victims) {
    if (shortage == Bytes{}) return;
    Bytes kept = std::min(victim->allowed, victim->use.resident);
    if (kept == Bytes{}) continue;
    Bytes asked = std::min(kept, shortage);
    shortage -= asked;
    if (victim->allowed >= victim->use.resident) victim->news = now_;  // its patience starts to run
    victim->allowed = kept - asked;
    victim->evicting = true;
    send(*victim, Evict{.allowed = victim->allowed});
  }
}

void Core::send_restores(Gpu& gpu) {
  for (Session* session : gpu.sessions) {
    if (session->tenant->phase != Phase::entering || session->ready) continue;
    bool all = session->allowed >= session->use.swappable;
    bool news = session->asked ? session->allowed > session->told_allowed || (all && !session->told_all)
                               : all || session->allowed > session->use.resident;
    if (!news) continue;
    session->asked = true;
    session->told_allowed = session->allowed;
    if (all && session->told_all_at == Nanoseconds{}) session->told_all_at = now_;
    session->told_all = all;
    session->epoch = session->tenant->epoch;
    session->news = now_;
    send(*session, Restore{.epoch = session->epoch, .allowed = session->allowed});
  }
}

// Nobody can make room for who asks for it on the way out: all that hold memory here wait for more
// themselves, or cannot evict. The GPU would be theirs for ever. So the one that left last is told that there
// is none.
void Core::refuse_the_last(const Gpu& gpu) {
  Session* last = nullptr;
  for (Session* session : gpu.sessions) {
    if (drained(*session) || session->stopped) continue;
    if (!starved(*session->tenant)) {
      if (promised(*session) != Bytes{}) return;  // it goes out without more, now or when its turn is over
      continue;
    }
    if (!waits_to_grow(*session) || can_be_filled(*session->tenant)) continue;
    const Nanoseconds due = session->asked_to_grow + patience_for(session->use.footprint());
    wake_at(due);
    if (now_ >= due && (last == nullptr || last->tenant->left <= session->tenant->left)) last = session;
  }
  if (last == nullptr) return;
  actions_.emplace_back(Note{.tenant = last->tenant->id,
                             .text = "needs more memory to end its turn than others can free; refused"});
  refuse(*last);
}

void Core::refuse(Session& session, Bytes host_most) {
  for (std::uint64_t request : session.requests)
    send(session,
         Verdict{.request = request, .granted = 0, .allowed = session.allowed, .host_most = host_most});
  session.requests.clear();
  session.settling = {};
}

// A session that comes back tells growth along with what it has, and all of it counts as promised. It is
// granted when what is promised is there: until then others evict for it, or leave.
bool Core::is_promised_already(Session& session) {
  if (!session.growth_counted) return false;
  const bool takes = at_work(session) || session.use.pinned != Bytes{};
  if (!takes || !on_gpu(&session) || promised(*session.gpu) <= session.gpu->usable) return false;
  const Nanoseconds due = session.asked_to_grow + patience_for(session.use.footprint());
  wake_at(due);
  if (now_ >= due) refuse(session);
  return true;
}

// Growth of what is at work is answered when the room for it is there. Any other comes with the next turn.
// What is pinned takes room at once, whoever asks.
void Core::answer_requests(Gpu& gpu) {
  for (Session* session : gpu.sessions) {
    if (session->requests.empty() || session->pinned < session->use.pinned || session->settling != Bytes{})
      continue;
    if (session->tenant->taken && session->stopped) continue;  // it is at work again as soon as it goes on
    if (at_work(*session) && session->allowed < session->use.swappable) continue;
    if (is_promised_already(*session)) continue;
    // What is kept for a Step comes with the Step.
    const Bytes allowed =
        drained(*session) ? std::min(session->allowed, session->use.resident) : session->allowed;
    for (std::uint64_t request : session->requests)
      send(*session, Verdict{.request = request, .granted = 1, .allowed = allowed});
    session->requests.clear();
  }
}

}  // namespace sharedgpu
