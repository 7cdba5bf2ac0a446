// SPDX-License-Identifier: Apache-2.0
// Lets arbitrary peers connect, send messages, bytes and descriptors, and disconnect, on a host whose system
// calls may fail. The arbiter must not fail, must serve a well-behaved tenant, and must keep no descriptor of
// peers that have disconnected.
//
// The input is a list of operations. An operation is one byte that chooses the kind, followed by the
// arguments. Prints the total number of messages to the arbiter at the end.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "arbiter/daemon/log.h"
#include "crowd.h"
#include "fuzzed_daemon.h"
#include "honest.h"
#include "input.h"

namespace sharedgpu::fuzz {
namespace {

// Returns the number of this process's open descriptors, except those that may stay open.
std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string file = std::filesystem::read_symlink(entry.path(), gone);
    // A memfd with the text of a status that a peer may still read, or a memfd for an answer of Slurm that is
    // not complete.
    const bool may_stay =
        file.find("sharedgpu-status") != file.npos || file.find("memfd:scontrol") != file.npos;
    count += may_stay ? 0 : 1;
  }
  return count;
}

nlohmann::json status_of(const Daemon& daemon) {
  nlohmann::json status = nlohmann::json::parse(daemon.arbiter->status(), nullptr, false);
  require(!status.is_discarded(), "the status is no JSON");
  require(status["gpus"].size() >= std::size(kGpus), "the status lacks GPUs");
  return status;
}

void check_honest_job(const nlohmann::json& status) {
  for (const auto& tenant : status["tenants"])
    if (tenant["job"] == kHonestJob && tenant["uid"] == kHonestUser) return;
  require(false, "the status lacks the honest job");
}

void register_honest_job(Daemon& daemon, pid_t stepd) {
  Channel channel(connect(daemon.settings.socket, stepd));
  RegisterJob job{.step = {.job = kHonestJob, .step = 0}, .uid = kHonestUser, .options = {}};
  job.options.units = 4;
  channel.send(Message::of(job));
  daemon.run();
}

// If the daemon could not start a child to close a user's connections, the connections stay open until a
// child closes the user's next connection. So this function makes one more connection for each user.
void close_leftovers(Daemon& daemon) {
  for (const Part& part : kParts) {
    FakeProcess& process = daemon.host.start(part.uid, "0::/\n");
    process.namespace_owner = part.namespace_owner;
    Channel channel(connect(daemon.settings.socket, process.pid));
    channel.send({}, STDIN_FILENO);
    daemon.run();
  }
}

void prepare() {
  static const bool once = [] {
    std::filesystem::create_directories(folder());
    const char* level = std::getenv("LOG_LEVEL");  // set by hand to examine one input
    require(log::open(level == nullptr ? "off" : level, {}).ok(), "no log");
    std::atexit([] {
      std::filesystem::remove_all(folder());
      std::fprintf(stderr, "messages: %llu\n", static_cast<unsigned long long>(messages));
    });
    return true;
  }();
  static_cast<void>(once);
  for (const auto& file : std::filesystem::directory_iterator(folder())) std::filesystem::remove(file);
}

void live(Input& in, Daemon& daemon, Honest* honest) {
  Crowd crowd(in, daemon, honest);
  while (!in.empty()) crowd.act();
  daemon.host.heal();
  daemon.run();
  const bool is_served = honest != nullptr && !honest->is_forgotten();
  if (is_served) honest->check();
  const nlohmann::json status = status_of(daemon);
  if (is_served) check_honest_job(status);
}

void live_beside_honest(Input& in, Daemon& daemon) {
  register_honest_job(daemon, daemon.host.start(0, "0::/\n").pid);
  Honest honest(daemon);
  honest.come();
  honest.settle();
  live(in, daemon, &honest);
}

void run(Input& in) {
  FakeHost host;
  Daemon daemon(host);
  const bool rotates = in.one_in(4);
  // With the default of this setting, the arbiter would start scontrol.
  daemon.settings.private_data = rotates ? PrivateData::jobs : PrivateData::none;
  if (rotates) daemon.settings.ledger_size = {2 << 10};
  require(daemon.start(), "the arbiter does not start");
  daemon.run();
  const std::size_t descriptors = open_descriptors();
  if (in.one_in(4))
    live(in, daemon, nullptr);
  else
    live_beside_honest(in, daemon);
  close_leftovers(daemon);
  for (const pid_t pid : host.pids()) host.end(pid);
  for (int i = 0; i < 5; ++i) {
    daemon.run();
    host.advance(1min);
  }
  daemon.run();
  // Replaced files of the ledger stay open until the ledger's thread has synchronized them. At most three
  // replaced files may be open: one waits for the thread, and two are being synchronized.
  require(open_descriptors() <= descriptors + (rotates ? 3 : 0), "descriptors are left");
}

}  // namespace
}  // namespace sharedgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sharedgpu::fuzz::prepare();
  sharedgpu::fuzz::Input in(data, size);
  sharedgpu::fuzz::run(in);
  return 0;
}
