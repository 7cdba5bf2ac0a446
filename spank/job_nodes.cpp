// SPDX-License-Identifier: Apache-2.0
#include "spank/job_nodes.h"

#include <charconv>

#include "protocol/messages.h"
#include "protocol/node_name.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

constexpr std::uint64_t kMostNodes = 65533;  // MAX_SLURM_NODES
constexpr int kMostComponents = 128;         // most components of a heterogeneous job (MAX_HET_JOB_COMPS)

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

// A range of numbers in node names. `first` is a text, because leading zeros are a part of the name.
struct Numbers {
  std::string_view first;
  std::uint64_t count = 1;
};

// Parses "7" or "01-04".
std::optional<Numbers> parse_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const Numbers one = {.first = text.substr(0, dash)};
  const std::optional<std::uint64_t> from = parse_number(one.first);
  if (!from || dash == text.npos) return from ? std::optional(one) : std::nullopt;
  const std::optional<std::uint64_t> to = parse_number(text.substr(dash + 1));
  if (!to || *to < *from || *to - *from >= kMostNodes) return std::nullopt;
  return Numbers{.first = one.first, .count = *to - *from + 1};
}

// Parses the text between brackets, such as "01,03-04".
std::optional<Numbers> parse_numbers(std::string_view text) {
  std::optional<Numbers> numbers;
  for (std::string_view word : split(text, ',')) {
    const std::optional<Numbers> range = parse_range(word);
    if (!range) return std::nullopt;
    if (numbers)
      numbers->count += range->count;
    else
      numbers = range;
  }
  return numbers;
}

// Removes the names up to the next comma outside brackets from the front of `list`.
std::optional<JobNodes> take_names(std::string_view& list) {
  JobNodes names = {.first = {}, .count = 1};
  while (!list.empty() && list.front() != ',') {
    if (may_be_in_node_name(list.front())) {
      names.first += list.front();
      list.remove_prefix(1);
      continue;
    }
    const std::size_t end = list.find(']');
    if (list.front() != '[' || end == list.npos) return std::nullopt;
    const std::optional<Numbers> numbers = parse_numbers(list.substr(1, end - 1));
    if (!numbers || names.count * numbers->count > kMostNodes) return std::nullopt;
    names.first += numbers->first;
    names.count *= static_cast<std::uint32_t>(numbers->count);
    list.remove_prefix(end + 1);
  }
  if (names.first.empty() || names.first.size() > RegisterGang::kLongest ||
      !is_letter_or_digit(names.first.front()))
    return std::nullopt;
  return names;
}

// Infixes in the names of the variables for a heterogeneous job's components. sbatch and salloc set these
// variables. srun sets them, too, if it creates the job itself.
constexpr const char* kComponentNames[] = {"_HET_GROUP_", "_PACK_GROUP_"};

// Returns the node list of the component with the number `job`; empty if `job` is no component of a
// heterogeneous job. In Slurm each component is a job with its own number and nodes. If a step runs on
// several components, the node list of the step has the nodes of all these components.
std::string list_of_component(std::uint32_t job, const Variables& variables) {
  for (const std::string name : kComponentNames)
    for (int i = 0; i < kMostComponents; ++i) {
      const std::string component = name + std::to_string(i);
      const std::string number = variables(("SLURM_JOB_ID" + component).c_str());
      if (number.empty()) break;
      if (parse_number(number) == job) return variables(("SLURM_JOB_NODELIST" + component).c_str());
    }
  return {};
}

}  // namespace

std::optional<JobNodes> parse_nodes(std::string_view list) {
  std::optional<JobNodes> nodes = take_names(list);
  while (nodes && !list.empty()) {
    list.remove_prefix(1);
    const std::optional<JobNodes> more = take_names(list);
    if (!more || nodes->count + more->count > kMostNodes) return std::nullopt;
    nodes->count += more->count;
  }
  return nodes;
}

// If a step is started from outside its job (srun --jobid), SLURM_JOB_NODELIST has only the nodes of the
// step, or the list of another job. So SLURM_JOB_NODELIST is tried last.
std::optional<JobNodes> job_nodes(std::uint32_t job, const Variables& variables) {
  std::string list = list_of_component(job, variables);
  if (list.empty()) list = variables("SLURM_NODELIST");
  if (list.empty()) list = variables("SLURM_JOB_NODELIST");
  return parse_nodes(list);
}

}  // namespace sharedgpu
