// SPDX-License-Identifier: Apache-2.0
#include "config/option_effects.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <string_view>

#include "protocol/policy_names.h"

namespace sharedgpu {
namespace {

// The settings that may apply to a job.
struct Possible {
  std::vector<Settings> turns;  // the settings of each GPU on which the job may run
  std::vector<Settings> job;    // the settings of each partition and QOS that the job may have
};

std::optional<std::string> Submission::*name_in(SectionOf of) {
  return of == SectionOf::partition ? &Submission::partition : &Submission::qos;
}

bool is_of(const Section& section, const Submission& submission) {
  const auto& name = submission.*name_in(section.of);
  return name && section.has(*name);
}

Possible possible_settings(const Settings& node, const Submission& submission) {
  Possible possible{.turns = {node}, .job = {node}};
  Settings& known = possible.job.front();
  for (const SectionOf of : {SectionOf::partition, SectionOf::qos})
    for (const Section& section : node.sections)
      if (section.of == of && is_of(section, submission)) known = with_section(known, section);
  for (const Section& section : node.sections) {
    const bool is_unknown = section.of != SectionOf::gpu && !(submission.*name_in(section.of));
    if (section.of == SectionOf::gpu || is_unknown || is_of(section, submission))
      possible.turns.push_back(with_section(node, section));
    if (is_unknown) possible.job.push_back(with_section(possible.job.front(), section));
  }
  return possible;
}

std::string listed(std::span<const std::string_view> names, const char* last) {
  std::string text;
  for (const std::string_view& name : names) {
    if (!text.empty()) text += &name == &names.back() ? last : ", ";
    text += name;
  }
  return text;
}

// Returns a text that names `serving`, the policies under which `what` has an effect. Returns an empty string
// if the job may run under one of these policies.
std::string policy_lacks(const char* what, std::span<const std::string_view> serving,
                         const Possible& possible) {
  std::vector<std::string_view> here;
  for (const Settings& each : possible.turns) {
    if (std::ranges::find(serving, each.policy) != serving.end()) return {};
    if (std::ranges::find(here, each.policy) == here.end()) here.push_back(each.policy);
  }
  return std::string("has no effect here: ") + what + " count under Policy=" + listed(serving, " or ") +
         ", not under " + listed(here, " and ");
}

template <class Value>
Value highest_of(const std::vector<Settings>& settings, Value Settings::*member) {
  Value highest = settings.front().*member;
  for (const Settings& each : settings) highest = std::max(highest, each.*member);
  return highest;
}

std::string share_effect(const JobOptions& options, const Submission& /*submission*/,
                         const Possible& possible) {
  // With MPS, a limit on the share also limits the job's threads on the GPU.
  const bool has_threads = options.share_limit != 0 && possible.turns.front().mps;
  std::string lacks = policy_lacks("shares", kPoliciesWithShares, possible);
  if (!lacks.empty()) return has_threads ? std::string() : lacks;
  const double highest = highest_of(possible.job, &Settings::max_request);
  if (options.share_request <= highest) return {};
  char text[80];
  std::snprintf(text, sizeof text, "requests more than MaxRequest=%g%%: it counts as %g", highest, highest);
  return text;
}

std::string priority_effect(const JobOptions& options, const Submission& submission,
                            const Possible& possible) {
  if (std::string lacks = policy_lacks("priorities", kPoliciesWithPriorities, possible); !lacks.empty())
    return lacks;
  const std::int32_t site = highest_of(possible.job, &Settings::max_priority);
  const std::int32_t highest = submission.is_run ? std::min(site, 0) : site;
  if (options.priority <= highest) return {};
  const std::string counts = "it counts as " + std::to_string(highest);
  return submission.is_run ? "is above " + std::to_string(highest) + ", the highest of a run: " + counts
                           : "is above MaxPriority=" + std::to_string(highest) + ": " + counts;
}

std::string deadline_effect(const JobOptions& /*options*/, const Submission& /*submission*/,
                            const Possible& possible) {
  return policy_lacks("deadlines", kPoliciesWithDeadlines, possible);
}

// The options whose effect depends on the settings.
struct Effect {
  JobOption option;
  // Returns the reason why the option lacks its effect; an empty string if the option has its effect.
  std::string (*missing)(const JobOptions&, const Submission&, const Possible&);
};
constexpr Effect kEffects[] = {
    {JobOption::share, share_effect},
    {JobOption::priority, priority_effect},
    {JobOption::deadline, deadline_effect},
};

}  // namespace

std::vector<std::string> missing_effects(const GivenOptions& given, const Submission& submission,
                                         const Settings* node) {
  std::vector<std::string> lines;
  const auto add = [&](std::size_t index, const std::string& what) {
    if (!what.empty() && !given.texts[index].empty())
      lines.push_back(given.name(index) + "=" + given.texts[index] + " " + what);
  };
  if (submission.has_units == false) {
    for (std::size_t i = 0; i < kOptionCount; ++i)
      add(i, "has no effect: the job requests no units (--gres=sharedgpu:1)");
    return lines;
  }
  if (submission.is_later_step)
    add(static_cast<std::size_t>(JobOption::backend),
        "has no effect: all processes of a batch job have the backend that sbatch states");
  if (submission.lacks_last_step && given.summary == true)
    add(static_cast<std::size_t>(JobOption::summary),
        "has no effect: in a salloc, only an interactive step ends with the line, and LaunchParameters in "
        "slurm.conf lacks use_interactive_step");
  if (node != nullptr) {
    const Possible possible = possible_settings(*node, submission);
    for (const Effect& effect : kEffects)
      add(static_cast<std::size_t>(effect.option), effect.missing(given.job, submission, possible));
  }
  return lines;
}

}  // namespace sharedgpu
