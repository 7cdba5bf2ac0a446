// SPDX-License-Identifier: Apache-2.0
// Sizes, times and percentages as people write them, in sharedgpu.conf and on command lines.
//
// Each parser expects a text without surrounding blanks, and returns nullopt unless the whole text is valid.
// A number other than 0 needs a unit, because the meaning of a number alone is not obvious: Slurm reads
// --mem=8 as megabytes, and CUDA counts bytes. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "protocol/units.h"

namespace sharedgpu {

// Parses a size such as "4096B", "512MiB", "24GiB", "1.5G" or "2T". K, M, G and T are powers of 1024, with or
// without "iB" or "B".
std::optional<Bytes> parse_size(std::string_view text);

// Parses a time such as "500ms", "10s", "2m", "1h" or "100us".
std::optional<Nanoseconds> parse_time(std::string_view text);

// Parses a percentage between 0 and 100, such as "5%" or "12.5%".
std::optional<double> parse_percent(std::string_view text);

// Writes a size for people, such as "24.3 GiB", "512 MiB" or "0 B". Rounds to one decimal.
std::string format_size(Bytes size);

// A size of device memory, in bytes or as a percentage of the GPU's memory.
struct Amount {
  Bytes bytes;
  double percent = 0;  // if not zero, used instead of `bytes`

  Bytes of(Bytes total) const;
  bool operator==(const Amount&) const = default;
};
std::optional<Amount> parse_amount(std::string_view text);

}  // namespace sharedgpu
