// SPDX-License-Identifier: Apache-2.0
// Prints rows of named columns as text, CSV or JSON, and parses times as users write them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "protocol/units.h"

namespace sharedgpu::cli {

// Prints an array of objects that all have the keys of `header`, in its order; `format` is "table", "csv" or
// "json". In a table, columns that are numbers in `header` are right-aligned.
void print_rows(const nlohmann::ordered_json& rows, const nlohmann::ordered_json& header,
                const std::string& format);

// Parses "2026-11-22", "2026-11-22T05:00" or "2026-11-22T05:00:30", in local time. Returns the time since
// 1970.
std::optional<Nanoseconds> parse_moment(const std::string& text);

// Parses an option's value in the same way into `moment`, which an empty text leaves unchanged. Returns an
// empty string, or an error message.
std::string read_moment(const char* option, const std::string& text, Nanoseconds& moment);

}  // namespace sharedgpu::cli
