// SPDX-License-Identifier: Apache-2.0
// Prints rows of named columns as text, CSV or JSON, and parses times as users write them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "protocol/units.h"

namespace sharedgpu::cli {

// Prints an array of objects. All objects have the keys of `header`, in the same order. `format` is "table",
// "csv" or "json". In a table, columns that are numbers in `header` are right-aligned.
void print_rows(const nlohmann::ordered_json& rows, const nlohmann::ordered_json& header,
                const std::string& format);

// Parses "2026-11-22", "2026-11-22T05:00" or "2026-11-22T05:00:30", in local time. Returns the time since
// 1970.
std::optional<Nanoseconds> parse_moment(const std::string& text);

// Parses the value of `option` like parse_moment(), and stores the time in `moment`. If `text` is empty,
// `moment` stays as it is. Returns an empty string, or an error message.
std::string read_moment(const char* option, const std::string& text, Nanoseconds& moment);

}  // namespace sharedgpu::cli
