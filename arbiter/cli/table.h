// SPDX-License-Identifier: Apache-2.0
// Prints rows of named columns as text, CSV or JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sharedgpu::cli {

// Prints an array of objects. All objects have the keys of `header`, in the same order. `format` is "table",
// "csv" or "json". In a table, columns that are numbers in `header` are right-aligned, and numbers with a
// fraction have three decimals.
void print_rows(const nlohmann::ordered_json& rows, const nlohmann::ordered_json& header,
                const std::string& format);

}  // namespace sharedgpu::cli
