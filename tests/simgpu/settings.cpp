// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/settings.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <stdexcept>

#include "tests/simgpu/errors.h"

namespace sharedgpu::simgpu {
namespace {

bool parse_number(const std::string& text, double& number) {
  char* end = nullptr;
  number = std::strtod(text.c_str(), &end);
  return end != text.c_str() && *end == '\0' && number >= 0;
}

bool parse_count(const std::string& text, std::uint64_t& count) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) == 0) return false;
  char* end = nullptr;
  count = std::strtoull(text.c_str(), &end, 10);
  return *end == '\0' && count > 0;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::string::size_type begin = 0;
  while (true) {
    auto end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

// Parses entries NAME:N:ERROR or NAME:N+:ERROR, separated by commas.
bool parse_faults(const std::string& text, std::vector<CallFault>& faults) {
  for (const std::string& item : split(text, ',')) {
    auto parts = split(item, ':');
    if (parts.size() != 3) return false;
    CallFault fault;
    fault.function = parts[0];
    fault.onwards = !parts[1].empty() && parts[1].back() == '+';
    if (fault.onwards) parts[1].pop_back();
    const ErrorName* error = find_error(parts[2]);
    if (!parse_count(parts[1], fault.first) || error == nullptr) return false;
    fault.error = error->code;
    faults.push_back(fault);
  }
  return true;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool parse_size(const std::string& text, Bytes& size) {
  char* end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || number < 0) return false;
  struct Unit {
    const char* name;
    double factor;
  };
  static constexpr Unit kUnits[] = {{"", 1},
                                    {"KiB", 1024.},
                                    {"K", 1024.},
                                    {"MiB", 1048576.},
                                    {"M", 1048576.},
                                    {"GiB", 1073741824.},
                                    {"G", 1073741824.},
                                    {"TiB", 1099511627776.},
                                    {"T", 1099511627776.}};
  for (const Unit& unit : kUnits) {
    if (std::string(end) != unit.name) continue;
    size = {static_cast<std::uint64_t>(number * unit.factor)};
    return true;
  }
  return false;
}

bool read_settings(Settings& settings, std::string& problem) {
  auto check = [&](const char* name, const char* wanted, auto parse) {
    std::string text = variable(name);
    if (text.empty() || parse(text)) return true;
    problem = std::string(name) + ": '" + text + "' is not " + wanted;
    return false;
  };
  auto number = [](double& value) {
    return [&](const std::string& text) { return parse_number(text, value); };
  };
  auto count = [](std::uint64_t& value) {
    return [&](const std::string& text) { return parse_count(text, value); };
  };
  auto devices = [&](const std::string& text) {
    std::uint64_t wanted = 0;
    if (!parse_count(text, wanted) || wanted > kMostDevices) return false;
    settings.devices = static_cast<unsigned>(wanted);
    return true;
  };
  auto size = [](Bytes& value) {
    return [&](const std::string& text) { return parse_size(text, value) && value.count > 0; };
  };

  settings.state = variable("SIMGPU_STATE");
  if (settings.state.empty())
    settings.state =
        "/dev/shm/simgpu-" + std::to_string(getuid()) + "-v9";  // v: the version of the layout, as in kMagic
  settings.forbid_conflicts = variable("SIMGPU_FORBID_CONFLICTS") == "1";
  settings.nvml_events = variable("SIMGPU_NVML_EVENTS") != "0";
  settings.verbose = variable("SIMGPU_VERBOSE") == "1";
  settings.peer_access = variable("SIMGPU_PEER_ACCESS") != "0";
  settings.concurrent_managed = variable("SIMGPU_CONCURRENT_MANAGED") != "0";
  settings.lost_file = variable("SIMGPU_LOST_FILE");
  settings.board = variable("SIMGPU_BOARD");

  double pcie = settings.pcie / 1e9;
  double bandwidth = settings.bandwidth / 1e9;
  double launch = static_cast<double>(settings.launch.count()) / 1e3;
  bool good = check("SIMGPU_DEVICES", "a number from 1 to 8", devices) &&
              check("SIMGPU_MEMORY", "a size (such as 1GiB)", size(settings.memory)) &&
              check("SIMGPU_CONTEXT", "a size (such as 16MiB)", size(settings.context)) &&
              check("SIMGPU_PCIE", "a number of GB/s", number(pcie)) &&
              check("SIMGPU_BANDWIDTH", "a number of GB/s", number(bandwidth)) &&
              check("SIMGPU_LAUNCH_US", "a number of microseconds", number(launch)) &&
              check("SIMGPU_SLOWDOWN", "a factor", number(settings.slowdown)) &&
              check("SIMGPU_FAIL", "a list of FUNCTION:N:CUDA_ERROR_NAME",
                    [&](const std::string& text) { return parse_faults(text, settings.call_faults); }) &&
              check("SIMGPU_OOM_AT", "a count", count(settings.allocation_fault)) &&
              check("SIMGPU_LAUNCH_FAIL_AT", "a count", count(settings.launch_fault)) &&
              check("SIMGPU_LOST_AFTER", "a count", count(settings.lost_after));
  settings.pcie = pcie * 1e9;
  settings.bandwidth = bandwidth * 1e9;
  settings.launch = Nanoseconds(static_cast<std::int64_t>(launch * 1e3));
  return good;
}

}  // namespace sharedgpu::simgpu
