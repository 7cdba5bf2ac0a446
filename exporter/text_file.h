// SPDX-License-Identifier: Apache-2.0
// Writes metrics as a text file for node_exporter's textfile collector.
//
// Any thread; two threads must not write the same file.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace sharedgpu::exporter {

// The metrics in Prometheus' text format.
std::string text_of(const std::vector<prometheus::MetricFamily>& families);

// Replaces `path` by a file with `text` that all users can read: a reader sees the old contents or the new
// ones, never a part. The temporary file is in the same folder, and its name does not end in .prom, so that
// node_exporter does not read it. Returns an empty string, or an error message.
std::string write_text_file(const std::string& path, const std::string& text);

}  // namespace sharedgpu::exporter
