// SPDX-License-Identifier: Apache-2.0
// Reads arbitrary texts as the environment of a program. The results must be settings within their bounds,
// and a list with GPUs of the job only.
#include <vector>

#include "input.h"
#include "interposer/session/settings.h"
#include "interposer/session/visible.h"
#include "protocol/split.h"

namespace {

using namespace sharedgpu;

std::vector<std::string> values;  // values that the successive look-ups of variables return
std::size_t next = 0;

const char* look_up(const char*) { return next < values.size() ? values[next++].c_str() : nullptr; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  values.clear();
  next = 0;
  for (const std::string_view text : split(fuzz::text_of(data, size), '\0')) values.emplace_back(text);
  const session::Settings settings = session::read_settings(look_up, [](auto, auto, auto) {});
  fuzz::require(strnlen(settings.socket, sizeof settings.socket) < sizeof settings.socket,
                "a path without an end");
  fuzz::require(
      settings.arbiter_timeout >= Nanoseconds{} && settings.arbiter_timeout <= std::chrono::hours(24),
      "a patience out of bounds");
  constexpr std::string_view kGiven = "GPU-a,GPU-b,GPU-c";
  const auto given = split(kGiven, ',');
  const auto visible = session::visible_devices(kGiven, values[0].c_str());
  if (!visible || visible->empty()) return 0;
  for (const std::string_view gpu : split(*visible, ','))
    fuzz::require(std::find(given.begin(), given.end(), gpu) != given.end(),
                  "a GPU that the job was not given");
  return 0;
}
