// SPDX-License-Identifier: Apache-2.0
// Compares the memory that sessions report with surveys of the GPU: which part of the reports is believed,
// and how much memory other processes have.
#include <algorithm>
#include <utility>

#include "arbiter/core/memory/memory_books.h"

namespace sharedgpu {
namespace {

// Differences between claims and surveys below this fraction of a GPU are ignored.
constexpr std::uint64_t kTolerancePart = 1024;
// Contexts that no survey has shown yet lower usable() by at most this fraction of a GPU in total.
constexpr std::uint64_t kCreditPart = 16;

}  // namespace

void MemoryBooks::survey(const Gpu& gpu, std::optional<GpuSurvey> found) {
  GpuBook& its = gpus_[gpu];
  if (its.survey && !found) expect_survey(gpu);  // waits for the next survey, which may succeed
  its.survey = std::move(found);
  for (const Session* session : gpu.sessions) {
    SessionBook& one = book(*session);
    one.most_context.reset();
    if (!its.survey) {
      one.evidence.forget();
      continue;
    }
    if (const auto most = its.survey->contexts.find(session->id); most != its.survey->contexts.end())
      one.most_context = most->second;
    const auto shown = its.survey->sessions.find(session->id);
    if (shown == its.survey->sessions.end()) continue;
    if (shown->second)
      one.evidence.show(*shown->second, one.claimed(session->backend),
                        Bytes{gpu.total.count / kTolerancePart});
    else
      one.evidence.pass_over();
  }
  for (const Session* session : gpu.sessions) book(*session).allowed = of(*session).allowed_now();
  if (usable(gpu, Basis::certain) < usable(gpu, Basis::uncrowded)) return;
  for (const Session* session : gpu.sessions)
    if (of(*session).deferred.empty() && !of(*session).unjudged) book(*session).crowded_since.reset();
}

void MemoryBooks::note_between_surveys(const Gpu& gpu) {
  for (const Session* session : gpu.sessions) {
    SessionBook& its = book(*session);
    its.allowed.raise(its.allowed_now());
    its.evidence.between_surveys(its.claimed(session->backend).evictable);
  }
}

Bytes MemoryBooks::unmanaged(const Gpu& gpu) const {
  const std::optional<GpuSurvey>& survey = gpus_[gpu].survey;
  return survey ? survey->unmanaged + survey->hidden : Bytes{};
}

Bytes MemoryBooks::unreported(const Session& session) const {
  if (!attached(&session) || !surveyed(*session.gpu)) return {};
  const auto& survey = gpus_[*session.gpu].survey;
  const auto found = survey->unreported.find(session.id);
  return found == survey->unreported.end() ? Bytes{} : found->second;
}

// The memory of the GPU that may be handed out beside processes without sessions. Hidden memory does not
// lower this value. Instead, usable() subtracts hidden memory from the GPU's total, like contexts: some
// hidden memory is memory that the driver has taken for a session without the session's knowledge.
Bytes MemoryBooks::beside_unmanaged(const Gpu& gpu) const {
  const std::optional<GpuSurvey>& survey = gpus_[gpu].survey;
  return survey ? capacity_of(gpu.total, survey->limit, survey->reserve, survey->unmanaged) : gpu.capacity;
}

// If the last survey has a bound for the session's contexts (most_context), reported contexts count up to
// this bound. Otherwise contexts count only up to a fraction of the GPU (kContextPart). Growth waits if it
// lacks memory only because of contexts beyond that fraction.
Bytes MemoryBooks::context_of(Basis basis, const SessionBook& its) {
  const Bytes told = its.most_context && basis != Basis::uncrowded ? its.told_context : its.use.context;
  return std::min(minus(told, its.evidence.doubted()), its.most_context.value_or(told));
}

// If surveys contradict a claim, contexts are doubted before pinned memory: pinned memory was granted, and
// contexts are only reported.
MemoryBooks::Unevictable MemoryBooks::unevictable_on(Basis basis, const Session& session,
                                                     const MemoryUse& use) const {
  const Evidence& evidence = of(session).evidence;
  if (evidence.nothing_there()) return {};
  Unevictable its{.pinned = minus(use.pinned, minus(evidence.doubted(), use.context)),
                  .context = context_of(basis, of(session))};
  if (basis == Basis::believed) return its;
  const bool shows = surveyed(*session.gpu) || (basis == Basis::uncrowded && awaits_survey(*session.gpu));
  if (!shows) return its;
  const Bytes certain = evidence.certain(its.context + its.pinned);
  its.context = std::min(its.context, certain);
  its.pinned = std::min(its.pinned, certain - its.context);
  return its;
}

Bytes MemoryBooks::believed_pins(const Session& session, Bytes pinned) const {
  MemoryUse use = of(session).use;
  use.pinned = pinned;
  return unevictable_on(Basis::believed, session, use).pinned;
}

Bytes MemoryBooks::usable(const Gpu& gpu, Basis basis) const {
  Bytes certain;
  Bytes told;
  for (const Session* session : gpu.sessions) {
    const MemoryUse& use = of(*session).use;
    certain += unevictable_on(basis == Basis::believed ? Basis::certain : basis, *session, use).context;
    told += unevictable_on(Basis::believed, *session, use).context;
  }
  const Bytes credit = basis == Basis::believed ? minus(told, certain) : Bytes{};
  const Bytes contexts = certain + std::min(credit, Bytes{gpu.total.count / kCreditPart});
  if (basis == Basis::uncrowded) return std::min(gpu.capacity, minus(gpu.total, contexts));
  return std::min({gpu.capacity, beside_unmanaged(gpu), minus(gpu.total, unmanaged(gpu) + contexts)});
}

}  // namespace sharedgpu
