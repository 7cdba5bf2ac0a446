// SPDX-License-Identifier: Apache-2.0
// Reads arbitrary texts as the files of a process in /proc and of its cgroups. The result is the Slurm step
// in these texts, or no step.
#include <map>

#include "arbiter/daemon/cgroups.h"
#include "arbiter/daemon/peers.h"
#include "arbiter/daemon/processes.h"
#include "input.h"
#include "protocol/split.h"

namespace {

using namespace sharedgpu;

// Each file's contents are one part of the input. The file's path decides which part. A NUL ends a part.
class Files : public System {
 public:
  explicit Files(std::string_view text) : parts_(split(text, '\0')) {}
  std::string_view part(const std::string& path) const {
    static const std::map<std::string, std::size_t> kParts = {
        {"cgroup", 0}, {"stat", 1}, {"status", 2}, {"cgroup.procs", 3}, {"cmdline", 4}, {"cgroup.events", 5}};
    const auto known = kParts.find(path.substr(path.rfind('/') + 1));
    return known == kParts.end() || known->second >= parts_.size() ? std::string_view{}
                                                                   : parts_[known->second];
  }
  Status read_file(const std::string& path, std::string& text) const override {
    text = part(path);
    return {};
  }
  std::optional<std::vector<std::string>> list_folder(const std::string&, std::size_t) const override {
    return std::vector<std::string>{"7"};
  }
  Status owner_of(const std::string&, uid_t& owner) const override {
    owner = 0;
    return {};
  }
  std::vector<ino_t> pid_namespaces(pid_t, std::size_t count) const override {
    return std::vector<ino_t>(count, 1);
  }

 private:
  std::vector<std::string_view> parts_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Files files(fuzz::text_of(data, size));
  const std::string_view cgroup = files.part("cgroup");
  std::optional<StepName> step;
  fuzz::require(step_of_process(files, cgroup, step).ok(), "files that can be read are a shortage");
  fuzz::require(!step || step->job != 0, "a step without a job");
  bool named = false;
  for (const std::string_view line : split(cgroup, '\n')) named = named || step_folder(line).has_value();
  fuzz::require(!step || named, "a step that no line names");
  task_of_cgroup(cgroup);
  start_time_of(files, 7);
  program_of(files, 7);
  is_stopped(files, 7);
  runs_as(std::string(files.part("status")), 1001);
  pid_seen_by(pid_names_of(files, 7), pid_names_of(files, 8));
  return 0;
}
