// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "arbiter/cli/doctor.h"

namespace sharedgpu::doctor {
namespace {

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::good:
      return "ok";
    case Verdict::wrong:
      return "wrong";
    case Verdict::unseen:
      return "unseen";
    case Verdict::unused:
      return "unused";
  }
  return "";
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

}  // namespace

bool is_any_wrong(const std::vector<Result>& results) {
  return std::any_of(results.begin(), results.end(),
                     [](const Result& result) { return result.finding.verdict == Verdict::wrong; });
}

std::string text_of(const std::vector<Result>& results) {
  constexpr std::size_t kVerdict = 8, kName = 15;
  std::string text;
  for (const auto& [check, finding] : results) {
    text += padded(name_of(finding.verdict), kVerdict) + padded(check->name, kName) + finding.seen + "\n";
    if (!finding.advice.empty()) text += std::string(kVerdict + kName, ' ') + "-> " + finding.advice + "\n";
  }
  return text;
}

std::string json_of(const std::vector<Result>& results) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [check, finding] : results)
    all.push_back(
        {{"check", check->name},
         {"examines", check->examines},
         {"verdict", name_of(finding.verdict)},
         {"seen", finding.seen},
         {"advice", finding.advice.empty() ? nlohmann::json(nullptr) : nlohmann::json(finding.advice)}});
  const nlohmann::json whole{{"all_well", !is_any_wrong(results)}, {"checks", all}};
  return whole.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace sharedgpu::doctor
