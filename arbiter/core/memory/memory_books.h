// SPDX-License-Identifier: Apache-2.0
// The memory books: what each session has on its GPU, what it may have there, and what it is asked to give
// up.
//
// The invariant: on each GPU the sum of all promises (promised()) stays within usable(). A session's resident
// limit and pin limit are promises, and so is what it has beside them. Room is promised only when it is
// there. The books own all of this; which sessions run, and when, they are told as Residency values. Sizes in
// bytes. One thread at a time.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "arbiter/core/memory/evidence.h"
#include "arbiter/core/memory/gpu_survey.h"
#include "arbiter/core/memory/growth_forecast.h"
#include "arbiter/core/memory/residency.h"
#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/table.h"
#include "arbiter/core/model/tuning.h"

namespace sharedgpu {

// The entries of one session.
struct SessionBook {
  MemoryUse use;       // as reported, growth that it waits for included
  Bytes told_context;  // as reported, whatever part of it is believed
  // Promises: it may have so much evictable memory resident, and so much pinned.
  Bytes resident_limit;
  Bytes pin_limit;
  // A Restore up to this much was sent to it and may not have arrived: a session that is ready may still fill
  // it.
  Bytes restore_in_flight;
  Bytes granted_pins;  // of use.pinned, as of the last Verdict
  Bytes pin_request;   // of its resident memory, which it asks to pin in place; not in use.pinned yet
  Bytes peak;          // the largest footprint since its turn began
  GrowthForecast forecast;
  Evidence evidence;                  // of its process's memory on the GPU
  std::optional<Bytes> most_context;  // that counts, by the last survey; none: any amount
  Allowed allowed;                    // the most at any time since the last survey

  // Requests for growth without a Verdict, and when the first of them came.
  std::vector<std::uint64_t> requests;
  Nanoseconds requested_at{};
  // Requests deferred until freed host memory is given back, or until there is room beside processes that are
  // no sessions; their growth is not in `use`.
  std::vector<std::uint64_t> deferred;
  Nanoseconds deferred_at{};
  std::optional<Nanoseconds> crowded_since;  // since when growth of it has lacked room for the second reason
  Bytes reported_swappable;                  // in its last report, deferred growth included
  Bytes reported_pinned;                     // the same
  Bytes job_host_limit;  // on all that the job could have to evict, as reported; zero: none

  // After a restart of the arbiter: its use is not known until its first report, which may contain growth
  // that was never granted. Growth that it asks for then counts as promised already.
  bool unreported = false;
  bool may_have_reported_growth = false;
  bool growth_counted = false;
  bool unjudged = false;  // nobody has judged yet what it asked for meanwhile

  // The restore for the turn that its tenant enters.
  bool restoring = false;                // it was sent a Restore in this turn
  bool ready = false;                    // all of its memory is resident
  bool restored_all = false;             // the last Restore covered all that it needs
  bool restored_same_twice = false;      // it was sent the same limit twice
  std::optional<Nanoseconds> all_since;  // when a Restore first covered all
  Bytes restored_limit;                  // of the last Restore
  Nanoseconds pressed{};                 // when others last evicted for it beyond the books, or it grew

  bool evicting = false;          // it was told to evict since it was last ready
  std::optional<Bytes> evict_to;  // the last such limit, until it is there, says why not or has another turn
  Bytes taken;                    // of its memory, on its way out, for others that could not drain without
  Nanoseconds evicted_at{};       // when it was told to evict, or when memory of it last left the GPU
  Nanoseconds last_progress{};  // when it last said something that counts as progress, or was asked for some
  Nanoseconds stuck_until{};    // it cannot evict before
  std::optional<Nanoseconds> stuck_noted;  // when the log last said so

  Bytes prepared_host;                         // host memory that the last Prepare named
  std::uint32_t sharers = 1;                   // the same: processes that prepare it together; zero: unknown
  std::optional<Nanoseconds> less_host_since;  // since when less has been enough

  bool lacks_room() const { return use.swappable > resident_limit || use.pinned > pin_limit; }
  // Pins that it asks for and may not have yet are no claim.
  Claimed claimed() const {
    const Bytes kept = granted_pins + use.context;
    return {.unevictable = kept,
            .present = use.resident + kept,
            .all = std::max(use.swappable, use.resident) + kept};
  }
  // Pins that surveys do not show count as given up.
  Allowed allowed_now() const {
    return {.memory = std::max({use.resident, resident_limit, restore_in_flight}) +
                      minus(pin_limit, minus(evidence.doubted(), use.context)),
            .context = told_context};
  }
};

// The entries of one GPU.
struct GpuBook {
  Bytes usable;                                         // as of begin()
  std::optional<GpuSurvey> survey;                      // the last one; none: nobody looks
  Nanoseconds first_survey_until = Nanoseconds::min();  // the end of the wait for one
};

class MemoryBooks {
 public:
  MemoryBooks(const Tuning& tuning, Effects& effects) : tuning_(tuning), effects_(effects) {}

  void add(const Session& session);
  // The heir has from now on the memory of `old`: their process has no other.
  void hand_over(const Session& old, const Session& heir);
  void add(const Gpu& gpu) { gpus_.begin(gpu); }
  const SessionBook& of(const Session& session) const { return books_[session]; }

  // The arbiter stood still for so long. Nobody could answer it meanwhile: requests wait for as much longer.
  void pass_over(const Model& model, Nanoseconds standstill);

  // ---- reports of sessions ----

  // A report and, where it has a request, a request for growth. `recovering`: others have not reported yet,
  // so that nothing is refused now.
  void report(const Session& session, const Usage& usage, const Residency& at, bool recovering);
  // Ready and Released report where memory is. Their amounts may be those before growth that has been granted
  // meanwhile.
  void report_residency(const Session& session, const MemoryUse& use, const Residency& at);
  void on_ready(const Session& session);
  void on_drained(const Session& session);

  // ---- what surveys show ----

  void survey(const Gpu& gpu, std::optional<GpuSurvey> found);
  // Somebody begins to look at the GPU: the first survey comes soon, unless none can be made.
  void expect_survey(const Gpu& gpu) {
    gpus_[gpu].first_survey_until = effects_.now() + tuning_.first_surveys;
  }
  bool surveyed(const Gpu& gpu) const { return gpus_[gpu].survey.has_value(); }
  // Memory of nobody's session, and that which processes of sessions hide. Zero where surveys do not show the
  // GPU.
  Bytes unmanaged(const Gpu& gpu) const;
  // Surveys show that the session's process has nothing on the GPU, whatever it claims.
  bool nothing_there(const Session& session) const { return of(session).evidence.nothing_there(); }

  // ---- phases ----

  void note_progress(const Session& session) { books_[session].last_progress = effects_.now(); }
  // `complete`: all of its memory is there.
  void begin_restore(const Session& session, bool complete);
  void set_ready(const Session& session, bool ready) { books_[session].ready = ready; }
  void begin_turn(const Session& session) { books_[session].peak = books_[session].use.footprint(); }
  void open(const Session& session);
  // Its gate closes while it has work: it cannot grow before its next turn.
  void defer_growth(const Session& session);
  // Outside a turn a session may not fill memory that is not on the GPU.
  void hold_at_resident(const Session& session);
  // Its process is stopped: memory that it was asked to evict stays for now.
  void freeze(const Session& session) { books_[session].resident_limit = books_[session].use.resident; }

  // ---- advancing a GPU; in this order ----

  void notice_stuck(const Gpu& gpu, const Residencies& at);
  void begin(const Gpu& gpu, const Residencies& at);
  void expect_evictions(const Gpu& gpu, const Residencies& at);
  // Hands out room, evicts for what is missing.
  void rebalance(const Gpu& gpu, const Residencies& at);
  // Sessions that are to be sent a Restore up to their resident limit. They count as told.
  std::vector<const Session*> take_restores(const Gpu& gpu, const Residencies& at);
  void evict_for_shortage(const Gpu& gpu, const Residencies& at);
  void evict_before_suspension(const Gpu& gpu, const Residencies& at);
  void refuse_last(const Gpu& gpu, const Residencies& at);
  void answer_requests(const Gpu& gpu, const Residencies& at);
  // Sessions do not hide in the next survey the memory that they may have from now on.
  void note_allowed(const Gpu& gpu);

  // The recovery period is over: judges the requests that came meanwhile.
  void end_recovery(const Model& model, const Residencies& at);

  // ---- read only ----

  // The capacity, or what contexts and processes that are no sessions leave of the total. The second as of
  // begin().
  Bytes usable(const Gpu& gpu) const { return usable(gpu, Basis::believed); }
  Bytes usable_now(const Gpu& gpu) const { return gpus_[gpu].usable; }
  // Physical memory that a session has or may take at any moment; that of all on a GPU.
  Bytes promised(const Session& session, const Residency& at) const;
  Bytes promised(const Gpu& gpu, const Residencies& at) const;
  // The memory of a session on the GPU while its tenant runs.
  Bytes demand(const Session& session, const Residency& at) const;
  // The part of a session outside the running set that counts as staying on the GPU.
  // `tenant_grows`: needs_growth_to_drain() of its tenant.
  Bytes unevictable(const Session& session, const Residency& at, bool tenant_grows) const;
  // It has taken more memory in the last while, or asks for more.
  bool has_grown_lately(const Session& session) const {
    return of(session).forecast.goes_on(effects_.now()) || !of(session).requests.empty();
  }
  // The session has neither a context nor memory on the GPU, as far as it has told.
  bool has_nothing(const Session& session) const;
  // All of a tenant's memory is resident and none is asked to leave.
  bool complete(const Tenant& tenant) const;
  bool stuck(const Session& session, const Residency& at) const;
  // Its tenant may be unable to end its turn before this session has more memory.
  bool needs_growth_to_drain(const Session& session, const Residency& at) const;
  bool needs_growth_to_drain(const Tenant& tenant, const Residencies& at) const;
  // Others of its tenant may wait for what it submits next, and it has not got back what was taken from it.
  bool displaced(const Session& session, const Residency& at) const;
  // The memory that it was told to evict outside its turn and has neither evicted nor said that it cannot.
  Bytes owed(const Session& session, const Residency& at) const;
  // The memory that stays on the GPU outside its turn since its process is stopped, whatever it was told.
  Bytes kept_by_stop(const Session& session, const Residency& at) const;

  // The device memory that a tenant sees: in all, and what it may still allocate.
  struct Room {
    Bytes total;
    Bytes free;
  };
  Room room(const Gpu& gpu, const Tenant* tenant, Bytes limit, const StepName& step) const;
  // The total of this view: whole pages, as the driver's own is.
  static Bytes shown_total(const Gpu& gpu, Bytes limit);
  // The most host memory that a tenant's swap can have; none: unbounded.
  std::optional<Bytes> host_budget(const Tenant& tenant) const;
  // The timeout of a session that has so much to move.
  Nanoseconds timeout_for(Bytes moving) const;

 private:
  // The memory of others that counts: all that they are believed to have; where surveys look, only what these
  // have shown; or what they are believed to have as if there were no processes but sessions.
  enum class Basis : std::uint8_t { believed, certain, uncrowded };
  // The memory of a session that nobody can take from it.
  struct Unevictable {
    Bytes pinned;
    Bytes context;
  };
  // Growth fits, may fit when others have gone, or never does.
  enum class Fit : std::uint8_t { yes, later, never };

  // The most that the processes of a tenant could have to evict, over all GPUs.
  struct Evictable {
    Bytes of_step;
    Bytes of_all;
    Bytes held;  // of all, with host memory of freed memory that is still held
  };

  // belief.cpp
  static Bytes context_of(Basis basis, const SessionBook& its);
  Unevictable unevictable_on(Basis basis, const Session& session, const MemoryUse& use) const;
  Bytes believed_pins(const Session& session, Bytes pinned) const;
  Bytes usable(const Gpu& gpu, Basis basis) const;
  Bytes beside_unmanaged(const Gpu& gpu) const;
  bool awaits_survey(const Gpu& gpu) const {
    return !surveyed(gpu) && effects_.now() < gpus_[gpu].first_survey_until;
  }

  // books.cpp
  SessionBook& book(const Session& session) { return books_[session]; }
  void take_use(const Session& session, MemoryUse reported, bool may_grow, const Residency& at);
  void note_eviction_report(const Session& session, bool failed);
  void keep_on_gpu(const Session& session);
  Bytes whole(const Session& session, const Residency& at) const;
  // The memory that a drained session cannot give up for the time being.
  Bytes staying(const Session& session, const Residency& at) const;
  bool waits_to_grow(const Session& session, const Residency& at) const;
  bool blocks_peers(const Residency& at) const { return effects_.now() >= at.blocks_peers_from; }

  // admission.cpp
  void take_first_report(const Session& session, const MemoryUse& reported);
  bool could_ever_fit(const Session& session, const MemoryUse& use, Basis basis = Basis::believed) const;
  Fit fit(const Session& session, const MemoryUse& use, const Residency& at);
  Nanoseconds crowded_until(const Session& session, const Residency& at) const;
  Evictable evictable(const Tenant& tenant, const StepName& step, const Session* but = nullptr) const;
  Evictable evictable_with(const Session& session, const MemoryUse& use) const;
  Bytes passed_host_limit(const Session& session, const MemoryUse& use) const;
  bool waits_for_host(const Session& session, const MemoryUse& use) const;
  Bytes host_room(const Tenant& tenant, const StepName& step) const;
  void judge_request(const Session& session, const Residency& at);
  void admit_deferred(const Gpu& gpu, const Residencies& at);
  void begin_request(const Session& session, std::uint64_t request);
  void refuse(const Session& session, std::uint64_t request, Bytes host_most);
  void refuse_all(const Session& session, Bytes host_most = {});
  bool is_promised_already(const Session& session, const Residencies& at);

  // eviction.cpp
  Bytes pin_in_place(const Gpu& gpu, const Residencies& at);
  Bytes expected_growth(const Gpu& gpu, const Residencies& at) const;
  void give_for_nothing(const Session& session, const Residency& at);
  const Tenant* first_to_fill(const Gpu& gpu, const Residencies& at) const;
  bool can_be_filled(const Tenant& tenant, const Residencies& at) const;
  void evict(const Gpu& gpu, Bytes shortage, const Tenant* first, const Residencies& at);

  // host_pressure.cpp
  void prepare_host(const Session& session, Bytes need);

  const Tuning& tuning_;
  Effects& effects_;
  Table<Session, SessionBook> books_;
  Table<Gpu, GpuBook> gpus_;
};

}  // namespace sharedgpu
