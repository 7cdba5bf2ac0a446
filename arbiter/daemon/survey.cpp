// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/survey.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <asio/buffer.hpp>
#include <asio/read.hpp>
#include <csignal>

#include "arbiter/daemon/driver_child.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/watched.h"

namespace sharedgpu {

Survey::Survey(asio::io_context& loop, const System& system, std::function<bool()> needed,
               std::function<void(const std::vector<SurveyedGpu>&)> heard, SurveyTimes times, GpuWatch watch)
    : system_(system),
      needed_(std::move(needed)),
      heard_(std::move(heard)),
      times_(times),
      watch_(std::move(watch)),
      timer_(loop),
      timeout_(loop),
      death_(loop),
      talk_(loop),
      pause_(times.first_pause) {}

// Kills the child, and waits at most a second for its end, since a child that hangs in the Linux kernel does
// not die.
Survey::~Survey() {
  if (child_ <= 0) return;
  kill(child_, SIGKILL);
  for (int i = 0; i < 100 && waitpid(child_, nullptr, WNOHANG) == 0; ++i) usleep(10'000);
}

void Survey::wake() {
  if (std::exchange(active_, true)) return;
  pause_ = times_.first_pause;
  begin();
}

// Starts no second child while an earlier child hangs in the driver.
void Survey::begin() {
  if (death_.is_open()) return;  // end_child() will start a new child
  const bool lives_unwatched = child_ > 0 && waitpid(child_, nullptr, WNOHANG) == 0;
  if (lives_unwatched || !start_child()) return retry_later();
  ask();
  read_line();
}

bool Survey::start_child() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  UniqueFd ours(ends[0]);
  child_ = start_driver_child(UniqueFd(ends[1]), [this](int end) { answer_surveys(system_, end); });
  if (child_ < 0) return false;
  UniqueFd pidfd = system_.open_process(child_);
  if (!pidfd || hand_over(ours, talk_) || hand_over(pidfd, death_)) {
    talk_.close();
    kill(child_, SIGKILL);
    return false;
  }
  await_death(death_, [this] { end_child(); });
  return true;
}

void Survey::ask() {
  if (!needed_()) {
    active_ = false;
    give_up(nullptr);
    return;
  }
  asked_ = true;
  answer_.clear();
  health_.clear();
  // A failure to send needs no handling: if the child has ended, end_child() is called. Otherwise the child
  // does not answer, and give_up() is called after the timeout.
  static_cast<void>(send(talk_.native_handle(), "?", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
  timeout_.expires_after(times_.patience);
  timeout_.async_wait([this](const asio::error_code& error) {
    if (!error) give_up("does not answer");
  });
}

void Survey::read_line() {
  asio::async_read(talk_, asio::buffer(&line_, sizeof line_),
                   [this](const asio::error_code& error, std::size_t) {
                     if (error || !talk_.is_open()) return;
                     take(line_);
                     if (talk_.is_open()) read_line();
                   });
}

// Handles a line about the health of GPUs. Returns false for other lines.
bool Survey::take_health(const SurveyLine& line) {
  if (line.kind == SurveyLine::Kind::health && asked_ && answer_.empty() &&
      health_.size() < kMostSurveyedGpus) {
    const bool known = line.used != SurveyLine::kUnknown;
    health_.push_back({.uuid = line.gpu,
                       .status = line.pid,
                       .ecc_errors = known ? std::optional(line.used) : std::nullopt});
    return true;
  }
  GpuSign sign{.uuid = line.gpu, .number = line.used};
  if (line.kind == SurveyLine::Kind::xid)
    sign.kind = GpuSign::Kind::xid;
  else if (line.kind == SurveyLine::Kind::ecc_error)
    sign.kind = GpuSign::Kind::ecc_error;
  else if (line.kind != SurveyLine::Kind::status)
    return false;
  if (watch_.saw) watch_.saw(sign);
  return true;
}

void Survey::take(const SurveyLine& line) {
  if (take_health(line)) return;
  const bool begun = !answer_.empty();
  if (!asked_) return give_up("sent a line that was not requested");
  if (line.kind == SurveyLine::Kind::end) return finish(line.used != 0);
  if (line.kind == SurveyLine::Kind::gpu && answer_.size() < kMostSurveyedGpus) {
    answer_.push_back({.uuid = line.gpu,
                       .used = Bytes{line.used},
                       .free = Bytes{line.free},
                       .energy = {},
                       .utilization = {},
                       .processes = {}});
  } else if (line.kind == SurveyLine::Kind::meters && begun && answer_.back().uuid == line.gpu) {
    if (line.used != SurveyLine::kUnknown) answer_.back().energy = Energy{line.used};
    if (line.free <= 100) answer_.back().utilization = static_cast<unsigned>(line.free);
  } else if (line.kind == SurveyLine::Kind::process && begun &&
             answer_.back().processes.size() < std::size_t{2} * kMostSurveyedProcesses) {
    const bool known = line.used != SurveyLine::kUnknown;
    answer_.back().processes.push_back({.pid = static_cast<pid_t>(line.pid),
                                        .memory = known ? std::optional(Bytes{line.used}) : std::nullopt});
  } else {
    give_up("sent an invalid line");
  }
}

void Survey::finish(bool all) {
  asked_ = false;
  timeout_.cancel();
  pause_ = times_.first_pause;
  if (std::exchange(told_, false)) log::info("survey: NVML answers again");
  timer_.expires_after(times_.period);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error && talk_.is_open()) ask();
  });
  if (watch_.looked) watch_.looked(health_, all);
  heard_(answer_);
}

// Kills the child; end_child() is called after its death. `why`: what the child did wrong; null if nothing.
void Survey::give_up(const char* why) {
  timeout_.cancel();
  timer_.cancel();
  talk_.close();
  if (child_ > 0) kill(child_, SIGKILL);
  failed_ = why != nullptr;
  if (failed_) log::debug("survey: pid " + std::to_string(child_) + " " + why);
  heard_({});
}

void Survey::end_child() {
  death_.close();
  waitpid(child_, nullptr, 0);
  child_ = -1;
  const bool fell = talk_.is_open();  // true if the child exited by itself
  const bool failed = std::exchange(failed_, false) || fell;
  timeout_.cancel();
  timer_.cancel();
  talk_.close();
  if (fell) heard_({});
  if (!active_) return;
  failed ? retry_later() : begin();
}

void Survey::retry_later() {
  if (!std::exchange(told_, true))
    log::info(
        "survey: NVML does not answer; the memory of tenants is taken from their own reports, that of other "
        "processes is unknown");
  timer_.expires_after(pause_);
  pause_ = std::min(2 * pause_, times_.longest_pause);
  timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    active_ = needed_();
    if (active_) begin();
  });
}

}  // namespace sharedgpu
