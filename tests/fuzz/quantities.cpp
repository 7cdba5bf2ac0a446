// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as a size, a time or a percentage. The result is nullopt, or a value within its
// bounds. Writing a size or a time as a number and parsing this number must yield the same value.
#include "config/quantities.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto bytes = parse_size(text))
    fuzz::require(parse_size(std::to_string(bytes->count) + "B") == bytes,
                  "a size reads otherwise as a number");
  if (const auto time = parse_time(text)) {
    fuzz::require(*time >= Nanoseconds{}, "a time below zero");
    const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(*time);
    fuzz::require(parse_time(std::to_string(whole.count()) + "us") == whole,
                  "a time reads otherwise as a number");
  }
  if (const auto percent = parse_percent(text))
    fuzz::require(*percent >= 0 && *percent <= 100, "a percentage out of bounds");
  if (const auto amount = parse_amount(text))
    for (const Bytes total : {Bytes{}, gibibytes(80), Bytes{std::uint64_t{1} << 50}})
      fuzz::require(amount->percent == 0 || amount->of(total) <= total, "a part that is more than all");
  return 0;
}
