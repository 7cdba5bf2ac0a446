// SPDX-License-Identifier: Apache-2.0
// The memory accounting: how much memory each session has on its GPU, may have on it, and is asked to evict.
//
// The invariant: no new promise raises the sum of all promises on a GPU (promised()) above usable(). Promises
// are the resident limit and the pin limit of each session, and memory that the session has beyond these
// limits. Memory is promised to a session only when it is free. This class owns the entries of all sessions
// and GPUs. Callers pass the state of a session's turn as a Residency. Sizes in bytes. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "arbiter/core/memory/evidence.h"
#include "arbiter/core/memory/gpu_survey.h"
#include "arbiter/core/memory/growth_forecast.h"
#include "arbiter/core/memory/host_limits.h"
#include "arbiter/core/memory/residency.h"
#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/table.h"
#include "arbiter/core/model/tuning.h"

namespace sharedgpu {

// The memory accounting of one session.
struct SessionBook {
  MemoryUse use;       // as reported, including requested growth that is not deferred
  Bytes told_context;  // size of the contexts as reported, even if surveys contradict the report
  // Promises: the limits on the session's resident evictable memory and on its pinned memory.
  Bytes resident_limit;
  Bytes pin_limit;
  // The limit of a Restore that may not have reached the session yet. When this Restore arrives, the session
  // may restore up to this limit, even if it is ready now.
  Bytes restore_in_flight;
  Bytes granted_pins;  // the granted part of use.pinned, as of the last Verdict
  Bytes pin_request;   // resident memory that the session asks to pin in place; not in use.pinned yet
  Bytes peak;          // the session's largest footprint since its turn began
  GrowthForecast forecast;
  Evidence evidence;                  // the memory that surveys show for the session's process on the GPU
  std::optional<Bytes> most_context;  // upper bound on the contexts, from the last survey; none: no bound
  Allowed allowed;                    // the maximum of allowed_now() since the last survey

  // Requests for growth that have no Verdict yet and are not deferred, and the time at which the first of
  // them was added.
  std::vector<std::uint64_t> requests;
  Nanoseconds requested_at{};
  // Requests deferred until freed host memory is returned, or until processes without sessions leave enough
  // GPU memory. The growth of deferred requests is not in `use`.
  std::vector<std::uint64_t> deferred;
  Nanoseconds deferred_at{};
  std::optional<Nanoseconds> crowded_since;  // start of a shortage because of processes without sessions
  Bytes reported_swappable;                  // as of the session's last report, including deferred growth
  Bytes reported_pinned;                     // as of the session's last report, including deferred growth
  Bytes job_host_limit;  // as reported: limit on the evictable memory of the whole job; zero: none or unknown

  // Away memory: the amount granted, and the amount of the last report, which may include growth that has no
  // Verdict yet. Requests for away memory wait only for the end of the recovery, or for freed host memory to
  // be returned.
  Bytes away;
  Bytes reported_away;
  Bytes away_if_granted;  // the away memory that remains if all `requests` and `deferred` are granted
  Bytes uncharged;        // as reported: host memory of the session for which no cgroup is charged
  std::vector<std::uint64_t> away_requests;
  Nanoseconds away_requested_at{};
  bool away_unjudged = false;  // requests for away memory wait for the end of the recovery

  // After a restart of the arbiter, the session's use is unknown until its first report, which may contain
  // growth that was never granted. Growth that this report contains counts as promised.
  bool unreported = false;
  bool may_have_reported_growth = false;
  bool growth_counted = false;
  bool unjudged = false;  // requests that came during the recovery have not been judged

  // The state of the restore at the beginning of the tenant's turn.
  bool restoring = false;                // the session has been sent a Restore in this turn
  bool ready = false;                    // all memory of the session is resident
  bool restored_all = false;             // the last Restore allowed all memory that the session needs
  bool restored_same_twice = false;      // the session was sent two Restores with the same limit
  std::optional<Nanoseconds> all_since;  // when a Restore first allowed the session all memory that it needs
  Bytes restored_limit;                  // limit of the last Restore
  // The last time at which other sessions had to evict because this restore took too long, or at which the
  // session grew.
  Nanoseconds pressed{};

  bool evicting = false;  // the session was asked to evict since it was last ready
  // The limit of the last Evict. Empty again when the session has reached the limit, has reported that it
  // cannot evict more, or has drained, or when its tenant enters.
  std::optional<Bytes> evict_to;
  Bytes taken;  // memory that the session, while leaving, was told to evict for another tenant's drain
  Nanoseconds evicted_at{};  // when the session was asked to evict, or when its memory last left the GPU

  // The last time at which the session reported progress, or was asked to do something.
  Nanoseconds last_progress{};
  Nanoseconds stuck_until{};               // until this time the session counts as unable to evict
  std::optional<Nanoseconds> stuck_noted;  // time of the last log message about stuck_until

  Bytes prepared_host;        // host memory named by the last Prepare
  std::uint32_t sharers = 1;  // number of sessions that together prepare this memory, rounded up to a power
                              // of two; zero: unknown
  std::optional<Nanoseconds> less_host_since;  // when less host memory than prepared_host began to suffice

  bool lacks_room() const { return use.swappable > resident_limit || use.pinned > pin_limit; }
  // The footprint (resident or evicted) plus the away memory.
  Bytes size() const { return use.footprint() + away; }
  // Does not include memory that the session asks to pin, since the request may not be granted yet.
  Claimed claimed(Backend backend) const {
    const Bytes kept = granted_pins + use.context;
    return {.unevictable = kept,
            .present = use.resident + kept,
            .evictable = backend == Backend::managed ? Bytes{} : use.resident,
            .all = std::max(use.swappable, use.resident) + kept};
  }
  // The evictable memory that the session reports as being on the GPU, but that is certainly not there.
  Bytes disproved() const { return std::min(evidence.disproved(), use.resident); }
  // Does not include pinned memory that surveys contradict.
  Allowed allowed_now() const {
    return {.memory = std::max({use.resident, resident_limit, restore_in_flight}) +
                      minus(pin_limit, minus(evidence.doubted(), use.context)),
            .context = told_context};
  }
};

// The memory accounting of one GPU.
struct GpuBook {
  Bytes usable;                                         // as of begin()
  std::optional<GpuSurvey> survey;                      // the last survey; nullopt while there are no surveys
  Nanoseconds first_survey_until = Nanoseconds::min();  // growth waits for the first survey until this time
};

class MemoryBooks {
 public:
  MemoryBooks(const Tuning& tuning, Effects& effects) : tuning_(tuning), effects_(effects) {}

  void add(const Session& session);
  // Sets the session's limits on host memory until its first report, see SessionCame.
  void expect_host_limits(const Session& session, Bytes of_step, Bytes of_job);
  // The heir takes over the memory of `old`: both are sessions of one process, which has reconnected.
  void hand_over(const Session& old, const Session& heir);
  void add(const Gpu& gpu) { gpus_.begin(gpu); }
  const SessionBook& of(const Session& session) const { return books_[session]; }

  // Call if the arbiter did not run for `standstill`. The arbiter has read no answers in this time, so the
  // timeouts of restores, evictions and requests for memory are extended by `standstill`.
  void pass_over(const Model& model, Nanoseconds standstill);

  // ---- reports of sessions ----

  // Processes a report, and the request for growth that it may contain. While `recovering`, no request is
  // refused, since other sessions may not have reported.
  void report(const Session& session, const Usage& usage, const Residency& at, bool recovering);
  // Processes the memory use in Ready and Released. The footprint in the message is ignored, since the
  // session may have sent the message before growth was granted.
  void report_residency(const Session& session, const MemoryUse& use, const Residency& at);
  void on_ready(const Session& session);
  void on_drained(const Session& session);

  // ---- what surveys show ----

  void survey(const Gpu& gpu, std::optional<GpuSurvey> found);
  // Call when surveys of the GPU begin, or when a survey did not contain the GPU. The next survey of the GPU
  // is then expected soon, unless surveys are impossible.
  void expect_survey(const Gpu& gpu) {
    gpus_[gpu].first_survey_until = effects_.now() + tuning_.first_surveys;
  }
  bool surveyed(const Gpu& gpu) const { return gpus_[gpu].survey.has_value(); }
  // Memory of processes without sessions, and hidden memory of processes with sessions. Zero if surveys
  // cannot see the GPU.
  Bytes unmanaged(const Gpu& gpu) const;
  // The memory of the session's process on the GPU that the session has not reported, as far as it counts
  // against the tenant.
  Bytes unreported(const Session& session) const;
  // Returns true if surveys show no memory of the session's process on the GPU, whatever the session claims.
  bool nothing_there(const Session& session) const { return of(session).evidence.nothing_there(); }

  // ---- phases ----

  void note_progress(const Session& session) { books_[session].last_progress = effects_.now(); }
  // `complete`: all of the session's memory is resident.
  void begin_restore(const Session& session, bool complete);
  void set_ready(const Session& session, bool ready) { books_[session].ready = ready; }
  void begin_turn(const Session& session) { books_[session].peak = books_[session].use.footprint(); }
  void open(const Session& session);
  // Call when the session's gate closes while the session has work: the footprint cannot grow before the
  // session's next turn.
  void defer_growth(const Session& session);
  // Lowers the session's limit to its resident memory, for example at the end of a turn, after which the
  // session must not restore memory.
  void hold_at_resident(const Session& session);
  // Call when the process of a drained session is stopped. Memory that the session was asked to evict then
  // stays on the GPU for now.
  void freeze(const Session& session) { books_[session].resident_limit = books_[session].use.resident; }

  // ---- advancing a GPU; in this order ----

  void notice_stuck(const Gpu& gpu, const Residencies& at);
  void begin(const Gpu& gpu, const Residencies& at);
  void expect_evictions(const Gpu& gpu, const Residencies& at);
  // Promises free memory to the sessions that need it, and orders other sessions to evict if the free memory
  // does not suffice.
  void rebalance(const Gpu& gpu, const Residencies& at);
  // Returns the sessions that must be sent a Restore up to their resident limit, and records these Restores
  // as sent.
  std::vector<const Session*> take_restores(const Gpu& gpu, const Residencies& at);
  void evict_for_shortage(const Gpu& gpu, const Residencies& at);
  void evict_before_suspension(const Gpu& gpu, const Residencies& at);
  void refuse_last(const Gpu& gpu, const Residencies& at);
  void answer_requests(const Gpu& gpu, const Residencies& at);
  // Records the most memory that each session was allowed, and the least evictable memory that it claimed,
  // since the last survey. The next survey is compared with these values.
  void note_between_surveys(const Gpu& gpu);

  // Call when the recovery period is over: judges the requests that came during it.
  void end_recovery(const Model& model, const Residencies& at);

  // ---- read only ----

  // The memory of the GPU that footprints may use: the capacity, or less if contexts and processes without
  // sessions leave less. usable_now() returns the value that begin() has computed.
  Bytes usable(const Gpu& gpu) const { return usable(gpu, Basis::believed); }
  Bytes usable_now(const Gpu& gpu) const { return gpus_[gpu].usable; }
  // The physical memory, without contexts, that a session has or may allocate at any moment; in the second
  // function, all sessions of a GPU together.
  Bytes promised(const Session& session, const Residency& at) const;
  Bytes promised(const Gpu& gpu, const Residencies& at) const;
  // The memory that the session needs on the GPU while its tenant runs.
  Bytes demand(const Session& session, const Residency& at) const;
  // For a session outside the running set: the part of its memory that counts as staying on the GPU.
  // `tenant_grows`: the value of needs_growth_to_drain() for the session's tenant.
  Bytes unevictable(const Session& session, const Residency& at, bool tenant_grows) const;
  // Returns true if the session has allocated memory recently, or requests more.
  bool has_grown_lately(const Session& session) const {
    return of(session).forecast.goes_on(effects_.now()) || !of(session).requests.empty();
  }
  // Returns true if the session has neither a context nor memory on the GPU, by its reports.
  bool has_nothing(const Session& session) const;
  // Returns true if all of the tenant's memory is resident and none is to be evicted.
  bool complete(const Tenant& tenant) const;
  bool stuck(const Session& session, const Residency& at) const;
  // Returns true if the session's tenant may be unable to end its turn before the session gets more memory.
  bool needs_growth_to_drain(const Session& session, const Residency& at) const;
  bool needs_growth_to_drain(const Tenant& tenant, const Residencies& at) const;
  // Returns true if memory of the session was evicted and not restored, while other processes of its tenant
  // may wait for its next submission.
  bool displaced(const Session& session, const Residency& at) const;
  // The memory that the session was told to evict outside its turn, and that it has neither evicted nor
  // reported as unevictable.
  Bytes owed(const Session& session, const Residency& at) const;
  // The memory of the session that stays on the GPU outside its turn because its process is stopped.
  Bytes kept_by_stop(const Session& session, const Residency& at) const;

  // A process that asks how much memory a GPU has (cuMemGetInfo). The pointers are valid as long as the model
  // is unchanged.
  struct Viewer {
    const Tenant* tenant = nullptr;  // null: the process belongs to no tenant, or its tenant has no session
    Bytes limit = {};                // the limit on the tenant's footprint; zero: none
    StepName step = {};
    bool oversize = false;              // the process may have away memory
    std::vector<const Gpu*> gpus = {};  // the GPUs on which the tenant is placed
  };
  // The device memory that a process sees: the total, and the part that it may still allocate. If the process
  // may have away memory and a limit on its host memory is known, both values include the host memory that
  // its away memory may use.
  struct Room {
    Bytes total;
    Bytes free;
    Bytes away;  // the part of `free` for which the GPU has no room
  };
  Room room(const Gpu& gpu, const Viewer& viewer) const;
  // Room::total, in whole pages, as the driver reports the memory of a GPU.
  Bytes shown_total(const Gpu& gpu, const Viewer& viewer) const;
  HostLimits host_limits(const Tenant& tenant) const;
  // The limit that a growth of the session by `size` bytes would exceed: its kind, its value (`most`), and
  // the value that would allow the growth (`needed`), see RefusalReply.
  struct Passed {
    Bound bound = Bound::none;
    Bytes most = {};
    Bytes needed = {};
  };
  Passed passed_limit(const Session& session, Bytes size, bool pinned) const;
  // The host memory that the tenant's sessions hold for swap and away memory.
  Bytes host_held(const Tenant& tenant) const;
  // The timeout for a session that has to evict or restore `moving` bytes.
  Nanoseconds timeout_for(Bytes moving) const;

 private:
  static constexpr std::size_t kMostRequests = 4096;  // each thread of a session has at most one request

  // The ways to count the memory of other sessions. `believed`: all memory that these sessions are believed
  // to have. `certain`: only memory that surveys have shown; on a GPU without surveys, the same as
  // `believed`. `uncrowded`: the same as `certain`, but without unmanaged and hidden memory.
  enum class Basis : std::uint8_t { believed, certain, uncrowded };
  // The memory of a session that cannot be evicted.
  struct Unevictable {
    Bytes pinned;
    Bytes context;
  };
  // Growth fits, may fit later (see fit() in admission.cpp), or never fits.
  enum class Fit : std::uint8_t { yes, later, never };

  // The memory that a session would have: `use` on the GPU or evicted, away memory, and all of its host
  // memory for which no cgroup is charged.
  struct Holding {
    MemoryUse use;
    Bytes away;
    Bytes uncharged;
  };
  // The memory of a tenant's processes that the host must be able to hold, summed over all GPUs. It consists
  // of away memory, all memory that the processes may have to evict, and further host memory for which no
  // cgroup is charged.
  struct Evictable {
    Bytes of_step;
    Bytes of_all;
    Bytes held;  // of_all, plus host memory still held for freed device memory
    void add(const Holding& holding, bool same_step);
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
  // The memory that a drained session cannot evict at present.
  Bytes staying(const Session& session, const Residency& at) const;
  bool waits_to_grow(const Session& session, const Residency& at) const;
  bool blocks_peers(const Residency& at) const { return effects_.now() >= at.blocks_peers_from; }

  // admission.cpp
  void take_first_report(const Session& session, const MemoryUse& reported);
  bool could_ever_fit(const Session& session, const MemoryUse& use, Basis basis = Basis::believed) const;
  Fit fit(const Session& session, const MemoryUse& use, const Residency& at);
  Nanoseconds crowded_until(const Session& session, const Residency& at) const;
  Evictable evictable(const Tenant& tenant, const StepName& step, const Session* but = nullptr) const;
  Holding holding(const Session& session, const MemoryUse& use) const;
  Evictable evictable_with(const Session& session, const Holding& holding) const;
  Bytes passed_host_limit(const Session& session, const Holding& holding) const;
  bool waits_for_host(const Session& session, const Holding& holding) const;
  Bytes host_room(const Tenant& tenant, const StepName& step) const;
  void judge_request(const Session& session, const Residency& at);
  void admit_deferred(const Gpu& gpu, const Residencies& at);
  void begin_request(const Session& session, std::uint64_t request);
  void refuse(const Session& session, std::uint64_t request, Bytes host_most);
  void refuse_all(const Session& session, Bytes host_most = {});
  bool is_promised_already(const Session& session, const Residencies& at);

  // away.cpp
  static bool may_grow_away(const Session& session);
  void ask_for_away(const Session& session, std::uint64_t request, const Residency& at, bool recovering);
  void judge_away(const Session& session, const Residency& at);
  Bytes away_on(const Gpu& gpu, const Tenant& tenant) const;
  std::optional<Bytes> away_shown(const Gpu& gpu, const Viewer& viewer) const;

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
