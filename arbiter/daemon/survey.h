// SPDX-License-Identifier: Apache-2.0
// Periodically surveys the memory of all processes on the host's GPUs, through a child process that asks
// NVML.
//
// The child surveys the memory only when asked, and reports errors and changes of status at any time. A child
// that does not answer in time, or sends an invalid answer, is killed. Another child is then started after a
// pause, which grows with each failure. While no survey is needed, no child runs, so that the GPUs of an idle
// host are not used. Event-loop thread only.
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
#include "arbiter/ledger/energy_book.h"
#include "protocol/units.h"

namespace sharedgpu {

struct SurveyedProcess {
  pid_t pid = 0;
  std::optional<Bytes> memory;  // nullopt: NVML does not know it
};

// One GPU of an answer. A GPU is missing from the answer if it did not respond.
struct SurveyedGpu {
  GpuUuid uuid;
  Bytes used;
  Bytes free;
  std::optional<Energy> energy;         // since the driver was loaded; nullopt: NVML does not know it
  std::optional<unsigned> utilization;  // percentage of NVML's last sampling period in which a kernel ran on
                                        // the GPU
  std::vector<SurveyedProcess> processes;
};

// The health of a GPU that NVML lists.
struct GpuHealth {
  GpuUuid uuid;
  std::uint32_t status = 0;                 // NVML's return code for the GPU: 0, kNvmlLost, ...
  std::optional<std::uint64_t> ecc_errors;  // uncorrected, since the driver was loaded; nullopt: unknown
};

// An error that a GPU has reported, or a change of its status.
struct GpuSign {
  enum class Kind : std::uint8_t { xid, ecc_error, status };
  GpuUuid uuid;
  Kind kind = Kind::status;
  std::uint64_t number = 0;  // the Xid, or the status
};

// Callbacks about the health of the GPUs.
struct GpuWatch {
  // Called with each answer. `gpus`: the GPUs that NVML lists. `all`: the list is complete.
  std::function<void(const std::vector<GpuHealth>& gpus, bool all)> looked;
  std::function<void(const GpuSign& sign)> saw;
};

struct SurveyTimes {
  std::chrono::milliseconds period{1000};
  // Maximum wait for an answer. The wait is long, because NVML must start before the first answer, which may
  // take seconds.
  std::chrono::milliseconds patience{15'000};
  // Pause before another child is started; doubles after each failure.
  std::chrono::milliseconds first_pause{1000};
  std::chrono::milliseconds longest_pause{60'000};
};

class Survey {
 public:
  // `needed` is called before each survey; surveys stop when it returns false. `heard` is called with each
  // answer, and with an empty answer when surveys stop or the child fails.
  Survey(asio::io_context& loop, const System& system, std::function<bool()> needed,
         std::function<void(const std::vector<SurveyedGpu>&)> heard, SurveyTimes times = {},
         GpuWatch watch = {});
  ~Survey();
  Survey(const Survey&) = delete;
  Survey& operator=(const Survey&) = delete;

  // Starts surveys if none are running. Call when `needed` may have become true.
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
  asio::steady_timer timer_;              // time until the next survey, or until the next child is started
  asio::steady_timer timeout_;            // limits the wait for an answer
  asio::posix::stream_descriptor death_;  // the child's pidfd
  asio::posix::stream_descriptor talk_;   // carries questions to the child, and the child's lines to the
                                          // daemon
  pid_t child_ = -1;
  bool active_ = false;  // surveys are running or starting
  bool asked_ = false;   // an answer is outstanding
  bool failed_ = false;  // give_up() has killed the child because of a failure
  bool told_ = false;    // the log says that NVML does not answer
  std::chrono::milliseconds pause_;
  SurveyLine line_;
  std::vector<SurveyedGpu> answer_;
  std::vector<GpuHealth> health_;
};

}  // namespace sharedgpu
