// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/oversized.h"

#include <optional>
#include <utility>

#include "interposer/backlog/streams.h"
#include "interposer/driver/beside_captures.h"
#include "interposer/driver/call.h"
#include "interposer/gate/captures.h"
#include "interposer/gate/clock.h"
#include "interposer/gate/gate.h"
#include "interposer/hooks/kernel_arguments.h"
#include "interposer/process/process.h"
#include "interposer/session/log.h"

namespace sharedgpu::hooks {
namespace {

using namespace std::chrono_literals;

// Functions that the cuda.h of CUDA 11.8 lacks.
using GetName = CUresult(const char** name, std::uintptr_t kernel);
using Load = CUresult(std::uintptr_t kernel);
using ElapsedTime = CUresult(float* milliseconds, CUevent start, CUevent end);

// A kernel that takes longer may wait for the program.
constexpr Nanoseconds kLongestTrial = 5s;
// If the turn ends before the exchange, the exchange is made in the next turn, but not for ever.
constexpr unsigned kMostTurns = 3;

// If memory moves beside work: how long a launch waits for its operands, and the pause between two looks.
constexpr Nanoseconds kPatience = 500ms;
constexpr Nanoseconds kNap = 200us;
// Memory may have moved between the choice and the exchange, but not again and again.
constexpr unsigned kMostExchanges = 8;

session::ExchangeResult exchange(session::DeviceSession& session, const session::ExchangeChoice& choice) {
  session::ExchangeResult result{.outcome = session::Exchanged::closed};
  for (unsigned turns = 0; turns < kMostTurns && result.outcome == session::Exchanged::closed; ++turns) {
    { gate::Pass in_our_turn; }
    result = session.exchange(choice.out, choice.in);
  }
  return result;
}

// Carries out the exchange before a launch. Returns false if a handle that should come in is still away. If
// memory moves beside work, another exchange may be moving the handles already; a new request would end that
// exchange early.
bool bring_in(session::DeviceSession& session, session::ExchangeChoice choice) {
  session::Residence& residence = *session.residence();
  session::ExchangeResult result{.outcome = session::Exchanged::complete};
  unsigned exchanges = 0;
  for (Nanoseconds end = gate::now() + kPatience; !choice.empty(); choice = residence.again(choice)) {
    const Nanoseconds now = gate::now();
    if (now >= end || exchanges == kMostExchanges || gate::capturing()) {
      residence.exchanged(choice, {}, now);
      return false;
    }
    if (!choice.coming.empty()) {
      session.memory()->away_memory()->wait_for(choice.coming, end - now);
      residence.waited(gate::now() - now);
    } else if (choice.in.empty()) {
      gate::nap(kNap);
      session.note_ended_launches();
      residence.waited(gate::now() - now);
    } else {
      result = exchange(session, choice);
      ++exchanges;
      end = gate::now() + kPatience;  // the thread may have waited for its turn
      const bool complete = result.outcome == session::Exchanged::complete;
      if (complete || !residence.beside_work()) residence.exchanged(choice, result, gate::now());
      if (complete && choice.lacking.empty()) return true;
      if (!residence.beside_work()) return complete;
    }
  }
  return result.outcome == session::Exchanged::complete;
}

}  // namespace

session::DeviceSession* oversized_session() {
  if (gate::capturing() || gate::inside()) return nullptr;
  session::DeviceSession* const session = process::current_session();
  return session == nullptr || session->residence() == nullptr ? nullptr : session;
}

struct OversizedLaunch::Work {
  Work(session::DeviceSession& its, session::Residence::Choice its_choice, std::uintptr_t its_stream,
       bool own)
      : session(its),
        residence(its.residence()),
        choice(std::move(its_choice)),
        stream(its_stream != 0 ? reinterpret_cast<CUstream>(its_stream)
               : own           ? CU_STREAM_PER_THREAD
                               : CU_STREAM_LEGACY) {}

  session::DeviceSession& session;
  session::Residence* residence;
  session::Residence::Choice choice;
  CUstream stream;
  CUevent begun = nullptr;
  CUevent ended = nullptr;
  bool may_time = false;  // the time of the launch should be measured
  bool timed = false;     // its time is being measured

  void note() const;
  void finish();
  void log(float milliseconds) const;
};

OversizedLaunch::OversizedLaunch(const KernelLaunch& launch) {
  session::DeviceSession* const session = oversized_session();
  if (session == nullptr) return;
  const session::KernelUse use{.kernel = launch.kernel,
                               .arguments = kernel_arguments(launch.kernel, launch.parameters, launch.extra)};
  if (use.arguments.empty()) return;
  session->wait_for_launches();
  session::Residence::Choice choice = session->residence()->choose({&use, 1}, gate::now());
  // The time of a launch whose operands are somewhere else than expected tells nothing.
  const bool may_time = bring_in(*session, choice.exchange) && choice.timed;
  if (!may_time && !session->residence()->beside_work()) return;
  work_ = std::make_unique<Work>(*session, std::move(choice), launch.stream, launch.own);
  work_->may_time = may_time;
  if (!may_time) return;
  // The driver may load a kernel's code only at its first launch, which would take a part of the time.
  const driver::BesideCaptures beside;
  driver::call<Load>(driver::Function::cuFuncLoad, launch.kernel);
}

OversizedLaunch::OversizedLaunch(session::DeviceSession& session, std::span<const session::KernelUse> kernels,
                                 std::uintptr_t stream) {
  if (kernels.empty()) return;
  session.wait_for_launches();
  session::Residence::Choice choice = session.residence()->choose(kernels, gate::now());
  bring_in(session, choice.exchange);
  if (session.residence()->beside_work())
    work_ = std::make_unique<Work>(session, std::move(choice), stream, false);
}

OversizedLaunch::~OversizedLaunch() {
  if (!work_) return;
  if (work_->may_time) work_->finish();
  work_->session.look_ahead();
}

void OversizedLaunch::begin() {
  if (!work_ || !work_->may_time) return;
  const driver::BesideCaptures beside;
  if (SHAREDGPU_REAL(cuEventCreate, &work_->begun, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return;
  if (SHAREDGPU_REAL(cuEventCreate, &work_->ended, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return;
  work_->timed = SHAREDGPU_REAL(cuEventRecord, work_->begun, work_->stream) == CUDA_SUCCESS;
}

void OversizedLaunch::end(bool launched) {
  if (!work_) return;
  const driver::BesideCaptures beside;
  if (work_->timed)
    work_->timed = launched && SHAREDGPU_REAL(cuEventRecord, work_->ended, work_->stream) == CUDA_SUCCESS;
  if (launched) work_->note();
}

// If memory moves beside work, the handles of the launch must not leave before the launch has ended. Without
// a fence, its end is not known, so they may.
void OversizedLaunch::Work::note() const {
  if (!residence->beside_work()) return;
  CUresult result = CUDA_SUCCESS;
  if (const auto place = backlog::locate(stream))
    if (FencePtr fence = backlog::mark(*place, &result))
      session.launched(choice, place->id, std::move(fence));
}

void OversizedLaunch::Work::log(float milliseconds) const {
  Bytes all;
  Bytes away;
  for (const KernelCosts::Operand& operand : choice.operands) {
    all += operand.size;
    away += operand.away;
  }
  const char* name = nullptr;
  if (driver::call<GetName>(driver::Function::cuFuncGetName, &name, choice.operands[0].key.kernel) !=
          CUDA_SUCCESS ||
      name == nullptr)
    name = "a kernel";
  debug("%.3f ms with %llu of %llu MiB away: %.100s", static_cast<double>(milliseconds),
        static_cast<unsigned long long>(away.count >> 20), static_cast<unsigned long long>(all.count >> 20),
        name);
}

void OversizedLaunch::Work::finish() {
  const driver::BesideCaptures beside;
  const Nanoseconds end = gate::now() + kLongestTrial;
  std::optional<Nanoseconds> running_since;
  CUresult result = timed ? CUDA_ERROR_NOT_READY : CUDA_ERROR_UNKNOWN;
  while (result == CUDA_ERROR_NOT_READY && gate::now() < end && !gate::capturing()) {
    gate::nap(20us);
    result = SHAREDGPU_REAL(cuEventQuery, ended);
    if (result == CUDA_ERROR_NOT_READY && !running_since &&
        SHAREDGPU_REAL(cuEventQuery, begun) == CUDA_SUCCESS)
      running_since = gate::now();
  }
  if (const Nanoseconds now = gate::now(); result == CUDA_ERROR_NOT_READY && now >= end)
    residence->did_not_end(choice, running_since ? now - *running_since : Nanoseconds{}, now);
  float milliseconds = 0;
  if (result == CUDA_SUCCESS)
    result = driver::call<ElapsedTime>(driver::Function::cuEventElapsedTime, &milliseconds, begun, ended);
  if (result == CUDA_SUCCESS) {
    residence->ran(choice, Nanoseconds(static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6)));
    log(milliseconds);
  }
  if (begun != nullptr) SHAREDGPU_REAL(cuEventDestroy_v2, begun);
  if (ended != nullptr) SHAREDGPU_REAL(cuEventDestroy_v2, ended);
}

}  // namespace sharedgpu::hooks
