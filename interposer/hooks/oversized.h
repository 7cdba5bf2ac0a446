// SPDX-License-Identifier: Apache-2.0
// Kernel launches of an oversized process. Before the launch, handles that the kernel needs come into the
// window if this is worth the time. The launch is timed if KernelCosts needs its time.
//
// Needs no cuda.h, since submit.cpp also wraps functions that the installed cuda.h lacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace sharedgpu::session {
class DeviceSession;
struct ExchangeChoice;
}  // namespace sharedgpu::session

namespace sharedgpu::hooks {

// The words of a launch function's arguments that matter here; zero where the function lacks the argument.
struct KernelLaunch {
  std::uintptr_t kernel = 0;      // CUfunction or CUkernel
  std::uintptr_t parameters = 0;  // void**
  std::uintptr_t extra = 0;       // void**
  std::uintptr_t stream = 0;
  bool own = false;  // stream 0 means the per-thread default stream
};

// The place of the arguments of a function that launches a kernel; launch_form() derives it from the
// function's name.
enum class LaunchForm { none, words, config };
constexpr LaunchForm launch_form(std::string_view name) {
  if (name.starts_with("cuLaunchKernelEx")) return LaunchForm::config;
  const bool cooperative =
      name.starts_with("cuLaunchCooperativeKernel") && name.find("MultiDevice") == name.npos;
  return cooperative || name.starts_with("cuLaunchKernel") ? LaunchForm::words : LaunchForm::none;
}

// `stream` and `own` are those of backlog::Submission.
template <LaunchForm form, class... Words>
KernelLaunch kernel_launch(std::uintptr_t stream, bool own, Words... words) {
  const std::uintptr_t all[] = {words...};
  if constexpr (form == LaunchForm::config)
    return {.kernel = all[1], .parameters = all[2], .extra = all[3], .stream = stream, .own = own};
  constexpr std::size_t kParameters = 9;
  KernelLaunch launch{.kernel = all[0], .parameters = all[kParameters], .stream = stream, .own = own};
  if constexpr (sizeof...(words) > kParameters + 1) launch.extra = all[kParameters + 1];
  return launch;
}

// A thread makes this object before it enters the gate, and destroys the object after it has left the gate.
// The thread calls begin() and end() inside the gate, before and after the launch. The constructor may wait
// for an exchange, and the destructor may wait for the kernel. If there is nothing to do, all of this has no
// effect.
class OversizedLaunch {
 public:
  explicit OversizedLaunch(const KernelLaunch& launch);
  ~OversizedLaunch();
  OversizedLaunch(const OversizedLaunch&) = delete;
  OversizedLaunch& operator=(const OversizedLaunch&) = delete;
  void begin();
  void end(bool launched);  // `launched`: the driver has accepted the launch

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

// The session of the calling thread's GPU, if its memory may be exchanged now; otherwise null. The result is
// null during a capture, since captured work does not run now. The result is null inside the gate, since the
// thread must not wait for the turn thread there.
session::DeviceSession* oversized_session();

// Carries out the exchange before a launch. Returns false if a handle that should come in is still away.
// Called outside the gate.
bool bring_in(session::DeviceSession& session, const session::ExchangeChoice& choice);

}  // namespace sharedgpu::hooks
