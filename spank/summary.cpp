// SPDX-License-Identifier: Apache-2.0
#include "spank/summary.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>

#include "config/job_summary.h"
#include "protocol/ask.h"
#include "protocol/environment.h"
#include "protocol/step_names.h"
#include "spank/plugin.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::seconds kMostWait{1};

std::uint32_t job = 0;  // the step's job; zero if this step writes no line
bool always = false;    // if false, the step writes the line only if away memory has cost the job time

bool is_last_step(spank_t spank, std::uint32_t step) {
  return step == kBatchStep || step == kInteractiveStep ||
         get_variable(spank, environment::kJobOfSrun) == "1";
}

std::string name_of(const ArrayElement& element) {
  if (element == ArrayElement{}) return "job " + std::to_string(job);
  return "job " + std::to_string(element.array) + "_" + std::to_string(element.index);
}

std::string place_of(spank_t spank) {
  std::uint32_t nodes = 1;
  spank_get_item(spank, S_JOB_NNODES, &nodes);
  return nodes > 1 ? " on the first of its " + std::to_string(nodes) + " nodes" : std::string();
}

Exchanges exchanges_of_job(Channel& channel) {
  Message answer;
  UniqueFd ignored;
  if (channel.version() < ExchangeQuery::kSince) return {};
  if (ask(channel, Message::of(ExchangeQuery{.job = job}), kMostWait, answer, ignored) != 0) return {};
  return answer.type == MessageType::exchange_reply ? answer.as<ExchangeReply>().exchanges : Exchanges{};
}

// slurmstepd's own stderr is that of the step's first task. Writes nothing if the write would block.
void write_line(const std::string& line) {
  pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT) return;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void note_job_of_srun(bool makes_job) {
  if (makes_job)
    setenv(environment::kJobOfSrun, "1", 1);
  else
    unsetenv(environment::kJobOfSrun);
}

void plan_summary(spank_t spank, const SlurmStep& step, const Settings& settings) {
  std::uint32_t node = 0;
  spank_get_item(spank, S_JOB_NODEID, &node);
  const std::optional<bool> given = given_options().summary;
  always = given.value_or(settings.summary);
  if (given != false && node == 0 && is_last_step(spank, step.name.step)) job = step.name.job;
  spank_unsetenv(spank, environment::kJobOfSrun);
}

void write_summary(spank_t spank, const std::string& socket) {
  if (job == 0) return;
  Channel channel;
  Message answer;
  // If neither the site nor the job has requested the line, the job's end does not wait for an arbiter that
  // is starting.
  const Patience patience{.connect = always ? kMostWait : Nanoseconds{}, .answer = kMostWait};
  if (ask(socket.c_str(), Message::of(JobQuery{.job = job}), patience, channel, answer) != 0) return;
  if (answer.type != MessageType::job_reply) return;
  const auto reply = answer.as<JobReply>();
  if (reply.known == 0) return;
  const Exchanges exchanges = exchanges_of_job(channel);
  if (!always && exchanges == Exchanges{}) return;
  write_line("sharedgpu: " +
             format_summary_line({.job = name_of(array_element_of(spank)),
                                  .place = place_of(spank),
                                  .lease = reply.lease,
                                  .waited = reply.waited,
                                  .moved = reply.moved,
                                  .exchanges = exchanges,
                                  .at_best = exchanges.moving_at_best()}) +
             "\n");
}

}  // namespace sharedgpu
