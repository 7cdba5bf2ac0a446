// SPDX-License-Identifier: Apache-2.0
// The functions that write the parts of the text of `sharedgpu status --json`, and helpers that these
// functions share. Only the files status_*.cpp include this header.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "arbiter/daemon/json_text.h"
#include "arbiter/daemon/status_view.h"

namespace sharedgpu::status {

// Writes the fields of a GPU into the current object.
void write_gpu(JsonText& json, const StatusView& view, const Snapshot::Gpu& gpu);
// Writes the fields of a tenant into the current object.
void write_tenant(JsonText& json, const StatusView& view, const TenantInfo& info);

inline double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// The value, or null if the condition does not hold.
template <class Value>
std::optional<Value> value_if(bool condition, Value value) {
  return condition ? std::optional(std::move(value)) : std::nullopt;
}

inline std::optional<std::string_view> text_or_null(std::string_view text) {
  return value_if(!text.empty(), text);
}

inline std::optional<std::uint64_t> size_or_null(std::optional<Bytes> size) {
  return size ? std::optional(size->count) : std::nullopt;
}

// The pid of the session's process; zero if the process has just ended.
inline pid_t pid_of(const StatusView& view, SessionId id) {
  const auto known = view.pids.find(id);
  return known == view.pids.end() ? 0 : known->second;
}

// The memory of several sessions together.
struct Sum {
  MemoryUse use;
  Bytes away;
  void add(const Snapshot::Session& session) {
    const MemoryUse& more = session.use;
    away += session.away;
    use.swappable += more.swappable;
    use.resident += more.resident;
    use.pinned += more.pinned;
    use.context += more.context;
    use.host += more.host;
  }
  void write(JsonText& json) const {
    json.field("footprint_bytes", use.footprint().count);
    json.field("resident_bytes", (use.resident + use.pinned).count);
    json.field("pinned_bytes", use.pinned.count);
    json.field("context_bytes", use.context.count);
    json.field("host_bytes", use.host.count);
    json.field("away_bytes", away.count);
  }
};

}  // namespace sharedgpu::status
