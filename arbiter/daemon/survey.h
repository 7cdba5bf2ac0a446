// SPDX-License-Identifier: Apache-2.0
// Looks again and again at the memory of all processes on the host's GPUs, by a child process that asks NVML.
//
// The child answers only when it is asked. One that is silent for too long, or answers nonsense, is killed;
// another one comes when it is dead, later and later while they fail. While nobody needs to know there is no
// child, so an idle host's GPUs are left alone. One thread, that of the event loop.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/daemon/survey_child.h"
#include "arbiter/daemon/system.h"
#include "protocol/units.h"

namespace sharedgpu {

struct SurveyedProcess {
  pid_t pid = 0;
  std::optional<Bytes> memory;  // none: NVML cannot tell
};

// A GPU that is missing in an answer did not tell.
struct SurveyedGpu {
  GpuUuid uuid;
  Bytes used;
  Bytes free;
  std::vector<SurveyedProcess> processes;
};

// The health of a GPU, as NVML lists it.
struct GpuHealth {
  GpuUuid uuid;
  std::uint32_t status = 0;                 // what NVML returns of it: 0, kNvmlLost, ...
  std::optional<std::uint64_t> ecc_errors;  // not corrected, since its driver has it
};

// An error that a GPU has reported, or another status.
struct GpuSign {
  enum class Kind : std::uint8_t { xid, ecc_error, status };
  GpuUuid uuid;
  Kind kind = Kind::status;
  std::uint64_t number = 0;  // of the Xid; the status
};

// Hears of the GPUs themselves.
struct GpuWatch {
  // With each answer: the GPUs that NVML lists, and whether those are all that it has.
  std::function<void(const std::vector<GpuHealth>& gpus, bool all)> looked;
  std::function<void(const GpuSign& sign)> saw;
};

struct SurveyTimes {
  std::chrono::milliseconds period{1000};
  // The first answer comes when NVML has started, which may take the driver seconds.
  std::chrono::milliseconds patience{15'000};
  std::chrono::milliseconds first_pause{1000};  // before another child is started; it doubles
  std::chrono::milliseconds longest_pause{60'000};
};

class Survey {
 public:
  // `needed` is asked before each look. `heard` is called with each answer, and with an empty one when there
  // will be none for a while.
  Survey(asio::io_context& loop, const System& system, std::function<bool()> needed,
         std::function<void(const std::vector<SurveyedGpu>&)> heard, SurveyTimes times = {},
         GpuWatch watch = {});
  ~Survey();
  Survey(const Survey&) = delete;
  Survey& operator=(const Survey&) = delete;

  // Somebody may need to know: looks at once if it is not looking already.
  void wake();

 private:
  void begin();
  bool start_child();
  void ask();
  void read_line();
  void take(const SurveyLine& line);
  bool take_health(const SurveyLine& line);
  void finish(bool all);
  void give_up(const char* why);
  void end_child();
  void retry_later();

  const System& system_;
  const std::function<bool()> needed_;
  const std::function<void(const std::vector<SurveyedGpu>&)> heard_;
  const SurveyTimes times_;
  const GpuWatch watch_;
  asio::steady_timer timer_;              // to the next look, or the next child
  asio::steady_timer timeout_;            // of an answer
  asio::posix::stream_descriptor death_;  // the child's pidfd
  asio::posix::stream_descriptor talk_;   // questions go there, lines come back
  pid_t child_ = -1;
  bool active_ = false;  // it looks, or tries to
  bool asked_ = false;   // and has no answer yet
  bool failed_ = false;  // the child was killed for that
  bool told_ = false;    // the log says that NVML does not answer
  std::chrono::milliseconds pause_;
  SurveyLine line_;
  std::vector<SurveyedGpu> answer_;
  std::vector<GpuHealth> health_;
};

}  // namespace sharedgpu
