// SPDX-License-Identifier: Apache-2.0
// Rows of named columns as text, CSV or JSON, and times as a user writes them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "protocol/units.h"

namespace sharedgpu::cli {

// Prints an array of objects that all have the keys of `header`, in its order; `format` is "table", "csv" or
// "json". In a table what is a number in `header` stands to the right.
void print_rows(const nlohmann::ordered_json& rows, const nlohmann::ordered_json& header,
                const std::string& format);

// "2026-11-22", "2026-11-22T05:00" or "2026-11-22T05:00:30", in local time; since 1970.
std::optional<Nanoseconds> parse_moment(const std::string& text);

// The same of an option's value; an empty one leaves `moment`. Returns an empty string, or what is wrong.
std::string read_moment(const char* option, const std::string& text, Nanoseconds& moment);

}  // namespace sharedgpu::cli
