// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/oversized.h"

#include <optional>
#include <utility>

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

// A kernel that takes longer than this may be waiting for the program.
constexpr Nanoseconds kLongestTrial = 5s;
// If the turn ends before the exchange, the thread tries again in the next turn, in this many turns at most.
constexpr unsigned kMostTurns = 3;

}  // namespace

bool bring_in(session::DeviceSession& session, const session::ExchangeChoice& choice) {
  if (choice.in.empty()) return true;
  session::ExchangeResult result{.outcome = session::Exchanged::closed};
  for (unsigned turns = 0; turns < kMostTurns && result.outcome == session::Exchanged::closed; ++turns) {
    { gate::Pass in_our_turn; }
    result = session.exchange(choice.out, choice.in);
  }
  session.residence()->exchanged(choice, result, gate::now());
  return result.outcome == session::Exchanged::complete;
}

session::DeviceSession* oversized_session() {
  if (gate::capturing() || gate::inside()) return nullptr;
  session::DeviceSession* const session = process::current_session();
  return session == nullptr || session->residence() == nullptr ? nullptr : session;
}

struct OversizedLaunch::Work {
  session::Residence* residence = nullptr;
  session::Residence::Choice choice;
  CUstream stream = nullptr;
  CUevent begun = nullptr;
  CUevent ended = nullptr;
  bool timed = false;

  void finish();
  void log(float milliseconds) const;
};

OversizedLaunch::OversizedLaunch(const KernelLaunch& launch) {
  session::DeviceSession* const session = oversized_session();
  if (session == nullptr) return;
  session::Residence* const residence = session->residence();
  const session::KernelUse use{.kernel = launch.kernel,
                               .arguments = kernel_arguments(launch.kernel, launch.parameters, launch.extra)};
  if (use.arguments.empty()) return;
  session::Residence::Choice choice = residence->choose({&use, 1}, gate::now());
  // If an operand is not where choose() expects it, the time of the launch tells nothing about the kernel.
  if (!bring_in(*session, choice.exchange) || !choice.timed) return;
  work_ = std::make_unique<Work>();
  work_->residence = residence;
  work_->choice = std::move(choice);
  work_->stream = launch.stream != 0 ? reinterpret_cast<CUstream>(launch.stream)
                  : launch.own       ? CU_STREAM_PER_THREAD
                                     : CU_STREAM_LEGACY;
  // The driver may load a kernel's code only at the kernel's first launch. The measured time would then
  // include the loading.
  const driver::BesideCaptures beside;
  driver::call<Load>(driver::Function::cuFuncLoad, launch.kernel);
}

OversizedLaunch::~OversizedLaunch() {
  if (work_) work_->finish();
}

void OversizedLaunch::begin() {
  if (!work_) return;
  const driver::BesideCaptures beside;
  if (SHAREDGPU_REAL(cuEventCreate, &work_->begun, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return;
  if (SHAREDGPU_REAL(cuEventCreate, &work_->ended, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return;
  work_->timed = SHAREDGPU_REAL(cuEventRecord, work_->begun, work_->stream) == CUDA_SUCCESS;
}

void OversizedLaunch::end(bool launched) {
  if (!work_ || !work_->timed) return;
  const driver::BesideCaptures beside;
  work_->timed = launched && SHAREDGPU_REAL(cuEventRecord, work_->ended, work_->stream) == CUDA_SUCCESS;
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
